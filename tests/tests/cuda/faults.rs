//! Kernels that fault: every wait of the context ends with the first cause, and others go on.

use std::time::{Duration, Instant as Wall};

use wakeline_core::{CompletionPort, Error, ErrorCode, Wait};
use wakeline_fake_driver::{Act, FaultEnds, Rule, Status};
use wakeline_mapped::{CompletionPath, Context, ContextConfig, Fault, Kernels, Port, Stream};
use wakeline_std::{Point, Watcher, block_on};
use wakeline_tests::driver_tests;
use wakeline_tests::rig::Rig;
use wakeline_tests::vendor::Vendor;

use crate::waiting::{PLANS, ms, plan, wait, wait_for};

driver_tests![
    // After a fault nobody knows of a store whether it will still land: its page, and thus its context, are leaked.
    BothLeaving: a_trap_ends_every_plan_with_its_cause,
        an_illegal_address_ends_every_plan_with_its_cause,
        a_failed_assertion_ends_every_plan_with_its_cause,
        case_9_a_fault_is_an_error_even_if_the_word_was_stored,
        another_contexts_waits_end_as_the_driver_says,
        a_watcher_tells_all_that_wait_in_the_context,
        a_fault_ends_waits_whose_words_callbacks_store;
    FakeLeaving: what_may_still_be_stored_into_after_a_fault_is_leaked_and_counted;
    FakeLeaving: another_contexts_waits_go_on_where_a_fault_is_its_contexts_alone;
    Fake: the_first_cause_is_told_without_a_call,
        a_failed_query_that_is_no_fault_ends_that_wait_alone;
    FakeLeaving: an_in_kernel_point_whose_kernel_faults_is_an_error;
];

/// A context beside the rig's, which a test may ruin.
struct Victim<D: Vendor> {
    context: Context<D>,
    kernels: Kernels<D>,
}

impl<D: Vendor> Victim<D> {
    fn new(rig: &Rig<D>) -> Self {
        Self::with(rig, &ContextConfig::default())
    }

    fn with(rig: &Rig<D>, config: &ContextConfig) -> Self {
        let context = rig.context_beside(config).unwrap();
        let kernels = Kernels::load(&context).unwrap();
        Self { context, kernels }
    }

    fn stream(&self) -> Stream<D> {
        self.context.stream().unwrap()
    }
}

/// Two backstops after the driver's first report, and what a busy machine adds.
fn bound<D: Vendor>(rig: &Rig<D>) -> Duration {
    rig.fault_delay() + Duration::from_millis(2 * 2 + 400)
}

/// What a wait behind a fault ends with. Where the driver tells of the fault before the point is made, that says so.
fn failure<D: Vendor>(text: &str, port: Result<Port<D>, Error>) -> Error {
    port.and_then(|mut port| wait(text, &mut port)).unwrap_err()
}

/// The point is made before the driver tells of the fault, on however busy a machine.
fn told_late<D: Vendor>(rig: &Rig<D>) {
    rig.stand_in().configure(|options| options.fault_delay_us = 700_000);
}

fn a_trap_ends_every_plan_with_its_cause<D: Vendor>(rig: &Rig<D>) {
    ends_every_plan(rig, Fault::Trap);
}

fn an_illegal_address_ends_every_plan_with_its_cause<D: Vendor>(rig: &Rig<D>) {
    ends_every_plan(rig, Fault::IllegalAddress);
}

fn a_failed_assertion_ends_every_plan_with_its_cause<D: Vendor>(rig: &Rig<D>) {
    ends_every_plan(rig, Fault::Assert);
}

fn ends_every_plan<D: Vendor>(rig: &Rig<D>, fault: Fault) {
    let victim = Victim::new(rig);
    let stream = victim.stream();
    victim.kernels.fault(&stream, fault).unwrap();
    let ports: Vec<_> = PLANS.iter().map(|_| stream.armed_port()).collect();
    for (text, port) in PLANS.into_iter().zip(ports) {
        let start = Wall::now();
        let error = failure(text, port);
        assert!(start.elapsed() < bound(rig), "{text}: after {:?}", start.elapsed());
        assert_eq!(error.code(), ErrorCode::Backend, "{text}: {error}");
        assert!(error.to_string().contains(D::status(fault)), "{text}: {error}");
    }
    let error = victim.context.health().unwrap_err();
    assert!(error.to_string().contains(D::status(fault)), "{error}");
    assert_eq!(stream.port().unwrap_err().code(), ErrorCode::Backend, "new points fail at once");
    assert_eq!(victim.context.stream().unwrap_err().code(), ErrorCode::Backend);
}

/// A null-pointer kernel's wait returned success.
fn case_9_a_fault_is_an_error_even_if_the_word_was_stored<D: Vendor>(rig: &Rig<D>) {
    let victim = Victim::new(rig);
    let (good, bad) = (victim.stream(), victim.stream());
    // Its word is there before the fault is known, and the wait is made after.
    let mut stored = good.armed_port().unwrap();
    assert!(crate::waiting::lands(&stored, Duration::from_secs(20)));
    victim.kernels.fault(&bad, Fault::IllegalAddress).unwrap();
    let error = failure(PLANS[3], bad.armed_port());
    assert!(error.to_string().contains(D::status(Fault::IllegalAddress)), "{error}");
    let error = wait(PLANS[3], &mut stored).unwrap_err();
    assert!(error.to_string().contains(D::status(Fault::IllegalAddress)), "{error}");
}

/// Driver 580 ends every context of a process, on every device; NVIDIA's documentation says of most faults that the process must end. What other contexts
/// are told is the driver's answer to them, never a hang.
fn another_contexts_waits_end_as_the_driver_says<D: Vendor>(rig: &Rig<D>) {
    let victim = Victim::new(rig);
    let bad = victim.stream();
    let done = rig.busy(ms(5));
    // Whose end was told before the fault was.
    wait(PLANS[3], &mut done.port().unwrap()).unwrap();
    let pending = rig.stream();
    rig.kernels().occupy(&pending, ms(20_000)).unwrap();
    let mut pending: Vec<_> = PLANS.iter().map(|_| pending.armed_port().unwrap()).collect();
    victim.kernels.fault(&bad, Fault::Trap).unwrap();
    failure(PLANS[3], bad.armed_port());
    for (text, port) in PLANS.into_iter().zip(&mut pending) {
        let start = Wall::now();
        let error = wait(text, port).unwrap_err();
        assert!(start.elapsed() < bound(rig), "{text}: after {:?}", start.elapsed());
        assert!(error.to_string().contains(D::status(Fault::Trap)), "{text}: {error}");
    }
    let error = rig.context().health().unwrap_err();
    assert!(error.to_string().contains(D::status(Fault::Trap)), "{error}");
    let error = rig.context_beside(&ContextConfig::default()).unwrap_err();
    assert!(error.to_string().contains(D::status(Fault::Trap)), "{error}");
}

fn another_contexts_waits_go_on_where_a_fault_is_its_contexts_alone<D: Vendor>(rig: &Rig<D>) {
    rig.stand_in().configure(|options| options.fault_ends = FaultEnds::Context);
    let victim = Victim::new(rig);
    let bad = victim.stream();
    let mut before = rig.busy(ms(5)).armed_port().unwrap();
    victim.kernels.fault(&bad, Fault::Trap).unwrap();
    failure(PLANS[3], bad.armed_port());
    wait(PLANS[3], &mut before).unwrap();
    let watcher = Watcher::new().unwrap();
    for text in PLANS {
        wait(text, &mut rig.busy(ms(1)).port().unwrap()).unwrap();
        block_on(watcher.wait(rig.busy(ms(1)).port().unwrap(), &plan(text), &Point::new("sound"))).unwrap();
    }
    rig.context().health().unwrap();
}

fn a_watcher_tells_all_that_wait_in_the_context<D: Vendor>(rig: &Rig<D>) {
    let victim = Victim::new(rig);
    let watcher = Watcher::new().unwrap();
    let point = Point::new("victim");
    let (bad, busy) = (victim.stream(), victim.stream());
    victim.kernels.occupy(&busy, ms(3_000)).unwrap();
    let text = plan("flag:park_us=50,backstop_us=2000+trust");
    let waits: Vec<_> = (0..20).map(|_| watcher.wait(busy.armed_port().unwrap(), &text, &point)).collect();
    block_on(watcher.wait(rig.busy(ms(1)).port().unwrap(), &text, &point)).unwrap();
    victim.kernels.fault(&bad, Fault::Trap).unwrap();
    let start = Wall::now();
    for wait in waits {
        let error = block_on(wait).unwrap_err();
        assert!(error.to_string().contains(D::status(Fault::Trap)), "{error}");
    }
    assert!(start.elapsed() < bound(rig), "{:?}", start.elapsed());
}

/// A host function behind a fault never runs.
fn a_fault_ends_waits_whose_words_callbacks_store<D: Vendor>(rig: &Rig<D>) {
    let config = ContextConfig { completion: CompletionPath::Callback, ..ContextConfig::default() };
    let victim = Victim::with(rig, &config);
    assert_eq!(victim.context.completion(), CompletionPath::Callback);
    let stream = victim.stream();
    wait(PLANS[3], &mut stream.port().unwrap()).unwrap();
    victim.kernels.fault(&stream, Fault::Trap).unwrap();
    let error = failure(PLANS[5], stream.armed_port());
    assert!(error.to_string().contains(D::status(Fault::Trap)), "{error}");
}

fn what_may_still_be_stored_into_after_a_fault_is_leaked_and_counted<D: Vendor>(rig: &Rig<D>) {
    let before = rig.driver().census().counts();
    let victim = Victim::new(rig);
    let stream = victim.stream();
    told_late(rig);
    victim.kernels.fault(&stream, Fault::Trap).unwrap();
    let mut port = stream.armed_port().unwrap();
    wait(PLANS[3], &mut port).unwrap_err();
    drop((port, stream));
    drop(victim);
    let after = rig.driver().census().counts();
    assert_eq!(after.pages_leaked - before.pages_leaked, 1, "{after:?}");
    assert_eq!(after.contexts_leaked - before.contexts_leaked, 1, "{after:?}");
    assert!(rig.stand_in().violations().is_empty());
}

fn the_first_cause_is_told_without_a_call<D: Vendor>(rig: &Rig<D>) {
    let victim = Victim::new(rig);
    let stream = victim.stream();
    let mut ports: Vec<_> = (0..3).map(|_| stream.armed_port().unwrap()).collect();
    assert!(ports.iter().all(|port| crate::waiting::lands(port, Duration::from_secs(20))));
    let fake = rig.stand_in();
    // With the word there, the event is asked first.
    fake.rule(Rule::new("cuEventQuery", Act::Fail(Status(214))).times(1));
    let first = ports[0].query().unwrap_err();
    assert!(first.to_string().contains("214"), "{first}");
    fake.clear_log();
    for port in &mut ports {
        assert_eq!(port.query().unwrap_err().to_string(), first.to_string());
        assert!(port.arm().is_ok(), "armed before");
    }
    assert_eq!(stream.port().unwrap_err().to_string(), first.to_string());
    assert_eq!(victim.context.health().unwrap_err().to_string(), first.to_string());
    assert!(fake.log().is_empty(), "{:?}", fake.log());
}

fn a_failed_query_that_is_no_fault_ends_that_wait_alone<D: Vendor>(rig: &Rig<D>) {
    let stream = rig.busy(ms(60));
    let (mut one, mut other) = (stream.armed_port().unwrap(), stream.armed_port().unwrap());
    // Out of memory: nothing is broken.
    rig.stand_in().rule(Rule::new("cuStreamQuery", Act::Fail(Status(2))).times(1));
    let error = wait(PLANS[3], &mut one).unwrap_err();
    assert!(error.to_string().contains(D::call("cuStreamQuery")), "{error}");
    assert!(error.to_string().contains("(2)"), "{error}");
    wait(PLANS[3], &mut other).unwrap();
    rig.context().health().unwrap();
}

fn an_in_kernel_point_whose_kernel_faults_is_an_error<D: Vendor>(rig: &Rig<D>) {
    let victim = Victim::new(rig);
    let stream = victim.stream();
    let word = victim.context.kernel_word().unwrap();
    told_late(rig);
    victim.kernels.fault(&stream, Fault::Trap).unwrap();
    let mut port = word.port(&stream, word.reads().next()).unwrap();
    let plan = plan("flag:park_us=100,backstop_us=2000");
    let error = wait_for(Wait::new(&plan).kernel_point(), &mut port).unwrap_err();
    assert!(error.to_string().contains(D::status(Fault::Trap)), "{error}");
    // SAFETY: the kernel is gone with its context.
    unsafe { word.retire() };
}
