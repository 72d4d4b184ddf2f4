//! Time lines: clocks that a simulated device can let pass.
//!
//! The device charges what its calls cost to the thread that makes them. On a virtual time line that moves the
//! clock on; on a real one the thread really waits.

use alloc::sync::Arc;
use core::fmt;

use wakeline_core::{Clock, Instant, ManualClock, Nanos};

/// How long a real time line spins before it sleeps: shorter lengths cannot be slept.
pub const SPIN_NS_MAX: u64 = 20_000;

/// How often in a row a real time line finds its clock unmoved before it sleeps instead of spinning. Every machine's
/// clock moves within this many looks, each of 10 ns at least, or else is too coarse to spin by.
const STILL_LOOKS_MAX: u32 = 1_000;

/// How long a real time line sleeps at most before it lets its caller look again.
pub const SLICE_NS_MAX: u64 = 1_000_000;

/// A clock whose time can be spent.
///
/// ```
/// use wakeline_core::{Clock, Instant};
/// use wakeline_sim::TimeLine;
/// struct Wall(std::time::Instant);
/// impl Clock for Wall {
///     fn now(&self) -> Instant {
///         Instant::from_nanos(self.0.elapsed().as_nanos() as u64)
///     }
/// }
/// impl TimeLine for Wall {
///     fn pass(&self, until: Instant) {
///         while self.now() < until {
///             std::thread::yield_now();
///         }
///     }
/// }
/// let time = Wall(std::time::Instant::now());
/// time.pass(Instant::from_nanos(50_000));
/// assert!(time.now() >= Instant::from_nanos(50_000));
/// ```
pub trait TimeLine: Clock {
    /// Lets time pass on the calling thread until `until` has come.
    ///
    /// MUST return within a scheduling delay of `until`, at once where it has passed. May return early, but MUST
    /// have let some time pass then. MUST NOT call back into the device.
    fn pass(&self, until: Instant);
}

impl<T: TimeLine + ?Sized> TimeLine for &T {
    fn pass(&self, until: Instant) {
        (**self).pass(until);
    }
}

/// Virtual time: stands still until somebody lets it pass, which takes no real time.
///
/// Clones share one clock.
///
/// ```
/// use wakeline_core::{Clock, Instant};
/// use wakeline_sim::{TimeLine, VirtualTime};
/// let time = VirtualTime::new();
/// time.pass(Instant::from_nanos(5_000));
/// assert_eq!(time.clone().now(), Instant::from_nanos(5_000));
/// ```
#[derive(Clone, Debug, Default)]
pub struct VirtualTime(Arc<ManualClock>);

impl VirtualTime {
    /// A time line at its origin.
    pub fn new() -> Self {
        Self(Arc::new(ManualClock::new()))
    }

    /// The clock, to be turned by hand.
    pub fn clock(&self) -> &ManualClock {
        &self.0
    }
}

impl Clock for VirtualTime {
    fn now(&self) -> Instant {
        self.0.now()
    }
}

impl TimeLine for VirtualTime {
    fn pass(&self, until: Instant) {
        self.0.advance_to(until);
    }
}

/// Real time: a host's clock and how its threads sleep.
///
/// Lengths up to [`SPIN_NS_MAX`] are spun, longer ones slept in slices of at most [`SLICE_NS_MAX`]: so long
/// blocking calls burn no core, and find within a slice what other threads changed. A clock that stands still while
/// it is spun by, as a played one does, is slept by instead.
///
/// ```
/// use wakeline_core::{Clock, ManualClock, Nanos};
/// use wakeline_sim::{RealTime, TimeLine};
/// // A host hands in its own clock and sleep; here both are played.
/// let clock = ManualClock::new();
/// let time = RealTime::new(&clock, |length| clock.advance(length));
/// let until = time.now() + Nanos::from_micros(500);
/// time.pass(until);
/// assert_eq!(time.now(), until);
/// time.pass(until + Nanos::from_micros(3)); // short, and ends all the same
/// assert_eq!(time.now(), until + Nanos::from_micros(3));
/// ```
#[derive(Clone)]
pub struct RealTime<C, S> {
    clock: C,
    sleep: S,
}

impl<C: Clock, S: Fn(Nanos)> RealTime<C, S> {
    /// The time line of `clock`, on which `sleep` puts the calling thread to sleep for a length of time.
    ///
    /// `sleep` may end early or a scheduling delay late.
    pub const fn new(clock: C, sleep: S) -> Self {
        Self { clock, sleep }
    }
}

impl<C: Clock, S> Clock for RealTime<C, S> {
    fn now(&self) -> Instant {
        self.clock.now()
    }
}

impl<C: Clock, S: Fn(Nanos)> TimeLine for RealTime<C, S> {
    fn pass(&self, until: Instant) {
        let mut now = self.clock.now();
        let mut still_looks = 0;
        while until.since(now) <= Nanos::from_nanos(SPIN_NS_MAX) && still_looks < STILL_LOOKS_MAX {
            if now >= until {
                return;
            }
            core::hint::spin_loop();
            let before = now;
            now = self.clock.now();
            still_looks = if now > before { 0 } else { still_looks + 1 };
        }
        (self.sleep)(until.since(now).min(Nanos::from_nanos(SLICE_NS_MAX)));
    }
}

impl<C: fmt::Debug, S> fmt::Debug for RealTime<C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RealTime").field("clock", &self.clock).finish_non_exhaustive()
    }
}
