//! Gates hold work until the host opens them, and are opened whatever becomes of who was to.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{Busy, CONFIG, Rig, poll_once};
use wakeline_core::{Clock, ErrorCode, Nanos};
use wakeline_ops::{DeviceOp, GATE_MS_MAX, Gate, SingleStream, gate, value, zip};
use wakeline_sim::{Faults, SimConfig, SimDevice};
use wakeline_tensor::Tensor;

const MS: Nanos = Nanos::from_millis(1);

/// A gate that stays closed for 50 ms at most, and work of a millisecond behind it.
fn gated(owner: &Arc<()>) -> (Gate<SimDevice>, impl DeviceOp<Device = SimDevice, Output = ()>) {
    let (gate, opened) = gate(Nanos::from_millis(50)).unwrap();
    let owner = Arc::clone(owner);
    (gate, opened.then(|()| Busy(MS, owner)))
}

fn pass(rig: &Rig, time: Nanos) {
    rig.device.time().clock().advance(time);
}

#[test]
fn what_is_behind_it_starts_when_it_is_opened() {
    let rig = Rig::new();
    let owner = Arc::new(());
    let (gate, op) = gated(&owner);
    let mut future = op.on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending() && !gate.is_open());
    pass(&rig, Nanos::from_millis(20));
    assert_eq!((Arc::strong_count(&owner), rig.runtime.counts().in_flight()), (2, 1));
    let opened = rig.watcher.now();
    gate.open().unwrap();
    rig.run(future).unwrap();
    assert_eq!(rig.watcher.now().since(opened), MS);
    // What is opened before it is submitted never closes, and makes no call for it.
    let (gate, op) = gated(&owner);
    gate.open().unwrap();
    let start = rig.watcher.now();
    rig.run(op.on(&rig.runtime)).unwrap();
    assert_eq!(rig.watcher.now().since(start), MS);
    rig.assert_clean();
}

/// How long a gate was closed is not how long the work behind it takes.
#[test]
fn what_waited_long_at_a_gate_is_not_expected_to_do_so_again() {
    let rig = Rig::with(&CONFIG, wakeline_ops::PLAN);
    let owner = Arc::new(());
    for closed in [40, 40, 1, 1] {
        let (gate, op) = gated(&owner);
        let mut future = op.on(&rig.runtime);
        assert!(poll_once(&mut future).is_pending());
        pass(&rig, Nanos::from_millis(closed));
        let opened = rig.watcher.now();
        gate.open().unwrap();
        rig.run(future).unwrap();
        let told = rig.watcher.now().since(opened);
        assert!(told <= MS + Nanos::from_micros(100), "{told} after it was opened, closed for {closed} ms");
    }
    rig.assert_clean();
}

/// Whoever takes what a shared operation gave hears of the gate in it.
#[test]
fn all_who_share_what_is_behind_a_gate_are_told_how_it_was_opened() {
    let rig = Rig::new();
    let owner = Arc::new(());
    let (gate, opened) = gate(Nanos::from_millis(50)).unwrap();
    let shared = opened.then({
        let owner = Arc::clone(&owner);
        move |()| Busy(MS, owner)
    });
    let shared = shared.shared();
    let mut first = shared.clone().on(&rig.runtime);
    assert!(poll_once(&mut first).is_pending());
    drop((first, gate));
    for _ in 0..2 {
        let later = rig.run(shared.clone().on(&rig.runtime));
        assert_eq!(later.unwrap_err().code(), ErrorCode::GateDropped);
    }
}

#[test]
fn a_handle_that_is_dropped_opens_it_and_who_awaits_is_told() {
    let rig = Rig::new();
    let owner = Arc::new(());
    let (gate, op) = gated(&owner);
    let mut future = op.on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending());
    let start = rig.watcher.now();
    drop(gate);
    assert_eq!(rig.run(future).unwrap_err().code(), ErrorCode::GateDropped);
    assert_eq!((rig.watcher.now().since(start), Arc::strong_count(&owner)), (MS, 1), "it has run");
    let (gate, op) = gated(&owner);
    drop(gate);
    assert_eq!(op.on(&rig.runtime).sync().unwrap_err().code(), ErrorCode::GateDropped);
    rig.assert_clean();
}

#[test]
fn its_deadline_opens_it_and_both_are_told_after_how_long() {
    let rig = Rig::new();
    let owner = Arc::new(());
    let (gate, op) = gated(&owner);
    let mut future = op.on(&rig.runtime);
    pass(&rig, MS);
    assert!(poll_once(&mut future).is_pending(), "its time counts from its submission on");
    let start = rig.watcher.now();
    let error = rig.run(future).unwrap_err();
    assert_eq!((error.code(), error.args()), (ErrorCode::GateTimedOut, &["50.000 ms".to_owned()][..]));
    assert_eq!(rig.watcher.now().since(start), Nanos::from_millis(51));
    assert!(gate.is_open());
    assert_eq!(gate.open().unwrap_err().code(), ErrorCode::GateTimedOut);
    rig.assert_clean();
}

#[test]
fn it_is_opened_by_its_deadline_though_all_is_forgotten() {
    let rig = Rig::new();
    let owner = Arc::new(());
    let (gate, op) = gated(&owner);
    let mut future = op.on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending());
    std::mem::forget((gate, future));
    let single = rig.runtime.scheduled(&SingleStream);
    // The same stream is free again behind it, whoever submits there.
    for _ in 0..3 {
        rig.run(Busy(MS, ()).on(&single)).unwrap();
    }
    rig.settle();
    assert_eq!((Arc::strong_count(&owner), rig.device.misuses()), (1, vec![]));
    assert_eq!(rig.runtime.counts().in_flight(), 0);
}

#[test]
fn a_watcher_that_closes_opens_it() {
    let rig = Rig::new();
    let owner = Arc::new(());
    let (gate, op) = gated(&owner);
    let mut future = op.on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending());
    rig.watcher.close();
    assert!(gate.is_open());
    assert_eq!(gate.open().unwrap_err().code(), ErrorCode::WatcherClosed);
    assert_eq!(rig.run(future).unwrap_err().code(), ErrorCode::WatcherClosed);
    // The device has gone on, whether or not anybody can be told.
    pass(&rig, MS + MS);
    assert_eq!(rig.device.misuses(), []);
}

#[test]
fn a_fault_ends_what_is_behind_it_and_leaves_it_to_be_opened() {
    let rig = Rig::new();
    let owner = Arc::new(());
    let (gate, op) = gated(&owner);
    let mut future = op.on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending());
    rig.device.inject_fault();
    let cause = rig.device.health().unwrap().to_string();
    assert_eq!(rig.run(future).unwrap_err().to_string(), cause);
    gate.open().unwrap();
    let (gate, op) = gated(&owner);
    assert_eq!(rig.run(op.on(&rig.runtime)).unwrap_err().to_string(), cause);
    drop(gate);
    rig.settle();
    assert_eq!((rig.device.misuses(), rig.runtime.counts().in_flight()), (vec![], 0));
}

#[test]
fn branches_and_tensors_behind_a_gate_wait_in_their_streams() {
    let rig = Rig::new();
    let (gate, opened) = gate(Nanos::from_millis(50)).unwrap();
    let tensor = rig.run(Tensor::full(4, 3_u8).on(&rig.runtime)).unwrap();
    let op = opened.then(move |()| zip!(tensor.to_host(), Busy(MS + MS, ()), value(1)));
    let mut future = op.on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending());
    pass(&rig, Nanos::from_millis(10));
    let start = rig.watcher.now();
    gate.open().unwrap();
    assert_eq!(rig.run(future).unwrap(), (vec![3; 4], (), 1));
    assert_eq!(rig.watcher.now().since(start), MS + MS);
    rig.assert_clean();
}

#[test]
fn a_fault_at_each_call_leaves_no_gate_closed() {
    for call in 1..60 {
        let faults = Faults { fault_at_call: Some(call), ..Faults::none() };
        let config = SimConfig { faults, ..CONFIG };
        let Ok(rig) = Rig::try_with(&config, "flag:park_us=50,backstop_us=1000+trust") else { continue };
        let owner = Arc::new(());
        for _ in 0..3 {
            let (gate, op) = gated(&owner);
            let mut future = op.on(&rig.runtime);
            if poll_once(&mut future).is_pending() {
                gate.open().unwrap();
                let _ = rig.run(future);
            }
        }
        rig.settle();
        let counts = rig.runtime.counts();
        assert_eq!((rig.device.misuses(), counts.in_flight()), (vec![], 0), "call {call}: {counts:?}");
    }
    // A queue without room for the wait: the operation errs alone.
    let config = SimConfig { queue_len_max: 1, ..CONFIG };
    let rig = Rig::with(&config, "flag:park_us=50,backstop_us=1000+trust");
    let (gate, opened) = gate(MS).unwrap();
    let op = Busy(MS, ()).then(|()| opened);
    assert_eq!(rig.run(op.on(&rig.runtime)).unwrap_err().code(), ErrorCode::Backend);
    assert!(gate.is_open());
    drop(gate);
}

#[test]
fn a_time_out_of_its_own_is_bounded() {
    let too_long = gate::<SimDevice>(Nanos::from_millis(GATE_MS_MAX + 1)).unwrap_err();
    assert_eq!(
        too_long.to_string(),
        "how long a gate stays closed is 10.001 s, but must be from 1 ns to 10.000 s"
    );
    assert_eq!(gate::<SimDevice>(Nanos::ZERO).unwrap_err().code(), ErrorCode::InvalidLimit);
}
