//! The checks on a GPU, run as a program on the stand-in for the driver: each of them holds, and wrong arguments are refused.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod without_gpu;

use std::process::{Command, Output};

use serde_json::Value;
use wakeline_fake_driver::Fake;

/// More than a busy machine's scheduler takes: whether waits are in time is for a GPU to say.
const SLACK_MS: &str = "20000";

/// How long the soak takes: as long as two of its other processes.
const MINUTES: &str = "0.03";

fn checks(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpu_checks")).args(args).output().unwrap()
}

/// What `gpu_checks --quick` writes of this check. All of it holds.
fn records(check: &str) -> Vec<Value> {
    let fake = Fake::new().unwrap();
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("gpu_checks-{check}-{}.jsonl", std::process::id()));
    let (driver, json) = (fake.path().to_str().unwrap(), file.to_str().unwrap());
    let args = ["--quick", "--check", check, "--minutes", MINUTES, "--slack-ms", SLACK_MS];
    let args = [args.as_slice(), &["--driver", driver, "--json", json]].concat();
    let output = checks(&args);
    let rows = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{rows}{}", String::from_utf8_lossy(&output.stderr));
    let records: Vec<Value> =
        wakeline_benches::read_json_lines(std::fs::read(&file).unwrap().as_slice()).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(rows.ends_with(&format!("all {} hold\n", records.len())), "{rows}");
    for record in &records {
        assert_eq!((&record["bench"], &record["case"]), (&"gpu_checks".into(), &check.into()));
        assert!(record["holds"] == true && record["broken"].is_null(), "{record}");
        assert!(rows.contains(record["arm"].as_str().unwrap()), "{record} has no line in\n{rows}");
    }
    records
}

#[test]
fn no_byte_is_stale_after_an_await_and_some_are_before() {
    let records = records("order");
    assert_eq!(records.len(), 2);
    for (record, bytes) in records.iter().zip([4_096_u64, 4_194_304]) {
        assert_eq!((&record["bytes"], &record["count"]), (&bytes.into(), &16.into()), "{record}");
        assert_eq!((&record["stale_copies"], &record["stale_bytes"]), (&0.into(), &0.into()), "{record}");
        assert!(record["control_stale_bytes"].as_u64() > Some(0), "{record}");
    }
}

#[test]
fn no_wait_is_lost_and_none_ends_before_its_work() {
    let records = records("waits");
    let record = &records[0];
    assert_eq!((records.len(), &record["count"], &record["waits"]), (1, &400.into(), &400.into()));
    let by_plan = record["by_plan"].as_array().unwrap();
    assert!(by_plan.len() == 7 && by_plan.iter().all(|waits| waits.as_u64() > Some(50)), "{record}");
    // Not all of them were over when they were first looked at.
    assert!(record["immediate"].as_u64() < Some(400), "{record}");
}

#[test]
fn churn_leaves_nothing() {
    let records = records("churn");
    let record = &records[0];
    assert_eq!((records.len(), &record["count"]), (1, &96.into()), "{record}");
    assert_eq!((&record["pages_made"], &record["drop_failures"]), (&record["pages_freed"], &0.into()));
    assert!(record["waits"].as_u64() > Some(20), "{record}");
}

#[test]
fn processes_end_well_with_waits_in_flight() {
    let names: Vec<_> = records("exits").iter().map(|record| record["arm"].clone()).collect();
    assert_eq!(names, ["thread", "exit", "watcher", "tokio", "driver", "dropped", "forgotten"]);
}

#[test]
fn work_behind_a_point_does_not_delay_it() {
    let records = records("behind");
    assert_eq!(records.len(), 7);
    for record in &records {
        assert!(record["late_us"].as_u64() < Some(150_000), "{record}");
        assert_eq!(record["late_us_max"], 150_000, "half of the work behind, whatever the slack: {record}");
    }
}

#[test]
fn faults_are_told_with_their_cause_and_spare_other_processes() {
    let records = records("faults");
    let (bystander, rows) = records.split_last().unwrap();
    assert_eq!(rows.len(), 7);
    for row in rows {
        let status = match row["fault"].as_str().unwrap() {
            "trap" => 719,
            "illegal-address" => 700,
            _ => 710,
        };
        assert_eq!(row["driver_status"], status, "{row}");
        assert!(row["said"].as_str().unwrap().contains(&format!("({status})")), "{row}");
        // As on driver 580, nothing of the process is spared.
        assert!(row["beside"].as_str().unwrap().contains(&format!("({status})")), "{row}");
        // The stand-in takes its time to tell, as the real one does.
        assert!(row["driver_us"].as_u64() >= Some(300_000), "{row}");
    }
    assert!(bystander["count"].as_u64() > Some(20), "{bystander}");
}

/// Every host waits, under every plan and for operations, while other processes' contexts are broken.
#[test]
fn a_soak_of_seconds_loses_nothing() {
    let records = records("soak");
    let record = &records[0];
    assert_eq!((records.len(), &record["problems"], &record["drop_failures"]), (1, &0.into(), &0.into()));
    let map =
        |name: &str| record[name].as_object().unwrap_or_else(|| panic!("no {name} in {record}")).clone();
    let (hosts, plans) = (map("waits_by_host"), map("waits_by_plan"));
    assert_eq!(record["hosts"], hosts.len(), "{record}");
    // Seven that all checks have, two that adapt, operations and graphs.
    assert!(plans.len() == 11 && hosts.len() >= 5, "{record}");
    let sum = |map: &serde_json::Map<String, Value>| map.values().filter_map(Value::as_u64).sum::<u64>();
    assert_eq!((sum(&hosts), sum(&plans)), (record["count"].as_u64().unwrap(), sum(&hosts)), "{record}");
    for how in ["done", "dropped"] {
        assert!(map("ends")[how].as_u64() > Some(0), "{how}: {record}");
    }
    assert!(sum(&map("children")) > 0, "{record}");
}

#[test]
fn without_a_gpu_it_says_so_and_is_not_a_success() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu_checks"));
    without_gpu::hide_driver(&mut command);
    let output = command.arg("--quick").output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 0), "{message}");
    assert!(message.starts_with("skipped: no CUDA device") && message.lines().count() == 1, "{message}");
}

/// Whoever names a library is told of it, and not that there is no GPU.
#[test]
fn a_driver_that_was_named_and_cannot_be_loaded_is_an_error() {
    let output = checks(&["--driver", "no/such/libcuda.so.1"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{message}");
    assert!(message.starts_with("gpu_checks: `--driver no/such/libcuda.so.1` cannot be used: "), "{message}");
}

#[test]
fn wrong_arguments_are_refused_with_one_line() {
    for (args, says) in [
        (&["--check", "wait"][..], "gpu_checks: `--check wait` is none of order, waits, churn, behind"),
        (&["--waits", "many"], "gpu_checks: `--waits many` is not from 1"),
        (&["--quick", "--full"], "gpu_checks: `--quick` and `--full` are two different things"),
        (&["--leave", "never"], "gpu_checks: `--leave never` is none of thread, exit"),
        (&["waits"], "gpu_checks: unknown argument `waits`"),
    ] {
        let output = checks(args);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{message}");
        assert!(message.starts_with(says) && message.lines().count() == 1, "{message}");
    }
}

#[test]
fn help_names_every_argument_and_needs_no_gpu() {
    let output = checks(&["--help"]);
    let usage = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{usage}");
    for argument in [
        "--check",
        "--quick",
        "--full",
        "--copies",
        "--waits",
        "--churn",
        "--exits",
        "--minutes",
        "--slack-ms",
        "--leave",
    ] {
        assert!(usage.contains(argument), "{usage}");
    }
}
