//! One awaited point of a stream.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use wakeline_core::{
    Arming, Clock, CompletionPort, ContextKey, Error, HostLine, Instant, MemoryDescriptor, Nanos, Status,
};

use crate::driver::MetalDriver;
use crate::signal::{Bell, Signal};
use crate::stream::Stream;

/// How long one blocking call of Metal's lasts at most, milliseconds: a killed buffer never signals, and is asked in between.
pub const BLOCK_SLICE_MS_MAX: u64 = 10;

/// The shortest nap of a blocking wait that Metal ends early, its value being there, while the buffer is not done.
pub const BLOCK_NAP_US_MIN: u64 = 20;

/// The longest nap of such a wait.
pub const BLOCK_NAP_US_MAX: u64 = 500;

/// A nap is at most this part of the time blocked so far.
pub const BLOCK_NAP_PART: u64 = 32;

const NS_PER_MS: u64 = 1_000_000;

/// A length of time in Metal's whole milliseconds, rounded up: who waits for it comes back up to one millisecond late, never early.
///
/// ```
/// use wakeline_core::Nanos;
/// use wakeline_metal::timeout_ms;
/// assert_eq!([0, 1, 1_000_000, 1_000_001].map(|ns| timeout_ms(Nanos::from_nanos(ns))), [0, 1, 1, 2]);
/// assert_eq!(timeout_ms(Nanos::MAX), 18_446_744_073_710);
/// ```
pub const fn timeout_ms(length: Nanos) -> u64 {
    length.as_nanos().div_ceil(NS_PER_MS)
}

/// The point behind one command buffer. See [`CompletionPort`].
///
/// Who is asked is the buffer's own status, never the event's value: a value may be reached by another queue, and by a buffer that was killed. The word is
/// stored by whoever first finds the buffer completed. Dropped at any time; the work goes on, and nothing keeps the buffer.
///
/// Arming makes Metal keep a block, which allocates. A blocking wait asks between slices of at most [`BLOCK_SLICE_MS_MAX`], in whole milliseconds that are
/// rounded up: it ends up to 1 ms after its deadline.
pub struct SharedEventPort<D: MetalDriver, C> {
    stream: Stream<D, C>,
    signal: Arc<Signal<D>>,
    value: u64,
    /// Some once it is armed.
    word: Option<MemoryDescriptor<Arc<HostLine>>>,
    blocked: Nanos,
}

impl<D: MetalDriver, C> fmt::Debug for SharedEventPort<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedEventPort")
            .field("signal", &self.signal)
            .field("armed", &self.word.is_some())
            .finish_non_exhaustive()
    }
}

impl<D: MetalDriver, C: Clock + Clone> SharedEventPort<D, C> {
    pub(crate) fn new(stream: Stream<D, C>, signal: Arc<Signal<D>>, value: u64) -> Self {
        Self { stream, signal, value, word: None, blocked: Nanos::ZERO }
    }

    /// The value that the event has behind the work.
    pub const fn value(&self) -> u64 {
        self.value
    }

    /// The stream that the point is of.
    pub const fn stream(&self) -> &Stream<D, C> {
        &self.stream
    }

    /// Blocks this thread for so many milliseconds at most, 0 to 2^64 - 1, which is for good: a killed buffer ends it all the same.
    ///
    /// # Errors
    ///
    /// What ended the buffer or the device.
    pub fn wait_ms(&mut self, timeout_ms: u64) -> Result<Status, Error> {
        let clock = self.stream.clock().clone();
        let until = clock.now() + Nanos::from_millis(timeout_ms);
        loop {
            let status = self.block(Some(until))?;
            if status == Status::Done || clock.now() >= until {
                return Ok(status);
            }
        }
    }

    fn status(&self) -> Result<Status, Error> {
        self.stream.device().health()?;
        match self.signal.look() {
            Some(end) => end.map(|()| Status::Done),
            None => Ok(Status::Pending),
        }
    }

    /// Metal's wait came back before its time and the buffer is not done: another queue's value is there, say, and it would come back at once.
    fn nap(&self) {
        let us = (self.blocked.as_micros() / BLOCK_NAP_PART).clamp(BLOCK_NAP_US_MIN, BLOCK_NAP_US_MAX);
        std::thread::sleep(Duration::from_micros(us));
    }
}

impl<D: MetalDriver, C> SharedEventPort<D, C> {
    pub(crate) fn signal(&self) -> &Signal<D> {
        &self.signal
    }
}

impl<D: MetalDriver, C: Clock + Clone> CompletionPort for SharedEventPort<D, C> {
    type Line = Arc<HostLine>;

    fn query(&mut self) -> Result<Status, Error> {
        self.status()
    }

    /// Comes back pending after each slice: who asked looks whether it is still wanted.
    fn block(&mut self, until: Option<Instant>) -> Result<Status, Error> {
        if self.status()? == Status::Done {
            return Ok(Status::Done);
        }
        let start = self.stream.clock().now();
        let left = until.map_or(Nanos::MAX, |until| until.since(start));
        let slice_ms = timeout_ms(left).min(BLOCK_SLICE_MS_MAX);
        if slice_ms == 0 {
            return Ok(Status::Pending);
        }
        let _ = self.stream.device().driver().wait(self.stream.event(), self.value, slice_ms);
        let status = self.status()?;
        let waited = self.stream.clock().now().since(start);
        self.blocked = self.blocked + waited;
        if status == Status::Pending && waited < Nanos::from_millis(slice_ms).min(left) {
            self.nap();
        }
        Ok(status)
    }

    fn arm(&mut self) -> Result<Arming, Error> {
        self.stream.device().health()?;
        if self.word.is_none() {
            let bell = Bell(Arc::clone(&self.signal));
            self.stream.device().driver().notify(self.stream.event(), self.value, bell);
            self.word = Some(self.signal.word());
        }
        Ok(Arming::Armed)
    }

    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
        self.word.as_ref()
    }

    fn context(&self) -> Option<ContextKey> {
        Some(self.stream.device().key())
    }
}

impl<D: MetalDriver, C> Drop for SharedEventPort<D, C> {
    fn drop(&mut self) {
        self.signal.let_go();
        // A listener whose value never comes is kept as long as its event, and would keep the task of who awaited the port.
        drop(self.signal.waker().take());
    }
}
