//! A submission: one operation's work while it is being enqueued, and what that work needs to live.

use core::fmt;
use std::sync::Arc;

use crate::flight::{Flight, Owner};
use crate::port::Device;
use crate::stream::{Permit, Stream};

/// Where an operation enqueues its work; see [`DeviceOp::execute`](crate::DeviceOp::execute).
///
/// Whatever the work touches must be [retained](Self::retain): it then lives until the device is done, also when the rest of the
/// submission fails or panics, or nobody awaits it any more.
pub struct Submission<D: Device> {
    stream: Stream<D>,
    owners: Vec<Owner>,
    permit: Option<Permit>,
    flown: bool,
}

impl<D: Device> Submission<D> {
    pub(crate) fn new(stream: Stream<D>, permit: Permit) -> Self {
        Self { stream, owners: Vec::new(), permit: Some(permit), flown: false }
    }

    /// The stream in which the work is enqueued.
    pub fn stream(&self) -> &Stream<D> {
        &self.stream
    }

    /// The device.
    pub fn device(&self) -> &D {
        self.stream.device()
    }

    /// Keeps `owner` until the work of this submission is done. Costs an allocation.
    ///
    /// It is let go by whoever sees the work end, another thread most likely, and at a time that nobody knows. So what it borrows or
    /// shares with one thread only cannot be kept:
    ///
    /// ```compile_fail,E0521
    /// fn keep(submission: &mut wakeline_ops::Submission<wakeline_sim::SimDevice>, bytes: &[u8]) {
    ///     submission.retain(bytes);
    /// }
    /// ```
    ///
    /// ```compile_fail,E0277
    /// fn keep(submission: &mut wakeline_ops::Submission<wakeline_sim::SimDevice>, shared: std::rc::Rc<u8>) {
    ///     submission.retain(shared);
    /// }
    /// ```
    pub fn retain(&mut self, owner: impl Send + 'static) {
        self.owners.push(Owner::Own(Box::new(owner)));
    }

    /// The same for what is shared, without an allocation.
    pub fn retain_shared<T: Send + Sync + 'static>(&mut self, owner: &Arc<T>) {
        self.owners.push(Owner::Shared(Arc::clone(owner) as _));
    }

    /// Ends it: what it keeps now belongs to a flight.
    fn take_off(&mut self) -> Arc<Flight> {
        self.flown = true;
        let owners = core::mem::take(&mut self.owners);
        Flight::new(owners, self.permit.take(), &self.stream.core().counters)
    }

    /// Ends it with a flight that ends when the work does.
    pub(crate) fn fly(mut self) -> Arc<Flight> {
        let flight = self.take_off();
        self.stream.core().tend(&self.stream, &flight);
        flight
    }

    /// Ends it with a flight that the caller sees to its end.
    pub(crate) fn fly_untended(mut self) -> (Arc<Flight>, Stream<D>) {
        (self.take_off(), self.stream.clone())
    }
}

/// Where an operation failed or panicked half way: what it keeps lives on until what it did enqueue is done.
impl<D: Device> Drop for Submission<D> {
    fn drop(&mut self) {
        if !self.flown {
            let flight = self.take_off();
            self.stream.core().tend(&self.stream, &flight);
        }
    }
}

impl<D: Device> fmt::Debug for Submission<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission").field("owners", &self.owners.len()).finish_non_exhaustive()
    }
}
