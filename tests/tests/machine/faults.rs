//! One device faults, and the others go on.

use std::time::Instant as Wall;

use wakeline_core::ErrorCode;
use wakeline_ops::{DeviceOp, SingleStream};
use wakeline_std::block_on;
use wakeline_tensor::Tensor;
use wakeline_tests::machine_rig::MachineRig;
use wakeline_tests::machine_tests;
use wakeline_tests::ops_rig::{LIMIT, poll_once};

use crate::ms;

machine_tests![
    EverywhereFakesLeaving: a_device_that_faults_is_taken_out_and_the_others_go_on,
        what_came_behind_its_work_on_another_device_fails_with_its_cause,
        an_operation_is_made_again_elsewhere_where_its_user_asks_for_that;
];

/// Runs operations until one has shown that the device has faulted.
fn break_and_tell<R: MachineRig>(rig: &R, device: usize) -> String {
    rig.break_device(device);
    let start = Wall::now();
    loop {
        if let Err(error) = block_on(rig.occupy(device, ms(1)).on(rig.on(device))) {
            return error.to_string();
        }
        assert!(start.elapsed() < LIMIT);
    }
}

fn a_device_that_faults_is_taken_out_and_the_others_go_on<R: MachineRig>(rig: &R) {
    let mut flying: Vec<_> =
        (0..8).map(|_| rig.machine().run(|site| rig.occupy(site.number(), ms(300)))).collect();
    for future in &mut flying {
        assert!(poll_once(future).is_pending());
    }
    rig.break_device(1);
    let mut failed = 0;
    for (number, future) in flying.into_iter().enumerate() {
        match block_on(future) {
            Ok(()) => assert_eq!(number % 2, 0),
            Err(error) => {
                assert_eq!((number % 2, error.code()), (1, ErrorCode::Backend), "{error}");
                failed += 1;
            }
        }
    }
    assert_eq!(failed, 4);
    let site = rig.machine().site(1).unwrap();
    assert!(!site.is_in() && site.health().is_err());
    for _ in 0..6 {
        block_on(rig.machine().run(|site| rig.occupy(site.number(), ms(1)))).unwrap();
    }
    assert_eq!(rig.machine().sites().iter().map(|site| site.placed()).collect::<Vec<_>>(), [10, 4]);
    rig.machine().site(0).unwrap().health().unwrap();
}

fn what_came_behind_its_work_on_another_device_fails_with_its_cause<R: MachineRig>(rig: &R) {
    let single = rig.on(0).with_policy(&SingleStream).unwrap();
    let tensor: Tensor<u32, R::Device> = block_on(Tensor::full(100, 4).on(&single)).unwrap();
    // By then there is nothing left to set up.
    let early = block_on(tensor.to_device().on(rig.on(1))).unwrap();
    let mut before = rig.occupy(0, ms(2_000)).on(&single);
    let mut written = rig.affine(0, &tensor, 3, 1).on(&single);
    assert!(poll_once(&mut before).is_pending() && poll_once(&mut written).is_pending());
    let copied = tensor.to_device().then(|copy| copy.to_host());
    let mut copied = copied.on(rig.on(1));
    assert!(poll_once(&mut copied).is_pending());
    let cause = break_and_tell(rig, 0);
    assert_eq!(block_on(copied).unwrap_err().to_string(), cause);
    assert_eq!(block_on(before).unwrap_err().to_string(), cause);
    drop(written);
    // What it had by then is as it was, and it goes on.
    assert_eq!(block_on(early.to_host().on(rig.on(1))).unwrap(), [4; 100]);
    rig.machine().site(1).unwrap().health().unwrap();
    assert_eq!(block_on(tensor.to_device().on(rig.on(1))).unwrap_err().to_string(), cause);
    block_on(rig.occupy(1, ms(1)).on(rig.on(1))).unwrap();
}

fn an_operation_is_made_again_elsewhere_where_its_user_asks_for_that<R: MachineRig>(rig: &R) {
    let mut tried = Vec::new();
    let again = rig.machine().retrying(2, |site| {
        tried.push(site.number());
        if tried.len() == 1 {
            rig.break_device(site.number());
        }
        rig.occupy(site.number(), ms(300))
    });
    block_on(again.unwrap()).unwrap();
    assert_eq!(tried, [0, 1]);
}
