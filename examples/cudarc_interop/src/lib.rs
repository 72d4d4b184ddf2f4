//! What the example launches by cudarc: a kernel that is busy for as long as it is told, carried as text.

#![doc = include_str!("../README.md")]

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg as _};
use cudarc::nvrtc::Ptx;

/// The kernel's text. The driver compiles it when it is loaded, so no toolkit is needed to build.
pub const PTX: &str = include_str!("occupy.ptx");

/// The loaded kernel.
#[derive(Clone, Debug)]
pub struct Occupy {
    function: CudaFunction,
}

impl Occupy {
    /// Loads it into a context.
    ///
    /// # Errors
    ///
    /// A driver call failed.
    pub fn load(context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        let function = context.load_module(Ptx::from_src(PTX))?.load_function("occupy")?;
        Ok(Self { function })
    }

    /// Occupies a stream of that context for so long.
    ///
    /// # Errors
    ///
    /// A driver call failed.
    #[allow(unsafe_code, reason = "cudarc cannot know what a kernel takes and does")]
    pub fn launch(&self, stream: &Arc<CudaStream>, nanos: u64) -> Result<(), DriverError> {
        let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the kernel takes one number of 64 bits, which is copied by the launch, and touches no memory.
        unsafe { stream.launch_builder(&self.function).arg(&nanos).launch(one) }?;
        Ok(())
    }
}
