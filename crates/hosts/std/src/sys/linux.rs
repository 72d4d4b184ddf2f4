//! Linux: `clock_gettime`, `clock_nanosleep` and futexes on `CLOCK_MONOTONIC`, with absolute times
//! throughout.
//!
//! An absolute time makes restarts harmless: a call that a signal ended is repeated with the same argument.

use core::num::{NonZeroU32, NonZeroU64};
use core::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::thread::{ClockId, Timespec};
use wakeline_core::{Instant, Nanos};

use crate::bell::Rouse;

const NS_PER_S: u64 = 1_000_000_000;

/// `CLOCK_MONOTONIC`: nanoseconds since the machine started, the same for all threads and processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock;

impl Clock {
    pub(crate) fn new() -> Self {
        Self
    }

    // The clock of other systems is not a unit.
    #[allow(clippy::unused_self)]
    #[inline]
    pub(crate) fn now(self) -> Instant {
        Instant::from_nanos(nanos(rustix::time::clock_gettime(ClockId::Monotonic)))
    }

    pub(crate) fn sleep_until(self, at: Instant) {
        let request = timespec(at);
        while self.now() < at {
            match rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &request) {
                Ok(()) | Err(Errno::INTR) => {}
                // No other error can come of these arguments, but a sandbox may refuse the call; late is
                // allowed then, early never is.
                Err(_) => std::thread::yield_now(),
            }
        }
    }
}

/// The kernel finds the sleepers by the word's address: nothing to keep.
#[derive(Debug)]
pub(crate) struct Sleeper;

impl Sleeper {
    pub(crate) fn new() -> Self {
        Self
    }

    /// Sleeps while `word` reads `expected`, until `until` or a wake.
    // `self` and the clock are what other systems need.
    #[allow(clippy::unused_self)]
    pub(crate) fn wait(&self, word: &AtomicU32, expected: u32, until: Option<Instant>, _clock: Clock) {
        // FUTEX_WAIT_BITSET takes an absolute time on CLOCK_MONOTONIC, where FUTEX_WAIT takes a length.
        let until = until.map(timespec);
        let any = NonZeroU32::MAX;
        // Every error means "look again": EAGAIN (the word has changed), EINTR, ETIMEDOUT. A sandbox that
        // refuses the call turns the caller's loop into one that yields, which is late but never lost.
        if let Err(errno) = futex::wait_bitset(word, futex::Flags::PRIVATE, expected, until.as_ref(), any)
            && !matches!(errno, Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT)
        {
            std::thread::yield_now();
        }
    }
}

impl Rouse for Sleeper {
    /// Ends the wait of the one sleeper, if there is one. Does not block, allocate or fail.
    fn rouse(&self, word: &AtomicU32) {
        // An error could only mean an invalid address, and `word` is a reference.
        let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
    }
}

pub(crate) fn timer_slack() -> Option<Nanos> {
    rustix::thread::current_timer_slack().ok().map(Nanos::from_nanos)
}

pub(crate) fn set_timer_slack(slack: Nanos) -> Option<()> {
    // Zero would mean "the default again" to the kernel; the least there is is 1 ns.
    let slack = NonZeroU64::new(slack.as_nanos()).unwrap_or(NonZeroU64::MIN);
    rustix::thread::set_current_timer_slack(Some(slack)).ok()
}

// The `Option`s are what other systems need.
#[allow(clippy::unnecessary_wraps)]
pub(crate) fn thread_cpu() -> Option<Nanos> {
    Some(Nanos::from_nanos(nanos(rustix::time::clock_gettime(ClockId::ThreadCPUTime))))
}

#[allow(clippy::unnecessary_wraps)]
pub(crate) fn process_cpu() -> Option<Nanos> {
    Some(Nanos::from_nanos(nanos(rustix::time::clock_gettime(ClockId::ProcessCPUTime))))
}

/// Voluntary and involuntary context switches of the calling thread.
#[allow(unsafe_code)]
pub(crate) fn thread_switches() -> Option<(u64, u64)> {
    let mut usage = core::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for writing one `rusage`, and the call writes nothing else.
    let status = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: all fields of `rusage` are integers, for which the zeroes it was made of are valid, whatever
    // the call wrote.
    let usage = unsafe { usage.assume_init() };
    let count = |count| u64::try_from(count).unwrap_or(0);
    (status == 0).then(|| (count(usage.ru_nvcsw), count(usage.ru_nivcsw)))
}

fn nanos(time: Timespec) -> u64 {
    // Neither field is ever negative on these clocks.
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(time.tv_sec).saturating_mul(NS_PER_S).saturating_add(part(time.tv_nsec))
}

/// Exact for all instants: the seconds of the last one are 18,446,744,073. The kernel itself saturates at 292
/// years.
fn timespec(at: Instant) -> Timespec {
    let part = |part: u64| i64::try_from(part).unwrap_or(i64::MAX);
    Timespec { tv_sec: part(at.as_nanos() / NS_PER_S), tv_nsec: part(at.as_nanos() % NS_PER_S) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instant_has_a_timespec_and_comes_back() {
        for ns in [0, 1, NS_PER_S - 1, NS_PER_S, u64::MAX - 1, u64::MAX] {
            let spec = timespec(Instant::from_nanos(ns));
            assert!((0..1_000_000_000).contains(&spec.tv_nsec) && spec.tv_sec >= 0, "{spec:?}");
            assert_eq!(nanos(spec), ns);
        }
    }
}
