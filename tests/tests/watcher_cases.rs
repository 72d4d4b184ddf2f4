//! Failures from the field, on the watcher in real time.

#![allow(clippy::unwrap_used, clippy::large_types_passed_by_value, reason = "tests")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Wall};

use wakeline_core::{Clock, ErrorCode, Nanos, WaitPlan};
use wakeline_measured::{measured, median};
use wakeline_sim::{Chance, Faults, SimConfig};
use wakeline_std::{Point, Watcher, WatcherConfig, block_on};
use wakeline_tests::watching::{Call, Calls, HookPort, PLANS, Stage, eventually, within};

const FLAG: &str = "flag:park_us=50,backstop_us=1000";
const LIMIT: Duration = Duration::from_secs(20);

fn plan(text: &str) -> WaitPlan {
    text.parse().unwrap()
}

fn ms(length: u64) -> Nanos {
    Nanos::from_millis(length)
}

#[test]
fn case_13_a_sticky_fault_ends_every_pending_and_every_new_wait() {
    let stage = Stage::new(SimConfig { bounded_block: false, ..SimConfig::default() }).unwrap();
    let watcher = Watcher::new().unwrap();
    let point = Point::new("faulted");
    // With the fault comes a new wait: its port was made while all was well.
    let later: Vec<_> = PLANS.iter().map(|_| stage.work(ms(50)).unwrap()).collect();
    let waits: Vec<_> = PLANS
        .iter()
        .map(|text| {
            let wait = watcher.wait(stage.work(Nanos::MAX).unwrap(), &plan(text), &point);
            std::thread::spawn(move || block_on(wait))
        })
        .collect();
    assert!(eventually(LIMIT, || watcher.handle().pending() == PLANS.len()));
    std::thread::sleep(Duration::from_millis(3));
    assert!(stage.device.health().is_none() && waits.iter().all(|wait| !wait.is_finished()));
    stage.device.inject_fault();
    let first = stage.device.health().unwrap();
    for (text, wait) in PLANS.iter().zip(waits) {
        let error = within(LIMIT, move || wait.join().unwrap()).unwrap_err();
        assert_eq!((error.code(), error.args()), (ErrorCode::Backend, first.args()), "pending: {text}");
    }
    for (text, port) in PLANS.iter().zip(later) {
        let wait = watcher.wait(port, &plan(text), &point);
        let error = within(LIMIT, || block_on(wait)).unwrap_err();
        assert_eq!((error.code(), error.args()), (ErrorCode::Backend, first.args()), "new: {text}");
    }
    assert_eq!(stage.device.health().unwrap().args(), first.args(), "the first cause stays readable");
    assert!(watcher.stats().faults > 0);
    assert_eq!(watcher.handle().pending(), 0);
    watcher.close(Watcher::CLOSE).unwrap();
}

#[test]
fn case_15_a_block_whose_sync_never_returns_gives_control_back_at_its_deadline() {
    const HELPERS: usize = 3;
    let config = WatcherConfig::default().helpers_max(HELPERS).unwrap();
    let watcher = Watcher::with(config).unwrap();
    let stage = Stage::new(SimConfig { bounded_block: false, ..SimConfig::default() }).unwrap();
    let point = Point::new("stuck");
    for stuck in 0..HELPERS {
        // Long enough for a helper to be in the call by then.
        let deadline = stage.after(ms(200));
        let calls = Calls::counted();
        let port = HookPort::new(stage.work(Nanos::MAX).unwrap(), &calls);
        let wait = watcher.wait(port, &plan("block"), &point).deadline(deadline);
        let error = within(LIMIT, || block_on(wait)).unwrap_err();
        let late = stage.clock.now().since(deadline);
        assert_eq!(error.code(), ErrorCode::Timeout, "{stuck}: {error}");
        // The call itself never returns.
        assert!(late < ms(5_000), "{stuck}: {late} after its deadline");
        assert_eq!(calls.count(Call::Drop), 0, "the call that is under way has the port");
    }
    let wait = watcher.wait(stage.work(Nanos::MAX).unwrap(), &plan("block"), &point);
    let error = within(LIMIT, || block_on(wait)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::HelpersBusy);
    assert_eq!(error.args(), [HELPERS.to_string()]);
    // Others go on.
    let wait = watcher.wait(stage.work(ms(1)).unwrap(), &plan(FLAG), &point);
    within(LIMIT, || block_on(wait)).unwrap();
    assert_eq!(watcher.handle().pending(), 0);
    // And blocking does, once the calls have returned.
    stage.device.inject_fault();
    let fresh = Stage::new(SimConfig::default()).unwrap();
    let again = eventually(LIMIT, || {
        let wait = watcher.wait(fresh.work(ms(1)).unwrap(), &plan("block"), &point);
        within(LIMIT, || block_on(wait)).is_ok()
    });
    assert!(again, "no helper came back");
    watcher.close(Watcher::CLOSE).unwrap();
}

#[test]
fn case_18_a_fault_before_the_store_is_an_error_within_one_backstop() {
    let stage = Stage::new(SimConfig::default()).unwrap();
    let watcher = Watcher::new().unwrap();
    let point = Point::new("faulted");
    // 20 ms, against 2 s of the machine's: no error of the clock or the scheduler could be taken for the backstop.
    for (text, backstop) in [("", 20), ("+trust", 20)] {
        measured(|_| {
            let stage = Stage::new(SimConfig::default()).unwrap();
            let text = format!("flag:park_us=50,backstop_us={}{text}", backstop * 1_000);
            let port = stage.work(Nanos::MAX).unwrap();
            let witness = port.witness();
            let wait = watcher.wait(port, &plan(&text), &point);
            let thread = std::thread::spawn(move || block_on(wait));
            std::thread::sleep(Duration::from_millis(5));
            stage.device.inject_fault();
            let injected = Wall::now();
            let error = within(LIMIT, move || thread.join().unwrap()).unwrap_err();
            let took = injected.elapsed();
            assert_eq!(error.code(), ErrorCode::Backend, "{text}");
            assert_eq!(witness.truth().landed_at, None);
            if took < Duration::from_millis(2 * backstop) { Ok(()) } else { Err(format!("{text}: {took:?}")) }
        });
    }
    drop(stage);
    watcher.close(Watcher::CLOSE).unwrap();
}

#[test]
fn case_53_a_watched_word_costs_backstop_queries_alone_and_spurious_polls_none() {
    let stage = Stage::new(SimConfig::default()).unwrap();
    let watcher = Watcher::new().unwrap();
    let point = Point::new("word");
    for text in ["flag:park_us=50,backstop_us=4000", "flag:park_us=50,backstop_us=4000+trust"] {
        measured(|_| {
            let calls = Calls::counted();
            let port = HookPort::new(stage.work(ms(42)).unwrap(), &calls);
            let mut wait = watcher.wait(port, &plan(text), &point);
            let start = Wall::now();
            let mut polls = 0_u64;
            let report = loop {
                let mut context = core::task::Context::from_waker(core::task::Waker::noop());
                polls += 1;
                match core::pin::Pin::new(&mut wait).poll(&mut context) {
                    core::task::Poll::Ready(result) => break result.unwrap(),
                    core::task::Poll::Pending => std::thread::sleep(Duration::from_micros(20)),
                }
            };
            let took = start.elapsed();
            let backstops = usize::try_from(took.as_millis() / 4).unwrap();
            let asked = calls.count(Call::Query);
            assert!(polls > 50, "{polls}");
            assert_eq!(calls.count(Call::Arm), 1);
            assert_eq!(calls.count(Call::Block), 0);
            assert_eq!(usize::try_from(report.queries).unwrap(), asked, "{report:?}");
            // Each backstop once, and up to a few for the end.
            if (1..=backstops + 4).contains(&asked) {
                Ok(())
            } else {
                Err(format!("{text}: {asked} queries in {took:?}"))
            }
        });
    }
    watcher.close(Watcher::CLOSE).unwrap();
}

/// A query that takes half a second, of a device of its own, holds up neither its task's runtime nor other flights.
#[test]
fn case_60_a_query_of_500_ms_holds_up_neither_its_runtime_nor_other_devices() {
    let slow = Faults { slow_query: Chance::always(500_000_000), ..Faults::none() };
    let healthy = Arc::new(Stage::new(SimConfig::default()).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let watcher = Watcher::new().unwrap();
    let point = Point::new("held up");
    let takeovers = watcher.stats().takeovers;
    measured(|_| {
        let stage = Stage::new(SimConfig { faults: slow, ..SimConfig::default() }).unwrap();
        let (lates, ticks) = runtime.block_on(async {
            let over = Arc::new(AtomicBool::new(false));
            let held_up = watcher.wait(stage.work(ms(1)).unwrap(), &plan("poll"), &point);
            let tasks = async {
                let mut ticks = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let start = Wall::now();
                    tokio::task::yield_now().await;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    ticks.push(start.elapsed().saturating_sub(Duration::from_millis(2)));
                }
                ticks
            };
            let flights = async {
                let mut lates = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let port = healthy.work(ms(2)).unwrap();
                    let witness = port.witness();
                    watcher.wait(port, &plan(FLAG), &point).await.unwrap();
                    lates.push(healthy.clock.now().since(witness.truth().ended_at.unwrap()));
                }
                lates
            };
            let first = async {
                let start = Wall::now();
                held_up.await.unwrap();
                over.store(true, Ordering::Relaxed);
                assert!(start.elapsed() >= Duration::from_millis(500), "the query was not slow");
            };
            let (lates, ticks, ()) = tokio::join!(flights, tasks, first);
            (lates, ticks)
        });
        let (mut lates, mut ticks) = (lates, ticks);
        // Of one that was held up there would be one or two.
        assert!(lates.len() > 20 && ticks.len() > 20, "{} and {}", lates.len(), ticks.len());
        let found = (median(&mut lates), median(&mut ticks));
        if found.0 < ms(5) && found.1 < Duration::from_millis(5) {
            Ok(())
        } else {
            Err(format!("flights {}, tasks {:?}", found.0, found.1))
        }
    });
    assert!(watcher.stats().takeovers > takeovers);
    watcher.close(Watcher::CLOSE).unwrap();
}

/// With nothing else going on: what a slow call says when it returns is taken at once, whoever leads by then.
#[test]
fn case_60_the_answer_of_a_slow_query_ends_its_wait_without_anybody_else_coming_by() {
    let slow = Faults { slow_query: Chance::always(30_000_000), ..Faults::none() };
    let stage = Stage::new(SimConfig { faults: slow, ..SimConfig::default() }).unwrap();
    for text in ["poll", FLAG, "flag:park_us=50,backstop_us=1000+trust"] {
        let watcher = Watcher::new().unwrap();
        let point = Point::new("slow");
        let port = stage.work(ms(1)).unwrap();
        let wait = watcher.wait(port, &plan(text), &point);
        let start = Wall::now();
        within(LIMIT, || block_on(wait)).unwrap();
        assert!(start.elapsed() < Duration::from_secs(10), "{text}: {:?}", start.elapsed());
        watcher.close(Watcher::CLOSE).unwrap();
    }
}

/// In every call of a port the whole watcher is at hand: nothing of it is locked then.
#[test]
fn case_61_no_lock_is_held_in_a_driver_call() {
    let stage = Arc::new(Stage::new(SimConfig::default()).unwrap());
    for text in PLANS {
        let stage = Arc::clone(&stage);
        within(LIMIT, move || call_back(&stage, text));
    }
}

fn call_back(stage: &Arc<Stage>, text: &'static str) {
    let watcher = Watcher::new().unwrap();
    let handle = watcher.handle();
    let closer = Arc::new(Mutex::new(None::<Watcher>));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let point = Point::new("calls back");
    let hook = {
        let (handle, point, stage) = (handle.clone(), point.clone(), Arc::clone(stage));
        let (seen, closer) = (Arc::clone(&seen), Arc::clone(&closer));
        move |call| {
            seen.lock().unwrap().push(call);
            let token = handle.cancel_token();
            let mut context = core::task::Context::from_waker(core::task::Waker::noop());
            for plan_text in [FLAG, "poll", "block"] {
                let wait = handle.wait(stage.work(ms(3)).unwrap(), &plan(plan_text), &point);
                let mut wait = wait.cancelled_by(&token);
                let _ = core::pin::Pin::new(&mut wait).poll(&mut context);
                let _ = (handle.stats(), handle.pending(), handle.wake_time(ms(3)));
                drop(wait);
            }
            token.cancel();
            // The last of them closes the watcher, from within the call.
            let last = closer.lock().unwrap().take();
            if let Some(watcher) = last {
                let _ = watcher.close(ms(50));
            }
        }
    };
    let calls = Calls::new(hook);
    let wait = |length| {
        let port = HookPort::new(stage.work(length).unwrap(), &calls);
        handle.wait(port, &plan(text), &point).deadline(stage.after(ms(500)))
    };
    block_on(wait(Nanos::from_micros(700))).unwrap();
    // Dropped while it is watched.
    let mut dropped = wait(ms(300));
    let mut context = core::task::Context::from_waker(core::task::Waker::noop());
    assert!(core::pin::Pin::new(&mut dropped).poll(&mut context).is_pending());
    drop(dropped);
    assert!(eventually(LIMIT, || calls.count(Call::Drop) >= 1));
    *closer.lock().unwrap() = Some(watcher);
    let error = block_on(wait(ms(20))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WatcherClosed, "{text}");
    let seen = seen.lock().unwrap().clone();
    let driver = if text == "block" { Call::Block } else { Call::Query };
    for call in [driver, Call::Drop] {
        assert!(seen.contains(&call) || text.contains("trust"), "{text}: {call:?} of {seen:?}");
    }
}
