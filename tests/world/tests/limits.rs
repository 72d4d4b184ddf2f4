//! Very many: flights, points, waiters. Nothing is lost, and nothing grows beyond what is in flight at a time.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use wakeline_core::{Clock, Instant, Nanos, POINTS_MAX, PointTable, WaitPlan};
use wakeline_ops::{DeviceOp, Runtime, SingleStream, StreamPoolRoundRobin, Submission, value, with_context};
use wakeline_sim::{MemoryUse, SimConfig, SimDevice, VirtualTime, VirtualWatcher};
use wakeline_tensor::Tensor;

fn launches() -> impl DeviceOp<Device = SimDevice, Pending = (), Output = ()> {
    with_context(|submission: &mut Submission<SimDevice>| {
        submission.stream().raw().launch(Nanos::from_nanos(10))?;
        Ok(value(()))
    })
}

/// So many flights, at most 64 at a time; what the device knows of them at the end is nothing.
fn flights(count: u64) {
    let device = SimDevice::new(VirtualTime::new(), SimConfig::exact()).unwrap();
    let watcher = VirtualWatcher::new(&device);
    let policy = StreamPoolRoundRobin::new(8).unwrap();
    let runtime = Runtime::new(device.clone(), &policy, watcher.clone()).unwrap();
    let slots = {
        watcher.run(runtime.join_all((0..1_000).map(|_| launches()), 64)).unwrap().unwrap();
        device.slots()
    };
    let mut left = count - 1_000;
    while left > 0 {
        let batch = left.min(10_000);
        let ended = watcher.run(runtime.join_all((0..batch).map(|_| launches()), 64)).unwrap().unwrap();
        assert_eq!(ended.len() as u64, batch);
        left -= batch;
    }
    while watcher.turn() {}
    let counts = runtime.counts();
    assert_eq!((counts.begun, counts.landed, counts.leaked), (count, count, 0));
    assert_eq!((device.slots(), device.memory_use(), watcher.pending()), (slots, MemoryUse::default(), 0));
}

#[test]
fn a_hundred_thousand_flights_leave_nothing() {
    flights(100_000);
}

#[test]
#[ignore = "takes a minute without optimization: cargo test --release -p wakeline-world --test limits -- --ignored"]
fn a_million_flights_leave_nothing() {
    flights(1_000_000);
}

#[test]
fn twenty_thousand_operations_wait_for_room_in_one_stream_and_may_be_dropped_there() {
    let config = SimConfig { copy_ns: 50_000, ..SimConfig::exact() };
    let device = SimDevice::new(VirtualTime::new(), config).unwrap();
    let watcher = VirtualWatcher::new(&device);
    let runtime = Runtime::new(device.clone(), &SingleStream, watcher.clone()).unwrap();
    let mut all: Vec<_> = (0..20_000).map(|_| Tensor::full(16, 7_u8).on(&runtime)).collect();
    let mut poll = |at: usize| Pin::new(&mut all[at]).poll(&mut Context::from_waker(Waker::noop()));
    assert!((0..20_000).all(|at| poll(at).is_pending()));
    let in_flight = runtime.counts().in_flight();
    assert!((1..=1_024).contains(&in_flight), "no more than the stream takes: {in_flight}");
    // Half of them give up, and those behind find room.
    all.truncate(10_000);
    let last = all.pop().unwrap();
    drop(all);
    let tensor = watcher.run(last).unwrap().unwrap();
    assert_eq!(watcher.run(tensor.to_host().on(&runtime)).unwrap().unwrap(), [7; 16]);
    drop(tensor);
    while watcher.turn() {}
    assert_eq!((runtime.counts().in_flight(), device.memory_use()), (0, MemoryUse::default()));
}

#[test]
fn of_more_points_than_a_table_holds_it_knows_the_last_ones_and_grows_no_further() {
    let plan: WaitPlan =
        "poll+predict:margin_us=10,min_sleep_us=1,max_sleep_us=100000,window=1".parse().unwrap();
    let most = POINTS_MAX as u64;
    // One that is thrown out costs a look at all.
    let keys = most + 300;
    let mut table = PointTable::new(POINTS_MAX).unwrap();
    let residual = |key| Nanos::from_nanos(1_000 + key);
    for key in 0..keys {
        table.record(key, &plan, residual(key));
        assert!(table.len() as u64 <= most.min(key + 1));
    }
    let known = keys - most;
    for key in (known..keys).step_by(97) {
        assert_eq!(table.predict(&key, &plan), Some(residual(key)), "key {key}");
    }
    assert!(
        (0..known).step_by(97).all(|key| table.predict(&key, &plan).is_none()),
        "those before are forgotten"
    );
}

#[test]
fn work_at_the_end_of_the_clock_ends_with_it() {
    let device = SimDevice::new(VirtualTime::new(), SimConfig::exact()).unwrap();
    let watcher = VirtualWatcher::new(&device);
    let runtime = Runtime::new(device.clone(), &SingleStream, watcher.clone()).unwrap();
    wakeline_sim::TimeLine::pass(device.time(), Instant::from_nanos(u64::MAX - 1_000));
    let mut late = launches().on(&runtime).timeout(Nanos::from_millis(5));
    let polled = Pin::new(&mut late).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Pending | Poll::Ready(Ok(()))));
    assert!(watcher.run(late).unwrap().is_ok());
    assert!(watcher.now() < Instant::MAX);
}
