//! The example `fill_executor`, as its user meets it.

mod common;

use common::{example, run};

#[test]
fn all_of_the_threads_time_is_accounted_for() {
    let ran = run(&mut example("fill_executor"));
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{ran:?}");
    let share = |of: &str| -> f64 {
        let line = ran.stdout.lines().find(|line| line.trim_start().starts_with(of));
        let share = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|share| share.parse().ok());
        share.unwrap_or_else(|| panic!("no share of {of}: {}", ran.stdout))
    };
    let shares = ["work", "asleep", "parked", "polling"].map(share);
    assert!((shares.iter().sum::<f64>() - 100.0).abs() < 0.5, "{shares:?}");
    assert!(shares[0] > 0.0, "{shares:?}");
    for stream in ["decode", "prefill", "sampling"] {
        assert!(share(stream) >= 8.0, "steps of {stream}: {}", ran.stdout);
    }
}
