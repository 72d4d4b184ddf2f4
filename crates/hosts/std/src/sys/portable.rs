//! Any system with `std`: `Instant` and thread parking. No slack, no CPU clocks.

use core::sync::atomic::{AtomicU32, Ordering, fence};
use core::time::Duration;
use std::sync::OnceLock;
use std::thread::Thread;

use wakeline_core::{Instant, Nanos};

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

    pub(crate) fn wake(&self, _word: &AtomicU32) {
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
