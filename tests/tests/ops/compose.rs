//! Composed operations: branches in several streams, shared ones, gates.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant as Wall};

use wakeline_core::{ErrorCode, Nanos};
use wakeline_fake_driver::{Act, Rule, Status};
use wakeline_ops::{DeviceOp, LeastLoaded, Shared, all, gate, unzip, value, zip};
use wakeline_std::block_on;
use wakeline_tensor::Tensor;
use wakeline_tests::device_tests;
use wakeline_tests::ops_rig::{OpsRig, VendorRig, affine, poll_once, until};

use crate::ms;
use wakeline_tests::vendor::Vendor;

device_tests![
    Everywhere: branches_run_at_a_time_and_what_is_behind_them_comes_after_all,
        branches_come_behind_what_is_in_front_of_them,
        a_panic_in_a_branch_leaves_nothing,
        a_shared_operation_runs_once_for_many_threads,
        parts_and_vectors_give_what_they_say,
        no_closure_executes_another_operation,
        what_is_behind_a_gate_starts_when_it_is_opened,
        a_gate_is_opened_by_its_deadline_and_by_the_drop_of_its_handle,
        many_are_awaited_a_few_at_a_time;
    EverywhereLeaving: a_fault_behind_a_closed_gate_is_told_by_its_deadline;
    FakesLeaving: a_stream_that_cannot_be_joined_is_seen_to_its_end_by_itself,
        without_waits_for_words_a_gate_is_an_error_and_nothing_waits;
    Fakes: gates_use_their_words_again_and_opening_one_makes_no_call;
];

/// Two tensors of one, each changed in a stream of its own.
fn diamond<R: OpsRig>(rig: &R) -> impl DeviceOp<Device = R::Device, Output = (Vec<u32>, Vec<u32>)> + use<R> {
    let (kernel, other) = (rig.affines(), rig.affines());
    Tensor::from_host((0..500_u32).collect()).then(move |from: Tensor<u32, R::Device>| {
        let from = Arc::new(from);
        let changed = |kernel, factor| {
            let from = Arc::clone(&from);
            let copy = Tensor::full(500, 0).then(move |to| from.copy_to(to));
            copy.then(move |tensor: Tensor<u32, R::Device>| {
                affine::<R::Device>(kernel, &tensor, factor, 1).then(move |()| tensor.to_host())
            })
        };
        zip!(changed(kernel, 2), changed(other, 3))
    })
}

fn branches_run_at_a_time_and_what_is_behind_them_comes_after_all<R: OpsRig>(rig: &R) {
    let length = ms(60);
    // The first of a kind loads what it needs.
    block_on(zip!(rig.occupy(ms(1)), rig.occupy(ms(1))).on(rig.runtime())).unwrap();
    let owner = Arc::new(());
    let three = || {
        let behind = rig.busy(ms(1), Arc::clone(&owner));
        zip!(rig.busy(length, Arc::clone(&owner)), rig.occupy(length), rig.busy(length, Arc::clone(&owner)))
            .then(move |_| behind)
    };
    let timed = |run: &dyn Fn()| {
        let start = Wall::now();
        run();
        start.elapsed()
    };
    let apart = timed(&|| block_on(three().on(rig.runtime())).unwrap());
    let in_turn = timed(&|| block_on(three().in_one_stream().on(rig.runtime())).unwrap());
    assert!(apart.as_nanos() >= length.as_nanos().into(), "it is done when all are: {apart:?}");
    assert!(in_turn >= Duration::from_millis(180) && apart < in_turn, "{apart:?} {in_turn:?}");
    assert!(apart < Duration::from_millis(170), "{apart:?}");
    let mut dropped = three().on(rig.runtime());
    assert!(poll_once(&mut dropped).is_pending());
    drop(dropped);
    assert!(Arc::strong_count(&owner) > 1);
    rig.settle();
    assert_eq!(Arc::strong_count(&owner), 1);
    rig.settle_clean();
}

fn branches_come_behind_what_is_in_front_of_them<R: OpsRig>(rig: &R) {
    let wanted = |factor: u32| (0..500).map(|number| number * factor + 1).collect::<Vec<u32>>();
    for _ in 0..20 {
        assert_eq!(block_on(diamond(rig).on(rig.runtime())).unwrap(), (wanted(2), wanted(3)));
    }
    let least = rig.runtime().scheduled(&LeastLoaded::default());
    let mut flying: Vec<_> = (0..20).map(|_| diamond(rig).on(&least)).collect();
    for future in &mut flying {
        let _ = poll_once(future).map(|result| assert_eq!(result.unwrap(), (wanted(2), wanted(3))));
    }
    flying.truncate(10);
    drop(flying);
    rig.settle_clean();
}

fn a_panic_in_a_branch_leaves_nothing<R: OpsRig>(rig: &R) {
    let owner = Arc::new(());
    let panics = value(()).map(|()| std::panic::resume_unwind(Box::new("on purpose")));
    let op = zip!(rig.busy(ms(5), Arc::clone(&owner)), rig.busy(ms(5), Arc::clone(&owner)), panics);
    let op = op.map(|((), (), ())| ());
    let mut future = op.on(rig.runtime());
    assert!(catch_unwind(AssertUnwindSafe(|| poll_once(&mut future))).is_err());
    drop(future);
    rig.settle();
    assert_eq!(Arc::strong_count(&owner), 1);
    rig.settle_clean();
}

fn a_shared_operation_runs_once_for_many_threads<R: OpsRig>(rig: &R) {
    let runtime = rig.runtime();
    for round in 0..10_u32 {
        let runs = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&runs);
        let shared = Tensor::from_host(vec![round; 256]).inspect(move |_: &Tensor<u32, R::Device>| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let shared = shared.shared();
        let read =
            |shared: &Shared<_>| shared.clone().then(|tensor: Arc<Tensor<u32, R::Device>>| tensor.to_host());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let op = zip!(read(&shared), read(&shared));
                scope.spawn(move || {
                    assert_eq!(block_on(op.on(runtime)).unwrap(), (vec![round; 256], vec![round; 256]));
                });
            }
        });
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }
    rig.settle_clean();
}

fn parts_and_vectors_give_what_they_say<R: OpsRig>(rig: &R) {
    let full = |number: u32| Tensor::<u32, R::Device>::full(64, number);
    let (one, two) = unzip!(zip!(full(1), full(2)));
    let two = block_on(two.then(|tensor| tensor.to_host()).on(rig.runtime())).unwrap();
    let one = one.then(|tensor| tensor.to_host()).on(rig.runtime()).sync().unwrap();
    assert_eq!((one, two), (vec![1; 64], vec![2; 64]));
    let reads = all((0..10).map(|n| full(n).boxed().then(|tensor| tensor.to_host()).boxed_host()));
    let reads = block_on(reads.on(rig.runtime())).unwrap();
    assert!(reads.into_iter().zip(0..).all(|(numbers, n)| numbers == [n; 64]));
    rig.settle_clean();
}

fn no_closure_executes_another_operation<R: OpsRig>(rig: &R) {
    let runtime = rig.runtime().clone();
    let nested = Tensor::full(4, 1_u32).then(move |tensor: Tensor<u32, R::Device>| {
        let on_the_spot = tensor.to_host().on(&runtime).sync().unwrap_err().code();
        let mut polled = tensor.to_host().on(&runtime);
        let polled = poll_once(&mut polled).map(|result| result.unwrap_err().code());
        assert_eq!(polled, std::task::Poll::Ready(on_the_spot));
        value(on_the_spot)
    });
    assert_eq!(block_on(nested.on(rig.runtime())).unwrap(), ErrorCode::NestedExecution);
    rig.settle_clean();
}

fn what_is_behind_a_gate_starts_when_it_is_opened<R: OpsRig>(rig: &R) {
    for _ in 0..20 {
        let tensor: Tensor<u32, R::Device> = block_on(Tensor::full(64, 1).on(rig.runtime())).unwrap();
        let (gate, opened) = gate(Nanos::from_millis(5_000)).unwrap();
        let (kernel, owner) = (rig.affines(), Arc::new(()));
        let kept = rig.busy(ms(1), Arc::clone(&owner));
        let op =
            opened.then(move |()| zip!(affine(kernel, &tensor, 2, 5), kept).then(move |_| tensor.to_host()));
        let mut future = op.on(rig.runtime());
        assert!(poll_once(&mut future).is_pending());
        std::thread::sleep(Duration::from_millis(2));
        assert!(poll_once(&mut future).is_pending() && Arc::strong_count(&owner) == 2);
        gate.open().unwrap();
        assert_eq!(block_on(future).unwrap(), [7; 64]);
    }
    rig.settle_clean();
}

fn a_gate_is_opened_by_its_deadline_and_by_the_drop_of_its_handle<R: OpsRig>(rig: &R) {
    let (handle, opened) = gate(ms(30)).unwrap();
    let work = rig.occupy(ms(1));
    let start = Wall::now();
    let error = block_on(opened.then(move |()| work).on(rig.runtime())).unwrap_err();
    assert_eq!(error.code(), ErrorCode::GateTimedOut, "{error}");
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert_eq!(handle.open().unwrap_err().code(), ErrorCode::GateTimedOut);
    let (handle, opened) = gate(ms(5_000)).unwrap();
    let work = rig.occupy(ms(1));
    let mut future = opened.then(move |()| work).on(rig.runtime());
    assert!(poll_once(&mut future).is_pending());
    drop(handle);
    assert_eq!(block_on(future).unwrap_err().code(), ErrorCode::GateDropped);
    rig.settle_clean();
}

fn many_are_awaited_a_few_at_a_time<R: OpsRig>(rig: &R) {
    let ops = (0..64_u32).map(|n| Tensor::<u32, R::Device>::full(16, n).then(|tensor| tensor.to_host()));
    let reads = block_on(rig.runtime().join_all(ops, 6)).unwrap();
    assert!(reads.into_iter().zip(0..).all(|(numbers, n)| numbers == [n; 16]));
    rig.settle_clean();
}

/// A GPU may tell of a fault only when its streams wait for no word any more: then by the gate's deadline.
fn a_fault_behind_a_closed_gate_is_told_by_its_deadline<R: OpsRig>(rig: &R) {
    let closed = Duration::from_secs(4);
    let (handle, opened) = gate(ms(4_000)).unwrap();
    let work = rig.occupy(ms(1));
    let mut future = opened.then(move |()| work).on(rig.runtime());
    assert!(poll_once(&mut future).is_pending());
    rig.break_device();
    let start = Wall::now();
    block_on(future).unwrap_err();
    let waits = if rig.tells_of_faults_behind_gates() { Duration::from_secs(3) } else { closed };
    assert!(start.elapsed() < waits + rig.fault_delay(), "{:?}", start.elapsed());
    // Whether or not its deadline came first.
    let _ = handle.open();
    assert!(block_on(rig.occupy(ms(1)).on(rig.runtime())).is_err(), "the device is broken");
}

fn a_stream_that_cannot_be_joined_is_seen_to_its_end_by_itself<D: Vendor>(rig: &VendorRig<D>) {
    let owner = Arc::new(());
    let op = || zip!(rig.busy(ms(10), Arc::clone(&owner)), rig.busy(ms(40), Arc::clone(&owner)));
    rig.fake().rule(Rule::new("cuStreamWaitEvent", Act::Fail(Status(1))).times(1));
    let error = block_on(op().on(rig.runtime())).unwrap_err();
    rig.fake().clear_rules();
    assert_eq!(error.code(), ErrorCode::Backend, "{error}");
    assert_eq!(Arc::strong_count(&owner), 3, "both are at work");
    until("the shorter is done", || rig.runtime().counts().landed >= 1);
    rig.settle();
    assert_eq!((Arc::strong_count(&owner), rig.runtime().counts().leaked), (1, 0));
    block_on(op().on(rig.runtime())).unwrap();
}

fn without_waits_for_words_a_gate_is_an_error_and_nothing_waits<D: Vendor>(rig: &VendorRig<D>) {
    for status in [801, 1, 719] {
        let (handle, opened) = gate(ms(5_000)).unwrap();
        rig.fake().rule(Rule::new("cuStreamWaitValue64", Act::FailAfter(Status(status))).times(1));
        let start = Wall::now();
        let error = block_on(opened.on(rig.runtime())).unwrap_err();
        rig.fake().clear_rules();
        assert_eq!(error.code(), ErrorCode::Backend, "{error}");
        assert!(handle.is_open());
        rig.settle();
        assert!(start.elapsed() < Duration::from_secs(4));
        drop(handle);
    }
}

fn gates_use_their_words_again_and_opening_one_makes_no_call<D: Vendor>(rig: &VendorRig<D>) {
    let once = || {
        let (handle, opened) = gate(ms(5_000)).unwrap();
        let mut future = opened.on(rig.runtime());
        assert!(poll_once(&mut future).is_pending());
        let calls = rig.calls_here();
        handle.open().unwrap();
        assert_eq!(rig.calls_here(), calls);
        block_on(future).unwrap();
        rig.settle();
    };
    once();
    let slots = rig.device().context().slots();
    (0..50).for_each(|_| once());
    let after = rig.device().context().slots();
    assert_eq!((after.owned + after.free, after.lost), (slots.owned + slots.free, slots.lost));
    assert!(after.owned <= slots.owned + 1, "{slots:?} {after:?}");
    assert_eq!(rig.fake().calls("cuStreamWaitValue64"), 51);
}
