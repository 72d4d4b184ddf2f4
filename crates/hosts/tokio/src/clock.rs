//! tokio's time as a clock and a timer.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant as TokioInstant;
use wakeline_core::{Clock, Error, ErrorCode, Instant, Nanos, Timer};
use wakeline_std::StdClock;

/// How often two clocks are read to find how they stand to each other.
const READS: usize = 8;

/// The longest that tokio is asked to sleep at once; a longer sleep is made of several.
const SLEEP_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

/// tokio's time as core's [`Clock`] and [`Timer`], for what is not latency-critical: deadlines, time-outs, tests.
///
/// - Exactness: tokio rounds a sleep up to a millisecond, so one of 200 us takes 1 to 2 ms. Waits that should end within
///   microseconds belong on a [`TokioLocal`](crate::TokioLocal).
/// - Time line: that of the [`StdClock`] it is made of (`CLOCK_MONOTONIC` on Linux) as it stands then, to within the time of a
///   clock reading (less than 1 us). From then on it goes as tokio's goes: with the machine's, and still or by leaps under
///   `tokio::time::pause` and `advance`. Under paused time only values made after the same `pause` share a line
///   with each other, and none with `StdClock`; and it is paused for code inside of the runtime only.
/// - Cost: a reading is one of `std`'s clock, 25 to 40 ns. A sleep whose moment has passed makes no timer.
///
/// ```
/// use wakeline_core::{Clock, Nanos, Timer};
/// use wakeline_std::StdClock;
/// use wakeline_tokio::TokioClock;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let clock = TokioClock::new(StdClock::new())?;
/// let at = clock.now() + Nanos::from_millis(2);
/// clock.sleep_until(at).await;
/// assert!(clock.now() >= at);
/// # Ok::<(), wakeline_core::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    /// One moment on both time lines.
    tokio: TokioInstant,
    std: Instant,
}

impl TokioClock {
    /// The clock of the runtime that this is called in, on the time line of `clock`.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Backend`] outside of a tokio runtime.
    ///
    /// # Panics
    ///
    /// In a runtime without timers (`enable_time` of its builder): tokio tells of that in no other way, and here it is found
    /// before any wait.
    pub fn new(clock: StdClock) -> Result<Self, Error> {
        in_runtime()?;
        drop(tokio::time::sleep(Duration::ZERO));
        // A thread may be switched out between two readings: the pair closest together counts.
        let mut closest = (Nanos::MAX, Self { tokio: TokioInstant::now(), std: clock.now() });
        for _ in 0..READS {
            let before = clock.now();
            let tokio = TokioInstant::now();
            let apart = clock.now().since(before);
            if apart < closest.0 {
                closest = (apart, Self { tokio, std: before + Nanos::from_nanos(apart.as_nanos() / 2) });
            }
        }
        Ok(closest.1)
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        let since = TokioInstant::now().saturating_duration_since(self.tokio);
        self.std + Nanos::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Timer for TokioClock {
    /// At once where `at` has passed. Never early.
    ///
    /// # Panics
    ///
    /// As tokio's sleep: when it is polled outside of the runtime.
    async fn sleep_until(&self, at: Instant) {
        loop {
            let now = self.now();
            if now >= at {
                return;
            }
            tokio::time::sleep(Duration::from_nanos(at.since(now).as_nanos()).min(SLEEP_MAX)).await;
        }
    }

    async fn yield_now(&self) {
        tokio::task::yield_now().await;
    }
}

/// # Errors
///
/// [`ErrorCode::Backend`] outside of a tokio runtime.
pub(crate) fn in_runtime() -> Result<(), Error> {
    match Handle::try_current() {
        Ok(_) => Ok(()),
        Err(error) => {
            Err(Error::new(ErrorCode::Backend, [&"tokio", &"finding the runtime", &error]).with_source(error))
        }
    }
}
