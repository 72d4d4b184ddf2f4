//! The boundary to the operating system: the one timer of a [`TokioLocal`](crate::TokioLocal). Each system supplies, under the
//! same names:
//!
//! - `Timer::RESOLUTION`: what a moment is rounded up to
//! - `new()`, which needs a tokio runtime
//! - `set(at, now)` has the waker of the last poll woken once `at` has come, `None` takes that back; says whether it could
//! - `poll(context)`: ready when a moment has come since the last time it was ready, maybe one of an earlier `set`
//! - `forget()` drops the waker of the last poll
//!
//! No borrow is held while a waker is cloned or dropped: that may run code of its own, which may set the timer.

#[cfg(target_os = "linux")]
pub(crate) use exact::Timer;

#[cfg(not(target_os = "linux"))]
pub(crate) use coarse::Timer;

/// A timerfd: an absolute moment on `CLOCK_MONOTONIC`. It has no slack, unlike the timeout of `epoll_wait`, and no
/// rounding, unlike tokio's own timers.
#[cfg(target_os = "linux")]
mod exact {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::task::{Context, Poll, Waker, ready};

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;
    use wakeline_core::{Instant, Nanos};

    pub(crate) struct Timer {
        fd: AsyncFd<OwnedFd>,
    }

    impl Timer {
        pub(crate) const RESOLUTION: Nanos = Nanos::from_nanos(1);

        #[allow(deprecated, reason = "sound for an `OwnedFd`, and what replaces it takes `unsafe`")]
        pub(crate) fn new() -> io::Result<Self> {
            let fd =
                timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
            Ok(Self { fd: AsyncFd::with_interest(fd, Interest::READABLE)? })
        }

        /// About 0.3 us. Setting it takes back what was set before, but not that it may be ready already.
        pub(crate) fn set(&self, at: Option<Instant>, _now: Instant) -> bool {
            // All zeroes take it back, so the first of all moments is the second one.
            let ns = at.map_or(0, |at| at.as_nanos().max(1));
            let once = Timespec { tv_sec: 0, tv_nsec: 0 };
            let part = |part: u64| i64::try_from(part).unwrap_or(i64::MAX);
            let value = Timespec { tv_sec: part(ns / 1_000_000_000), tv_nsec: part(ns % 1_000_000_000) };
            let time = Itimerspec { it_interval: once, it_value: value };
            timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &time).is_ok()
        }

        /// # Errors
        ///
        /// When the runtime is shut down.
        pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            // Not read: the next `set` makes it unreadable, and tokio asks for the edge only.
            ready!(self.fd.poll_read_ready(context))?.clear_ready();
            Poll::Ready(Ok(()))
        }

        pub(crate) fn forget(&self) {
            let mut context = Context::from_waker(Waker::noop());
            // Ready once at most, since nothing is set; the poll after it leaves the other waker.
            if self.poll(&mut context).is_ready() {
                let _ = self.poll(&mut context);
            }
        }
    }
}

/// A timer of tokio's, for systems without timerfd: moments are rounded up to a millisecond.
// Compiled on Linux too under test, so that it cannot rot.
#[cfg(any(not(target_os = "linux"), test))]
#[cfg_attr(target_os = "linux", allow(dead_code))]
mod coarse {
    use std::cell::Cell;
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use tokio::time::{Instant as TokioInstant, Sleep, sleep};
    use wakeline_core::{Instant, Nanos};

    /// The longest that is set at once; whoever waits longer sets it again.
    const LENGTH_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

    pub(crate) struct Timer {
        /// Taken out while it is used.
        sleep: Cell<Option<Pin<Box<Sleep>>>>,
        /// Whether a moment is set that it has not been ready for.
        set: Cell<bool>,
    }

    impl Timer {
        pub(crate) const RESOLUTION: Nanos = Nanos::from_millis(1);

        #[allow(clippy::unnecessary_wraps, reason = "other systems can fail")]
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self { sleep: Cell::new(Some(Box::pin(sleep(LENGTH_MAX)))), set: Cell::new(false) })
        }

        pub(crate) fn set(&self, at: Option<Instant>, now: Instant) -> bool {
            let Some(mut sleep) = self.sleep.take() else { return false };
            let length = at.map_or(LENGTH_MAX, |at| Duration::from_nanos(at.since(now).as_nanos()));
            sleep.as_mut().reset(TokioInstant::now() + length.min(LENGTH_MAX));
            self.set.set(at.is_some());
            self.sleep.set(Some(sleep));
            true
        }

        #[allow(clippy::unnecessary_wraps, reason = "other systems can fail")]
        pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            let Some(mut sleep) = self.sleep.take() else { return Poll::Pending };
            let poll = if self.set.get() { sleep.as_mut().poll(context) } else { Poll::Pending };
            self.sleep.set(Some(sleep));
            poll.map(|()| {
                self.set.set(false);
                Ok(())
            })
        }

        pub(crate) fn forget(&self) {
            if let Some(mut sleep) = self.sleep.take() {
                let _ = sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                self.sleep.set(Some(sleep));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use wakeline_core::{Clock, Instant, Nanos};
    use wakeline_std::StdClock;

    /// The same for both: ready at its moment, for each once; not before, nor after it was taken back.
    macro_rules! keeps_its_promises {
        ($name:ident, $timer:ty) => {
            #[tokio::test]
            async fn $name() {
                let clock = StdClock::new();
                let timer = <$timer>::new().unwrap();
                let at = clock.now() + Nanos::from_millis(3);
                assert!(timer.set(Some(at), clock.now()));
                poll_fn(|context| timer.poll(context)).await.unwrap();
                assert!(clock.now() >= at, "early");
                for set in [None, Some(Instant::MAX)] {
                    assert!(timer.set(set, clock.now()));
                    let ready = poll_fn(|context| timer.poll(context));
                    let length = std::time::Duration::from_millis(5);
                    assert!(tokio::time::timeout(length, ready).await.is_err(), "{set:?}");
                }
                timer.forget();
                assert!(timer.set(Some(Instant::ORIGIN), clock.now()));
                poll_fn(|context| timer.poll(context)).await.unwrap();
            }
        };
    }

    #[cfg(target_os = "linux")]
    keeps_its_promises!(the_exact_timer_keeps_its_promises, super::exact::Timer);
    keeps_its_promises!(the_coarse_timer_keeps_its_promises, super::coarse::Timer);
}
