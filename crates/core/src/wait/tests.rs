//! The machine, step by step and over arbitrary lists of observations.

use super::*;
use crate::table::Forecast;
use crate::wait::Action as A;
use crate::wait::Observation as O;
use alloc::vec::Vec;
use proptest::prelude::*;

pub(super) const DONE: O = O::Status(Status::Done);
pub(super) const PENDING: O = O::Status(Status::Pending);
pub(super) const PREDICT: &str = "+predict:margin_us=50,min_sleep_us=100,max_sleep_us=2000,window=8";
const ADAPT: &str = "+adapt:late_pct=1,guard_us=5,min_sleep_us=10,max_sleep_us=2000,window=64";

pub(super) fn us(us: u64) -> Instant {
    Instant::ORIGIN + Nanos::from_micros(us)
}

pub(super) fn plan(text: &str) -> WaitPlan {
    text.parse().unwrap()
}

pub(super) fn flag(suffix: &str) -> WaitPlan {
    plan(&alloc::format!("flag:park_us=50,backstop_us=400{suffix}"))
}

/// Runs a script of (microsecond, observation, expected action); the last step must finish, and its report is returned.
pub(super) fn script(wait: Wait, first: A, steps: &[(u64, O, Option<A>)]) -> Report {
    let (mut wait, action) = wait.start(us(0));
    assert_eq!(action, first);
    for (index, (at, observation, expected)) in steps.iter().enumerate() {
        match (wait.step(us(*at), *observation), expected) {
            (A::Finish(report), None) => {
                assert_eq!(index + 1, steps.len(), "ended before the script did: {report:?}");
                return report;
            }
            (action, expected) => assert_eq!(Some(action), *expected, "step {index}"),
        }
    }
    panic!("the script ended before the wait");
}

#[expect(clippy::unnecessary_wraps, reason = "a script's steps expect an option")]
pub(super) fn park(at: u64) -> Option<A> {
    Some(A::Park { until: us(at) })
}

#[expect(clippy::unnecessary_wraps, reason = "a script's steps expect an option")]
pub(super) fn sleep(at: u64) -> Option<A> {
    Some(A::SleepUntil(us(at)))
}

#[test]
fn block_ends_on_the_driver() {
    let report = script(Wait::new(&plan("block")), A::Block { until: None }, &[(900, DONE, None)]);
    assert_eq!((report.end, report.residual), (End::Done(Outcome::Blocked), None));
    assert_eq!(report.elapsed, Nanos::from_micros(900));
}

#[test]
fn case_15_block_with_a_deadline_gives_control_back() {
    let until = Some(us(700));
    let wait = Wait::new(&plan("block")).deadline(until);
    let report =
        script(wait, A::Block { until }, &[(300, PENDING, Some(A::Block { until })), (701, PENDING, None)]);
    assert_eq!(report.end, End::TimedOut);
}

#[test]
fn an_immediate_wait_never_arms() {
    let report = script(Wait::new(&flag("")), A::Query, &[(1, DONE, None)]);
    assert_eq!(report.end, End::Done(Outcome::Immediate));
    assert_eq!(report.residual, Some(Residual::Exact(Nanos::ZERO)));
}

#[test]
fn poll_asks_until_done() {
    let steps = [(1, PENDING, Some(A::Query)), (2, PENDING, Some(A::Query)), (3, DONE, None)];
    let report = script(Wait::new(&plan("poll")), A::Query, &steps);
    assert_eq!(report.end, End::Done(Outcome::Parked));
    assert_eq!((report.queries, report.residual), (3, Some(Residual::Exact(Nanos::from_micros(3)))));
}

#[test]
fn flag_parks_in_slices_and_asks_at_every_backstop() {
    let steps = [
        (1, PENDING, Some(A::Arm)),
        (10, O::Armed, park(60)),
        (30, O::Woke, park(80)), // spurious
        (390, O::Woke, park(410)),
        (410, O::Woke, Some(A::Query)),
        (411, PENDING, park(461)),
        (450, O::Reached, Some(A::Query)),
        (451, PENDING, Some(A::Query)), // the status lags behind the word
        (452, DONE, None),
    ];
    let report = script(Wait::new(&flag("")), A::Query, &steps);
    assert_eq!((report.end, report.parks, report.queries), (End::Done(Outcome::Parked), 4, 4));
    assert_eq!(report.residual, Some(Residual::Exact(Nanos::from_micros(450))), "when the word was seen");
}

#[test]
fn a_predicted_sleep_ends_a_margin_before_the_prediction() {
    let wait = Wait::new(&flag(PREDICT)).predicted(Some(Nanos::from_micros(900)));
    let steps = [
        (1, PENDING, Some(A::Arm)),
        (2, O::Armed, sleep(850)),
        (400, O::Woke, sleep(850)), // early: no harm
        (857, O::Woke, park(857)),
        (857, O::Woke, park(907)),
        (905, O::Reached, Some(A::Query)),
        (906, DONE, None),
    ];
    let report = script(wait, A::Query, &steps);
    assert_eq!((report.sleeps, report.overshoot), (1, Nanos::from_micros(7)));
}

#[test]
fn a_sleep_that_was_too_long_is_censored() {
    let wait = Wait::new(&flag(PREDICT)).predicted(Some(Nanos::from_micros(900)));
    let steps = [
        (1, PENDING, Some(A::Arm)),
        (2, O::Armed, sleep(850)),
        (860, O::Woke, park(860)),
        (860, O::Reached, Some(A::Query)),
        (861, PENDING, Some(A::Query)), // its status lags behind the word
        (862, DONE, None),
    ];
    let report = script(wait, A::Query, &steps);
    assert_eq!(report.end, End::Done(Outcome::Late));
    let (wake, prediction) = (Nanos::from_micros(860), Nanos::from_micros(900));
    assert_eq!(report.residual, Some(Residual::AtMost { wake, prediction }));
}

#[test]
fn a_sleep_that_a_deadline_ends_asks_once_more() {
    for (answer, end) in [(PENDING, End::TimedOut), (DONE, End::Done(Outcome::Late))] {
        let wait = Wait::new(&flag(PREDICT)).predicted(Some(Nanos::from_micros(900)));
        let steps = [
            (1, PENDING, Some(A::Arm)),
            (2, O::Armed, sleep(700)),
            (700, O::Woke, Some(A::Query)),
            (701, answer, None),
        ];
        assert_eq!(script(wait.deadline(Some(us(700))), A::Query, &steps).end, end, "{answer:?}");
    }
}

/// A look at the word that comes back behind the deadline: the work was over by the landing all the same.
#[test]
fn a_word_that_is_there_at_a_landing_is_late_where_the_deadline_comes_in_between() {
    let wait = Wait::new(&flag(PREDICT)).predicted(Some(Nanos::from_micros(900))).deadline(Some(us(861)));
    let steps = [
        (1, PENDING, Some(A::Arm)),
        (2, O::Armed, sleep(850)),
        (860, O::Woke, park(860)),
        (861, O::Reached, Some(A::Query)),
        (870, DONE, None),
    ];
    let report = script(wait, A::Query, &steps);
    assert_eq!(report.end, End::Done(Outcome::Late));
    let (wake, prediction) = (Nanos::from_micros(870), Nanos::from_micros(900));
    assert_eq!(report.residual, Some(Residual::AtMost { wake, prediction }));
}

/// What does not answer the question of a landing changes nothing: neither when its word was seen nor for how long it is asked again.
#[test]
fn a_landing_that_asks_is_asked_on_by_what_is_no_answer() {
    let wait = Wait::new(&flag(PREDICT)).predicted(Some(Nanos::from_micros(900)));
    let steps = [
        (1, PENDING, Some(A::Arm)),
        (2, O::Armed, sleep(850)),
        (860, O::Woke, park(860)),
        (860, O::Reached, Some(A::Query)),
        (900, O::Woke, Some(A::Query)),
        (950, O::Reached, Some(A::Query)),
        (955, PENDING, Some(A::Query)),
        (956, DONE, None),
    ];
    let report = script(wait.clone(), A::Query, &steps);
    assert_eq!(report.end, End::Done(Outcome::Late));
    let (wake, prediction) = (Nanos::from_micros(860), Nanos::from_micros(900));
    assert_eq!(report.residual, Some(Residual::AtMost { wake, prediction }));
    let mut doubts = steps;
    (doubts[6], doubts[7]) = ((961, PENDING, sleep(1_361)), (1_362, O::Failed, None));
    assert_eq!(script(wait, A::Query, &doubts).end, End::Failed);
}

#[test]
fn sleeps_respect_their_limits() {
    for (prediction, expected) in [(149, park(52)), (153, sleep(103)), (151, park(52)), (9_000, sleep(2_000))]
    {
        let (mut wait, _) =
            Wait::new(&flag(PREDICT)).predicted(Some(Nanos::from_micros(prediction))).start(us(0));
        wait.step(us(1), PENDING);
        assert_eq!(Some(wait.step(us(2), O::Armed)), expected, "{prediction}");
    }
}

#[test]
fn case_1_a_store_that_never_lands_costs_one_backstop() {
    let steps = [
        (1, PENDING, Some(A::Arm)),
        (2, O::Armed, park(52)),
        (402, O::Woke, Some(A::Query)),
        (403, DONE, None),
    ];
    let report = script(Wait::new(&flag("")), A::Query, &steps);
    assert_eq!(report.end, End::Done(Outcome::Parked));
    assert_eq!(report.residual, Some(Residual::AtLeast(Nanos::from_micros(1))));
}

#[test]
fn a_word_that_comes_early_is_doubted_until_the_backstop() {
    let steps = [
        (1, PENDING, Some(A::Arm)),
        (2, O::Armed, park(52)),
        (20, O::Reached, Some(A::Query)),
        (119, PENDING, Some(A::Query)),
        (121, PENDING, sleep(521)),
        (521, O::Woke, Some(A::Query)),
        (522, PENDING, sleep(922)), // no park: the word would end each at once
        (922, O::Woke, Some(A::Query)),
        (923, DONE, None),
    ];
    assert_eq!(script(Wait::new(&flag("")), A::Query, &steps).parks, 1);
}

#[test]
fn without_words_it_naps_between_queries() {
    let steps = [
        (1, PENDING, Some(A::Arm)),
        (2, O::Unsupported, sleep(52)),
        (60, O::Woke, Some(A::Query)),
        (61, PENDING, sleep(111)),
        (111, O::Woke, Some(A::Query)),
        (112, DONE, None),
    ];
    let report = script(Wait::new(&flag("")), A::Query, &steps);
    assert_eq!((report.parks, report.authority), (0, Authority::Driver));
    assert_eq!(report.residual, Some(Residual::AtLeast(Nanos::from_micros(61))));
}

#[test]
fn a_trusted_wait_without_words_asks_before_it_naps() {
    let wait = || Wait::new(&flag("+trust"));
    let report = script(wait(), A::Arm, &[(1, O::Unsupported, Some(A::Query)), (2, DONE, None)]);
    assert_eq!((report.end, report.authority), (End::Done(Outcome::Immediate), Authority::Driver));
    let steps = [
        (1, O::Unsupported, Some(A::Query)),
        (2, PENDING, sleep(52)),
        (52, O::Woke, Some(A::Query)),
        (53, DONE, None),
    ];
    assert_eq!(script(wait(), A::Arm, &steps).end, End::Done(Outcome::Parked));
}

/// It learns that there is no word when the deadline has come: the one question that is left is the last.
#[test]
fn without_words_at_the_deadline_one_question_is_left() {
    let (mut wait, _) = Wait::new(&flag("+trust")).deadline(Some(us(40))).start(us(0));
    assert_eq!(wait.step(us(40), O::Unsupported), A::Query);
    let A::Finish(report) = wait.step(us(41), O::Woke) else { panic!("goes on after its last question") };
    assert_eq!(report.end, End::TimedOut);
}

/// Queries that take no time, on a clock that only sleeping moves.
#[test]
fn a_clock_that_stands_still_does_not_make_the_confirming_endless() {
    let (mut wait, _) = Wait::new(&flag("")).start(us(0));
    wait.step(us(0), PENDING);
    wait.step(us(0), O::Armed);
    let mut action = wait.step(us(0), O::Reached);
    let mut queries = 0;
    while action == A::Query {
        queries += 1;
        action = wait.step(us(0), PENDING);
    }
    assert_eq!((Some(action), queries), (sleep(400), u32::from(CONFIRM_QUERIES_MAX) + 1));
}

#[test]
fn a_trusted_word_needs_no_query() {
    let report =
        script(Wait::new(&flag("+trust")), A::Arm, &[(2, O::Armed, park(52)), (30, O::Reached, None)]);
    assert_eq!((report.end, report.queries), (End::Done(Outcome::Trusted), 0));
}

#[test]
fn a_trusted_sleep_looks_before_it_parks() {
    let text = alloc::format!("{PREDICT}+trust");
    for (seen, expected) in [(O::Reached, None), (O::Woke, park(911))] {
        let (mut wait, _) = Wait::new(&flag(&text)).predicted(Some(Nanos::from_micros(900))).start(us(0));
        assert_eq!(Some(wait.step(us(1), O::Armed)), sleep(850));
        assert_eq!(Some(wait.step(us(860), O::Woke)), park(860));
        match wait.step(us(861), seen) {
            A::Finish(report) => assert_eq!((report.end, expected), (End::Done(Outcome::Late), None)),
            action => assert_eq!(Some(action), expected),
        }
    }
}

#[test]
fn a_trusted_word_that_is_lost_is_an_error_and_not_a_hang() {
    let steps = [
        (2, O::Armed, park(52)),
        (402, O::Woke, Some(A::Query)),
        (403, DONE, park(453)), // the word may still be on its way
        (803, O::Woke, Some(A::Query)),
        (804, DONE, park(804)), // a last look: that query may have taken long
    ];
    for (seen, end) in [(O::Woke, End::StoreLost), (O::Reached, End::Done(Outcome::Trusted))] {
        let steps = [&steps[..], &[(805, seen, None)]].concat();
        assert_eq!(script(Wait::new(&flag("+trust")), A::Arm, &steps).end, end);
    }
}

#[test]
fn a_kernel_point_arms_nothing_and_keeps_its_backstop() {
    let steps = [(400, O::Woke, Some(A::Query)), (401, PENDING, park(451)), (420, O::Reached, None)];
    let report = script(Wait::new(&flag("")).kernel_point(), A::Park { until: us(50) }, &steps);
    assert_eq!((report.end, report.authority), (End::Done(Outcome::Trusted), Authority::Kernel));
}

#[test]
fn case_12_a_point_that_stays_pending_ends_at_its_deadline() {
    let wait = Wait::new(&flag("")).deadline(Some(us(430)));
    let steps = [
        (1, PENDING, Some(A::Arm)),
        (2, O::Armed, park(52)),
        (402, O::Woke, Some(A::Query)),
        (403, PENDING, park(430)),
        (431, O::Woke, Some(A::Query)), // once more: a deadline is no reason to deny what is done
        (432, PENDING, None),
    ];
    let report = script(wait, A::Query, &steps);
    assert_eq!((report.end, report.elapsed), (End::TimedOut, Nanos::from_micros(432)));
}

#[test]
fn a_token_is_looked_at_every_millisecond() {
    let wait = Wait::new(&flag(PREDICT)).predicted(Some(Nanos::from_micros(1_900))).cancellable(true);
    let steps = [
        (1, PENDING, Some(A::Arm)),
        (2, O::Armed, sleep(1_002)),
        (1_002, O::Woke, sleep(1_850)),
        (1_500, O::Cancelled, None),
    ];
    assert_eq!(script(wait, A::Query, &steps).end, End::Cancelled);
    let wait = Wait::new(&plan("block")).cancellable(true);
    script(wait, A::Block { until: Some(us(1_000)) }, &[(5, O::Cancelled, None)]);
}

#[test]
fn a_watched_wait_asks_nobody_before_its_word() {
    let steps = [
        (30, O::Woke, park(400)), // spurious
        (300, O::Reached, Some(A::Query)),
        (301, PENDING, Some(A::Query)), // the status lags behind the word
        (302, DONE, None),
    ];
    let report = script(Wait::new(&flag("")).watched(Arming::Armed), A::Park { until: us(400) }, &steps);
    assert_eq!((report.end, report.queries, report.parks), (End::Done(Outcome::Parked), 2, 2));
    assert_eq!(report.residual, Some(Residual::Exact(Nanos::from_micros(300))));
    let trusted = Wait::new(&flag("+trust")).watched(Arming::Armed);
    let report = script(trusted, A::Park { until: us(400) }, &[(300, O::Reached, None)]);
    assert_eq!((report.end, report.queries), (End::Done(Outcome::Trusted), 0));
}

#[test]
fn a_watched_wait_parks_from_backstop_to_backstop() {
    let steps = [
        (400, O::Woke, Some(A::Query)),
        (402, PENDING, park(802)),
        (802, O::Woke, Some(A::Query)),
        (803, DONE, None),
    ];
    let report = script(Wait::new(&flag("")).watched(Arming::Armed), A::Park { until: us(400) }, &steps);
    assert_eq!(report.residual, Some(Residual::AtLeast(Nanos::from_micros(402))));
}

#[test]
fn a_watched_wait_without_words_asks_at_once_and_naps_as_any_other() {
    for suffix in ["", "+trust"] {
        let wait = Wait::new(&flag(suffix)).watched(Arming::Unsupported);
        let steps = [
            (1, PENDING, sleep(51)),
            (51, O::Woke, Some(A::Query)),
            (52, PENDING, sleep(102)),
            (102, O::Woke, Some(A::Query)),
            (103, DONE, None),
        ];
        let report = script(wait, A::Query, &steps);
        assert_eq!(
            (report.end, report.authority),
            (End::Done(Outcome::Parked), Authority::Driver),
            "{suffix}"
        );
    }
}

#[test]
fn to_be_watched_means_nothing_to_other_plans() {
    for arming in [Arming::Armed, Arming::Unsupported] {
        script(Wait::new(&plan("poll")).watched(arming), A::Query, &[(1, DONE, None)]);
        script(Wait::new(&plan("block")).watched(arming), A::Block { until: None }, &[(1, DONE, None)]);
    }
}

#[test]
fn a_watched_sleep_lands_by_a_look_at_the_word_alone() {
    let wait = || Wait::new(&flag(PREDICT)).predicted(Some(Nanos::from_micros(900))).watched(Arming::Armed);
    let first = A::SleepUntil(us(850));
    // Its word is not there: the driver is not asked.
    let steps = [
        (850, O::Woke, park(850)),
        (850, O::Woke, park(1_250)),
        (905, O::Reached, Some(A::Query)),
        (906, DONE, None),
    ];
    let report = script(wait(), first, &steps);
    assert_eq!((report.end, report.queries), (End::Done(Outcome::Parked), 1));
    assert_eq!(report.residual, Some(Residual::Exact(Nanos::from_micros(905))));
    // It is: the driver is, and it was late.
    let steps = [(855, O::Woke, park(855)), (855, O::Reached, Some(A::Query)), (856, DONE, None)];
    let report = script(wait(), first, &steps);
    assert_eq!((report.end, report.overshoot), (End::Done(Outcome::Late), Nanos::from_micros(5)));
}

/// Somebody looks at the word from 800 us on, before the landing: what is seen then was watched as it happened.
#[test]
fn a_sleep_that_is_ended_early_lands_there() {
    for (suffix, end) in [("", Outcome::Parked), ("+trust", Outcome::Trusted)] {
        let plan = flag(&alloc::format!("{PREDICT}{suffix}"));
        let wait = Wait::new(&plan).predicted(Some(Nanos::from_micros(900))).watched(Arming::Armed);
        let (mut wait, first) = wait.start(us(0));
        assert_eq!((first, wait.landing()), (A::SleepUntil(us(850)), Some(us(850))));
        assert_eq!(Some(wait.land_now(us(800))), park(800));
        assert_eq!(wait.landing(), None);
        assert_eq!(Some(wait.step(us(801), O::Woke)), park(1_201));
        assert_eq!(Some(wait.land_now(us(820))), park(1_201), "it has landed: a wake for no reason");
        let mut action = wait.step(us(840), O::Reached);
        if action == A::Query {
            action = wait.step(us(840), DONE);
        }
        let A::Finish(report) = action else { panic!("{action:?}") };
        assert_eq!((report.end, report.overshoot), (End::Done(end), Nanos::ZERO));
        assert_eq!(report.residual, Some(Residual::Exact(Nanos::from_micros(840))));
    }
}

#[test]
fn a_landing_that_comes_too_late_is_as_late_as_it_is() {
    let wait = Wait::new(&flag(PREDICT)).predicted(Some(Nanos::from_micros(900))).watched(Arming::Armed);
    let (mut wait, _) = wait.start(us(0));
    assert_eq!(Some(wait.land_now(us(870))), park(870));
    wait.step(us(870), O::Reached);
    let A::Finish(report) = wait.step(us(871), DONE) else { panic!("goes on") };
    assert_eq!((report.end, report.overshoot), (End::Done(Outcome::Late), Nanos::from_micros(20)));
}

/// What it is asked to sleep until may come before its landing.
#[test]
fn a_look_at_a_token_or_a_deadline_is_no_landing() {
    let wait = Wait::new(&flag(PREDICT)).predicted(Some(Nanos::from_micros(1_900))).watched(Arming::Armed);
    let (wait, first) = wait.clone().cancellable(true).start(us(0));
    assert_eq!((first, wait.landing()), (A::SleepUntil(us(1_000)), Some(us(1_850))));
    let early = Wait::new(&flag(PREDICT)).predicted(Some(Nanos::from_micros(1_900)));
    let (early, first) = early.watched(Arming::Armed).deadline(Some(us(700))).start(us(0));
    assert_eq!((first, early.landing()), (A::SleepUntil(us(700)), Some(us(1_850))));
}

/// Another's failure has it asked between its backstops: that says done, and the word is on its way.
#[test]
fn only_its_own_questions_tell_that_a_word_is_lost() {
    let steps = [
        (400, O::Woke, Some(A::Query)),
        (401, DONE, park(801)),
        (402, DONE, park(801)),
        (500, DONE, park(801)),
        (810, O::Reached, None),
    ];
    let trusted = Wait::new(&flag("+trust")).watched(Arming::Armed);
    assert_eq!(script(trusted, A::Park { until: us(400) }, &steps).end, End::Done(Outcome::Trusted));
}

#[test]
fn after_the_end_the_report_stays() {
    let (mut wait, _) = Wait::new(&plan("poll")).start(us(0));
    let end = wait.step(us(1), DONE);
    assert_eq!(wait.step(us(9), O::Failed), end);
    assert_eq!(wait.step(us(2), O::Reached), end);
}

fn any_observation() -> impl Strategy<Value = O> {
    prop_oneof![
        1 => Just(DONE), 4 => Just(PENDING), 1 => Just(O::Failed), 3 => Just(O::Armed), 1 => Just(O::Unsupported),
        6 => Just(O::Woke), 2 => Just(O::Reached), 1 => Just(O::Cancelled),
    ]
}

fn any_plan() -> impl Strategy<Value = WaitPlan> {
    let flag = "flag:park_us=50,backstop_us=400";
    let text = |suffix: &str| alloc::format!("{flag}{suffix}");
    prop::sample::select(Vec::from([
        "block".into(),
        "poll".into(),
        alloc::format!("poll{PREDICT}"),
        text(""),
        text(PREDICT),
        text("+trust"),
        text(&alloc::format!("{PREDICT}+trust")),
        alloc::format!("poll{ADAPT}"),
        text(ADAPT),
        text(&alloc::format!("{ADAPT}+trust")),
    ]))
    .prop_map(|text| plan(&text))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    /// The promises of the machine, whatever it is told and however unevenly time passes.
    #[test]
    fn it_keeps_its_promises_over_any_observations(
        plan in any_plan(),
        kernel: bool,
        cancellable: bool,
        watched in prop::option::of(prop::sample::select(Vec::from([Arming::Armed, Arming::Unsupported]))),
        prediction in prop::option::of(0_u64..4_000_000),
        known in prop::collection::vec(0_u64..4_000_000, 0..70),
        deadline in prop::option::of(0_u64..3_000_000),
        steps in prop::collection::vec((prop::option::weighted(0.9, any_observation()), 0_u64..300_000), 1..60),
    ) {
        let deadline = deadline.map(Instant::from_nanos);
        let forecast = forecast(&plan, prediction, &known);
        let mut wait = Wait::new(&plan).expecting(forecast).deadline(deadline).cancellable(cancellable);
        if kernel {
            wait = wait.kernel_point();
        }
        if let Some(arming) = watched {
            wait = wait.watched(arming);
        }
        let (mut wait, mut action) = wait.start(Instant::ORIGIN);
        let mut now = Instant::ORIGIN;
        let mut after_deadline = 0;
        let mut ended = None;
        for (observation, later) in steps {
            check_bounds(&plan, action, now, deadline, cancellable, watched.is_some())?;
            prop_assert!(watched.is_none() || !matches!(action, A::Arm), "arms what was armed for it");
            if let (A::SleepUntil(until), Some(landing)) = (action, wait.landing()) {
                prop_assert!(until <= landing.max(now), "sleeps past its landing");
            }
            // Whoever carries the action out comes back in time when it slept, parked or blocked; calls may take long.
            now = match action {
                A::SleepUntil(until) | A::Park { until } | A::Block { until: Some(until) } =>
                    (now + Nanos::from_nanos(later)).min(until.max(now)),
                _ => now + Nanos::from_nanos(later),
            };
            // Without an observation somebody looks from now on.
            let slept = wait.landing().is_some();
            action = match observation {
                Some(observation) => wait.step(now, observation),
                None => wait.land_now(now),
            };
            prop_assert!(observation.is_some() || !slept || wait.landing().is_none(), "it has not landed");
            let observation = observation.unwrap_or(O::Woke);
            if let A::Finish(report) = action {
                prop_assert_eq!(report.elapsed, now.since(Instant::ORIGIN));
                match report.end {
                    End::Done(outcome) => {
                        let by_word = matches!(report.authority, Authority::Word | Authority::Kernel);
                        prop_assert_eq!(observation, if by_word { O::Reached } else { DONE });
                        prop_assert_eq!(outcome == Outcome::Blocked, plan.mode() == Mode::Block);
                    }
                    End::TimedOut => prop_assert!(deadline.is_some_and(|deadline| now >= deadline)),
                    End::Cancelled => prop_assert_eq!(observation, O::Cancelled),
                    End::Failed => prop_assert_eq!(observation, O::Failed),
                    End::StoreLost => prop_assert!(observation != O::Reached && report.authority != Authority::Driver),
                }
                ended = Some(report);
                break;
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                after_deadline += 1;
                prop_assert!(after_deadline <= 1, "goes on after its deadline: {:?}", action);
                prop_assert!(!matches!(action, A::Arm), "arms after its deadline");
            }
        }
        if let Some(report) = ended {
            prop_assert_eq!(wait.step(Instant::MAX, O::Woke), A::Finish(report));
        }
    }
}

/// The prediction, or what was known of the point.
fn forecast(plan: &WaitPlan, prediction: Option<u64>, known: &[u64]) -> Forecast {
    if plan.adapt().is_none() {
        return prediction.map(Nanos::from_nanos).into();
    }
    let mut table = crate::PointTable::of_one();
    for ns in known {
        table.record((), plan, Nanos::from_nanos(*ns));
    }
    table.forecast(&(), plan)
}

fn check_bounds(
    plan: &WaitPlan,
    action: A,
    now: Instant,
    deadline: Option<Instant>,
    cancellable: bool,
    watched: bool,
) -> Result<(), TestCaseError> {
    let (until, longest) = match (action, plan.mode()) {
        (A::Park { until }, Mode::Flag { backstop, .. }) if watched => (until, now + backstop),
        (A::Park { until }, Mode::Flag { park, .. }) => (until, now + park),
        (A::SleepUntil(until), mode) => {
            let predicted = plan.predict().map_or(Instant::ORIGIN, |p| Instant::ORIGIN + p.max_sleep());
            // Besides the predicted sleep: naps of a park without words, and a doubted word's sleep to its backstop.
            let idle = if let Mode::Flag { backstop, .. } = mode { now + backstop } else { Instant::ORIGIN };
            let adapted = plan.adapt().map_or(Instant::ORIGIN, |adapt| now + adapt.max_sleep());
            (until, predicted.max(idle).max(adapted))
        }
        (A::Block { until: Some(until) }, Mode::Block) => (until, Instant::MAX),
        (A::Query | A::Arm | A::Block { until: None } | A::Finish(_), _) => return Ok(()),
        _ => return Err(TestCaseError::fail("an action that the plan does not have")),
    };
    prop_assert!(until <= longest, "{action:?} at {now:?}");
    prop_assert!(
        deadline.is_none_or(|deadline| until <= deadline.max(now)),
        "{action:?} passes the deadline"
    );
    prop_assert!(
        !cancellable || until.since(now).as_nanos() <= CANCEL_NS_MAX,
        "{action:?} ignores the token"
    );
    Ok(())
}
