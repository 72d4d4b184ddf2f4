//! Waiting until nothing is in flight: in virtual time, with work that never ends and with devices that fail.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use common::{Busy, CONFIG, Rig, Woken, poll_once};
use wakeline_core::{Clock, ErrorCode, Instant, Nanos};
use wakeline_ops::DeviceOp;
use wakeline_sim::{Faults, SimConfig};
use wakeline_tensor::Tensor;

const MS: Nanos = Nanos::from_millis(1);

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Submits work that nobody awaits any more.
fn leave(rig: &Rig, length: Nanos) {
    let mut future = Busy(length, ()).on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending());
}

#[test]
fn it_ends_with_the_last_flight_whether_or_not_anybody_awaits_that() {
    let rig = Rig::new();
    assert!(poll_once(&mut rig.runtime.drain(Nanos::ZERO)).is_ready(), "nothing is in flight");
    leave(&rig, ms(3));
    leave(&rig, ms(7));
    let mut forgotten = Busy(ms(5), ()).on(&rig.runtime);
    assert!(poll_once(&mut forgotten).is_pending());
    std::mem::forget(forgotten);
    rig.run(rig.runtime.drain(ms(1_000))).unwrap();
    assert_eq!(rig.watcher.now(), Instant::ORIGIN + ms(7));
    assert_eq!(rig.runtime.counts().in_flight(), 0);
    rig.assert_clean();
}

#[test]
fn work_that_does_not_end_in_time_is_counted_in_the_error_and_left_as_it_is() {
    let rig = Rig::new();
    let owner = Arc::new(());
    leave(&rig, MS);
    for _ in 0..2 {
        let mut endless = Busy(ms(3_600_000), Arc::clone(&owner)).on(&rig.runtime);
        assert!(poll_once(&mut endless).is_pending());
    }
    let error = rig.run(rig.runtime.drain(ms(5))).unwrap_err();
    assert_eq!((error.code(), error.args()), (ErrorCode::NotDrained, &["2".into(), "5.000 ms".into()][..]));
    assert_eq!((rig.watcher.now(), Arc::strong_count(&owner)), (Instant::ORIGIN + ms(5), 3));
    // Closing who tends leaks them, counted.
    rig.watcher.close();
    rig.run(rig.runtime.drain(ms(5))).unwrap();
    assert_eq!((rig.runtime.counts().leaked, Arc::strong_count(&owner)), (2, 3));
}

#[test]
fn a_device_that_fails_ends_it_and_what_was_leaked_is_counted() {
    let (mut well, mut failed) = (0, 0);
    for seed in 0..200 {
        // One for a point that is stuck never ends.
        let fault_at = (seed % 2 == 1).then_some(Instant::ORIGIN + ms(seed % 5));
        let faults = Faults { stuck_ppm: 0, fault_at, ..Faults::swarm(seed) };
        let config = SimConfig { seed, faults, ..CONFIG };
        let Ok(rig) = Rig::try_with(&config, "flag:park_us=50,backstop_us=1000") else { continue };
        for n in 0..20 {
            let mut future = Busy(ms(n % 5), ()).on(&rig.runtime);
            let _ = poll_once(&mut future);
        }
        rig.run(rig.runtime.drain(ms(10_000))).unwrap();
        let counts = rig.runtime.counts();
        assert_eq!(counts.in_flight(), 0, "{counts:?}");
        assert_eq!(counts.landed + counts.leaked + counts.refused, counts.begun, "{counts:?}");
        *if counts.leaked > 0 { &mut failed } else { &mut well } += 1;
    }
    assert!(well > 20 && failed > 20, "both kinds of devices were there: {well}, {failed}");
}

#[test]
fn points_of_which_the_driver_never_says_that_they_are_done_are_counted_in_the_error() {
    let faults = Faults { stuck_ppm: 1_000_000, ..Faults::none() };
    let rig = Rig::with(&SimConfig { faults, ..CONFIG }, "flag:park_us=50,backstop_us=1000");
    for _ in 0..3 {
        leave(&rig, MS);
    }
    let error = rig.run(rig.runtime.drain(ms(20))).unwrap_err();
    assert_eq!((error.code(), &*error.args()[0]), (ErrorCode::NotDrained, "3"));
    rig.watcher.close();
    assert_eq!((rig.runtime.counts().in_flight(), rig.runtime.counts().leaked), (0, 3));
}

#[test]
fn several_wait_and_one_that_is_dropped_is_not_woken() {
    let rig = Rig::new();
    leave(&rig, MS);
    let woken = [0; 3].map(|_| Arc::new(Woken::default()));
    let mut drains: Vec<_> = woken.iter().map(|_| rig.runtime.drain(ms(1_000))).collect();
    for (drain, woken) in drains.iter_mut().zip(&woken) {
        let waker = Waker::from(Arc::clone(woken));
        // However often it is polled.
        for _ in 0..3 {
            let polled = std::pin::Pin::new(&mut *drain).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
    }
    drop(drains.remove(1));
    assert_eq!(Arc::strong_count(&woken[1]), 1, "nobody keeps its waker");
    while rig.runtime.counts().in_flight() > 0 && rig.watcher.turn() {}
    assert_eq!(woken.each_ref().map(|woken| woken.0.load(Ordering::SeqCst)), [1, 0, 1]);
    for mut drain in drains {
        assert!(matches!(poll_once(&mut drain), Poll::Ready(Ok(()))));
    }
    rig.assert_clean();
}

#[test]
fn what_is_submitted_meanwhile_is_waited_for_as_well() {
    let rig = Rig::new();
    leave(&rig, MS);
    let mut drain = rig.runtime.drain(ms(1_000));
    assert!(poll_once(&mut drain).is_pending());
    let tensor = rig.run(Tensor::full(8, 1_u8).on(&rig.runtime)).unwrap();
    leave(&rig, ms(20));
    rig.run(drain).unwrap();
    assert!(rig.watcher.now() >= Instant::ORIGIN + ms(20));
    drop(tensor);
    rig.assert_clean();
}
