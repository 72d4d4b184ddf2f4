//! A fault ends every operation, pending and later, with its cause, on every path.

use std::sync::Arc;
use std::time::{Duration, Instant as Wall};

use wakeline_core::{CompletionPort, Error};
use wakeline_ops::port::{At, Device, Memory, Pattern, Priority};
use wakeline_ops::{DeviceOp, IN_FLIGHT_MAX, SingleStream, value};
use wakeline_std::block_on;
use wakeline_tensor::Tensor;
use wakeline_tests::device_tests;
use wakeline_tests::ops_rig::{OpsRig, VendorRig, poll_once, until};

use crate::ms;
use wakeline_tests::vendor::Vendor;

device_tests![
    EverywhereLeaving: a_fault_ends_every_pending_and_later_operation_with_its_cause,
        a_fault_ends_those_too_that_wait_for_room,
        a_fault_ends_waits_on_the_spot;
    VendorsLeaving: a_kernel_that_traps_ends_its_own_operation,
        every_call_of_a_faulted_device_errs_with_the_first_cause,
        what_was_to_be_called_behind_a_fault_is_dropped_uncalled;
    FakesLeaving: the_first_cause_is_told_without_a_call;
];

/// Two backstops after the driver's first report, and what a busy machine adds.
fn bound<R: OpsRig>(rig: &R) -> Duration {
    rig.fault_delay() + Duration::from_millis(2 * 2 + 500)
}

/// The cause, once the driver tells.
fn cause<R: OpsRig>(rig: &R) -> String {
    until("the driver tells of the fault", || rig.runtime().device().health().is_err());
    rig.runtime().device().health().unwrap_err().to_string()
}

fn assert_is<T: core::fmt::Debug>(result: Result<T, Error>, cause: &str) {
    assert_eq!(result.unwrap_err().to_string(), cause);
}

fn a_fault_ends_every_pending_and_later_operation_with_its_cause<R: OpsRig>(rig: &R) {
    let owner = Arc::new(());
    let tensor: Tensor<u32, R::Device> = block_on(Tensor::full(16, 1).on(rig.runtime())).unwrap();
    let mut pending: Vec<_> =
        (0..6).map(|_| rig.busy(ms(5_000), Arc::clone(&owner)).on(rig.runtime())).collect();
    for future in &mut pending {
        assert!(poll_once(future).is_pending());
    }
    drop(pending.pop());
    std::mem::forget(pending.pop());
    let mut read = tensor.to_host().on(rig.runtime());
    assert!(poll_once(&mut read).is_pending());
    rig.break_device();
    let start = Wall::now();
    let errors: Vec<_> = pending.into_iter().map(|future| block_on(future).unwrap_err()).collect();
    let read = block_on(read).unwrap_err();
    assert!(start.elapsed() < bound(rig), "after {:?}", start.elapsed());
    let cause = cause(rig);
    for error in errors.into_iter().chain([read]) {
        assert_eq!(error.to_string(), cause);
    }
    assert_is(block_on(rig.busy(ms(1), ()).on(rig.runtime())), &cause);
    assert_is(block_on(value::<R::Device, _>(1).on(rig.runtime())), &cause);
    assert_is(block_on(Tensor::<u32, R::Device>::full(4, 1).on(rig.runtime())).map(drop), &cause);
    assert_is(block_on(Tensor::<u32, R::Device>::from_host(vec![1]).on(rig.runtime())).map(drop), &cause);
    assert_is(tensor.to_host().on(rig.runtime()).sync(), &cause);
    assert_is(rig.runtime().stream(Priority::Normal).map(drop), &cause);
    rig.settle();
    assert_eq!(Arc::strong_count(&owner), 7, "the device may be at work: nothing is let go");
    let counts = rig.runtime().counts();
    assert_eq!((counts.landed, counts.leaked + counts.refused), (1, counts.begun - 1), "{counts:?}");
    drop(tensor);
}

fn a_fault_ends_those_too_that_wait_for_room<R: OpsRig>(rig: &R) {
    let single = rig.runtime().with_policy(&SingleStream).unwrap();
    let mut first = rig.occupy(ms(20_000)).on(&single);
    assert!(poll_once(&mut first).is_pending());
    let mut flying: Vec<_> = (1..IN_FLIGHT_MAX).map(|n| value::<R::Device, _>(n).on(&single)).collect();
    for future in &mut flying {
        assert!(poll_once(future).is_pending());
    }
    let mut waits = value::<R::Device, _>(0).on(&single);
    assert!(poll_once(&mut waits).is_pending());
    rig.break_device();
    let start = Wall::now();
    let error = block_on(waits).unwrap_err().to_string();
    assert!(start.elapsed() < bound(rig), "after {:?}", start.elapsed());
    assert_eq!(error, cause(rig));
    assert_is(block_on(first), &error);
}

fn a_fault_ends_waits_on_the_spot<R: OpsRig>(rig: &R) {
    let stream = rig.runtime().stream(Priority::Normal).unwrap();
    let (op, other) = (rig.busy(ms(10_000), ()), rig.busy(ms(10_000), ()));
    let runtime = rig.runtime();
    // A GPU may run nothing new before what is in a queue that it shares, and tells of a fault long after that: there it comes first, and the waits begin meanwhile.
    let is_slow = rig.fault_delay() >= Duration::from_secs(1);
    if is_slow {
        rig.break_device();
    }
    let (one, two, told) = std::thread::scope(|scope| {
        let waits = scope.spawn(move || op.sync_on(&stream));
        let also = scope.spawn(move || other.on(runtime).sync());
        if !is_slow {
            std::thread::sleep(Duration::from_millis(20));
            rig.break_device();
        }
        until("the driver tells of the fault", || runtime.device().health().is_err());
        let told = Wall::now();
        (waits.join().unwrap(), also.join().unwrap(), told)
    });
    assert!(told.elapsed() < Duration::from_millis(2 * 2 + 500), "after {:?}", told.elapsed());
    let cause = cause(rig);
    assert_is(one, &cause);
    assert_is(two, &cause);
}

fn a_kernel_that_traps_ends_its_own_operation<D: Vendor>(rig: &VendorRig<D>) {
    let module = D::kernels(rig.device().context()).unwrap();
    let traps = module.function(wakeline_mapped::work::TRAP).unwrap();
    // SAFETY: the kernel takes nothing and writes nowhere that anything is.
    #[expect(unsafe_code, reason = "a kernel is launched")]
    let op = unsafe { wakeline_tensor::launch(traps, wakeline_tests::ops_rig::ONE, Vec::new()) };
    let start = Wall::now();
    let error = block_on(op.on(rig.runtime())).unwrap_err().to_string();
    assert!(start.elapsed() < bound(rig), "after {:?}", start.elapsed());
    assert!(error.contains(D::status(wakeline_mapped::Fault::Trap)), "{error}");
    assert_eq!(error, cause(rig));
}

fn every_call_of_a_faulted_device_errs_with_the_first_cause<D: Vendor>(rig: &VendorRig<D>) {
    let device = rig.device();
    let stream = device.stream(Priority::Normal).unwrap();
    let (event, buffer) = (device.event().unwrap(), device.alloc(&stream, 64).unwrap());
    let pinned = device.pinned(64).unwrap();
    let mut point = device.point(&stream).unwrap();
    rig.break_device();
    let cause = cause(rig);
    assert_is(device.stream(Priority::High).map(drop), &cause);
    assert_is(device.event().map(drop), &cause);
    assert_is(device.record(&stream, &event), &cause);
    assert_is(device.wait(&stream, &event), &cause);
    assert_is(device.point(&stream).map(drop), &cause);
    assert_is(device.call_host(&stream, || ()), &cause);
    assert_is(device.alloc(&stream, 8).map(drop), &cause);
    assert_is(device.alloc(&stream, 0).map(drop), &cause);
    assert_is(device.pinned(8).map(drop), &cause);
    #[expect(unsafe_code, reason = "the port is called as operations do")]
    // SAFETY: nothing is enqueued, for the device has failed; all are of this device.
    let promise = || unsafe { wakeline_ops::port::Promise::new() };
    assert_is(device.fill(&stream, At::from(&buffer), Pattern::One(1), 8, promise()), &cause);
    assert_is(device.copy(&stream, At::from(&buffer), At::from(&buffer), 8, promise()), &cause);
    assert_is(device.upload(&stream, At::from(&pinned), At::from(&buffer), 8, promise()), &cause);
    assert_is(device.download(&stream, At::from(&buffer), At::from(&pinned), 8, promise()), &cause);
    let (kernel, shape) = (rig.occupies(ms(1)), wakeline_tests::ops_rig::ONE);
    let word = [wakeline_ops::port::Arg::Word(1)];
    assert_is(wakeline_ops::port::Launch::launch(device, &stream, &kernel, shape, &word, promise()), &cause);
    assert_is(device.free(&stream, &buffer, promise()), &cause);
    assert_is(point.query(), &cause);
    assert_is(point.arm(), &cause);
    // Without a panic, and told to nobody.
    drop((point, pinned, event, stream));
}

fn what_was_to_be_called_behind_a_fault_is_dropped_uncalled<D: Vendor>(rig: &VendorRig<D>) {
    let owner = Arc::new(());
    let stream = rig.device().stream(Priority::Normal).unwrap();
    rig.rig().kernels().occupy(&stream, ms(10_000)).unwrap();
    for _ in 0..3 {
        let owner = Arc::clone(&owner);
        rig.device().call_host(&stream, move || panic!("called with {owner:?}")).unwrap();
    }
    rig.break_device();
    cause(rig);
    until("they are dropped", || Arc::strong_count(&owner) == 1);
    assert_eq!(rig.device().context().host_function_panics(), 0);
}

fn the_first_cause_is_told_without_a_call<D: Vendor>(rig: &VendorRig<D>) {
    rig.break_device();
    let cause = cause(rig);
    rig.settle();
    rig.fake().clear_log();
    for _ in 0..10 {
        assert_is(block_on(rig.busy(ms(1), ()).on(rig.runtime())), &cause);
        assert_is(rig.runtime().device().health(), &cause);
        assert_is(
            block_on(Tensor::<u32, <VendorRig<D> as OpsRig>::Device>::full(4, 1).on(rig.runtime())).map(drop),
            &cause,
        );
    }
    let log = rig.rig().log();
    assert!(log.is_empty(), "{log:?}");
}
