//! What is known of a stream: what is in flight in it, and when that is expected to end.
//!
//! A stream runs its work one after another. So what is submitted ends after what is in front of it, and by as much as it takes itself:
//!
//! ```text
//!   expected end = max(now, expected end of what is in front) + how long its kind takes
//! ```
//!
//! What has ended tells by how much that was wrong, and what is submitted from then on starts from there. Where much is in front, errors
//! add up; then the pace at which ends have come counts instead. Failure modes: work that is not submitted here (another user of the
//! stream, [`async_on`](crate::DeviceOp::async_on)) is not known of; streams that slow each other down are each as slow as they were before.

use core::sync::atomic::AtomicU64;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use wakeline_core::{Instant, Nanos};

use crate::lanes::Places;
use crate::panics::survive;
use crate::stream::IN_FLIGHT_MAX;
use crate::sync::{AtomicUsize, Lock, Ordering};

/// With so many in front the pace of ends counts, and not how long each takes.
const DEEP: u64 = 4;

/// By what part of it a pace gets quicker for each end that had come before anybody looked.
const QUICKENS: u64 = 16;

/// Somebody waits for a place.
const WAITS: usize = 1 << (usize::BITS - 1);

/// What all flights of a stream share.
#[derive(Debug)]
pub(crate) struct Lane {
    /// How many places there are, and how many are taken; with [`WAITS`] where somebody waits for one.
    places: usize,
    taken: AtomicUsize,
    /// Who waits for one.
    waiting: Lock<Vec<Waker>>,
    flying: AtomicUsize,
    /// When what is in flight is expected to end.
    busy_until: AtomicU64,
    /// By how much expectations were changed since the beginning.
    shift: AtomicU64,
    /// When the last end came.
    ended_at: AtomicU64,
    /// How far apart ends come while others wait behind.
    pace_ns: AtomicU64,
}

/// A place among what is in flight. Given back when it is dropped, which wakes who waits for one.
#[derive(Debug)]
pub(crate) struct Permit {
    lane: Arc<Lane>,
    /// Those in other streams, where the work branches out.
    also: Option<Places>,
}

/// What is expected of a flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    pub(crate) submitted: Instant,
    /// When it ends; `None` where nothing is known.
    pub(crate) expected: Option<Instant>,
    shift: u64,
}

impl Lane {
    pub(crate) fn new() -> Arc<Self> {
        Self::of(IN_FLIGHT_MAX)
    }

    /// One with so many places.
    pub(crate) fn of(places: usize) -> Arc<Self> {
        Arc::new(Self {
            places,
            taken: AtomicUsize::new(0),
            waiting: Lock::new(Vec::new()),
            flying: AtomicUsize::new(0),
            busy_until: AtomicU64::new(0),
            shift: AtomicU64::new(0),
            ended_at: AtomicU64::new(0),
            pace_ns: AtomicU64::new(0),
        })
    }

    /// A place among what is in flight, once there is one. Where there is none, looks through who waits, so that each task waits once
    /// however often it is polled.
    #[inline]
    pub(crate) fn admit(self: &Arc<Self>, context: &Context<'_>) -> Poll<Permit> {
        if self.take_one() || self.wait_for_one(context) { Poll::Ready(self.permit()) } else { Poll::Pending }
    }

    #[inline]
    fn permit(self: &Arc<Self>) -> Permit {
        Permit { lane: Arc::clone(self), also: None }
    }

    #[inline]
    pub(crate) fn take_one(&self) -> bool {
        let one_more = |taken| (taken & !WAITS < self.places).then_some(taken + 1);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_ok()
    }

    /// Waits, unless there is a place after all.
    #[cold]
    fn wait_for_one(&self, context: &Context<'_>) -> bool {
        // Cloned and dropped without the lock: a waker is somebody else's code.
        let mut waker = Some(context.waker().clone());
        let admitted = {
            let mut waiting = self.waiting.lock();
            // One place says how many are taken and whether somebody waits: who gives one back either comes before, or sees that.
            let change = |taken| Some(if taken & !WAITS < self.places { taken + 1 } else { taken | WAITS });
            let before = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
            let admitted = before.is_ok_and(|taken| taken & !WAITS < self.places);
            if !admitted && !waiting.iter().any(|other| other.will_wake(context.waker())) {
                waiting.extend(waker.take());
            }
            admitted
        };
        drop(waker);
        admitted
    }

    /// Whether nothing is in flight: all that was submitted has been seen to end, and none is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.taken.load(Ordering::Acquire) & !WAITS == 0
    }

    /// A place, whether or not there is one: for whoever waits on the spot, which is one a thread at most.
    pub(crate) fn admit_anyway(self: &Arc<Self>) -> Permit {
        self.taken.fetch_add(1, Ordering::AcqRel);
        self.permit()
    }

    /// Gives a place back.
    #[inline]
    pub(crate) fn give_one(&self) {
        if self.taken.fetch_sub(1, Ordering::AcqRel) & WAITS != 0 {
            self.wake_all();
        }
    }

    /// How many places are taken.
    pub(crate) fn in_flight(&self) -> usize {
        self.taken.load(Ordering::Relaxed) & !WAITS
    }

    /// How long until all in flight has ended, as far as that is known.
    pub(crate) fn residual(&self, now: Instant) -> Nanos {
        if self.in_flight() == 0 {
            return Nanos::ZERO;
        }
        Instant::from_nanos(self.busy_until.load(Ordering::Relaxed)).since(now)
    }

    /// A branch of what is expected to end then is in flight here.
    pub(crate) fn expect_until(&self, at: Instant) {
        self.busy_until.fetch_max(at.as_nanos(), Ordering::Relaxed);
    }

    /// Wakes all who wait: one that is woken and never polled again must not keep the others waiting.
    #[cold]
    fn wake_all(&self) {
        let waiting = {
            let mut waiting = self.waiting.lock();
            self.taken.fetch_and(!WAITS, Ordering::AcqRel);
            core::mem::take(&mut *waiting)
        };
        for waker in waiting {
            survive(|| waker.wake());
        }
    }

    /// One more is submitted, which takes `service` where that is known.
    pub(crate) fn depart(&self, now: Instant, service: Option<Nanos>) -> Ticket {
        let ahead = self.flying.fetch_add(1, Ordering::Relaxed) as u64;
        let mut begins = now;
        if ahead > 0 {
            begins = begins.max(Instant::from_nanos(self.busy_until.load(Ordering::Relaxed)));
        }
        let mut expected = service.map(|service| begins + service);
        let pace = self.pace_ns.load(Ordering::Relaxed);
        if let (Some(service), true) = (service, ahead >= DEEP && pace > 0) {
            let paced = self.ended_at.load(Ordering::Relaxed).saturating_add(pace.saturating_mul(ahead + 1));
            expected = Some(Instant::from_nanos(paced).max(now + service));
        }
        self.busy_until.store(expected.unwrap_or(begins).as_nanos(), Ordering::Relaxed);
        Ticket { submitted: now, expected, shift: self.shift.load(Ordering::Relaxed) }
    }

    /// One has ended, at that moment or, where that is not `exact`, some time before; how long it took by itself, at most then.
    pub(crate) fn arrive(&self, ticket: &Ticket, at: Instant, exact: bool) -> Nanos {
        let behind = self.flying.fetch_sub(1, Ordering::Relaxed).saturating_sub(1);
        let before = Instant::from_nanos(self.ended_at.load(Ordering::Relaxed));
        self.ended_at.store(at.as_nanos().max(before.as_nanos()), Ordering::Relaxed);
        let took = at.since(ticket.submitted.max(before));
        if behind == 0 {
            self.busy_until.store(at.as_nanos(), Ordering::Relaxed);
        } else if let Some(expected) = ticket.expected {
            // What was changed since it was expected is not wrong a second time.
            let shift = self.shift.load(Ordering::Relaxed);
            let wrong = at.as_nanos().wrapping_sub(expected.as_nanos());
            let wrong = wrong.wrapping_sub(shift.wrapping_sub(ticket.shift));
            self.shift.store(shift.wrapping_add(wrong), Ordering::Relaxed);
            let busy = self.busy_until.load(Ordering::Relaxed);
            let moved = busy.saturating_add_signed(wrong.cast_signed());
            self.busy_until.store(moved.max(at.as_nanos()), Ordering::Relaxed);
        }
        if before > ticket.submitted {
            let pace = self.pace_ns.load(Ordering::Relaxed);
            let took = took.as_nanos();
            let pace = match pace {
                0 => took,
                _ if exact => pace - pace / 8 + took / 8,
                // Who waits by a pace that is too slow is told of ends at that pace, and so would keep it for good.
                _ => pace.min(took) - pace.min(took) / QUICKENS,
            };
            self.pace_ns.store(pace, Ordering::Relaxed);
        }
        took
    }

    /// One is over that nobody saw the end of.
    pub(crate) fn lose(&self) {
        self.flying.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Permit {
    pub(crate) fn lane(&self) -> &Lane {
        &self.lane
    }

    pub(crate) const fn also(&mut self) -> &mut Option<Places> {
        &mut self.also
    }
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        self.lane.give_one();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn us(us: u64) -> Nanos {
        Nanos::from_micros(us)
    }

    fn at(at: u64) -> Instant {
        Instant::ORIGIN + us(at)
    }

    #[test]
    fn work_ends_behind_what_is_in_front_of_it() {
        let lane = Lane::new();
        let first = lane.depart(at(100), Some(us(50)));
        let second = lane.depart(at(110), Some(us(50)));
        assert_eq!((first.expected, second.expected), (Some(at(150)), Some(at(200))));
        assert_eq!(lane.arrive(&first, at(150), true), us(50));
        assert_eq!(lane.arrive(&second, at(205), true), us(55), "not what it waited for");
        let third = lane.depart(at(400), Some(us(50)));
        assert_eq!(third.expected, Some(at(450)), "nothing is in front any more");
    }

    #[test]
    fn an_error_is_made_good_once() {
        let lane = Lane::new();
        let [first, second, third] = [0; 3].map(|_| lane.depart(at(0), Some(us(100))));
        // The first takes 40 us longer, the others as expected.
        lane.arrive(&first, at(140), true);
        assert_eq!(lane.depart(at(141), Some(us(100))).expected, Some(at(440)));
        lane.arrive(&second, at(240), true);
        lane.arrive(&third, at(340), true);
        assert_eq!(lane.depart(at(341), Some(us(100))).expected, Some(at(540)));
    }

    #[test]
    fn what_is_not_known_is_not_expected_and_a_long_queue_goes_by_its_pace() {
        let lane = Lane::new();
        let unknown = lane.depart(at(0), None);
        assert_eq!(unknown.expected, None);
        lane.arrive(&unknown, at(10), true);
        // Expected to take 10 us each, and one ends every 30.
        let mut tickets: std::collections::VecDeque<_> =
            (0..8).map(|_| lane.depart(at(10), Some(us(10)))).collect();
        for n in 1..100 {
            let end = at(10 + 30 * n);
            lane.arrive(&tickets.pop_front().unwrap(), end, true);
            tickets.push_back(lane.depart(end, Some(us(10))));
        }
        let (last, now) = (tickets.back().unwrap().expected.unwrap(), at(10 + 30 * 99));
        let wait = last.since(now);
        assert!((us(200)..us(260)).contains(&wait), "{wait}, 240 us of queue");
    }

    /// Tasks that each submit again when they are told: had they been told too late once, they would be for good.
    #[test]
    fn a_pace_that_is_too_slow_gets_quicker_by_ends_that_had_come_before() {
        let (lane, service, depth) = (Lane::new(), us(100), 32);
        // As left behind by ends that came ten times as slow.
        lane.pace_ns.store(us(1_000).as_nanos(), Ordering::Relaxed);
        let (mut now, mut free) = (at(0), at(0));
        let mut flying: std::collections::VecDeque<(Ticket, Instant)> = std::collections::VecDeque::new();
        let mut depart = |now: Instant, flying: &mut std::collections::VecDeque<_>| {
            free = free.max(now) + service;
            flying.push_back((lane.depart(now, Some(service)), free));
        };
        (0..depth).for_each(|_| depart(now, &mut flying));
        let mut waited = Vec::new();
        for _ in 0..depth * 20 {
            let (ticket, ended) = flying.pop_front().unwrap();
            // It is looked at when it is expected, and watched from then on.
            let looked = now.max(ticket.expected.unwrap_or(now));
            let told = looked.max(ended);
            waited.push(told.since(ticket.submitted));
            now = told;
            lane.arrive(&ticket, told, ended > looked);
            depart(now, &mut flying);
        }
        let last = waited[waited.len() - 1];
        assert!(last <= us(100 * depth + 1_000), "{last}: {} us of queue", 100 * depth);
    }
}
