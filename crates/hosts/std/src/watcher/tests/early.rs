//! Early wakes: the task is there when its word lands, and watches it itself.

use alloc::task::Wake as RawWake;
use core::future::Future as _;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use wakeline_core::{
    CancelToken, Clock, End, ErrorCode, Instant, Outcome, PointTable, Report, Residual, WaitPlan, Watched,
};

use crate::approach::APPROACH_US;
use crate::points::Point;

use super::super::config::WatcherConfig;
use super::super::flight::{Fly, Seen};
use super::super::future::WatcherWait;
use super::super::home::{Home, Hub};
use super::super::wake_time;
use super::ports::{Driver, Port, Time};
use super::stage::{PREDICT, Ran, STRICT, Spec, Stage, at, line, us, word};

/// A wait of which 5 ms are expected, whose task takes 40 us to run.
fn early(trusted: bool) -> Spec {
    let plan = format!("{STRICT}{PREDICT}{}", if trusted { "+trust" } else { "" });
    Spec { prediction: Some(us(5_000)), early_wake: true, runs_after: us(40), ..Spec::new(&plan) }
}

/// When errands of that kind were run.
fn when(stage: &Stage, what: Ran) -> Vec<Instant> {
    stage.ran().iter().filter(|(_, ran)| *ran == what).map(|(when, _)| *when).collect()
}

#[test]
fn a_task_is_woken_by_its_wake_time_before_the_landing_and_sees_its_word_itself() {
    let (stage, line) = (Stage::new(), line());
    let before = stage.home.wake_time.of(us(5_000));
    let task = stage.fly(&early(true).on(&line, 0));
    stage.store_at(at(4_997), &word(&line, 0));
    stage.run(at(20_000));
    assert_eq!(when(&stage, Ran::Rouse), vec![at(4_950) - before]);
    let stirred = at(4_950) - before - us(APPROACH_US);
    assert_eq!(task.wakes(), vec![stirred, at(4_950) - before], "it was woken once, and stirred before");
    assert_eq!(when(&stage, Ran::Stir), vec![stirred]);
    let report = task.report();
    assert_eq!((report.end, report.overshoot), (End::Done(Outcome::Trusted), us(0)));
    // It watches in slices, from 40 us after its wake.
    assert!((us(4_997)..us(5_018)).contains(&report.elapsed), "{report:?}");
    assert_eq!(report.residual, Some(Residual::Exact(report.elapsed)), "not late: it was seen as it came");
    let plan = early(true).plan.parse().unwrap();
    let mut table = PointTable::of_one();
    table.record((), &plan, us(5_000));
    table.observe((), &report);
    assert_eq!(table.predict(&(), &plan), Some(report.elapsed.min(us(5_000))), "the prediction is kept");
    assert!(stage.home.wake_time.of(us(5_000)) < before, "what a wake takes is learned");
    stage.assert_empty();
}

/// Under the driver's authority the word has its watcher ask; the task watches for the end of that.
#[test]
fn a_strict_task_that_watches_is_not_woken_again_where_it_sees_the_end() {
    let (stage, line) = (Stage::new(), line());
    let task = stage.fly(&Spec { done_at: at(4_997), ..early(false).on(&line, 0) });
    stage.store_at(at(4_997), &word(&line, 0));
    stage.run(at(20_000));
    let report = task.report();
    assert_eq!((report.end, report.queries), (End::Done(Outcome::Parked), 1));
    assert!(matches!(report.residual, Some(Residual::Exact(_))), "{report:?}");
    assert!(report.elapsed <= us(5_000), "{report:?}");
    stage.assert_empty();
}

#[test]
fn a_wrong_guess_falls_back_to_a_watch_and_a_wake() {
    for trusted in [true, false] {
        let (stage, line) = (Stage::new(), line());
        let task = stage.fly(&Spec { done_at: at(9_000), ..early(trusted).on(&line, 0) });
        stage.store_at(at(9_000), &word(&line, 0));
        stage.run(at(20_000));
        assert_eq!(stage.count(Ran::Rouse), 1);
        let wakes = task.wakes();
        assert_eq!(wakes.len(), 3, "{wakes:?}");
        assert!((at(9_000)..at(9_053)).contains(&wakes[2]), "{wakes:?}");
        assert!(matches!(task.report().residual, Some(Residual::Exact(_))));
        stage.assert_empty();
    }
}

#[test]
fn a_word_that_is_there_by_the_early_wake_is_late() {
    let (stage, line) = (Stage::new(), line());
    let task = stage.fly(&early(true).on(&line, 0));
    stage.store_at(at(3_000), &word(&line, 0));
    stage.run(at(20_000));
    let report = task.report();
    assert_eq!((report.end, report.elapsed), (End::Done(Outcome::Late), us(4_900)));
    assert_eq!((stage.count(Ran::Rouse), task.wakes().len()), (0, 2));
    stage.assert_empty();
}

/// Its task watches beyond its deadline, which is its end all the same.
#[test]
fn who_is_woken_early_ends_by_its_deadline() {
    for trusted in [true, false] {
        for deadline in [4_950, 4_951, 5_000, 5_049] {
            let (stage, line) = (Stage::new(), line());
            let task = stage.fly(&Spec { deadline: at(deadline), ..early(trusted).on(&line, 0) });
            stage.run(at(9_000));
            let (when, _) = task.ended().unwrap();
            assert_eq!((task.code(), stage.count(Ran::Rouse)), (Some(ErrorCode::Timeout), 1));
            assert!(task.wakes().len() == 3 || when < at(deadline + 25), "{:?}", task.wakes());
            assert!(when >= at(deadline) && when <= at(deadline + 42), "{when:?} for {deadline}, {trusted}");
            stage.assert_empty();
        }
    }
}

/// A thread that has slept for a moment needs no stir, and those of many flights get none.
#[test]
fn short_waits_and_those_of_many_flights_are_not_stirred() {
    let (stage, line) = (Stage::new(), line());
    let short = stage.fly(&Spec { prediction: Some(us(750)), ..early(true).on(&line, 0) });
    stage.store_at(at(750), &word(&line, 0));
    stage.run(at(2_000));
    assert_eq!((stage.count(Ran::Stir), stage.count(Ran::Rouse), short.wakes().len()), (0, 1, 1));
    let (many, lines) = (Stage::new(), [(); 2].map(|()| super::stage::line()));
    let flights: Vec<_> = (0..9).map(|at| many.fly(&early(true).on(&lines[at / 8], at % 8))).collect();
    (0..9).for_each(|index| many.store_at(at(5_000), &word(&lines[index / 8], index % 8)));
    many.run(at(9_000));
    assert_eq!((many.count(Ran::Stir), flights.len()), (8, 9), "all but the ninth");
    many.assert_empty();
    stage.assert_empty();
}

/// The slices and their bound, by the task's own parts.
#[test]
fn a_task_watches_in_slices_and_not_beyond_its_time() {
    let (stage, line) = (Stage::new(), line());
    let task = stage.fly(&Spec { runs_after: us(1_000_000), ..early(true).on(&line, 0) });
    let flight = task.flight();
    stage.run(at(4_900));
    let who = core::ptr::from_ref(&*flight).addr();
    let clock = Ticking(stage.time.clone());
    let mut slices = 0;
    while wake_time::watch(&flight.lookout, who, &clock, || wakeline_core::Nanos::ZERO, || (), || false)
        == Watched::Again
    {
        slices += 1;
        assert!(slices < 100);
    }
    let until = stage.time.now();
    assert!(until.since(at(4_900)) <= us(500) && until >= at(5_000), "{until:?}");
    // The watcher has it all the while.
    line.store(word(&line, 0).slot(), word(&line, 0).seq());
    assert_eq!(flight.see(until, Seen::Reached), super::super::flight::Next::Over);
    drop(flight);
    stage.run(at(6_000));
    task.abandon();
    stage.run(at(7_000));
    stage.assert_empty();
}

struct Ticking(Time);

impl Clock for Ticking {
    fn now(&self) -> Instant {
        self.0.pass_to(self.0.now() + us(1));
        self.0.now()
    }
}

/// A token of another wait is no reason to end a sleep before its time.
#[test]
fn a_token_that_rings_lands_nobody() {
    let (stage, line) = (Stage::new(), line());
    let tasks: Vec<_> =
        (0..8).map(|slot| stage.fly(&Spec { early_wake: slot < 4, ..early(true).on(&line, slot) })).collect();
    let token = stage.ringing_token();
    stage.when(at(1_000), move || token.cancel());
    stage.run(at(4_800));
    assert_eq!((stage.count(Ran::Rouse), stage.shard.lock().lines.armed()), (0, 0));
    (0..8).for_each(|slot| stage.store_at(at(5_000), &word(&line, slot)));
    stage.run(at(9_000));
    assert!(tasks.iter().all(|task| task.report().end == End::Done(Outcome::Trusted)));
    stage.assert_empty();
}

/// A plain token has the watcher look each millisecond; its landing is where it was.
#[test]
fn looking_at_a_token_lands_nobody() {
    for (early_wake, late) in [(true, 0), (false, 0), (false, 300)] {
        let (stage, line) = (Stage::new(), line());
        let cancel = Some(CancelToken::new());
        let spec = Spec { early_wake, late: us(late), cancel, ..early(true).on(&line, 0) };
        let task = stage.fly(&spec);
        stage.run(at(4_300));
        assert_eq!((stage.count(Ran::Rouse), stage.shard.lock().lines.armed()), (0, 0), "late: {late}");
        stage.store_at(at(5_000), &word(&line, 0));
        stage.run(at(9_000));
        assert_eq!(task.report().end, End::Done(Outcome::Trusted), "late: {late}");
        assert_eq!(Arc::strong_count(&line), 2);
        stage.assert_empty();
    }
}

/// Its waker would be called for nothing once the watcher lets the flight go: at the next arrival, which is its task's next wait most often.
#[test]
fn a_task_that_sees_its_end_itself_leaves_no_waker_behind() {
    struct Nobody;
    impl RawWake for Nobody {
        fn wake(self: Arc<Self>) {}
    }
    let plan: WaitPlan =
        format!("{STRICT}+predict:margin_us=50,min_sleep_us=100,max_sleep_us=9000000,window=8+trust")
            .parse()
            .unwrap();
    let hub = Arc::new(Hub::new(WatcherConfig::default().early_wake(true)));
    let (line, point, shard) = (line(), Point::new("early"), &hub.posts[0].shard);
    let report = Report {
        end: End::Done(Outcome::Trusted),
        plan,
        authority: plan.authority(),
        elapsed: us(5_000_000),
        residual: Some(Residual::Exact(us(5_000_000))),
        overshoot: us(0),
        queries: 0,
        parks: 1,
        sleeps: 1,
        warmed: false,
    };
    (0..8).for_each(|_| point.observe(&Ok(report)));
    assert_eq!(point.predict(&plan), Some(us(5_000_000)));
    let driver = Arc::new(Driver::new(&Time::new(Instant::ORIGIN), Instant::MAX, Instant::MAX));
    let port = Port::new(driver, Some(word(&line, 0)), None);
    let mut wait = WatcherWait::new(&Home::new(Arc::clone(&hub)), port, &plan, &point);
    let nobody = Arc::new(Nobody);
    let waker = Waker::from(Arc::clone(&nobody));
    let mut poll = || Pin::new(&mut wait).poll(&mut Context::from_waker(&waker));
    assert!(poll().is_pending());
    let started = hub.clock.now();
    for later in [0, 4_999_950] {
        shard.lock().turn(shard, started + us(later));
    }
    assert_eq!(shard.counters.early_wakes.get(), 1);
    assert!(poll().is_pending(), "it watches for a slice");
    line.store(word(&line, 0).slot(), word(&line, 0).seq());
    assert!(matches!(poll(), Poll::Ready(Ok(_))));
    drop(waker);
    assert_eq!(Arc::strong_count(&nobody), 1, "its flight keeps its waker");
}
