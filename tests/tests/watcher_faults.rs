//! Faults are found by time, however busy the watcher is with others.

#![allow(clippy::unwrap_used, clippy::large_types_passed_by_value, reason = "tests")]

use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use wakeline_core::{Clock, CompletionPort, ErrorCode, Instant, Nanos, WaitPlan};
use wakeline_sim::{Faults, SimConfig};
use wakeline_std::{Point, Watcher, block_on};
use wakeline_tests::watching::{Stage, measured, within};

const FLIGHTS: usize = 900;
const BACKSTOP: Nanos = Nanos::from_millis(10);
/// As seldom as the driver of an H200 notices a trap, but for the sake of the test's time.
const LAG: Nanos = Nanos::from_millis(60);
const LIMIT: Duration = Duration::from_secs(30);

/// 900 flights of a device that faults, 1,000 completions a second on another, one shard.
#[test]
fn every_flight_of_a_faulted_device_reports_within_two_backstops_of_the_driver() {
    for trust in ["", "+trust"] {
        measured(|| within(LIMIT, move || report(trust)));
    }
}

fn report(trust: &str) -> Result<(), String> {
    let plan: WaitPlan = format!("flag:park_us=50,backstop_us=10000{trust}").parse().unwrap();
    let faults = Faults { fault_lag_ns: LAG.as_nanos(), ..Faults::none() };
    let sick = Stage::new(SimConfig { faults, ..SimConfig::default() }).unwrap();
    let healthy = Arc::new(Stage::new(SimConfig::default()).unwrap());
    let watcher = Watcher::new().unwrap();
    let point = Point::new("faulted");

    let over = Arc::new(AtomicBool::new(false));
    let completions = Arc::new(AtomicU64::new(0));
    let others = {
        let (healthy, over, done) = (Arc::clone(&healthy), Arc::clone(&over), Arc::clone(&completions));
        let (handle, point) = (watcher.handle(), Point::new("healthy"));
        std::thread::spawn(move || {
            let stream = healthy.device.stream().unwrap();
            let start = healthy.clock.now();
            let mut number = 0;
            while !over.load(Ordering::Relaxed) {
                number += 1;
                let end = start + Nanos::from_millis(number);
                stream.launch_until(end).unwrap();
                block_on(handle.wait(stream.point(), &plan, &point)).unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        })
    };

    // One stream that is stuck: every point of it has a word to watch that never comes.
    let ports: Vec<_> = (0..FLIGHTS).map(|_| sick.work(Nanos::MAX).unwrap()).collect();
    let mut flights: Vec<_> = ports.into_iter().map(|port| Some(watcher.wait(port, &plan, &point))).collect();
    let mut asker = sick.device.stream().unwrap().point();
    let handle = watcher.handle();
    let flying = std::thread::spawn({
        let clock = sick.clock;
        move || {
            let mut ends: Vec<(Instant, ErrorCode)> = Vec::new();
            block_on(core::future::poll_fn(|context: &mut Context<'_>| {
                for wait in &mut flights {
                    if let Some(pending) = wait
                        && let Poll::Ready(result) = Pin::new(pending).poll(context)
                    {
                        ends.push((clock.now(), result.unwrap_err().code()));
                        *wait = None;
                    }
                }
                if ends.len() == FLIGHTS { Poll::Ready(()) } else { Poll::Pending }
            }));
            ends
        }
    });
    // All are up, and the backstops of some rounds have been.
    while handle.pending() < FLIGHTS {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(30));
    assert!(!flying.is_finished());
    sick.device.inject_fault();
    let injected = sick.clock.now();
    // The driver's first report, as whoever asks all the time would have it.
    let first = loop {
        if asker.query().is_err() {
            break sick.clock.now();
        }
        std::thread::sleep(Duration::from_micros(100));
    };
    let ends = flying.join().unwrap();
    let before = completions.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(50));
    let goes_on = completions.load(Ordering::Relaxed) - before;
    over.store(true, Ordering::Relaxed);
    others.join().unwrap();
    assert!(ends.iter().all(|(_, code)| *code == ErrorCode::Backend));
    assert!(first >= injected + LAG - Nanos::from_millis(1), "noticed after {}", first.since(injected));
    assert_eq!(watcher.handle().pending(), 0);
    let last = ends.iter().map(|(at, _)| *at).max().unwrap();
    let took = last.since(first);
    let stats = watcher.stats();
    let completed = completions.load(Ordering::Relaxed);
    watcher.close(Watcher::CLOSE).unwrap();
    if took <= BACKSTOP + BACKSTOP && goes_on > 10 && completed > 60 {
        Ok(())
    } else {
        Err(format!("{trust}: {took} after the driver; {completed} others, {goes_on} after it; {stats:?}"))
    }
}
