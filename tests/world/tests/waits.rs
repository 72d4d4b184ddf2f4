//! Programs of bare waits from seeds, as many as fit into a test; `cargo xtask soak` runs more.

#![allow(clippy::unwrap_used, clippy::large_types_passed_by_value, reason = "tests")]

use wakeline_world::script::Script;
use wakeline_world::waits::{self, Summary};

#[test]
fn no_wait_of_two_thousand_programs_is_lost_or_late() {
    let mut summary = Summary::default();
    for seed in 0..2_000 {
        match waits::run(seed, &Script::all()) {
            Ok(one) => summary += one,
            Err(broken) => panic!("seed {seed}: {broken}"),
        }
    }
    let Summary { waits, done, failed, dropped } = summary;
    assert_eq!(waits, done + failed + dropped);
    assert!(done > 10_000 && failed > 2_000 && dropped > 200, "the draw has become one-sided: {summary:?}");
}

#[test]
fn a_seed_gives_the_same_run_every_time() {
    for seed in 0..200 {
        assert_eq!(waits::run(seed, &Script::all()), waits::run(seed, &Script::all()), "seed {seed}");
    }
}
