//! Waking a task before its word lands, so that it watches the word itself when it does.
//!
//! Waking a thread takes 7 us when it is busy and 20 to 60 us when its processor idles, longer than everything else after a
//! predicted completion. A thread that has slept for more than a moment is *stirred* before: woken for nothing 0.3 ms ahead, after which it is woken in 10 us
//! (see [`approach`](crate::approach)). So the watcher wakes the task earlier by that much, as learned, and the task's poll watches for a bounded
//! time; where the guess was wrong, the watcher goes on and wakes it once more.
//!
//! ```text
//!            sleeps      stir          early wake   landing    word         watched until
//!   ───────────────────────┼───────────────┼────────────┼─────────┼────────────────┼──►
//!                                         └ wake time ─┴ margin ─┘
//!                                           the task runs by then, and watches in slices
//! ```

use core::cell::Cell;
use core::hint::spin_loop;

use wakeline_core::{Clock, Instant, Nanos};

use super::sync::{AtomicU64, Ordering};

/// The longest slice that one poll watches for: other tasks of the thread wait for so long.
pub const WATCH_SLICE_NS_MAX: u64 = 20_000;

/// How long a task watches at most from its early wake on, all slices together.
pub const WATCH_NS_MAX: u64 = 500_000;

/// How long a task watches beyond twice the plan's margin after the landing.
const SPREAD_NS: u64 = 50_000;

/// The longest wake-up that is learned, and what is taken for one at first.
const WAKE_NS_MAX: u64 = 250_000;
const WAKE_NS_FIRST: u64 = 50_000;

/// How long the tasks of one runtime take from the call of their waker to their poll.
#[derive(Debug)]
pub(super) struct WakeTime {
    ns: AtomicU64,
}

impl WakeTime {
    pub(super) fn new() -> Self {
        Self { ns: AtomicU64::new(WAKE_NS_FIRST) }
    }

    /// Follows the median, in steps of a sixteenth: a task that is woken by the median before its landing, which is the plan's margin
    /// before the word, is there in time for most words, and does not watch for as long as the slowest wake-ups take. A race of two
    /// loses one of them.
    pub(super) fn observe(&self, took: Nanos) {
        let took = took.as_nanos().min(WAKE_NS_MAX);
        let known = self.ns.load(Ordering::Relaxed);
        let step = known / 16 + 500;
        let known =
            if took > known { (known + step).min(took) } else { known.saturating_sub(step).max(took) };
        self.ns.store(known, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Nanos {
        Nanos::from_nanos(self.ns.load(Ordering::Relaxed))
    }

    /// By how much to wake before `landing`, and until when to watch.
    pub(super) fn early(&self, landing: Instant, margin: Nanos) -> (Nanos, Instant) {
        let before = self.get();
        let after = margin + margin + Nanos::from_nanos(SPREAD_NS);
        let most = Nanos::from_nanos(WATCH_NS_MAX) - before;
        (before, landing + after.min(most))
    }
}

/// What a watcher tells a task that it wakes.
#[derive(Debug)]
pub(super) struct Rouse {
    /// When its waker was called; zero once that is known.
    woken_at: AtomicU64,
    /// Until when it is to watch; zero where it is not.
    until: AtomicU64,
}

impl Default for Rouse {
    fn default() -> Self {
        Self { woken_at: AtomicU64::new(0), until: AtomicU64::new(0) }
    }
}

impl Rouse {
    /// To be called right before the waker.
    pub(super) fn woken(&self, now: Instant) {
        self.woken_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn watch_until(&self, until: Instant) {
        self.until.store(until.as_nanos(), Ordering::Release);
    }

    pub(super) fn learn(&self, wake_time: &WakeTime, clock: &impl Clock) {
        if self.woken_at.load(Ordering::Relaxed) != 0 {
            let woken_at = Instant::from_nanos(self.woken_at.swap(0, Ordering::Relaxed));
            if woken_at > Instant::ORIGIN {
                wake_time.observe(clock.now().since(woken_at));
            }
        }
    }

    /// Watches for one slice where the task was woken to do so: until `ended` says true.
    pub(super) fn watch(&self, who: usize, clock: &impl Clock, mut ended: impl FnMut() -> bool) -> Watched {
        let until = self.until.load(Ordering::Acquire);
        if until == 0 {
            return Watched::NotAsked;
        }
        let until = Instant::from_nanos(until);
        let now = clock.now();
        if now >= until || !claim(who, now, until) {
            self.stop(who);
            return Watched::NotAsked;
        }
        let slice = until.min(now + Nanos::from_nanos(WATCH_SLICE_NS_MAX));
        loop {
            // Several looks between two at the clock, which costs as much as ten of them.
            for _ in 0..8 {
                if ended() {
                    self.stop(who);
                    return Watched::Ended;
                }
                spin_loop();
            }
            let now = clock.now();
            if now >= until {
                self.stop(who);
                return Watched::NotAsked;
            }
            if now >= slice {
                // The watcher's own thread may be due on this processor, and would wait for as long as we watch.
                std::thread::yield_now();
                return Watched::Again;
            }
        }
    }

    /// The task watches no longer.
    pub(super) fn stop(&self, who: usize) {
        if self.until.swap(0, Ordering::Relaxed) != 0 {
            release(who);
        }
    }
}

/// What came of watching.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Watched {
    /// It is not this task's to watch, or no longer.
    NotAsked,
    /// What was watched for has come.
    Ended,
    /// The slice is over; others shall run, and then it shall watch on.
    Again,
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

    #[test]
    fn the_wake_time_follows_the_median_within_its_bound() {
        let us = Nanos::from_micros;
        let time = WakeTime::new();
        for _ in 0..200 {
            for took in [10, 200, 12, 12, 14, 10, 15, 12] {
                time.observe(us(took));
            }
        }
        assert!((us(10)..us(15)).contains(&time.get()), "{}", time.get());
        for _ in 0..100 {
            time.observe(Nanos::MAX);
        }
        assert!(time.get() <= us(250));
        let (before, until) = time.early(Instant::ORIGIN + us(1_000), us(100_000));
        assert_eq!(until.since(Instant::ORIGIN + us(1_000)) + before, Nanos::from_nanos(WATCH_NS_MAX));
    }

    #[test]
    fn one_watches_at_a_time_and_a_slice_is_bounded() {
        let clock = StdClock::new();
        let (one, other) = (Rouse::default(), Rouse::default());
        let until = clock.now() + Nanos::from_millis(200);
        one.watch_until(until);
        other.watch_until(until);
        let start = clock.now();
        assert_eq!(one.watch(1, &clock, || false), Watched::Again);
        assert!(clock.now().since(start) >= Nanos::from_nanos(WATCH_SLICE_NS_MAX));
        assert_eq!(other.watch(2, &clock, || true), Watched::NotAsked, "another watches here");
        assert_eq!(one.watch(1, &clock, || true), Watched::Ended);
        assert_eq!(one.watch(1, &clock, || true), Watched::NotAsked, "once is enough");
        other.watch_until(until);
        assert_eq!(other.watch(2, &clock, || true), Watched::Ended);
    }

    #[test]
    fn watching_ends_with_its_time() {
        let clock = StdClock::new();
        let rouse = Rouse::default();
        rouse.watch_until(clock.now() + Nanos::from_micros(5));
        assert_eq!(rouse.watch(1, &clock, || false), Watched::NotAsked);
        rouse.watch_until(clock.now());
        assert_eq!(rouse.watch(1, &clock, || true), Watched::NotAsked);
    }
}
