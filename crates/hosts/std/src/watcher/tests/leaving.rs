//! What abandoned flights and a closed watcher leave behind.

use std::sync::Arc;

use wakeline_core::{Clock, End, ErrorCode, Outcome};

use super::stage::{PREDICT, Ran, STRICT, Spec, Stage, TRUST, at, line, us, word};

/// A flight in every place where one can be.
fn everywhere(stage: &Arc<Stage>, line: &Arc<wakeline_core::HostLine>) {
    let predicted = format!("{STRICT}{PREDICT}");
    let asleep = Spec { prediction: Some(us(9_000)), context: Some(1), ..Spec::new(&predicted) };
    stage.fly(&Spec { context: Some(1), ..Spec::new(STRICT) }.on(line, 0));
    stage.fly(&Spec { context: Some(2), ..Spec::new(TRUST) }.on(line, 1));
    stage.fly(&asleep.clone().on(line, 2));
    stage.fly(&Spec { early_wake: true, ..asleep.clone() }.on(line, 3));
    stage.fly(&Spec { late: us(300), ..asleep }.on(line, 4));
    stage.fly(&Spec { late: us(300), ..Spec::new(TRUST) }.on(line, 5));
    // Its word is there and its work is not done.
    stage.fly(&Spec::new(STRICT).on(line, 6));
    stage.fly(&Spec { deadline: at(50_000), ..Spec::new("block") });
    stage.fly(&Spec::new("poll"));
    stage.fly(&Spec::new(STRICT));
}

#[test]
fn the_abandoned_leave_nothing_wherever_they_were() {
    for when in [0, 1, 30, 500, 8_899, 8_900, 8_950, 9_100, 30_000] {
        let (stage, line) = (Stage::new(), line());
        everywhere(&stage, &line);
        stage.store_at(at(20), &word(&line, 6));
        stage.run(at(when));
        for task in stage.tasks.lock().unwrap().iter() {
            task.abandon();
            assert_eq!(task.driver.drops(), 1, "its port is let go at once");
        }
        assert_eq!(stage.home.hub.seated(), 0);
        stage.run(at(60_000));
        stage.assert_empty();
        assert_eq!(Arc::strong_count(&line), 1, "at {when}");
        assert!(stage.tasks.lock().unwrap().iter().all(|task| task.ended().is_none()));
    }
}

/// Abandoned while the driver is asked: the call has the port, and lets it go.
#[test]
fn abandoned_while_being_asked() {
    let (stage, line) = (Stage::new(), line());
    let task = stage.fly(&Spec { done_at: at(0), ..Spec::new(STRICT) }.on(&line, 0));
    stage.store_at(at(100), &word(&line, 0));
    let held_up = Arc::clone(&task);
    task.driver.meanwhile(move || {
        held_up.abandon();
        assert_eq!(held_up.driver.drops(), 0);
    });
    stage.run(at(1_000));
    assert!(task.ended().is_none() && task.wakes().is_empty());
    stage.assert_empty();
}

#[test]
fn closing_ends_all_and_what_comes_later() {
    for when in [0, 30, 500, 8_900, 9_100] {
        let (stage, line) = (Stage::new(), line());
        everywhere(&stage, &line);
        stage.store_at(at(20), &word(&line, 6));
        stage.run(at(when));
        let pending = stage.tasks.lock().unwrap().len();
        assert_eq!(stage.close(), Some(pending));
        assert!(stage.shard.is_closed());
        stage.fly(&Spec::new(TRUST).on(&line, 7));
        // Early wakes take their tasks a moment.
        stage.time.pass_to(at(when + 1_000));
        assert_eq!(stage.close(), None, "it was closed before");
        for task in stage.tasks.lock().unwrap().iter() {
            assert_eq!(task.code(), Some(ErrorCode::WatcherClosed));
        }
        stage.run(at(60_000));
        stage.assert_empty();
        assert_eq!(Arc::strong_count(&line), 1);
    }
}

/// Numbers go from one to the next within a turn or two; nobody gets what was another's.
#[test]
fn numbers_are_used_again() {
    let (stage, lines) = (Stage::new(), [line(), line()]);
    let mut most = 0;
    let mut tasks = Vec::new();
    for round in 0..200_u64 {
        let line = &lines[usize::try_from(round % 2).unwrap()];
        line.store(wakeline_core::Slot::ALL[0], wakeline_core::Seq::new(0));
        let spec = Spec { done_at: stage.time.now() + us(30), context: Some(round % 3), ..Spec::new(STRICT) };
        let kept = stage.fly(&spec.clone().on(line, 0));
        let dropped = stage.fly(&spec.on(line, 1));
        stage.run(stage.time.now() + us(4 * (round % 3)));
        dropped.abandon();
        stage.store_at(stage.time.now() + us(31), &word(line, 0));
        stage.run(stage.time.now() + us(40));
        assert_eq!(kept.report().end, End::Done(Outcome::Parked), "{round}");
        assert_eq!((kept.wakes().len(), dropped.wakes().len()), (1, 0));
        tasks.push(kept);
        most = most.max(stage.shard.lock().census().entries);
    }
    assert!(most <= 2, "{most}");
    assert_eq!(stage.count(Ran::Faulted), 0);
    stage.assert_empty();
}
