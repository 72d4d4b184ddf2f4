//! The fault matrix: every way of a kill, of listeners, of handlers, of statuses and of waits, under every plan, on three hosts.
//!
//! On virtual time. Whatever goes wrong: no wait ends well that was killed, or before its work; none is later than its bound; and nothing is kept after.

use std::cell::RefCell;

use wakeline_core::{
    Clock, Error, ErrorCode, Executor, Inline, Instant, Mode, Nanos, Park, Reactor, Report, Wait, WaitPlan,
    drive, run_inline,
};
use wakeline_fake_metal::{Call, Faults, Kill, Wait as Waits};
use wakeline_metal::{BLOCK_SLICE_MS_MAX, Notified};
use wakeline_sim::{VirtualHost, VirtualTime};
use wakeline_tests::conform::PLANS;
use wakeline_tests::metal::{MetalPort, MetalRig};

const WORK: Nanos = Nanos::from_micros(250);
const LATE: Nanos = Nanos::from_micros(2_300);

/// When a wait counts as hung.
const LONG: Nanos = Nanos::from_millis(100);

/// Calls, and sleeps that a plan without a prediction may have begun.
const SLACK: Nanos = Nanos::from_micros(120);

const KILLS: [Option<Kill>; 4] =
    [None, Some(Kill::BeforeSignal(2)), Some(Kill::BehindSignal(3)), Some(Kill::ValueAndError(9))];
const CALLS: [Call; 5] = [Call::Prompt, Call::Late(LATE), Call::Lost, Call::Twice, Call::Early];
const LAGS: [Nanos; 3] = [Nanos::ZERO, Nanos::from_micros(40), Nanos::from_micros(1_200)];
const WAITS: [Waits; 3] = [Waits::Honest, Waits::GivesUp, Waits::Lies];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Host {
    Inline,
    Executor,
    Notified,
}

fn rows() -> Vec<Faults> {
    let mut rows = Vec::new();
    for kill in KILLS {
        for listener in CALLS {
            for handler in CALLS {
                for status_lag in LAGS {
                    rows.push(Faults { kill, listener, handler, status_lag, ..Faults::default() });
                }
            }
        }
    }
    rows
}

fn run(
    host: Host,
    on: &VirtualHost,
    plan: &WaitPlan,
    port: &mut MetalPort<VirtualTime>,
) -> Result<Report, Error> {
    let wait = Wait::new(plan).deadline(Some(on.now() + LONG));
    match host {
        Host::Inline => run_inline(drive(wait, port, &Inline::new(on, on, on), None)).unwrap(),
        Host::Notified => run_inline(drive(wait, port, &Notified::new(on), None)).unwrap(),
        Host::Executor => {
            let reactor = Reactor::new(on);
            let mut executor = Executor::new(&reactor, on, on, 1).unwrap();
            let result = RefCell::new(None);
            executor.spawn(drive(wait, port, &reactor, None)).unwrap();
            executor.run(|_, end| *result.borrow_mut() = Some(end)).unwrap();
            result.take().unwrap()
        }
    }
}

/// What is wrong with how a row came out.
fn judge(faults: Faults, host: Host, plan: &WaitPlan) -> Result<(), String> {
    let (rig, on) = MetalRig::on_virtual_time(faults);
    let stream = rig.stream();
    let (buffer, mut port) = rig.submit(&stream, WORK);
    let end = run(host, &on, plan, &mut port);
    let now = on.now();
    match (&end, faults.kill) {
        (Ok(_), Some(kill)) => return Err(format!("ended well though {kill:?}")),
        (Ok(_), None) if buffer.ended_at().is_none_or(|at| at > now) => return Err("before its work".into()),
        (Err(error), None) => return Err(format!("failed: {error}")),
        (Err(error), Some(_)) if error.code() != ErrorCode::Backend => return Err(format!("{error}")),
        _ => {}
    }
    let known = Instant::ORIGIN + WORK + faults.status_lag;
    let backstop = match plan.mode() {
        Mode::Block => Nanos::from_millis(BLOCK_SLICE_MS_MAX),
        Mode::Poll => Nanos::ZERO,
        Mode::Flag { backstop, .. } => backstop,
    };
    let late = now.since(known);
    if late > backstop + SLACK {
        return Err(format!("{late} late"));
    }
    drop((port, buffer, stream));
    on.park(None, on.now() + LATE + LATE, || false);
    match rig.metal.live() {
        (0, 0) => Ok(()),
        live => Err(format!("kept: {live:?}")),
    }
}

fn all(rows: impl Iterator<Item = (Faults, Host, &'static str)>) -> usize {
    let mut count = 0;
    let mut wrong = Vec::new();
    for (faults, host, text) in rows {
        count += 1;
        if let Err(what) = judge(faults, host, &text.parse().unwrap()) {
            wrong.push(format!("{what}: {text} on {host:?} with {faults:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {count} rows: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
    count
}

#[test]
fn every_fault_under_every_plan_on_every_host() {
    let hosts = [Host::Inline, Host::Executor, Host::Notified];
    let rows = rows()
        .into_iter()
        .flat_map(|faults| PLANS.into_iter().flat_map(move |plan| hosts.map(|host| (faults, host, plan))));
    // Who polls or blocks arms nothing, so that listeners and handlers are nothing to it: five of their pairs stand for all.
    let rows = rows.filter(|(faults, _, plan)| plan.starts_with("flag") || faults.listener == faults.handler);
    // Who blocks naps in real time where the status is behind.
    let rows = rows.filter(|(faults, host, plan)| {
        *plan != "block"
            || faults.status_lag < LAGS[2]
            || (*host, faults.listener) == (Host::Inline, Call::Prompt)
    });
    let (flags, polls, blocks) = (6 * 25 * 3 * 3, 3 * 5 * 3 * 3, 5 * 2 * 3 + 1);
    assert_eq!(all(rows), KILLS.len() * (flags + polls + blocks));
}

/// A wait that blocks and that Metal ends at once, for nothing, naps in real time.
#[test]
fn waits_of_metals_that_end_for_nothing() {
    let rows = KILLS.into_iter().flat_map(|kill| {
        WAITS.into_iter().map(move |wait| (Faults { kill, wait, ..Faults::default() }, Host::Inline, "block"))
    });
    assert_eq!(all(rows), 12);
}
