//! Crowds of waits on every host, as many as fit into a test; `cargo run --release -p wakeline-tests --bin soak -- --hosts` makes more.

#![allow(clippy::unwrap_used, clippy::large_types_passed_by_value, reason = "tests")]

use std::time::Duration;

use wakeline_tests::crowds::{Host, Run, Summary, run};

const WAITS: u64 = 100_000;
/// For all of them, and a host's share of it.
const WITHIN: Duration = Duration::from_secs(14);

#[test]
fn no_wait_of_a_hundred_thousand_is_lost_early_or_beyond_its_deadline() {
    let mut hosts = Vec::from(Host::ALL);
    hosts.retain(|host| host.lacks().inspect(|lack| println!("skipped: {lack} ({host})")).is_none());
    let share = u32::try_from(hosts.len()).unwrap();
    for (host, seed) in hosts.into_iter().zip(1..) {
        let waits = WAITS.div_ceil(share.into());
        let summary = run(Run { seed, waits, within: WITHIN / share, host })
            .unwrap_or_else(|broken| panic!("{host}, seed {seed}: {broken}"));
        println!("{host}: {summary:?}");
        let Summary { waits, done, timed_out, cancelled, lost_stores, refused, dropped, early_wakes, .. } =
            summary;
        // However slow the machine is, some of each. (One thread that blocks for all of its tasks is late for their deadlines.)
        let some = waits > 1_000
            && done > waits / 4
            && timed_out > waits / 500
            && cancelled > waits / 200
            && lost_stores > 0
            && dropped > waits / 100
            && match host {
                Host::Watcher { .. } => early_wakes > 0,
                _ => refused > 0,
            };
        assert!(some, "{host}: one-sided: {summary:?}");
    }
}
