//! The monotonic clock, and sleeping on it.

use wakeline_core::{Clock, Instant};

use crate::approach::approach;
use crate::sys;

/// The host's monotonic clock, and the blocking sleep on its time line.
///
/// On Linux it is `CLOCK_MONOTONIC`: all values share one time line, which starts with the machine and stands
/// still while it is suspended. Elsewhere it is [`std::time::Instant`], counted from the value's making: make
/// one and copy it, since instants of two values do not compare there.
///
/// Reading it costs no system call: 25 to 40 ns on the virtual machines it was measured on.
///
/// ```
/// use wakeline_core::{Clock, Nanos};
/// use wakeline_std::StdClock;
/// let clock = StdClock::new();
/// let at = clock.now() + Nanos::from_micros(200);
/// clock.sleep_until(at);
/// assert!(clock.now() >= at);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StdClock {
    inner: sys::Clock,
}

impl StdClock {
    /// The clock of this machine.
    pub fn new() -> Self {
        Self { inner: sys::Clock::new() }
    }

    /// Blocks this thread until `at` has come: never shorter, and longer by the machine's oversleep
    /// ([`Oversleep`](crate::Oversleep)) and the thread's [`TimerSlack`](crate::TimerSlack).
    ///
    /// A long sleep is taken in two ([`approach`](crate::approach)). Signals neither end nor prolong it. At once, without a system call, where `at` has passed; forever at
    /// [`Instant::MAX`].
    pub fn sleep_until(&self, at: Instant) {
        let first = approach(self.now(), at);
        if first < at {
            self.inner.sleep_until(first);
        }
        self.inner.sleep_until(at);
    }

    pub(crate) fn sys(self) -> sys::Clock {
        self.inner
    }
}

impl Default for StdClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for StdClock {
    #[inline]
    fn now(&self) -> Instant {
        self.inner.now()
    }
}
