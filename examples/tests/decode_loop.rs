//! The example `decode_loop`, as its user meets it: what it prints, where, and with which exit code.

#![allow(clippy::expect_used, reason = "tests")]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Ran, example, run, scratch};
use serde_json::Value;

const HEADER: &str = "workload,point,rows,step,enqueue_ns,residual_ns,gpu_ns";
/// What the default plans are called in the table.
const ARMS: [&str; 4] = ["poll", "flag", "flag+predict", "flag+predict & work"];
const STEPS: usize = 16;

/// A file that is gone when the test ends.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: impl AsRef<[u8]>) -> Self {
        let path = scratch(name);
        fs::write(&path, text).expect("there is room for a small file");
        Self(path)
    }

    /// A trace of [`STEPS`] steps of about a millisecond.
    fn tiny(name: &str) -> Self {
        let row = |step: usize| format!("tiny,sample,1,{step},1000,{},1000000\n", 1_000_000 + step * 1_000);
        Self::new(name, format!("{HEADER}\n{}", (0..STEPS).map(row).collect::<String>()))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn decode_loop(trace: Option<&Path>, arguments: &[&str]) -> Command {
    let mut command = example("decode_loop");
    if let Some(trace) = trace {
        command.arg("--trace").arg(trace);
    }
    command.args(arguments);
    command
}

/// The names in the first column of the only table.
fn arms<'r>(ran: &'r Ran) -> Vec<&'r str> {
    let rows = ran.stdout.lines().skip_while(|line| !line.trim_start().starts_with("plan "));
    // Names have single blanks in them, columns are further apart.
    let name = |line: &'r str| line.trim_start().split("  ").next().unwrap_or_default();
    rows.skip(1).take_while(|line| !line.is_empty()).map(name).collect()
}

#[test]
fn a_tiny_trace_gives_a_table_of_all_plans() {
    let trace = File::tiny("table.csv");
    let ran = run(&mut decode_loop(Some(&trace.0), &["--seconds", "1"]));
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{ran:?}");
    assert_eq!(arms(&ran), ARMS, "{}", ran.stdout);
    for told in [
        "\ntiny: all steps; a wait takes 1007 us (p50), 1015 us (p99)",
        "\nplans      poll           poll\n           flag           flag:park_us=50,backstop_us=1000\n",
        "flag:park_us=50,backstop_us=1000+predict:margin_us=..,min_sleep_us=200,max_sleep_us=20000,window=8\n",
        "\n  margin of flag+predict: ",
        "late wakes",
    ] {
        assert!(ran.stdout.contains(told), "{told:?} is missing: {}", ran.stdout);
    }
}

#[test]
fn given_plans_take_the_place_of_the_default_ones_and_none_has_a_margin_chosen() {
    let trace = File::tiny("plans.csv");
    let plans = ["--plan", "poll", "--plan", "poll;rows>=32:block", "--no-work"];
    let ran = run(&mut decode_loop(Some(&trace.0), &plans));
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{ran:?}");
    assert_eq!(arms(&ran), ["poll", "poll #2", "bands"], "{}", ran.stdout);
    assert!(!ran.stdout.contains("margin of"), "{}", ran.stdout);
}

#[test]
fn records_are_written_and_nothing_is_printed_when_quiet() {
    let (trace, json) = (File::tiny("json.csv"), File::new("json.jsonl", ""));
    let ran = run(decode_loop(Some(&trace.0), &["--quiet"]).arg("--json").arg(&json.0));
    assert_eq!((ran.code, &*ran.stdout, &*ran.stderr), (Some(0), "", ""));
    let text = fs::read_to_string(&json.0).unwrap();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.iter().map(|record| &record["arm"]).collect::<Vec<_>>(), ARMS);
    for record in &records {
        assert_eq!(
            (&record["bench"], &record["case"], &record["base"]),
            (&"decode_loop".into(), &"tiny".into(), &"poll".into())
        );
        assert_eq!((&record["waits"], &record["latency"]["count"]), (&STEPS.into(), &STEPS.into()));
        assert_eq!((&record["rounds"], &record["host"]), (&2.into(), &"std".into()));
        assert!(record["cost_ratio"]["mean"].as_f64() > Some(0.0), "{record}");
        assert!(record["margin_ns"].as_u64() > Some(0), "{record}");
        assert!(record["latency"]["max_ns"].as_u64() >= record["latency"]["p50_ns"].as_u64(), "{record}");
    }
    assert_eq!(records[0]["cost_ratio"]["mean"], 1.0);
}

/// What was recorded is a trace as any other.
#[test]
fn what_it_records_is_replayed() {
    let (trace, record) = (File::tiny("from.csv"), File::new("record.csv", ""));
    let ran = run(decode_loop(Some(&trace.0), &["--quiet"]).arg("--record").arg(&record.0));
    assert_eq!((ran.code, &*ran.stdout, &*ran.stderr), (Some(0), "", ""));
    let text = fs::read_to_string(&record.0).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), STEPS, "{text}");
    for (number, row) in rows.iter().enumerate() {
        assert_eq!((row[0], row[3]), ("tiny", &*number.to_string()), "{text}");
    }
    // As a spin saw it: not before its end, but where the thread was held up between the launch and the wait.
    let ns = |text: &str| text.parse::<u64>().expect("a number");
    let held = rows.iter().filter(|row| ns(row[5]) >= ns(row[6]) - 100_000).count();
    assert!(held > STEPS / 2, "{text}");
    let again = run(&mut decode_loop(Some(&record.0), &["--seconds", "1"]));
    assert_eq!((again.code, &*again.stderr), (Some(0), ""), "{again:?}");
}

/// The file was empty, and all was well.
#[cfg(target_os = "linux")]
#[test]
fn a_trace_that_finds_no_room_is_told() {
    let trace = File::tiny("no_room.csv");
    let ran = run(&mut decode_loop(Some(&trace.0), &["--quiet", "--record", "/dev/full"]));
    assert_eq!((ran.code, &*ran.stdout), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("/dev/full: the trace cannot be written: No space left"), "{ran:?}");
}

#[test]
fn statistics_tell_of_each_plan_how_its_waits_ended() {
    let (trace, prometheus) = (File::tiny("stats.csv"), File::new("stats.prom", ""));
    let ran = run(decode_loop(Some(&trace.0), &["--stats"]).arg("--prometheus").arg(&prometheus.0));
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{ran:?}");
    assert_eq!(arms(&ran), ARMS, "{}", ran.stdout);
    let text = fs::read_to_string(&prometheus.0).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    for arm in ARMS {
        assert!(ran.stdout.contains(&format!("\n  tiny/{arm}: {STEPS} waits (")), "{arm}: {}", ran.stdout);
        let of_arm = format!("{{point=\"tiny/{arm}\"");
        let ended = text.lines().filter(|line| line.starts_with(&format!("wakeline_waits_total{of_arm}")));
        let ended = ended.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap());
        assert_eq!(ended.sum::<usize>(), STEPS, "{text}");
        assert!(text.contains(&format!("\nwakeline_wait_seconds_count{of_arm}}} {STEPS}\n")), "{text}");
    }
    for told in ["; waited ", " (p50), ", " (p99); ", " parks, ", " queries"] {
        assert!(unfolded(&ran.stdout).contains(told), "{told:?} is missing: {}", ran.stdout);
    }
}

/// Every host, as `--host all` orders them.
const HOSTS: [&str; 5] = ["std", "watcher", "tokio", "tokio-local", "uring"];

/// The hosts that run here. Where there is no ring, the warning stands in the one line of stderr.
#[track_caller]
fn present(ran: &Ran) -> &'static [&'static str] {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    if wakeline_uring::Probe::run().works() == Some(true) {
        assert_eq!(ran.stderr, "");
        return &HOSTS;
    }
    let warned = "decode_loop: warning: the host `uring` is left out: 0x0003 ExecutorFallback: no io_uring: ";
    assert!(ran.stderr.starts_with(warned) && ran.stderr.lines().count() == 1, "{ran:?}");
    &HOSTS[..4]
}

#[test]
fn each_host_waits_under_the_default_plans_beside_a_spin() {
    let trace = File::tiny("host.csv");
    for host in &HOSTS[1..] {
        let ran = run(&mut decode_loop(Some(&trace.0), &["--host", host]));
        let here = *host != "uring" || present(&ran).contains(host);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let mut expected = vec!["poll@std".to_owned()];
        if here {
            assert_eq!(ran.stderr, "");
            expected.extend(["flag", "flag+predict"].map(|plan| format!("{plan}@{host}")));
        }
        assert_eq!(arms(&ran), expected, "{}", ran.stdout);
    }
    let ran = run(&mut decode_loop(Some(&trace.0), &["--host", "std"]));
    assert_eq!((ran.code, &*ran.stderr, arms(&ran)), (Some(0), "", ARMS.to_vec()), "{ran:?}");
    assert!(!ran.stdout.contains("\nhosts "), "{}", ran.stdout);
}

#[test]
fn all_hosts_share_a_table_the_records_and_the_statistics() {
    let (trace, json) = (File::tiny("all.csv"), File::new("all.jsonl", ""));
    let prometheus = File::new("all.prom", "");
    let mut command = decode_loop(Some(&trace.0), &["--host", "all", "--host", "tokio", "--stats"]);
    let ran = run(command.arg("--json").arg(&json.0).arg("--prometheus").arg(&prometheus.0));
    let hosts = present(&ran);
    let mut expected = vec![("poll".to_owned(), "std")];
    for plan in ["flag", "flag+predict"] {
        expected.extend(hosts.iter().map(|host| (plan.to_owned(), *host)));
    }
    expected.push(("flag+predict & work".to_owned(), "std"));
    let names: Vec<_> = expected.iter().map(|(plan, host)| format!("{plan}@{host}")).collect();
    assert_eq!(arms(&ran), names, "{}", ran.stdout);

    let text = fs::read_to_string(&prometheus.0).unwrap();
    for name in &names {
        assert!(ran.stdout.contains(&format!("\n  tiny/{name}: {STEPS} waits (")), "{name}: {}", ran.stdout);
        let counted = format!("\nwakeline_wait_seconds_count{{point=\"tiny/{name}\"}} {STEPS}\n");
        assert!(text.contains(&counted), "{counted} is missing: {text}");
    }
    for (host, title) in hosts.iter().zip(["hosts      ", "           "].iter().chain([&"           "; 9])) {
        let line = format!("\n{title}{host:11}   ");
        assert!(ran.stdout.contains(&line), "{line:?} is missing: {}", ran.stdout);
    }
    assert!(ran.stdout.contains("`poll@std`"), "the legend names the base: {}", ran.stdout);

    let text = fs::read_to_string(&json.0).unwrap();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (record, (name, (_, host))) in records.iter().zip(names.iter().zip(&expected)) {
        assert_eq!((&record["arm"], &record["host"]), (&name.as_str().into(), &(*host).into()));
        assert_eq!((&record["base"], &record["waits"]), (&"poll@std".into(), &STEPS.into()));
        assert_eq!(record["latency"]["count"], STEPS, "{record}");
        assert!(record["cpu_ns"].as_u64() > Some(0), "{record}");
    }
    assert_eq!(records.len(), names.len());
}

#[test]
fn a_plan_that_is_asked_for_runs_on_each_host_also_a_poll() {
    let trace = File::tiny("host-plans.csv");
    for host in ["std", "watcher", "tokio", "tokio-local"] {
        let plans = ["--plan", "poll", "--plan", "poll;rows>=1:block", "--no-work", "--host", host];
        let ran = run(&mut decode_loop(Some(&trace.0), &plans));
        assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{ran:?}");
        let expected = match host {
            "std" => ["poll", "poll #2", "bands"].map(str::to_owned),
            _ => ["poll@std".to_owned(), format!("poll@{host}"), format!("bands@{host}")],
        };
        assert_eq!(arms(&ran), expected, "{}", ran.stdout);
    }
}

/// The output with its folded lines in one again.
fn unfolded(stdout: &str) -> String {
    stdout.replace(&format!("\n{:17}", ""), " ")
}

#[test]
fn help_is_no_error() {
    let ran = run(&mut decode_loop(None, &["--help"]));
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
    assert!(
        ran.stdout.contains("Usage: decode_loop")
            && ["--trace <FILE>", "--stats", "--prometheus <FILE>", "--host <NAME>"]
                .iter()
                .all(|option| ran.stdout.contains(option)),
        "{}",
        ran.stdout
    );
    for host in HOSTS.iter().chain(&["all"]) {
        assert!(ran.stdout.contains(&format!("\n          - {host}:")), "{host}: {}", ran.stdout);
    }
}

/// Exit code 2, nothing on stdout, and on stderr what went wrong, to the letter.
#[track_caller]
fn refused(ran: &Ran, message: &str) {
    assert_eq!((ran.code, &*ran.stdout), (Some(2), ""), "{ran:?}");
    assert_eq!(ran.stderr, format!("decode_loop: {message}\n"));
}

#[test]
fn a_wrong_plan_is_shown_with_a_caret_under_it() {
    let plan = "flag:park_us=50,backstop_us=1000+predct";
    let ran = run(&mut decode_loop(None, &["--plan", plan]));
    let caret = format!("{:>width$}", '^', width = plan.find("predct").unwrap() + 1);
    refused(
        &ran,
        &format!(
            "invalid plan `{plan}`, column 34: unknown suffix `predct`: did you mean `predict`? A suffix is \
             `+predict:..`, `+adapt:..`, `+warm` or `+trust`\n  {plan}\n  {caret}"
        ),
    );
}

#[test]
fn wrong_arguments_are_refused_in_a_line() {
    let hint = "(--help lists the arguments)";
    for (arguments, message) in [
        (
            &["--workload", "decode"][..],
            "unknown workload `decode`: h200-a.csv has decode-eager, decode-graph, experts, gather-topk, \
             mixed-prefill, speculative, train-step",
        ),
        (&["--bogus"], &*format!("unexpected argument '--bogus' found {hint}")),
        (&["trace.csv"], &*format!("unexpected argument 'trace.csv' found {hint}")),
        (
            &["--steps", "0"],
            &*format!("invalid value '0' for '--steps <N>': 0 is not in 1..=4294967295 {hint}"),
        ),
        (
            &["--key", "x"],
            &*format!("invalid value 'x' for '--key <KEY>' [possible values: point, rows] {hint}"),
        ),
        (
            &["--host", "smol"],
            &*format!(
                "invalid value 'smol' for '--host <NAME>' [possible values: std, watcher, tokio, tokio-local, uring, all] {hint}"
            ),
        ),
        (&["--nap-us", "1"], "nap_us is 1, but must be from 5 to 10000"),
        (&["--stats", "--quiet"], &*format!("the argument '--stats' cannot be used with '--quiet' {hint}")),
    ] {
        refused(&run(&mut decode_loop(None, arguments)), message);
    }
}

#[test]
fn a_bad_row_is_told_by_file_line_and_column() {
    let good = "tiny,sample,1,0,1000,1000000,1000000";
    for (row, message) in [
        (
            "tiny,sample,1,1,1000,1ms,1000000",
            "column residual_ns: `1ms` is no whole number; write digits only, as in 4686960",
        ),
        ("tiny,sample,1,1,,5,5", "column enqueue_ns: it is empty; write digits, as in 4686960"),
        (
            "tiny,sample,1,1,1000",
            "column residual_ns is missing; a row has 7 columns: \
             workload,point,rows,step,enqueue_ns,residual_ns,gpu_ns",
        ),
    ] {
        // The last row of all: nothing is measured before the whole trace is known to be good.
        let trace = File::new("row.csv", format!("{HEADER}\n{good}\n{row}\n"));
        let ran = run(&mut decode_loop(Some(&trace.0), &[]));
        refused(&ran, &format!("{}:3: {message}", trace.0.display()));
    }
}

#[test]
fn a_trace_without_steps_or_header_is_refused() {
    for (text, message) in [
        (String::new(), format!(": the trace is empty; its first line must be `{HEADER}`")),
        (
            format!("{HEADER}\n"),
            ": the trace has no steps; below the header stands one row a step".to_owned(),
        ),
        ("a,b\n1,2\n".to_owned(), format!(":1: the header is `a,b`, but must be `{HEADER}`")),
    ] {
        let trace = File::new("empty.csv", text);
        let ran = run(&mut decode_loop(Some(&trace.0), &[]));
        refused(&ran, &format!("{}{message}", trace.0.display()));
    }
}

#[test]
fn a_missing_file_is_named() {
    let missing = scratch("there-is-no-such.csv");
    let ran = run(&mut decode_loop(Some(&missing), &[]));
    let system = fs::File::open(&missing).unwrap_err();
    refused(&ran, &format!("{}: cannot be opened: {system}", missing.display()));

    let records = missing.join("records.jsonl");
    let ran = run(decode_loop(None, &[]).arg("--json").arg(&records));
    let system = fs::File::create(&records).unwrap_err();
    refused(&ran, &format!("{}: the records cannot be written: {system}", records.display()));

    let ran = run(decode_loop(None, &[]).arg("--prometheus").arg(&records));
    refused(&ran, &format!("{}: the statistics cannot be written: {system}", records.display()));
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let trace = File::tiny("pipe.csv");
    for lines_read in [0, 1] {
        let mut command = decode_loop(Some(&trace.0), &[]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        for _ in 0..lines_read {
            stdout.read_line(&mut String::new()).unwrap();
        }
        drop(stdout);
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "after {lines_read} lines");
    }
}

#[test]
fn without_a_place_for_the_message_the_exit_code_is_the_same() {
    let mut child = decode_loop(None, &["--bogus"]).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(2));
}
