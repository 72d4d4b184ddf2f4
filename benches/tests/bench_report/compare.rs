//! Comparing runs: what is found, what is not, and what is not compared.

use wakeline_benches::Interval;
use wakeline_benches::ab::report::{Comparison, Verdict, Why};
use wakeline_benches::ab::schema::Order;

use crate::synthetic::{self, PREDICT};

fn of_predict(comparison: &Comparison) -> Vec<&wakeline_benches::ab::report::Row> {
    let rows = comparison.rows.iter();
    rows.filter(|row| row.arm == PREDICT && row.metric == "cpu" && row.suite == "wake").collect()
}

#[test]
fn a_planted_slowdown_is_found_and_nothing_else() {
    let before = synthetic::full("before.jsonl", 1, 1.0);
    for (factor, verdict) in [(1.1, Verdict::Worse), (0.9, Verdict::Better)] {
        let comparison = Comparison::of(&before, &synthetic::full("after.jsonl", 2, factor));
        let rows = of_predict(&comparison);
        assert_eq!(rows.len(), 4);
        for row in rows {
            assert_eq!(row.verdict, verdict, "{row:?}");
        }
        let found = comparison.count(|found| *found == Verdict::Better || *found == Verdict::Worse);
        assert!(
            found <= 4 + 3,
            "{found} of {}: by chance about {}",
            comparison.rows.len(),
            comparison.by_chance()
        );
    }
}

#[test]
fn false_alarms_are_about_as_rare_as_they_are_said_to_be() {
    let before = synthetic::full("before.jsonl", 1, 1.0);
    let (mut alarms, mut expected) = (0, 0.0);
    for seed in 100..110 {
        let comparison = Comparison::of(&before, &synthetic::full("after.jsonl", seed, 1.0));
        alarms += comparison.count(|found| *found == Verdict::Better || *found == Verdict::Worse);
        expected += comparison.by_chance();
    }
    assert!(
        f64::from(u32::try_from(alarms).unwrap()) <= 3.0 * expected,
        "{alarms}, by chance about {expected}"
    );
}

#[test]
fn a_run_is_no_different_from_itself() {
    let file = synthetic::full("same.jsonl", 1, 1.0);
    let comparison = Comparison::of(&file, &file);
    assert!(comparison.rows.len() > 50);
    assert_eq!(comparison.count(|found| *found == Verdict::Better || *found == Verdict::Worse), 0);
    assert!(comparison.rows.iter().all(|row| row.arm != synthetic::SPIN), "the base is not compared");
}

#[test]
fn what_says_nothing_about_the_other_is_not_compared() {
    let before = synthetic::full("before.jsonl", 1, 1.0);
    let why = |after: &wakeline_benches::ab::report::RunFile| {
        let comparison = Comparison::of(&before, after);
        let row = of_predict(&comparison)[0];
        match &row.verdict {
            Verdict::NotComparable(why) => why.clone(),
            other => panic!("{other}"),
        }
    };
    let mut after = before.clone();
    after.run.environment.cpu = "another".to_owned();
    assert!(matches!(why(&after), Why::OtherMachine { what: "CPU", .. }));
    let mut after = before.clone();
    after.run.environment.release = false;
    assert!(matches!(why(&after), Why::OtherMachine { what: "build", .. }));
    let mut after = before.clone();
    after.cells.iter_mut().for_each(|cell| cell.base = "poll".to_owned());
    assert!(matches!(why(&after), Why::OtherBase { .. }));
    let mut after = before.clone();
    for metric in after.cells.iter_mut().filter_map(|cell| cell.metrics.get_mut("cpu")) {
        metric.ratio = Interval::of(&[0.5, 0.6]);
    }
    assert_eq!(why(&after), Why::TooFewRounds { rounds: 2 });
    for metric in after.cells.iter_mut().filter_map(|cell| cell.metrics.get_mut("cpu")) {
        metric.ratio = None;
    }
    assert_eq!(why(&after), Why::NoRatio);
    let neither = Comparison::of(&after, &after);
    assert!(neither.rows.iter().all(|row| row.metric != "cpu"), "there is nothing to compare");
    for metric in after.cells.iter_mut().filter_map(|cell| cell.metrics.get_mut("cpu")) {
        metric.unit = "J".to_owned();
    }
    assert_eq!(why(&after), Why::OtherMeaning);
}

#[test]
fn what_else_differs_is_noted() {
    let before = synthetic::full("before.jsonl", 1, 1.0);
    let mut after = before.clone();
    after.name = "after.jsonl".to_owned();
    (after.run.environment.kernel, after.run.quick, after.end) = ("7.0".to_owned(), true, None);
    (after.run.environment.seed, after.run.order) = (9, Order::Rotated);
    after.cells.pop();
    after.cells[0].plan = Some("poll".to_owned());
    let notes = Comparison::of(&before, &after).notes;
    for note in [
        "other kernel: 6.18.0, then 7.0",
        "other length: full, then quick",
        "other seed: 7, then 9",
        "other order of turns: balanced, then rotated",
        "after.jsonl was cut off at line 2",
        "1 cell had another plan of the same name",
        "in before.jsonl only: 1 cell",
    ] {
        assert!(notes.iter().any(|found| found == note), "{note}: {notes:?}");
    }
}

#[test]
fn the_table_has_every_row() {
    let (before, after) = (synthetic::full("before.jsonl", 1, 1.0), synthetic::full("after.jsonl", 2, 1.5));
    let comparison = Comparison::of(&before, &after);
    let table = comparison.table();
    assert!(table.starts_with("from before.jsonl to after.jsonl"), "{table}");
    assert!(table.contains(" worse") && table.contains("not comparable: too few rounds"), "{table}");
    assert!(table.lines().count() >= comparison.rows.len());
}
