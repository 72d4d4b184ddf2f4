//! The completion port of a simulated stream.

use alloc::sync::Arc;
use core::fmt;

use wakeline_core::{
    Arming, CompletionPort, ContextKey, Error, ErrorCode, HostLine, Instant, MemoryDescriptor, Status,
};

use crate::error::{BACKEND, failed};
use crate::event::Truth;
use crate::log::LogEvent;
use crate::state::Call;
use crate::stream::SimStream;
use crate::table::Key;
use crate::time::{TimeLine, VirtualTime};

/// One awaited point of a [`SimStream`]; see [`CompletionPort`].
///
/// ```
/// use wakeline_core::{Arming, CompletionPort, Instant, Nanos, Status, Wake};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::exact())?;
/// let host = VirtualHost::new(&device);
/// let stream = device.stream()?;
/// stream.launch(Nanos::from_micros(50))?;
/// let mut point = stream.point();
/// assert_eq!(point.arm()?, Arming::Armed);
/// assert_eq!(point.park(&host, Instant::from_nanos(49_999)), Wake::Woke);
/// assert_eq!(point.park(&host, Instant::MAX), Wake::Reached);
/// assert_eq!(point.query()?, Status::Done);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub struct SimPort<T: TimeLine = VirtualTime> {
    point: Witness<T>,
    word: Option<MemoryDescriptor<Arc<HostLine>>>,
}

impl<T: TimeLine> fmt::Debug for SimPort<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimPort").field("truth", &self.point.truth()).finish_non_exhaustive()
    }
}

impl<T: TimeLine> SimPort<T> {
    pub(crate) fn new(stream: SimStream<T>, key: Key) -> Self {
        Self { point: Witness { stream, key }, word: None }
    }

    /// Arms the point with this number, whatever the submission lock says.
    #[cfg(all(test, loom))]
    pub(crate) fn store_as(mut self, seq: wakeline_core::Seq) -> Result<Self, Error> {
        let Witness { stream, key } = &self.point;
        let (armed, bell) = stream.enqueue_store(seq, *key);
        bell.ring();
        assert!(armed?);
        self.word = Some(MemoryDescriptor::new(Arc::clone(stream.line()), stream.slot(), seq));
        Ok(self)
    }

    /// Someone who knows the truth about the point, also after the port is gone.
    pub fn witness(&self) -> Witness<T> {
        self.point.clone()
    }
}

impl<T: TimeLine> CompletionPort for SimPort<T> {
    type Line = Arc<HostLine>;

    fn query(&mut self) -> Result<Status, Error> {
        let Witness { stream, key } = &self.point;
        let device = stream.device();
        let now = device.now();
        let (slow, bell) = device.enqueue(|state| {
            state.begin(Call::Query, now);
            if let Some(point) = state.points.get_mut(*key) {
                point.truth.queries += 1;
            }
            state.submit(stream.key());
            state.slow_query(stream.key())
        });
        bell.ring();
        device.charge(device.config().query_ns.saturating_add(slow));
        let now = device.now();
        device.with(|state| {
            state.turn(now);
            state.health()?;
            let status = state.status(*key);
            state.log_call(stream.key(), LogEvent::Queried(status));
            Ok(status)
        })
    }

    fn block(&mut self, until: Option<Instant>) -> Result<Status, Error> {
        let Witness { stream, key } = &self.point;
        let device = stream.device();
        if until.is_some() && !device.config().bounded_block {
            return Err(Error::new(ErrorCode::BlockUnbounded, [&BACKEND]));
        }
        let now = device.now();
        let ((), bell) = device.enqueue(|state| {
            state.begin(Call::Block, now);
            if let Some(point) = state.points.get_mut(*key) {
                point.truth.blocks += 1;
            }
            state.log_call(stream.key(), LogEvent::Blocked);
            state.submit(stream.key());
        });
        bell.ring();
        let end = until.unwrap_or(Instant::MAX);
        loop {
            let now = device.now();
            let (status, next) = device.with(|state| {
                state.turn(now);
                state.health()?;
                // What can change the answer: something due, the status catching up, a fault becoming known.
                let known = [state.known_done_at(*key), state.fault_known_at()];
                let next = known.into_iter().flatten().fold(state.next_due(), Instant::min);
                Ok::<_, Error>((state.status(*key), next))
            })?;
            if status == Status::Done {
                device.charge(device.config().block_ns);
                let now = device.now();
                device.with(|state| state.turn(now));
                return Ok(Status::Done);
            }
            if now == Instant::MAX && until.is_none() {
                return Err(failed(Call::Block.name(), &"time has ended and the point never completed"));
            }
            if now >= end {
                return Ok(Status::Pending);
            }
            // Once, so that a time line that returns early lets us see what other threads changed.
            device.time().pass(next.min(end));
        }
    }

    fn arm(&mut self) -> Result<Arming, Error> {
        // Whoever waits for a point a second time finds it armed: another store would be behind later work.
        if self.word.is_some() {
            return Ok(Arming::Armed);
        }
        let Witness { stream, key } = &self.point;
        let device = stream.device();
        let now = device.now();
        device.with(|state| state.begin(Call::Arm, now));
        device.charge(device.config().arm_ns);
        let Some(seq) = stream.store(*key)? else { return Ok(Arming::Unsupported) };
        self.word = Some(MemoryDescriptor::new(Arc::clone(stream.line()), stream.slot(), seq));
        Ok(Arming::Armed)
    }

    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
        self.word.as_ref()
    }

    fn context(&self) -> Option<ContextKey> {
        Some(self.point.stream.device().context())
    }
}

/// Who knows what really happened to a point. Clones tell of the same point.
///
/// ```
/// use wakeline_core::{CompletionPort, Instant, Nanos};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::exact())?;
/// let stream = device.stream()?;
/// stream.launch(Nanos::from_micros(50))?;
/// let mut point = stream.point();
/// let witness = point.witness();
/// point.block(None)?;
/// drop(point);
/// assert_eq!(witness.truth().ended_at, Some(Instant::from_nanos(50_000)));
/// assert_eq!(witness.truth().blocks, 1);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub struct Witness<T: TimeLine = VirtualTime> {
    stream: SimStream<T>,
    key: Key,
}

impl<T: TimeLine> Witness<T> {
    /// The truth as of the last call or turn of the device; costs nothing and counts as no call.
    pub fn truth(&self) -> Truth {
        self.stream
            .device()
            .with(|state| state.points.get(self.key).map(|point| point.truth).unwrap_or_default())
    }
}

impl<T: TimeLine> Clone for Witness<T> {
    fn clone(&self) -> Self {
        self.stream.device().with(|state| {
            if let Some(point) = state.points.get_mut(self.key) {
                point.handles += 1;
            }
        });
        Self { stream: self.stream.clone(), key: self.key }
    }
}

impl<T: TimeLine> Drop for Witness<T> {
    fn drop(&mut self) {
        self.stream.device().with(|state| state.release_point(self.key));
    }
}

impl<T: TimeLine> fmt::Debug for Witness<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Witness").field(&self.truth()).finish()
    }
}
