//! A CUDA device as the device of operations: names of what is shared with other drivers.

use wakeline_mapped::{DeviceMemory, Event, OpDevice, OpDeviceConfig, OpPinned};

use crate::cuda::Cuda;

/// A CUDA device for operations. Clones are handles of one.
///
/// ```
/// use wakeline_cuda::{Cuda, CudaDevice, Ordinal};
/// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin};
/// use wakeline_std::{Point, Watcher, block_on};
/// use wakeline_tensor::Tensor;
///
/// let cuda = match Cuda::load() {
///     Ok(cuda) => cuda,
///     Err(error) => return Ok(println!("skipped: {error}")),
/// };
/// let device = CudaDevice::new(&cuda, Ordinal(0))?;
/// let watcher = Watcher::new()?;
/// let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), watcher.handle().tender(&Point::new("ops")))?;
/// let op = Tensor::from_host(vec![1_u32, 2, 3]).then(|tensor| tensor.to_host());
/// assert_eq!(block_on(op.on(&runtime))?, [1, 2, 3]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub type CudaDevice = OpDevice<Cuda>;

/// What a [`CudaDevice`] is made with.
pub type CudaDeviceConfig = OpDeviceConfig;

/// An event between streams of a CUDA device.
pub type CudaEvent = Event<Cuda>;

/// Memory of a CUDA device: a name, which frees nothing when it is dropped.
pub type CudaMemory = DeviceMemory<Cuda>;

/// Pinned memory of the host, for copies from and to a CUDA device.
pub type CudaPinned = OpPinned<Cuda>;

/// A runtime of operations on a CUDA device.
pub type CudaRuntime = wakeline_ops::Runtime<CudaDevice>;

/// A stream of such a runtime.
pub type CudaOpStream = wakeline_ops::Stream<CudaDevice>;
