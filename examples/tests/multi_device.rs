//! The example `multi_device`, as its user meets it.

#![allow(clippy::expect_used, reason = "tests")]

mod common;

use common::{example, run};

/// The items that each device has done, by what was printed.
fn items(text: &str) -> Vec<u64> {
    let lines = text.lines().filter(|line| line.starts_with("device"));
    let count = |line: &str| {
        let (_, rest) = line.split_once(": ").expect("its number");
        rest.trim_start().split(' ').next().expect("a count").parse().expect("a number")
    };
    lines.map(count).collect()
}

#[test]
fn it_spreads_a_batch_evenly_over_the_devices_that_there_are() {
    for devices in [1, 2, 8] {
        let ran = run(example("multi_device").args(["--items", "320", "--devices", &devices.to_string()]));
        assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{ran:?}");
        let says =
            format!("320 items on {devices} simulated device(s), placed in turn, all as they should be\n");
        assert!(ran.stdout.starts_with(&says), "{ran:?}");
        assert_eq!(
            items(&ran.stdout),
            vec![320 / devices; usize::try_from(devices).expect("few")],
            "{ran:?}"
        );
    }
}

#[test]
fn of_devices_of_two_speeds_the_faster_get_more_where_it_is_placed_by_what_is_expected() {
    let ran = run(example("multi_device").args(["--mixed", "--placement", "least", "--items", "400"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let items = items(&ran.stdout);
    assert!(items[0] + items[1] > 3 * (items[2] + items[3]) / 2, "{ran:?}");
    let ran = run(example("multi_device").args(["--placement", "key", "--items", "400"]));
    assert!(ran.stdout.contains("400 items on 4 simulated device(s), placed by key, all as"), "{ran:?}");
}

#[test]
fn where_one_faults_its_work_is_done_by_the_others_and_they_go_on_as_before() {
    let ran = run(example("multi_device").args(["--fault", "--items", "1200"]));
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.starts_with("1200 items on 4 simulated device(s), placed in turn, all as"), "{ran:?}");
    assert_eq!(ran.stdout.matches("until it faulted").count(), 1, "{ran:?}");
    let items = items(&ran.stdout);
    assert!(items[2] < 200 && items.iter().sum::<u64>() == 1_200, "{ran:?}");
    assert!(ran.stdout.contains("the others: "), "{ran:?}");
}

#[test]
fn arguments_that_make_no_sense_are_a_usage_error() {
    for arguments in [["--devices", "0"], ["--devices", "65"], ["--device", "tpu"]] {
        assert_eq!(run(example("multi_device").args(arguments)).code, Some(2));
    }
}
