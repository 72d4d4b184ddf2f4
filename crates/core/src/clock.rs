//! A clock that is turned by hand.

use crate::port::Clock;
use crate::sync::{AtomicU64, Ordering};
use crate::time::{Instant, Nanos};

/// A clock that stands still until it is set: any wait replays from it.
///
/// Shared by reference; setting it never turns it back.
///
/// ```
/// use wakeline_core::{Clock, Instant, ManualClock, Nanos};
/// let clock = ManualClock::new();
/// clock.advance(Nanos::from_micros(5));
/// clock.advance_to(Instant::from_nanos(1)); // earlier: ignored
/// assert_eq!(clock.now(), Instant::from_nanos(5_000));
/// ```
#[derive(Debug, Default)]
pub struct ManualClock {
    now: AtomicU64,
}

impl ManualClock {
    /// A clock at its origin.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { now: AtomicU64::new(0) }
    }

    /// A clock at its origin.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { now: AtomicU64::new(0) }
    }

    /// Moves the clock on to `at`; an earlier moment changes nothing.
    pub fn advance_to(&self, at: Instant) {
        self.now.fetch_max(at.as_nanos(), Ordering::AcqRel);
    }

    /// Moves the clock on by `length`, at most to the end of its range.
    pub fn advance(&self, length: Nanos) {
        // Only one thread turns a manual clock at a time; a lost race still never turns it back.
        self.advance_to(self.now() + length);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.now.load(Ordering::Acquire))
    }
}
