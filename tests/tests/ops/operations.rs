//! Operations are lazy, compose, and run where they were told to, on whatever device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant as Wall};

use wakeline_core::{Error, ErrorCode};
use wakeline_ops::port::{Launch, Priority};
use wakeline_ops::{DeviceOp, IN_FLIGHT_MAX, Runtime, SingleStream, value};
use wakeline_std::block_on;
use wakeline_tensor::Tensor;
use wakeline_tests::device_tests;
use wakeline_tests::ops_rig::{OpsRig, VendorRig, affine, poll_once};

use crate::ms;
use wakeline_tests::vendor::Vendor;

device_tests![
    Everywhere: nothing_is_submitted_before_it_is_polled,
        one_generic_program_runs_on_every_device,
        it_is_awaited_on_a_runtime_of_one_thread,
        it_is_awaited_on_a_runtime_of_several_threads,
        operations_of_several_streams_run_at_once_and_of_one_in_turn,
        map_runs_at_submission_and_map_host_after_completion,
        it_waits_on_the_spot_in_a_stream_of_each_priority,
        what_is_submitted_without_a_wait_is_ordered_before_what_comes_later,
        an_operation_without_a_runtime_is_an_error_and_a_scope_binds_one,
        a_full_stream_has_operations_wait_as_futures_and_wakes_them;
    Fakes: a_chain_stays_in_one_stream_and_operations_go_round;
];

fn nothing_is_submitted_before_it_is_polled<R: OpsRig>(rig: &R) {
    let before = rig.calls_here();
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let op = Tensor::full(4, 0_u8).then(move |tensor| {
        count.fetch_add(1, Ordering::Relaxed);
        tensor.to_host()
    });
    let future = op.on(rig.runtime());
    drop(future);
    assert_eq!((rig.calls_here(), ran.load(Ordering::Relaxed)), (before, 0));
    assert_eq!(rig.runtime().counts().begun, 0);
}

/// From the host, through kernels and a copy, back to the host: for any device.
async fn program<D: Launch>(
    runtime: &Runtime<D>,
    kernel: D::Kernel,
    numbers: Vec<u32>,
) -> Result<Vec<u32>, Error> {
    let twice = Tensor::from_host(numbers).then(move |tensor: Tensor<u32, D>| {
        let first = affine(kernel.clone(), &tensor, 3, 1);
        first.then(move |()| affine(kernel, &tensor, 2, 5).map(move |()| tensor))
    });
    let tensor = twice.on(runtime).await?;
    let target = Tensor::full(tensor.len(), 0).on(runtime).await?;
    let copy = tensor.copy_to(target).on(runtime).await?;
    let back = copy.to_host().map_host(|numbers| numbers.iter().map(|number| number + 1).collect());
    back.on(runtime).await
}

fn expected(numbers: &[u32]) -> Vec<u32> {
    numbers.iter().map(|number| (number * 3 + 1) * 2 + 5 + 1).collect()
}

fn one_generic_program_runs_on_every_device<R: OpsRig>(rig: &R) {
    // Of a length that no block of threads divides.
    let numbers: Vec<u32> = (0..100_003).collect();
    let wanted = expected(&numbers);
    assert_eq!(block_on(program(rig.runtime(), rig.affines(), numbers)).unwrap(), wanted);
    let none = block_on(program(rig.runtime(), rig.affines(), Vec::new())).unwrap();
    assert!(none.is_empty());
    rig.settle_clean();
}

fn it_is_awaited_on_a_runtime_of_one_thread<R: OpsRig>(rig: &R) {
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let local = tokio.block_on(async {
        let both =
            [1_u32, 50].map(|first| program(rig.runtime(), rig.affines(), (first..first + 9).collect()));
        let [one, other] = both;
        (one.await.unwrap(), other.await.unwrap())
    });
    let wanted = |first: u32| expected(&(first..first + 9).collect::<Vec<_>>());
    assert_eq!(local, (wanted(1), wanted(50)));
    rig.settle_clean();
}

fn it_is_awaited_on_a_runtime_of_several_threads<R: OpsRig>(rig: &R) {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let tasks: Vec<_> = (0..16_u32)
        .map(|task| {
            let (runtime, kernel) = (rig.runtime().clone(), rig.affines());
            let numbers: Vec<u32> = (task..task + 100).collect();
            let wanted = expected(&numbers);
            (tokio.spawn(async move { program(&runtime, kernel, numbers).await }), wanted)
        })
        .collect();
    for (task, wanted) in tasks {
        assert_eq!(tokio.block_on(task).unwrap().unwrap(), wanted);
    }
    rig.settle_clean();
}

fn operations_of_several_streams_run_at_once_and_of_one_in_turn<R: OpsRig>(rig: &R) {
    let (long, start) = (ms(400), Wall::now());
    let mut first = rig.occupy(long).on(rig.runtime());
    assert!(poll_once(&mut first).is_pending());
    block_on(rig.occupy(ms(1)).on(rig.runtime())).unwrap();
    // On a machine that is busy beyond that nothing can be told.
    let done = poll_once(&mut first).is_ready();
    assert!(!done || start.elapsed().as_nanos() >= long.as_nanos().into(), "they ran one after the other");
    if !done {
        block_on(first).unwrap();
    }
    assert!(start.elapsed().as_nanos() >= long.as_nanos().into());

    let single = rig.runtime().with_policy(&SingleStream).unwrap();
    let start = Wall::now();
    let mut first = rig.occupy(ms(20)).on(&single);
    assert!(poll_once(&mut first).is_pending());
    block_on(rig.occupy(ms(20)).on(&single)).unwrap();
    assert!(start.elapsed().as_nanos() >= ms(40).as_nanos().into(), "{:?}", start.elapsed());
    block_on(first).unwrap();
}

fn map_runs_at_submission_and_map_host_after_completion<R: OpsRig>(rig: &R) {
    let (mapped, landed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (at_submission, at_completion) = (Arc::clone(&mapped), Arc::clone(&landed));
    let op = rig.occupy(ms(20)).map(move |()| at_submission.fetch_add(1, Ordering::Relaxed));
    let mut future = op.map_host(move |_| at_completion.fetch_add(1, Ordering::Relaxed)).on(rig.runtime());
    assert!(poll_once(&mut future).is_pending());
    assert_eq!((mapped.load(Ordering::Relaxed), landed.load(Ordering::Relaxed)), (1, 0));
    rig.settle();
    assert_eq!(landed.load(Ordering::Relaxed), 0, "it runs where the operation is awaited");
    assert!(poll_once(&mut future).is_ready());
    assert_eq!(landed.load(Ordering::Relaxed), 1);
}

fn it_waits_on_the_spot_in_a_stream_of_each_priority<R: OpsRig>(rig: &R) {
    for priority in [Priority::Low, Priority::Normal, Priority::High] {
        let stream = rig.runtime().stream(priority).unwrap();
        let op = Tensor::from_host(vec![1.5_f64, -2.25]).then(|tensor| tensor.to_host());
        assert_eq!(op.sync_on(&stream).unwrap(), [1.5, -2.25]);
    }
    let mut future = Tensor::full(2, 3_u16).then(|tensor| tensor.to_host()).on(rig.runtime());
    // On a busy machine it may have ended by then.
    let numbers = match poll_once(&mut future) {
        std::task::Poll::Ready(numbers) => numbers,
        std::task::Poll::Pending => future.sync(),
    };
    assert_eq!(numbers.unwrap(), [3, 3]);
    rig.settle_clean();
}

fn what_is_submitted_without_a_wait_is_ordered_before_what_comes_later<R: OpsRig>(rig: &R) {
    let stream = rig.runtime().stream(Priority::Normal).unwrap();
    // SAFETY: the tensor is used by operations that order themselves.
    #[expect(unsafe_code, reason = "the escape hatch is under test")]
    let tensor = unsafe { Tensor::full(3, 7_u32).async_on(&stream) }.unwrap();
    block_on(rig.affine(&tensor, 2, 1).on(rig.runtime())).unwrap();
    assert_eq!(tensor.to_host().sync_on(&stream).unwrap(), [15; 3]);
    drop(tensor);
    rig.settle_clean();
}

fn an_operation_without_a_runtime_is_an_error_and_a_scope_binds_one<R: OpsRig>(rig: &R) {
    let op = || value::<R::Device, _>(1);
    assert_eq!(block_on(async { op().await }).unwrap_err().code(), ErrorCode::NoRuntime);
    assert_eq!(block_on(rig.runtime().scope(async { op().await })).unwrap(), 1);
    assert_eq!(rig.runtime().enter(|| op().sync()).unwrap(), 1);
    assert_eq!(op().sync().unwrap_err().code(), ErrorCode::NoRuntime);
}

fn a_full_stream_has_operations_wait_as_futures_and_wakes_them<R: OpsRig>(rig: &R) {
    let single = rig.runtime().with_policy(&SingleStream).unwrap();
    let mut first = rig.occupy(ms(1_500)).on(&single);
    assert!(poll_once(&mut first).is_pending());
    let mut flying: Vec<_> = (1..IN_FLIGHT_MAX).map(|n| value::<R::Device, _>(n).on(&single)).collect();
    for (number, future) in flying.iter_mut().enumerate() {
        let start = Wall::now();
        let pending = poll_once(future).is_pending();
        let took = start.elapsed();
        // A queue that is full has its caller wait for the device.
        assert!(took < Duration::from_millis(700), "the submission behind {number} others took {took:?}");
        assert!(pending);
    }
    let begun = single.counts().begun;
    let mut waits = value::<R::Device, _>(0).on(&single);
    assert!(poll_once(&mut waits).is_pending());
    assert_eq!(single.counts().begun, begun, "it waits for room");
    assert_eq!(block_on(waits).unwrap(), 0);
    assert_eq!(single.counts().begun, begun + 1);
    drop((first, flying));
}

/// Which streams the kernels were launched in.
fn a_chain_stays_in_one_stream_and_operations_go_round<D: Vendor>(rig: &VendorRig<D>) {
    let chain = || {
        let (first, second) = (rig.occupy(ms(0)), rig.occupy(ms(0)));
        first.then(|()| second)
    };
    let fake = rig.fake();
    fake.clear_log();
    for _ in 0..4 {
        block_on(chain().on(rig.runtime())).unwrap();
    }
    let log = rig.rig().log();
    let launches: Vec<_> =
        log.iter().filter(|call| call.name == "cuLaunchKernel").map(|call| call.stream.unwrap()).collect();
    assert_eq!(launches.len(), 8);
    let chains: Vec<_> = launches.chunks(2).map(|chain| (chain[0], chain[0] == chain[1])).collect();
    assert!(chains.iter().all(|(_, same)| *same), "{chains:?}");
    assert_eq!(chains[0].0, chains[3].0, "three streams in turn");
    assert!(chains[0].0 != chains[1].0 && chains[1].0 != chains[2].0 && chains[0].0 != chains[2].0);
}
