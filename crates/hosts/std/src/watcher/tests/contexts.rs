//! The drivers: asked in turn, all at once after a failure, and late to answer.

use std::sync::{Arc, Mutex};

use wakeline_core::{CancelToken, End, ErrorCode, Instant, Nanos, Outcome};

use super::super::contexts::BACKSTOP_QUERIES_PER_MS_MAX;
use super::stage::{Line, Ran, STRICT, Spec, Stage, TRUST, Task, at, line, us, word};

/// Flights of one context whose words never come, on lines of eight.
fn crowd(stage: &Arc<Stage>, spec: &Spec, count: usize) -> (Vec<Arc<Task>>, Vec<Line>) {
    let lines: Vec<_> = (0..count.div_ceil(8)).map(|_| line()).collect();
    let tasks = (0..count).map(|each| stage.fly(&spec.clone().on(&lines[each / 8], each % 8))).collect();
    (tasks, lines)
}

/// When any of them was asked, in order.
fn asked(tasks: &[Arc<Task>]) -> Vec<Instant> {
    let mut all: Vec<_> = tasks.iter().flat_map(|task| task.driver.queries()).collect();
    all.sort_unstable();
    all
}

#[test]
fn nine_hundred_of_one_context_ask_sixteen_times_a_millisecond_and_each_gets_its_turn() {
    let stage = Stage::new();
    let (tasks, lines) = crowd(&stage, &Spec { context: Some(1), ..Spec::new(TRUST) }, 900);
    let free = stage.fly(&Spec { context: Some(2), ..Spec::new(TRUST) }.on(&line(), 0));
    stage.run(at(200_000));
    let all = asked(&tasks);
    let most = BACKSTOP_QUERIES_PER_MS_MAX as usize;
    for ms in [1, 2, 10, 50] {
        let window = Nanos::from_millis(ms);
        let allowed = most * usize::try_from(ms + 1).unwrap();
        let busiest = (0..all.len())
            .map(|first| all[first..].partition_point(|other| other.since(all[first]) < window))
            .max()
            .unwrap();
        assert!(busiest <= allowed, "{busiest} queries in {window}");
    }
    // After the burst of the start it is even.
    let later = &all[2 * most..];
    for (first, when) in later.iter().enumerate() {
        let count = later[first..].partition_point(|other| other.since(*when) < Nanos::from_millis(1));
        assert!(count <= most + 1, "{count} queries in the millisecond from {when:?}");
    }
    assert!(all.len() > 199 * 15, "turns are lost: {}", all.len());
    for task in &tasks {
        let queries = task.driver.queries();
        assert!((3..=4).contains(&queries.len()), "{queries:?}");
        assert!(queries[0] <= at(58_500), "{queries:?}");
        assert!(queries.is_sorted_by(|one, next| next.since(*one) <= us(58_500)), "{queries:?}");
    }
    assert!(free.driver.queries().len() > 190, "another context's turns are its own");
    // Words are seen all the same while their flights wait for their turn.
    for (each, line) in lines.iter().enumerate() {
        (0..8.min(900 - 8 * each)).for_each(|slot| stage.store_at(at(200_100), &word(line, slot)));
    }
    stage.run(at(200_160));
    assert!(tasks.iter().all(|task| task.report().end == End::Done(Outcome::Trusted)));
    free.abandon();
    stage.assert_empty();
}

#[test]
fn who_waits_for_its_turn_ends_by_its_deadline_and_with_its_token() {
    let stage = Stage::new();
    let token = stage.ringing_token();
    let (crowd, _lines) = crowd(&stage, &Spec { context: Some(1), ..Spec::new(STRICT) }, 200);
    stage.run(at(10));
    // They come last, and their turn would be 12 ms later.
    let line = line();
    let spec = Spec { context: Some(1), ..Spec::new(STRICT) };
    let timed = stage.fly(&Spec { deadline: at(1_900), ..spec.clone() }.on(&line, 0));
    let trusted =
        stage.fly(&Spec { deadline: at(1_900), ..Spec { plan: TRUST.into(), ..spec.clone() } }.on(&line, 1));
    let cancelled = stage.fly(&Spec { cancel: Some(token.clone()), ..spec }.on(&line, 2));
    let plain_token = CancelToken::new();
    let spec = Spec { context: Some(1), cancel: Some(plain_token.clone()), ..Spec::new(STRICT) };
    let plain = stage.fly(&spec.on(&line, 3));
    stage.when(at(1_500), move || token.cancel());
    stage.when(at(3_000), move || plain_token.cancel());
    stage.run(at(1_899));
    assert_eq!((cancelled.code(), cancelled.driver.queries().len()), (Some(ErrorCode::Cancelled), 0));
    assert!(cancelled.ended().unwrap().0 <= at(1_502), "{:?}", cancelled.ended());
    let asked_by_now = asked(&crowd).len();
    assert!(asked_by_now <= 32, "a token had {asked_by_now} asked before their turn");
    assert_eq!(plain.code(), None);
    assert!(timed.ended().is_none() && timed.driver.queries().is_empty());
    stage.run(at(1_950));
    assert_eq!((timed.code(), trusted.code()), (Some(ErrorCode::Timeout), Some(ErrorCode::Timeout)));
    assert!(timed.ended().unwrap().0 <= at(1_905), "{:?}", timed.ended());
    assert_eq!((timed.driver.queries().len(), trusted.driver.queries().len()), (1, 0), "one last question");
    stage.run(at(4_000));
    assert_eq!((plain.code(), plain.driver.queries().len()), (Some(ErrorCode::Cancelled), 0));
    for task in &crowd {
        task.abandon();
    }
    stage.run(at(5_000));
    stage.assert_empty();
}

/// Stores were lost, their work is done, and all have the same deadline: each is asked about once more.
#[test]
fn all_who_have_one_deadline_get_their_last_question() {
    let stage = Stage::new();
    let spec = Spec { deadline: at(900), done_at: at(500), context: Some(1), ..Spec::new(STRICT) };
    let (tasks, _lines) = crowd(&stage, &spec, 40);
    stage.run(at(3_000));
    for task in &tasks {
        assert_eq!(task.report().end, End::Done(Outcome::Parked));
        assert!(task.ended().unwrap().0 <= at(950));
    }
    stage.assert_empty();
}

/// The driver does not answer before the deadline has come: the wait ends, its number goes to another, and the answer to nobody.
#[test]
fn a_deadline_passes_while_the_driver_is_being_asked() {
    let (stage, line) = (Stage::new(), line());
    let spec = Spec { deadline: at(600), done_at: at(200), ..Spec::new(STRICT) };
    let task = stage.fly(&spec.on(&line, 0));
    stage.store_at(at(200), &word(&line, 0));
    let next: Arc<Mutex<Option<Arc<Task>>>> = Arc::default();
    let (there, held_up, its_line) = (Arc::clone(&stage), Arc::clone(&task), Arc::clone(&line));
    let its_next = Arc::clone(&next);
    task.driver.meanwhile(move || {
        let number = held_up.number();
        // Another leads meanwhile.
        there.time.pass_to(at(599));
        assert!(there.turn().is_none() && !held_up.is_forgotten());
        there.time.pass_to(at(600));
        assert!(there.turn().is_none());
        assert_eq!(held_up.wakes(), vec![at(600)]);
        let other = there.fly(&Spec { done_at: at(900), ..Spec::new(STRICT) }.on(&its_line, 1));
        assert!(there.turn().is_none());
        assert_eq!(other.number(), number, "the number is used again");
        *its_next.lock().unwrap() = Some(other);
    });
    stage.run(at(700));
    assert_eq!((task.code(), task.driver.queries().len()), (Some(ErrorCode::Timeout), 1));
    let next = next.lock().unwrap().take().unwrap();
    assert!(next.ended().is_none(), "the answer was another's: {:?}", next.ended());
    stage.store_at(at(900), &word(&line, 1));
    stage.run(at(2_000));
    assert_eq!(next.report().end, End::Done(Outcome::Parked));
    assert_eq!((task.wakes().len(), next.wakes().len()), (1, 1));
    stage.assert_empty();
}

/// As before, but the leader that asked is one no longer: it hands in what it was told.
#[test]
fn what_a_leader_of_before_hands_in_counts_once_and_for_its_own_flight() {
    let (stage, line) = (Stage::new(), line());
    let task = stage.fly(&Spec { done_at: at(5), ..Spec::new(STRICT) }.on(&line, 0));
    stage.store_at(at(50), &word(&line, 0));
    stage.run(at(49));
    stage.time.pass_to(at(50));
    line.store(word(&line, 0).slot(), word(&line, 0).seq());
    let (number, fly) = stage.turn().expect("its word is there");
    // It was not asked: whoever leads asks instead.
    stage.shard.hand_in(number, Arc::clone(&fly), None);
    let (again, same) = stage.turn().expect("it is to be asked again");
    assert!(again == number && Arc::ptr_eq(&fly, &same));
    let answer = same.ask(&stage.time);
    stage.shard.hand_in(number, same, Some(answer));
    drop(fly);
    stage.run(at(100));
    assert_eq!(task.report().end, End::Done(Outcome::Parked));
    assert_eq!((task.driver.queries().len(), task.wakes().len(), stage.count(Ran::Drop)), (1, 1, 2));
    stage.assert_empty();
}

#[test]
fn one_failure_has_all_of_its_context_asked_at_once_and_no_other() {
    let stage = Stage::new();
    let fails = Spec { fails_at: at(400), context: Some(1), ..Spec::new(TRUST) };
    let (same, _lines) = crowd(&stage, &fails, 50);
    let (other, _other_lines) = crowd(&stage, &Spec { context: Some(2), ..Spec::new(TRUST) }, 10);
    let (free, _free_lines) = crowd(&stage, &Spec::new(TRUST), 10);
    // It is asked first, since its word is there.
    let line = line();
    let first = stage.fly(&Spec { plan: STRICT.into(), ..fails }.on(&line, 0));
    stage.store_at(at(400), &word(&line, 0));
    stage.run(at(399));
    assert!(asked(&same).is_empty());
    stage.run(at(800));
    assert_eq!((first.code(), stage.count(Ran::Faulted)), (Some(ErrorCode::Backend), 1));
    for task in &same {
        assert_eq!((task.code(), task.driver.queries().len()), (Some(ErrorCode::Backend), 1));
        assert!(task.ended().unwrap().0 < at(520), "{:?}", task.ended());
    }
    assert!(asked(&other).is_empty() && asked(&free).is_empty());
    for task in other.iter().chain(&free) {
        task.abandon();
    }
    stage.run(at(900));
    stage.assert_empty();
}

/// A flight fails alone: the others say pending and go on, and are not asked for it again within a millisecond.
#[test]
fn failures_of_single_flights_ask_the_others_once_a_millisecond() {
    let stage = Stage::new();
    let (healthy, _lines) = crowd(&stage, &Spec { context: Some(1), ..Spec::new(TRUST) }, 4);
    let line = line();
    let fails = Spec { fails_at: at(0), context: Some(1), ..Spec::new(STRICT) };
    let failing: Vec<_> = (0..8).map(|slot| stage.fly(&fails.clone().on(&line, slot))).collect();
    for slot in 0..8 {
        stage.store_at(at(100 + 100 * slot as u64), &word(&line, slot));
    }
    stage.run(at(950));
    assert!(failing.iter().all(|task| task.code() == Some(ErrorCode::Backend)));
    assert_eq!((stage.count(Ran::Faulted), asked(&healthy).len()), (1, 4));
    assert!(healthy.iter().all(|task| task.ended().is_none()));
    for task in &healthy {
        task.abandon();
    }
    stage.run(at(1_000));
    stage.assert_empty();
}
