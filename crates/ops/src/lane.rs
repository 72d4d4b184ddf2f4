//! What is known of a stream: what is in flight in it, and when that is expected to end.
//!
//! A stream runs its work one after another. So what is submitted ends after what is in front of it, and by as much as it takes itself:
//!
//! ```text
//!   last end that is known of                                              one more
//!   ──────────┼──────────── work in front, each as long as its kind takes ────┼── its own ──┼──►
//!             anchor        └──────────────── times the rate ─────────────────────────────┘ expected end
//! ```
//!
//! Work is counted in the time that it is expected to take, from the beginning of the stream on; so what lies between two ends is a difference of two
//! numbers, however long and short kinds are mixed. How long it took over that time is the *rate*: one number a stream, an average over
//! about as much work as there is in front. It makes good what is wrong with all kinds at a time, other users of the device say, or what adds up over many.
//! Each end that is seen moves the anchor, so that an error is made good once. Only what was submitted before the one end and seen to end tells of the rate: the stream was busy all
//! the while.
//!
//! An end that had come before anybody looked tells a bound and nothing else. The anchor is then where the end was expected, the rate is at most what the bound
//! allows, and gets a little quicker: who waits by a rate that is too slow is told of ends at that rate, and so would keep it for good.
//!
//! Failure modes: work that is not submitted here (another user of the stream, [`async_on`](crate::DeviceOp::async_on)), and the first of
//! a kind, take no time as far as is known; streams that slow each other down are each as slow as they were before.

use core::mem::ManuallyDrop;
use core::sync::atomic::AtomicU64;
use core::task::{Context, Poll};
use std::sync::Arc;

use wakeline_core::{Instant, Nanos};

use crate::lanes::Places;
use crate::lock;
use crate::panics::survive;
use crate::stream::ENTRIES_MAX;
use crate::sync::{AtomicU64 as SyncU64, Lock, Ordering};

mod waiting;

pub(crate) use waiting::Turn;
use waiting::{Waiting, Woken};

#[cfg(all(test, not(loom)))]
mod tests;

/// A rate of one: the work takes as long as it is expected to. Rates are kept within a sixteenth and sixteen times of it, and no end changes one by more than a half: what
/// is known of a kind may be far off once.
const RATE_ONE: u64 = 1 << 10;
const RATE_MIN: u64 = RATE_ONE / 16;
const RATE_MAX: u64 = RATE_ONE * 16;

/// By what part of it a rate gets quicker for as much work as there is in front, where all of that had ended before anybody looked.
const QUICKENS: u64 = 4;

/// The most work that counts as in front: an hour, so that products stay within 64 bits.
const BACKLOG_NS_MAX: u64 = 3_600_000_000_000;

/// What one place counts in what is taken; below that count the entries.
pub(crate) const FLIGHT: u64 = 1 << 32;

/// See [`Permit::mark`].
pub(crate) const OTHERS: u64 = 1 << 63;

/// Somebody waits for a place.
const WAITS: u64 = 1 << 63;

/// Room is held for one of those. Counts as more entries than there are, so that who asks for a place sees no room, and need not look for it.
const HELD: u64 = 1 << 31;

/// What all flights of a stream share.
#[derive(Debug)]
pub(crate) struct Lane {
    /// How many entries of the queue there are, of which each place takes two at least.
    entries: u64,
    /// How many places, each a [`FLIGHT`], and entries are taken; with [`WAITS`] where somebody waits for some, and [`HELD`].
    taken: SyncU64,
    /// Those entries of them that are of work which nobody sees to its end: it is in the queue until something behind it has ended.
    unseen: AtomicU64,
    /// Who waits for one.
    waiting: Lock<Waiting>,
    /// The highest place that is known to have landed, by its number.
    landed: AtomicU64,
    /// The last gate that may be in front of what is enqueued next, by its number; 0 for none.
    last_gate: AtomicU64,
    /// How much work was submitted since the beginning, as it is expected to take.
    work_ns: AtomicU64,
    /// Where ends are counted from: when the last one came as far as is known, and how much of the work was behind it.
    anchor_at: AtomicU64,
    anchor_work: AtomicU64,
    /// The last one that is known for sure: the same, where nobody looked too late.
    sure_at: AtomicU64,
    sure_work: AtomicU64,
    /// How long work takes by how long it is expected to; see [`RATE_ONE`].
    rate: AtomicU64,
    /// Until when branches of operations of other streams are expected here at most.
    branches_until: AtomicU64,
}

/// A place among what is in flight. Given back when it is dropped, which wakes who waits for one.
#[derive(Debug)]
pub(crate) struct Permit {
    lane: Arc<Lane>,
    /// What it has of what is taken: a [`FLIGHT`], and entries of the queue.
    taken: u64,
    /// The last place that its work has recorded, by its number; 0 for none. With [`OTHERS`] where there are some in other streams.
    mark: u64,
    /// Those in other streams, where the work branches out. Dropped by hand, so that where there are none nothing is called.
    also: ManuallyDrop<Option<Places>>,
}

/// What is expected of a flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    pub(crate) submitted: Instant,
    /// When it ends; `None` where nothing is known.
    pub(crate) expected: Option<Instant>,
    /// How long it takes by itself, as it was known then.
    pub(crate) service: Option<Nanos>,
    /// It waits for the host at a gate: when it ends says nothing of how long it takes.
    pub(crate) held: bool,
    /// All work up to its end.
    work: u64,
}

/// What an end tells of how long it took by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lesson {
    pub(crate) took: Nanos,
    /// It took as long; else at most.
    pub(crate) exact: bool,
}

impl Lane {
    pub(crate) fn new() -> Arc<Self> {
        Self::of(ENTRIES_MAX)
    }

    /// One with so many entries.
    pub(crate) fn of(entries: u32) -> Arc<Self> {
        Arc::new(Self {
            entries: entries.into(),
            taken: SyncU64::new(0),
            unseen: AtomicU64::new(0),
            waiting: Lock::new(Waiting::default()),
            landed: AtomicU64::new(0),
            last_gate: AtomicU64::new(0),
            work_ns: AtomicU64::new(0),
            anchor_at: AtomicU64::new(0),
            anchor_work: AtomicU64::new(0),
            sure_at: AtomicU64::new(0),
            sure_work: AtomicU64::new(0),
            rate: AtomicU64::new(RATE_ONE),
            branches_until: AtomicU64::new(0),
        })
    }

    /// A place among what is in flight and as many entries of the queue, no more than there are, once there is room for both. Where there is none, the task is woken when there may be; `turn` is
    /// where it waits, once, however often it is polled.
    #[inline]
    pub(crate) fn admit(
        self: &Arc<Self>,
        entries: u32,
        turn: &mut Option<Turn>,
        context: &Context<'_>,
    ) -> Poll<Permit> {
        if self.take(entries) {
            if turn.is_some() {
                self.leave(turn);
            }
            return Poll::Ready(self.permit(entries));
        }
        if self.wait_for_one(entries, turn, context) {
            Poll::Ready(self.permit(entries))
        } else {
            Poll::Pending
        }
    }

    #[inline]
    fn permit(self: &Arc<Self>, entries: u32) -> Permit {
        Permit {
            lane: Arc::clone(self),
            taken: FLIGHT + u64::from(entries),
            mark: 0,
            also: ManuallyDrop::new(None),
        }
    }

    #[inline]
    fn has_room(&self, taken: u64, entries: u32) -> bool {
        (taken & (FLIGHT - 1)) + u64::from(entries) <= self.entries
    }

    /// A place, with so many entries, where there is room.
    #[inline]
    pub(crate) fn take(&self, entries: u32) -> bool {
        let one_more = |taken| self.has_room(taken, entries).then_some(taken + FLIGHT + u64::from(entries));
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_ok()
    }

    /// So many entries more for one who has a place, where there is room, held or not.
    pub(crate) fn take_more(&self, entries: u32) -> bool {
        let more = |taken| self.has_room(taken & !HELD, entries).then_some(taken + u64::from(entries));
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// The same whether or not there is room: they are in the queue.
    pub(crate) fn take_anyway(&self, entries: u32) {
        self.taken.fetch_add(u64::from(entries), Ordering::AcqRel);
    }

    /// Keeps the entries of what is `taken` for work that nobody sees to its end.
    #[cold]
    pub(crate) fn leave_unseen(&self, taken: &mut u64) {
        self.unseen.fetch_add(*taken - FLIGHT, Ordering::AcqRel);
        *taken = FLIGHT;
    }

    /// Those entries that are of work in front which nobody sees to its end: for whoever enqueues behind it from now on, at whose end they are given back.
    #[cold]
    pub(crate) fn take_unseen(&self) -> u64 {
        self.unseen.swap(0, Ordering::AcqRel)
    }

    /// Whether there are any.
    #[inline]
    pub(crate) fn has_unseen(&self) -> bool {
        self.unseen.load(Ordering::Relaxed) != 0
    }

    /// Whether such work alone is in the queue, and leaves no room for so many: nothing that ends would make some.
    #[cold]
    pub(crate) fn is_full_of_unseen(&self, entries: u32) -> bool {
        self.in_flight() == 0 && self.unseen.load(Ordering::Acquire) + u64::from(entries) > self.entries
    }

    /// How many entries are taken, and how many there are.
    pub(crate) fn entries(&self) -> (u64, u32) {
        (
            self.taken.load(Ordering::Relaxed) & (FLIGHT - 1) & !HELD,
            u32::try_from(self.entries).unwrap_or(u32::MAX),
        )
    }

    /// Waits, unless there is room after all.
    #[cold]
    fn wait_for_one(&self, entries: u32, turn: &mut Option<Turn>, context: &Context<'_>) -> bool {
        // Cloned and dropped without the lock: a waker is somebody else's code.
        let mut waker = Some(context.waker().clone());
        let (mut old, mut woken, mut looks_again) = (None, Woken::new(), false);
        let admitted = {
            let mut waiting = self.waiting.lock();
            let mut admitted = self.enter_or_wait(&waiting, entries, *turn);
            let mut hold_is_over = false;
            if !admitted && !waiting.may_enter(*turn) && self.in_flight() == 0 {
                // Nothing that ends would wake it.
                looks_again = true;
                hold_is_over = waiting.look();
                admitted = hold_is_over && self.enter_or_wait(&waiting, entries, *turn);
            }
            if admitted && let Some(turn) = turn.take() {
                let (left, was_held) = waiting.remove(turn);
                old = left;
                hold_is_over |= was_held;
            }
            if hold_is_over {
                woken = waiting.all();
            }
            if !admitted {
                old = waker.take().and_then(|waker| waiting.wait(turn, waker));
                waiting.hold_for(*turn, entries);
            }
            self.note(&waiting);
            admitted
        };
        drop((waker, old));
        wake(woken);
        if looks_again && !admitted {
            survive(|| lock::released(|| context.waker().wake_by_ref()));
        }
        admitted
    }

    /// Takes a place, under the lock, or notes that somebody waits for one.
    fn enter_or_wait(&self, waiting: &Waiting, entries: u32, turn: Option<Turn>) -> bool {
        let has_room = |taken| waiting.may_enter(turn) && self.has_room(taken & !HELD, entries);
        // One number says what is taken and whether somebody waits: who gives some back either comes before, or sees that.
        let change =
            |taken| Some(if has_room(taken) { taken + FLIGHT + u64::from(entries) } else { taken | WAITS });
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok_and(has_room)
    }

    /// Whoever waits there does so no longer. Where it has been woken and has not looked since, another is in its place.
    #[cold]
    pub(crate) fn leave(&self, turn: &mut Option<Turn>) {
        let Some(turn) = turn.take() else { return };
        let (left, was_woken, woken) = {
            let mut waiting = self.waiting.lock();
            let (left, was_held) = waiting.remove(turn);
            let woken = if was_held { waiting.all() } else { Woken::new() };
            self.note(&waiting);
            let was_woken = left.is_none() && !waiting.is_empty();
            (left, was_woken, woken)
        };
        // Somebody else's, without the lock.
        survive(|| drop(left));
        wake(woken);
        if was_woken {
            self.wake_some(false);
        }
    }

    /// Notes, under the lock, whether nobody waits and whether room is held.
    fn note(&self, waiting: &Waiting) {
        if waiting.is_held() {
            self.taken.fetch_or(HELD, Ordering::AcqRel);
        }
        let none = if waiting.is_empty() { WAITS } else { 0 };
        let not_held = if waiting.is_held() { 0 } else { HELD };
        if none | not_held != 0 {
            self.taken.fetch_and(!(none | not_held), Ordering::AcqRel);
        }
    }

    /// Whether nothing is in front of whoever has a place. Not where somebody waits.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.taken.load(Ordering::Relaxed) < 2 * FLIGHT
    }

    /// A place and so many entries, whether or not there is room: for whoever waits on the spot, which is one a thread at most.
    pub(crate) fn admit_anyway(self: &Arc<Self>, entries: u32) -> Permit {
        self.taken.fetch_add(FLIGHT + u64::from(entries), Ordering::AcqRel);
        self.permit(entries)
    }

    /// Gives so much back of what is taken: entries, and a [`FLIGHT`] with the last of them.
    #[inline]
    pub(crate) fn give(&self, count: u64) {
        let before = self.taken.fetch_sub(count, Ordering::AcqRel);
        if before & WAITS != 0 {
            self.wake_some((before & !WAITS) - count < FLIGHT);
        }
    }

    /// All up to this place, by its number, is known to be done.
    #[inline]
    pub(crate) fn landed(&self, number: u64) {
        // `Release`: whoever goes by it comes after all that whoever saw the end had seen.
        self.landed.fetch_max(number, Ordering::AcqRel);
    }

    /// Whether the place of this number is known to have landed.
    pub(crate) fn has_landed(&self, number: u64) -> bool {
        number <= self.landed.load(Ordering::Acquire)
    }

    /// What is enqueued from now on may be behind this gate.
    pub(crate) fn behind_gate(&self, number: u64) {
        self.last_gate.fetch_max(number, Ordering::SeqCst);
    }

    /// What is enqueued from now on may be behind all gates of this stream.
    pub(crate) fn inherit_gates(&self, other: &Self) {
        let number = other.last_gate();
        if number > self.last_gate() {
            self.behind_gate(number);
        }
    }

    pub(crate) fn last_gate(&self) -> u64 {
        self.last_gate.load(Ordering::SeqCst)
    }

    /// How many places are taken.
    pub(crate) fn in_flight(&self) -> usize {
        let taken = self.taken.load(Ordering::Relaxed) & !WAITS;
        usize::try_from(taken / FLIGHT).unwrap_or(usize::MAX)
    }

    /// How long until all in flight has ended, as far as that is known.
    pub(crate) fn residual(&self, now: Instant) -> Nanos {
        if self.in_flight() == 0 {
            return Nanos::ZERO;
        }
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let ahead = scaled(ahead_of(read(&self.work_ns), read(&self.anchor_work)), read(&self.rate));
        let end = read(&self.anchor_at).saturating_add(ahead).max(read(&self.branches_until));
        Instant::from_nanos(end).since(now)
    }

    /// A branch of what is expected to end then is in flight here.
    pub(crate) fn expect_until(&self, at: Instant) {
        self.branches_until.fetch_max(at.as_nanos(), Ordering::Relaxed);
    }

    /// Wakes those whose turn it is since there may be room; `all` where nothing is in flight any more.
    #[cold]
    fn wake_some(&self, all: bool) {
        let woken = {
            let mut waiting = self.waiting.lock();
            let taken = self.taken.load(Ordering::Acquire) & !HELD;
            let woken = waiting.end(all, |entries| self.has_room(taken, entries));
            self.note(&waiting);
            woken
        };
        wake(woken);
    }

    /// One more is submitted, which takes `service` where that is known. It has its place by now.
    ///
    /// Threads that submit or see an end at one moment may take one's place and another's work: then an expectation is off by what those submit.
    #[inline]
    pub(crate) fn depart(&self, now: Instant, service: Option<Nanos>) -> Ticket {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let own = service.unwrap_or(Nanos::ZERO).as_nanos();
        let before = self.work_ns.fetch_add(own, Ordering::Relaxed);
        let work = before.wrapping_add(own);
        let mut expected = service.map(|service| now + service);
        // Several may have had their places before the first of all came here.
        if self.is_alone() || read(&self.sure_at) == 0 {
            self.anchor(now.as_nanos(), before, true);
        } else if let Some(alone) = expected {
            let ahead = scaled(ahead_of(work, read(&self.anchor_work)), read(&self.rate));
            let behind = Instant::from_nanos(read(&self.anchor_at).saturating_add(ahead));
            let branches = Instant::from_nanos(read(&self.branches_until));
            expected = Some(behind.max(alone).max(branches + alone.since(now)));
        }
        Ticket { submitted: now, expected, service, held: false, work }
    }

    #[inline]
    fn anchor(&self, at: u64, work: u64, sure: bool) {
        self.anchor_at.store(at, Ordering::Relaxed);
        self.anchor_work.store(work, Ordering::Relaxed);
        if sure {
            self.sure_at.store(at, Ordering::Relaxed);
            self.sure_work.store(work, Ordering::Relaxed);
        }
    }

    /// One has ended, at that moment or, where that is not `exact`, some time before; what that tells of it, if anything.
    #[inline]
    pub(crate) fn arrive(&self, ticket: &Ticket, at: Instant, exact: bool) -> Option<Lesson> {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (anchor_at, sure_at) = (read(&self.anchor_at), read(&self.sure_at));
        let (anchor_work, at) = (read(&self.anchor_work), at.as_nanos());
        let begun = ticket.submitted.as_nanos().max(anchor_at);
        let since = ticket.work.wrapping_sub(anchor_work);
        if since.cast_signed() < 0 || at < begun {
            // An end behind it was told of before.
            return None;
        }
        if ticket.held {
            // What comes behind it is counted from here.
            self.anchor(at, ticket.work, true);
            return None;
        }
        let mut end = at;
        if ticket.submitted.as_nanos() < anchor_at {
            end = self.correct(ticket, at, exact);
        }
        self.anchor(end, ticket.work, exact);
        // Where the one before had ended before anybody looked, nobody knows when this one began.
        (anchor_at == sure_at).then(|| Lesson { took: Nanos::from_nanos(at - begun), exact })
    }

    /// What the end of one that waited behind others tells of the rate; when it came, as far as is known.
    #[inline(never)]
    fn correct(&self, ticket: &Ticket, at: u64, exact: bool) -> u64 {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (rate, anchor_work) = (read(&self.rate), read(&self.anchor_work));
        let backlog = ahead_of(read(&self.work_ns), anchor_work).min(BACKLOG_NS_MAX);
        let sure_at = read(&self.sure_at);
        let took = at.saturating_sub(sure_at).min(BACKLOG_NS_MAX);
        let work = ahead_of(ticket.work, read(&self.sure_work)).min(BACKLOG_NS_MAX);
        let own = ticket.work.wrapping_sub(anchor_work).min(backlog);
        if ticket.expected.is_none() || work == 0 || own == 0 {
            return at;
        }
        let (changed, end) = if exact && ticket.submitted.as_nanos() > sure_at {
            // The stream may have had nothing to do in between, for want of somebody who had been told: who is told late would make it slow so.
            return at;
        } else if exact {
            // Both averages are by how much work they are of.
            ((rate * backlog + took * RATE_ONE) / (backlog + work), at)
        } else {
            let end = at.min(read(&self.anchor_at).saturating_add(scaled(own, rate)));
            let quicker = rate * own / (backlog * QUICKENS);
            (rate.min(took * RATE_ONE / work).saturating_sub(quicker), end)
        };
        let changed = changed.clamp(rate / 2, rate + rate / 2).clamp(RATE_MIN, RATE_MAX);
        self.rate.store(changed, Ordering::Relaxed);
        end
    }
}

/// Under no lock of the lane's.
fn wake(woken: Woken) {
    woken.into_iter().for_each(|waker| {
        lock::wake(waker);
    });
}

/// How much work is between; none where another thread has seen the end of later work meanwhile.
fn ahead_of(work: u64, anchor: u64) -> u64 {
    let since = work.wrapping_sub(anchor);
    if since.cast_signed() < 0 { 0 } else { since }
}

/// How long so much work takes at this rate.
#[cold]
fn scaled(work: u64, rate: u64) -> u64 {
    work.min(BACKLOG_NS_MAX) * rate / RATE_ONE
}

impl Permit {
    pub(crate) fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Those in other streams, to which some may be added.
    pub(crate) fn also(&mut self) -> &mut Option<Places> {
        self.mark |= OTHERS;
        &mut self.also
    }

    pub(crate) const fn others(&self) -> &ManuallyDrop<Option<Places>> {
        &self.also
    }

    #[expect(clippy::cast_possible_truncation, reason = "the entries are below the place")]
    pub(crate) const fn entries(&self) -> u32 {
        self.taken as u32
    }

    /// What it has of what is taken in this stream, its own or one of the others.
    pub(crate) fn taken_of(&mut self, lane: &Lane) -> Option<&mut u64> {
        if core::ptr::eq(&raw const *self.lane, lane) {
            return Some(&mut self.taken);
        }
        self.also.as_mut()?.share(lane).map(|share| &mut share.taken)
    }

    /// The last place that its work has recorded in this stream, by its number.
    pub(crate) fn mark_of(&mut self, lane: &Lane) -> Option<&mut u64> {
        if core::ptr::eq(&raw const *self.lane, lane) {
            return Some(&mut self.mark);
        }
        self.also.as_mut()?.share(lane).map(|share| &mut share.mark)
    }

    /// Nobody knows whether its work is done.
    pub(crate) fn lost(&mut self) {
        self.mark &= OTHERS;
        if let Some(places) = &mut *self.also {
            places.lost();
        }
    }

    /// The same of work that is still enqueued, as far as is known: what it has of the queues stays taken.
    #[cold]
    pub(crate) fn unseen(&mut self) {
        self.lost();
        self.lane.leave_unseen(&mut self.taken);
        if let Some(places) = &mut *self.also {
            places.unseen();
        }
    }

    /// It is behind all that nobody sees to its end in its stream.
    #[cold]
    pub(crate) fn take_unseen(&mut self) {
        self.taken += self.lane.take_unseen();
    }

    /// Its work is done where there is more to be told of that, in all streams.
    #[cold]
    fn note_landed(&mut self) {
        self.lane.landed(self.mark & !OTHERS);
        if let Some(places) = &*self.also {
            places.landed();
        }
        drop(ManuallyDrop::into_inner(core::mem::take(&mut self.also)));
    }
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        if self.mark != 0 {
            self.note_landed();
        }
        self.lane.give(self.taken);
    }
}
