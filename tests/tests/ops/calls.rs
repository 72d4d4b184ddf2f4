//! Which driver calls are made where: none that waits for the device in a submission, a poll or a drop.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use wakeline_core::{CompletionPort, Error, ErrorCode};
use wakeline_fake_driver::{Act, Rule};
use wakeline_mapped::{Graph, OpDevice, Stream};
use wakeline_ops::port::{Device, Memory, Priority};
use wakeline_ops::{DeviceOp, Submission, device_op};
use wakeline_std::block_on;
use wakeline_tensor::Tensor;
use wakeline_tests::device_tests;
use wakeline_tests::ops_rig::{CudaRig, OpsRig, VendorRig, poll_once, poll_then_wait, until};

use crate::ms;
use wakeline_tests::vendor::Vendor;

device_tests![
    // It forgets a future, which keeps its stream.
    FakesLeaving: no_submission_poll_or_drop_makes_a_call_that_waits;
    // Nobody can know what a submission has enqueued whose point cannot be made.
    FakeLeaving: where_the_context_cannot_be_bound_the_operation_errs_alone;
    Fakes: a_poll_that_finds_nothing_makes_no_driver_call,
        events_come_from_a_pool_once_there_are_some,
        streams_have_the_priority_that_was_asked_for,
        every_call_has_the_devices_context_and_the_callers_comes_back,
        a_point_is_armed_in_one_go,
        an_operation_in_a_stream_that_is_captured_is_refused_and_nothing_of_it_is_recorded;
    Fake: calls_that_are_made_together_bind_the_context_once;
];

/// Calls of the driver that wait for the device, or may.
const WAITS: [&str; 15] = [
    "cuCtxSynchronize",
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuDevicePrimaryCtxRelease",
    "cuCtxDestroy",
    "cuMemcpyHtoD",
    "cuMemcpyDtoH",
    "cuMemGetInfo",
];

fn assert_none_waits<D: Vendor>(rig: &VendorRig<D>, when: &str) {
    for name in WAITS {
        assert_eq!(rig.fake().calls(name), 0, "{name} is called {when}");
    }
}

fn no_submission_poll_or_drop_makes_a_call_that_waits<D: Vendor>(rig: &VendorRig<D>) {
    let chain = || {
        let (occupy, affine) = (rig.occupy(ms(2)), rig.affines());
        let op = Tensor::from_host((0..2_000_u32).collect()).then(|tensor| occupy.map(|()| tensor));
        op.then(move |tensor: Tensor<u32, _>| {
            wakeline_tests::ops_rig::affine(affine, &tensor, 2, 1).then(move |()| tensor.to_host())
        })
    };
    // The first of its size pins memory: as much is in the pool as all need, those too that a forgotten future keeps for good.
    drop((0..8).map(|_| rig.device().pinned(8_000).unwrap()).collect::<Vec<_>>());
    rig.fake().clear_log();
    for round in 0..12_u32 {
        let mut future = chain().on(rig.runtime());
        match round % 3 {
            0 => assert_eq!(poll_then_wait(future).unwrap()[..2], [1, 3]),
            1 => {
                let _ = poll_once(&mut future);
                drop(future);
            }
            _ => {
                let _ = poll_once(&mut future);
                std::mem::forget(future);
            }
        }
        assert_none_waits(rig, "by an operation");
        rig.settle();
    }
    let stream = rig.runtime().stream(Priority::High).unwrap();
    let kept = rig.device().stream(Priority::Low).unwrap();
    rig.device().call_host(&kept, || ()).unwrap();
    drop((stream, kept, rig.device().event().unwrap(), rig.affines()));
    rig.device().health().unwrap();
    assert_none_waits(rig, "by a drop");
}

fn a_poll_that_finds_nothing_makes_no_driver_call<D: Vendor>(rig: &VendorRig<D>) {
    let mut future = rig.occupy(ms(300)).on(rig.runtime());
    assert!(poll_once(&mut future).is_pending());
    let calls = rig.calls_here();
    for _ in 0..100 {
        assert!(poll_once(&mut future).is_pending());
    }
    assert_eq!(rig.calls_here(), calls);
    block_on(future).unwrap();
}

fn events_come_from_a_pool_once_there_are_some<D: Vendor>(rig: &VendorRig<D>) {
    let single = rig.another(1);
    let tensor = block_on(Tensor::full(16, 0_u32).on(&single)).unwrap();
    let round = || {
        block_on(rig.affine(&tensor, 1, 1).on(&single)).unwrap();
        // The point before has given its event back by then.
        until("it lands", || single.counts().in_flight() == 0);
        std::thread::sleep(Duration::from_micros(300));
    };
    (0..70).for_each(|_| round());
    rig.fake().clear_log();
    (0..30).for_each(|_| round());
    let made = rig.fake().calls("cuEventCreate");
    assert!(made <= 1, "{made} were made, {} recorded", rig.fake().calls("cuEventRecord"));
    // Where its tensor is free again; the word alone tells that an operation is done.
    assert_eq!(rig.fake().calls("cuEventRecord"), 30);
    assert_eq!(block_on(tensor.to_host().on(&single)).unwrap(), [100; 16]);
    drop(tensor);
    until("all lands", || single.counts().in_flight() == 0);
}

fn streams_have_the_priority_that_was_asked_for<D: Vendor>(rig: &VendorRig<D>) {
    for (priority, number) in [(Priority::Low, 0), (Priority::Normal, 0), (Priority::High, -5)] {
        let stream = rig.device().stream(priority).unwrap();
        assert_eq!(rig.rig().priority(&stream), number, "{priority:?}");
    }
}

fn every_call_has_the_devices_context_and_the_callers_comes_back<D: Vendor>(rig: &VendorRig<D>) {
    let own = rig.device().context().raw();
    rig.fake().clear_log();
    let tensor = std::thread::scope(|scope| {
        let on_fresh = scope.spawn(|| {
            let tensor = Tensor::from_host(vec![1_u32, 2]).on(rig.runtime()).sync().unwrap();
            rig.affine(&tensor, 2, 0).on(rig.runtime()).sync().unwrap();
            tensor
        });
        on_fresh.join().unwrap()
    });
    // A drop on this thread, which has no context either.
    drop(tensor);
    rig.settle();
    let free = ["cuCtxGetCurrent", "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode"];
    for call in rig.rig().log() {
        let bound = call.context.map(|context| usize::try_from(context).unwrap());
        let is_own = bound == Some(own.as_ptr().addr());
        assert!(is_own || free.contains(&call.name.as_str()), "{call:?}");
    }
    assert!(rig.fake().calls("cuMemFreeAsync") == 1);
}

fn where_the_context_cannot_be_bound_the_operation_errs_alone(rig: &CudaRig) {
    rig.fake().rule(Rule::new("cuCtxSetCurrent", Act::Fail(wakeline_fake_driver::Status(201))));
    block_on(rig.occupy(ms(1)).on(rig.runtime())).unwrap_err();
    rig.fake().clear_rules();
    block_on(rig.occupy(ms(1)).on(rig.runtime())).unwrap();
}

fn calls_that_are_made_together_bind_the_context_once(rig: &CudaRig) {
    let stream = rig.device().stream(Priority::Normal).unwrap();
    let event = rig.device().event().unwrap();
    let binds =
        || ["cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode"].map(|name| rig.fake().calls(name));
    rig.fake().clear_log();
    for _ in 0..4 {
        rig.device().record(&stream, &event).unwrap();
    }
    assert_eq!(binds(), [8, 8]);
    rig.fake().clear_log();
    let recorded = rig.device().together(|| (0..4).try_for_each(|_| rig.device().record(&stream, &event)));
    recorded.unwrap();
    assert_eq!(binds(), [2, 2 + 4]);
    let current = wakeline_cuda::LineDriver::current(rig.rig().driver()).unwrap();
    assert!(current.is_null(), "the caller's context is back, which was none");
    // Where that cannot be, each call says so.
    rig.fake().rule(Rule::new("cuCtxSetCurrent", Act::Fail(wakeline_fake_driver::Status(201))));
    rig.device().together(|| rig.device().record(&stream, &event)).unwrap_err();
    rig.fake().clear_rules();
}

fn a_point_is_armed_in_one_go<D: Vendor>(rig: &VendorRig<D>) {
    let stream = rig.device().stream(Priority::Normal).unwrap();
    let looks = || rig.fake().calls("cuStreamIsCapturing");
    rig.fake().clear_log();
    let mut point = rig.device().point(&stream).unwrap();
    point.arm().unwrap();
    assert_eq!(looks(), 4);
    rig.fake().clear_log();
    let point = rig.device().armed_point(&stream).unwrap();
    assert_eq!((looks(), rig.fake().calls("cuStreamWriteValue64")), (2, 1));
    assert_eq!(rig.fake().calls("cuEventRecord"), 1);
    rig.fake().clear_log();
    drop(rig.device().word_point(&stream).unwrap());
    assert_eq!((looks(), rig.fake().calls("cuEventRecord")), (2, 0));
    let word = point.descriptor().unwrap();
    until("it lands", || word.reached());
    // What the driver does not support is no error, and it is waited for by asking.
    rig.fake().rule(Rule::new("cuStreamWriteValue64", Act::Fail(wakeline_fake_driver::Status(801))));
    let mut point = rig.device().armed_point(&stream).unwrap();
    assert!(point.descriptor().is_none());
    while point.query().unwrap() == wakeline_core::Status::Pending {}
    rig.fake().clear_rules();
}

/// Tells which stream it is run in.
struct Where<D>(PhantomData<D>);

impl<D: Vendor> DeviceOp for Where<D> {
    type Device = OpDevice<D>;
    type Pending = usize;
    type Output = usize;

    fn execute(self, submission: &mut Submission<OpDevice<D>>) -> Result<usize, Error> {
        Ok(submission.stream().raw().raw().as_ptr().addr())
    }

    fn finish(stream: usize) -> Result<usize, Error> {
        Ok(stream)
    }
}

device_op!([D] Where<D> where D: Vendor);

fn an_operation_in_a_stream_that_is_captured_is_refused_and_nothing_of_it_is_recorded<D: Vendor>(
    rig: &VendorRig<D>,
) {
    let (single, owner) = (rig.another(1), Arc::new(()));
    let raw = std::ptr::without_provenance_mut(block_on(Where(PhantomData).on(&single)).unwrap());
    until("it lands", || single.counts().in_flight() == 0);
    let before = single.counts();
    // SAFETY: the runtime's stream, which it keeps until its end.
    #[expect(unsafe_code, reason = "a stream by its handle")]
    let stream = unsafe { Stream::from_raw(rig.device().context(), raw) }.unwrap();
    let graph = Graph::capture(&stream, (), |()| {
        rig.fake().clear_log();
        for _ in 0..3 {
            let refused = block_on(rig.busy(ms(1), Arc::clone(&owner)).on(&single)).unwrap_err();
            assert_eq!(refused.code(), ErrorCode::StreamCapturing, "{refused}");
            let refused = rig.busy(ms(1), Arc::clone(&owner)).on(&single).sync().unwrap_err();
            assert_eq!(refused.code(), ErrorCode::StreamCapturing, "{refused}");
        }
        for call in ["cuLaunchKernel", "cuEventRecord", "cuStreamWriteValue64", "cuMemAllocAsync"] {
            assert_eq!(rig.fake().calls(call), 0, "{call}");
        }
        Ok(())
    });
    drop(graph.unwrap());
    let counts = single.counts();
    assert_eq!((counts.refused, counts.leaked), (before.refused + 6, before.leaked));
    assert_eq!((counts.in_flight(), Arc::strong_count(&owner)), (0, 1), "nothing is kept for them");
    block_on(rig.busy(ms(1), Arc::clone(&owner)).on(&single)).unwrap();
    until("it lands", || single.counts().in_flight() == 0);
}
