//! Streams: where work and stores are enqueued, in order.

use alloc::sync::Arc;
use core::fmt;

use wakeline_core::{Error, HostLine, Instant, Nanos, Seq, Slot};

use crate::device::{Bell, SimDevice};
use crate::port::SimPort;
use crate::queue::Work;
use crate::state::Call;
use crate::sync::Lock;
use crate::table::Key;
use crate::time::{TimeLine, VirtualTime};

/// A stream of a [`SimDevice`]: runs what is enqueued one after another. Clones share one stream.
///
/// When the last clone and the last point of it are gone, what is enqueued still runs; its word is given to
/// another stream once every store has landed.
///
/// ```
/// use wakeline_core::{CompletionPort, Instant, Nanos, Status};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::exact())?;
/// let stream = device.stream()?;
/// stream.launch(Nanos::from_micros(50))?;
/// let mut point = stream.point();
/// stream.launch(Nanos::from_millis(3))?; // behind the point: does not delay it
/// assert_eq!(point.block(Some(Instant::from_nanos(50_000)))?, Status::Done);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub struct SimStream<T: TimeLine = VirtualTime> {
    inner: Arc<Inner<T>>,
}

struct Inner<T: TimeLine> {
    device: SimDevice<T>,
    key: Key,
    line: Arc<HostLine>,
    slot: Slot,
    /// Whether it is for captures alone.
    #[cfg_attr(not(feature = "ops"), expect(dead_code, reason = "operations alone have such streams"))]
    captures: bool,
    /// The submission lock, around the number taken last.
    ///
    /// Held from taking a number to the enqueue of its store, so that numbers are enqueued in their order: two
    /// threads that arm one stream cannot pass each other. Taken before the device's lock, never after.
    submission: Lock<Seq>,
}

impl<T: TimeLine> Clone for SimStream<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T: TimeLine> fmt::Debug for SimStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimStream").field("slot", &self.inner.slot).finish_non_exhaustive()
    }
}

impl<T: TimeLine> SimStream<T> {
    pub(crate) fn new(
        device: SimDevice<T>,
        key: Key,
        line: Arc<HostLine>,
        slot: Slot,
        armed: Seq,
        captures: bool,
    ) -> Self {
        let submission = Lock::new(armed);
        Self { inner: Arc::new(Inner { device, key, line, slot, captures, submission }) }
    }

    /// Enqueues work that runs for `length`; [`Nanos::MAX`] never ends.
    ///
    /// # Errors
    ///
    /// The device's fault; [`Backend`](wakeline_core::ErrorCode::Backend) when the queue is full.
    pub fn launch(&self, length: Nanos) -> Result<(), Error> {
        self.enqueue(Work::For(length))
    }

    /// Enqueues work that runs until `end`, or ends as soon as it starts where that has passed by then.
    ///
    /// # Errors
    ///
    /// As [`launch`](Self::launch).
    pub fn launch_until(&self, end: Instant) -> Result<(), Error> {
        self.enqueue(Work::Until(end))
    }

    /// The point that all work enqueued so far is in front of. Makes no driver call.
    pub fn point(&self) -> SimPort<T> {
        let now = self.device().now();
        let key = self.device().with(|state| {
            state.turn(now);
            state.new_point(self.key())
        });
        SimPort::new(self.clone(), key)
    }

    /// The device it belongs to.
    pub fn device(&self) -> &SimDevice<T> {
        &self.inner.device
    }

    /// The line that holds its word.
    pub fn line(&self) -> &Arc<HostLine> {
        &self.inner.line
    }

    /// The place of its word in the line.
    pub fn slot(&self) -> Slot {
        self.inner.slot
    }

    /// Whether operations have it for captures alone.
    #[cfg(feature = "ops")]
    pub(crate) fn is_for_captures(&self) -> bool {
        self.inner.captures
    }

    pub(crate) fn key(&self) -> Key {
        self.inner.key
    }

    fn enqueue(&self, work: Work) -> Result<(), Error> {
        let device = self.device();
        let now = device.now();
        device.with(|state| state.begin(Call::Launch, now));
        device.charge(device.config().launch_ns);
        let now = device.now();
        let (result, bell) = device.enqueue(|state| {
            state.turn(now);
            state.health()?;
            state.enqueue_work(self.key(), work, None)
        });
        bell.ring();
        result
    }

    /// Takes the next number and enqueues its store for `point`; `None` where this stream cannot store.
    pub(crate) fn store(&self, point: Key) -> Result<Option<Seq>, Error> {
        let (armed, seq, bell) = {
            let mut last = self.inner.submission.lock();
            let seq = last.next();
            let (armed, bell) = self.enqueue_store(seq, point);
            // Not taken where nothing was enqueued: that would leave a gap.
            if let Ok(true) = armed {
                *last = seq;
            }
            (armed, seq, bell)
        };
        bell.ring();
        Ok(armed?.then_some(seq))
    }

    /// Enqueues the store of a number; says whether this stream can store.
    pub(crate) fn enqueue_store(&self, seq: Seq, point: Key) -> (Result<bool, Error>, Bell) {
        let device = self.device();
        let now = device.now();
        device.enqueue(|state| {
            state.turn(now);
            state.health()?;
            state.enqueue_store(self.key(), seq, point)
        })
    }
}

impl<T: TimeLine> Drop for Inner<T> {
    fn drop(&mut self) {
        let now = self.device.now();
        let ((), bell) = self.device.enqueue(|state| {
            state.turn(now);
            state.release_stream(self.key);
        });
        bell.ring();
    }
}
