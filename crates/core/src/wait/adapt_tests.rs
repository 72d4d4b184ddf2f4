//! Waits by `+adapt`: what is asked for when, and what the table learns of it.

use super::*;
use crate::PointTable;
use crate::wait::Action as A;
use crate::wait::Observation as O;
use alloc::vec::Vec;
use proptest::prelude::*;

const PENDING: O = O::Status(Status::Pending);
const DONE: O = O::Status(Status::Done);

/// So many steps at one moment are no progress: a look, an answer, an arming and a decision may follow each other at once.
const STILL_STEPS_MAX: usize = 8;

fn us(us: u64) -> Instant {
    Instant::ORIGIN + Nanos::from_micros(us)
}

fn plan(mode: &str, suffix: &str) -> WaitPlan {
    alloc::format!("{mode}+adapt:late_pct=1,guard_us=5,min_sleep_us=20,max_sleep_us=20000,window=64{suffix}")
        .parse()
        .unwrap()
}

fn flag(suffix: &str) -> WaitPlan {
    plan("flag:park_us=50,backstop_us=1000", suffix)
}

/// A table whose only point took so many times so long, in microseconds.
fn table(plan: &WaitPlan, times: u32, residual_us: u64) -> PointTable<()> {
    let mut table = PointTable::of_one();
    (0..times).for_each(|_| table.record((), plan, Nanos::from_micros(residual_us)));
    table
}

/// A wait on a virtual clock for work that takes so long, on a host whose sleeps end late by so much; what it saw is fed back.
fn wait(table: &mut PointTable<()>, plan: &WaitPlan, residual_us: u64, late_us: u64) -> (Report, Vec<A>) {
    wait_or_cancel(table, plan, residual_us, late_us, false)
}

/// As [`wait`], perhaps with a token to look at.
fn wait_or_cancel(
    table: &mut PointTable<()>,
    plan: &WaitPlan,
    residual_us: u64,
    late_us: u64,
    cancellable: bool,
) -> (Report, Vec<A>) {
    let done = us(residual_us);
    let mut now = us(0);
    let (mut actions, mut began) = (Vec::new(), Vec::new());
    let wait = Wait::new(plan).expecting(table.forecast(&(), plan)).cancellable(cancellable);
    let (mut wait, mut action) = wait.start(now);
    loop {
        actions.push(action);
        let still = actions.len().checked_sub(STILL_STEPS_MAX).is_some_and(|from| began[from] == now);
        assert!(!still, "no time passes: {:?} at {now:?}", &actions[actions.len() - STILL_STEPS_MAX..]);
        began.push(now);
        let observation = match action {
            A::Query => {
                now = now + Nanos::from_nanos(300);
                if now >= done { DONE } else { PENDING }
            }
            A::Arm => O::Armed,
            A::Park { until } if done <= until.max(now) => {
                now = now.max(done);
                O::Reached
            }
            A::Park { until } => {
                now = now.max(until);
                O::Woke
            }
            A::SleepUntil(until) => {
                now = now.max(until) + Nanos::from_micros(late_us);
                O::Woke
            }
            A::Block { .. } | A::Warm => panic!("not this plan"),
            A::Finish(report) => {
                table.observe((), &report);
                return (report, actions);
            }
        };
        action = wait.step(now, observation);
    }
}

#[test]
fn it_sleeps_twice_to_what_it_knows_and_watches_it_end() {
    for plan in [flag(""), flag("+trust"), plan("poll", "")] {
        let mut table = table(&plan, 64, 5_000);
        let (report, actions) = wait(&mut table, &plan, 5_000, 20);
        assert!(matches!(report.end, End::Done(Outcome::Parked | Outcome::Trusted)), "{report:?}");
        assert!(report.sleeps >= 2 && report.overshoot == Nanos::from_micros(20), "{report:?}");
        let last = actions
            .iter()
            .rev()
            .find_map(|action| if let A::SleepUntil(until) = action { Some(*until) } else { None });
        assert!(last.is_some_and(|until| until > us(4_500)), "{actions:?}");
        assert!(matches!(report.residual, Some(Residual::Exact(_))));
    }
}

#[test]
fn between_its_sleeps_it_looks_at_the_word_and_asks_at_each_backstop() {
    let plan = flag("");
    // A cold point naps, with the driver asked every millisecond.
    let (report, actions) = wait(&mut PointTable::of_one(), &plan, 20_000, 10);
    assert!(report.sleeps > 50, "{report:?}");
    assert!((10..30).contains(&report.queries), "{report:?}");
    let mut longest = Nanos::ZERO;
    let mut asked = Instant::ORIGIN;
    for action in &actions {
        if let A::SleepUntil(until) | A::Park { until } = action {
            longest = longest.max(until.since(asked));
            asked = if matches!(action, A::SleepUntil(_)) { asked } else { asked.max(*until) };
        }
    }
    assert!(actions.iter().filter(|action| matches!(action, A::Query)).count() > 10);
}

#[test]
fn a_cold_wait_is_late_by_its_share_at_most() {
    for residual_us in [100, 1_000, 3_000, 10_000, 100_000] {
        let (report, _) = wait(&mut PointTable::of_one(), &flag(""), residual_us, 5);
        let late = report.elapsed - Nanos::from_micros(residual_us);
        assert!(late.as_micros() <= residual_us / 100 + 5, "{residual_us}: {late}");
    }
}

#[test]
fn a_word_that_came_before_its_status_is_waited_for_awake() {
    let plan = flag("");
    let mut table = table(&plan, 64, 5_000);
    let (mut wait, _) = Wait::new(&plan).expecting(table.forecast(&(), &plan)).start(us(0));
    wait.step(us(1), PENDING);
    let A::SleepUntil(until) = wait.step(us(2), O::Armed) else { panic!("does not sleep") };
    assert_eq!((wait.step(until, O::Woke), wait.landing()), (A::Park { until }, None));
    assert_eq!(wait.step(until, O::Reached), A::Query);
    // The status lags behind.
    assert_eq!(wait.step(until, PENDING), A::Query);
    let A::Finish(report) = wait.step(until, DONE) else { panic!("goes on") };
    assert_eq!(report.end, End::Done(Outcome::Late));
}

#[test]
fn a_shift_to_shorter_residuals_is_found_by_halves() {
    for plan in [flag(""), flag("+trust")] {
        let mut table = table(&plan, 64, 5_000);
        let mut lates = 0;
        for _ in 0..20 {
            let (report, _) = wait(&mut table, &plan, 3_000, 5);
            lates += u32::from(report.elapsed > Nanos::from_micros(3_050));
        }
        assert!(lates <= 2, "{lates} of 20 waits were late");
        let (report, _) = wait(&mut table, &plan, 3_000, 5);
        assert!(report.elapsed <= Nanos::from_micros(3_030), "{report:?}");
    }
}

/// What is known of the one that came is between two moments: a wait that slept by that was late again, where steps get shorter and shorter.
#[test]
fn after_a_surprise_the_next_wait_is_late_by_its_share_at_most() {
    let plan = flag("");
    let mut table = table(&plan, 64, 8_000);
    for residual_us in [7_000, 6_000, 5_000, 4_000, 3_000] {
        let (first, _) = wait(&mut table, &plan, residual_us, 5);
        assert!(matches!(first.residual, Some(Residual::Between { .. })), "{first:?}");
        for turn in 0..10 {
            let (next, _) = wait(&mut table, &plan, residual_us, 5);
            let late = next.elapsed - Nanos::from_micros(residual_us);
            assert!(late.as_micros() <= residual_us / 100 + 5, "{turn} after {residual_us}: {late}");
        }
        // It goes by what it knows again.
        let (next, _) = wait(&mut table, &plan, residual_us, 5);
        assert!(next.sleeps < 40, "{next:?}");
    }
}

#[test]
fn a_sleep_that_somebody_ends_early_teaches_nothing_of_the_timer() {
    let plan = flag("+trust");
    let mut table = table(&plan, 64, 5_000);
    let (mut wait, first) =
        Wait::new(&plan).expecting(table.forecast(&(), &plan)).watched(Arming::Armed).start(us(0));
    let A::SleepUntil(until) = first else { panic!("{first:?}") };
    assert_eq!(wait.landing(), Some(until));
    let known = table.forecast(&(), &plan).known.unwrap();
    let before = known.oversleep.at(1).margin(until.as_nanos());
    assert!(matches!(wait.land_now(us(900)), A::Park { .. }));
    assert_eq!(known.oversleep.at(1).margin(until.as_nanos()), before);
    // Whoever looks does so until the sleep was to end; then it decides anew.
    assert_eq!(wait.step(us(901), O::Woke), A::Park { until: us(1_000) });
    assert_eq!(wait.step(us(1_000), O::Woke), A::Query);
    assert_eq!(wait.step(us(1_001), PENDING), A::Park { until: us(2_001) });
    wait.step(until, O::Woke);
    assert!(matches!(wait.step(until, PENDING), A::SleepUntil(_)), "{until:?}");
}

#[test]
fn a_new_window_keeps_what_fits() {
    let plan = flag("");
    let mut table = table(&plan, 64, 5_000);
    let other: WaitPlan =
        "poll+adapt:late_pct=1,guard_us=5,min_sleep_us=20,max_sleep_us=20000,window=8".parse().unwrap();
    table.record((), &other, Nanos::from_micros(7_000));
    let known = table.forecast(&(), &other).known.unwrap();
    let all: Vec<u64> = known.in_micros();
    assert_eq!(all, [5_000, 5_000, 5_000, 5_000, 5_000, 5_000, 5_000, 7_000]);
    assert_eq!(table.forecast(&(), &plan).known.unwrap().in_micros().len(), 0, "cold for the plan of before");
}

/// The same as in `adapt/tests.rs`, as a wait sees it: it parked until now, woke, and parked until now.
#[test]
fn a_wait_whose_longer_sleeps_were_late_goes_on() {
    let plan = flag("+trust");
    let mut table = PointTable::<()>::of_one();
    let oversleep = &table.forecast(&(), &plan).known.unwrap().oversleep;
    (0..12).for_each(|_| oversleep.at(1).learn(40_000, 40_000, 900_000));
    let (report, actions) = wait(&mut table, &plan, 20_000, 5);
    assert!(report.elapsed < us(20_500).since(us(0)), "{report:?}");
    assert!(actions.len() < 2_000, "{}", actions.len());
}

/// Their margin was that of longer sleeps than they were, which learned nothing of it: each wait was late, for good.
#[test]
fn steady_waits_are_seldom_late_however_late_the_timer_always_is() {
    let plan = flag("");
    for (late_us, cancellable) in [(5, false), (60, true), (115, false), (500, true), (1_000, false)] {
        for residual_us in (40..400).step_by(7).chain((400..9_000).step_by(333)) {
            let mut table = PointTable::of_one();
            let (mut lates, mut sum) = (0, 0);
            for turn in 0..500 {
                let (report, _) = wait_or_cancel(&mut table, &plan, residual_us, late_us, cancellable);
                let late = (report.elapsed - Nanos::from_micros(residual_us)).as_nanos();
                if turn >= 250 {
                    lates += u32::from(late > residual_us * 10 + 6_000);
                    sum += late;
                }
            }
            let case = format_args!("{residual_us} us, late by {late_us}: {lates} of 250, {sum}");
            assert!(lates <= 5 && sum / 250 <= residual_us * 10 + 5_000, "{case}");
        }
    }
}

/// A machine that stalled for a while had its points awake for good.
#[test]
fn it_sleeps_again_after_its_host_has_stalled() {
    let plan = flag("");
    for residual_us in [300, 1_000, 5_000] {
        let mut table = table(&plan, 64, residual_us);
        (0..100).for_each(|_| drop(wait(&mut table, &plan, residual_us, 3 * residual_us)));
        (0..5_000).for_each(|_| drop(wait(&mut table, &plan, residual_us, 5)));
        let (_, actions) = wait(&mut table, &plan, residual_us, 5);
        let (mut awake, mut began) = (0, us(0));
        for action in &actions {
            if let A::Park { until } | A::SleepUntil(until) = action {
                let until = (*until).min(us(residual_us));
                if matches!(action, A::Park { .. }) {
                    awake += until.since(began).as_micros();
                }
                began = began.max(until);
            }
        }
        assert!(awake < residual_us / 10 + 30, "{awake} of {residual_us}: {actions:?}");
    }
}

#[test]
fn a_sleep_that_the_deadline_ends_teaches_nothing_of_the_timer() {
    let plan = flag("");
    let mut table = table(&plan, 64, 5_000);
    let forecast = table.forecast(&(), &plan);
    let oversleep = &table.forecast(&(), &plan).known.unwrap().oversleep;
    let margins = || [1_u64 << 18, 1 << 20, 1 << 22].map(|ns| oversleep.at(1).margin(ns));
    let before = margins();
    let (mut wait, _) = Wait::new(&plan).expecting(forecast).deadline(Some(us(500))).start(us(0));
    wait.step(us(1), PENDING);
    assert_eq!(wait.step(us(2), O::Armed), A::SleepUntil(us(500)));
    wait.step(us(500), O::Woke);
    let A::Finish(report) = wait.step(us(501), PENDING) else { panic!("goes on") };
    assert_eq!((report.end, margins()), (End::TimedOut, before));
}

/// What was asked for a plan with `+adapt` is nothing to a plan without, which would never decide.
#[test]
fn what_is_known_tells_nothing_to_another_kind_of_plan() {
    let adapt = flag("");
    for plan in ["poll", "flag:park_us=50,backstop_us=1000", "flag:park_us=50,backstop_us=1000+trust"] {
        let plan: WaitPlan = plan.parse().unwrap();
        let mut table = table(&adapt, 64, 5_000);
        let (mut wait, _) = Wait::new(&plan).expecting(table.forecast(&(), &adapt)).start(us(0));
        wait.step(us(1), PENDING);
        let action = wait.step(us(2), O::Armed);
        let expected = if plan.mode() == Mode::Poll { A::Query } else { A::Park { until: us(52) } };
        assert_eq!(action, expected, "{plan}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// However late sleeps are and whatever is known, time passes within a few steps: a wait goes on by sleeps and by watches that take time.
    #[test]
    fn no_moment_is_decided_twice(
        known in prop::collection::vec(prop_oneof![0_u64..50, 0_u64..20_000], 0..70),
        residual_us in 0_u64..30_000,
        late_us in prop::collection::vec(prop_oneof![0_u64..20, 0_u64..2_000], 1..20),
        suffix in prop::sample::select(Vec::from(["", "+trust"])),
    ) {
        let plan = flag(suffix);
        let mut table = PointTable::of_one();
        for us in known {
            table.record((), &plan, Nanos::from_micros(us));
        }
        for late_us in late_us {
            let (report, actions) = wait(&mut table, &plan, residual_us, late_us);
            prop_assert!(report.outcome().is_some());
            // A decision, a look and a question each, at most every half microsecond; parks last 50 us.
            let steps_max = 20 + 3 * report.elapsed.as_nanos() / 500;
            prop_assert!((actions.len() as u64) < steps_max, "{} steps in {}", actions.len(), report.elapsed);
        }
    }
}
