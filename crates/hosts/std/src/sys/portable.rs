//! Any system with `std`: `Instant` and thread parking. No slack, no CPU clocks.

use core::sync::atomic::{AtomicU32, Ordering, fence};
use core::time::Duration;
use std::sync::OnceLock;
use std::thread::Thread;

use wakeline_core::{Instant, Nanos};

use crate::bell::Rouse;

/// How long a thread sleeps at most that idles with another thread's [`Sleeper`], milliseconds.
const STRANGER_MS_MAX: u64 = 1;

/// `std`'s monotonic clock, counted from the making of the value. Copies share its origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: std::time::Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { origin: std::time::Instant::now() }
    }

    pub(crate) fn now(self) -> Instant {
        Instant::from_nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn sleep_until(self, at: Instant) {
        loop {
            let left = at.since(self.now());
            if left == Nanos::ZERO {
                return;
            }
            // `std` repeats a sleep that a signal ended; the loop is for clocks that disagree.
            std::thread::sleep(Duration::from_nanos(left.as_nanos()));
        }
    }
}

/// The thread that sleeps: the first that ever waited.
#[derive(Debug)]
pub(crate) struct Sleeper {
    thread: OnceLock<Thread>,
}

impl Sleeper {
    pub(crate) fn new() -> Self {
        Self { thread: OnceLock::new() }
    }

    pub(crate) fn wait(&self, word: &AtomicU32, expected: u32, until: Option<Instant>, clock: Clock) {
        let here = std::thread::current();
        let known = self.thread.get_or_init(|| here.clone()).id() == here.id();
        // Dekker: this thread makes itself known and then looks at the word, a waker changes the word and
        // then looks for the thread. With a fence in between on both sides at least one sees the other:
        // either this load sees the change, or the waker leaves a token, which ends the park at once.
        fence(Ordering::SeqCst);
        if word.load(Ordering::Relaxed) != expected {
            return;
        }
        // A thread that took the sleeper over is never unparked: it polls.
        let most = if known { Nanos::MAX } else { Nanos::from_millis(STRANGER_MS_MAX) };
        let left = until.map_or(Nanos::MAX, |until| until.since(clock.now())).min(most);
        match left {
            Nanos::MAX => std::thread::park(),
            left => std::thread::park_timeout(Duration::from_nanos(left.as_nanos())),
        }
    }
}

impl Rouse for Sleeper {
    fn rouse(&self, _word: &AtomicU32) {
        fence(Ordering::SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

pub(crate) fn timer_slack() -> Option<Nanos> {
    None
}

pub(crate) fn set_timer_slack(_slack: Nanos) -> Option<()> {
    None
}

pub(crate) fn thread_cpu() -> Option<Nanos> {
    None
}

pub(crate) fn process_cpu() -> Option<Nanos> {
    None
}

pub(crate) fn thread_switches() -> Option<(u64, u64)> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;

    const AWAKE: u32 = 0;
    const ASLEEP: u32 = 1;

    #[test]
    fn a_sleep_is_never_short_and_a_far_one_never_overflows() {
        let clock = Clock::new();
        let at = clock.now() + Nanos::from_millis(3);
        clock.sleep_until(at);
        assert!(clock.now() >= at);
        clock.sleep_until(at); // passed
        let word = AtomicU32::new(ASLEEP);
        let sleeper = Sleeper::new();
        sleeper.wait(&word, AWAKE, Some(Instant::MAX), clock); // it reads something else
        sleeper.wait(&word, ASLEEP, Some(clock.now() + Nanos::from_millis(1)), clock);
    }

    /// A lost wake would leave a park without end to the test's own time limit.
    #[test]
    fn a_wake_between_looking_and_parking_is_not_lost() {
        const ROUNDS: u64 = 5_000;
        let clock = Clock::new();
        let (word, sleeper, round) = (AtomicU32::new(AWAKE), Sleeper::new(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for next in 1..=ROUNDS {
                    while word.load(Ordering::Acquire) != ASLEEP {
                        std::thread::yield_now();
                    }
                    round.store(next, Ordering::Relaxed);
                    word.store(AWAKE, Ordering::Release);
                    sleeper.rouse(&word);
                }
            });
            for next in 1..=ROUNDS {
                word.store(ASLEEP, Ordering::Release);
                while word.load(Ordering::Acquire) == ASLEEP {
                    sleeper.wait(&word, ASLEEP, None, clock);
                }
                assert_eq!(round.load(Ordering::Relaxed), next);
            }
        });
    }

    #[test]
    fn a_thread_that_takes_a_sleeper_over_polls() {
        let clock = Clock::new();
        let (word, sleeper) = (AtomicU32::new(ASLEEP), Sleeper::new());
        sleeper.wait(&word, ASLEEP, Some(clock.now()), clock);
        // Nobody can unpark it: it must come back by itself.
        std::thread::scope(|scope| _ = scope.spawn(|| sleeper.wait(&word, ASLEEP, None, clock)));
    }
}
