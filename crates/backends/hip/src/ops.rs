//! A HIP device as the device of operations: names of what is shared with other drivers.

use wakeline_mapped::{DeviceMemory, Event, OpDevice, OpDeviceConfig, OpPinned};

use crate::hip::Hip;

/// A HIP device for operations. Clones are handles of one.
///
/// ```
/// use wakeline_hip::{Hip, HipDevice, Ordinal};
/// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin};
/// use wakeline_std::{Point, Watcher, block_on};
/// use wakeline_tensor::Tensor;
///
/// let hip = match Hip::load() {
///     Ok(hip) => hip,
///     Err(error) => return Ok(println!("skipped: {error}")),
/// };
/// let device = HipDevice::new(&hip, Ordinal(0))?;
/// let watcher = Watcher::new()?;
/// let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), watcher.handle().tender(&Point::new("ops")))?;
/// let op = Tensor::from_host(vec![1_u32, 2, 3]).then(|tensor| tensor.to_host());
/// assert_eq!(block_on(op.on(&runtime))?, [1, 2, 3]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub type HipDevice = OpDevice<Hip>;

/// What a [`HipDevice`] is made with.
pub type HipDeviceConfig = OpDeviceConfig;

/// An event between streams of a HIP device.
pub type HipEvent = Event<Hip>;

/// Memory of a HIP device: a name, which frees nothing when it is dropped.
pub type HipMemory = DeviceMemory<Hip>;

/// Pinned memory of the host, for copies from and to a HIP device.
pub type HipPinned = OpPinned<Hip>;

/// A runtime of operations on a HIP device.
pub type HipRuntime = wakeline_ops::Runtime<HipDevice>;

/// A stream of such a runtime.
pub type HipOpStream = wakeline_ops::Stream<HipDevice>;
