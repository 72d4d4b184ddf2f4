//! The wake benchmark, run as a program: every arm waits, and says so in a record.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

use serde_json::Value;

#[test]
fn every_length_and_arm_has_a_record() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("wake-{}.jsonl", std::process::id()));
    let mut wake = Command::new(env!("CARGO_BIN_EXE_wake"));
    let output = wake.args(["--seconds", "1", "--json"]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let records: Vec<Value> =
        wakeline_benches::read_json_lines(std::fs::read(&file).unwrap().as_slice()).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(records.len() % 3, 0, "three lengths of work");
    for record in &records {
        let waits = record["waits"].as_u64().unwrap();
        assert!(waits >= 60 && record["latency"]["count"].as_u64() == Some(waits), "{record}");
        assert!(record["cost_ratio"]["mean"].as_f64().is_some_and(|ratio| ratio > 0.0), "{record}");
        assert!(record["base"].is_string(), "{record}");
    }
    for arm in ["notify", "local", "futex", "watcher-thread", "watcher-workers", "early-workers"] {
        assert_eq!(records.iter().filter(|record| record["arm"] == arm).count(), 3, "{arm}");
    }
}
