//! The example `uring_echo`, as its user meets it.

mod common;

use common::{example, run};

/// Where there is no ring, it says so by a coded warning, and fails.
fn has_ring() -> bool {
    let probe = wakeline_uring::Probe::run();
    if probe.works() == Some(true) {
        return true;
    }
    let ran = run(&mut example("uring_echo"));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.starts_with("uring_echo: warning: ") && ran.stderr.contains("io_uring"), "{ran:?}");
    println!("skipped: no io_uring: {}", probe.why_not().unwrap_or_default());
    false
}

#[test]
fn it_serves_its_clients_while_it_awaits_steps() {
    if !has_ring() {
        return;
    }
    let ran = run(example("uring_echo").args(["--seconds", "1", "--clients", "2"]));
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{ran:?}");
    let count = |of: &str| -> u64 {
        let line = ran.stdout.lines().find(|line| line.starts_with(of));
        let count = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|count| count.parse().ok());
        count.unwrap_or_else(|| panic!("no count of {of}: {}", ran.stdout))
    };
    // Each second: some ten thousand trips, and 500 steps of 2 ms at most.
    assert!(count("trips") >= 100, "{}", ran.stdout);
    assert!((50..=560).contains(&count("steps")), "{}", ran.stdout);
}

#[test]
fn arguments_that_make_no_sense_are_a_usage_error() {
    if !has_ring() {
        return;
    }
    for args in [
        &["--port", "0"][..],
        &["--port", "70000"],
        &["--clients", "0"],
        &["--port", "1", "--clients", "1"],
        &["x"],
    ] {
        let ran = run(example("uring_echo").args(args));
        assert_eq!((ran.code, &*ran.stdout), (Some(2), ""), "{args:?}: {ran:?}");
        assert!(
            ran.stderr.starts_with("uring_echo: ") && ran.stderr.lines().count() == 1,
            "{args:?}: {ran:?}"
        );
    }
    let ran = run(example("uring_echo").arg("--help"));
    assert!(ran.code == Some(0) && ran.stdout.contains("--port"), "{ran:?}");
}
