//! The fake's own time: nanoseconds of `CLOCK_MONOTONIC`, and waits that end within a few microseconds of when they should.

use rustix::thread::{ClockId, Timespec};
use rustix::time::clock_gettime;

pub(super) const NS_PER_US: u64 = 1_000;
const NS_PER_S: u64 = 1_000_000_000;

/// How long before its time a sleep ends and a spin begins: what a sleep of this machine may take too long.
pub(super) const SPIN_NS: u64 = 60_000;

/// Looks at the clock between two offers to other threads.
const LOOKS_PER_YIELD: u32 = 16;

pub(super) fn now() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// What is to be added to [`now`] for the time of day.
pub(super) fn offset_to_realtime() -> i64 {
    let real = nanos(clock_gettime(ClockId::Realtime));
    real.cast_signed().wrapping_sub(now().cast_signed())
}

/// Spins to `until`, or until `enough` says so.
pub(super) fn spin(until: u64, mut enough: impl FnMut() -> bool) {
    loop {
        for _ in 0..LOOKS_PER_YIELD {
            if now() >= until || enough() {
                return;
            }
            core::hint::spin_loop();
        }
        std::thread::yield_now();
    }
}

fn nanos(time: Timespec) -> u64 {
    // Neither clock shows a time before 1970.
    time.tv_sec.unsigned_abs() * NS_PER_S + time.tv_nsec.unsigned_abs()
}
