//! What is known to have landed is waited for by nobody, however old its place is; and the word of a forgotten gate is given back.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{Busy, CONFIG, Rig, poll_once};
use wakeline_core::{Clock, Nanos};
use wakeline_ops::port::Priority;
use wakeline_ops::{DeviceOp, SingleStream, gate, zip};
use wakeline_sim::SimDevice;
use wakeline_tensor::Tensor;

type Bytes = Tensor<u8, SimDevice>;

const MS: Nanos = Nanos::from_millis(1);

/// More places than a stream tells apart.
const PLACES: usize = 100;

#[test]
fn the_readers_of_an_old_constant_wait_for_nothing_of_its_stream() {
    let rig = Rig::new();
    let single = rig.runtime.scheduled(&SingleStream);
    let constant: Bytes = rig.run(Tensor::full(4, 7).on(&single)).unwrap();
    let shared = Tensor::full(4, 8_u8).shared();
    rig.run(shared.clone().on(&single)).unwrap();
    // The events of both are recorded again, behind a gate.
    let (handle, opened) = gate(Nanos::from_millis(50)).unwrap();
    let mut held = opened.on(&single);
    assert!(poll_once(&mut held).is_pending());
    let mut behind: Vec<_> = (0..PLACES).map(|_| Tensor::full(4, 1_u8).on(&single)).collect();
    for future in &mut behind {
        assert!(poll_once(future).is_pending());
    }
    let other = rig.runtime.stream(Priority::Normal).unwrap();
    let (start, calls) = (rig.watcher.now(), rig.device.counts().calls);
    assert_eq!(constant.to_host().sync_on(&other).unwrap(), [7; 4]);
    assert_eq!(rig.watcher.now().since(start), Nanos::from_nanos(CONFIG.copy_ns));
    let first = rig.device.counts().calls - calls;
    let calls = rig.device.counts().calls;
    assert_eq!(constant.to_host().sync_on(&other).unwrap(), [7; 4]);
    assert_eq!(rig.device.counts().calls - calls, first, "no call for the wait, the first time either");
    let read = shared.clone().then(|tensor: Arc<Bytes>| tensor.to_host());
    assert_eq!(read.sync_on(&other).unwrap(), [8; 4]);
    assert!(!handle.is_open());
    handle.open().unwrap();
    rig.run(held).unwrap();
    drop((behind, constant, shared));
    rig.assert_clean();
}

/// Work of branches has landed with its flight; what a fault has ended never has.
#[test]
fn what_branches_have_written_has_landed_with_all_of_it() {
    let rig = Rig::new();
    let both = zip!(Tensor::full(4, 1_u8), Tensor::full(4, 2_u8), Busy(MS, ()));
    let (one, two, ()) = rig.run(both.on(&rig.runtime)).unwrap();
    let other = rig.runtime.stream(Priority::Normal).unwrap();
    let (fresh, calls) = (Tensor::full(4, 3_u8).sync_on(&other).unwrap(), rig.device.counts().calls);
    assert_eq!(fresh.to_host().sync_on(&other).unwrap(), [3; 4]);
    let own = rig.device.counts().calls - calls;
    for (tensor, byte) in [(one, 1), (two, 2)] {
        let calls = rig.device.counts().calls;
        assert_eq!(tensor.to_host().sync_on(&other).unwrap(), [byte; 4]);
        assert_eq!(rig.device.counts().calls - calls, own, "as of one that it wrote itself");
    }
    drop(fresh);
    rig.assert_clean();
}

#[test]
fn a_forgotten_handle_leaves_no_word_behind() {
    let rig = Rig::new();
    for _ in 0..10 {
        let (handle, opened) = gate(MS).unwrap();
        let mut future = opened.then(|()| Busy(MS, ())).on(&rig.runtime);
        assert!(poll_once(&mut future).is_pending());
        assert_eq!(rig.device.gates(), 1);
        std::mem::forget((handle, future));
        rig.settle();
        assert_eq!(rig.device.gates(), 0, "given back with its flight");
    }
    assert_eq!((rig.device.misuses(), rig.runtime.counts().in_flight()), (vec![], 0));
}
