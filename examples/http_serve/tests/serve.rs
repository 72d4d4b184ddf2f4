//! The server on the simulated device, as its clients meet it.

#![allow(clippy::panic, clippy::unwrap_used, reason = "for tests")]

mod common;

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use http_serve::error::ServeError;
use serde_json::json;

use common::{Server, answer, body, input, output, right, send, until};

/// How many of them have which status.
fn statuses(replies: &[common::Reply]) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for reply in replies {
        *counts.entry(reply.status).or_default() += 1;
    }
    counts
}

#[test]
fn each_request_gets_its_own_numbers() {
    let server = Server::start("--step-us 500 --batch-max 8");
    for (seed, reply) in (0..).zip(&server.infer_many(40)) {
        assert_eq!(output(reply), right(&input(seed)), "{reply:?}");
    }
    let stats = server.stats();
    assert_eq!((&stats["answered"], &stats["rows"], &stats["refused"]), (&json!(40), &json!(40), &json!(0)));
    assert_eq!(stats["latency_us"]["count"], 40);
    server.ends().0.unwrap();
}

#[test]
fn requests_of_a_window_are_one_batch() {
    // A window as long as it may be, so that batches are full before it is over.
    let server = Server::start("--step-us 500 --batch-max 8 --window-us 1000000 --deadline-ms 60000");
    let replies = server.infer_many(32);
    let full = replies.iter().filter(|reply| reply.json()["batch"] == 8).count();
    let batches = server.stats()["batches"].as_u64().unwrap();
    assert_eq!(statuses(&replies), [(200, 32)].into());
    // All of them are, unless this machine takes more than a second for 8 connections.
    assert!(full >= 16 && batches <= 12, "{full} in full batches, {batches} batches");
    // Nobody else comes: the end of the window ends the wait, and not the deadline.
    let start = Instant::now();
    assert_eq!(server.infer(&body(&input(1))).json()["batch"], 1);
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
    server.ends().0.unwrap();
}

#[test]
fn what_is_wrong_with_a_request_is_told() {
    let server = Server::start("--step-us 500");
    let long = format!("{{\"input\": [{}]}}", "0.25, ".repeat(2_000));
    for (sent, says) in [
        ("", "EOF while parsing"),
        ("{\"input\": [1, 2, 3]}", "`input` has 3 numbers"),
        ("{\"input\": [1, null]}", "input[1]: invalid type: null"),
        ("{\"input\": [1], \"<script>\": 1}", "unknown field `<script>`"),
        (&body(&input(0)).replacen("-11.0", "-1e300", 1), "`input[0]` is -1000000"),
        (&long, "the body cannot be read: length limit exceeded"),
    ] {
        let reply = server.infer(sent);
        let (code, message) = reply.error();
        assert_eq!((reply.status, &*code), (400, "bad_body"), "{reply:?}");
        assert!(message.contains(says) && message.contains("with 16 numbers"), "{reply:?}");
        assert!(reply.head.contains("content-type: application/json"), "{reply:?}");
    }
    assert_eq!(server.get("/nothing").status, 404);
    assert_eq!(server.get("/infer").status, 405);
    assert_eq!(server.infer(&body(&input(0))).status, 200);
    assert!(server.get("/metrics").body.contains("http_serve_requests_total{outcome=\"bad_body\"} 6\n"));
    server.ends().0.unwrap();
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let server = Server::start("--deadline-ms 50");
    let mut half = TcpStream::connect(server.address).unwrap();
    std::io::Write::write_all(
        &mut half,
        b"POST /infer HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nConnection: close\r\n\r\n{",
    )
    .unwrap();
    let reply = answer(half);
    assert_eq!((reply.status, &*reply.error().0), (408, "slow_body"), "{reply:?}");
    server.ends().0.unwrap();
}

#[test]
fn a_full_queue_and_a_deadline_are_told_and_the_end_does_not_wait_for_ever() {
    // The device never ends in this time: one is on it, one is in the batcher's hand, four are queued.
    let server = Server::start(
        "--step-us 60000000 --hung-ms 60000 --batch-max 1 --in-flight 1 --queue-max 4 --window-us 0 --deadline-ms 300 --grace-ms 200",
    );
    let replies = server.infer_many(20);
    let counts = statuses(&replies);
    let count = |status| counts.get(&status).copied().unwrap_or_default();
    assert!((4..=6).contains(&count(504)) && count(503) + count(504) == 20, "{counts:?}");
    for reply in &replies {
        let (code, message) = reply.error();
        if reply.status == 503 {
            assert!(reply.head.contains("retry-after: 1"), "{reply:?}");
            assert!(code == "full" && message.starts_with("4 requests wait already"), "{reply:?}");
        } else {
            assert!(code == "late" && message.contains("within 300 ms"), "{reply:?}");
        }
    }
    // Slow is not broken.
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.stats()["in_flight"], 1);
    let (ended, took) = server.ends();
    assert!(matches!(ended, Err(ServeError::Grace { what: "a batch", grace_ms: 200 })), "{ended:?}");
    // The grace, and what it takes to close the watcher and to stop the device.
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn what_is_in_flight_is_answered_before_the_end() {
    let mut server = Server::start(
        "--step-us 500000 --window-us 20000 --batch-max 4 --deadline-ms 60000 --grace-ms 60000",
    );
    // A connection on which nothing is asked holds nothing up, nor does one that is kept.
    let idle = TcpStream::connect(server.address).unwrap();
    let asked: Vec<_> =
        (0..6).map(|seed| send(server.address, "POST", "/infer", &body(&input(seed)))).collect();
    until("all are in batches", || server.stats()["rows"] == 6);
    server.tell_to_stop();
    let address = server.address;
    let (ended, took) = server.ends();
    ended.unwrap();
    for (seed, asked) in (0..).zip(asked) {
        assert_eq!(output(&answer(asked)), right(&input(seed)));
    }
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert!(TcpStream::connect(address).is_err());
    drop(idle);
}

#[test]
fn a_fault_is_told_to_all_and_the_server_is_no_longer_healthy() {
    let server = Server::start("--step-us 60000000 --hung-ms 60000 --batch-max 2 --deadline-ms 60000");
    assert_eq!(server.get("/healthz").body, "ok\n");
    let asked: Vec<_> =
        (0..3).map(|seed| send(server.address, "POST", "/infer", &body(&input(seed)))).collect();
    until("they are on the device", || server.stats()["rows"] == 3);
    server.device.inject_fault();
    let cause = server.device.health().unwrap().to_string();
    // Those in flight, and one that comes later.
    for reply in asked.into_iter().map(answer).chain([server.infer(&body(&input(9)))]) {
        let (code, message) = reply.error();
        assert_eq!((reply.status, &*code), (500, "device"), "{reply:?}");
        assert!(message.contains(&cause), "{reply:?}");
    }
    let health = server.get("/healthz");
    assert_eq!(health.status, 503);
    assert!(health.error().1.contains(&cause), "{health:?}");
    assert!(server.stats()["fault"].as_str().unwrap().contains(&cause));
    assert!(server.get("/metrics").body.contains("\nhttp_serve_healthy 0\n"));
    // Nothing is left that could be waited for.
    server.ends().0.unwrap();
}

#[test]
fn a_device_that_hangs_is_a_fault() {
    let server = Server::start("--step-us 60000000 --hung-ms 100 --deadline-ms 60000 --grace-ms 1000");
    let reply = server.infer(&body(&input(0)));
    assert_eq!(reply.status, 500, "{reply:?}");
    assert_eq!(server.get("/healthz").status, 503);
    // It is at work still, and what it may touch is kept: the end says so.
    let (ended, _) = server.ends();
    assert!(
        matches!(&ended, Err(ServeError::Device(error)) if error.code() == wakeline::ErrorCode::NotDrained),
        "{ended:?}"
    );
}

#[test]
fn what_is_counted_is_what_happened() {
    let server = Server::start("--step-us 2000 --batch-max 4");
    server.infer_many(12);
    let text = server.get("/metrics").body;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse::<f64>().unwrap()
    };
    assert!((value("http_serve_requests_total{outcome=\"ok\"}") - 12.0).abs() < f64::EPSILON);
    assert!((value("http_serve_latency_seconds_count") - 12.0).abs() < f64::EPSILON);
    assert!((value("http_serve_batch_rows_sum") - 12.0).abs() < f64::EPSILON);
    let batches = value("http_serve_batch_rows_count");
    assert!((3.0..=12.0).contains(&batches), "{batches}");
    // No batch is done before the device is.
    assert!(value("http_serve_step_seconds_sum") >= batches * 0.002, "{text}");
    let waiting = |by: &str| value(&format!("http_serve_waiting_cpu_seconds_total{{by=\"{by}\"}}"));
    let (watcher, tasks) = (waiting("watcher"), waiting("tasks"));
    assert!(watcher > 0.0 && watcher + tasks <= value("process_cpu_seconds_total"), "{text}");
    // wakeline's own are there, too; each line is a comment or a name and a number.
    assert!(value("wakeline_watcher_arrivals_total") > 0.0);
    for line in text.lines().filter(|line| !line.starts_with("# ")) {
        let (name, number) = line.rsplit_once(' ').unwrap();
        assert!(
            name.starts_with(|c: char| c.is_ascii_lowercase()) && number.parse::<f64>().is_ok(),
            "{line}"
        );
    }
    server.ends().0.unwrap();
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let server = Server::start("");
    for (path, kind, says) in [
        ("/", "text/html", "CPU of waiting"),
        ("/page.css", "text/css", "prefers-color-scheme: dark"),
        ("/page.js", "text/javascript", "textContent"),
    ] {
        let reply = server.get(path);
        assert!(
            reply.status == 200 && reply.head.contains(&format!("content-type: {kind}; charset=utf-8")),
            "{path}"
        );
        assert!(reply.head.contains("content-security-policy: default-src 'self'"), "{reply:?}");
        assert!(reply.body.contains(says), "{path}");
        let elsewhere = reply.body.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("://") && !elsewhere.contains("innerHTML"), "{path}");
    }
    server.ends().0.unwrap();
}
