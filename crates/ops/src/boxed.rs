//! Operations whose types are forgotten.

use core::fmt;
use core::task::{Context, Poll};

use wakeline_core::Error;

use crate::device_op;
use crate::op::DeviceOp;
use crate::port::Device;
use crate::submission::Submission;

/// An operation as an object, which is executed where it is.
trait Execute<D: Device, P>: Send {
    fn execute(self: Box<Self>, submission: &mut Submission<D>) -> Result<P, Error>;
    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()>;
    fn entries(&self) -> u32;
}

/// One whose pending output is handed on.
struct AtSubmission<O>(O);

impl<O: DeviceOp> Execute<O::Device, O::Pending> for AtSubmission<O> {
    fn execute(self: Box<Self>, submission: &mut Submission<O::Device>) -> Result<O::Pending, Error> {
        self.0.execute(submission)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_ready(context)
    }

    fn entries(&self) -> u32 {
        self.0.entries()
    }
}

/// One whose output is made on the host.
struct OnHost<O>(O);

impl<O: DeviceOp> Execute<O::Device, Arriving<<O as DeviceOp>::Output>> for OnHost<O> {
    fn execute(
        self: Box<Self>,
        submission: &mut Submission<O::Device>,
    ) -> Result<Arriving<<O as DeviceOp>::Output>, Error> {
        let pending = self.0.execute(submission)?;
        Ok(Arriving(Box::new(move || O::finish(pending))))
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_ready(context)
    }

    fn entries(&self) -> u32 {
        self.0.entries()
    }
}

/// An operation that gives a `T` at submission, of whatever type: see [`DeviceOp::boxed`].
#[must_use = "an operation does nothing until it is awaited or run"]
pub struct Boxed<D: Device, T> {
    op: Box<dyn Execute<D, T>>,
}

impl<D: Device, T> Boxed<D, T> {
    pub(crate) fn new<O: DeviceOp<Device = D, Pending = T>>(op: O) -> Self {
        Self { op: Box::new(AtSubmission(op)) }
    }
}

impl<D: Device, T: Send + 'static> DeviceOp for Boxed<D, T> {
    type Device = D;
    type Pending = T;
    type Output = T;

    fn execute(self, submission: &mut Submission<D>) -> Result<T, Error> {
        self.op.execute(submission)
    }

    fn finish(pending: T) -> Result<T, Error> {
        Ok(pending)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.op.poll_ready(context)
    }

    fn entries(&self) -> u32 {
        self.op.entries()
    }
}

device_op!([D, T] Boxed<D, T> where D: Device, T: Send + 'static);

/// An operation that gives a `T` on the host, of whatever type: see [`DeviceOp::boxed_host`].
#[must_use = "an operation does nothing until it is awaited or run"]
pub struct BoxedHost<D: Device, T> {
    op: Box<dyn Execute<D, Arriving<T>>>,
}

/// What makes a `T` on the host, once the device is done.
pub struct Arriving<T>(Box<dyn FnOnce() -> Result<T, Error> + Send>);

impl<D: Device, T: 'static> BoxedHost<D, T> {
    pub(crate) fn new<O: DeviceOp<Device = D, Output = T>>(op: O) -> Self {
        Self { op: Box::new(OnHost(op)) }
    }
}

impl<D: Device, T: 'static> DeviceOp for BoxedHost<D, T> {
    type Device = D;
    type Pending = Arriving<T>;
    type Output = T;

    fn execute(self, submission: &mut Submission<D>) -> Result<Arriving<T>, Error> {
        self.op.execute(submission)
    }

    fn finish(arriving: Arriving<T>) -> Result<T, Error> {
        (arriving.0)()
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.op.poll_ready(context)
    }

    fn entries(&self) -> u32 {
        self.op.entries()
    }
}

device_op!([D, T] BoxedHost<D, T> where D: Device, T: 'static);

impl<D: Device, T> fmt::Debug for Boxed<D, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Boxed").finish_non_exhaustive()
    }
}

impl<D: Device, T> fmt::Debug for BoxedHost<D, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxedHost").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Arriving<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arriving").finish_non_exhaustive()
    }
}
