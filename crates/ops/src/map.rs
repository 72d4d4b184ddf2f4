//! An operation whose output is changed: at submission, or on the host at completion.

use core::fmt;
use core::task::{Context, Poll};
use std::sync::Arc;

use wakeline_core::Error;

use crate::device_op;
use crate::op::DeviceOp;
use crate::submission::Submission;
use crate::unzip::Sequence;

/// See [`DeviceOp::map`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Clone, Debug)]
pub struct Map<O, F> {
    op: O,
    change: F,
}

impl<O, F> Map<O, F> {
    pub(crate) const fn new(op: O, change: F) -> Self {
        Self { op, change }
    }
}

impl<O, R, F> DeviceOp for Map<O, F>
where
    O: DeviceOp,
    R: Send + 'static,
    F: FnOnce(O::Pending) -> R + Send + 'static,
{
    type Device = O::Device;
    type Pending = R;
    type Output = R;

    fn execute(self, submission: &mut Submission<O::Device>) -> Result<R, Error> {
        self.op.execute(submission).map(self.change)
    }

    fn finish(changed: R) -> Result<R, Error> {
        Ok(changed)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.op.poll_ready(context)
    }

    fn entries(&self) -> u32 {
        self.op.entries()
    }
}

device_op!([O, R, F] Map<O, F>
where
    O: DeviceOp,
    R: Send + 'static,
    F: FnOnce(O::Pending) -> R + Send + 'static
);

/// See [`DeviceOp::arc`].
pub type InArc<O> = Map<O, fn(<O as DeviceOp>::Pending) -> Arc<<O as DeviceOp>::Pending>>;

/// See [`DeviceOp::first`].
pub type FirstOf<O> = Map<O, fn(<O as DeviceOp>::Pending) -> <<O as DeviceOp>::Pending as Sequence>::First>;

/// See [`DeviceOp::last`].
pub type LastOf<O> = Map<O, fn(<O as DeviceOp>::Pending) -> <<O as DeviceOp>::Pending as Sequence>::Last>;

/// See [`DeviceOp::map_host`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Clone, Debug)]
pub struct MapHost<O, F> {
    op: O,
    change: F,
}

impl<O, F> MapHost<O, F> {
    pub(crate) const fn new(op: O, change: F) -> Self {
        Self { op, change }
    }
}

/// What is to arrive on the host, and what is to be done with it then.
pub struct Arrival<P, F> {
    pending: P,
    change: F,
}

impl<P, F> fmt::Debug for Arrival<P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrival").finish_non_exhaustive()
    }
}

impl<O, R, F> DeviceOp for MapHost<O, F>
where
    O: DeviceOp,
    R: Send + 'static,
    F: FnOnce(<O as DeviceOp>::Output) -> R + Send + 'static,
{
    type Device = O::Device;
    type Pending = Arrival<O::Pending, F>;
    type Output = R;

    fn execute(self, submission: &mut Submission<O::Device>) -> Result<Self::Pending, Error> {
        Ok(Arrival { pending: self.op.execute(submission)?, change: self.change })
    }

    fn finish(arrival: Self::Pending) -> Result<R, Error> {
        O::finish(arrival.pending).map(arrival.change)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.op.poll_ready(context)
    }

    fn entries(&self) -> u32 {
        self.op.entries()
    }
}

device_op!([O, R, F] MapHost<O, F>
where
    O: DeviceOp,
    R: Send + 'static,
    F: FnOnce(<O as DeviceOp>::Output) -> R + Send + 'static
);
