//! Waking a task before its word lands, so that it watches the word itself when it does.
//!
//! Waking a thread takes 7 us when it is busy and 20 to 60 us when its processor idles, longer than everything else after a
//! predicted completion. Where that is asked for, a thread that has slept for more than a moment is *stirred* before: woken for nothing 0.3 ms ahead, after which it is woken in 10 us
//! (see [`approach`](crate::approach)). So the watcher wakes the task earlier by that much, as learned, and the task's poll watches for a bounded
//! time; where the guess was wrong, the watcher goes on and wakes it once more.
//!
//! ```text
//!            sleeps      stir          early wake            landing    word         watched until
//!   ───────────────────────┼───────────────┼─────────────────────┼─────────┼────────────────┼──►
//!                                         └ wake time ─┴ naps ──┴ margin ─┘
//!                                           the task runs by then, and watches in slices
//! ```
//!
//! A few wake-ups take twenty times as long as most, on a virtual machine above all, whose halted processors are others'. So the task is woken early enough for nearly all of
//! them, and most often it is there much too early: until the landing it naps in slices as long as those it watches for, by a timer of its own thread, which is late by a few
//! microseconds where the wake-up by another is late by hundreds.

use core::cell::Cell;
use core::hint::spin_loop;

use wakeline_core::{Clock, Instant, Lookout, Nanos, Watched};

use super::sync::{AtomicU64, Ordering};
use crate::margin::{LENGTHS, length_class};
use crate::slack::TimerSlack;

/// The longest slice that one poll watches for: other tasks of the thread wait for so long.
pub const WATCH_SLICE_NS_MAX: u64 = 20_000;

/// How long before the word is expected a slice begins, and how long after that one may end: what comes within that is not missed while others have their turn, which
/// takes 4.5 us (p90 9) on the `multi_thread` runtime of tokio (880 waits for kernels of 5 ms, 16-core host of an H200; by stamps in its polls, in no program of ours).
const SLICE_BEFORE_NS: u64 = 12_000;
const SLICE_AFTER_NS: u64 = 4_000;

/// How long a nap of a task is that is there too early: with what a timer is late by, a slice.
pub(super) const NAP_NS: u64 = 12_000;

/// The longest nap of such a task, in nanoseconds, where its runtime has other threads for other tasks; see [`WatcherHandle::naps_for`](crate::WatcherHandle::naps_for).
pub const NAP_NS_MAX: u64 = 40_000;

/// How long before the landing the last nap ends: by as much may it end late.
const NAP_BEFORE_NS: u64 = 8_000;

/// How long before its landing a task is woken at most, and by what part of its sleep: each nap costs some microseconds of a processor.
const LEAD_NS_MAX: u64 = 240_000;
const LEAD_PART: u64 = 16;

/// How long a task watches at most from its early wake on, all slices together.
pub const WATCH_NS_MAX: u64 = 500_000;

/// How long a task watches beyond twice the plan's margin after the landing.
const SPREAD_NS: u64 = 50_000;

/// The longest wake-up that is learned, for the median and for nearly all, and what is taken for one at first.
const WAKE_NS_MAX: u64 = 250_000;
const TAIL_NS_MAX: u64 = 500_000;
const WAKE_NS_FIRST: u64 = 50_000;

/// How long the tasks of one runtime take from the call of their waker to their poll, by how long they had slept: a processor that idled for
/// longer wakes later.
#[derive(Debug)]
pub(super) struct WakeTime {
    ns: [AtomicU64; LENGTHS],
    /// What nearly all take at most.
    tail_ns: [AtomicU64; LENGTHS],
    /// Whether threads can nap for so short a time.
    naps: bool,
}

impl WakeTime {
    pub(super) fn new() -> Self {
        let first = || core::array::from_fn(|_| AtomicU64::new(WAKE_NS_FIRST));
        Self { ns: first(), tail_ns: first(), naps: TimerSlack::of_this_thread().is_some() }
    }

    /// Follows the median, in steps of a sixteenth: a task that is woken by the median before its landing, which is the plan's margin
    /// before the word, is there in time for most words, and does not watch for as long as the slowest wake-ups take. A race of two
    /// loses one of them.
    ///
    /// Where it can nap until then it is woken by what nearly all take: about the longest of the last few hundred.
    pub(super) fn observe(&self, slept: Nanos, took: Nanos) {
        let (ns, tail_ns) = (&self.ns[length_class(slept)], &self.tail_ns[length_class(slept)]);
        let tail = tail_ns.load(Ordering::Relaxed);
        let long = took.as_nanos().min(TAIL_NS_MAX);
        // Up by half of what was lacking, and down by a 400th of itself: an eighth in 50 times.
        let tail = if long > tail { tail + (long - tail).div_ceil(2) } else { (tail - tail / 400).max(long) };
        tail_ns.store(tail, Ordering::Relaxed);
        let took = took.as_nanos().min(WAKE_NS_MAX);
        let known = ns.load(Ordering::Relaxed);
        let step = known / 16 + 500;
        let known =
            if took > known { (known + step).min(took) } else { known.saturating_sub(step).max(took) };
        ns.store(known, Ordering::Relaxed);
    }

    pub(super) fn of(&self, slept: Nanos) -> Nanos {
        Nanos::from_nanos(self.ns[length_class(slept)].load(Ordering::Relaxed))
    }

    /// How to wake who sleeps from `begun` on before `landing`, which is so long before the word.
    pub(super) fn early(&self, begun: Instant, landing: Instant, margin: Nanos) -> Lead {
        let before = self.before(landing.since(begun));
        let after = margin + margin + Nanos::from_nanos(SPREAD_NS);
        let most = Nanos::from_nanos(WATCH_NS_MAX) - before;
        Lead { before, landing, due: landing + margin, until: landing + after.min(most) }
    }

    /// By how much before its landing to wake who has slept for so long by then.
    fn before(&self, slept: Nanos) -> Nanos {
        let median = self.of(slept);
        if !self.naps {
            return median;
        }
        let tail = self.tail_ns[length_class(slept)].load(Ordering::Relaxed);
        let most = (slept.as_nanos() / LEAD_PART).min(LEAD_NS_MAX);
        Nanos::from_nanos(tail.min(most)).max(median)
    }
}

/// How a task is woken early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lead {
    /// By how much before its landing.
    pub(super) before: Nanos,
    /// Until when it may nap.
    pub(super) landing: Instant,
    /// When its word is expected.
    pub(super) due: Instant,
    /// Until when it watches.
    pub(super) until: Instant,
}

/// When a slice ends that begins now: sooner, where the word is expected about when it would be over.
fn slice_end(now: Instant, due: Instant) -> Instant {
    let end = now + Nanos::from_nanos(WATCH_SLICE_NS_MAX);
    let sooner = due - Nanos::from_nanos(SLICE_BEFORE_NS);
    let covers = end >= due + Nanos::from_nanos(SLICE_AFTER_NS);
    if now < sooner && sooner < end && !covers { sooner } else { end }
}

/// Learns how long a wake-up took, in the poll that it led to.
pub(super) fn learn(lookout: &Lookout, wake_time: &WakeTime, clock: &impl Clock) {
    if let Some((woken_at, slept)) = lookout.take_woken() {
        wake_time.observe(slept, clock.now().since(woken_at));
    }
}

/// Watches for one slice where the task is to do so: until `ended` says true. Where it was woken early for that it naps first, for no longer than `naps` says at a time, and then
/// `prepare` is called, once.
pub(super) fn watch(
    lookout: &Lookout,
    who: usize,
    clock: &impl Clock,
    naps: impl Fn() -> Nanos,
    prepare: impl FnOnce(),
    mut ended: impl FnMut() -> bool,
) -> Watched {
    let Some(until) = lookout.until() else { return Watched::NotAsked };
    let now = clock.now();
    if now >= until || !claim(who, now, until) {
        stop(lookout, who);
        return Watched::NotAsked;
    }
    let landing = lookout.near();
    if nap(now, landing, naps) {
        return if ended() {
            stop(lookout, who);
            Watched::Ended
        } else {
            Watched::Again
        };
    }
    if landing > Instant::ORIGIN {
        lookout.land(Instant::ORIGIN);
        prepare();
    }
    let slice = until.min(slice_end(clock.now(), lookout.due()));
    loop {
        // Several looks between two at the clock, which costs as much as ten of them.
        for _ in 0..8 {
            if ended() {
                stop(lookout, who);
                return Watched::Ended;
            }
            spin_loop();
        }
        let now = clock.now();
        if now >= until {
            stop(lookout, who);
            return Watched::NotAsked;
        }
        if now >= slice {
            // The watcher's own thread may be due on this processor, and would wait for as long as we watch.
            std::thread::yield_now();
            return Watched::Again;
        }
    }
}

/// Sleeps for a nap, where one is over before the landing; whether it has. The thread's timer slack, which is its owner's, is as it was by then.
fn nap(now: Instant, landing: Instant, naps: impl Fn() -> Nanos) -> bool {
    let left = landing.since(now + Nanos::from_nanos(NAP_BEFORE_NS));
    if left.as_nanos() < NAP_NS {
        return false;
    }
    let nap = naps().as_nanos().clamp(NAP_NS, NAP_NS_MAX).min(left.as_nanos());
    // With the slack that threads have by default it would be over too late.
    let Ok(_slack) = TimerSlack::set(TimerSlack::LEAST) else { return false };
    std::thread::sleep(core::time::Duration::from_nanos(nap));
    true
}

/// The task watches no longer.
pub(super) fn stop(lookout: &Lookout, who: usize) {
    if lookout.stop() {
        release(who);
    }
}

thread_local! {
    /// Which flight watches on this thread, and until when at most: one at a time, lest several take the thread in turns.
    static WATCHING: Cell<(usize, Instant)> = const { Cell::new((0, Instant::ORIGIN)) };
}

fn claim(who: usize, now: Instant, until: Instant) -> bool {
    let claim = |watching: &Cell<(usize, Instant)>| {
        let (other, its_end) = watching.get();
        let free = other == who || now >= its_end;
        if free {
            watching.set((who, until));
        }
        free
    };
    // A thread that is ending has no such cell any more: then nobody watches.
    WATCHING.try_with(claim).unwrap_or(false)
}

fn release(who: usize) {
    let release = |watching: &Cell<(usize, Instant)>| {
        if watching.get().0 == who {
            watching.set((0, Instant::ORIGIN));
        }
    };
    let _ = WATCHING.try_with(release);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::StdClock;

    const NAP: fn() -> Nanos = || Nanos::ZERO;
    const NONE: fn() = || ();

    #[test]
    fn no_slice_is_longer_than_a_slice_wherever_its_word_is_expected() {
        let (now, slice) = (Instant::from_nanos(1_000_000), Nanos::from_nanos(WATCH_SLICE_NS_MAX));
        for due in (0..2_000_000).step_by(500).map(Instant::from_nanos) {
            let end = slice_end(now, due);
            assert!(now < end && end.since(now) <= slice, "{due:?}: {end:?}");
        }
    }

    #[test]
    fn the_wake_time_follows_the_median_within_its_bound() {
        let us = Nanos::from_micros;
        let time = WakeTime::new();
        for _ in 0..200 {
            for took in [10, 200, 12, 12, 14, 10, 15, 12] {
                time.observe(us(5_000), us(took));
                time.observe(us(200), us(took / 2));
            }
        }
        let (long, short) = (time.of(us(5_000)), time.of(us(200)));
        assert!((us(10)..us(15)).contains(&long), "{long}");
        assert!((us(5)..us(8)).contains(&short), "{short}");
        for _ in 0..100 {
            time.observe(us(5_000), Nanos::MAX);
        }
        assert!(time.of(us(5_000)) <= us(250));
        assert!(time.before(us(5_000)) <= us(5_000 / 16) && time.before(us(160)) <= us(10));
        for _ in 0..20_000 {
            time.observe(us(5_000), us(10));
        }
        assert_eq!(time.before(us(5_000)), us(10));
        // One of a thousand is left to be late, one of fifty is not.
        for (every, least, most) in [(1_000, 10, 30), (50, 150, 200)] {
            for at in 0..20_000 {
                time.observe(us(5_000), us(if at % every == 0 { 200 } else { 10 }));
            }
            let before = time.before(us(5_000));
            assert!((us(least)..=us(most)).contains(&before), "one of {every}: {before}");
        }
        let landing = Instant::ORIGIN + us(5_000);
        let lead = time.early(Instant::ORIGIN, landing, us(100_000));
        assert_eq!(lead.until.since(landing) + lead.before, Nanos::from_nanos(WATCH_NS_MAX));
    }

    #[test]
    fn one_watches_at_a_time_and_a_slice_is_bounded() {
        let clock = StdClock::new();
        let (one, other) = (Lookout::new(), Lookout::new());
        let until = clock.now() + Nanos::from_millis(200);
        one.watch_until(until);
        other.watch_until(until);
        let start = clock.now();
        assert_eq!(watch(&one, 1, &clock, NAP, NONE, || false), Watched::Again);
        assert!(clock.now().since(start) >= Nanos::from_nanos(WATCH_SLICE_NS_MAX));
        assert_eq!(watch(&other, 2, &clock, NAP, NONE, || true), Watched::NotAsked, "another watches here");
        assert_eq!(watch(&one, 1, &clock, NAP, NONE, || true), Watched::Ended);
        assert_eq!(watch(&one, 1, &clock, NAP, NONE, || true), Watched::NotAsked, "once is enough");
        other.watch_until(until);
        assert_eq!(watch(&other, 2, &clock, NAP, NONE, || true), Watched::Ended);
    }

    #[test]
    fn who_is_there_too_early_naps_and_sees_what_has_come() {
        let (clock, lookout) = (StdClock::new(), Lookout::new());
        let start = clock.now();
        lookout.watch_until(start + Nanos::from_millis(300));
        lookout.land(start + Nanos::from_millis(200));
        assert_eq!(watch(&lookout, 1, &clock, NAP, NONE, || false), Watched::Again);
        assert!(clock.now().since(start) >= Nanos::from_nanos(NAP_NS));
        let cpu = crate::usage::thread_cpu_time();
        for _ in 0..100 {
            assert_eq!(watch(&lookout, 1, &clock, NAP, NONE, || false), Watched::Again);
        }
        let (took, cpu) = (clock.now().since(start), crate::usage::thread_cpu_time().unwrap() - cpu.unwrap());
        assert!(cpu < took, "{cpu} of {took}");
        assert_eq!(watch(&lookout, 1, &clock, NAP, NONE, || true), Watched::Ended);
        assert_eq!(watch(&lookout, 1, &clock, NAP, NONE, || true), Watched::NotAsked);
        let now = clock.now();
        let near = |ns: u64| nap(now, now + Nanos::from_nanos(ns), || Nanos::MAX);
        assert!(near(NAP_NS + NAP_BEFORE_NS) && !near(NAP_NS + NAP_BEFORE_NS - 1));
        assert!(!nap(now, Instant::ORIGIN, || Nanos::MAX), "nobody knows");
    }

    #[test]
    fn no_slice_ends_right_before_the_word_is_expected() {
        let at = |us: u64| Instant::ORIGIN + Nanos::from_micros(us);
        let end = |now: u64, due: u64| slice_end(at(now), at(due)).since(at(now)).as_nanos() / 1_000;
        assert_eq!(end(1_000, 0), 20, "nobody knows");
        assert_eq!(end(1_000, 1_015), 20, "within it");
        assert_eq!([1_018, 1_020, 1_030].map(|due| end(1_000, due)), [6, 8, 18], "the next begins sooner");
        assert_eq!([1_032, 1_100, 900].map(|due| end(1_000, due)), [20, 20, 20], "it is not its to see");
        // However early the first begins: the slice in which the word is expected goes on after that.
        for early in 0..200 {
            let (mut now, due) = (1_000, 1_000 + early);
            while now + end(now, due) <= due {
                now += end(now, due);
            }
            assert!(now + end(now, due) >= due + 4, "{early}: {now}");
            assert!(now == 1_000 || due >= now + 12, "{early}: {now}");
        }
    }

    #[test]
    fn watching_ends_with_its_time() {
        let clock = StdClock::new();
        let lookout = Lookout::new();
        lookout.watch_until(clock.now() + Nanos::from_micros(5));
        assert_eq!(watch(&lookout, 1, &clock, NAP, NONE, || false), Watched::NotAsked);
        lookout.watch_until(clock.now());
        assert_eq!(watch(&lookout, 1, &clock, NAP, NONE, || true), Watched::NotAsked);
    }
}
