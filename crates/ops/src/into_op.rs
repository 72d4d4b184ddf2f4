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

/// A number, or an operation that gives one: what a parameter takes that is a number.
///
/// Unlike [`IntoDeviceOp`] it says of which type, so that a literal needs not.
///
/// ```
/// use wakeline_ops::{DeviceOp, Gives, value};
/// use wakeline_sim::SimDevice;
/// fn half(number: impl Gives<f32, SimDevice>) -> impl DeviceOp<Device = SimDevice, Output = f32> {
///     number.into_op_of().map(|number| number / 2.0)
/// }
/// let _ = (half(3.0), half(value(3.0)));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no `{T}`, and no operation that gives one",
    note = "a number is of exactly that type: for an `f32` it is `2.0`, not `2`"
)]
pub trait Gives<T, D: Device> {
    /// The operation.
    type Op: DeviceOp<Device = D, Pending = T, Output = T>;

    /// Makes it.
    fn into_op_of(self) -> Self::Op;
}

// What gives no such value is told as that, and not as what is no operation.
#[diagnostic::do_not_recommend]
impl<T, O: DeviceOp<Pending = T, Output = T>> Gives<T, O::Device> for O {
    type Op = O;

    fn into_op_of(self) -> O {
        self
    }
}

macro_rules! numbers {
    ($($number:ty)+) => {$(
        impl<D: Device> Gives<$number, D> for $number {
            type Op = Value<D, $number>;

            fn into_op_of(self) -> Value<D, $number> {
                value(self)
            }
        }
    )+};
}

/// What belongs to a device, so that it is known of an [`Arc`] of it as well.
pub trait OfDevice: Send + Sync + 'static {
    /// The device.
    type Device: Device;
}

/// An operation, or an [`Arc`] of what [belongs to a device](OfDevice), which stands for the operation that gives it: what a library of tensors takes where it
/// has no better way.
///
/// It has no parameter, unlike [`IntoDeviceOp`]: only who makes a type can make it one of these. So a library can tell its own types from it.
pub trait Giving {
    /// The device.
    type Device: Device;
    /// The operation.
    type Op: DeviceOp<Device = Self::Device>;

    /// Makes it.
    fn into_giving(self) -> Self::Op;
}

impl<O: DeviceOp> Giving for O {
    type Device = O::Device;
    type Op = O;

    fn into_giving(self) -> O {
        self
    }
}

impl<T: OfDevice> Giving for Arc<T> {
    type Device = T::Device;
    type Op = Value<T::Device, Self>;

    fn into_giving(self) -> Self::Op {
        value(self)
    }
}

numbers!(bool u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64);

impl<T: Send + Sync + 'static, D: Device> IntoDeviceOp<D> for Arc<T> {
    type Op = Value<D, Self>;

    fn into_op(self) -> Value<D, Self> {
        value(self)
    }
}
