//! The events of a stream: places in it that other streams can be made to wait for.
//!
//! A stream has a ring of them, made when they are first used and recorded again and again: no event is made or freed for a use of a
//! buffer. A place that is older than the ring is long has had its event recorded again by then, further on in the same stream. Whoever waits
//! for it waits for that instead: for more than it needs, but for work that was submitted before, and so in no circle. Nobody waits for a place that is known to have
//! landed, however old: its number in the stream is compared with the highest that is, which whoever sees a flight end has noted.

use core::sync::atomic::{AtomicU64, Ordering};

use wakeline_core::Error;

use crate::port::Device;
use crate::sync::Lock;

/// How many places of a stream are told apart.
const RING: usize = 64;

#[derive(Debug)]
pub(crate) struct Events<D: Device> {
    /// Each is locked from its recording to the end of that, and while something is made to wait for it: two threads that record one at
    /// a time would leave open which of the two recordings is the last. Only calls that enqueue are made under these locks.
    ring: Box<[Lock<Option<D::Event>>]>,
    next: AtomicU64,
    recorded: AtomicU64,
}

/// A place that is about to be recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tick(u64);

/// A place that was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    tick: Tick,
    /// How many had been recorded in the stream once this was, from 1 on. All of those up to it are in front of what is enqueued afterwards.
    pub(crate) number: u64,
}

impl<D: Device> Events<D> {
    pub(crate) fn new() -> Self {
        Self {
            ring: (0..RING).map(|_| Lock::new(None)).collect(),
            next: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
        }
    }

    fn slot(&self, tick: Tick) -> Option<&Lock<Option<D::Event>>> {
        self.ring.get(usize::try_from(tick.0 % RING as u64).unwrap_or(0))
    }

    /// The next place, with an event to record there.
    pub(crate) fn next(&self, device: &D) -> Result<Tick, Error> {
        let tick = Tick(self.next.fetch_add(1, Ordering::Relaxed));
        if let Some(slot) = self.slot(tick) {
            let mut event = slot.lock();
            if event.is_none() {
                *event = Some(device.event()?);
            }
        }
        Ok(tick)
    }

    /// Records it behind what is enqueued in `stream`, whose place it is.
    pub(crate) fn record(&self, device: &D, stream: &D::Stream, tick: Tick) -> Result<Place, Error> {
        // Where there is none, never: `next` has made it.
        if let Some(Some(event)) = self.slot(tick).map(Lock::lock).as_deref() {
            device.record(stream, event)?;
        }
        // Only now: whoever counts it by then has it in front.
        Ok(Place { tick, number: self.recorded.fetch_add(1, Ordering::AcqRel) + 1 })
    }

    /// Has `stream`, another one, wait for a place that was recorded.
    pub(crate) fn wait(&self, device: &D, stream: &D::Stream, place: Place) -> Result<(), Error> {
        match self.slot(place.tick).map(Lock::lock).as_deref() {
            Some(Some(event)) => device.wait(stream, event),
            _ => Ok(()),
        }
    }
}
