//! A stand-in for `libcuda.so.1`: a library that exports the driver's symbols, simulates devices in real time, and can be
//! made to fail, delay, drop, refuse or block every call.
//!
//! For benchmarks it also has the few symbols of `libnvidia-ml.so.1` that tell what energy a device has used; and those of `libnvrtc.so`, a compiler that knows
//! of a source which kernels it has, so that what it makes can be loaded and launched here.
//!
//! And those of `libnccl.so.2` and `librccl.so.1`: collectives over the memory of these devices, whose ranks may be of several processes.
//!
//! It is one for `libamdhip64.so`, too, with the compiler that is a part of that: the symbols `hip*` do to the same devices what CUDA's do, with what differs in HIP (a context
//! is a device, a store in a capture runs at once, a stream's destruction waits). A rule by CUDA's name of a call is one for HIP's as well.
//!
//! The package is built twice from one source:
//!
//! - as a C library, all that is below `driver`: the exported symbols `cu*` and `hip*`, and the state behind them. It has threads and
//!   statics, as the real one has.
//! - as a Rust library, [`Fake`]: a test's handle to one loaded copy of the C library.
//!
//! The state of a fake is never that of the Rust library: `driver` is private, nothing outside of it uses it, and a
//! [`Fake`] reaches its copy by resolved symbols only. Every [`Fake`] loads a copy of its own, so tests that run at once share
//! nothing.
//!
//! ```no_run
//! use wakeline_fake_driver::{Act, Fake, Rule, Status};
//!
//! let fake = Fake::new()?;
//! fake.rule(Rule::new("cuStreamQuery", Act::Fail(Status::LAUNCH_FAILED)).skip(3).times(1));
//! // .. load the library at `fake.path()` with the loader under test, and use it ..
//! assert!(fake.calls("cuStreamQuery") > 3);
//! assert_eq!(fake.live().pinned_pages, 0);
//! assert!(fake.violations().is_empty());
//! # Ok::<(), wakeline_fake_driver::FakeError>(())
//! ```

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("the fake driver is a library for 64-bit Linux");

mod driver;
mod fake;
mod locate;
mod status;
mod twins;
mod wire;

pub use fake::{Fake, thread_id};
pub use locate::FakeError;
pub use status::Status;
pub use twins::{cuda_name, hip_name};
pub use wire::{Act, Call, FaultEnds, HipNodes, Live, Options, PeerAccess, Rule, RuleId};
