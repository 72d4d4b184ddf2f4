//! Waits by the watcher on each flavour of runtime, and what becomes of them when tasks and runtimes go.

#![allow(clippy::unwrap_used, clippy::panic, clippy::large_types_passed_by_value, reason = "tests")]

mod common;

use common::{Device, PREDICTED, STRICT, Stream, TRUST, device, of, plan};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use wakeline_core::{Clock, Instant, Nanos, Timer, Wait, drive};
use wakeline_measured::alone;
use wakeline_std::{Point, StdClock, Watcher};
use wakeline_tokio::TokioWatcher;

const US: fn(u64) -> Nanos = Nanos::from_micros;
/// Longer than any test.
const LONG: Nanos = Nanos::from_millis(60_000);
/// How many tasks wait at a time.
const TASKS: u64 = 16;

/// A runtime with none of tokio's drivers: nothing here needs one.
fn multi() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

fn current() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// Waits for some steps in both ways, under each kind of plan; none ends before its work.
async fn steps(stream: Stream, host: TokioWatcher, task: u64) {
    let point = Point::new("steps");
    for (round, text) in (0..).zip([STRICT, TRUST, PREDICTED, "poll", PREDICTED]) {
        let (plan, length) = (plan(text), US((task * 389 + round * 1_013) % 3_000));
        stream.launch(length).unwrap();
        let port = stream.point();
        let truth = port.witness();
        host.wait(port, &plan, &point).await.unwrap();
        assert!(truth.truth().ended_at.unwrap_or(Instant::MAX) <= host.now(), "before its work was done");
        stream.launch(length).unwrap();
        let mut port = stream.point();
        let truth = port.witness();
        drive(of(&plan, length), &mut port, &host, None).await.unwrap();
        assert!(truth.truth().ended_at.unwrap_or(Instant::MAX) <= host.now(), "before its work was done");
        let at = host.now() + US(200);
        host.sleep_until(at).await;
        assert!(host.now() >= at, "a sleep ended early");
        host.yield_now().await;
    }
}

/// Until nothing is pending any more, within a second.
fn settle(watcher: &Watcher) {
    let end = StdClock::new().now() + Nanos::from_millis(1_000);
    while watcher.handle().pending() > 0 {
        assert!(StdClock::new().now() < end, "{watcher:?}");
        std::thread::yield_now();
    }
}

#[test]
fn tasks_of_a_multi_thread_runtime_end_and_leave_nothing() {
    let _alone = alone();
    let ((_, device, thread), watcher) = (device(), Watcher::new().unwrap());
    let (runtime, host) = (multi(), TokioWatcher::new(&watcher));
    let spawn = |task| runtime.spawn(steps(device.stream().unwrap(), host.clone(), task));
    let tasks: Vec<_> = (0..TASKS).map(spawn).collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    assert_eq!(watcher.handle().pending(), 0);
    watcher.close(Watcher::CLOSE).unwrap();
    thread.stop().unwrap();
}

#[test]
fn tasks_of_a_current_thread_runtime_end_and_leave_nothing() {
    let _alone = alone();
    let ((_, device, thread), watcher) = (device(), Watcher::new().unwrap());
    let (runtime, host) = (current(), TokioWatcher::new(&watcher));
    let spawn = |task| runtime.spawn(steps(device.stream().unwrap(), host.clone(), task));
    let tasks: Vec<_> = (0..TASKS).map(spawn).collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    assert_eq!(watcher.handle().pending(), 0);
    watcher.close(Watcher::CLOSE).unwrap();
    thread.stop().unwrap();
}

#[test]
fn tasks_of_a_local_set_end_and_leave_nothing() {
    let _alone = alone();
    let ((_, device, thread), watcher) = (device(), Watcher::new().unwrap());
    let host = TokioWatcher::new(&watcher);
    for runtime in [current(), multi()] {
        let set = LocalSet::new();
        let spawn = |task| set.spawn_local(steps(device.stream().unwrap(), host.clone(), task));
        let tasks: Vec<_> = (0..TASKS).map(spawn).collect();
        set.block_on(&runtime, async {
            for task in tasks {
                task.await.unwrap();
            }
        });
    }
    assert_eq!(watcher.handle().pending(), 0);
    watcher.close(Watcher::CLOSE).unwrap();
    thread.stop().unwrap();
}

/// A task that waits for work that does not end, in one of both ways.
async fn endless(device: Device, host: TokioWatcher, point: Point, driven: bool) {
    let stream = device.stream().unwrap();
    stream.launch(LONG).unwrap();
    let (plan, mut port) = (plan(STRICT), stream.point());
    let report = if driven {
        drive(Wait::new(&plan), &mut port, &host, None).await
    } else {
        host.wait(port, &plan, &point).await
    };
    panic!("it does not end: {report:?}");
}

#[test]
fn tasks_that_are_aborted_take_their_waits_back() {
    let _alone = alone();
    let ((_, device, thread), watcher) = (device(), Watcher::new().unwrap());
    for runtime in [current(), multi()] {
        let (host, point) = (TokioWatcher::new(&watcher), Point::new("aborted"));
        let spawn = |task| runtime.spawn(endless(device.clone(), host.clone(), point.clone(), task % 2 == 0));
        let tasks: Vec<_> = (0..TASKS).map(spawn).collect();
        runtime.block_on(async {
            host.sleep_until(host.now() + US(3_000)).await;
            for task in tasks {
                task.abort();
                assert!(task.await.unwrap_err().is_cancelled());
            }
        });
        settle(&watcher);
        // On a thread of its own a task may not have begun yet; on this one each has.
        assert!(point.snapshot().counts.abandoned <= TASKS / 2);
        // The host and the watcher are as they were.
        runtime.block_on(steps(device.stream().unwrap(), host, 1));
    }
    watcher.close(Watcher::CLOSE).unwrap();
    thread.stop().unwrap();
}

#[test]
fn a_runtime_that_is_dropped_in_the_middle_of_waits_returns_at_once() {
    let _alone = alone();
    let ((clock, device, thread), watcher) = (device(), Watcher::new().unwrap());
    for runtime in [current(), multi()] {
        let (host, point) = (TokioWatcher::new(&watcher), Point::new("dropped"));
        for task in 0..TASKS {
            runtime.spawn(endless(device.clone(), host.clone(), point.clone(), task % 2 == 0));
        }
        runtime.block_on(host.sleep_until(host.now() + US(3_000)));
        let start = clock.now();
        drop(runtime);
        let took = clock.now().since(start);
        assert!(took < Nanos::from_millis(5_000), "{took}");
        settle(&watcher);
        // Another runtime goes on with the same handle.
        multi().block_on(steps(device.stream().unwrap(), host, 2));
    }
    watcher.close(Watcher::CLOSE).unwrap();
    thread.stop().unwrap();
}

#[test]
fn a_watcher_that_closes_ends_the_waits_of_a_runtime_by_a_coded_error() {
    let _alone = alone();
    let ((_, device, thread), watcher) = (device(), Watcher::new().unwrap());
    let (runtime, host, point) = (multi(), TokioWatcher::new(&watcher), Point::new("closed"));
    let stream = device.stream().unwrap();
    stream.launch(LONG).unwrap();
    let wait = runtime.spawn(host.wait(stream.point(), &plan(STRICT), &point));
    runtime.block_on(host.sleep_until(host.now() + US(3_000)));
    watcher.close(Watcher::CLOSE).unwrap();
    let error = runtime.block_on(wait).unwrap().unwrap_err();
    assert_eq!(error.code(), wakeline_core::ErrorCode::WatcherClosed);
    thread.stop().unwrap();
}
