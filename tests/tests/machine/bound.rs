//! Whose context each call is made in, and who has one at all.

use std::collections::{BTreeMap, BTreeSet};

use wakeline_fake_driver::{Call, Fake, cuda_name};
use wakeline_mapped::Ordinal;
use wakeline_ops::DeviceOp;
use wakeline_std::block_on;
use wakeline_tensor::Tensor;
use wakeline_tests::machine_rig::{MachineRig, Several, VendorMachine};
use wakeline_tests::machine_tests;
use wakeline_tests::ops_rig::poll_once;

use crate::ms;

machine_tests![
    Vendors: case_56_a_thread_that_takes_turns_between_devices_keeps_its_own_context,
        case_57_an_event_is_recorded_by_the_one_device_and_waited_for_by_the_other;
    Fakes: where_the_second_device_alone_is_used_the_first_has_no_context;
];

/// The stand-in's log, by CUDA's names.
fn log(fake: &Fake) -> Vec<Call> {
    let named = |call: Call| Call { name: cuda_name(&call.name).map_or(call.name, str::to_owned), ..call };
    fake.log().into_iter().map(named).collect()
}

/// A reused thread kept the first device's context.
fn case_56_a_thread_that_takes_turns_between_devices_keeps_its_own_context<D: Several>(
    rig: &VendorMachine<D>,
) {
    let current = || rig.driver().current().unwrap();
    let contexts: Vec<_> = rig.machine().sites().iter().map(|site| site.device().context().clone()).collect();
    let take_turns = || {
        let before = current();
        for round in 0..6_u32 {
            let (own, other) = ((round % 2) as usize, 1 - (round % 2) as usize);
            let tensor: Tensor<u32, _> = Tensor::full(16, round).on(rig.on(own)).sync().unwrap();
            assert_eq!(current(), before);
            let mut copy = tensor.to_device().on(rig.on(other));
            let _ = poll_once(&mut copy);
            assert_eq!(current(), before);
            drop((tensor, copy));
            assert_eq!(current(), before);
            block_on(rig.machine().run(|site| rig.occupy(site.number(), ms(1)))).unwrap();
            assert_eq!(current(), before);
        }
    };
    take_turns();
    for context in &contexts {
        let bound = context.bind().unwrap();
        assert_eq!(current(), context.raw());
        take_turns();
        drop(bound);
    }
    std::thread::scope(|scope| scope.spawn(take_turns).join().unwrap());
    drop(contexts);
    rig.settle_clean();
    let Some(fake) = rig.stand_in() else { return };
    // Whatever was enqueued in a stream was so in one context, that which it was made in.
    let mut of: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for call in log(fake) {
        if let (Some(stream), Some(context)) = (call.stream, call.context) {
            of.entry(stream).or_default().insert(context);
        }
    }
    assert!(of.len() >= 6 && of.values().all(|contexts| contexts.len() == 1), "{of:?}");
    let all: BTreeSet<_> = of.values().flatten().collect();
    assert_eq!(all.len(), 2, "both devices");
}

/// An event was recorded on a stream of another context.
fn case_57_an_event_is_recorded_by_the_one_device_and_waited_for_by_the_other<D: Several>(
    rig: &VendorMachine<D>,
) {
    let tensor: Tensor<u32, _> = block_on(Tensor::full(1_000, 4).on(rig.on(0))).unwrap();
    rig.machine().link_all().unwrap();
    if let Some(fake) = rig.stand_in() {
        fake.clear_log();
    }
    let mut before = rig.occupy(0, ms(30)).on(rig.on(0)).schedule(&wakeline_ops::SingleStream);
    let mut written = rig.affine(0, &tensor, 3, 1).on(rig.on(0)).schedule(&wakeline_ops::SingleStream);
    assert!(poll_once(&mut before).is_pending() && poll_once(&mut written).is_pending());
    let copy = block_on(tensor.to_device().on(rig.on(1))).unwrap();
    assert_eq!(block_on(copy.to_host().on(rig.on(1))).unwrap(), [13; 1_000]);
    // And back: the first writes behind the second's read.
    let mut held = rig.occupy(1, ms(30)).on(rig.on(1)).schedule(&wakeline_ops::SingleStream);
    let mut read = tensor.to_device().on(rig.on(1)).schedule(&wakeline_ops::SingleStream);
    assert!(poll_once(&mut held).is_pending() && poll_once(&mut read).is_pending());
    block_on(rig.affine(0, &tensor, 0, 2).on(rig.on(0))).unwrap();
    let read = block_on(read).unwrap();
    assert_eq!(block_on(read.to_host().on(rig.on(1))).unwrap(), [13; 1_000]);
    block_on(held).unwrap();
    block_on(before).unwrap();
    block_on(written).unwrap();
    if let Some(fake) = rig.stand_in() {
        let log = log(fake);
        let of = |name: &'static str| log.iter().filter(move |call| call.name == name);
        // The first that was launched is the first device's.
        let source = of("cuLaunchKernel").next().unwrap().context;
        let streams = |name: &'static str, here: bool| -> BTreeSet<u64> {
            of(name).filter(|call| (call.context == source) == here).filter_map(|call| call.stream).collect()
        };
        let (recorded, waiting) = (streams("cuEventRecord", true), streams("cuStreamWaitEvent", false));
        assert!(
            !recorded.is_empty() && !waiting.is_empty(),
            "recorded on the source, waited for by the destination"
        );
        // And the other way round: the write waits for the copy.
        let (left, written) = (streams("cuEventRecord", false), streams("cuStreamWaitEvent", true));
        assert!(!left.is_empty() && !written.is_empty());
        assert!(recorded.union(&written).all(|stream| !waiting.contains(stream) && !left.contains(stream)));
    }
    drop((tensor, copy, read));
    rig.settle_clean();
}

fn where_the_second_device_alone_is_used_the_first_has_no_context<D: Several>(_: &VendorMachine<D>) {
    let fake = Fake::new().unwrap();
    fake.configure(|options| {
        D::prepare(options);
        options.devices = 3;
    });
    let driver = D::load_from(fake.path()).unwrap();
    let rig = VendorMachine::on(driver, &[Ordinal(1)], Some(fake));
    let tensor: Tensor<u32, _> = block_on(Tensor::full(100, 4).on(rig.on(0))).unwrap();
    block_on(rig.affine(0, &tensor, 3, 1).on(rig.on(0))).unwrap();
    block_on(tensor.to_device().on(rig.on(0))).unwrap();
    drop(tensor);
    rig.settle_clean();
    let live = rig.stand_in().unwrap().live();
    assert_eq!((live.primary_retains, live.contexts), (1, 1), "that of the second alone");
    let retained = log(rig.stand_in().unwrap());
    let retained = retained.iter().filter(|call| call.name == "cuDevicePrimaryCtxRetain").count();
    assert_eq!(retained, 1);
    rig.end(false).unwrap();
}
