//! Operations in real time: a watcher's threads see flights to their ends, whoever awaits them.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use common::poll_once;
use wakeline_core::{ErrorCode, Nanos};
use wakeline_ops::{DeviceOp, ENTRIES_MAX, Runtime, SingleStream, StreamPoolRoundRobin, all, gate};
use wakeline_sim::{RealTime, SimConfig, SimDevice};
use wakeline_std::{DeviceThread, Point, StdClock, Watcher, block_on};
use wakeline_tensor::Tensor;

type Device = SimDevice<RealTime<StdClock, fn(Nanos)>>;

fn sleep(length: Nanos) {
    std::thread::sleep(Duration::from_nanos(length.as_nanos()));
}

struct Rig {
    device: Device,
    thread: DeviceThread<Device>,
    watcher: Watcher,
    runtime: Runtime<Device>,
}

fn rig(copy_ns: u64) -> Rig {
    let clock = StdClock::new();
    let time = RealTime::new(clock, sleep as fn(Nanos));
    let device = SimDevice::new(time, SimConfig { copy_ns, ..SimConfig::default() }).unwrap();
    let thread = DeviceThread::spawn(clock, device.clone()).unwrap();
    let watcher = Watcher::new().unwrap();
    let tender = watcher.handle().tender(&Point::new("ops"));
    let runtime = Runtime::new(device.clone(), &StreamPoolRoundRobin::default(), tender).unwrap();
    Rig { device, thread, watcher, runtime }
}

/// Waits until something holds, for at most ten seconds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_awaited_dropped_and_forgotten_all_ends() {
    let Rig { device, thread, watcher, runtime } = rig(300_000);
    let mut dropped = 0;
    for round in 0..60_u8 {
        let op = Tensor::full(64, round).then(|tensor| tensor.to_host());
        let mut future = op.on(&runtime);
        match round % 3 {
            0 => assert_eq!(block_on(future).unwrap(), [round; 64]),
            1 => {
                // In flight, unless this thread has lost its processor for as long.
                dropped += usize::from(poll_once(&mut future).is_pending());
                drop(future);
            }
            _ => assert_eq!(future.sync().unwrap(), [round; 64]),
        }
    }
    assert!(dropped > 0);
    until("all land, and what they keep is let go", || {
        runtime.counts().in_flight() == 0 && device.memory_use() == wakeline_sim::MemoryUse::default()
    });
    assert_eq!((device.misuses(), runtime.counts().leaked), (vec![], 0));
    watcher.close(Watcher::CLOSE).unwrap();
    drop(runtime);
    thread.stop().unwrap();
}

#[test]
fn tasks_on_several_threads_share_a_runtime() {
    let Rig { device, thread, watcher, runtime } = rig(50_000);
    let shared: Arc<Tensor<u32, Device>> =
        Arc::new(block_on(Tensor::from_host(vec![1, 2, 3]).on(&runtime)).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let target = Tensor::full(3, 0);
                    let from = Arc::clone(&shared);
                    let op = target.then(move |target| from.copy_to(target)).then(|copy| copy.to_host());
                    assert_eq!(block_on(op.on(&runtime)).unwrap(), [1, 2, 3]);
                }
            });
        }
    });
    drop(shared);
    until("all is given back", || device.memory_use() == wakeline_sim::MemoryUse::default());
    assert_eq!((device.misuses(), runtime.counts().leaked), (vec![], 0));
    watcher.close(Watcher::CLOSE).unwrap();
    drop(runtime);
    thread.stop().unwrap();
}

#[test]
fn a_fault_and_a_closed_watcher_end_what_is_pending() {
    for fault in [true, false] {
        let Rig { device, thread, watcher, runtime } = rig(2_000_000_000);
        let mut future = Tensor::<u8, Device>::full(4, 1).on(&runtime);
        assert!(poll_once(&mut future).is_pending());
        if fault {
            device.inject_fault();
        } else {
            drop(watcher);
        }
        let code = block_on(future).unwrap_err().code();
        assert_eq!(code, if fault { ErrorCode::Backend } else { ErrorCode::WatcherClosed });
        assert_eq!((runtime.counts().leaked, device.misuses()), (1, vec![]));
        drop(runtime);
        thread.stop().unwrap();
    }
}

#[test]
fn a_watcher_that_closes_opens_the_gates_that_it_was_to_open_later() {
    let Rig { device, thread, watcher, runtime } = rig(1_000);
    let (handle, opened) = gate(Nanos::from_millis(9_000)).unwrap();
    let mut future = opened.then(|()| Tensor::<u8, Device>::full(4, 1)).on(&runtime);
    assert!(poll_once(&mut future).is_pending() && !handle.is_open());
    let start = Instant::now();
    watcher.close(Watcher::CLOSE).unwrap();
    until("it is opened", || handle.is_open());
    assert!(start.elapsed() < Duration::from_secs(8), "not by its deadline");
    assert_eq!(handle.open().unwrap_err().code(), ErrorCode::WatcherClosed);
    assert_eq!(block_on(future).unwrap_err().code(), ErrorCode::WatcherClosed);
    // Where it is closed before, nothing is submitted at all.
    let (handle, opened) = gate(Nanos::from_millis(9_000)).unwrap();
    assert_eq!(block_on(opened.on(&runtime)).unwrap_err().code(), ErrorCode::Unwatched);
    drop(handle);
    assert_eq!(device.misuses(), []);
    drop(runtime);
    thread.stop().unwrap();
}

#[test]
fn case_29_a_future_of_a_second_of_work_is_dropped_in_no_time() {
    let Rig { device, thread, watcher, runtime } = rig(1_000_000_000);
    // The least of some: this thread may lose its processor in one.
    let drops = (0..20).map(|_| {
        let mut future = Tensor::<u8, Device>::full(4, 1).on(&runtime);
        assert!(poll_once(&mut future).is_pending());
        let start = Instant::now();
        drop(future);
        start.elapsed()
    });
    let least = drops.min().unwrap();
    assert!(least < Duration::from_micros(50), "{least:?}");
    assert_eq!((runtime.counts().in_flight(), device.misuses()), (20, vec![]));
    // What is in flight when all is closed is leaked, and nobody waits for it.
    watcher.close(Watcher::CLOSE).unwrap();
    assert_eq!(runtime.counts().leaked, 20);
    drop(runtime);
    thread.stop().unwrap();
}

#[test]
fn what_was_polled_may_be_waited_for_on_the_spot_while_the_watcher_ends_it() {
    let Rig { device, thread, watcher, runtime } = rig(20_000);
    for round in 0..200_u8 {
        let mut future = Tensor::full(64, round).then(|tensor| tensor.to_host()).on(&runtime);
        // On a busy machine it may have ended by then.
        let numbers = match poll_once(&mut future) {
            Poll::Ready(numbers) => numbers,
            Poll::Pending => future.sync(),
        };
        assert_eq!(numbers.unwrap(), [round; 64]);
    }
    until("all is given back", || device.memory_use() == wakeline_sim::MemoryUse::default());
    let counts = runtime.counts();
    assert_eq!((counts.begun, counts.landed, counts.leaked), (200, 200, 0));
    watcher.close(Watcher::CLOSE).unwrap();
    drop(runtime);
    thread.stop().unwrap();
}

/// Ends come at any moment of the drain's first poll, and none of them is slept through.
#[test]
fn draining_beside_ends_on_other_threads_misses_none_of_them() {
    let Rig { device, thread, watcher, runtime } = rig(20_000);
    for round in 0..300_u32 {
        let mut future = Tensor::full(16, 1_u8).then(|tensor| tensor.to_host()).on(&runtime);
        let _ = poll_once(&mut future);
        drop(future);
        std::thread::sleep(Duration::from_micros(u64::from(round % 10) * 10));
        let start = Instant::now();
        block_on(runtime.drain(Nanos::from_millis(10_000))).unwrap();
        assert!(start.elapsed() < Duration::from_secs(5), "its time has ended it, and not the last flight");
    }
    assert_eq!((runtime.counts().in_flight(), runtime.counts().leaked), (0, 0));
    watcher.close(Watcher::CLOSE).unwrap();
    drop((runtime, device));
    thread.stop().unwrap();
}

/// Two threads have one of their own in flight all the while.
#[test]
fn a_large_operation_gets_its_turn_while_threads_keep_submitting_small_ones() {
    let Rig { device, thread, watcher, runtime } = rig(0);
    let single = runtime.scheduled(&SingleStream);
    let small = || Tensor::full(64, 1_u8).on(&single);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let submit = || {
            let (mut first, mut second) = (small(), small());
            while !stop.load(Ordering::Relaxed) {
                if poll_once(&mut second).is_ready() {
                    second = small();
                }
                block_on(first).unwrap();
                (first, second) = (second, small());
            }
        };
        scope.spawn(submit);
        scope.spawn(submit);
        until("they have begun", || runtime.counts().begun > 100);
        let large = all((0..ENTRIES_MAX as usize).map(|_| Tensor::full(4, 1_u8))).on(&single);
        let large = scope.spawn(move || block_on(large).map(drop));
        let start = Instant::now();
        while !large.is_finished() && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let had_its_turn = large.is_finished();
        stop.store(true, Ordering::Relaxed);
        large.join().unwrap().unwrap();
        assert!(had_its_turn, "it had no turn in 10 s");
    });
    until("all land", || runtime.counts().in_flight() == 0);
    assert_eq!((device.misuses(), runtime.counts().leaked), (vec![], 0));
    watcher.close(Watcher::CLOSE).unwrap();
    drop((single, runtime));
    thread.stop().unwrap();
}
