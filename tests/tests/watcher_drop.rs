//! Waits of a watcher that nobody wants any more: dropped at any moment, or forgotten.

#![allow(clippy::unwrap_used, clippy::large_types_passed_by_value, reason = "tests")]

use core::pin::Pin;
use core::task::{Context, Waker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Wake;
use std::time::{Duration, Instant as Wall};

use wakeline_core::{Clock, Nanos, WaitPlan};
use wakeline_sim::{Chance, Faults, SimConfig};
use wakeline_std::{Point, Watcher, WatcherConfig, WatcherWait, block_on};
use wakeline_tests::watching::{Call, Calls, HookPort, PLANS, Stage, eventually, within};

const FLAG: &str = "flag:park_us=50,backstop_us=1000";
const LIMIT: Duration = Duration::from_secs(20);

fn plan(text: &str) -> WaitPlan {
    text.parse().unwrap()
}

fn us(length: u64) -> Nanos {
    Nanos::from_micros(length)
}

fn poll(wait: &mut WatcherWait<HookPort>, waker: &Waker) -> bool {
    Pin::new(wait).poll(&mut Context::from_waker(waker)).is_ready()
}

/// Counts the wakes and its own end.
#[derive(Default)]
struct Counted {
    wakes: AtomicUsize,
}

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
    }
}

/// Whether a driver call with this port is under way.
#[derive(Default)]
struct Under(AtomicBool);

#[test]
fn after_any_number_of_polls_the_port_is_gone_at_once_unless_it_is_in_a_call() {
    let stage = Stage::new(SimConfig { bounded_block: false, ..SimConfig::default() }).unwrap();
    let watcher = Watcher::with(WatcherConfig::default().shards(2).unwrap()).unwrap();
    let point = Point::new("dropped");
    let (mut at_once, mut in_call) = (0, 0);
    for text in PLANS {
        for polls in 0..8 {
            for pause in [0, 100, 700] {
                let under = Arc::new(Under::default());
                let there = Arc::clone(&under);
                let calls = Calls::new(move |call| {
                    if let Call::Query | Call::Block = call {
                        there.0.store(true, Ordering::SeqCst);
                    }
                });
                let port = HookPort::new(stage.work(us(300)).unwrap(), &calls);
                let counted = Arc::new(Counted::default());
                let waker = Waker::from(Arc::clone(&counted));
                let mut wait = watcher.wait(port, &plan(text), &point);
                let mut ready = false;
                for _ in 0..polls {
                    ready |= !ready && poll(&mut wait, &waker);
                    std::thread::sleep(Duration::from_micros(pause));
                }
                drop(wait);
                let gone = calls.count(Call::Drop) == 1;
                // It was asked or blocked, so a call may be under way.
                let called = under.0.load(Ordering::SeqCst);
                assert!(gone || called || ready, "{text}, {polls} polls {pause} us apart: kept");
                at_once += usize::from(gone);
                in_call += usize::from(!gone);
                assert!(eventually(LIMIT, || calls.count(Call::Drop) == 1), "{text}: kept for good");
                assert_eq!(watcher.handle().pending(), 0, "{text}");
                // Nor its waker: nobody may wake what is gone.
                drop(waker);
                assert!(eventually(LIMIT, || Arc::strong_count(&counted) == 1), "{text}: its waker is kept");
            }
        }
    }
    assert!(at_once > 50, "{at_once} at once, {in_call} by a call");
    watcher.close(Watcher::CLOSE).unwrap();
}

/// A second of the driver's: the drop does not wait for it, and the call lets the port go.
#[test]
fn a_drop_does_not_wait_for_the_call_that_is_under_way() {
    let slow = Faults { slow_query: Chance::always(1_000_000_000), ..Faults::none() };
    let stage = Stage::new(SimConfig { faults: slow, bounded_block: false, ..SimConfig::default() }).unwrap();
    let watcher = Watcher::new().unwrap();
    let point = Point::new("dropped");
    for (text, call) in [("poll", Call::Query), (FLAG, Call::Query), ("block", Call::Block)] {
        let calls = Calls::counted();
        let port = HookPort::new(stage.work(Nanos::from_millis(1_000)).unwrap(), &calls);
        let mut wait = watcher.wait(port, &plan(text), &point);
        assert!(!poll(&mut wait, Waker::noop()));
        assert!(eventually(LIMIT, || calls.count(call) == 1), "{text}");
        let start = Wall::now();
        drop(wait);
        let took = start.elapsed();
        assert!(took < Duration::from_millis(700), "{text}: {took:?}");
        assert_eq!((calls.count(Call::Drop), watcher.handle().pending()), (0, 0), "{text}");
        assert!(eventually(LIMIT, || calls.count(Call::Drop) == 1), "{text}");
    }
    watcher.close(Watcher::CLOSE).unwrap();
}

#[test]
fn the_one_that_loses_a_select_is_gone() {
    let stage = Stage::new(SimConfig::default()).unwrap();
    let watcher = Watcher::new().unwrap();
    let point = Point::new("selected");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let calls = Calls::counted();
    runtime.block_on(async {
        for (number, text) in PLANS.iter().cycle().take(70).enumerate() {
            let port = |length| HookPort::new(stage.work(us(length)).unwrap(), &calls);
            let fast = watcher.wait(port(200 + number as u64 * 7), &plan(FLAG), &point);
            let slow = watcher.wait(port(5_000), &plan(text), &point);
            tokio::select! {
                biased;
                _ = slow => {}
                report = fast => assert!(report.is_ok()),
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_micros(number as u64 * 20)) => {}
                _ = watcher.wait(port(600), &plan(text), &point) => {}
            }
            assert_eq!(watcher.handle().pending(), 0, "{text}");
        }
    });
    assert!(eventually(LIMIT, || calls.count(Call::Drop) == 210), "{}", calls.count(Call::Drop));
    watcher.close(Watcher::CLOSE).unwrap();
}

/// What was forgotten ends by itself, and takes nothing with it.
#[test]
fn a_forgotten_wait_ends_by_itself() {
    let stage = Stage::new(SimConfig::default()).unwrap();
    let watcher = Watcher::new().unwrap();
    let point = Point::new("forgotten");
    for text in PLANS {
        let counted = Arc::new(Counted::default());
        let waker = Waker::from(Arc::clone(&counted));
        let calls = Calls::counted();
        for length in [0, 500, 3_000] {
            let port = HookPort::new(stage.work(us(length)).unwrap(), &calls);
            let mut wait = watcher.wait(port, &plan(text), &point);
            let _ = poll(&mut wait, &waker);
            core::mem::forget(wait);
        }
        assert!(eventually(LIMIT, || watcher.handle().pending() == 0), "{text}: it holds its place");
        // Others go on.
        block_on(watcher.wait(stage.work(us(300)).unwrap(), &plan(text), &point)).unwrap();
    }
    // Of one that never ends by itself, the close is the end.
    let mut wait =
        watcher.wait(HookPort::new(stage.work(Nanos::MAX).unwrap(), &Calls::counted()), &plan(FLAG), &point);
    assert!(!poll(&mut wait, Waker::noop()));
    core::mem::forget(wait);
    let handle = watcher.handle();
    watcher.close(Watcher::CLOSE).unwrap();
    assert_eq!(handle.pending(), 0);
}

/// From four threads at once, at moments around the end.
#[test]
fn drops_around_the_end_leave_nothing_behind() {
    const WAITS: u64 = 400;
    let stage = Arc::new(Stage::new(SimConfig::default()).unwrap());
    let watcher = Arc::new(Watcher::with(WatcherConfig::default().shards(2).unwrap()).unwrap());
    let calls = Calls::counted();
    let threads: Vec<_> = (0..4_u64)
        .map(|thread| {
            let (stage, watcher, calls) = (Arc::clone(&stage), Arc::clone(&watcher), Arc::clone(&calls));
            std::thread::spawn(move || {
                let point = Point::new("dropped");
                let mut ready = 0;
                for (number, text) in (0..WAITS).zip(PLANS[1..].iter().cycle()) {
                    let length = 100 + (number * 37 + thread * 11) % 200;
                    let port = HookPort::new(stage.work(us(length)).unwrap(), &calls);
                    let mut wait = watcher.wait(port, &plan(text), &point);
                    let end = stage.after(us(100 + (number * 53) % 250));
                    while stage.clock.now() < end {
                        if poll(&mut wait, Waker::noop()) {
                            ready += 1;
                            break;
                        }
                    }
                }
                ready
            })
        })
        .collect();
    let ready: u64 = threads.into_iter().map(|thread| within(LIMIT, move || thread.join().unwrap())).sum();
    let all = 4 * WAITS;
    assert!(ready > all / 20 && ready < all, "{ready} of {all} ended before they were dropped");
    assert_eq!(watcher.handle().pending(), 0);
    assert!(
        eventually(LIMIT, || calls.count(Call::Drop) as u64 == all),
        "{} of {all} ports are gone",
        calls.count(Call::Drop)
    );
    let stats = watcher.stats();
    assert!(stats.arrivals <= all && stats.ends <= stats.arrivals, "{stats:?}");
    Arc::into_inner(watcher).unwrap().close(Watcher::CLOSE).unwrap();
}
