//! The events of a stream: places in it that other streams can be made to wait for.
//!
//! ```text
//!   open ──► (1) no work yet ──enqueued──► (2) work that the event is not behind ──close──► (3) recorded behind all of it, numbered
//!                    ▲                          │
//!                    └──somebody waits for it: recorded on the spot
//! ```
//!
//! A submission opens a place in a stream when it first enqueues something there that others may have to come behind, and closes it when it is through. So however
//! many uses of memory it has there, one event is recorded; and where somebody else has to come behind one of them meanwhile, who does so records it.
//!
//! A stream has a ring of them, made when they are first used and recorded again and again: no event is made or freed for a use of a
//! buffer. A place that is older than the ring is long has had its event recorded again by then, further on in the same stream. Whoever waits
//! for it waits for that instead: for more than it needs, but for work that was submitted before, and so in no circle. Nobody waits for a place that is known to have
//! landed, however old: its number in the stream is compared with the highest that is, which whoever sees a flight end has noted.

use core::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;
use wakeline_core::Error;

use crate::port::Device;
use crate::sync::Lock;

/// How many places of a stream are told apart.
const RING: usize = 64;

/// How many may be open at a time without an allocation: by as many threads that submit in one stream.
const OPEN_INLINE: usize = 4;

pub(crate) struct Events<D: Device> {
    ring: Box<[Slot<D>]>,
    numbers: Lock<Numbers>,
}

struct Slot<D: Device> {
    /// Locked from its recording to the end of that, and while something is made to wait for it: two threads that record one at
    /// a time would leave open which of the two recordings is the last. Only calls that enqueue are made under this lock.
    event: Lock<Option<D::Event>>,
    /// There is work of an open place that it was not recorded behind.
    behind: AtomicBool,
}

#[derive(Default)]
struct Numbers {
    last: u64,
    open: SmallVec<[u64; OPEN_INLINE]>,
}

/// A place of a stream, by its number, from 1 on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) number: u64,
}

/// A place that is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Closed {
    /// The highest number up to which all places of the stream were closed by then, so that they are in front of what is enqueued afterwards.
    pub(crate) up_to: u64,
}

impl<D: Device> Events<D> {
    pub(crate) fn new() -> Self {
        let slot = || Slot { event: Lock::new(None), behind: AtomicBool::new(false) };
        Self { ring: (0..RING).map(|_| slot()).collect(), numbers: Lock::new(Numbers::default()) }
    }

    fn slot(&self, place: Place) -> Option<&Slot<D>> {
        self.ring.get(usize::try_from(place.number % RING as u64).unwrap_or(0))
    }

    /// The next place, with an event to record there. Whoever opens it closes it, whatever happens.
    pub(crate) fn open(&self, device: &D) -> Result<Place, Error> {
        let place = self.numbers.lock().open();
        let made = self.slot(place).map_or(Ok(()), |slot| {
            let mut event = slot.event.lock();
            if event.is_none() {
                *event = Some(device.event()?);
            }
            Ok(())
        });
        if made.is_err() {
            self.end(place);
        }
        made.map(|()| place)
    }

    /// Something was enqueued in the stream that others may have to come behind. Called before they can know of it.
    #[inline]
    pub(crate) fn enqueued(&self, place: Place) {
        if let Some(slot) = self.slot(place) {
            slot.behind.store(true, Ordering::Release);
        }
    }

    /// Records its event behind what is enqueued in `stream`, whose place it is, where it is not by now, and closes it, also where that fails. Whoever waits for it then records it
    /// by himself, or is told why that cannot be.
    pub(crate) fn close(&self, device: &D, stream: &D::Stream, place: Place) -> (Closed, Result<(), Error>) {
        let recorded = match self.slot(place) {
            Some(slot) => slot.record(device, stream).map(|_| ()),
            None => Ok(()),
        };
        // Only now: whoever counts it by then has it in front.
        (self.end(place), recorded)
    }

    /// The highest number up to which all places of the stream are closed by now, this one aside: they are in front of an event that is recorded from now on.
    pub(crate) fn in_front(&self, place: Place) -> u64 {
        self.numbers.lock().in_front(place)
    }

    /// Closes it and records nothing: nothing was enqueued, or nobody can know any more when that is done.
    pub(crate) fn end(&self, place: Place) -> Closed {
        self.numbers.lock().end(place)
    }

    /// Has `stream`, another one and of another device maybe, wait for a place of `own`: recorded by the device whose stream that is, waited for by the other.
    pub(crate) fn wait(
        &self,
        (own_device, own): (&D, &D::Stream),
        (device, stream): (&D, &D::Stream),
        place: Place,
    ) -> Result<(), Error> {
        let Some(slot) = self.slot(place) else { return Ok(()) };
        match slot.record(own_device, own)?.as_ref() {
            Some(event) => device.wait(stream, event),
            None => Ok(()),
        }
    }
}

impl Numbers {
    fn open(&mut self) -> Place {
        self.last += 1;
        self.open.push(self.last);
        Place { number: self.last }
    }

    fn in_front(&self, place: Place) -> u64 {
        let others = self.open.iter().filter(|number| **number != place.number);
        others.min().map_or(self.last, |oldest| oldest - 1)
    }

    fn end(&mut self, place: Place) -> Closed {
        self.open.retain(|number| *number != place.number);
        Closed { up_to: self.in_front(place) }
    }
}

impl<D: Device> Slot<D> {
    /// Records it where there is work that it is not behind; locked.
    fn record(
        &self,
        device: &D,
        stream: &D::Stream,
    ) -> Result<crate::sync::MutexGuard<'_, Option<D::Event>>, Error> {
        let event = self.event.lock();
        // Taken first: what is enqueued meanwhile says so again.
        if self.behind.swap(false, Ordering::AcqRel)
            && let Some(event) = event.as_ref()
            && let Err(error) = device.record(stream, event)
        {
            self.behind.store(true, Ordering::Release);
            return Err(error);
        }
        Ok(event)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_front_reaches_up_to_the_oldest_place_that_is_open() {
        let mut numbers = Numbers::default();
        let [first, second, third] = [(); 3].map(|()| numbers.open());
        assert_eq!([first, second, third].map(|place| numbers.in_front(place)), [1, 0, 0]);
        assert_eq!(numbers.end(third), Closed { up_to: 0 });
        assert_eq!(numbers.end(first), Closed { up_to: 1 });
        assert_eq!(numbers.end(second), Closed { up_to: 3 });
        assert_eq!(numbers.open(), Place { number: 4 });
    }
}
