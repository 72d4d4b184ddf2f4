//! Operations are lazy, compose, and run where they were told to.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Busy, Rig, poll_once};
use wakeline_core::{Clock, ErrorCode, Instant, Nanos};
use wakeline_ops::port::Priority;
use wakeline_ops::{
    DeviceOp, IN_FLIGHT_MAX, Runtime, SchedulingPolicy, SingleStream, StreamPoolRoundRobin, value,
};
use wakeline_sim::{LogEvent, SimConfig, SimDevice};
use wakeline_tensor::Tensor;

const MS: Nanos = Nanos::from_millis(1);

#[test]
fn nothing_is_submitted_before_it_is_polled() {
    let rig = Rig::new();
    let before = rig.device.counts();
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let op = Tensor::full(4, 0_u8).then(move |tensor| {
        count.fetch_add(1, Ordering::Relaxed);
        tensor.to_host()
    });
    let future = op.on(&rig.runtime);
    assert_eq!((rig.device.counts(), ran.load(Ordering::Relaxed)), (before, 0));
    drop(future);
    assert_eq!((rig.device.counts(), rig.runtime.counts().begun), (before, 0));
    rig.assert_clean();
}

#[test]
fn a_chain_stays_in_one_stream_and_operations_go_round() {
    let rig =
        Rig::with(&SimConfig { log_len_max: 1_000, ..common::CONFIG }, "flag:park_us=50,backstop_us=1000");
    let chain = || Tensor::full(4, 1_u8).then(CopyToNew::copy_to_new).then(|tensor| tensor.to_host());
    for _ in 0..4 {
        assert_eq!(rig.run(chain().on(&rig.runtime)).unwrap(), [1; 4]);
    }
    let log = rig.device.log();
    let launches: Vec<u64> = log.iter().filter(|e| e.event == LogEvent::Launched).map(|e| e.stream).collect();
    let chains: Vec<&[u64]> = launches.chunk_by(|a, b| a == b).collect();
    // Frees come in the stream of the allocation, before the next chain begins in another.
    let streams: Vec<u64> = chains.iter().map(|chain| chain[0]).collect();
    assert_eq!(streams, [0, 1, 2, 0]);
    rig.assert_clean();
}

trait CopyToNew: Sized {
    fn copy_to_new(self) -> impl DeviceOp<Device = SimDevice, Pending = Self, Output = Self>;
}

impl CopyToNew for Tensor<u8, SimDevice> {
    fn copy_to_new(self) -> impl DeviceOp<Device = SimDevice, Pending = Self, Output = Self> {
        Tensor::full(self.len(), 0_u8).then(move |target| self.copy_to(target))
    }
}

/// A policy that asks for nothing.
#[derive(Clone)]
struct Empty;
impl SchedulingPolicy for Empty {
    fn streams(&self) -> usize {
        0
    }
    fn next(&self) -> usize {
        0
    }
}

#[test]
fn a_policy_without_streams_is_an_error_that_says_what_is_right() {
    let error = StreamPoolRoundRobin::new(0).unwrap_err();
    assert_eq!(error.to_string(), "streams is 0, but must be from 1 to 64");
    let rig = Rig::new();
    assert_eq!(rig.runtime.with_policy(&Empty).unwrap_err().code(), ErrorCode::InvalidLimit);
}

#[test]
fn operations_of_several_streams_run_at_once_and_of_one_in_turn() {
    let both = |runtime: &Runtime<SimDevice>, rig: &Rig| {
        let mut first = Busy(MS, ()).on(runtime);
        let second = Busy(MS, ()).on(runtime);
        assert!(poll_once(&mut first).is_pending());
        let start = rig.watcher.now();
        rig.run(second).unwrap();
        rig.run(first).unwrap();
        rig.watcher.now().since(start)
    };
    let rig = Rig::new();
    assert_eq!(both(&rig.runtime, &rig), MS);
    let single = rig.runtime.with_policy(&SingleStream).unwrap();
    assert_eq!(both(&single, &rig), MS + MS);
    rig.assert_clean();
}

#[test]
fn map_runs_at_submission_and_map_host_after_completion() {
    let rig = Rig::new();
    let (mapped, landed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (at_submission, at_completion) = (Arc::clone(&mapped), Arc::clone(&landed));
    let op = Busy(MS, ()).map(move |()| at_submission.fetch_add(1, Ordering::Relaxed));
    let mut future = op.map_host(move |_| at_completion.fetch_add(1, Ordering::Relaxed)).on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending());
    assert_eq!((mapped.load(Ordering::Relaxed), landed.load(Ordering::Relaxed)), (1, 0));
    rig.settle();
    assert_eq!(landed.load(Ordering::Relaxed), 0, "it runs where the operation is awaited");
    assert!(poll_once(&mut future).is_ready());
    assert_eq!(landed.load(Ordering::Relaxed), 1);
    rig.assert_clean();
}

#[test]
fn a_poll_that_finds_nothing_makes_no_driver_call() {
    let rig = Rig::new();
    let mut future = Busy(MS, ()).on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending());
    let calls = rig.device.counts().calls;
    for _ in 0..100 {
        assert!(poll_once(&mut future).is_pending());
    }
    assert_eq!(rig.device.counts().calls, calls);
    assert_eq!(rig.watcher.now(), Instant::ORIGIN);
    rig.run(&mut future).unwrap();
    assert_eq!(
        poll_once(&mut future).map(|r| r.unwrap_err().code()),
        std::task::Poll::Ready(ErrorCode::PolledAfterEnd)
    );
    rig.assert_clean();
}

#[test]
fn sync_waits_on_the_spot_also_for_what_was_polled_before() {
    let rig = Rig::new();
    let stream = rig.runtime.stream(Priority::High).unwrap();
    Busy(MS, ()).sync_on(&stream).unwrap();
    assert_eq!(rig.watcher.now(), Instant::ORIGIN + MS);
    let mut future = Tensor::full(2, 3_u16).then(|tensor| tensor.to_host()).on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending());
    assert_eq!(future.sync().unwrap(), [3, 3]);
    rig.runtime.enter(|| Busy(MS, ()).sync()).unwrap();
    rig.assert_clean();
}

#[test]
fn an_operation_awaited_without_a_runtime_is_a_coded_error() {
    let rig = Rig::new();
    let error = rig.run(async { value::<SimDevice, _>(1).await }).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoRuntime);
    let nested = rig.runtime.with_policy(&SingleStream).unwrap();
    let task = rig.runtime.scope(async {
        let outer = value::<SimDevice, _>(1).await;
        (outer, nested.scope(async { value::<SimDevice, _>(2).await }).await)
    });
    let (outer, inner) = rig.run(task);
    assert_eq!((outer.unwrap(), inner.unwrap()), (1, 2));
    let error = rig.run(async { value::<SimDevice, _>(1).await }).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoRuntime, "nothing stays bound behind a scope");
}

#[test]
fn a_full_stream_has_operations_wait_as_futures_and_wakes_them() {
    let rig = Rig::new();
    let single = rig.runtime.with_policy(&SingleStream).unwrap();
    let mut flying: Vec<_> =
        (0..IN_FLIGHT_MAX).map(|_| Busy(Nanos::from_micros(1), ()).on(&single)).collect();
    for future in &mut flying {
        assert!(poll_once(future).is_pending());
    }
    let begun = rig.runtime.counts().begun;
    let mut waits = Busy(MS, ()).on(&single);
    let mut gone = Busy(MS, ()).on(&single);
    for _ in 0..1_000 {
        assert!(poll_once(&mut waits).is_pending());
    }
    assert!(poll_once(&mut gone).is_pending() && poll_once(&mut waits).is_pending());
    assert_eq!(rig.runtime.counts().begun, begun, "it waits for room");
    drop(gone);
    rig.run(waits).unwrap();
    assert_eq!(rig.runtime.counts().begun, begun + 1);
    drop(flying);
    rig.assert_clean();
}

#[test]
fn futures_and_handles_may_move_between_threads() {
    fn send<T: Send>(value: T) -> T {
        value
    }
    fn shared<T: Send + Sync>(_: &T) {}
    let rig = Rig::new();
    shared(&rig.runtime);
    shared(&rig.runtime.stream(Priority::Low).unwrap());
    let tensor = rig.run(send(Tensor::full(1, 1_u8).on(&rig.runtime))).unwrap();
    shared(&tensor);
}
