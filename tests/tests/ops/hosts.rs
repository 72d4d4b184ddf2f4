//! Functions of the host behind a stream's work.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use wakeline_core::ErrorCode;
use wakeline_fake_driver::{Act, Rule, Status};
use wakeline_ops::port::{Device, Priority};
use wakeline_ops::{DeviceOp, SingleStream};
use wakeline_std::block_on;
use wakeline_tests::device_tests;
use wakeline_tests::ops_rig::{LIMIT, OpsRig, VendorRig, poll_once, until};

use crate::ms;
use wakeline_tests::vendor::Vendor;

device_tests![
    Everywhere: they_are_called_once_in_the_order_of_their_stream;
    // A simulated device has no thread of its own for them.
    Cuda: work_behind_one_waits_for_it,
        a_panic_in_one_is_caught_and_counted;
    Fakes: one_that_was_enqueued_all_the_same_is_never_called;
    // Its bytes stay: the driver may come for it yet.
    FakesLeaving: one_that_is_refused_is_dropped_uncalled,
        case_63_a_function_of_the_host_that_calls_the_device_gets_an_error_and_no_deadlock;
];

fn they_are_called_once_in_the_order_of_their_stream<R: OpsRig>(rig: &R) {
    let device = rig.runtime().device();
    let stream = rig.runtime().stream(Priority::Normal).unwrap();
    let (called, owner) = (Arc::new(Mutex::new(Vec::new())), Arc::new(()));
    for number in 0..100 {
        let (called, owner) = (Arc::clone(&called), Arc::clone(&owner));
        let function = move || {
            called.lock().unwrap().push(number);
            drop(owner);
        };
        device.call_host(stream.raw(), function).unwrap();
    }
    until("all are called", || Arc::strong_count(&owner) == 1);
    assert_eq!(*called.lock().unwrap(), (0..100).collect::<Vec<_>>());
}

fn work_behind_one_waits_for_it<D: Vendor>(rig: &VendorRig<D>) {
    let single = rig.runtime().with_policy(&SingleStream).unwrap();
    // There is one stream: the operation that enqueues is in that of the work behind.
    let (called, (open, gate)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel::<()>());
    let count = Arc::clone(&called);
    let function = move || {
        let _ = gate.recv_timeout(LIMIT);
        count.fetch_add(1, Ordering::SeqCst);
    };
    let stream = single.stream(Priority::Normal).unwrap();
    rig.runtime().device().call_host(stream.raw(), function).unwrap();
    #[expect(unsafe_code, reason = "the escape hatch")]
    // SAFETY: the operation gives nothing.
    unsafe { rig.occupy(ms(1)).async_on(&stream) }.unwrap();
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!((single.counts().in_flight(), called.load(Ordering::SeqCst)), (1, 0));
    drop(open);
    rig.settle();
    assert_eq!(called.load(Ordering::SeqCst), 1);
    let mut future = rig.occupy(ms(1)).on(&single);
    let _ = poll_once(&mut future);
}

fn a_panic_in_one_is_caught_and_counted<D: Vendor>(rig: &VendorRig<D>) {
    let (device, owner) = (rig.device(), Arc::new(()));
    let stream = device.stream(Priority::Normal).unwrap();
    let kept = Arc::clone(&owner);
    device
        .call_host(&stream, move || {
            assert!(Arc::strong_count(&kept) > 1);
            std::panic::resume_unwind(Box::new(()));
        })
        .unwrap();
    until("it is called", || device.context().host_function_panics() == 1);
    assert_eq!(Arc::strong_count(&owner), 1);
    let (tell, told) = mpsc::channel();
    device.call_host(&stream, move || tell.send(()).unwrap()).unwrap();
    told.recv_timeout(LIMIT).unwrap();
}

fn one_that_is_refused_is_dropped_uncalled<D: Vendor>(rig: &VendorRig<D>) {
    let (device, owner) = (rig.device(), Arc::new(()));
    let stream = device.stream(Priority::Normal).unwrap();
    for call in ["cuLaunchHostFunc", "cuStreamIsCapturing", "cuCtxGetCurrent"] {
        let kept = Arc::clone(&owner);
        rig.fake().rule(Rule::new(call, Act::Fail(Status::INVALID_VALUE)).times(1));
        let error = device.call_host(&stream, move || panic!("called with {kept:?}")).unwrap_err();
        assert!(error.to_string().contains(D::call(call)), "{error}");
        assert_eq!(Arc::strong_count(&owner), 1);
    }
}

fn one_that_was_enqueued_all_the_same_is_never_called<D: Vendor>(rig: &VendorRig<D>) {
    let (device, owner) = (rig.device(), Arc::new(()));
    let stream = device.stream(Priority::Normal).unwrap();
    let kept = Arc::clone(&owner);
    // Its turn has not come when the call comes back.
    rig.rig().kernels().occupy(&stream, ms(100)).unwrap();
    rig.fake().rule(Rule::new("cuLaunchHostFunc", Act::FailAfter(Status(999))).times(1));
    device.call_host(&stream, move || panic!("called with {kept:?}")).unwrap_err();
    assert_eq!(Arc::strong_count(&owner), 1);
    let (tell, told) = mpsc::channel();
    device.call_host(&stream, move || tell.send(()).unwrap()).unwrap();
    told.recv_timeout(LIMIT).unwrap();
    assert_eq!(device.context().host_function_panics(), 0);
}

/// A function of the host took a lock, or called CUDA: a deadlock.
fn case_63_a_function_of_the_host_that_calls_the_device_gets_an_error_and_no_deadlock<D: Vendor>(
    rig: &VendorRig<D>,
) {
    let device = rig.device().clone();
    let stream = device.stream(Priority::Normal).unwrap();
    let (tell, told) = mpsc::channel();
    let inside = rig.runtime().clone();
    let function = move || {
        let health = inside.device().health().map_err(|error| error.code());
        let event = inside.device().event().and_then(|event| {
            let stream = inside.device().stream(Priority::Normal)?;
            inside.device().record(&stream, &event)
        });
        tell.send((health, event.map_err(|error| error.code()))).unwrap();
        // Handles go elsewhere: their drops are calls, too.
        std::mem::forget(inside);
    };
    device.call_host(&stream, function).unwrap();
    let (health, event) = told.recv_timeout(LIMIT).unwrap();
    assert_eq!((health, event), (Err(ErrorCode::Backend), Err(ErrorCode::Backend)));
    assert!(
        rig.fake().violations().iter().all(|violation| violation.contains("called from a host function"))
    );
    // Nothing else has come to harm: what the waits themselves have called, a store of the word, calls nothing.
    block_on(rig.occupy(ms(1)).on(rig.runtime())).unwrap();
    rig.fake().forgive();
}
