//! Conditions held against a run.

use wakeline_benches::ab::report::{Comparison, Condition, Outcome, RunFile, Unjudged};

use crate::synthetic;

fn judge(text: &str, file: &RunFile) -> Result<Vec<Outcome>, Unjudged> {
    let condition: Condition = text.parse().unwrap_or_else(|error| panic!("{error}"));
    let (judged, left) = condition.judge(file, None)?;
    assert!(left.is_empty(), "{left:?}");
    Ok(judged.into_iter().map(|judged| judged.outcome).collect())
}

#[test]
fn ratios_are_judged_by_the_safe_end_of_their_intervals() {
    let file = synthetic::full("run.jsonl", 1, 1.0);
    for (text, outcomes) in [
        ("ratio(wake/200 us/poll).cpu > 0.5", vec![Outcome::Holds]),
        ("ratio(wake/200 us/poll).cpu > 1.5", vec![Outcome::HoldsNot]),
        ("ratio(wake/*/*+predict*).cpu > 0.1", vec![Outcome::HoldsNot; 4]),
        ("ratio(burn/64 flights*/watcher, 4 threads).cpu > 0.2", vec![Outcome::NotShown]),
        ("ratio(serve/\"batch 4, closed loop\"/poll).throughput < 0.9", vec![Outcome::HoldsNot]),
        ("count(fan-in/4,096 streams/watcher, 1 thread).instructions > 500", vec![Outcome::Holds]),
        ("count(fan-in/4,096 streams/watcher, 1 thread).instructions > 512", vec![Outcome::HoldsNot]),
    ] {
        assert_eq!(judge(text, &file), Ok(outcomes), "{text}");
    }
}

#[test]
fn a_guard_that_guards_nothing_does_not_pass() {
    let file = synthetic::full("run.jsonl", 1, 1.0);
    for (text, says) in [
        (
            "ratio(wake/300 us/poll).cpu > 1",
            "no suite, case and arm of run.jsonl match; it has: wake/20 us/spin",
        ),
        ("ratio(wake/200 us/poll).cpus > 1", "has cpu, energy, latency"),
        ("ratio(wake/200 us/spin on the word).cpu > 1", "it is the base arm"),
        ("ratio(fan-in/*/watcher*).instructions > 1", "2 rounds, of at least 3"),
        ("change(wake/200 us/poll).cpu > 1", "give two at least"),
    ] {
        let error = judge(text, &file).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn changes_are_judged_against_the_first_run() {
    let (before, after) = (synthetic::full("before.jsonl", 1, 1.0), synthetic::full("after.jsonl", 2, 1.5));
    let comparison = Comparison::of(&before, &after);
    let outcome = |text: &str| {
        let judged = text.parse::<Condition>().unwrap().judge(&after, Some(&comparison)).unwrap().0;
        judged[0].outcome
    };
    assert_eq!(outcome("change(wake/1 ms/flag*predict*).cpu > 0.02"), Outcome::Holds);
    assert_eq!(outcome("change(wake/1 ms/flag*predict*).cpu > 0.2"), Outcome::HoldsNot);
    assert_eq!(outcome("change(wake/1 ms/poll).cpu > 0.1"), Outcome::HoldsNot);
    let mut other = after.clone();
    other.run.device = "sim".to_owned();
    let comparison = Comparison::of(&before, &other);
    let condition: Condition = "change(wake/1 ms/poll).cpu > 0.1".parse().unwrap();
    let error = condition.judge(&other, Some(&comparison)).unwrap_err().to_string();
    assert!(error.contains("not comparable: other device"), "{error}");
}

/// Whatever is left of it, and whichever of the two it is: what the condition is about may be in what is missing.
#[test]
fn a_guard_on_a_run_that_was_cut_off_does_not_pass() {
    let whole = synthetic::full("run.jsonl", 1, 1.0);
    let text = synthetic::text(&whole);
    let lines: Vec<&str> = text.lines().collect();
    let passing: Condition = "ratio(wake/*/poll).cpu > 1.5".parse().unwrap();
    assert_eq!(passing.judge(&whole, None).unwrap().1, [""; 0]);
    // Behind a line, and within the last one.
    for (left, line) in [
        (lines[..lines.len() - 1].join("\n"), lines.len() - 1),
        (text[..text.len() - 9].to_owned(), lines.len()),
    ] {
        let cut = RunFile::read("cut.jsonl", &left).unwrap();
        let (judged, unjudged) = passing.judge(&cut, None).unwrap();
        assert_eq!(judged.len(), 4);
        assert_eq!(
            unjudged,
            [format!("line {line}: the run was cut off here, and what comes after cannot be judged")]
        );
        let change: Condition = "change(wake/*/poll).cpu > 9".parse().unwrap();
        let comparison = Comparison::of(&cut, &whole);
        let (_, unjudged) = change.judge(&whole, Some(&comparison)).unwrap();
        assert!(
            unjudged.len() == 1 && unjudged[0].starts_with(&format!("cut.jsonl, line {line}: ")),
            "{unjudged:?}"
        );
        // It is not about what the other run has.
        assert_eq!(passing.judge(&whole, Some(&comparison)).unwrap().1, [""; 0]);
        // That nothing is at its place may be for that very reason.
        let nowhere: Condition = "ratio(no/such/place).cpu > 1".parse().unwrap();
        let error = nowhere.judge(&cut, None).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("nothing in cut.jsonl can be held against it: line {line}: ")),
            "{error}"
        );
    }
}

/// A file that counts its lines has lost none, and none of the arms was for the suite; of another nobody knows.
#[test]
fn a_suite_that_the_first_line_promises_is_missed() {
    let mut file = synthetic::full("run.jsonl", 1, 1.0);
    file.cells.retain(|cell| cell.suite != "burn");
    let unjudged = |file: &RunFile, text: &str| match text.parse::<Condition>().unwrap().judge(file, None) {
        Ok((_, unjudged)) => unjudged,
        Err(error) => vec![error.to_string()],
    };
    let counted = RunFile::read("run.jsonl", &synthetic::text(&file)).unwrap();
    assert_eq!((counted.is_counted(), file.is_counted()), (Some(true), Some(false)));
    let everywhere = "ratio(*/*/poll).cpu > 9";
    assert_eq!(unjudged(&counted, everywhere), [""; 0]);
    let missed = unjudged(&file, everywhere);
    assert!(
        missed.contains(&"line 1 says that `burn` was run, and no cell of it is here".to_owned()),
        "{missed:?}"
    );
    // A condition on another suite does not miss it.
    assert_eq!(unjudged(&file, "ratio(wake/*/poll).cpu > 9"), [""; 0]);
}

/// Comparing with what is no number is false, which is no reason to pass.
#[test]
fn an_interval_that_is_no_number_is_not_judged() {
    let mut file = synthetic::full("run.jsonl", 1, 1.0);
    for metric in file.cells.iter_mut().filter_map(|cell| cell.metrics.get_mut("cpu")) {
        metric.ratio = Some(wakeline_benches::Interval { mean: f64::NAN, half_width: Some(0.1), n: 9 });
    }
    let error = judge("ratio(wake/*/poll).cpu > 1.5", &file).unwrap_err().to_string();
    assert!(error.contains("the ends of its interval are no numbers"), "{error}");
}

/// Of several that match, one that cannot be judged is told, and does not pass with the others.
#[test]
fn what_cannot_be_judged_does_not_hide_behind_what_can() {
    let mut file = synthetic::full("run.jsonl", 1, 1.0);
    let place = |cell: &wakeline_benches::ab::schema::Cell| cell.suite == "wake" && cell.case == "200 us";
    let last = file.cells.iter_mut().rfind(|cell| place(cell) && cell.arm != cell.base).unwrap();
    let arm = last.arm.clone();
    last.metrics.get_mut("cpu").unwrap().ratio = None;
    let condition: Condition = "ratio(wake/200 us/*).cpu > 100".parse().unwrap();
    let (judged, left) = condition.judge(&file, None).unwrap();
    assert!(!judged.is_empty() && judged.iter().all(|judged| judged.outcome == Outcome::HoldsNot));
    assert!(left.len() == 1 && left[0].contains(&arm) && left[0].contains("no ratio"), "{left:?}");
}
