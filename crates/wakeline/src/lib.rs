//! Await GPU work as if it were I/O.
//!
//! The one crate to depend on, next to a host: everything of `wakeline-core`, the backends by feature, and the
//! [`Settings`] that a binary takes from its environment. No logic of its own but where the environment has compilers and headers (feature `compile`: `compiler`,
//! `cache_folder` and `header_places` look at `XDG_CACHE_HOME`, `HOME`, `LOCALAPPDATA`, `CUDA_HOME`, `CUDA_PATH` and `VIRTUAL_ENV`), and no state of the process but the
//! default runtime, where a program asks for it.
//!
//! | feature | adds |
//! |---|---|
//! | `cuda` | `wakeline::cuda`: awaiting CUDA streams; the driver is loaded at run time |
//! | `cudarc` | `wakeline::cuda::FromCudarc`: awaiting cudarc's streams; choose a CUDA version by a feature of your own dependency on cudarc |
//! | `compile` | kernels from CUDA C at run time: `wakeline::cuda::Compiler`, and `compiler`, one by the environment |
//! | `hip` | `wakeline::hip`: awaiting HIP streams; the library is loaded at run time |
//! | `metal` | `wakeline::metal`: awaiting Metal's command buffers, on Apple's systems |
//! | `ops` | `wakeline::ops`: lazy device operations, on those backends that are on; with `cuda`, `default_runtime` |
//! | `sim` | `wakeline::sim`: the simulated device |
//! | `tensor` | `wakeline::tensor`: tensors and kernels on them, with `ops`; `CudaTensor`, `HipTensor`, `SimTensor` |
//! | `wordwait` | `wakeline::wordwait`: parking on a completion line in hardware |
//!
//! Features only add: any of them may be on together.
//!
//! ```
//! use wakeline::{Settings, WaitBands, WaitPlan};
//! let settings = Settings::from_vars([("WAKELINE_PLAN", "poll;rows>=32:block")])?;
//! let bands = settings.bands.unwrap_or(WaitBands::from(WaitPlan::block()));
//! assert_eq!(*bands.choose(8), WaitPlan::poll());
//! # Ok::<(), wakeline::Error>(())
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "compile")]
mod compiler;
#[cfg(all(feature = "cuda", feature = "ops"))]
mod default_runtime;
mod settings;

#[cfg(feature = "compile")]
pub use compiler::{CACHE_FOLDER, cache_folder, compiler, header_places};
#[cfg(all(feature = "cuda", feature = "ops"))]
pub use default_runtime::{default_runtime, use_default_runtime};
pub use settings::Settings;
#[doc(inline)]
pub use wakeline_core::*;
#[cfg(feature = "cuda")]
#[doc(inline)]
pub use wakeline_cuda as cuda;
#[cfg(feature = "hip")]
#[doc(inline)]
pub use wakeline_hip as hip;
#[cfg(feature = "metal")]
#[doc(inline)]
pub use wakeline_metal as metal;
#[cfg(feature = "ops")]
#[doc(inline)]
pub use wakeline_ops as ops;
#[cfg(feature = "sim")]
#[doc(inline)]
pub use wakeline_sim as sim;
#[cfg(feature = "tensor")]
#[doc(inline)]
pub use wakeline_tensor as tensor;
#[cfg(feature = "wordwait")]
#[doc(inline)]
pub use wakeline_wordwait as wordwait;

/// Numbers in memory of a CUDA device.
#[cfg(all(feature = "cuda", feature = "tensor"))]
pub type CudaTensor<T> = tensor::Tensor<T, cuda::CudaDevice>;

/// Numbers in memory of a HIP device.
#[cfg(all(feature = "hip", feature = "tensor"))]
pub type HipTensor<T> = tensor::Tensor<T, hip::HipDevice>;

/// Numbers in memory of a simulated device.
#[cfg(all(feature = "sim", feature = "tensor"))]
pub type SimTensor<T, L = sim::VirtualTime> = tensor::Tensor<T, sim::SimDevice<L>>;
