//! Crowds of waits on a watcher, as many as fit into a test; `cargo run --release -p wakeline-tests --bin soak -- --hosts` makes more.

#![allow(clippy::unwrap_used, clippy::large_types_passed_by_value, reason = "tests")]

use std::time::Duration;

use wakeline_tests::crowds::{Run, Summary, run};

#[test]
fn no_wait_of_a_hundred_thousand_is_lost_early_or_beyond_its_deadline() {
    let mut summary = Summary::default();
    for (seed, shards) in [(1, 1), (2, 4)] {
        match run(Run { seed, waits: 50_000, within: Duration::from_secs(8), shards }) {
            Ok(one) => summary += one,
            Err(broken) => panic!("seed {seed}, {shards} shards: {broken}"),
        }
    }
    println!("{summary:?}");
    let Summary { waits, done, timed_out, cancelled, lost_stores, dropped, early_wakes, .. } = summary;
    assert_eq!(waits, done + timed_out + cancelled + lost_stores + dropped);
    // However slow the machine is, some of each.
    assert!(waits > 5_000, "{summary:?}");
    assert!(done > waits / 4 && timed_out > waits / 50 && dropped > waits / 50, "one-sided: {summary:?}");
    assert!(cancelled > waits / 200 && lost_stores > 0 && early_wakes > 0, "one-sided: {summary:?}");
}
