//! What is in flight keeps what it needs, and lets it go when the device is done, whatever becomes of its future.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant as Wall};

use wakeline_core::{Error, ErrorCode};
use wakeline_fake_driver::{Act, Rule, Status};
use wakeline_ops::port;
use wakeline_ops::{DeviceOp, SingleStream, Submission, device_op, value};
use wakeline_std::block_on;
use wakeline_tensor::Tensor;
use wakeline_tests::device_tests;
use wakeline_tests::ops_rig::{Busy, OpsRig, VendorRig, poll_once, until};

use crate::ms;
use wakeline_tests::vendor::Vendor;

device_tests![
    Everywhere: a_future_dropped_in_flight_frees_nothing_before_the_end,
        a_readback_that_nobody_awaits_any_more_keeps_its_memory_until_the_copy_has_ended,
        values_thrown_away_in_a_chain_live_until_completion,
        a_submission_that_fails_or_panics_half_way_keeps_its_owners_until_its_work_is_done,
        an_owner_whose_drop_panics_is_counted_and_keeps_no_other,
        case_28_a_task_that_is_aborted_after_its_first_poll_frees_nothing_in_use,
        case_29_a_future_of_a_second_of_work_is_dropped_in_no_time;
    // What is forgotten keeps its stream, and that its context, for good.
    EverywhereLeaving: a_forgotten_future_is_sound_and_its_owners_are_let_go,
        case_20_a_forgotten_future_whose_inputs_are_dropped_frees_them_only_after_completion;
    Fakes: case_17_an_operation_whose_enqueue_fails_errs_alone_and_nobody_waits_for_it;
    FakesLeaving: case_29_what_was_launched_and_could_not_be_watched_is_kept,
        case_30_no_failure_of_a_call_in_a_drop_panics_and_each_is_counted;
];

fn a_future_dropped_in_flight_frees_nothing_before_the_end<R: OpsRig>(rig: &R) {
    let (owner, start) = (Arc::new(()), Wall::now());
    let mut future = rig.busy(ms(50), Arc::clone(&owner)).on(rig.runtime());
    assert!(poll_once(&mut future).is_pending());
    let calls = rig.calls_here();
    drop(future);
    assert_eq!(rig.calls_here(), calls, "no call is made");
    let kept = Arc::strong_count(&owner) == 2;
    assert!(kept || start.elapsed() >= Duration::from_millis(50), "the device is at work");
    rig.settle();
    assert_eq!(Arc::strong_count(&owner), 1, "let go though nobody asks");
    assert!(start.elapsed() >= Duration::from_millis(50));
}

fn a_forgotten_future_is_sound_and_its_owners_are_let_go<R: OpsRig>(rig: &R) {
    let owner = Arc::new(());
    let mut future = rig.busy(ms(50), Arc::clone(&owner)).on(rig.runtime());
    assert!(poll_once(&mut future).is_pending());
    std::mem::forget(future);
    rig.settle();
    assert_eq!(Arc::strong_count(&owner), 1);
}

fn a_readback_that_nobody_awaits_any_more_keeps_its_memory_until_the_copy_has_ended<R: OpsRig>(rig: &R) {
    let single = rig.runtime().with_policy(&SingleStream).unwrap();
    let tensor = block_on(Tensor::full(64, 1_u8).on(&single)).unwrap();
    let start = Wall::now();
    let mut before = rig.occupy(ms(50)).on(&single);
    let mut read = tensor.to_host().on(&single);
    assert!(poll_once(&mut before).is_pending() && poll_once(&mut read).is_pending());
    drop((before, read, tensor));
    if let Some(used) = rig.in_use() {
        assert!(used == (1, 1) || start.elapsed() >= Duration::from_millis(50), "{used:?}");
    }
    rig.settle_clean();
}

fn values_thrown_away_in_a_chain_live_until_completion<R: OpsRig>(rig: &R) {
    let (start, occupy) = (Wall::now(), rig.occupy(ms(50)));
    let op = Tensor::full(64, 1_u8).then(|tensor| {
        drop(tensor);
        occupy.map(|()| 5)
    });
    let mut future = op.on(rig.runtime());
    assert!(poll_once(&mut future).is_pending());
    if let Some((buffers, _)) = rig.in_use() {
        assert!(buffers == 1 || start.elapsed() >= Duration::from_millis(50));
    }
    assert_eq!(block_on(future).unwrap(), 5);
    rig.settle_clean();
}

/// Enqueues work that uses an owner, and then fails or panics.
struct HalfWay<D: port::Launch, T>(Busy<D, T>, bool);

impl<D: port::Launch, T: Send + 'static> DeviceOp for HalfWay<D, T> {
    type Device = D;
    type Pending = ();
    type Output = ();

    fn execute(self, submission: &mut Submission<D>) -> Result<(), Error> {
        self.0.execute(submission)?;
        assert!(self.1, "half way");
        Err(Error::new(ErrorCode::Backend, [&"test", &"execute", &"half way"]))
    }

    fn finish((): ()) -> Result<(), Error> {
        Ok(())
    }
}

device_op!([D, T] HalfWay<D, T> where D: port::Launch, T: Send + 'static);

fn a_submission_that_fails_or_panics_half_way_keeps_its_owners_until_its_work_is_done<R: OpsRig>(rig: &R) {
    for fails in [true, false] {
        let (owner, start) = (Arc::new(()), Wall::now());
        let mut future = HalfWay(rig.busy(ms(50), Arc::clone(&owner)), fails).on(rig.runtime());
        let polled = catch_unwind(AssertUnwindSafe(|| poll_once(&mut future)));
        assert_eq!(polled.is_ok(), fails);
        drop(future);
        let kept = Arc::strong_count(&owner) == 2;
        assert!(kept || start.elapsed() >= Duration::from_millis(50));
        rig.settle();
        assert_eq!(Arc::strong_count(&owner), 1);
        assert!(start.elapsed() >= Duration::from_millis(50));
    }
}

/// Its destructor panics.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::resume_unwind(Box::new(()));
        }
    }
}

fn an_owner_whose_drop_panics_is_counted_and_keeps_no_other<R: OpsRig>(rig: &R) {
    let owner = Arc::new(());
    let other = rig.busy(ms(1), Arc::clone(&owner));
    let op = rig.busy(ms(1), Panics).then(move |()| other);
    block_on(op.on(rig.runtime())).unwrap();
    assert_eq!((Arc::strong_count(&owner), rig.runtime().counts().panics), (1, 1));
}

fn case_20_a_forgotten_future_whose_inputs_are_dropped_frees_them_only_after_completion<R: OpsRig>(rig: &R) {
    let single = rig.runtime().with_policy(&SingleStream).unwrap();
    let tensor: Tensor<u8, R::Device> = block_on(Tensor::full(64, 1).on(&single)).unwrap();
    let target: Tensor<u8, R::Device> = block_on(Tensor::full(64, 2).on(&single)).unwrap();
    let start = Wall::now();
    let mut before = rig.occupy(ms(50)).on(&single);
    let mut copy = tensor.copy_to(target).map(drop).on(&single);
    assert!(poll_once(&mut before).is_pending() && poll_once(&mut copy).is_pending());
    std::mem::forget(copy);
    drop((tensor, before));
    if let Some((buffers, _)) = rig.in_use() {
        assert!(buffers == 2 || start.elapsed() >= Duration::from_millis(50), "the device copies");
    }
    rig.settle_clean();
}

fn case_28_a_task_that_is_aborted_after_its_first_poll_frees_nothing_in_use<R: OpsRig>(rig: &R) {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    for polls in 0..8 {
        let runtime = rig.runtime().clone();
        let (occupy, affine) = (rig.occupy(ms(5)), rig.affines());
        let task = tokio.spawn(runtime.clone().scope(async move {
            let tensor: Tensor<u32, R::Device> = Tensor::full(64, 1).await?;
            occupy.await?;
            wakeline_tests::ops_rig::affine(affine, &tensor, 3, 4).await?;
            tensor.to_host().await
        }));
        std::thread::sleep(Duration::from_millis(polls));
        task.abort();
        match tokio.block_on(task) {
            Ok(ended) => assert_eq!(ended.unwrap(), [7; 64]),
            Err(error) => assert!(error.is_cancelled(), "{error}"),
        }
    }
    rig.settle_clean();
}

fn case_29_a_future_of_a_second_of_work_is_dropped_in_no_time<R: OpsRig>(rig: &R) {
    let mut first = rig.occupy(ms(1_000)).on(rig.runtime());
    assert!(poll_once(&mut first).is_pending());
    // The least of some: this thread may lose its processor in one.
    let drops = (0..20).map(|_| {
        let mut future = rig.busy(ms(0), vec![0_u8; 64]).on(rig.runtime());
        let _ = poll_once(&mut future);
        let start = Wall::now();
        drop(future);
        start.elapsed()
    });
    let least = drops.min().unwrap();
    assert!(least < Duration::from_millis(1), "{least:?}");
    let start = Wall::now();
    drop(first);
    assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
}

fn case_17_an_operation_whose_enqueue_fails_errs_alone_and_nobody_waits_for_it<D: Vendor>(
    rig: &VendorRig<D>,
) {
    let single = rig.runtime().with_policy(&SingleStream).unwrap();
    let mut first = rig.occupy(ms(20)).on(&single);
    assert!(poll_once(&mut first).is_pending());
    let (owner, fake) = (Arc::new(()), rig.fake());
    fake.rule(Rule::new("cuLaunchKernel", Act::Fail(Status::INVALID_VALUE)).skip(1).times(1));
    let (second, third) = (rig.occupy(ms(1)), rig.occupy(ms(1)));
    let refused = rig.busy(ms(1), Arc::clone(&owner)).then(|()| second).then(|()| third);
    let error = block_on(refused.on(&single)).unwrap_err();
    assert!(error.to_string().contains(D::call("cuLaunchKernel")), "{error}");
    block_on(first).unwrap();
    block_on(rig.occupy(ms(1)).on(&single)).unwrap();
    rig.settle();
    assert_eq!((Arc::strong_count(&owner), single.counts().leaked), (1, 0));
}

fn case_29_what_was_launched_and_could_not_be_watched_is_kept<D: Vendor>(rig: &VendorRig<D>) {
    // Before the launch it is asked as well: what fails there is refused, and nothing is kept.
    for (call, before_it) in [("cuStreamIsCapturing", 1), ("cuStreamWriteValue64", 0)] {
        let (owner, before) = (Arc::new(()), rig.runtime().counts());
        rig.fake().rule(Rule::new(call, Act::Fail(Status::INVALID_VALUE)).skip(before_it).times(1));
        let error = block_on(rig.busy(ms(20), Arc::clone(&owner)).on(rig.runtime())).unwrap_err();
        assert!(error.to_string().contains(D::call(call)), "{error}");
        let counts = rig.runtime().counts();
        assert_eq!((Arc::strong_count(&owner), counts.leaked - before.leaked), (2, 1), "{call}");
        // What failed was that operation alone.
        block_on(value::<<VendorRig<D> as OpsRig>::Device, _>(1).on(rig.runtime())).unwrap();
    }
}

fn case_30_no_failure_of_a_call_in_a_drop_panics_and_each_is_counted<D: Vendor>(rig: &VendorRig<D>) {
    let fake = rig.fake();
    for call in ["cuMemFreeAsync", "cuCtxGetCurrent", "cuThreadExchangeStreamCaptureMode", "cuStreamDestroy"]
    {
        for status in [1, 2, 400, 999] {
            let (counts, census) = (rig.runtime().counts(), rig.rig().driver().counts());
            let runtime = rig.another(1);
            let stream = runtime.stream(port::Priority::Normal).unwrap();
            let tensor = Tensor::full(16, 1_u8).sync_on(&stream).unwrap();
            let begun = rig.fake().calls(call);
            let rule = fake.rule(Rule::new(call, Act::Fail(Status(status))));
            let frees = runtime.counts().frees_failed;
            drop((tensor, stream));
            assert!(fake.hits(rule) > 0, "{call} is called in a drop: {begun}");
            let counted = runtime.counts().frees_failed - frees;
            drop(runtime);
            fake.clear_rules();
            let dropped = rig.rig().driver().counts().drop_failures - census.drop_failures;
            assert!(counted + dropped > 0, "{call}: {status}");
            assert_eq!(rig.runtime().counts(), counts, "nobody else is told");
        }
    }
    block_on(rig.occupy(ms(1)).on(rig.runtime())).unwrap();
    until("all lands", || rig.runtime().counts().in_flight() == 0);
}
