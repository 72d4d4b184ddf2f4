//! What one submission enqueues has room in the queues of its streams, is waited for on the spot where it runs in front, and is an error where a gate is
//! closed in front.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use common::{Busy, CONFIG, Rig, Woken, poll_once};
use wakeline_core::{ErrorCode, Nanos};
use wakeline_ops::{
    DeviceOp, ENTRIES_MAX, IN_FLIGHT_MAX, LeastLoaded, SingleStream, Submission, all, gate, value,
    with_context,
};
use wakeline_sim::SimDevice;
use wakeline_tensor::Tensor;

const US: Nanos = Nanos::from_micros(1);
const MANY: usize = 3_000;

fn read(n: usize) -> impl DeviceOp<Device = SimDevice, Output = Vec<u8>> {
    let byte = u8::try_from(n % 251).unwrap();
    Tensor::full(2, byte).then(|tensor| tensor.to_host())
}

#[test]
fn three_thousand_operations_in_one_submission_go_through_one_stream_and_through_several() {
    let rig = Rig::new();
    for runtime in [rig.runtime.scheduled(&SingleStream), rig.runtime.clone()] {
        let reads = rig.run(all((0..MANY).map(read)).on(&runtime)).unwrap();
        assert!(reads.into_iter().enumerate().all(|(n, read)| usize::from(read[0]) == n % 251));
        rig.run(all((0..MANY).map(|_| Busy(US, ()))).on(&runtime)).unwrap();
        let on_the_spot = all((0..MANY).map(read)).on(&runtime).sync().unwrap();
        assert_eq!(on_the_spot.len(), MANY);
        // As a chain, whose length nobody knows before.
        let mut chain = value(()).boxed();
        for _ in 0..MANY {
            chain = chain.then(|()| Busy(US, ())).boxed();
        }
        rig.run(chain.on(&runtime)).unwrap();
        rig.settle();
        assert_eq!(rig.runtime.counts().leaked, 0);
    }
    let reads = rig.run(all((0..MANY).map(read)).on(&rig.runtime.scheduled(&LeastLoaded::default())));
    assert_eq!(reads.unwrap().len(), MANY);
    rig.assert_clean();
}

/// Nothing is held closed: it pends until the queue is empty, and waits for nobody on the spot before.
#[test]
fn what_is_known_to_be_large_waits_for_room_as_a_future() {
    let rig = Rig::new();
    let single = rig.runtime.scheduled(&SingleStream);
    let mut flying: Vec<_> = (0..IN_FLIGHT_MAX - 10).map(|_| Busy(US, ()).on(&single)).collect();
    for future in &mut flying {
        assert!(poll_once(future).is_pending());
    }
    let mut large = all((0..100).map(|_| Busy(US, ()))).on(&single);
    let begun = rig.runtime.counts().begun;
    assert!(poll_once(&mut large).is_pending());
    assert_eq!(rig.runtime.counts().begun, begun, "it waits for room");
    rig.run(large).unwrap();
    drop(flying);
    rig.assert_clean();
}

#[test]
fn behind_a_closed_gate_a_queue_is_never_filled_and_what_has_no_room_pends_or_is_told_so() {
    let rig = Rig::new();
    let single = rig.runtime.scheduled(&SingleStream);
    let kept = Arc::new(());
    // A million operations behind the gate, in one submission.
    let (handle, opened) = gate(Nanos::from_millis(50)).unwrap();
    let behind = Arc::clone(&kept);
    let op = opened.then(move |()| all((0..MANY).map(move |_| Busy(US, Arc::clone(&behind)))));
    let Poll::Ready(Err(error)) = poll_once(&mut op.on(&single)) else { panic!("there was room") };
    assert_eq!(error.code(), ErrorCode::QueueFull);
    assert_eq!(error.args()[2], ENTRIES_MAX.to_string());
    assert!(!handle.is_open());
    // It has nothing to do with other streams.
    let other = rig.runtime.stream(wakeline_ops::port::Priority::Normal).unwrap();
    all((0..MANY).map(|_| Busy(US, ()))).sync_on(&other).unwrap();
    // What comes behind it pends as far as it is known to be large, and is refused on the spot.
    let mut waits = all((0..MANY).map(|_| Busy(US, ()))).on(&single);
    assert!(poll_once(&mut waits).is_pending());
    handle.open().unwrap();
    rig.run(waits).unwrap();
    rig.settle();
    assert_eq!((Arc::strong_count(&kept), rig.runtime.counts().leaked), (1, 0));

    // One by one: as many as there is room for.
    let (handle, opened) = gate(Nanos::from_millis(50)).unwrap();
    let mut flying = vec![opened.boxed().on(&single)];
    flying.extend((0..MANY).map(|_| Busy(US, ()).boxed().on(&single)));
    let begun = rig.runtime.counts().begun;
    for future in &mut flying {
        assert!(poll_once(future).is_pending());
    }
    assert_eq!(rig.runtime.counts().begun - begun, IN_FLIGHT_MAX as u64);
    // One that is waited for on the spot is refused before anything is enqueued, and counted.
    let launches = rig.device.counts().launches;
    let error = Busy(US, ()).on(&single).sync().unwrap_err();
    assert_eq!(error.code(), ErrorCode::QueueFull);
    assert_eq!((rig.device.counts().launches, rig.runtime.counts().refused), (launches, 1));
    handle.open().unwrap();
    for future in flying {
        rig.run(future).unwrap();
    }
    rig.assert_clean();
}

/// The readers of what is behind a gate are behind it too, in whichever streams.
#[test]
fn a_stream_that_waits_for_another_behind_a_gate_is_told_so_too() {
    let rig = Rig::new();
    let single = rig.runtime.scheduled(&SingleStream);
    let tensor: Tensor<u8, SimDevice> = rig.run(Tensor::full(2, 1).on(&single)).unwrap();
    let two = Tensor::full(2, 2_u8).on(&single);
    let (two, (handle, opened)) = (rig.run(two).unwrap(), gate(Nanos::from_millis(50)).unwrap());
    let tensor = Arc::new(tensor);
    let from = Arc::clone(&tensor);
    let mut held = opened.then(move |()| from.copy_to(two)).on(&single);
    assert!(poll_once(&mut held).is_pending());
    // A write waits for that read.
    let other = rig.runtime.stream(wakeline_ops::port::Priority::Normal).unwrap();
    let write = with_context(move |submission: &mut Submission<SimDevice>| {
        submission.room(1)?;
        Ok(Tensor::full(2, 3_u8))
    });
    let target = Arc::into_inner(tensor).unwrap();
    let op = write.then(move |from| from.copy_to(target)).then(|_| all((0..MANY).map(|_| Busy(US, ()))));
    assert_eq!(op.sync_on(&other).unwrap_err().code(), ErrorCode::QueueFull);
    handle.open().unwrap();
    rig.run(held).unwrap();
    rig.assert_clean();
}

#[test]
fn a_future_dropped_while_it_waits_for_a_place_leaves_no_waker_and_passes_its_wake_on() {
    let rig = Rig::new();
    let single = rig.runtime.scheduled(&SingleStream);
    let mut flying: Vec<_> = (0..IN_FLIGHT_MAX).map(|_| Busy(US, ()).on(&single)).collect();
    for future in &mut flying {
        assert!(poll_once(future).is_pending());
    }
    let task = Arc::new(Woken::default());
    let mut waits: Vec<_> = (0..100).map(|_| Busy(US, ()).on(&single)).collect();
    for future in &mut waits {
        let waker = Waker::from(Arc::clone(&task));
        assert!(Pin::new(future).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(Arc::strong_count(&task), 101);
    drop(waits);
    assert_eq!(Arc::strong_count(&task), 1, "while all that was in front is in flight");
    // Two are woken for the first place and dropped without a look: others have their turn.
    let tasks: Vec<_> = (0..4).map(|_| Arc::new(Woken::default())).collect();
    let mut waits: Vec<_> = tasks
        .iter()
        .map(|task| {
            let mut future = Busy(US, ()).on(&single);
            let waker = Waker::from(Arc::clone(task));
            assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
            future
        })
        .collect();
    rig.run(flying.remove(0)).unwrap();
    let woken = || tasks.iter().map(|task| task.0.load(Ordering::Relaxed)).collect::<Vec<_>>();
    assert_eq!(woken(), [1, 1, 0, 0]);
    drop(waits.drain(..1));
    assert_eq!(woken(), [1, 1, 1, 1], "two for the one that is gone");
    drop((flying, waits));
    rig.assert_clean();
}

/// The queue of the simulated device is as long as an NVIDIA GPU's; what is enqueued by hand counts by `room`.
#[test]
fn what_is_enqueued_by_hand_counts_by_what_it_asks_for() {
    assert!(ENTRIES_MAX < u32::try_from(CONFIG.queue_len_max).unwrap());
    let rig = Rig::new();
    let (handle, opened) = gate(Nanos::from_millis(50)).unwrap();
    let op = opened.then(|()| {
        with_context(|submission: &mut Submission<SimDevice>| {
            for n in 0..MANY {
                if let Err(error) = submission.room(1) {
                    return Ok(value((n, error.code())));
                }
                submission.stream().raw().launch(US)?;
            }
            Ok(value((MANY, ErrorCode::Stalled)))
        })
    });
    let mut op = op.on(&rig.runtime);
    assert!(poll_once(&mut op).is_pending());
    handle.open().unwrap();
    let (enqueued, code) = rig.run(op).unwrap();
    assert_eq!(code, ErrorCode::QueueFull);
    assert!((850..ENTRIES_MAX as usize).contains(&enqueued), "{enqueued}");
    rig.assert_clean();
}

/// Others that come later are not let by for ever.
#[test]
fn a_large_operation_gets_its_turn_while_small_ones_keep_coming() {
    let rig = Rig::new();
    let single = rig.runtime.scheduled(&SingleStream);
    let mut small: VecDeque<_> = (0..3).map(|_| Busy(US, ()).on(&single)).collect();
    for future in &mut small {
        assert!(poll_once(future).is_pending());
    }
    let counter = Arc::new(Woken(AtomicUsize::new(1)));
    let waker = Waker::from(Arc::clone(&counter));
    let mut large = all((0..ENTRIES_MAX as usize).map(|_| Busy(US, ()))).in_one_stream().on(&single);
    let begun = rig.runtime.counts().begun;
    let mut rounds = 0;
    // The oldest of the small ones ends, and another one comes.
    loop {
        if counter.0.swap(0, Ordering::Relaxed) > 0 {
            let before = rig.runtime.counts().begun;
            let is_over = Pin::new(&mut large).poll(&mut Context::from_waker(&waker)).is_ready();
            if is_over || rig.runtime.counts().begun > before {
                break;
            }
        }
        let mut next = Busy(US, ()).on(&single);
        assert!(poll_once(&mut next).is_pending());
        small.push_back(next);
        rig.run(small.pop_front().unwrap()).unwrap();
        rounds += 1;
        assert!(
            rounds <= 3,
            "what was in flight has ended, {} more have begun",
            rig.runtime.counts().begun - begun
        );
    }
    rig.run(large).unwrap();
    for future in small {
        rig.run(future).unwrap();
    }
    rig.assert_clean();
}

/// Of all sizes, behind gates that nobody opens, in any order.
#[test]
fn those_who_wait_for_room_and_are_dropped_at_random_leave_nobody_waiting() {
    for seed in 0..8_u64 {
        let rig = Rig::new();
        let single = rig.runtime.scheduled(&SingleStream);
        let mut drawn = seed * 31 + 7;
        let mut next = move || {
            drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(drawn >> 33).unwrap()
        };
        let mut futures = Vec::new();
        for n in 0..300 {
            let size = [1, 2, 10, 100, 448, 895, 896, 2_000][next() % 8];
            let op = if n % 50 == 49 {
                let (handle, opened) = gate::<SimDevice>(Nanos::from_millis(3)).unwrap();
                std::mem::forget(handle);
                opened.boxed()
            } else {
                all((0..size).map(|_| Busy(US, ()))).map(drop).boxed()
            };
            let mut future = op.on(&single);
            let over = poll_once(&mut future).is_ready();
            if !over && !next().is_multiple_of(5) {
                futures.push(future);
            }
        }
        while !futures.is_empty() {
            let future = futures.swap_remove(next() % futures.len());
            if !next().is_multiple_of(3) {
                // `GateTimedOut`, `QueueFull`, or none.
                let _ = rig.watcher.run(future).unwrap();
            }
        }
        rig.assert_clean();
    }
}
