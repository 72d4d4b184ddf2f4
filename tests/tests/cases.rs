//! Failures from the field, as whole waits: each must end as it should however the device misbehaves.
//!
//! The parts that a single crate answers for have their tests beside its code; `tests/TABLE.md` names all.

#![allow(clippy::unwrap_used, clippy::large_types_passed_by_value, reason = "tests")]

use wakeline_core::{
    CancelToken, Clock, CompletionPort, Error, ErrorCode, Inline, Nanos, Outcome, Park, Report, Seq, Wait,
    WaitPlan, Wake, drive, run_inline,
};
use wakeline_sim::{Chance, Faults, SimConfig, SimDevice, SimPort, VirtualHost, VirtualTime};

const FLAG: &str = "flag:park_us=50,backstop_us=400";
const BACKSTOP: Nanos = Nanos::from_micros(400);

fn device(faults: Faults) -> (SimDevice, VirtualHost) {
    let config = SimConfig { faults, ..SimConfig::exact() };
    with(config)
}

fn with(config: SimConfig) -> (SimDevice, VirtualHost) {
    let device = SimDevice::new(VirtualTime::new(), config).unwrap();
    let host = VirtualHost::new(&device);
    (device, host)
}

fn wait(
    host: &VirtualHost,
    plan: &str,
    port: &mut SimPort,
    deadline: Option<Nanos>,
) -> Result<Report, Error> {
    let plan: WaitPlan = plan.parse().unwrap();
    let wait = Wait::new(&plan).deadline(deadline.map(|length| host.now() + length));
    run_inline(drive(wait, port, &Inline::new(host, host, host), None)).unwrap()
}

#[test]
fn case_1_a_store_that_is_never_submitted_costs_one_backstop() {
    let (device, host) = device(Faults { deferred_store_ppm: 1_000_000, ..Faults::none() });
    let stream = device.stream().unwrap();
    stream.launch(Nanos::from_micros(100)).unwrap();
    let report = wait(&host, FLAG, &mut stream.point(), None).unwrap();
    assert_eq!(report.outcome(), Some(Outcome::Parked));
    assert!(report.elapsed <= Nanos::from_micros(100) + BACKSTOP, "{report:?}");
    // The driver answers for it, so nothing was learned but a lower bound.
    assert_eq!(report.queries, 2);
}

#[test]
fn case_2_a_late_store_of_a_former_wait_leaves_the_new_waiter_pending() {
    // The store of the first point lands long after its work, into a word that the second point waits for.
    let (device, host) = device(Faults { repeated_store: Chance::always(300_000), ..Faults::none() });
    let stream = device.stream().unwrap();
    stream.launch(Nanos::from_micros(10)).unwrap();
    wait(&host, FLAG, &mut stream.point(), None).unwrap();
    stream.launch(Nanos::from_millis(2)).unwrap();
    for plan in [FLAG, "flag:park_us=50,backstop_us=400+trust"] {
        let mut port = stream.point();
        let truth = port.witness();
        wait(&host, plan, &mut port, None).unwrap();
        assert!(truth.truth().ended_at.unwrap() <= host.now(), "{plan} ended on the store of another");
        stream.launch(Nanos::from_millis(2)).unwrap();
    }
}

#[test]
fn case_3_a_waiter_on_6_completes_when_the_word_jumps_from_5_to_7() {
    for first_word in [0, u64::from(u32::MAX) - 6, u64::MAX - 6].map(Seq::new) {
        let (device, host) = with(SimConfig { first_word, ..SimConfig::exact() });
        let stream = device.stream().unwrap();
        let mut points: Vec<SimPort> = (0..8)
            .map(|_| {
                stream.launch(Nanos::from_micros(10)).unwrap();
                let mut port = stream.point();
                port.arm().unwrap();
                port
            })
            .collect();
        // Nobody looks until all have landed.
        host.park(None, host.now() + Nanos::from_millis(1), || false);
        let word = points[7].descriptor().unwrap().word();
        assert_eq!(word.get(), first_word.get().wrapping_add(8));
        assert!(points.iter_mut().all(|port| port.poll() == Wake::Reached));
    }
}

#[test]
fn case_12_a_point_that_is_pending_for_good_ends_by_deadline_and_by_token() {
    let faults = Faults { stuck_ppm: 1_000_000, ..Faults::none() };
    for plan in ["poll", FLAG] {
        let (device, host) = with(SimConfig { query_ns: 300, faults, ..SimConfig::exact() });
        let stream = device.stream().unwrap();
        stream.launch(Nanos::from_micros(100)).unwrap();
        let deadline = Nanos::from_millis(3);
        let error = wait(&host, plan, &mut stream.point(), Some(deadline)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Timeout, "{plan}");
        assert!(host.now().since(wakeline_core::Instant::ORIGIN) < deadline + Nanos::from_micros(10));
        if plan == FLAG {
            assert_eq!(error.args()[..2], ["1", "1"], "the number awaited and the last word");
            assert!(error.to_string().contains("sequence 1: the word read 1 after 3.0"), "{error}");
        }
        let token = CancelToken::new();
        token.cancel();
        let driven = async {
            drive(
                Wait::new(&plan.parse()?),
                &mut stream.point(),
                &Inline::new(&host, &host, &host),
                Some(&token),
            )
            .await
        };
        assert_eq!(run_inline(driven).unwrap().unwrap_err().code(), ErrorCode::Cancelled, "{plan}");
    }
}

#[test]
fn case_9_a_faulted_device_is_an_error_whether_the_word_was_stored_or_not() {
    for stored in [false, true] {
        let (device, host) = device(Faults::none());
        let stream = device.stream().unwrap();
        stream.launch(Nanos::from_micros(100)).unwrap();
        let mut port = stream.point();
        if stored {
            port.arm().unwrap();
            host.park(None, host.now() + Nanos::from_millis(1), || false);
            assert_eq!(port.poll(), Wake::Reached);
        }
        device.inject_fault();
        let error = wait(&host, FLAG, &mut stream.point(), None).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Backend, "stored: {stored}");
        assert!(port.query().is_err());
    }
}

/// Driver calls are for arming, the two ends of a wait and its backstops; watching makes none.
#[test]
fn case_53_a_word_wait_asks_the_driver_at_its_backstops_alone() {
    let (device, host) = device(Faults::none());
    let stream = device.stream().unwrap();
    stream.launch(Nanos::from_micros(10_100)).unwrap();
    let mut port = stream.point();
    let truth = port.witness();
    let report = wait(&host, FLAG, &mut port, None).unwrap();
    let backstops = 10_100 / 400;
    assert_eq!(truth.truth().queries, 2 + backstops, "{report:?}");
    assert_eq!(device.counts().arms, 1);
}

#[test]
fn case_45_a_stream_that_cannot_store_words_is_asked_instead() {
    let (device, host) = device(Faults { unsupported_ppm: 1_000_000, ..Faults::none() });
    let stream = device.stream().unwrap();
    for plan in [FLAG, "flag:park_us=50,backstop_us=400+trust"] {
        stream.launch(Nanos::from_millis(2)).unwrap();
        let start = host.now();
        let report = wait(&host, plan, &mut stream.point(), None).unwrap();
        assert_eq!(report.authority, wakeline_core::Authority::Driver);
        assert!(host.now().since(start) <= Nanos::from_micros(2_050), "late by more than a park: {report:?}");
        assert_eq!(report.parks, 0);
    }
}
