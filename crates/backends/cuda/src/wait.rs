//! CUDA's names of what is awaited: contexts, streams, points and words over this driver.

use wakeline_core::Error;
use wakeline_mapped::driver::Ordinal;
use wakeline_mapped::{Context, ContextConfig, KernelWord, MappedLine, Port, Stream};

use crate::cuda::Cuda;

/// A device's context, with the completion lines of its streams.
pub type CudaContext = Context<Cuda>;

/// A stream whose points can be awaited: one of ours, or any live `CUstream` by [`from_raw`](Stream::from_raw).
pub type CuStream = Stream<Cuda>;

/// One awaited point of a [`CuStream`].
pub type CudaPort = Port<Cuda>;

/// A handle of a line that a device stores into.
pub type CudaLine = MappedLine<Cuda>;

/// A word that a running kernel stores.
pub type CudaKernelWord = KernelWord<Cuda>;

impl Cuda {
    /// The primary context of a device, which it shares with the runtime API, cudarc and all else in the process; as
    /// [`Context::primary`] with the default configuration.
    ///
    /// # Errors
    /// As [`Context::primary`].
    pub fn context(&self, device: u32) -> Result<CudaContext, Error> {
        Context::primary(self, Ordinal(device), &ContextConfig::default())
    }
}
