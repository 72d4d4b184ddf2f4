//! Who stores the words of operations: the stream, a function of the host, or nobody; and what ends them then.

use std::time::{Duration, Instant as Wall};

use wakeline_core::{ErrorCode, Nanos};
use wakeline_fake_driver::{Act, Rule, Status, thread_id};
use wakeline_mapped::work::{AFFINE, OCCUPY, TRAP};
use wakeline_mapped::{CompletionPath, ContextConfig, DEVICE_BYTES_KEPT, Fault, OpDevice};
use wakeline_ops::{Completion, DeviceOp, PLAN, Runtime, RuntimeConfig, SingleStream};
use wakeline_std::{Point, Watcher, block_on};
use wakeline_tensor::{KernelArg, Launch, Tensor, launch};
use wakeline_tests::device_tests;
use wakeline_tests::ops_rig::{CudaRig, ONE, OpsRig, VendorRig, affine, poll_once, poll_then_wait, until};

use crate::ms;
use wakeline_tests::vendor::Vendor;

device_tests![
    Vendors: operations_end_whoever_stores_their_words;
    VendorsLeaving: a_fault_ends_operations_whose_words_callbacks_store,
        a_fault_ends_operations_that_only_ask;
    Fakes: an_operation_ends_by_its_word_and_no_query,
        a_number_that_a_callback_may_have_stored_ends_no_later_operation,
        memory_is_freed_in_a_context_that_was_told_to_close;
    Fake: a_task_that_is_woken_early_warms_what_comes_next;
];

/// Plans under both authorities.
const PLANS: [&str; 2] = ["flag:park_us=50,backstop_us=2000", "flag:park_us=50,backstop_us=2000+trust"];

/// A runtime in a context of its own whose words are stored so.
fn runtime<D: Vendor>(rig: &VendorRig<D>, completion: CompletionPath, plan: &str) -> Runtime<OpDevice<D>> {
    let config = ContextConfig { completion, ..ContextConfig::default() };
    let context = rig.rig().context_beside(&config).unwrap();
    assert_eq!(context.completion(), completion);
    rig.runtime_of(OpDevice::in_context(context, DEVICE_BYTES_KEPT).unwrap(), 2, plan)
}

fn operations_end_whoever_stores_their_words<D: Vendor>(rig: &VendorRig<D>) {
    for completion in [CompletionPath::Word, CompletionPath::Callback, CompletionPath::Poll] {
        for plan in PLANS {
            let runtime = runtime(rig, completion, plan);
            let module = D::kernels(runtime.device().context()).unwrap();
            let kernel = module.function(AFFINE).unwrap();
            for round in 0..8_u32 {
                let kernel = kernel.clone();
                let op = Tensor::<_, OpDevice<D>>::from_host(vec![round; 100])
                    .then(move |tensor| affine(kernel, &tensor, 10, 3).then(move |()| tensor.to_host()));
                let mut future = op.on(&runtime);
                if round % 4 == 3 {
                    let _ = poll_once(&mut future);
                } else {
                    let numbers = poll_then_wait(future).unwrap();
                    assert_eq!(numbers, [round * 10 + 3; 100], "{completion}, {plan}");
                }
            }
            until("flights end", || runtime.counts().in_flight() == 0);
            assert_eq!(runtime.counts().leaked, 0, "{completion}, {plan}");
        }
    }
}

/// Once, before it watches; and not by a plan that does not say so, nor where nothing is slept through.
fn a_task_that_is_woken_early_warms_what_comes_next(rig: &CudaRig) {
    let launches = |plan: &str, length, times: u64| {
        let runtime = runtime(rig, CompletionPath::Word, plan);
        let before = rig.fake().calls("cuLaunchKernel");
        (0..times).for_each(|_| block_on(rig_occupy(&runtime, length).on(&runtime)).unwrap());
        rig.fake().calls("cuLaunchKernel") - before - times
    };
    // On a busy machine each may be woken late.
    let warms = (0..8).map(|_| launches(PLAN, ms(15), 12)).find(|warms| *warms > 0);
    assert!(warms.is_some_and(|warms| warms <= 12), "{warms:?}");
    assert_eq!(launches(&PLAN.replace("+warm", ""), ms(15), 6), 0);
    // Unless this machine was away for long.
    assert!(launches(PLAN, Nanos::from_micros(20), 50) < 25);
}

fn rig_occupy<D: Vendor>(runtime: &Runtime<OpDevice<D>>, length: Nanos) -> Launch<OpDevice<D>> {
    let module = D::kernels(runtime.device().context()).unwrap();
    let kernel = module.function(OCCUPY).unwrap();
    #[expect(unsafe_code, reason = "kernels are launched")]
    // SAFETY: it takes a number and writes nothing.
    unsafe {
        launch(kernel, ONE, vec![KernelArg::word(length.as_nanos())])
    }
}

fn a_fault_ends_operations_whose_words_callbacks_store<D: Vendor>(rig: &VendorRig<D>) {
    ends_by_a_fault(rig, CompletionPath::Callback);
}

fn a_fault_ends_operations_that_only_ask<D: Vendor>(rig: &VendorRig<D>) {
    ends_by_a_fault(rig, CompletionPath::Poll);
}

fn ends_by_a_fault<D: Vendor>(rig: &VendorRig<D>, completion: CompletionPath) {
    let runtimes = PLANS.map(|plan| runtime(rig, completion, plan));
    let mut pending = Vec::new();
    for runtime in &runtimes {
        let module = D::kernels(runtime.device().context()).unwrap();
        let [occupy, traps] = [OCCUPY, TRAP].map(|name| module.function(name).unwrap());
        let word = vec![KernelArg::word(ms(5_000).as_nanos())];
        #[expect(unsafe_code, reason = "kernels are launched")]
        // SAFETY: it takes a number and writes nothing.
        let occupies = unsafe { launch(occupy, ONE, word) };
        #[expect(unsafe_code, reason = "kernels are launched")]
        // SAFETY: it takes nothing and writes nowhere that anything is.
        let traps = unsafe { launch(traps, ONE, Vec::new()) };
        let ops = [occupies, traps];
        pending.extend(ops.map(|op| op.on(runtime)));
    }
    for future in &mut pending {
        // Where the first context's fault is told by then, the second's operations end with it at once.
        let _ = poll_once(future);
    }
    let start = Wall::now();
    for future in pending {
        let error = match block_on(future) {
            Err(error) if error.code() == ErrorCode::PolledAfterEnd => continue,
            ended => ended.unwrap_err(),
        };
        assert!(error.to_string().contains(D::status(Fault::Trap)), "{error}");
    }
    let bound = rig.fault_delay() + Duration::from_millis(500);
    assert!(start.elapsed() < bound, "after {:?}", start.elapsed());
}

fn an_operation_ends_by_its_word_and_no_query<D: Vendor>(rig: &VendorRig<D>) {
    let runtime = rig.runtime_of(rig.device().clone(), 1, "flag:park_us=50,backstop_us=1000000+trust");
    let chain = || Tensor::from_host(vec![1_u32; 64]).then(|tensor| tensor.to_host());
    assert_eq!(block_on(chain().on(&runtime)).unwrap(), [1; 64]);
    until("flights end", || runtime.counts().in_flight() == 0);
    rig.fake().clear_log();
    for _ in 0..20 {
        assert_eq!(block_on(chain().on(&runtime)).unwrap(), [1; 64]);
    }
    until("flights end", || runtime.counts().in_flight() == 0);
    let log = rig.rig().log();
    let asked: Vec<_> =
        log.iter().filter(|call| ["cuStreamQuery", "cuEventQuery"].contains(&call.name.as_str())).collect();
    assert!(asked.is_empty(), "{asked:?}");
    let elsewhere: Vec<_> = log
        .iter()
        .filter(|call| call.thread != thread_id())
        .map(|call| call.name.as_str())
        .filter(|name| {
            !["cuCtxGetCurrent", "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode", "cuMemFreeAsync"]
                .contains(name)
        })
        .collect();
    assert!(elsewhere.is_empty(), "the watcher frees what is let go, and calls nothing else: {elsewhere:?}");
    assert_eq!(rig.fake().calls("cuStreamWriteValue64"), 20);
}

/// The driver takes the function, calls it, and says that something went wrong: the number that it stored is not the next one's.
fn a_number_that_a_callback_may_have_stored_ends_no_later_operation<D: Vendor>(rig: &VendorRig<D>) {
    let watcher = Watcher::new().unwrap();
    let config = RuntimeConfig::default().completion(Completion::Callback);
    let tender = watcher.handle().tender(&Point::new("ops"));
    let runtime = Runtime::with_config(rig.device().clone(), &SingleStream, tender, config).unwrap();
    for _ in 0..100 {
        rig.fake().rule(Rule::new("cuLaunchHostFunc", Act::FailAfter(Status(1))).times(1));
        block_on(rig_occupy(&runtime, Nanos::from_micros(1)).on(&runtime)).unwrap();
        rig.fake().clear_rules();
        let start = Wall::now();
        block_on(rig_occupy(&runtime, ms(3)).on(&runtime)).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(3), "{:?}", start.elapsed());
    }
}

fn memory_is_freed_in_a_context_that_was_told_to_close<D: Vendor>(rig: &VendorRig<D>) {
    let runtime = runtime(rig, CompletionPath::Word, PLANS[1]);
    let tensor = block_on(Tensor::<_, OpDevice<D>>::from_host(vec![1_u32; 1_000]).on(&runtime)).unwrap();
    let error = runtime.device().context().clone().close(Duration::ZERO).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ContextInUse);
    until("flights end", || runtime.counts().in_flight() == 0);
    drop(tensor);
    assert_eq!(runtime.counts().frees_failed, 0);
}
