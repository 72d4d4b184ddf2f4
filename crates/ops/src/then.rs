//! One operation after another.

use core::task::{Context, Poll};

use wakeline_core::Error;

use crate::device_op;
use crate::op::DeviceOp;
use crate::submission::Submission;

/// See [`DeviceOp::then`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Clone, Debug)]
pub struct Then<O, F> {
    first: O,
    next: F,
}

impl<O, F> Then<O, F> {
    pub(crate) const fn new(first: O, next: F) -> Self {
        Self { first, next }
    }
}

impl<O, N, F> DeviceOp for Then<O, F>
where
    O: DeviceOp,
    N: DeviceOp<Device = O::Device>,
    F: FnOnce(O::Pending) -> N + Send + 'static,
{
    type Device = O::Device;
    type Pending = N::Pending;
    type Output = <N as DeviceOp>::Output;

    fn execute(self, submission: &mut Submission<O::Device>) -> Result<N::Pending, Error> {
        let first = self.first.execute(submission)?;
        let next = (self.next)(first);
        submission.room(next.entries())?;
        next.execute(submission)
    }

    fn finish(pending: N::Pending) -> Result<<N as DeviceOp>::Output, Error> {
        N::finish(pending)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.first.poll_ready(context)
    }

    fn entries(&self) -> u32 {
        // What comes behind is not known yet.
        self.first.entries().saturating_add(1)
    }
}

device_op!([O, N, F] Then<O, F>
where
    O: DeviceOp,
    N: DeviceOp<Device = O::Device>,
    F: FnOnce(O::Pending) -> N + Send + 'static
);
