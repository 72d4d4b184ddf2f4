//! The CUDA backend of wakeline: NVIDIA's driver, loaded when the program asks for it.
//!
//! Nothing of CUDA is needed to build, and nothing is linked: [`Cuda::load`] opens the driver's library, pins each function to one
//! binary interface, and says by [`Caps`] what this driver can do. Where there is no driver it says that.
//!
//! | here | what for |
//! |---|---|
//! | [`CudaContext`], [`CuStream`], [`CudaPort`] | awaiting points of streams, ours and others' |
//! | `CudaDevice`, `CudaRuntime` | the device of operations, with the feature `ops`: see `wakeline-ops` |
//! | `Compiler`, `KernelCache`, `Nvrtc` | kernels from CUDA C at run time, with the feature `compile` |
//! | `FromCudarc` | the same of cudarc's streams, with the feature `cudarc` |
//! | `LendSlice` | cudarc's slices as memory of operations, with `cudarc` and `ops` |
//! | [`TimedStream`] | points that know exactly when their work ended |
//! | [`Cuda`], [`Loader`] | the loaded driver, and how it is loaded |
//! | [`Device`], [`Attribute`], [`Uuid`] | what a device is and can do |
//! | [`Module`], [`Function`] | kernels from PTX and from images, and their launch |
//! | [`Graph`], [`DeviceBuffer`], [`HostBuffer`], [`kernels`] | launching work, for examples and tests |
//! | [`Calls`], [`synchronize`], [`Readback`] | the driver's calls one by one, its own wait, copies that are checked: for benches |
//! | [`Caps`], [`kind`] | what a driver can do; what its failures mean |
//!
//! [`Cuda`] is a [`LineDriver`]: lines, streams and points over it are those of
//! [`wakeline_mapped`].
//!
//! ```
//! use wakeline_core::{Inline, Wait, WaitPlan, drive, run_inline};
//! use wakeline_cuda::{CuStream, Cuda};
//!
//! let cuda = match Cuda::load() {
//!     Ok(cuda) => cuda,
//!     Err(error) => return Ok(println!("skipped: {error}")),
//! };
//! let context = cuda.context(0)?;
//! let stream = context.stream()?; // or, of a live `CUstream`: unsafe { CuStream::from_raw(&context, raw) }?
//! // .. launch work on `stream.raw()` ..
//! let mut port = stream.port()?;
//! # let plan: WaitPlan = "flag:park_us=50,backstop_us=1000".parse()?;
//! # let _ = (port, plan);
//! # Ok::<(), wakeline_core::Error>(())
//! ```
//!
//! Invariants: no thread, no environment, no process-wide state but the library, which is never closed, and this process's own number; no panic where a library
//! or a function is absent; each unsafe block is one operation.

#![allow(unsafe_code, reason = "a backend: it calls the driver's C interface")]

#[cfg(feature = "ops")]
mod access;
mod arch;
mod calls;
mod caps;
mod clock;
#[cfg(feature = "compile")]
mod compile;
mod cuda;
#[cfg(feature = "cudarc")]
mod cudarc;
mod device;
mod driver;
mod error;
mod function;
mod graph;
#[cfg(feature = "ops")]
mod graphs;
mod image;
pub mod kernels;
#[cfg(feature = "ops")]
mod launch;
mod load;
mod memory;
mod module;
#[cfg(feature = "ops")]
mod ops;
mod readback;
#[cfg(all(feature = "cudarc", feature = "ops"))]
mod slices;
mod sys;
#[cfg(feature = "ops")]
mod tally;
mod timed;
mod wait;
mod words;

#[cfg(feature = "ops")]
pub use access::CudaMemory;
pub use arch::Arch;
pub use calls::{Calls, Schedule, synchronize};
pub use caps::Caps;
pub use clock::{ClockOffset, DRIFT_PPM_MAX};
#[cfg(feature = "compile")]
pub use compile::{
    CACHE_DISK_BYTES_MAX, CACHE_MEMORY_BYTES_MAX, CacheConfig, CacheStats, CompileOptions, Compiled,
    Compiler, CompilerVersion, HeaderPlaces, KernelCache, LOG_BYTES_MAX, Nvrtc, Standard,
};
pub use cuda::{Cuda, DriverVersion};
#[cfg(feature = "cudarc")]
pub use cudarc::FromCudarc;
pub use device::{Attribute, Device, Uuid};
pub use error::kind;
pub use function::{Dim, Function, Parameter, SHARED_BYTES_OF_ALL};
pub use graph::Graph;
#[cfg(feature = "ops")]
pub use graphs::{CudaCaptured, CudaGraph};
pub use load::Loader;
pub use memory::{DeviceBuffer, HostBuffer};
pub use module::{JIT_LOG_BYTES_MAX, Module};
#[cfg(feature = "ops")]
pub use ops::{
    CudaDevice, CudaDeviceConfig, CudaEvent, CudaOpStream, CudaPinned, CudaRuntime, DEVICE_BYTES_KEPT,
};
pub use readback::Readback;
#[cfg(all(feature = "cudarc", feature = "ops"))]
pub use slices::LendSlice;
pub use timed::{STAMPS, TimedPort, TimedStream};
pub use wait::{CuStream, CudaContext, CudaKernelWord, CudaLine, CudaPort};
#[doc(inline)]
pub use wakeline_mapped::error::{CallError, Kind};
#[doc(inline)]
pub use wakeline_mapped::{
    Answer, Bound, Census, CompletionPath, Context, ContextConfig, Counts, Event, KernelWord, LineDriver,
    MappedLine, Ordinal, PINNED_BYTES, PROBE_MS_MAX, Pinned, PinnedUse, Port, SLOTS_MAX, SlotUse, Stream,
    WeakContext,
};
