//! What the hosts refuse, and how they say so.

#![allow(clippy::unwrap_used, clippy::large_types_passed_by_value, reason = "tests")]

use std::sync::Arc;

use wakeline_core::{
    Clock, ErrorCode, ExecutorKind, HostCaps, HostLine, Nanos, Reactor, Strictness, Timer, Wait, WaitPlan,
    drive, resolve, run_inline,
};
use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime};

/// Handing an executor's ports to an inline run is a mistake that must not hang.
#[test]
fn a_future_that_pends_inline_is_a_coded_error() {
    let device = SimDevice::new(VirtualTime::new(), SimConfig::default()).unwrap();
    let host = VirtualHost::new(&device);
    let reactor = Reactor::<_, Arc<HostLine>>::new(&host);
    let sleep = reactor.sleep_until(host.now() + Nanos::from_millis(1));
    assert_eq!(run_inline(sleep).unwrap_err().code(), ErrorCode::PendedInline);
    assert_eq!(reactor.registered(), 0, "dropped, so it took its registration back");

    let stream = device.stream().unwrap();
    stream.launch(Nanos::from_millis(1)).unwrap();
    let plan: WaitPlan = "flag:park_us=50,backstop_us=1000".parse().unwrap();
    let mut port = stream.point();
    let error = run_inline(drive(Wait::new(&plan), &mut port, &reactor, None)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::PendedInline);
    assert!(error.to_string().contains("executor"), "says what to do: {error}");
}

#[test]
fn bad_input_reads_like_help() {
    let plan = "flag:park_us=50,backstop_us=10".parse::<WaitPlan>().unwrap_err();
    assert_eq!(plan.code(), ErrorCode::InvalidPlan);
    assert_eq!(plan.args()[1], "29", "{plan}");
    let kind = "gpu-reacter".parse::<ExecutorKind>().unwrap_err();
    assert_eq!(kind.code(), ErrorCode::InvalidExecutor);
    assert!(kind.to_string().contains("gpu-reactor") && kind.to_string().contains("naive"), "{kind}");
    let refused = resolve(ExecutorKind::IoUring, Strictness::Strict, &HostCaps::empty()).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::ExecutorRefused);
}
