//! What is in flight keeps what it needs, lets it go when it is done, and leaks it, counted, where nobody can know.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use common::{Busy, Rig, poll_once};
use wakeline_core::{Clock, Error, ErrorCode, Instant, Nanos};
use wakeline_ops::{DeviceOp, FlightCounts, IN_FLIGHT_MAX, SingleStream, Submission, device_op, value};
use wakeline_sim::{Faults, SimConfig, SimDevice};
use wakeline_tensor::Tensor;

const MS: Nanos = Nanos::from_millis(1);

#[test]
fn a_future_dropped_in_flight_waits_for_nothing_and_frees_nothing_before_the_end() {
    let rig = Rig::new();
    let owner = Arc::new(());
    let mut future = Busy(MS, Arc::clone(&owner)).on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending());
    let calls = rig.device.counts().calls;
    drop(future);
    assert_eq!((rig.device.counts().calls, rig.watcher.now()), (calls, Instant::ORIGIN));
    assert_eq!(Arc::strong_count(&owner), 2, "the device is at work");
    rig.settle();
    assert_eq!(Arc::strong_count(&owner), 1, "let go though nobody asks");
    assert_eq!(rig.watcher.now(), Instant::ORIGIN + MS);
    rig.assert_clean();
}

#[test]
fn a_forgotten_future_is_sound_and_its_owners_are_let_go() {
    let rig = Rig::new();
    let owner = Arc::new(());
    let mut future = Busy(MS, Arc::clone(&owner)).on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending());
    std::mem::forget(future);
    rig.settle();
    assert_eq!(Arc::strong_count(&owner), 1);
    rig.assert_clean();
}

#[test]
fn a_readback_that_nobody_awaits_any_more_keeps_its_memory_until_the_copy_has_ended() {
    let rig = Rig::new();
    let tensor = rig.run(Tensor::full(64, 1_u8).on(&rig.runtime)).unwrap();
    let mut read = tensor.to_host().on(&rig.runtime);
    assert!(poll_once(&mut read).is_pending());
    drop(read);
    drop(tensor);
    assert_eq!((rig.device.memory_use().buffers, rig.device.memory_use().pinned), (1, 1));
    rig.assert_clean();
}

#[test]
fn values_thrown_away_in_a_chain_live_until_completion() {
    let rig = Rig::new();
    let op = Tensor::full(64, 1_u8).then(|tensor| {
        drop(tensor);
        value(5)
    });
    let mut future = op.on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending());
    assert_eq!(rig.device.memory_use().buffers, 1);
    assert_eq!(rig.run(future).unwrap(), 5);
    rig.assert_clean();
}

/// Enqueues work that uses an owner, and then fails or panics.
struct HalfWay<T>(T, bool);

impl<T: Send + 'static> DeviceOp for HalfWay<T> {
    type Device = SimDevice;
    type Pending = ();
    type Output = ();

    fn execute(self, submission: &mut Submission<SimDevice>) -> Result<(), Error> {
        submission.retain(self.0);
        submission.stream().raw().launch(MS)?;
        assert!(self.1, "half way");
        Err(Error::new(ErrorCode::Backend, [&"test", &"execute", &"half way"]))
    }

    fn finish((): ()) -> Result<(), Error> {
        Ok(())
    }
}

device_op!([T] HalfWay<T> where T: Send + 'static);

#[test]
fn a_submission_that_fails_or_panics_half_way_keeps_its_owners_until_its_work_is_done() {
    for fails in [true, false] {
        let rig = Rig::new();
        let owner = Arc::new(());
        let mut future = HalfWay(Arc::clone(&owner), fails).on(&rig.runtime);
        let polled = catch_unwind(AssertUnwindSafe(|| poll_once(&mut future)));
        assert_eq!(polled.is_ok(), fails);
        drop(future);
        assert_eq!(Arc::strong_count(&owner), 2);
        rig.settle();
        assert_eq!((Arc::strong_count(&owner), rig.watcher.now()), (1, Instant::ORIGIN + MS));
        rig.assert_clean();
    }
}

#[test]
fn a_failure_of_one_operation_is_nobody_elses() {
    let rig = Rig::new();
    let single = rig.runtime.with_policy(&SingleStream).unwrap();
    let mut first = Busy(MS, ()).on(&single);
    assert!(poll_once(&mut first).is_pending());
    let error = rig.run(HalfWay((), true).on(&single)).unwrap_err();
    assert_eq!(error.args()[2], "half way");
    rig.run(first).unwrap();
    rig.run(Busy(MS, ()).on(&single)).unwrap();
    rig.assert_clean();
}

#[test]
fn a_fault_ends_every_pending_and_later_operation_with_its_cause_and_leaks_what_they_keep() {
    let rig = Rig::new();
    let owner = Arc::new(());
    let mut pending = Busy(MS, Arc::clone(&owner)).on(&rig.runtime);
    let mut dropped = Busy(MS, Arc::clone(&owner)).on(&rig.runtime);
    assert!(poll_once(&mut pending).is_pending() && poll_once(&mut dropped).is_pending());
    drop(dropped);
    rig.device.inject_fault();
    let cause = rig.device.health().unwrap();
    let error = rig.run(pending).unwrap_err();
    assert_eq!(error.to_string(), cause.to_string());
    assert!(rig.watcher.now() <= Instant::ORIGIN + MS + MS, "within two backstops");
    let later = rig.run(Busy(MS, ()).on(&rig.runtime)).unwrap_err();
    assert_eq!(later.to_string(), cause.to_string());
    let on_the_spot = Busy(MS, ()).on(&rig.runtime).sync().unwrap_err();
    assert_eq!(on_the_spot.to_string(), cause.to_string());
    rig.settle();
    assert_eq!(Arc::strong_count(&owner), 3, "the device may be at work: nothing is let go");
    let FlightCounts { begun, landed, leaked, owners_leaked, .. } = rig.runtime.counts();
    assert_eq!((landed, leaked), (0, begun));
    assert_eq!(owners_leaked, 4, "two in flight, two that were never launched");
}

#[test]
fn a_watcher_that_closes_or_goes_leaves_nothing_freed() {
    let rig = Rig::new();
    let owner = Arc::new(());
    let mut future = Busy(MS, Arc::clone(&owner)).on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending());
    rig.watcher.close();
    assert_eq!(rig.run(future).unwrap_err().code(), ErrorCode::WatcherClosed);
    assert_eq!((Arc::strong_count(&owner), rig.runtime.counts().leaked), (2, 1));
}

#[test]
fn a_lost_store_of_a_trusted_word_is_done_when_the_driver_says_so() {
    let faults = Faults { lost_store_ppm: 1_000_000, ..Faults::none() };
    let rig = Rig::with(
        &SimConfig { faults, query_ns: 100, ..common::CONFIG },
        "flag:park_us=50,backstop_us=1000+trust",
    );
    let owner = Arc::new(());
    rig.run(Busy(MS, Arc::clone(&owner)).on(&rig.runtime)).unwrap();
    assert_eq!(Arc::strong_count(&owner), 1);
    rig.assert_clean();
}

/// Its destructor panics.
struct Panics;
impl Drop for Panics {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::resume_unwind(Box::new(()));
        }
    }
}

#[test]
fn an_owner_whose_drop_panics_is_counted_and_keeps_no_other() {
    let rig = Rig::new();
    let owner = Arc::new(());
    let op = Busy(MS, Panics).then({
        let owner = Arc::clone(&owner);
        move |()| Busy(MS, owner)
    });
    rig.run(op.on(&rig.runtime)).unwrap();
    assert_eq!((Arc::strong_count(&owner), rig.runtime.counts().panics), (1, 1));
    rig.assert_clean();
}

/// Reads in the midst of its own submission.
struct Early(Tensor<u8, SimDevice>);
impl DeviceOp for Early {
    type Device = SimDevice;
    type Pending = ErrorCode;
    type Output = ErrorCode;
    fn execute(self, submission: &mut Submission<SimDevice>) -> Result<ErrorCode, Error> {
        let pending = self.0.to_host().execute(submission)?;
        Ok(wakeline_tensor::ToHost::finish(pending).unwrap_err().code())
    }
    fn finish(code: ErrorCode) -> Result<ErrorCode, Error> {
        Ok(code)
    }
}
device_op!([] Early);

#[test]
fn what_is_read_back_cannot_be_had_before_it_has_landed() {
    let rig = Rig::new();
    let stream = rig.runtime.stream(wakeline_ops::port::Priority::Normal).unwrap();
    let tensor = Tensor::full(4, 1_u8).sync_on(&stream).unwrap();
    assert_eq!(Early(tensor).sync_on(&stream).unwrap(), ErrorCode::StillInFlight);
    rig.assert_clean();
}

#[test]
fn case_17_an_operation_whose_enqueue_fails_errs_alone_and_nobody_waits_for_it() {
    // Room for one piece of work and its store.
    let config = SimConfig { queue_len_max: 2, ..common::CONFIG };
    let rig = Rig::with(&config, "flag:park_us=50,backstop_us=1000+trust");
    let single = rig.runtime.with_policy(&SingleStream).unwrap();
    let mut first = Busy(MS, ()).on(&single);
    assert!(poll_once(&mut first).is_pending());
    let owner = Arc::new(());
    let refused = Busy(MS, Arc::clone(&owner)).then(|()| Busy(MS, ())).then(|()| Busy(MS, ()));
    assert_eq!(rig.run(refused.on(&single)).unwrap_err().code(), ErrorCode::Backend);
    rig.run(&mut first).unwrap();
    rig.settle();
    rig.run(Busy(MS, ()).on(&single)).unwrap();
    assert_eq!((rig.runtime.counts().in_flight(), rig.device.misuses()), (0, vec![]));
}

#[test]
fn case_20_a_forgotten_future_whose_inputs_are_dropped_frees_them_only_after_completion() {
    let rig = Rig::new();
    let tensor: Tensor<u8, SimDevice> = rig.run(Tensor::full(64, 1).on(&rig.runtime)).unwrap();
    let target: Tensor<u8, SimDevice> = rig.run(Tensor::full(64, 2).on(&rig.runtime)).unwrap();
    let mut copy = tensor.copy_to(target).map(drop).on(&rig.runtime);
    assert!(poll_once(&mut copy).is_pending());
    std::mem::forget(copy);
    drop(tensor);
    assert_eq!(rig.device.memory_use().buffers, 2, "the device copies");
    rig.assert_clean();
}

#[test]
fn case_28_a_task_that_is_aborted_after_its_first_poll_frees_nothing_in_use() {
    let rig = Rig::new();
    let mut task = Box::pin(rig.runtime.scope(async {
        let tensor: Tensor<u8, SimDevice> = Tensor::full(64, 1).await?;
        tensor.to_host().await
    }));
    assert!(poll_once(&mut task).is_pending());
    while rig.runtime.counts().begun < 2 {
        assert!(rig.watcher.turn());
        assert!(poll_once(&mut task).is_pending());
    }
    drop(task);
    let used = rig.device.memory_use();
    assert_eq!((used.buffers, used.pinned), (1, 1));
    rig.assert_clean();
}

#[test]
fn case_29_what_was_launched_and_could_not_be_watched_is_kept() {
    // Room for the work, and none for its store.
    let config = SimConfig { queue_len_max: 1, ..common::CONFIG };
    let rig = Rig::with(&config, "flag:park_us=50,backstop_us=1000+trust");
    let owner = Arc::new(());
    let error = rig.run(Busy(MS, Arc::clone(&owner)).on(&rig.runtime)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Backend);
    assert_eq!(rig.device.counts().launches, 1);
    let counts = rig.runtime.counts();
    assert_eq!((Arc::strong_count(&owner), counts.leaked, counts.owners_leaked), (2, 1, 1));
}

#[test]
fn a_fault_ends_those_too_that_wait_for_room() {
    let rig = Rig::new();
    let single = rig.runtime.with_policy(&SingleStream).unwrap();
    let mut flying: Vec<_> = (0..IN_FLIGHT_MAX).map(|_| Busy(MS, ()).on(&single)).collect();
    for future in &mut flying {
        assert!(poll_once(future).is_pending());
    }
    let mut waits = Busy(MS, ()).on(&single);
    assert!(poll_once(&mut waits).is_pending());
    rig.device.inject_fault();
    let cause = rig.device.health().unwrap().to_string();
    assert_eq!(rig.run(waits).unwrap_err().to_string(), cause);
}
