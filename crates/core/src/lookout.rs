//! What who tends a point and the task that awaits it tell each other about the moments before its end.

use crate::sync::{AtomicU64, Ordering};
use crate::time::{Instant, Nanos};

/// Until when a task is to watch a word by itself, and when it was woken to do so.
///
/// Waking a thread takes longer than everything else after a predicted end. So whoever tends wakes the task earlier by as much, and
/// the task's poll watches for a bounded time. Five numbers, no lock; each is a hint, and a task that goes by an old one loses time and
/// nothing else.
#[derive(Debug, Default)]
pub struct Lookout {
    /// When its waker was called; zero once that is known.
    woken_at: AtomicU64,
    /// For how long it had slept then.
    slept_ns: AtomicU64,
    /// Until when it is to watch; zero where it is not.
    until: AtomicU64,
    /// When the word is expected; zero where that is not known.
    due: AtomicU64,
    /// From when on it has to be looked at closely; zero where that is not known.
    landing: AtomicU64,
}

impl Lookout {
    /// One that asks for nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// To be called right before the task is woken, which has slept for so long.
    pub fn woken(&self, now: Instant, slept: Nanos) {
        self.slept_ns.store(slept.as_nanos(), Ordering::Relaxed);
        self.woken_at.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// When it was woken and after what sleep, once for each time.
    pub fn take_woken(&self) -> Option<(Instant, Nanos)> {
        // Most polls find none, and need no exchange for it.
        let some = self.woken_at.load(Ordering::Relaxed) != 0;
        let at = if some { self.woken_at.swap(0, Ordering::Relaxed) } else { 0 };
        (at != 0).then(|| (Instant::from_nanos(at), Nanos::from_nanos(self.slept_ns.load(Ordering::Relaxed))))
    }

    /// The task is to watch until then, from its next poll on, and closely unless it is told [otherwise](Self::land) after this.
    pub fn watch_until(&self, until: Instant) {
        self.landing.store(0, Ordering::Relaxed);
        self.until.store(until.as_nanos(), Ordering::Release);
    }

    /// The word is expected then: slices are laid out so that none ends right before.
    pub fn expect(&self, due: Instant) {
        self.due.store(due.as_nanos(), Ordering::Relaxed);
    }

    /// From then on it is to be looked at closely; before, the task may sleep for moments.
    pub fn land(&self, landing: Instant) {
        self.landing.store(landing.as_nanos(), Ordering::Relaxed);
    }

    /// From when on it has to be looked at closely; [`ORIGIN`](Instant::ORIGIN) where nobody has said so.
    pub fn near(&self) -> Instant {
        Instant::from_nanos(self.landing.load(Ordering::Relaxed))
    }

    /// When the word is expected; [`ORIGIN`](Instant::ORIGIN) where nobody has said so.
    pub fn due(&self) -> Instant {
        Instant::from_nanos(self.due.load(Ordering::Relaxed))
    }

    /// Until when the task is to watch, `None` where it is not.
    pub fn until(&self) -> Option<Instant> {
        let until = self.until.load(Ordering::Acquire);
        (until != 0).then(|| Instant::from_nanos(until))
    }

    /// The task is not to watch any longer; whether it was.
    pub fn stop(&self) -> bool {
        self.until.load(Ordering::Relaxed) != 0 && self.until.swap(0, Ordering::Relaxed) != 0
    }
}

/// What came of watching for a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watched {
    /// It is not this task's to watch, or no longer.
    NotAsked,
    /// What was watched for has come.
    Ended,
    /// The slice is over; others shall run, and then it shall watch on.
    Again,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_wake_is_told_once_and_a_watch_is_stopped_once() {
        let lookout = Lookout::new();
        assert_eq!((lookout.take_woken(), lookout.until(), lookout.stop()), (None, None, false));
        let at = Instant::from_nanos(7);
        let slept = Nanos::from_nanos(5);
        lookout.woken(at, slept);
        lookout.watch_until(at);
        assert_eq!((lookout.take_woken(), lookout.take_woken()), (Some((at, slept)), None));
        assert_eq!((lookout.until(), lookout.stop(), lookout.stop()), (Some(at), true, false));
    }
}
