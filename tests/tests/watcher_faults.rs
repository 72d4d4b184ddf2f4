//! Faults are found by time, however busy the watcher is with others.

#![allow(clippy::unwrap_used, clippy::large_types_passed_by_value, reason = "tests")]

use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Wake;
use std::time::Duration;

use wakeline_core::{Clock, CompletionPort, ErrorCode, Instant, Nanos, WaitPlan};
use wakeline_measured::{Machine, measured};
use wakeline_sim::{Faults, SimConfig};
use wakeline_std::{Point, StdClock, Watcher, block_on};
use wakeline_tests::watching::{Stage, eventually};

const FLIGHTS: usize = 900;
/// A look at 900 words takes tens of microseconds without optimisation, and there is one for each of 900 queries.
const BACKSTOP: Nanos = Nanos::from_millis(if cfg!(debug_assertions) { 50 } else { 10 });
/// As seldom as the driver of an H200 notices a trap, but for the sake of the test's time.
const LAG: Nanos = Nanos::from_millis(60);
const LIMIT: Duration = Duration::from_secs(30);

/// 900 flights of a device that faults, 1,000 completions a second on another, one shard.
#[test]
fn every_flight_of_a_faulted_device_reports_within_two_backstops_of_the_driver() {
    for trust in ["", "+trust"] {
        measured(|machine| report(trust, machine));
    }
}

/// When a flight's task was woken.
struct Woken(StdClock, OnceLock<Instant>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        let _ = self.1.set(self.0.now());
    }
}

fn report(trust: &str, machine: &Machine) -> Result<(), String> {
    let plan: WaitPlan =
        format!("flag:park_us=50,backstop_us={}{trust}", BACKSTOP.as_micros()).parse().unwrap();
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
    let mut flights: Vec<_> = ports.into_iter().map(|port| watcher.wait(port, &plan, &point)).collect();
    let ends: Vec<_> = flights.iter().map(|_| Arc::new(Woken(sick.clock, OnceLock::new()))).collect();
    for (wait, woken) in flights.iter_mut().zip(&ends) {
        let waker = Waker::from(Arc::clone(woken));
        assert!(Pin::new(wait).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let mut asker = sick.device.stream().unwrap().point();
    // All are up, and the backstops of some rounds have been.
    assert!(watcher.handle().pending() >= FLIGHTS);
    std::thread::sleep(Duration::from_nanos((BACKSTOP + BACKSTOP + BACKSTOP).as_nanos()));
    assert!(ends.iter().all(|woken| woken.1.get().is_none()));
    let injected = sick.clock.now();
    sick.device.inject_fault();
    // The driver's first report, as whoever asks all the time would have it.
    let first = loop {
        if asker.query().is_err() {
            break sick.clock.now();
        }
        std::thread::sleep(Duration::from_micros(100));
    };
    assert!(eventually(LIMIT, || ends.iter().all(|woken| woken.1.get().is_some())));
    // Where others load the machine, each of the threads that take part is as late as that now and then.
    let machine = machine.worst();
    let machine = machine + machine + machine + machine;
    let before = completions.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(50));
    let goes_on = completions.load(Ordering::Relaxed) - before;
    over.store(true, Ordering::Relaxed);
    others.join().unwrap();
    for wait in &mut flights {
        let outcome = Pin::new(wait).poll(&mut Context::from_waker(Waker::noop()));
        assert!(
            matches!(&outcome, Poll::Ready(Err(error)) if error.code() == ErrorCode::Backend),
            "woken, and then {outcome:?}"
        );
    }
    assert!(first >= injected + LAG, "noticed after {}", first.since(injected));
    assert_eq!(watcher.handle().pending(), 0);
    assert!(watcher.stats().faults > 0, "nobody asked for the others");
    let last = ends.iter().filter_map(|woken| woken.1.get().copied()).max().unwrap();
    let took = last.since(first);
    let stats = watcher.stats();
    let completed = completions.load(Ordering::Relaxed);
    watcher.close(Watcher::CLOSE).unwrap();
    if took <= BACKSTOP + BACKSTOP + machine && goes_on > 5 && completed > 30 {
        Ok(())
    } else {
        Err(format!(
            "{trust}: {took} after the driver on a machine that is {machine} late; {completed} others, {goes_on} after it; {stats:?}"
        ))
    }
}
