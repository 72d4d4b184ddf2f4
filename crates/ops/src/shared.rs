//! An operation that many have and that is run once.

use core::fmt;
use core::task::{Context, Poll};
use std::sync::Arc;

use wakeline_core::Error;

use crate::device_op;
use crate::once::Once;
use crate::op::DeviceOp;
use crate::submission::Submission;

/// See [`DeviceOp::shared`].
#[must_use = "an operation does nothing until it is awaited or run"]
pub struct Shared<O: DeviceOp> {
    once: Arc<Once<O, Arc<O::Pending>>>,
}

impl<O: DeviceOp> Shared<O> {
    pub(crate) fn new(op: O) -> Self {
        Self { once: Arc::new(Once::new(op)) }
    }
}

impl<O: DeviceOp> Clone for Shared<O> {
    fn clone(&self) -> Self {
        Self { once: Arc::clone(&self.once) }
    }
}

impl<O: DeviceOp<Pending: Sync>> DeviceOp for Shared<O> {
    type Device = O::Device;
    type Pending = Arc<O::Pending>;
    type Output = Arc<O::Pending>;

    fn execute(self, submission: &mut Submission<O::Device>) -> Result<Arc<O::Pending>, Error> {
        self.once.execute(submission, Arc::new, |value| Arc::clone(value))
    }

    fn finish(value: Arc<O::Pending>) -> Result<Arc<O::Pending>, Error> {
        Ok(value)
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.once.poll_ready(context)
    }
}

device_op!([O] Shared<O> where O: DeviceOp<Pending: Sync>);

impl<O: DeviceOp> fmt::Debug for Shared<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
