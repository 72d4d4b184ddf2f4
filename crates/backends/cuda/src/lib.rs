//! The CUDA backend of wakeline: NVIDIA's driver, loaded when the program asks for it.
//!
//! Nothing of CUDA is needed to build, and nothing is linked: [`Cuda::load`] opens the driver's library, pins each function to one
//! binary interface, and says by [`Caps`] what this driver can do. Where there is no driver it says that.
//!
//! | here | what for |
//! |---|---|
//! | [`CudaContext`], [`CuStream`], [`CudaPort`] | awaiting points of streams, ours and others' |
//! | `CudaDevice`, `CudaRuntime` | the device of operations, with the feature `ops`: see `wakeline-ops` |
//! | `Nccl` | what several devices compute together, with the feature `ops` |
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
//! [`Cuda`] is a [`LineDriver`] and a [`WorkDriver`]: lines, streams, points, modules, graphs and the device of operations over it are those
//! of [`wakeline_mapped`].
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

mod arch;
mod calls;
mod caps;
mod clock;
#[cfg(feature = "ops")]
mod collectives;
#[cfg(feature = "compile")]
mod compile;
mod cuda;
#[cfg(feature = "cudarc")]
mod cudarc;
mod device;
mod driver;
mod error;
#[cfg(feature = "ops")]
mod graphs;
mod image;
pub mod kernels;
mod load;
#[cfg(feature = "ops")]
mod ops;
#[cfg(feature = "ops")]
mod peers;
#[cfg(all(feature = "cudarc", feature = "ops"))]
mod slices;
mod sys;
mod timed;
mod wait;
mod words;
mod work;

pub use arch::Arch;
pub use calls::{Calls, Schedule};
pub use caps::Caps;
pub use clock::{ClockOffset, DRIFT_PPM_MAX};
#[cfg(feature = "ops")]
#[doc(hidden)]
pub use collectives::BareRanks;
#[cfg(feature = "ops")]
pub use collectives::Nccl;
#[cfg(feature = "compile")]
pub use compile::{Compiled, Compiler, Nvrtc};
pub use cuda::{Cuda, DriverVersion};
#[cfg(feature = "cudarc")]
pub use cudarc::FromCudarc;
pub use device::{Attribute, Device, Uuid};
pub use error::kind;
#[cfg(feature = "ops")]
pub use graphs::{CudaCaptured, CudaGraph};
pub use load::Loader;
#[cfg(feature = "ops")]
pub use ops::{CudaDevice, CudaDeviceConfig, CudaEvent, CudaMemory, CudaOpStream, CudaPinned, CudaRuntime};
#[cfg(all(feature = "cudarc", feature = "ops"))]
pub use slices::LendSlice;
pub use timed::{STAMPS, TimedPort, TimedStream};
pub use wait::{
    CuStream, CudaContext, CudaKernelWord, CudaLine, CudaPort, DeviceBuffer, Function, Graph, HostBuffer,
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
    SHARED_BYTES_OF_ALL, SLOTS_MAX, SlotUse, Stream, WeakContext, WorkDriver, synchronize,
};
pub use work::JIT_LOG_BYTES_MAX;
