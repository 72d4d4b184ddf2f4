//! CUDA's names of what is shared with other drivers: contexts, streams, points and words, and work: modules, graphs, memory.

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

/// A module of kernels: from a text of PTX, or an image.
///
/// ```no_run
/// use wakeline_core::ErrorCode;
/// use wakeline_cuda::{Cuda, Module};
///
/// let context = Cuda::load()?.context(0)?;
/// let error = Module::from_ptx(&context, "this is no kernel").unwrap_err();
/// println!("{error}"); // with what the driver's compiler says, up to JIT_LOG_BYTES_MAX
/// // SAFETY: it is none, which is found out before the driver is asked.
/// let error = unsafe { Module::from_image(&context, b"\x7fELF") }.unwrap_err();
/// assert_eq!(error.code(), ErrorCode::InvalidImage);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub type Module = wakeline_mapped::Module<Cuda>;

/// A kernel of a loaded module, which it keeps loaded.
///
/// ```no_run
/// # use wakeline_cuda::{Cuda, Module, kernels};
/// # let context = Cuda::load()?.context(0)?;
/// # let (stream, module) = (context.stream()?, Module::from_ptx(&context, kernels::PTX)?);
/// let occupy = module.function(kernels::OCCUPY)?;
/// println!("{:?}", occupy.parameters()?); // Some([8]), of drivers of CUDA 12.4 on
/// let ns = 20_000_u64;
/// // SAFETY: the stream is alive and of the module's context; the kernel has one parameter, a u64, and touches no memory.
/// unsafe { occupy.launch(stream.raw(), (4, 2), 32, 0, [&ns]) }?;
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub type Function = wakeline_mapped::Function<Cuda>;

/// Captured work that can be launched as one, and `K`: what it needs to stay alive.
///
/// ```no_run
/// # use wakeline_cuda::{Cuda, DeviceBuffer, Graph, HostBuffer};
/// # let context = Cuda::load()?.context(0)?;
/// let stream = context.stream()?;
/// let (mut host, device) = (HostBuffer::new(&context, 4_096)?, DeviceBuffer::new(&context, 4_096)?);
/// host.as_mut_slice().fill(1);
/// let mut graph = Graph::capture(&stream, (host, device), |(host, device)| {
///     // SAFETY: the stream is alive; the graph owns both buffers.
///     unsafe { device.copy_from(stream.raw(), host) }
/// })?;
/// // SAFETY: the stream is alive, and the graph not dropped before the copy is done.
/// unsafe { graph.launch(stream.raw()) }?;
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub type Graph<K = ()> = wakeline_mapped::Graph<Cuda, K>;

/// Memory of the device.
pub type DeviceBuffer = wakeline_mapped::DeviceBuffer<Cuda>;

/// Memory of the host that the device can reach.
pub type HostBuffer = wakeline_mapped::HostBuffer<Cuda>;

/// A buffer of the device that is filled with a byte and copied to the host, again and again.
///
/// ```no_run
/// use wakeline_cuda::{Cuda, Readback, synchronize};
/// let context = Cuda::load()?.context(0)?;
/// let stream = context.stream()?;
/// let readback = Readback::new(&stream, 4_096)?;
/// readback.launch(7)?;
/// synchronize(&stream)?;
/// assert_eq!(readback.stale_bytes(7), 0);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub type Readback = wakeline_mapped::Readback<Cuda>;

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
