//! Stores that do not land, or that nobody can make: what is done instead, and what is said of it.

use std::time::{Duration, Instant as Wall};

use wakeline_core::{Arming, CompletionPort, ErrorCode, Strictness};
use wakeline_fake_driver::{Act, Rule, RuleId, Status};
use wakeline_mapped::{CALLBACK_LATE_MS_MAX, CompletionPath, Context, ContextConfig, Kernels};
use wakeline_tests::driver_tests;
use wakeline_tests::rig::Rig;
use wakeline_tests::vendor::Vendor;

use crate::waiting::{PLANS, lands, ms, wait};

driver_tests![
    Both: each_path_that_is_asked_for_runs,
        case_42_a_blocking_wait_takes_no_processor;
    FakeLeaving: case_39_a_store_that_never_lands_is_found_at_the_start,
        where_nothing_lands_waits_ask_and_end_well,
        a_store_lost_later_costs_a_strict_wait_one_backstop_and_is_told_to_a_trusting_one;
    Fake: a_host_function_that_runs_late_is_no_lost_store,
        case_45_a_driver_that_does_not_support_stores_says_so_once,
        strict_settings_refuse_what_cannot_be_had,
        limits_out_of_range_are_refused;
];

const LIMIT: Duration = Duration::from_secs(20);

/// How often is tried what a busy machine may spoil.
const ATTEMPTS: u32 = 5;

fn with<D: Vendor>(rig: &Rig<D>, config: ContextConfig) -> Context<D> {
    rig.context_beside(&config).unwrap()
}

fn ends_well<D: Vendor>(rig: &Rig<D>, context: &Context<D>) {
    let _ = rig;
    let kernels = Kernels::load(context).unwrap();
    let stream = context.stream().unwrap();
    for text in PLANS {
        kernels.occupy(&stream, ms(2)).unwrap();
        wait(text, &mut stream.port().unwrap()).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

fn each_path_that_is_asked_for_runs<D: Vendor>(rig: &Rig<D>) {
    for completion in [CompletionPath::Word, CompletionPath::Callback, CompletionPath::Poll] {
        let config = ContextConfig { completion, strictness: Strictness::Strict, ..ContextConfig::default() };
        let context = with(rig, config);
        assert_eq!(context.completion(), completion);
        assert!(context.warnings().is_empty());
        let stream = context.stream().unwrap();
        let mut port = stream.port().unwrap();
        let arming = port.arm().unwrap();
        assert_eq!(arming == Arming::Armed, completion != CompletionPath::Poll);
        assert!(port.descriptor().is_none() || lands(&port, LIMIT));
        drop((port, stream));
        ends_well(rig, &context);
    }
}

fn drop_stores<D: Vendor>(rig: &Rig<D>) -> RuleId {
    rig.stand_in().rule(Rule::new("cuStreamWriteValue64", Act::DropEffect))
}

/// The attribute said 1, and the store never landed.
fn case_39_a_store_that_never_lands_is_found_at_the_start<D: Vendor>(rig: &Rig<D>) {
    drop_stores(rig);
    let start = Wall::now();
    // So long, for the host function of the next probe may be late on a busy machine.
    let context = with(rig, ContextConfig { probe_ms_max: 400, ..ContextConfig::default() });
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(context.completion(), CompletionPath::Callback);
    let [warning] = context.warnings() else { panic!("{:?}", context.warnings()) };
    assert_eq!(warning.code(), ErrorCode::CompletionFallback);
    assert!(warning.to_string().contains("400 ms"), "{warning}");
    ends_well(rig, &context);
}

fn where_nothing_lands_waits_ask_and_end_well<D: Vendor>(rig: &Rig<D>) {
    drop_stores(rig);
    rig.stand_in().rule(Rule::new("cuLaunchHostFunc", Act::Fail(Status(801))));
    let context = with(rig, ContextConfig { probe_ms_max: 30, ..ContextConfig::default() });
    assert_eq!(context.completion(), CompletionPath::Poll);
    assert_eq!(context.warnings().len(), 1);
    ends_well(rig, &context);
}

/// An old driver said `NOT_SUPPORTED` at the first store.
fn case_45_a_driver_that_does_not_support_stores_says_so_once<D: Vendor>(rig: &Rig<D>) {
    let rule = rig.stand_in().rule(Rule::new("cuStreamWriteValue64", Act::Fail(Status(801))));
    let context = with(rig, ContextConfig { probe_ms_max: 2_000, ..ContextConfig::default() });
    assert_eq!(context.completion(), CompletionPath::Callback);
    assert_eq!(context.warnings().len(), 1);
    assert!(context.warnings()[0].to_string().contains("not supported"), "{}", context.warnings()[0]);
    ends_well(rig, &context);
    assert_eq!(rig.stand_in().hits(rule), 1, "it is not tried again");
}

fn strict_settings_refuse_what_cannot_be_had<D: Vendor>(rig: &Rig<D>) {
    rig.stand_in().rule(Rule::new("cuStreamWriteValue64", Act::Fail(Status(801))));
    let config = ContextConfig { strictness: Strictness::Strict, ..ContextConfig::default() };
    let error = rig.context_beside(&config).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CompletionRefused, "{error}");
    assert_eq!(error.args()[0], "word");
}

fn limits_out_of_range_are_refused<D: Vendor>(rig: &Rig<D>) {
    for (config, name) in [
        (ContextConfig { probe_ms_max: 0, ..ContextConfig::default() }, "probe_ms_max"),
        (ContextConfig { probe_ms_max: 10_001, ..ContextConfig::default() }, "probe_ms_max"),
        (ContextConfig { slots_max: 511, ..ContextConfig::default() }, "slots_max"),
        (ContextConfig { slots_max: (1 << 20) + 1, ..ContextConfig::default() }, "slots_max"),
    ] {
        let error = rig.context_beside(&config).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidLimit);
        assert_eq!(error.args()[0], name);
    }
    assert_eq!(rig.stand_in().live().contexts, 1, "the rig's alone");
}

fn a_store_lost_later_costs_a_strict_wait_one_backstop_and_is_told_to_a_trusting_one<D: Vendor>(
    rig: &Rig<D>,
) {
    let context = with(rig, ContextConfig::default());
    drop_stores(rig);
    let stream = context.stream().unwrap();
    let report = wait("flag:park_us=100,backstop_us=2000", &mut stream.armed_port().unwrap()).unwrap();
    assert!(report.elapsed < ms(2_000), "{}", report.elapsed);
    let error =
        wait("flag:park_us=100,backstop_us=2000+trust", &mut stream.armed_port().unwrap()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::StoreLost);
}

/// A wait that was to block span.
fn case_42_a_blocking_wait_takes_no_processor<D: Vendor>(rig: &Rig<D>) {
    let (cpu, wall) = (wakeline_std::usage::thread_cpu_time().unwrap(), Wall::now());
    let stream = rig.busy(ms(1_000));
    let mut port = stream.port().unwrap();
    wait("block", &mut port).unwrap();
    let cpu = wakeline_std::usage::thread_cpu_time().unwrap() - cpu;
    let wall = u64::try_from(wall.elapsed().as_nanos()).unwrap();
    assert!(wall >= 900_000_000, "{wall}");
    assert!(cpu.as_nanos() * 5 < wall, "{cpu} of {wall} ns");
}

/// The driver calls host functions one after the other, and another's was long.
fn a_host_function_that_runs_late_is_no_lost_store<D: Vendor>(rig: &Rig<D>) {
    extern "C" fn sleeps(_: *mut core::ffi::c_void) {
        std::thread::sleep(Duration::from_millis(40));
    }
    let config = ContextConfig {
        completion: CompletionPath::Callback,
        probe_ms_max: 2_000,
        ..ContextConfig::default()
    };
    let context = with(rig, config);
    let stream = context.stream().unwrap();
    let other = rig.stream();
    let once = || {
        let bound = rig.context().bind().unwrap();
        // SAFETY: the context is bound, and the stream of it and alive; the function takes nothing.
        unsafe { rig.driver().call_host(other.raw(), sleeps, core::ptr::null_mut()) }.unwrap();
        drop(bound);
        let start = Wall::now();
        for text in [PLANS[5], PLANS[3]] {
            let ended = wait(text, &mut stream.armed_port().unwrap());
            // Others had the processor for longer than a host function may be late: that says nothing.
            if ended.is_err() && start.elapsed() > Duration::from_millis(CALLBACK_LATE_MS_MAX) {
                return false;
            }
            ended.unwrap_or_else(|error| panic!("{text}: {error}"));
        }
        assert!(start.elapsed() >= Duration::from_millis(30), "{:?}: it was not late", start.elapsed());
        true
    };
    assert!((0..ATTEMPTS).any(|_| once()), "the machine was busy all the time");
}
