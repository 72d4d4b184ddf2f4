//! The watch benchmark, run as a program: every suite gives its records, and wrong arguments are refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::process::{Command, Output};

use serde_json::Value;

/// How often an idle watcher may be found awake before it counts: whoever else uses the machine may hold up its start.
const TRIES: usize = 5;

fn watch(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_watch")).args(args).output().unwrap()
}

/// What `watch` writes of these suites, a second each case.
fn records(suites: &[&str]) -> Vec<Value> {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("watch-{}.jsonl", std::process::id()));
    let mut args = vec!["--seconds", "1", "--json", file.to_str().unwrap()];
    args.extend(suites.iter().flat_map(|suite| ["--suite", suite]));
    let output = watch(&args);
    assert!(output.status.success(), "{output:?}");
    let records: Vec<Value> =
        wakeline_benches::read_json_lines(std::fs::read(&file).unwrap().as_slice()).unwrap();
    std::fs::remove_file(&file).unwrap();
    let rows = String::from_utf8(output.stdout).unwrap();
    for record in &records {
        assert_eq!(record["bench"], "watch");
        assert!(rows.contains(record["arm"].as_str().unwrap()), "{record} has no row in\n{rows}");
    }
    records
}

fn number(record: &Value, name: &str) -> f64 {
    record[name].as_f64().unwrap_or_else(|| panic!("no {name} in {record}"))
}

// One test, so that nothing else of this program runs at the same time.
#[test]
fn every_suite_gives_its_records() {
    let records = records(&["flights", "burn", "cycles"]);
    let suites = ["cycles", "flights", "burn"]
        .map(|suite| records.iter().filter(|record| record["case"] == suite).collect::<Vec<_>>());
    let [cycles, flights, burn] = &suites;
    assert_eq!(suites.each_ref().map(Vec::len), [2, 4, 9]);
    for (record, threads) in cycles.iter().zip([1, 2]) {
        assert_eq!((&record["threads"], &record["armed"]), (&threads.into(), &0.into()));
        cycles_are_sane(record);
    }
    for (record, armed) in flights.iter().zip([1, 64, 1_024, 65_536]) {
        assert_eq!((&record["threads"], &record["armed"]), (&1.into(), &armed.into()));
        cycles_are_sane(record);
        let stored = &record["stored_to_ready"];
        assert_eq!(stored["count"], 2_000, "{record}");
        assert!(
            stored["p50_ns"].as_u64() > Some(0) && stored["p50_ns"].as_u64() <= stored["p99_ns"].as_u64()
        );
    }
    for record in &burn[1..] {
        burns_sanely(record);
    }
    if cfg!(target_os = "linux") {
        idles(burn[0]);
    }
}

fn cycles_are_sane(record: &Value) {
    let (cycles, per_s) = (number(record, "cycles"), number(record, "cycles_per_s"));
    // It ran for a second and what the last batch took.
    assert!(cycles >= 64.0 && per_s > 0.0 && per_s <= cycles, "{record}");
    let registration_ns = number(record, "registration_ns");
    assert!(registration_ns > 0.0 && registration_ns < 1e8, "{record}");
}

fn burns_sanely(record: &Value) {
    // 64 of them begin every 20 ms at most.
    let flights = number(record, "flights_per_s");
    assert!(flights > 0.0 && flights <= 64.0 * 52.0, "{record}");
    let overslept = number(record, "overslept_percent");
    assert!((0.0..=100.0).contains(&overslept), "{record}");
    let late = &record["told_late"];
    let count = late["count"].as_u64().unwrap();
    assert!(count >= 64 && number(late, "mean_ns") <= number(late, "max_ns"), "{record}");
    assert!(number(late, "p50_ns") <= number(late, "p99_ns"), "{record}");
    assert!(record["plan"].as_str().unwrap().starts_with("flag:"), "{record}");
    if cfg!(target_os = "linux") {
        let cpu = number(record, "cpu_percent");
        assert!(cpu > 0.0 && cpu < 300.0, "{record}");
        assert!(number(record, "wake_ups") > 0.0, "{record}");
    }
}

/// With nothing in flight it does not wake up at all.
fn idles(first: &Value) {
    let mut record = first.clone();
    for _ in 0..TRIES {
        if record["wake_ups"] == 0 {
            assert!(
                number(&record, "cpu_percent") < 1.0 && number(&record, "queries_per_s") == 0.0,
                "{record}"
            );
            return;
        }
        record = records(&["burn"]).swap_remove(0);
    }
    panic!("it wakes up: {record}");
}

#[test]
fn wrong_arguments_are_refused_with_one_line() {
    for (args, says) in [
        (&["--suite", "burns"][..], "watch: `--suite burns` is none of cycles, flights, burn"),
        (&["--seconds", "0"], "watch: `--seconds 0` is not from 1"),
        (&["--json"], "watch: `--json` wants a value"),
        (&["burn"], "watch: unknown argument `burn`"),
    ] {
        let output = watch(args);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{message}");
        assert!(message.starts_with(says) && message.lines().count() == 1, "{message}");
    }
}

#[test]
fn help_names_every_argument() {
    let output = watch(&["--help"]);
    let usage = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{usage}");
    for argument in ["--seconds", "--suite", "--json"] {
        assert!(usage.contains(argument), "{usage}");
    }
}
