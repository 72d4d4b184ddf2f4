//! Events for order between streams: recorded in one, waited for in others.

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wakeline_core::{Error, ErrorCode};

use crate::context::Context;
use crate::driver::{LineDriver, RawEvent};
use crate::inner::Inner;
use crate::stream::Stream;

/// A place in a stream's order, which work of other streams can wait for on the device. The host waits for nothing.
///
/// It is taken from its context's pool and goes back there when it is dropped: waits that were enqueued for it by then stay as they are. Only the first
/// ones cost a call that makes one: there are as many as were in use at a time, points included. Recording costs about 0.2 us on an H200 (driver 580).
pub struct Event<D: LineDriver> {
    context: Arc<Inner<D>>,
    raw: RawEvent,
    /// Whether it was recorded last in a stream for captures: no other stream waits for it, which would join the capture.
    captured: AtomicBool,
}

impl<D: LineDriver> Event<D> {
    /// An event that was not recorded yet.
    ///
    /// # Errors
    ///
    /// [`Forked`](ErrorCode::Forked), [`ContextClosed`](ErrorCode::ContextClosed), the context's fault, or whatever made a call fail.
    pub fn new(context: &Context<D>) -> Result<Self, Error> {
        let context = context.inner();
        context.open()?;
        let raw = if let Some(raw) = context.kept_event() {
            raw
        } else {
            let _bound = context.bind()?;
            context.take_event()?
        };
        Ok(Self { context: Arc::clone(context), raw, captured: AtomicBool::new(false) })
    }

    /// Has it stand for what is enqueued in `stream` so far. Waits that were enqueued before stay for what it stood for then.
    ///
    /// # Errors
    ///
    /// - [`ForeignStream`](ErrorCode::ForeignStream) for a stream of another context: nothing is enqueued.
    /// - As [`new`](Self::new).
    pub fn record(&self, stream: &Stream<D>) -> Result<(), Error> {
        let (context, shared) = (&self.context, stream.shared());
        context.open()?;
        if !Arc::ptr_eq(context, &shared.context) {
            let args: [&dyn fmt::Display; 4] = [&D::NAME, &shared.raw, &shared.context.raw, &context.raw];
            return Err(Error::new(ErrorCode::ForeignStream, args));
        }
        shared.is_here()?;
        let _bound = context.bind()?;
        // In front of the call and behind it: who waits meanwhile is refused rather than taken along.
        if shared.captures {
            self.captured.store(true, Ordering::SeqCst);
        }
        // SAFETY: the context is bound, the event its own and the stream alive.
        unsafe { context.driver.event_record(self.raw, shared.raw) }.map_err(|error| shared.failed(error))?;
        if !shared.captures && self.captured.load(Ordering::Relaxed) {
            self.captured.store(false, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Has what is enqueued in `stream` from now on wait, on the device, for what this stands for by now; of an event that was never recorded, for
    /// nothing. The stream may be of another context of the same driver.
    ///
    /// # Errors
    ///
    /// - [`StreamCapturing`](ErrorCode::StreamCapturing) where it was recorded in a stream that operations have for captures, and this is none.
    /// - As [`new`](Self::new), of either context.
    pub fn wait(&self, stream: &Stream<D>) -> Result<(), Error> {
        let shared = stream.shared();
        let context = &shared.context;
        self.context.sound()?;
        context.open()?;
        shared.is_here()?;
        if self.captured.load(Ordering::Relaxed) && !shared.captures {
            return Err(shared.refuse_capture());
        }
        let _bound = context.bind()?;
        // SAFETY: the stream's context is bound, event and stream are alive.
        unsafe { context.driver.event_wait(shared.raw, self.raw) }.map_err(|error| shared.failed(error))
    }
}

impl<D: LineDriver> Drop for Event<D> {
    fn drop(&mut self) {
        self.context.give_event(self.raw);
    }
}

impl<D: LineDriver> fmt::Debug for Event<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("backend", &D::NAME).field("raw", &self.raw).finish_non_exhaustive()
    }
}
