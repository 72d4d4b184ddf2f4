//! A queue of command buffers with the shared event that is signaled behind them.

use core::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use wakeline_core::{Clock, Error, ErrorCode};

use crate::device::Device;
use crate::driver::{BufferStatus, MetalDriver};
use crate::error::{BACKEND, gave_nothing};
use crate::port::SharedEventPort;
use crate::signal::{Bell, Signal};

/// A command queue whose buffers can be awaited. Clones are the same stream.
///
/// `C` is the host's clock, which tells how long a blocking wait may last.
pub struct Stream<D: MetalDriver, C> {
    inner: Arc<Inner<D, C>>,
}

struct Inner<D: MetalDriver, C> {
    device: Device<D>,
    queue: D::Queue,
    event: Event<D>,
    clock: C,
}

/// A shared event and the value taken last. Several queues may signal one: its values are in the order of their taking, and not of their signals.
struct Event<D: MetalDriver> {
    raw: D::Event,
    /// The submission lock: held from taking a value until its signal has its place in the queue.
    last: Arc<Mutex<u64>>,
}

impl<D: MetalDriver> Clone for Event<D> {
    fn clone(&self) -> Self {
        Self { raw: self.raw.clone(), last: Arc::clone(&self.last) }
    }
}

impl<D: MetalDriver, C> Clone for Stream<D, C> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<D: MetalDriver, C> fmt::Debug for Stream<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("device", &self.inner.device).finish_non_exhaustive()
    }
}

/// What is done with a buffer once its signal is encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Enqueue,
    Commit,
}

impl<D: MetalDriver, C: Clock + Clone> Stream<D, C> {
    /// A queue of its own, with an event of its own.
    ///
    /// # Errors
    ///
    /// The device is lost, or gives no queue or no event.
    pub fn new(device: &Device<D>, clock: C) -> Result<Self, Error> {
        device.health()?;
        let queue = device.driver().new_queue(device.raw());
        Self::from_queue(device, queue.ok_or_else(|| gave_nothing("newCommandQueue"))?, clock)
    }

    /// This queue of the device's, with an event of its own.
    ///
    /// # Errors
    ///
    /// The device is lost, or gives no event.
    pub fn from_queue(device: &Device<D>, queue: D::Queue, clock: C) -> Result<Self, Error> {
        device.health()?;
        let raw = device.driver().new_event(device.raw()).ok_or_else(|| gave_nothing("newSharedEvent"))?;
        Self::with_event(device, queue, raw, clock)
    }

    /// This queue with this event, whose values go on from where it is. Whoever else signals it must leave its values to this stream and those that
    /// [share](Self::sharing) its event.
    ///
    /// # Errors
    ///
    /// The device is lost.
    pub fn with_event(device: &Device<D>, queue: D::Queue, event: D::Event, clock: C) -> Result<Self, Error> {
        device.health()?;
        let last = Arc::new(Mutex::new(device.driver().signaled_value(&event)));
        Ok(Self::of(device, queue, Event { raw: event, last }, clock))
    }

    /// Another queue of the same device that signals the same event. A value of the one may be reached by the other: the points end by their own buffers all
    /// the same, and a blocking wait naps where its value is there and its buffer is not done.
    #[must_use]
    pub fn sharing(&self, queue: D::Queue) -> Self {
        let Inner { device, event, clock, .. } = &*self.inner;
        Self::of(device, queue, event.clone(), clock.clone())
    }

    fn of(device: &Device<D>, queue: D::Queue, event: Event<D>, clock: C) -> Self {
        Self { inner: Arc::new(Inner { device: device.clone(), queue, event, clock }) }
    }

    /// The device that it is of.
    pub fn device(&self) -> &Device<D> {
        &self.inner.device
    }

    /// Metal's own queue.
    pub fn queue(&self) -> &D::Queue {
        &self.inner.queue
    }

    /// Metal's own event.
    pub fn event(&self) -> &D::Event {
        &self.inner.event.raw
    }

    pub(crate) fn clock(&self) -> &C {
        &self.inner.clock
    }

    /// A new command buffer of the queue. Where as many as the queue allows are not completed yet, Metal waits for one to be.
    ///
    /// # Errors
    ///
    /// The device is lost, or gives no buffer.
    pub fn buffer(&self) -> Result<D::Buffer, Error> {
        self.device().health()?;
        self.device().driver().new_buffer(self.queue()).ok_or_else(|| gave_nothing("commandBuffer"))
    }

    /// Commits the buffer, with a signal behind its work, and gives the point behind it.
    ///
    /// Its encoders must have ended.
    ///
    /// # Errors
    ///
    /// The device is lost; [`ErrorCode::ForeignStream`] for a buffer of another queue; [`ErrorCode::Backend`] for one that has a place in its queue already,
    /// or was committed.
    pub fn submit(&self, buffer: &D::Buffer) -> Result<SharedEventPort<D, C>, Error> {
        self.signaled(buffer, Then::Commit)
    }

    /// The point behind a buffer that somebody else commits later: encodes a signal behind its work and gives it its place in the queue.
    ///
    /// Buffers behind it wait until it is committed. Where it never is, its point stays pending: bound the wait. Its encoders must have ended.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit).
    pub fn point(&self, buffer: &D::Buffer) -> Result<SharedEventPort<D, C>, Error> {
        self.signaled(buffer, Then::Enqueue)
    }

    fn signaled(&self, buffer: &D::Buffer, then: Then) -> Result<SharedEventPort<D, C>, Error> {
        let Inner { device, queue, event, .. } = &*self.inner;
        device.health()?;
        let driver = device.driver();
        if !driver.is_of(buffer, queue) {
            let names = ["the command buffer", "another queue", "this one"];
            return Err(Error::new(ErrorCode::ForeignStream, [&BACKEND, &names[0], &names[1], &names[2]]));
        }
        // Metal ends the process where something is encoded into a committed buffer; one with a place may be behind those that took a value later.
        match driver.status(buffer) {
            // Two threads that hand one buffer in may both see that.
            BufferStatus::NotEnqueued if driver.claim(buffer) => {}
            status => {
                let is = if status == BufferStatus::NotEnqueued { "handed in" } else { status.name() };
                let why = format!("the command buffer is {is} already: hand it in once, and before that");
                return Err(Error::new(ErrorCode::Backend, [&BACKEND, &"encodeSignalEvent", &why]));
            }
        }
        let (signal, value) = {
            let mut last = event.last.lock().unwrap_or_else(PoisonError::into_inner);
            let value = last.wrapping_add(1);
            let signal = Signal::new(device.clone(), buffer.clone(), value);
            driver.encode_signal(buffer, &event.raw, value);
            driver.on_completed(buffer, Bell(Arc::clone(&signal)));
            match then {
                Then::Enqueue => driver.enqueue(buffer),
                Then::Commit => driver.commit(buffer),
            }
            *last = value;
            (signal, value)
        };
        Ok(SharedEventPort::new(self.clone(), signal, value))
    }
}
