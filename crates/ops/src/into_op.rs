//! Values where operations are expected.

use std::sync::Arc;

use crate::op::DeviceOp;
use crate::port::Device;
use crate::value::{Value, value};
use crate::zip::{All, all};

/// What [`zip!`](crate::zip) and [`all`] take: an operation, a vector of operations, or a value that stands for the operation which gives it.
/// Values are numbers, `bool`, `()`, texts, tensors (those of `wakeline-tensor`) and what is in an [`Arc`]; others become operations by [`value`].
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, SingleStream, value, zip};
/// use wakeline_tensor::Tensor;
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
/// let (_, rows, scale, name) = zip!(Tensor::full(4, 0_u8), 32, 0.5, value(Some("batch"))).on(&runtime).sync()?;
/// assert_eq!((rows, scale, name), (32, 0.5, Some("batch")));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub trait IntoDeviceOp<D: Device> {
    /// The operation.
    type Op: DeviceOp<Device = D>;

    /// Makes it.
    fn into_op(self) -> Self::Op;
}

impl<D: Device, O: DeviceOp<Device = D>> IntoDeviceOp<D> for O {
    type Op = O;

    fn into_op(self) -> O {
        self
    }
}

/// As [`all`].
impl<D: Device, O: IntoDeviceOp<D>> IntoDeviceOp<D> for Vec<O> {
    type Op = All<O::Op>;

    fn into_op(self) -> All<O::Op> {
        all(self)
    }
}

macro_rules! values {
    ($($value:ty)+) => {$(
        impl<D: Device> IntoDeviceOp<D> for $value {
            type Op = Value<D, $value>;

            fn into_op(self) -> Value<D, $value> {
                value(self)
            }
        }
    )+};
}

values!(() bool u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64 &'static str String);

impl<T: Send + Sync + 'static, D: Device> IntoDeviceOp<D> for Arc<T> {
    type Op = Value<D, Self>;

    fn into_op(self) -> Value<D, Self> {
        value(self)
    }
}
