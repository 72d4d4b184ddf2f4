//! The example `pipeline`, as its user meets it.

#![allow(clippy::expect_used, reason = "tests")]

mod common;

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{example, run, scratch};

/// The rectangles of a drawing that stand for work: row, left, right and title.
fn drawn(svg: &Path) -> Vec<(String, f64, f64, String)> {
    let text = fs::read_to_string(svg).expect("it drew");
    let _ = fs::remove_file(svg);
    assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"), "{text}");
    let attribute = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!(" {name}=\"")).expect("it is there");
        rest.split_once('"').expect("it ends").0.to_owned()
    };
    let rect = |line: &str| {
        let number = |name| attribute(line, name).parse::<f64>().expect("a number");
        let title = line.split_once("<title>").expect("it has one").1;
        (attribute(line, "y"), number("x"), number("x") + number("width"), title.to_owned())
    };
    text.lines().filter(|line| line.contains("<title>")).map(rect).collect()
}

#[test]
fn it_runs_batches_over_several_streams_at_a_time_and_draws_them() {
    let svg = scratch("pipeline.svg");
    let ran = run(example("pipeline").args(["--batches", "8", "--svg"]).arg(&svg));
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.starts_with("8 batches on the simulated device, as they should be\n"), "{ran:?}");
    assert!(ran.stdout.contains("begun: 8, landed: 8") && ran.stdout.contains("leaked: 0"), "{ran:?}");
    let drawn = drawn(&svg);
    // Of each batch a load, a copy, two scales, two stores, and what the host writes.
    assert_eq!(drawn.len(), 8 * 7, "{drawn:?}");
    let overlap = |(row, from, to, _): &(String, f64, f64, String)| {
        drawn.iter().any(|(other, begin, end, _)| other != row && begin < to && from < end)
    };
    let scales = || drawn.iter().filter(|(.., title)| title.starts_with("scale"));
    // Now and then one is held up by a gate of another batch and runs by itself.
    let beside = scales().filter(|scale| overlap(scale)).count();
    assert!(beside * 2 > scales().count(), "most run beside something of another stream: {drawn:?}");
}

#[test]
fn it_ends_what_is_in_flight_when_it_is_interrupted() {
    let svg = scratch("stopped.svg");
    let mut command = example("pipeline");
    command.args(["--batches", "100000", "--svg"]).arg(&svg).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(700));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("there is a kill").success());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is a child") {
            break status;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "it stops");
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut text = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut text).expect("text");
    assert_eq!(status.code(), Some(0), "{text}");
    assert!(text.contains("until it was stopped, as they should be") && text.contains("leaked: 0"), "{text}");
    assert!(drawn(&svg).len() >= 7, "{text}");
}

#[test]
fn arguments_that_make_no_sense_are_a_usage_error() {
    for arguments in [["--batches", "0"], ["--device", "tpu"]] {
        assert_eq!(run(example("pipeline").args(arguments)).code, Some(2));
    }
}
