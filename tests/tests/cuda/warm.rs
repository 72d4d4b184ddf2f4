//! What a wait with `+warm` does for the launch behind it, and that it does nothing else.

use std::time::Duration;

use wakeline_core::{Clock, CompletionPort, Error, Nanos, Outcome, Report, Wait, Wake};
use wakeline_cuda::{ContextConfig, Cuda, CudaContext, CudaPort, Ordinal};
use wakeline_fake_driver::{Act, Rule, Status};
use wakeline_std::StdClock;
use wakeline_tests::driver_tests;
use wakeline_tests::rig::Rig;

use crate::waiting::{PLANS, lands, ms, plan, wait, wait_for};

driver_tests![@cuda
    Both: a_wait_that_has_slept_warms_once_and_ends_as_any,
        threads_warm_at_the_same_time;
    Fake: nothing_is_enqueued_in_the_awaited_stream,
        one_kernel_is_outstanding_at_most,
        warming_is_prepared_once,
        warming_that_cannot_be_prepared_says_why_each_time;
    FakeLeaving: warming_that_fails_is_nobodys,
        a_fault_found_by_warming_is_that_of_the_wait;
    Fake: a_closing_waits_for_the_last_warming;
];

const WARM: [&str; 3] = [
    "flag:park_us=100,backstop_us=2000+predict:margin_us=1500,min_sleep_us=50,max_sleep_us=50000,window=4+warm+trust",
    "flag:park_us=100,backstop_us=2000+predict:margin_us=1500,min_sleep_us=50,max_sleep_us=50000,window=4+warm",
    "poll+predict:margin_us=1500,min_sleep_us=50,max_sleep_us=50000,window=4+warm",
];

/// Waits for what is known to take so long.
fn wait_known(text: &str, known: Nanos, port: &mut CudaPort) -> Result<Report, Error> {
    wait_for(Wait::new(&plan(text)).predicted(Some(known)), port)
}

fn a_wait_that_has_slept_warms_once_and_ends_as_any(rig: &Rig<Cuda>) {
    rig.context().prepare_warming().unwrap();
    for text in WARM {
        let mut warmed = 0;
        for _ in 0..10 {
            let stream = rig.busy(ms(10));
            let report = wait_known(text, ms(10), &mut stream.port().unwrap()).unwrap();
            // This machine may have been away: then there was nothing left to sleep for, or it slept for too long.
            let slept = report.sleeps > 0 && report.outcome() != Some(Outcome::Late);
            assert!(report.outcome().is_some() && (report.warmed || !slept), "{text}: {report:?}");
            warmed += u32::from(report.warmed);
        }
        assert!(warmed > 0, "{text}");
    }
    // It does not sleep.
    for text in WARM {
        assert!(!wait(text, &mut rig.busy(ms(2)).port().unwrap()).unwrap().warmed, "{text}");
    }
}

fn threads_warm_at_the_same_time(rig: &Rig<Cuda>) {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let stream = rig.busy(ms(2));
                    let mut port = stream.armed_port().unwrap();
                    port.warm();
                    assert!(wait(PLANS[5], &mut port).unwrap().outcome().is_some());
                }
            });
        }
    });
}

fn nothing_is_enqueued_in_the_awaited_stream(rig: &Rig<Cuda>) {
    let fake = rig.stand_in();
    let stream = rig.busy(ms(20));
    let mut port = stream.armed_port().unwrap();
    rig.context().prepare_warming().unwrap();
    fake.clear_log();
    port.warm();
    let log = fake.log();
    let named = |name: &str| log.iter().filter(|call| call.name.starts_with(name)).count();
    assert_eq!((named("cuLaunchKernel"), named("cuStreamWriteValue64")), (1, 1), "{log:?}");
    let raw = stream.raw().as_ptr().addr() as u64;
    assert!(log.iter().all(|call| call.stream != Some(raw)), "{raw}: {log:?}");
    assert_eq!(port.poll(), Wake::Woke, "the point is where it was");
    wait(PLANS[0], &mut port).unwrap();
}

fn one_kernel_is_outstanding_at_most(rig: &Rig<Cuda>) {
    let fake = rig.stand_in();
    let stream = rig.busy(ms(50));
    let mut port = stream.armed_port().unwrap();
    rig.context().prepare_warming().unwrap();
    // What it launches takes its time.
    fake.rule(Rule::new("cuStreamQuery", Act::Fail(Status(600))));
    fake.clear_log();
    (0..10).for_each(|_| port.warm());
    assert_eq!((fake.calls("cuStreamQuery"), fake.calls("cuLaunchKernel")), (10, 0));
    fake.clear_rules();
    wait(PLANS[0], &mut port).unwrap();
}

fn warming_that_fails_is_nobodys(rig: &Rig<Cuda>) {
    let fake = rig.stand_in();
    rig.context().prepare_warming().unwrap();
    let stream = rig.busy(ms(20));
    let mut port = stream.armed_port().unwrap();
    // What came of its store nobody knows.
    fake.rule(Rule::new("cuStreamWriteValue64", Act::FailAfter(Status(1))));
    fake.clear_log();
    port.warm();
    port.warm();
    assert_eq!(fake.calls("cuStreamWriteValue64"), 1, "it is over with that");
    fake.clear_rules();
    assert!(wait(PLANS[5], &mut port).unwrap().outcome().is_some());
    rig.context().health().unwrap();
    assert_eq!(rig.context().slots().lost, 1);
    assert!(rig.context().prepare_warming().is_err());
}

fn warming_is_prepared_once(rig: &Rig<Cuda>) {
    let fake = rig.stand_in();
    let stream = rig.busy(ms(20));
    let mut port = stream.armed_port().unwrap();
    fake.clear_log();
    rig.context().prepare_warming().unwrap();
    rig.context().prepare_warming().unwrap();
    port.warm();
    assert_eq!((fake.calls("cuModuleLoadDataEx"), fake.calls("cuStreamCreateWithPriority")), (1, 1));
    // The first to warm does it too, where nobody has.
    assert!(lands(&port, Duration::from_secs(5)));
}

fn warming_that_cannot_be_prepared_says_why_each_time(rig: &Rig<Cuda>) {
    let fake = rig.stand_in();
    fake.rule(Rule::new("cuStreamCreateWithPriority", Act::Fail(Status(801))).times(1));
    fake.clear_log();
    for _ in 0..2 {
        let error = rig.context().prepare_warming().unwrap_err();
        assert!(error.to_string().contains("it could not be set up"), "{error}");
        let cause = core::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(cause.contains("cuStreamCreateWithPriority") && cause.contains("801"), "{cause}");
    }
    assert_eq!(fake.calls("cuStreamCreateWithPriority"), 1, "what failed is not tried again");
}

fn a_fault_found_by_warming_is_that_of_the_wait(rig: &Rig<Cuda>) {
    let fake = rig.stand_in();
    rig.context().prepare_warming().unwrap();
    let stream = rig.busy(ms(50));
    let mut port = stream.armed_port().unwrap();
    let until = StdClock::new().now() + ms(2_000);
    fake.rule(Rule::new("cuLaunchKernel", Act::Fail(Status(719))).times(1));
    port.warm();
    let wait = Wait::new(&plan(PLANS[5])).deadline(Some(until));
    let error = wait_for(wait, &mut port).unwrap_err();
    assert!(error.to_string().contains("719") || error.to_string().contains("LAUNCH_FAILED"), "{error}");
}

fn a_closing_waits_for_the_last_warming(rig: &Rig<Cuda>) {
    let before = rig.driver().census().counts();
    let context = CudaContext::create(rig.driver(), Ordinal(0), &ContextConfig::default()).unwrap();
    context.prepare_warming().unwrap();
    // As where the device is busy: the store lands a moment later.
    rig.stand_in().configure(|options| options.store_lag_ns = 5_000_000);
    context.warm();
    context.close(Duration::from_secs(5)).unwrap();
    let after = rig.driver().census().counts();
    assert_eq!((after.pages_leaked, after.contexts_leaked), (before.pages_leaked, before.contexts_leaked));
}
