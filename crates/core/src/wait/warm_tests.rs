//! Waits that warm what the next submission needs.

use super::tests::{DONE, PENDING, PREDICT, flag, park, plan, script, sleep, us};
use super::*;
use crate::wait::Action as A;
use crate::wait::Observation as O;

/// By `+warm`: once, between the last sleep and the watch, under every authority and in a poll.
#[test]
fn what_comes_next_is_warmed_once_a_wait_has_slept() {
    let slept = |suffix: &str| Wait::new(&flag(&alloc::format!("{PREDICT}+warm{suffix}")));
    let known = Some(Nanos::from_micros(300));
    let steps = [
        (1, O::Armed, sleep(250)),
        (252, O::Woke, park(252)),
        (252, O::Woke, Some(A::Warm)),
        (280, O::Woke, park(330)),
        (330, O::Woke, park(380)),
        (340, O::Reached, None),
    ];
    let report = script(slept("+trust").predicted(known), A::Arm, &steps);
    assert!(report.warmed && report.residual == Some(Residual::Exact(Nanos::from_micros(340))));
    // The word was there before it could.
    let steps = [(1, O::Armed, sleep(250)), (252, O::Woke, park(252)), (252, O::Reached, None)];
    assert!(!script(slept("+trust").predicted(known), A::Arm, &steps).warmed);
    // Nothing is known of its point, so it does not sleep.
    let steps = [(1, O::Armed, park(51)), (40, O::Reached, None)];
    assert!(!script(slept("+trust"), A::Arm, &steps).warmed);
    // The driver is the authority.
    let steps = [
        (1, PENDING, Some(A::Arm)),
        (2, O::Armed, sleep(250)),
        (252, O::Woke, park(252)),
        (252, O::Woke, Some(A::Warm)),
        (280, O::Woke, park(330)),
        (300, O::Reached, Some(A::Query)),
        (301, DONE, None),
    ];
    assert!(script(slept("").predicted(known), A::Query, &steps).warmed);
    // No word.
    let poll = Wait::new(&plan(&alloc::format!("poll{PREDICT}+warm"))).predicted(known);
    let steps = [
        (1, PENDING, sleep(250)),
        (252, O::Woke, Some(A::Query)),
        (252, PENDING, Some(A::Warm)),
        (280, O::Woke, Some(A::Query)),
        (281, DONE, None),
    ];
    assert!(script(poll, A::Query, &steps).warmed);
    // A watcher of many words submits nothing.
    let watched = slept("+trust").predicted(known).watched(Arming::Armed);
    let steps = [(250, O::Woke, park(250)), (250, O::Woke, park(650)), (340, O::Reached, None)];
    assert!(!script(watched, A::SleepUntil(us(250)), &steps).warmed);
}

#[test]
fn a_wait_that_warms_still_ends_by_its_deadline() {
    let wait = Wait::new(&flag(&alloc::format!("{PREDICT}+warm+trust")));
    let wait = wait.predicted(Some(Nanos::from_micros(300))).deadline(Some(us(290)));
    let steps = [
        (1, O::Armed, sleep(250)),
        (252, O::Woke, park(252)),
        (252, O::Woke, Some(A::Warm)),
        (295, O::Woke, park(295)),
        (295, O::Woke, None),
    ];
    assert_eq!(script(wait, A::Arm, &steps).end, End::TimedOut);
}
