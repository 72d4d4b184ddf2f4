//! Those who may be told late, and how a leader passes the time.

use std::collections::BTreeSet;
use std::sync::Arc;

use wakeline_core::{Clock, End, Instant, Nanos, Outcome, PointTable, WaitPlan};

use super::super::shard::Pace;
use super::stage::{NAP, PREDICT, SPIN, STRICT, Spec, Stage, TRUST, at, line, us, word};

const ADAPT: &str = "+adapt:late_pct=1,guard_us=5,min_sleep_us=10,max_sleep_us=20000,window=64";

/// The sleeps' ends, each counted once.
fn distinct(sleeps: &[Instant]) -> usize {
    sleeps.iter().collect::<BTreeSet<_>>().len()
}

/// 64 streams whose steps of 20 ms end spread over it, each awaited again as soon as it has ended. What the predictions are is known. (By `+adapt`
/// each wait had nine sleeps of its own.)
#[test]
fn sixty_four_who_may_be_told_late_share_two_thousand_sleeps_a_second() {
    for ahead in [PREDICT, ADAPT, ""] {
        let (stage, lines) = (Stage::new(), [(); 8].map(|()| line()));
        let text = format!("flag:park_us=50,backstop_us=100000{ahead}+trust");
        let plan: WaitPlan = text.parse().unwrap();
        let mut table = PointTable::new(64).unwrap();
        for stream in 0..64 {
            (0..64).for_each(|_| table.record(stream, &plan, us(1_500 + 280 * stream as u64)));
        }
        let mut told = Vec::new();
        for step in 0..10 {
            let begin = 20_000 * step;
            let mut tasks = Vec::new();
            for stream in 0..64 {
                let line = &lines[stream / 8];
                let word = wakeline_core::MemoryDescriptor::new(
                    Arc::clone(line),
                    wakeline_core::Slot::ALL[stream % 8],
                    wakeline_core::Seq::new(step + 1),
                );
                let done = 1_500 + 280 * stream as u64;
                stage.store_at(at(begin + done), &word);
                let forecast = Some(table.forecast(&stream, &plan));
                let spec = Spec { late: us(500), forecast, word: Some(word), ..Spec::new(&text) };
                tasks.push((at(begin + done), stage.fly(&spec)));
            }
            stage.run(at(begin + 20_000));
            told.extend(tasks.into_iter().map(|(done, task)| (done, task.report(), task.ended().unwrap().0)));
        }
        for (done, report, told) in told {
            assert!(told >= done && told.since(done) <= us(501), "told {} late", told.since(done));
            assert_eq!(report.end, End::Done(Outcome::Trusted), "{ahead}");
        }
        let sleeps = distinct(&stage.sleeps.lock().unwrap());
        assert!(sleeps <= 400 + 20, "{sleeps} sleeps in 200 ms, {ahead}");
        assert!(stage.naps.lock().unwrap().is_empty());
        stage.assert_empty();
    }
}

#[test]
fn each_lateness_has_its_own_times_and_is_kept() {
    let (stage, line) = (Stage::new(), line());
    let tasks: Vec<_> = (0..8)
        .map(|slot| {
            let late = us(if slot % 2 == 0 { 300 } else { 1_000 });
            (
                late,
                stage.fly(&Spec {
                    late,
                    ..Spec::new("flag:park_us=50,backstop_us=100000+trust").on(&line, slot)
                }),
            )
        })
        .collect();
    let stored = |slot: usize| at(7_000 + 1_130 * slot as u64);
    (0..8).for_each(|slot| stage.store_at(stored(slot), &word(&line, slot)));
    stage.run(at(30_000));
    let mut seen_at = BTreeSet::new();
    for (slot, (late, task)) in tasks.iter().enumerate() {
        let told = task.ended().unwrap().0;
        assert!(told >= stored(slot) && told.since(stored(slot)) <= *late, "{slot}: {told:?}");
        assert!(seen_at.insert(told) || slot > 0);
    }
    stage.assert_empty();
}

/// Who may be told late watches beside one who may not, whose end is not late.
#[test]
fn lateness_is_nobody_elses() {
    let (stage, line) = (Stage::new(), line());
    let late = stage.fly(&Spec { late: us(5_000), ..Spec::new(TRUST).on(&line, 0) });
    let exact = stage.fly(&Spec::new(TRUST).on(&line, 1));
    stage.store_at(at(2_300), &word(&line, 1));
    stage.store_at(at(2_400), &word(&line, 0));
    stage.run(at(20_000));
    assert!(exact.report().elapsed <= us(2_300) + NAP + us(2));
    assert!(late.report().elapsed <= us(2_400 + 5_000));
    stage.assert_empty();
}

/// Its word came long before its work, or there is none: that is no reason to look all the time, nor to ask.
#[test]
fn who_may_be_told_late_sleeps_to_its_next_question() {
    let predicted = format!("{STRICT}{PREDICT}");
    for plan in [STRICT, &predicted] {
        let (stage, line) = (Stage::new(), line());
        let spec = Spec { late: us(400), done_at: at(5_000), ..Spec::new(plan) };
        let (doubting, napping) = (stage.fly(&spec.clone().on(&line, 0)), stage.fly(&spec));
        stage.store_at(at(100), &word(&line, 0));
        // A leader that looks again and again at one moment is a failure of the stage.
        stage.run(at(10_000));
        assert!(doubting.report().queries < 120, "{:?}", doubting.report());
        assert!(napping.report().queries <= 101, "{:?}", napping.report());
        assert!(doubting.report().elapsed <= us(6_500) && napping.report().elapsed <= us(5_460));
        let sleeps = stage.sleeps.lock().unwrap().len();
        assert!(sleeps < 150, "{sleeps} sleeps");
        stage.assert_empty();
    }
}

/// Time stands still: who is due again at once waits for the next turn.
#[test]
fn a_flight_that_is_due_again_at_once_does_not_keep_a_turn_from_ending() {
    let (stage, line) = (Stage::new(), line());
    let plan = format!("{STRICT}{PREDICT}");
    for slot in 0..8 {
        let late = us([0, 1, 400, 1_000_000][slot % 4]);
        let prediction = Some(us(200));
        stage.fly(&Spec { late, prediction, deadline: at(300), ..Spec::new(&plan).on(&line, slot) });
    }
    for now in [0, 100, 149, 150, 151, 299, 300, 301, 1_000_000] {
        stage.time.pass_to(at(now));
        for _ in 0..50 {
            let _ = stage.turn();
        }
    }
    stage.run(at(1_000_000));
    for task in stage.tasks.lock().unwrap().drain(..) {
        assert!(task.ended().is_some());
    }
    stage.assert_empty();
}

#[test]
fn a_leader_spins_then_naps_and_sleeps_where_no_word_is_watched() {
    let (stage, line) = (Stage::new(), line());
    let pace = |stage: &Stage| stage.shard.lock().pace(stage.time.now());
    stage.run(at(0));
    assert_eq!(pace(&stage), Pace::Sleep { sharp: Instant::MAX, blunt: Instant::MAX });
    let spec = Spec { deadline: at(30_000), ..Spec::new("flag:park_us=50,backstop_us=10000+trust") };
    let watched = stage.fly(&spec.clone().on(&line, 0));
    let _ = stage.turn();
    let spins_until = stage.time.now() + SPIN;
    assert_eq!(pace(&stage), Pace::Spin);
    stage.time.pass_to(spins_until - Nanos::from_nanos(1));
    assert_eq!(pace(&stage), Pace::Spin);
    stage.time.pass_to(spins_until);
    assert_eq!(pace(&stage), Pace::Nap { until: spins_until + NAP });
    // A nap ends with what is due.
    stage.time.pass_to(at(9_990));
    assert_eq!(pace(&stage), Pace::Nap { until: at(10_000) });
    stage.time.pass_to(at(10_000));
    assert_eq!(pace(&stage), Pace::Look);
    stage.run(at(10_001));
    assert!(matches!(pace(&stage), Pace::Nap { .. }), "a look at a backstop is no new watch");
    // What is long in coming is looked at more seldom, by a part of how long that is and within a bound, unless somebody says that it may come now.
    let nap = |stage: &Stage| match pace(stage) {
        Pace::Nap { until } => until.since(stage.time.now()),
        pace => panic!("{pace:?}"),
    };
    stage.time.pass_to(at(10_100));
    let grown = nap(&stage);
    assert!((us(150)..us(160)).contains(&grown), "{grown}");
    stage.shard.attend();
    let _ = stage.turn();
    assert_eq!(pace(&stage), Pace::Spin);
    stage.time.pass_to(stage.time.now() + SPIN);
    assert_eq!(nap(&stage), NAP);
    // Another that comes has them all watched closely again.
    let second = stage.fly(&spec.on(&line, 1));
    stage.run(stage.time.now() + us(1));
    assert_eq!(pace(&stage), Pace::Spin);
    watched.abandon();
    second.abandon();
    stage.run(at(10_900));
    assert_eq!(pace(&stage), Pace::Sleep { sharp: Instant::MAX, blunt: Instant::MAX });

    // A landing is met sharply, a deadline or a shared time bluntly.
    let plan = format!("{STRICT}{PREDICT}");
    let spec = Spec { prediction: Some(us(5_000)), ..Spec::new(&plan) };
    let begin = stage.time.now();
    let exact = stage.fly(&spec.clone().on(&line, 2));
    let late = stage.fly(&Spec { late: us(700), ..spec }.on(&line, 3));
    stage.run(at(10_910));
    let shared = |until: Instant| Instant::from_nanos(until.as_nanos() / 700_000 * 700_000);
    let blunt = shared(begin + us(5_000 - 700 - 50));
    assert_eq!(pace(&stage), Pace::Sleep { sharp: begin + us(4_950), blunt });
    exact.abandon();
    late.abandon();
    stage.run(at(20_000));
    stage.assert_empty();
}
