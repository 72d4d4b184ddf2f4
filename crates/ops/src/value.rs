//! A value as an operation.

use core::fmt;
use core::marker::PhantomData;

use wakeline_core::Error;

use crate::device_op;
use crate::op::DeviceOp;
use crate::port::Device;
use crate::submission::Submission;

/// An operation that gives `value` and has the device do nothing: where a chain begins.
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, SingleStream, value};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
/// assert_eq!(value(1).then(|n| value(n + 1)).on(&runtime).sync()?, 2);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[inline]
pub const fn value<D, T>(value: T) -> Value<D, T> {
    Value { value, device: PhantomData }
}

/// See [`value`].
#[must_use = "an operation does nothing until it is awaited or run"]
pub struct Value<D, T> {
    value: T,
    device: PhantomData<fn() -> D>,
}

impl<D: Device, T: Send + 'static> DeviceOp for Value<D, T> {
    type Device = D;
    type Pending = T;
    type Output = T;

    #[inline]
    fn execute(self, _: &mut Submission<D>) -> Result<T, Error> {
        Ok(self.value)
    }

    fn finish(value: T) -> Result<T, Error> {
        Ok(value)
    }

    fn entries(&self) -> u32 {
        0
    }
}

device_op!([D, T] Value<D, T> where D: Device, T: Send + 'static);

impl<D, T: fmt::Debug> fmt::Debug for Value<D, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Value").field(&self.value).finish()
    }
}
