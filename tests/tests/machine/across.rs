//! Copies between devices, and conflicting uses of one tensor on several.

use std::sync::Arc;
use std::time::Instant as Wall;

use wakeline_fake_driver::{Act, PeerAccess, Rule, Status};
use wakeline_ops::port::Link;
use wakeline_ops::{DeviceOp, STAGE_BYTES, SingleStream};
use wakeline_std::block_on;
use wakeline_tensor::Tensor;
use wakeline_tests::machine_rig::{MachineRig, Several, VendorMachine};
use wakeline_tests::machine_tests;
use wakeline_tests::ops_rig::poll_once;

use crate::ms;

machine_tests![
    Everywhere: a_copy_waits_for_the_write_on_the_other_device,
        a_write_waits_for_the_copy_that_another_device_makes_before_it,
        numbers_that_go_to_and_fro_are_changed_on_each_device_in_turn,
        two_threads_that_copy_in_circles_are_ordered_and_end,
        work_is_spread_over_all_devices;
    Fakes: where_peers_are_granted_a_copy_is_one_call,
        where_peers_are_refused_a_copy_goes_by_way_of_the_host;
];

fn a_copy_waits_for_the_write_on_the_other_device<R: MachineRig>(rig: &R) {
    let single = rig.on(0).with_policy(&SingleStream).unwrap();
    let tensor: Tensor<u32, R::Device> = block_on(Tensor::full(1_000, 4).on(&single)).unwrap();
    let start = Wall::now();
    let mut before = rig.occupy(0, ms(30)).on(&single);
    let mut written = rig.affine(0, &tensor, 3, 1).on(&single);
    assert!(poll_once(&mut before).is_pending() && poll_once(&mut written).is_pending());
    let copy = block_on(tensor.to_device().on(rig.on(1))).unwrap();
    assert!(start.elapsed().as_nanos() >= ms(30).as_nanos().into());
    assert_eq!(block_on(copy.to_host().on(rig.on(1))).unwrap(), [13; 1_000]);
    drop((before, written, tensor, copy));
    rig.settle_clean();
}

fn a_write_waits_for_the_copy_that_another_device_makes_before_it<R: MachineRig>(rig: &R) {
    let single = rig.on(1).with_policy(&SingleStream).unwrap();
    let tensor: Tensor<u32, R::Device> = block_on(Tensor::full(1_000, 1).on(rig.on(0))).unwrap();
    let mut before = rig.occupy(1, ms(30)).on(&single);
    let mut copy = tensor.to_device().on(&single);
    assert!(poll_once(&mut before).is_pending() && poll_once(&mut copy).is_pending());
    block_on(rig.affine(0, &tensor, 0, 2).on(rig.on(0))).unwrap();
    assert_eq!(block_on(tensor.to_host().on(rig.on(0))).unwrap(), [2; 1_000]);
    let copy = block_on(copy).unwrap();
    assert_eq!(
        block_on(copy.to_host().on(rig.on(1))).unwrap(),
        [1; 1_000],
        "it was submitted before the write"
    );
    drop((before, tensor, copy));
    rig.settle_clean();
}

fn numbers_that_go_to_and_fro_are_changed_on_each_device_in_turn<R: MachineRig>(rig: &R) {
    rig.machine().link_all().unwrap();
    let count = 40_000;
    let mut tensor: Tensor<u32, R::Device> = block_on(Tensor::full(count, 1).on(rig.on(0))).unwrap();
    let mut wanted = 1_u32;
    let mut flying = Vec::new();
    for round in 0..20 {
        let device = usize::try_from((round + 1) % 2).unwrap();
        // Nothing is awaited but the names: the devices wait for each other.
        tensor = block_on(tensor.to_device().on(rig.on(device))).unwrap();
        let mut changed = rig.affine(device, &tensor, 3, round).on(rig.on(device));
        let _ = poll_once(&mut changed);
        flying.push(changed);
        wanted = wanted.wrapping_mul(3).wrapping_add(round);
    }
    let numbers = block_on(tensor.to_host().on(rig.on(0))).unwrap();
    assert!(numbers.iter().all(|number| *number == wanted), "{wanted}: {:?}", &numbers[..4]);
    drop((flying, tensor));
    rig.settle_clean();
}

fn two_threads_that_copy_in_circles_are_ordered_and_end<R: MachineRig>(rig: &R) {
    let make = |device: usize| {
        let number = u32::try_from(device).unwrap();
        Arc::new(block_on(Tensor::<u32, R::Device>::full(8, number).on(rig.on(device))).unwrap())
    };
    let tensors = [make(0), make(1)];
    let runtimes = [rig.on(0), rig.on(1)];
    std::thread::scope(|scope| {
        for own in [0, 1] {
            let tensors = &tensors;
            scope.spawn(move || {
                for _ in 0..60 {
                    let (here, there) = (Arc::clone(&tensors[own]), Arc::clone(&tensors[1 - own]));
                    // Reads the one of the other device, then its own, into memory here.
                    let op = there.to_device().then(move |target| here.copy_to(target));
                    let _ = poll_once(&mut op.on(runtimes[own]));
                }
            });
        }
    });
    drop(tensors);
    rig.settle_clean();
}

fn work_is_spread_over_all_devices<R: MachineRig>(rig: &R) {
    let machine = rig.machine();
    let mut flying: Vec<_> = (0..40).map(|_| machine.run(|site| rig.occupy(site.number(), ms(2)))).collect();
    for future in &mut flying {
        let _ = poll_once(future);
    }
    for future in flying {
        // One that has ended by its first poll is over.
        let _ = block_on(future);
    }
    let placed: Vec<_> = machine.sites().iter().map(|site| site.placed()).collect();
    assert_eq!(placed, [20, 20]);
    rig.settle_clean();
}

/// Sends numbers there and back, more than a block of pinned memory has.
fn goes_round<D: Several>(rig: &VendorMachine<D>, link: Link) {
    assert_eq!([rig.machine().link(0, 1).unwrap(), rig.machine().link(1, 0).unwrap()], [link; 2]);
    let numbers: Vec<u8> = (0..4 * STAGE_BYTES + 3).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let here: Tensor<u8, _> = block_on(Tensor::from_host(numbers.clone()).on(rig.on(0))).unwrap();
    let there = block_on(here.to_device().on(rig.on(1))).unwrap();
    let back = block_on(there.to_device().on(rig.on(0))).unwrap();
    assert!(block_on(back.to_host().on(rig.on(0))).unwrap() == numbers);
    drop((here, there, back));
    rig.settle_clean();
}

fn calls<D: Several>(rig: &VendorMachine<D>, name: &'static str) -> u64 {
    rig.stand_in().unwrap().calls(D::call(name))
}

fn where_peers_are_granted_a_copy_is_one_call<D: Several>(rig: &VendorMachine<D>) {
    goes_round(rig, Link::Direct);
    assert_eq!(calls(rig, "cuMemcpyPeerAsync"), 2);
    assert_eq!(calls(rig, "cuMemcpyDtoHAsync"), 1, "the numbers' last way");
    assert_eq!(calls(rig, "cuCtxEnablePeerAccess"), 2, "once each way");
    goes_round(rig, Link::Direct);
    assert_eq!(calls(rig, "cuCtxEnablePeerAccess"), 2);
    // Another machine of the same devices is told that it was granted before.
    let devices: Vec<_> = rig.machine().sites().iter().map(|site| site.device().clone()).collect();
    let watcher = wakeline_std::Watcher::new().unwrap();
    let tender = watcher.handle().tender(&wakeline_std::Point::new("again"));
    let again = wakeline_ops::Machine::new(devices, &SingleStream, tender).unwrap();
    assert_eq!(again.link(0, 1).unwrap(), Link::Direct);
    drop(again);
    watcher.close(wakeline_std::Watcher::CLOSE).unwrap();
}

fn where_peers_are_refused_a_copy_goes_by_way_of_the_host<D: Several>(rig: &VendorMachine<D>) {
    // Refused from the start, refused where it is asked for, without the calls, and where the pools are not shared.
    let refused = VendorMachine::<D>::fake(|options| options.peer_access = PeerAccess::Refused);
    let hidden = VendorMachine::<D>::fake(|_| {});
    let unshared = VendorMachine::<D>::fake(|_| {});
    let rule = |rig: &VendorMachine<D>, call, status| {
        rig.stand_in().unwrap().rule(Rule::new(D::call(call), Act::Fail(status)))
    };
    rule(rig, "cuCtxEnablePeerAccess", Status::OUT_OF_MEMORY);
    rule(&hidden, "cuDeviceCanAccessPeer", Status::NOT_SUPPORTED);
    rule(&unshared, "cuMemPoolSetAccess", Status::INVALID_VALUE);
    for rig in [&refused, rig, &hidden, &unshared] {
        goes_round(rig, Link::Staged);
        assert_eq!(calls(rig, "cuMemcpyPeerAsync"), 0);
        // Five pieces each way, and the numbers' last way.
        assert_eq!(calls(rig, "cuMemcpyDtoHAsync"), 11);
        for site in rig.machine().sites() {
            let pinned = site.device().context().pinned();
            assert!(pinned.high_water_bytes <= 12 * STAGE_BYTES, "{pinned:?}");
        }
    }
    for rig in [refused, hidden, unshared] {
        rig.end(false).unwrap();
    }
}
