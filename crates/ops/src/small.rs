//! Small combinators: what looks at an output, wraps it, forgets its type.

use core::fmt;
use core::marker::PhantomData;
use core::task::{Context, Poll};
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode};

use crate::device_op;
use crate::lock;
use crate::op::DeviceOp;
use crate::port::Device;
use crate::submission::Submission;

/// An operation that has the device do nothing and gives nothing: where a choice needs an operation and there is none.
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, SingleStream, empty};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
/// empty().on(&runtime).sync()?;
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub const fn empty<D: Device>() -> crate::Value<D, ()> {
    crate::value(())
}

/// See [`DeviceOp::inspect`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Clone, Debug)]
pub struct Inspect<O, F>(pub(crate) O, pub(crate) F);

impl<O, F> DeviceOp for Inspect<O, F>
where
    O: DeviceOp,
    F: FnOnce(&O::Pending) + Send + 'static,
{
    type Device = O::Device;
    type Pending = O::Pending;
    type Output = <O as DeviceOp>::Output;

    fn execute(self, submission: &mut Submission<O::Device>) -> Result<O::Pending, Error> {
        self.0.execute(submission).inspect(self.1)
    }

    fn finish(pending: O::Pending) -> Result<<O as DeviceOp>::Output, Error> {
        O::finish(pending)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_ready(context)
    }

    fn entries(&self) -> u32 {
        self.0.entries()
    }
}

device_op!([O, F] Inspect<O, F> where O: DeviceOp, F: FnOnce(&O::Pending) + Send + 'static);

/// See [`DeviceOp::unwrap_arc`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Clone, Copy, Debug)]
pub struct UnwrapArc<O, T>(pub(crate) O, pub(crate) PhantomData<fn() -> T>);

impl<O, T> DeviceOp for UnwrapArc<O, T>
where
    O: DeviceOp<Pending = Arc<T>>,
    T: Send + Sync + 'static,
{
    type Device = O::Device;
    type Pending = T;
    type Output = T;

    fn execute(self, submission: &mut Submission<O::Device>) -> Result<T, Error> {
        let value = self.0.execute(submission)?;
        let shared =
            |value: Arc<T>| Error::new(ErrorCode::ArcShared, [&Arc::strong_count(&value).saturating_sub(1)]);
        Arc::try_unwrap(value).map_err(shared)
    }

    fn finish(value: T) -> Result<T, Error> {
        Ok(value)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_ready(context)
    }

    fn entries(&self) -> u32 {
        self.0.entries()
    }
}

device_op!([O, T] UnwrapArc<O, T> where O: DeviceOp<Pending = Arc<T>>, T: Send + Sync + 'static);

/// See [`DeviceOp::then_unchecked`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Clone, Debug)]
pub struct ThenUnchecked<O, F>(pub(crate) O, pub(crate) F);

impl<O, N, F> DeviceOp for ThenUnchecked<O, F>
where
    O: DeviceOp,
    N: DeviceOp<Device = O::Device>,
    F: FnOnce(O::Pending) -> N + Send + 'static,
{
    type Device = O::Device;
    type Pending = N::Pending;
    type Output = <N as DeviceOp>::Output;

    fn execute(self, submission: &mut Submission<O::Device>) -> Result<N::Pending, Error> {
        let first = self.0.execute(submission)?;
        let next = lock::released(|| (self.1)(first));
        submission.room(next.entries())?;
        next.execute(submission)
    }

    fn finish(pending: N::Pending) -> Result<<N as DeviceOp>::Output, Error> {
        N::finish(pending)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_ready(context)
    }

    fn entries(&self) -> u32 {
        self.0.entries().saturating_add(1)
    }
}

device_op!([O, N, F] ThenUnchecked<O, F>
where
    O: DeviceOp,
    N: DeviceOp<Device = O::Device>,
    F: FnOnce(O::Pending) -> N + Send + 'static
);

/// An operation whose closure has the submission: its stream, its device, and what it keeps ([`Submission::retain`]). What the closure
/// returns is submitted behind.
///
/// For calls of the port that no operation makes; whoever makes one retains what it touches. Costs no allocation.
///
/// ```
/// use wakeline_core::Nanos;
/// use wakeline_ops::{DeviceOp, Runtime, SingleStream, Submission, value, with_context};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
/// let busy = with_context(|submission: &mut Submission<SimDevice>| {
///     submission.stream().raw().launch(Nanos::from_millis(1))?;
///     Ok(value("launched"))
/// });
/// assert_eq!(busy.on(&runtime).sync()?, "launched");
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub const fn with_context<D, N, F>(f: F) -> WithContext<D, F>
where
    D: Device,
    N: DeviceOp<Device = D>,
    F: FnOnce(&mut Submission<D>) -> Result<N, Error> + Send + 'static,
{
    WithContext { f, device: PhantomData }
}

/// See [`with_context`].
#[must_use = "an operation does nothing until it is awaited or run"]
pub struct WithContext<D, F> {
    f: F,
    device: PhantomData<fn() -> D>,
}

impl<D, N, F> DeviceOp for WithContext<D, F>
where
    D: Device,
    N: DeviceOp<Device = D>,
    F: FnOnce(&mut Submission<D>) -> Result<N, Error> + Send + 'static,
{
    type Device = D;
    type Pending = N::Pending;
    type Output = <N as DeviceOp>::Output;

    fn execute(self, submission: &mut Submission<D>) -> Result<N::Pending, Error> {
        let next = (self.f)(submission)?;
        submission.room(next.entries())?;
        next.execute(submission)
    }

    fn finish(pending: N::Pending) -> Result<<N as DeviceOp>::Output, Error> {
        N::finish(pending)
    }
}

device_op!([D, N, F] WithContext<D, F>
where
    D: Device,
    N: DeviceOp<Device = D>,
    F: FnOnce(&mut Submission<D>) -> Result<N, Error> + Send + 'static
);

impl<D, F> fmt::Debug for WithContext<D, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithContext").finish_non_exhaustive()
    }
}

/// See [`DeviceOp::and_then_with_context`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Clone, Debug)]
pub struct AndThenWithContext<O, F>(pub(crate) O, pub(crate) F);

impl<O, N, F> DeviceOp for AndThenWithContext<O, F>
where
    O: DeviceOp,
    N: DeviceOp<Device = O::Device>,
    F: FnOnce(&mut Submission<O::Device>, O::Pending) -> Result<N, Error> + Send + 'static,
{
    type Device = O::Device;
    type Pending = N::Pending;
    type Output = <N as DeviceOp>::Output;

    fn execute(self, submission: &mut Submission<O::Device>) -> Result<N::Pending, Error> {
        let before = self.0.execute(submission)?;
        let next = (self.1)(submission, before)?;
        submission.room(next.entries())?;
        next.execute(submission)
    }

    fn finish(pending: N::Pending) -> Result<<N as DeviceOp>::Output, Error> {
        N::finish(pending)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_ready(context)
    }

    fn entries(&self) -> u32 {
        self.0.entries().saturating_add(1)
    }
}

device_op!([O, N, F] AndThenWithContext<O, F>
where
    O: DeviceOp,
    N: DeviceOp<Device = O::Device>,
    F: FnOnce(&mut Submission<O::Device>, O::Pending) -> Result<N, Error> + Send + 'static
);
