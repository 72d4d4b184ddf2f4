//! tokio's time as a clock and a timer.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use wakeline_core::{Clock, Instant, Nanos, Timer};
use wakeline_std::StdClock;
use wakeline_tokio::TokioClock;

const HOUR: Nanos = Nanos::from_millis(3_600_000);

#[tokio::test]
async fn its_time_line_is_that_of_the_std_clock() {
    let std = StdClock::new();
    let clock = TokioClock::new(std).unwrap();
    for _ in 0..100 {
        let (before, now, after) = (std.now(), clock.now(), std.now());
        let slack = Nanos::from_micros(10);
        assert!(before - slack <= now && now <= after + slack, "{now:?} is not from {before:?} to {after:?}");
    }
    let at = clock.now() + Nanos::from_millis(3);
    clock.sleep_until(at).await;
    assert!(clock.now() >= at && std.now() + Nanos::from_micros(10) >= at);
    clock.yield_now().await;
}

#[tokio::test(start_paused = true)]
async fn it_follows_paused_time() {
    let clock = TokioClock::new(StdClock::new()).unwrap();
    let start = clock.now();
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(clock.now(), start, "it stands still");
    tokio::time::advance(Duration::from_secs(7)).await;
    assert_eq!(clock.now(), start + Nanos::from_millis(7_000));
    // Nothing else is left to run: tokio leaps to the end of the sleep.
    let at = clock.now() + HOUR;
    clock.sleep_until(at).await;
    assert!(clock.now() >= at && clock.now() <= at + Nanos::from_millis(1));
    tokio::time::resume();
    let now = clock.now();
    assert!(now >= at, "it goes on from there");
}

#[tokio::test(start_paused = true)]
async fn a_moment_at_the_end_of_time_is_slept_to_without_overflow() {
    let clock = TokioClock::new(StdClock::new()).unwrap();
    for at in [Instant::MAX, Instant::MAX - Nanos::from_nanos(1)] {
        let slept = tokio::time::timeout(Duration::from_secs(100 * 365 * 24 * 3_600), clock.sleep_until(at));
        assert!(slept.await.is_err());
    }
}
