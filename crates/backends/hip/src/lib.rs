//! The HIP backend of wakeline: AMD's `libamdhip64`, loaded when the program asks for it.
//!
//! No toolkit is needed to build, and nothing is linked: [`Hip::load`] opens the library, looks each function up by its name, and says by [`Caps`] what this one
//! can do. Where there is no library, or no device, it says that.
//!
//! | here | what for |
//! |---|---|
//! | [`HipContext`], [`HipStream`], [`HipPort`] | awaiting points of streams, ours and others' |
//! | `HipDevice`, `HipRuntime` | the device of operations, with the feature `ops`: see `wakeline-ops` |
//! | `Compiler`, `KernelCache`, `Hiprtc` | kernels from HIP C at run time, with the feature `compile` |
//! | [`Hip`], [`Loader`] | the loaded library, and how it is loaded |
//! | [`Device`], [`Attribute`] | what a device is and can do |
//! | [`Module`], [`Function`] | kernels from code objects, and their launch |
//! | [`Graph`], [`DeviceBuffer`], [`HostBuffer`] | launching work, for examples and tests; with `compile` also `kernels` |
//! | [`Caps`], [`kind`] | what a library can do; what its failures mean |
//!
//! [`Hip`] is a [`LineDriver`] and a [`WorkDriver`]: lines, streams, points, modules, graphs and the device of operations over it are those of [`wakeline_mapped`],
//! as CUDA's are.
//!
//! ```
//! use wakeline_core::WaitPlan;
//! use wakeline_hip::{Hip, HipStream};
//!
//! let hip = match Hip::load() {
//!     Ok(hip) => hip,
//!     Err(error) => return Ok(println!("skipped: {error}")),
//! };
//! let context = hip.context(0)?;
//! let stream = context.stream()?; // or, of a live `hipStream_t`: unsafe { HipStream::from_raw(&context, raw) }?
//! // .. launch work on `stream.raw()` ..
//! let mut port = stream.port()?;
//! # let plan: WaitPlan = "flag:park_us=50,backstop_us=1000".parse()?;
//! # let _ = (port, plan);
//! # Ok::<(), wakeline_core::Error>(())
//! ```
//!
//! # What differs from CUDA
//!
//! - A context is a device. HIP's own contexts are deprecated and hollow, each a name of its device; what a thread has is a current device, which calls here set and give
//!   back. There is none beside it: [`Context::create`](wakeline_mapped::Context::create) is refused. [`RawContext`](wakeline_mapped::driver::RawContext) is the
//!   device's number plus one.
//! - A store that is enqueued on a stream that is being captured runs at once, and not with the graph. So it is refused there, as everywhere.
//! - Destroying a stream may wait for what is enqueued on it. One that is not idle when it is dropped is destroyed later: when another is made, or with its context.
//! - HIP documents that a stream's store comes after all work before it, and says nothing of a memory barrier: plans with `+trust` rest on more than that.
//! - An update of a graph (`recapture`) that the library refuses half way leaves it half changed. Such a graph is not launched any more until one succeeds; what differs in number, kind or order of its
//!   nodes is found before. A library that does not tell nodes (see [`Caps::GRAPH_NODES`]) launches graphs, and changes none.
//! - Waits for words compare without wrapping, and are documented for words in signal memory alone; a library may refuse others.
//!
//! Invariants: no thread, no environment, no process-wide state but the library, which is never closed, and this process's own number; no panic where a library
//! or a function is absent; each unsafe block is one operation.

#![allow(unsafe_code, reason = "a backend: it calls the driver's C interface")]

mod bridge;
mod caps;
#[cfg(feature = "ops")]
mod collectives;
#[cfg(feature = "compile")]
mod compile;
mod device;
mod driver;
mod error;
#[cfg(feature = "ops")]
mod graphs;
#[cfg(test)]
mod headers;
mod hip;
mod image;
#[cfg(feature = "compile")]
pub mod kernels;
#[cfg(all(test, feature = "compile", feature = "ops", target_os = "linux"))]
mod lacking;
mod load;
#[cfg(feature = "ops")]
mod ops;
#[cfg(feature = "ops")]
mod peers;
mod sys;
mod wait;
mod work;

pub use caps::Caps;
#[cfg(feature = "ops")]
pub use collectives::Rccl;
#[cfg(feature = "compile")]
pub use compile::{Compiled, Compiler, Hiprtc};
pub use device::{Attribute, Device, GfxArch};
pub use error::kind;
#[cfg(feature = "ops")]
pub use graphs::{HipCaptured, HipGraph};
pub use hip::{Hip, HipVersion};
pub use load::Loader;
#[cfg(feature = "ops")]
pub use ops::{HipDevice, HipDeviceConfig, HipEvent, HipMemory, HipOpStream, HipPinned, HipRuntime};
pub use wait::{
    DeviceBuffer, Function, Graph, HipContext, HipKernelWord, HipLine, HipPort, HipStream, HostBuffer,
    Module, Readback,
};
#[cfg(feature = "ops")]
#[doc(inline)]
pub use wakeline_mapped::DEVICE_BYTES_KEPT;
#[cfg(feature = "compile")]
#[doc(inline)]
pub use wakeline_mapped::compile::{
    CACHE_DISK_BYTES_MAX, CACHE_MEMORY_BYTES_MAX, CacheConfig, CacheStats, CompileOptions, CompilerVersion,
    HeaderPlaces, KernelCache, LOG_BYTES_MAX, Standard,
};
#[doc(inline)]
pub use wakeline_mapped::error::{CallError, Kind};
#[doc(inline)]
pub use wakeline_mapped::{
    Answer, Bound, Census, CompletionPath, Context, ContextConfig, Counts, Dim, Event, KernelWord,
    LineDriver, MappedLine, Ordinal, PINNED_BYTES, PROBE_MS_MAX, Parameter, Pinned, PinnedUse, Port,
    SLOTS_MAX, SlotUse, Stream, WeakContext, WorkDriver, synchronize,
};
