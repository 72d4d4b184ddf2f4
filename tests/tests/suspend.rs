//! A wait in a process that is suspended meanwhile: its timer's time passes while nothing of it runs.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// The deadline of the wait, when the process is suspended, and for how long: milliseconds.
const DEADLINE: u64 = 100;
const SUSPEND_AFTER: u64 = 30;
const SUSPENDED: u64 = 200;
/// How long after it goes on the wait may end, on a machine busy with other tests. Started again, a timer would take 70 more.
const LATE: u64 = 50;
const ATTEMPTS: usize = 5;

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

/// How long a wait under this plan took that was suspended past its deadline, in milliseconds.
fn suspended(plan: &str) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_one_wait"))
        .args([plan, &DEADLINE.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "waiting\n");
    sleep(Duration::from_millis(SUSPEND_AFTER));
    signal(&child, "-STOP");
    sleep(Duration::from_millis(SUSPENDED));
    signal(&child, "-CONT");
    let mut took = String::new();
    output.read_to_string(&mut took).unwrap();
    assert!(child.wait().unwrap().success());
    took.trim().parse().unwrap()
}

/// What took too long, to be tried again.
fn late(took: u64) -> Option<u64> {
    assert!(took >= SUSPENDED, "it was not suspended, or ended early: {took} ms");
    (took > SUSPEND_AFTER + SUSPENDED + LATE).then_some(took)
}

#[test]
fn a_wait_that_was_suspended_past_its_deadline_ends_as_soon_as_it_goes_on() {
    for plan in [
        "block",
        "poll",
        "flag:park_us=500,backstop_us=5000",
        "flag:park_us=500,backstop_us=5000+predict:margin_us=100,min_sleep_us=100,max_sleep_us=30000000,window=8",
        "flag:park_us=500,backstop_us=5000+trust",
    ] {
        let tries: Vec<u64> = (0..ATTEMPTS).map(|_| suspended(plan)).map_while(late).collect();
        assert!(tries.len() < ATTEMPTS, "{plan}: {tries:?} ms");
    }
}
