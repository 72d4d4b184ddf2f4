//! Waiting, as the tests do.

use std::time::{Duration, Instant as Wall};

use wakeline_core::{
    Clock, CompletionPort, Error, Inline, Instant, Nanos, Report, Wait, WaitPlan, drive, run_inline,
};
use wakeline_mapped::{LineDriver, Port};
use wakeline_std::{ParkPolicy, StdClock, StdIdle, StdPark};

/// Each way of waiting once.
pub(crate) const PLANS: [&str; 7] = [
    "block",
    "poll",
    "poll+predict:margin_us=100,min_sleep_us=50,max_sleep_us=5000,window=4",
    "flag:park_us=100,backstop_us=2000",
    "flag:park_us=100,backstop_us=2000+predict:margin_us=100,min_sleep_us=50,max_sleep_us=5000,window=4",
    "flag:park_us=100,backstop_us=2000+trust",
    "flag:park_us=100,backstop_us=2000+predict:margin_us=100,min_sleep_us=50,max_sleep_us=5000,window=4+trust",
];

pub(crate) fn ms(length: u64) -> Nanos {
    Nanos::from_millis(length)
}

pub(crate) fn plan(text: &str) -> WaitPlan {
    text.parse().unwrap()
}

/// When what waits has failed rather than that it hangs.
pub(crate) fn too_late() -> Instant {
    StdClock::new().now() + Nanos::from_millis(30_000)
}

/// Waits on this thread.
pub(crate) fn wait<D: LineDriver>(text: &str, port: &mut Port<D>) -> Result<Report, Error> {
    wait_for(Wait::new(&plan(text)).deadline(Some(too_late())), port)
}

/// Waits on this thread as the machine says.
pub(crate) fn wait_for<P: CompletionPort>(wait: Wait, port: &mut P) -> Result<Report, Error> {
    let clock = StdClock::new();
    let idle = StdIdle::new(clock);
    let park = StdPark::new(&idle, ParkPolicy::default());
    let host = Inline::new(clock, &idle, &park);
    run_inline(drive(wait, port, &host, None)).unwrap()
}

/// Whether the word of `port` is there within the time.
pub(crate) fn lands<D: LineDriver>(port: &Port<D>, within: Duration) -> bool {
    let start = Wall::now();
    while !port.descriptor().unwrap().reached() {
        if start.elapsed() > within {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// That what takes `length` from `launched` on is not said to be done before. On a busy machine it may be done by the time that it is asked.
pub(crate) fn not_before(launched: Wall, length: Nanos, done: bool) {
    let elapsed = launched.elapsed();
    assert!(!done || elapsed.as_nanos() >= length.as_nanos().into(), "after {elapsed:?}, of {length}");
}
