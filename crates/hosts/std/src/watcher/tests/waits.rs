//! Single waits from start to end.

use wakeline_core::{CancelToken, End, ErrorCode, Outcome, Residual};

use super::stage::{PREDICT, Ran, STRICT, Spec, Stage, TRUST, at, line, us, word};

#[test]
fn a_strict_wait_asks_once_its_word_is_there() {
    let (stage, line) = (Stage::new(), line());
    let task = stage.fly(&Spec { done_at: at(300), ..Spec::new(STRICT).on(&line, 3) });
    stage.store_at(at(310), &word(&line, 3));
    stage.run(at(309));
    assert!(task.driver.queries().is_empty() && task.wakes().is_empty());
    assert_eq!(stage.shard.lock().lines.armed(), 1);
    stage.run(at(2_000));
    let report = task.report();
    assert_eq!((report.end, report.queries), (End::Done(Outcome::Parked), 1));
    assert!((us(310)..us(362)).contains(&report.elapsed), "{report:?}");
    assert_eq!((task.driver.queries().len(), task.wakes().len()), (1, 1));
    assert!(stage.sleeps.lock().unwrap().is_empty(), "with nothing in flight it sleeps for good");
    stage.assert_empty();
}

#[test]
fn a_strict_wait_whose_driver_lags_behind_its_word_asks_on() {
    let (stage, line) = (Stage::new(), line());
    let task = stage.fly(&Spec { done_at: at(117), ..Spec::new(STRICT).on(&line, 0) });
    stage.store_at(at(100), &word(&line, 0));
    stage.run(at(2_000));
    let report = task.report();
    assert_eq!(
        (report.end, report.residual),
        (End::Done(Outcome::Parked), Some(Residual::Exact(us(100)))),
        "when its word was seen"
    );
    assert_eq!((report.elapsed, report.queries), (us(117), 17));
    stage.assert_empty();
}

#[test]
fn a_word_that_comes_long_before_its_work_is_not_asked_for_all_the_time() {
    let (stage, line) = (Stage::new(), line());
    let task = stage.fly(&Spec { done_at: at(5_000), ..Spec::new(STRICT).on(&line, 0) });
    stage.store_at(at(100), &word(&line, 0));
    stage.run(at(9_000));
    let report = task.report();
    assert!((us(5_000)..us(6_010)).contains(&report.elapsed), "{report:?}");
    assert!(report.queries < 110, "{report:?}");
    stage.assert_empty();
}

#[test]
fn a_lost_store_costs_one_backstop() {
    let (stage, line) = (Stage::new(), line());
    let task = stage.fly(&Spec { done_at: at(300), ..Spec::new(STRICT).on(&line, 0) });
    stage.run(at(5_000));
    assert_eq!((task.report().elapsed, task.driver.queries()), (us(1_001), vec![at(1_000)]));
    stage.assert_empty();
}

#[test]
fn a_trusted_wait_asks_nobody() {
    let (stage, line) = (Stage::new(), line());
    let task = stage.fly(&Spec::new(TRUST).on(&line, 7));
    stage.store_at(at(150), &word(&line, 7));
    stage.run(at(5_000));
    let report = task.report();
    assert_eq!((report.end, report.elapsed, report.queries), (End::Done(Outcome::Trusted), us(150), 0));
    assert_eq!((task.driver.queries().len(), task.wakes()), (0, vec![at(150)]));
    stage.assert_empty();
}

#[test]
fn a_trusted_word_that_is_lost_is_an_error_after_two_backstops() {
    let (stage, line) = (Stage::new(), line());
    let task = stage.fly(&Spec { done_at: at(10), ..Spec::new(TRUST).on(&line, 0) });
    stage.run(at(5_000));
    assert_eq!(
        (task.code(), task.driver.queries()),
        (Some(ErrorCode::StoreLost), vec![at(1_000), at(2_001)])
    );
    stage.assert_empty();
}

#[test]
fn without_words_it_asks_and_naps() {
    for plan in [STRICT, TRUST] {
        let stage = Stage::new();
        let task = stage.fly(&Spec { done_at: at(230), ..Spec::new(plan) });
        stage.run(at(5_000));
        // At once, and then after each nap of the plan's.
        assert_eq!(task.driver.queries(), [0, 51, 102, 153, 204, 255].map(at), "{plan}");
        assert_eq!((task.report().elapsed, task.wakes().len()), (us(256), 1));
        stage.assert_empty();
    }
}

#[test]
fn a_polling_wait_asks_all_the_time_and_lets_others_in_between() {
    let (stage, line) = (Stage::new(), line());
    let polling = stage.fly(&Spec { done_at: at(200), ..Spec::new("poll") });
    let other = stage.fly(&Spec::new(TRUST).on(&line, 0));
    stage.store_at(at(100), &word(&line, 0));
    stage.run(at(1_000));
    assert_eq!((polling.report().elapsed, polling.report().queries), (us(200), 200));
    assert!(other.report().elapsed <= us(102), "{:?}", other.report());
    stage.assert_empty();
}

#[test]
fn a_blocking_wait_is_made_elsewhere_and_ends_by_its_deadline() {
    for (done_at, code) in [(700, None), (1_500, Some(ErrorCode::Timeout))] {
        let stage = Stage::new();
        let task = stage.fly(&Spec { done_at: at(done_at), deadline: at(1_000), ..Spec::new("block") });
        stage.run(at(3_000));
        assert_eq!((task.code(), stage.count(Ran::Block), task.driver.queries().len()), (code, 1, 0));
        assert_eq!(task.wakes(), vec![at(done_at.min(1_000))]);
        stage.assert_empty();
    }
}

#[test]
fn a_predicted_sleep_watches_nothing_and_lands_a_margin_before() {
    let (stage, line) = (Stage::new(), line());
    let plan = format!("{STRICT}{PREDICT}");
    let spec = Spec { prediction: Some(us(5_000)), done_at: at(5_000), ..Spec::new(&plan).on(&line, 0) };
    let task = stage.fly(&spec);
    stage.store_at(at(5_000), &word(&line, 0));
    stage.run(at(4_949));
    assert_eq!(stage.shard.lock().lines.armed(), 0);
    stage.run(at(4_950));
    assert_eq!(
        (stage.shard.lock().lines.armed(), stage.sleeps.lock().unwrap().clone()),
        (1, vec![at(4_950)])
    );
    stage.run(at(9_000));
    let report = task.report();
    assert_eq!((report.elapsed, report.queries, report.sleeps), (us(5_001), 1, 1));
    assert_eq!(report.residual, Some(Residual::Exact(us(5_000))));
    assert!(stage.naps.lock().unwrap().is_empty(), "it spins by then");
    stage.assert_empty();
}

#[test]
fn a_token_ends_it_at_once_where_it_rings_and_within_a_millisecond_elsewhere() {
    for rings in [true, false] {
        let (stage, line) = (Stage::new(), line());
        let token = if rings { stage.ringing_token() } else { CancelToken::new() };
        let watched = stage.fly(&Spec { cancel: Some(token.clone()), ..Spec::new(TRUST).on(&line, 0) });
        let plan = format!("{STRICT}{PREDICT}+trust");
        let asleep = stage.fly(&Spec {
            cancel: Some(token.clone()),
            prediction: Some(us(19_000)),
            ..Spec::new(&plan).on(&line, 1)
        });
        stage.when(at(5_500), move || token.cancel());
        stage.run(at(30_000));
        for task in [watched, asleep] {
            let (when, _) = task.ended().unwrap();
            assert_eq!((task.code(), task.wakes().len()), (Some(ErrorCode::Cancelled), 1));
            let by = if rings { at(5_500) } else { at(6_500) };
            assert!(when >= at(5_500) && when <= by, "rings: {rings}, at {when:?}");
        }
        stage.assert_empty();
    }
}

/// The ring is answered before the flight has come in: it is looked at as it does.
#[test]
fn a_token_that_rings_before_its_flight_is_there_ends_it_all_the_same() {
    let (stage, line) = (Stage::new(), line());
    let watched = stage.fly(&Spec::new(TRUST).on(&line, 0));
    stage.run(at(10));
    let token = stage.ringing_token();
    let spec = Spec::new("flag:park_us=50,backstop_us=1000000");
    let task = stage.fly(&Spec { cancel: Some(token.clone()), ..spec }.on(&line, 1));
    token.cancel();
    stage.run(at(20));
    assert_eq!((task.code(), task.wakes().len()), (Some(ErrorCode::Cancelled), 1));
    watched.abandon();
    stage.run(at(30));
    stage.assert_empty();
}
