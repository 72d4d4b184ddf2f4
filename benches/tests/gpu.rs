//! The GPU benchmark, run as a program on the stand-in for the driver: every arm gives its record, and wrong arguments are refused.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod without_gpu;

use std::process::{Command, Output};

use serde_json::Value;
use wakeline_fake_driver::Fake;

fn gpu(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpu")).args(args).output().unwrap()
}

/// What `gpu --quick` writes of this suite.
fn records(suite: &str) -> Vec<Value> {
    let fake = Fake::new().unwrap();
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("gpu-{suite}-{}.jsonl", std::process::id()));
    let (driver, json) = (fake.path().to_str().unwrap(), file.to_str().unwrap());
    let output = gpu(&["--quick", "--suite", suite, "--driver", driver, "--json", json]);
    assert!(output.status.success(), "{output:?}");
    let records: Vec<Value> =
        wakeline_benches::read_json_lines(std::fs::read(&file).unwrap().as_slice()).unwrap();
    std::fs::remove_file(&file).unwrap();
    for record in &records {
        assert_eq!(record["bench"], "gpu");
        assert!(record["gpu"].as_str().unwrap().starts_with("Fake GPU 0, CUDA 13.0"), "{record}");
    }
    records
}

fn number(record: &Value, name: &str) -> f64 {
    record[name].as_f64().unwrap_or_else(|| panic!("no {name} in {record}"))
}

/// Three rounds of two waits, in the order that quantiles have; the base is not above itself.
fn is_sane(record: &Value) {
    assert_eq!((&record["rounds"], &record["waits"]), (&3.into(), &6.into()), "{record}");
    let (latency, added) = (&record["latency"], &record["added"]);
    assert!(number(latency, "min_ns") <= number(latency, "p50_ns"), "{record}");
    assert!(number(latency, "p50_ns") <= number(latency, "max_ns"), "{record}");
    assert!(number(record, "cpu_per_wait_ns") > 0.0 && number(record, "length_ns") > 0.0, "{record}");
    assert_eq!(record["base"], "spin");
    let is_base = record["arm"] == "spin";
    let arm = record["arm"].as_str().unwrap();
    let is_raw =
        ["spin", "spin-event", "spin-stream", "synchronize"].contains(&arm) || arm.starts_with("bare-");
    assert_eq!(record["plan"].is_null(), is_raw, "{record}");
    if is_base {
        assert_eq!((number(added, "p50_ns"), number(&record["cpu_ratio"], "mean")), (0.0, 1.0), "{record}");
    }
}

#[test]
fn every_length_and_way_of_waiting_has_a_record() {
    let records = records("wake");
    for (case, arms) in [("wake 20 us", 12), ("wake 100 us", 12), ("wake 1000 us", 19), ("wake 5000 us", 19)]
    {
        let of_it: Vec<_> = records.iter().filter(|record| record["case"] == case).collect();
        assert_eq!(of_it.len(), arms, "{case}");
        for arm in [
            "spin",
            "trusted",
            "strict",
            "spin-event",
            "spin-stream",
            "poll",
            "block",
            "in-kernel",
            "synchronize",
        ] {
            assert_eq!(of_it.iter().filter(|record| record["arm"] == arm).count(), 1, "{case}, {arm}");
        }
        let timed = of_it.iter().find(|record| record["arm"] == "strict-timed").unwrap();
        // Who is held up finds the work done when it first asks: then there is no word to confirm.
        let confirmed = |by| timed["confirmations"][by]["count"].as_u64().unwrap();
        assert!(confirmed("by_stream") + confirmed("by_event") <= 6, "{timed}");
    }
    records.iter().for_each(is_sane);
    for record in &records {
        let itself = record["arm"] == "synchronize";
        let added = number(&record["by_synchronize"]["added"], "p50_ns");
        assert!(!itself || added == 0.0, "{record}");
    }
    // It waits for the end and not for less: a spin on the word takes as long as the kernel.
    let spin = records.iter().find(|record| record["case"] == "wake 5000 us").unwrap();
    assert!(number(spin, "cpu_per_wait_ns") > 100_000.0, "{spin}");
}

#[test]
fn every_host_has_a_record() {
    let records = records("hosts");
    let arms: Vec<_> = records.iter().map(|record| record["arm"].as_str().unwrap()).collect();
    let expected = [
        "spin",
        "bare-60",
        "bare-140",
        "bare-workers-60",
        "bare-workers-150",
        "bare-workers-250",
        "tokio-local",
        "tokio-local-strict",
        "tokio-workers",
        "tokio-workers-stirred",
        "tokio-workers-strict",
        "watcher",
        "watcher-strict",
    ];
    assert_eq!(arms, expected);
    for record in &records {
        is_sane(record);
        assert!(number(record, "cpu_percent") > 0.0, "{record}");
    }
}

#[test]
fn every_way_to_come_to_a_launch_has_a_record() {
    let records = records("after");
    let arms: Vec<_> = records.iter().map(|record| record["arm"].as_str().unwrap()).collect();
    assert_eq!(arms.len(), 7, "{arms:?}");
    assert!(arms.contains(&"spin") && arms.contains(&"sleep, launch elsewhere"), "{arms:?}");
    for record in &records {
        assert_eq!(record["steps"], 60, "three rounds of 20: {record}");
        assert!(number(&record["launch"], "p50_ns") > 0.0 && number(record, "length_ns") > 0.0, "{record}");
        let spins = record["arm"] == "spin";
        assert_eq!(number(&record["added_ns"], "mean") == 0.0, spins, "{record}");
    }
}

#[test]
fn every_call_has_a_record() {
    let records = records("calls");
    for call in [
        "port(), busy",
        "arm(), idle",
        "query(), busy",
        "bind(), idle",
        "cuStreamQuery, busy",
        "cuStreamQuery, first after",
        "cuEventQuery, busy",
        "cuEventQuery, first after",
        "cuStreamIsCapturing, idle",
        "cuCtxGetCurrent, idle",
        "cuThreadExchangeCaptureMode, idle",
    ] {
        let record = records.iter().find(|record| record["arm"] == call);
        let took = &record.unwrap_or_else(|| panic!("no {call}"))["took"];
        assert!(number(took, "count") >= 3.0 && number(took, "p50_ns") <= number(took, "p99_ns"), "{took}");
    }
}

#[test]
fn without_a_gpu_it_says_so_and_is_not_a_success() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu"));
    without_gpu::hide_driver(&mut command);
    let output = command.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 0), "{message}");
    assert!(message.starts_with("skipped: no CUDA device") && message.lines().count() == 1, "{message}");
}

/// Whoever names a library is told of it, and not that there is no GPU.
#[test]
fn a_driver_that_was_named_and_cannot_be_loaded_is_an_error() {
    let output = gpu(&["--driver", "no/such/libcuda.so.1"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{message}");
    assert!(message.starts_with("gpu: `--driver no/such/libcuda.so.1` cannot be used: "), "{message}");
}

#[test]
fn wrong_arguments_are_refused_with_one_line() {
    for (args, says) in [
        (&["--suite", "burn"][..], "gpu: `--suite burn` is none of wake, hosts, calls"),
        (&["--seconds", "0"], "gpu: `--seconds 0` is not from 1"),
        (&["--json"], "gpu: `--json` wants a value"),
        (&["wake"], "gpu: unknown argument `wake`"),
    ] {
        let output = gpu(args);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{message}");
        assert!(message.starts_with(says) && message.lines().count() == 1, "{message}");
    }
}

#[test]
fn help_names_every_argument_and_needs_no_gpu() {
    let output = gpu(&["--help"]);
    let usage = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{usage}");
    for argument in ["--suite", "--seconds", "--quick", "--driver", "--json"] {
        assert!(usage.contains(argument), "{usage}");
    }
}
