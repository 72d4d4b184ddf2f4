//! Conflicting operations on one tensor are ordered on the device, whichever streams they run in.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::{Arc, Mutex};

use common::{CONFIG, Rig, poll_once};
use wakeline_core::{Clock, ErrorCode, Instant, Nanos};
use wakeline_ops::port::Priority;
use wakeline_ops::{DeviceOp, SingleStream, Submission, value, with_context};
use wakeline_sim::SimDevice;
use wakeline_tensor::Tensor;

type Bytes = Tensor<u8, SimDevice>;

const COPY: Nanos = Nanos::from_nanos(CONFIG.copy_ns);

#[test]
fn a_read_in_another_stream_waits_for_the_write_on_the_device() {
    let rig = Rig::new();
    let other = rig.runtime.stream(Priority::Normal).unwrap();
    let reads = Arc::new(Mutex::new(None));
    let give = Arc::clone(&reads);
    let mut written = Tensor::full(8, 4)
        .map(move |tensor: Bytes| {
            *give.lock().unwrap() = Some(tensor.to_host());
            tensor
        })
        .on(&rig.runtime.with_policy(&SingleStream).unwrap());
    assert!(poll_once(&mut written).is_pending());
    let read = reads.lock().unwrap().take().unwrap();
    let submitted = rig.watcher.now();
    let blocks = rig.device.counts().blocks;
    assert_eq!(read.sync_on(&other).unwrap(), [4; 8]);
    assert_eq!(rig.watcher.now(), submitted + COPY + COPY + COPY, "the allocation, the fill, the read");
    assert_eq!(rig.device.counts().blocks, blocks + 1, "the host waits once, at the end");
    drop(written);
    rig.assert_clean();
}

#[test]
fn a_read_waits_for_the_write_in_flight_of_an_earlier_submission_whichever_stream_had_it_before() {
    let rig = Rig::new();
    let [written, read] = [(); 2].map(|()| rig.runtime.with_policy(&SingleStream).unwrap());
    for home in [written.clone(), rig.runtime.with_policy(&SingleStream).unwrap()] {
        let target: Bytes = rig.run(Tensor::full(8, 1).on(&home)).unwrap();
        let source: Bytes = rig.run(Tensor::full(8, 2).on(&home)).unwrap();
        let behind = Arc::new(Mutex::new(None));
        let give = Arc::clone(&behind);
        let write = source.copy_to(target).map(move |tensor: Bytes| {
            *give.lock().unwrap() = Some(tensor.to_host());
            tensor
        });
        let mut writing = write.on(&written);
        assert!(poll_once(&mut writing).is_pending());
        let mut reading = behind.lock().unwrap().take().unwrap().on(&read);
        assert!(poll_once(&mut reading).is_pending());
        assert_eq!(rig.run(reading).unwrap(), [2; 8]);
        rig.run(writing).unwrap();
    }
    rig.assert_clean();
}

#[test]
fn a_write_waits_for_the_reads_before_it_and_reads_for_each_other_do_not() {
    let rig = Rig::new();
    let tensor: Bytes = rig.run(Tensor::full(8, 1).on(&rig.runtime)).unwrap();
    let twos: Bytes = rig.run(Tensor::full(8, 2).on(&rig.runtime)).unwrap();
    let start = rig.watcher.now();
    let (mut one, mut other) = (tensor.to_host().on(&rig.runtime), tensor.to_host().on(&rig.runtime));
    assert!(poll_once(&mut one).is_pending() && poll_once(&mut other).is_pending());
    let mut written = twos.copy_to(tensor).on(&rig.runtime);
    assert!(poll_once(&mut written).is_pending());
    assert_eq!(rig.run(one).unwrap(), [1; 8]);
    assert_eq!(rig.watcher.now(), start + COPY);
    assert_eq!(rig.run(other).unwrap(), [1; 8]);
    assert_eq!(rig.watcher.now(), start + COPY, "two reads at once");
    let tensor = rig.run(written).unwrap();
    assert_eq!(rig.watcher.now(), start + COPY + COPY);
    assert_eq!(rig.run(tensor.to_host().on(&rig.runtime)).unwrap(), [2; 8]);
    drop((tensor, twos));
    rig.assert_clean();
}

#[test]
fn who_comes_behind_a_submission_that_goes_on_waits_for_what_it_has_enqueued_by_then() {
    const LONG: Nanos = Nanos::from_millis(10);
    let rig = Rig::new();
    let [home, other, third] = [(); 3].map(|()| rig.runtime.with_policy(&SingleStream).unwrap());
    let reads = Arc::new(Mutex::new(None));
    let give = Arc::clone(&reads);
    let goes_on = with_context(move |submission: &mut Submission<SimDevice>| {
        let tensor: Bytes = Tensor::full(8, 4).execute(submission)?;
        let mut early = tensor.to_host().on(&other);
        // Another thread does so in the midst of this.
        let early = std::thread::spawn(move || {
            assert!(poll_once(&mut early).is_pending());
            early
        });
        let early = early.join().unwrap();
        submission.stream().raw().launch(LONG)?;
        let late: Bytes = Tensor::full(8, 5).execute(submission)?;
        *give.lock().unwrap() = Some((early, late.to_host().on(&third)));
        Ok(value((tensor, late)))
    });
    let start = rig.watcher.now();
    let mut going = goes_on.on(&home);
    assert!(poll_once(&mut going).is_pending());
    let (early, late) = reads.lock().unwrap().take().unwrap();
    assert_eq!(rig.run(early).unwrap(), [4; 8]);
    assert_eq!(rig.watcher.now(), start + COPY + COPY + COPY, "the allocation, the fill, the read");
    assert_eq!(rig.run(late).unwrap(), [5; 8]);
    assert_eq!(rig.watcher.now(), start + LONG + COPY + COPY + COPY + COPY + COPY);
    drop(rig.run(going).unwrap());
    rig.assert_clean();
}

#[test]
fn two_threads_that_copy_in_circles_are_ordered_and_end() {
    let rig = Rig::new();
    let first: Bytes = rig.run(Tensor::full(8, 1).on(&rig.runtime)).unwrap();
    let second: Bytes = rig.run(Tensor::full(8, 2).on(&rig.runtime)).unwrap();
    let (first, second) = (Arc::new(first), Arc::new(second));
    // Each thread reads one tensor and then the other, the two in opposite orders.
    std::thread::scope(|scope| {
        for (from, to) in [(&first, &second), (&second, &first)] {
            let runtime = &rig.runtime;
            scope.spawn(move || {
                for _ in 0..200 {
                    let (from, to) = (Arc::clone(from), Arc::clone(to));
                    let op = Tensor::full(8, 0).then(move |target: Bytes| from.copy_to(target));
                    let mut future = op.then(move |target| to.copy_to(target)).on(runtime);
                    assert!(poll_once(&mut future).is_pending());
                }
            });
        }
    });
    drop((first, second));
    rig.assert_clean();
}

#[test]
fn a_copy_between_tensors_of_different_lengths_is_an_error_that_says_what_is_right() {
    let rig = Rig::new();
    let one: Bytes = rig.run(Tensor::full(8, 1).on(&rig.runtime)).unwrap();
    let two: Bytes = rig.run(Tensor::full(4, 1).on(&rig.runtime)).unwrap();
    let error = rig.run(one.copy_to(two).on(&rig.runtime)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidShape);
    assert_eq!(error.to_string(), "shape [4]: it is to take a copy of [8]: the two must be alike");
    drop(one);
    rig.assert_clean();
}

#[test]
fn a_tensor_dropped_while_another_stream_uses_it_is_freed_behind_that() {
    let rig = Rig::new();
    let tensor: Bytes = rig.run(Tensor::full(8, 1).on(&rig.runtime)).unwrap();
    let start = rig.watcher.now();
    let mut read = tensor.to_host().on(&rig.runtime);
    assert!(poll_once(&mut read).is_pending());
    drop(tensor);
    drop(read);
    assert_eq!((rig.device.memory_use().buffers, rig.watcher.now()), (1, start));
    rig.assert_clean();
    assert!(rig.watcher.now() > Instant::ORIGIN);
}

#[test]
fn a_tensor_of_another_runtime_is_an_error_and_nothing_is_enqueued() {
    let (rig, other) = (Rig::new(), Rig::new());
    let tensor: Bytes = rig.run(Tensor::full(8, 1).on(&rig.runtime)).unwrap();
    let launches = other.device.counts().launches;
    let error = other.run(tensor.to_host().on(&other.runtime)).unwrap_err();
    assert_eq!((error.code(), other.device.counts().launches), (ErrorCode::ForeignMemory, launches));
    drop(tensor);
    rig.assert_clean();
    other.assert_clean();
}

/// By what a submission says of itself.
#[test]
fn a_submission_keeps_a_tensor_once_however_often_it_is_used() {
    let rig = Rig::new();
    let tensor: Bytes = rig.run(Tensor::full(4, 1).on(&rig.runtime)).unwrap();
    let other: Bytes = rig.run(Tensor::full(4, 2).on(&rig.runtime)).unwrap();
    for _ in 0..2 {
        let op = other.copy_to(tensor.dup().on(&rig.runtime).sync().unwrap());
        let kept = with_context(move |submission: &mut Submission<SimDevice>| {
            let mut target = op.execute(submission)?;
            let once = format!("{submission:?}");
            for _ in 0..9 {
                target = target.dup().execute(submission)?.copy_to(target).execute(submission)?;
            }
            Ok(value((once, format!("{submission:?}"), target)))
        });
        let (once, often, target) = rig.run(kept.on(&rig.runtime)).unwrap();
        assert_eq!(once, "Submission { owners: 2, .. }");
        assert_eq!(often, "Submission { owners: 11, .. }", "two, and the nine that were made");
        assert_eq!(rig.run(target.to_host().on(&rig.runtime)).unwrap(), [2; 4]);
    }
    drop((tensor, other));
    rig.assert_clean();
}
