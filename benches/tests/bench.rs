//! The A/B program, run as it is: wrong arguments are refused in a line, a small run gives a file that reads back, on a simulated device and on
//! the stand-in for the driver.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod without_gpu;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use wakeline_benches::ab::schema::{Cell, Line};
use wakeline_benches::read_json_lines;

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench")).args(args).output().unwrap()
}

/// A folder of a test's own.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{name}-{}", std::process::id()))
}

/// What a run writes: the file's lines, and the table.
fn run(name: &str, args: &[&str]) -> (Vec<Line>, String) {
    let out = folder(name);
    let output = bench(&[args, &["--out", out.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{output:?}");
    let lines = read_json_lines(std::fs::read(out.join("run.jsonl")).unwrap().as_slice()).unwrap();
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"), "{page}");
    std::fs::remove_dir_all(&out).unwrap();
    (lines, String::from_utf8(output.stdout).unwrap())
}

fn cells(lines: &[Line]) -> Vec<&Cell> {
    let cells = lines.iter().filter_map(|line| match line {
        Line::Cell(cell) => Some(cell),
        _ => None,
    });
    cells.collect()
}

/// Says first what was run and last how it ended; every cell has its rounds, is compared with a base of its case, and has curves that rise.
fn is_sane(lines: &[Line], rounds: usize) {
    let (Some(Line::Run(run)), Some(Line::End(end))) = (lines.first(), lines.last()) else {
        panic!("not from a first line to a last");
    };
    assert!(run.schema == 1 && !run.checks.is_empty() && !end.checks.is_empty() && end.took_s > 0.0);
    assert!(run.environment.cpus >= 1 && !run.suites.is_empty(), "{run:?}");
    let cells = cells(lines);
    for cell in &cells {
        assert_eq!(cell.rounds, rounds, "{cell:?}");
        assert!(run.suites.contains(&cell.suite));
        let case: Vec<_> =
            cells.iter().filter(|other| other.suite == cell.suite && other.case == cell.case).collect();
        assert_eq!(case.iter().filter(|other| other.arm == cell.base).count(), 1, "{cell:?}");
        assert_eq!(case.iter().filter(|other| other.arm == cell.arm).count(), 1, "{cell:?}");
        // Operations have no plan but their runtime's.
        assert!((cell.family == "raw") == cell.plan.is_none() || cell.suite == "ops", "{cell:?}");
        assert!(!cell.metrics.is_empty());
        for (name, metric) in &cell.metrics {
            assert_eq!((metric.by_round.len(), metric.value.n), (rounds, rounds), "{name}: {metric:?}");
            // Absent means absent: what the machine does not tell is not there as a zero.
            assert!(!name.starts_with("energy") || metric.value.mean > 0.0, "{name}: {metric:?}");
        }
        let rising = cell.cdf.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1);
        assert!(rising && cell.cdf.len() <= 64, "{:?}", cell.cdf);
        assert_eq!(cell.cdf.last().is_some_and(|(_, share)| *share >= 1.0), cell.latency.is_some());
    }
}

#[test]
fn wrong_arguments_are_refused_with_one_line() {
    for (args, says) in [
        (&["--device", "hip"][..], "bench: `--device hip` is none of auto, sim, cuda"),
        (&["--rounds", "0"], "bench: `--rounds 0` is not from 1"),
        (&["--quik"], "bench: unknown argument `--quik`"),
        (
            &["no-such"],
            "bench: `no-such` is in the name of no case; there are the suites wake, burn, serve, fan-in",
        ),
        (
            &["--device", "sim", "--arms", "spin,flagg"],
            "bench: `--arms flagg` names no arm; there are spin, status-spin",
        ),
        (&["--device", "sim", "--arms", "sync-spin"], "bench: `--arms sync-spin` names no arm"),
        (
            &["--device", "sim", "--arms", "flag:pak_us=1,backstop_us=9"],
            "bench: `--arms flag:pak_us=1,backstop_us=9`: ",
        ),
        (&["--device", "sim", "--baseline", "no/such/run.jsonl"], "bench: `--baseline`: no/such/run.jsonl: "),
        (&["--device", "sim", "--baseline", env!("CARGO_MANIFEST_PATH")], "bench: `--baseline`: "),
    ] {
        let output = bench(args);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{message}");
        assert!(message.starts_with(says) && message.lines().count() == 1, "{message}");
    }
}

#[test]
fn help_names_every_argument_and_list_every_suite_and_arm() {
    let output = bench(&["--help"]);
    let usage = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{usage}");
    for argument in [
        "--quick",
        "--device",
        "--arms",
        "--out",
        "--baseline",
        "--seed",
        "--rounds",
        "--seconds",
        "list",
        "selftest",
    ] {
        assert!(usage.contains(argument), "{usage}");
    }
    let output = bench(&["list", "--device", "sim"]);
    let list = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{list}");
    for name in [
        "wake/1000 us",
        "serve/batch 16, closed loop",
        "fan-in/4096 flights",
        "* spin",
        "flag+predict@watcher",
    ] {
        assert!(list.contains(name), "{name} in {list}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn without_a_gpu_it_says_so_where_one_was_asked_for_and_simulates_elsewhere() {
    let without = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
        without_gpu::hide_driver(&mut command);
        command.args(args).output().unwrap()
    };
    let output = without(&["--device", "cuda"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(message.starts_with("skipped: no CUDA device") && message.lines().count() == 1, "{message}");
    let output = without(&["list"]);
    assert!(output.status.success() && String::from_utf8(output.stdout).unwrap().contains("device `sim`"));
}

/// Whoever names a library is told of it, on any machine: it is neither "no GPU" nor a reason to simulate one.
#[test]
fn a_driver_that_was_named_and_cannot_be_loaded_is_an_error() {
    for device in ["cuda", "auto"] {
        let output = bench(&["list", "--device", device, "--driver", "no/such/libcuda.so.1"]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{device}: {message}");
        assert!(
            message.starts_with("bench: `--driver no/such/libcuda.so.1` cannot be used: cuda: ")
                && message.contains("no such file") | message.contains("No such file")
                && message.lines().count() == 1,
            "{message}"
        );
    }
}

/// Nothing that a user gives commands the terminal.
#[test]
fn arguments_are_shown_with_their_control_characters_written_out() {
    for args in [
        &["\x1b[2Jx\ny"][..],
        &["--\x1b[2Jx\ny"],
        &["--device", "\x1b[2Jx\ny"],
        &["--device", "sim", "--arms", "\x1b[2Jx\ny"],
        &["--device", "sim", "--baseline", "\x1b[2Jx\ny"],
        &["--driver", "\x1b[2Jx\ny"],
        &["report", "\x1b[2Jx\ny"],
        &["report", "--\x1b[2Jx\ny"],
        &["report", "x", "--fail-if", "ratio(\x1b[2Jx\ny"],
    ] {
        let output = bench(args);
        let (message, shown) =
            (String::from_utf8(output.stderr).unwrap(), String::from_utf8(output.stdout).unwrap());
        assert!(!output.status.success() && shown.is_empty(), "{args:?}: {shown}");
        assert!(message.contains("\\u{1b}[2Jx\\ny"), "{args:?}: {message}");
        assert!(message.chars().all(|c| c == '\n' || !c.is_control()), "{args:?}: {message:?}");
    }
    // Where a run went, too.
    let out = folder("esc\x1b[2Jx");
    let run = ["wake/12 us", "--quick", "--device", "sim", "--rounds", "1", "--arms", "spin", "--out"];
    let output = bench(&[&run[..], &[out.to_str().unwrap()]].concat());
    std::fs::remove_dir_all(&out).unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && shown.contains("esc\\u{1b}[2Jx") && !shown.contains('\x1b'),
        "{shown:?}"
    );
}

/// As text it would be the name of another file.
#[test]
#[cfg(unix)]
fn an_argument_that_is_no_text_is_refused() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    for first in ["--out", "report"] {
        let output = Command::new(env!("CARGO_BIN_EXE_bench"))
            .args([OsStr::new(first), OsStr::from_bytes(b"a\xffb")])
            .output()
            .unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("`a\u{fffd}b` is no UTF-8"), "{message}");
    }
}

#[test]
fn what_cannot_be_written_is_named_before_anything_is_measured() {
    let out = folder("taken");
    std::fs::write(&out, "a file").unwrap();
    let output = bench(&["--quick", "--device", "sim", "--out", out.to_str().unwrap()]);
    std::fs::remove_file(&out).unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{message}");
    let says = format!("bench: the results cannot be written: {}: ", out.display());
    assert!(message.starts_with(&says) && message.lines().count() == 1, "{message}");
}

#[test]
fn a_baseline_that_has_none_of_the_cases_is_refused_before_anything_is_measured() {
    let out = folder("other-suite");
    let out = out.to_str().unwrap();
    let args = ["--quick", "--device", "sim", "--rounds", "1", "--arms", "spin", "--out"];
    assert!(bench(&[&["wake/12 us"], &args[..], &[out]].concat()).status.success());
    let before = format!("{out}/run.jsonl");
    let output =
        bench(&[&["fan-in/1 "], &args[..], &[&format!("{out}/after"), "--baseline", &before]].concat());
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    let says = format!("bench: `--baseline {before}` has none of the cases to run");
    assert!(message.starts_with(&says) && message.contains("cases of wake"), "{message}");
    std::fs::remove_dir_all(out).unwrap();
}

/// The suite of operations has arms of its own, which are chosen as those of the others are.
#[test]
fn arms_of_operations_are_chosen_too() {
    let run = |name: &str, arms: &str| {
        let args = ["ops", "--quick", "--device", "sim", "--rounds", "1", "--seconds", "1", "--arms", arms];
        let (lines, _) = run(name, &args);
        is_sane(&lines, 1);
        let cells = cells(&lines).into_iter().map(|cell| format!("{}: {}", cell.case, cell.arm));
        cells.collect::<Vec<_>>()
    };
    assert_eq!(
        run("ops-own", "sync_on"),
        ["20 us: spin", "20 us: sync_on", "1000 us: spin", "1000 us: sync_on"]
    );
    assert_eq!(run("ops-crowd", "scan,flag"), ["512 tasks of 50 us: scan"]);
    let late = "await@multi_thread(4),late_us=500";
    let idle = ["await@multi_thread(4)", late].map(|arm| format!("64 tasks of 20 ms: {arm}"));
    assert_eq!(run("ops-late", late), idle);
    let output = bench(&["ops", "--device", "sim", "--arms", "sync_onn"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.starts_with("bench: `--arms sync_onn` names no arm") && message.contains("sync_on, scan")
    );
}

#[test]
fn a_small_run_gives_a_file_that_reads_back_and_a_table() {
    let arms = "spin,status-spin,block,flag+predict,flag+predict@watcher,flag+predict@tokio-local";
    let args = [
        "wake",
        "burn",
        "serve/batch 4",
        "poisson",
        "fan-in",
        "--quick",
        "--device",
        "sim",
        "--rounds",
        "2",
        "--seconds",
        "1",
        "--seed",
        "5",
        "--commit",
        "c0ffee",
        "--arms",
        arms,
    ];
    let (lines, table) = run("all", &args);
    is_sane(&lines, 2);
    let Some(Line::Run(run)) = lines.first() else { panic!("no first line") };
    assert_eq!(run.environment.commit.as_deref(), Some("c0ffee"));
    assert_eq!((run.environment.seed, run.device.as_str(), run.quick), (5, "sim", true));
    assert!(run.environment.gpu.is_none() && !run.command.contains(&"--commit".to_owned()), "{run:?}");
    assert_eq!(run.suites, ["wake", "burn", "serve", "fan-in"]);
    let cells = cells(&lines);
    for suite in &run.suites {
        let of_it = cells.iter().filter(|cell| cell.suite == *suite);
        assert!(of_it.clone().any(|cell| cell.family == "wakeline"), "{suite}");
        assert!(table.contains(&format!("\n{suite}\n")), "{suite}: {table}");
        for cell in of_it {
            let latency = cell.latency.as_ref().unwrap_or_else(|| panic!("{cell:?}"));
            assert!(latency.count > 0 && latency.p50_ns <= latency.max_ns, "{cell:?}");
        }
    }
    let served = cells.iter().filter(|cell| cell.suite == "serve");
    for cell in served {
        // The same load for every arm: as many tokens, each with as much work.
        assert!(cell.metrics["throughput"].value.mean > 0.0 && cell.metrics["host_work"].value.mean > 0.0);
        assert_eq!(cell.metrics.contains_key("request_latency"), cell.case.ends_with("poisson"), "{cell:?}");
    }
    let timelines = lines.iter().filter_map(|line| match line {
        Line::Timeline(timeline) => Some(timeline),
        _ => None,
    });
    let mut drawn = 0;
    for timeline in timelines {
        drawn += 1;
        for what in ["launch", "ended", "woken"] {
            assert_eq!(timeline.spans.iter().filter(|span| span.what == what).count(), 1, "{timeline:?}");
        }
        assert!(timeline.spans.iter().all(|span| span.from_ns <= span.to_ns), "{timeline:?}");
    }
    assert!(drawn >= 5, "{drawn}");
}

#[test]
fn chosen_arms_are_run_with_their_base_and_nothing_else_is() {
    let plan = "flag:park_us=40,backstop_us=400+trust@watcher";
    let list = format!("block,{plan}");
    let (lines, _) =
        run("arms", &["wake/100 us", "--quick", "--device", "sim", "--rounds", "2", "--arms", &list]);
    is_sane(&lines, 2);
    let arms: Vec<_> = cells(&lines).iter().map(|cell| cell.arm.clone()).collect();
    assert_eq!(arms, ["spin", "block", plan]);
    let text = cells(&lines)[2].plan.clone().unwrap();
    assert_eq!(format!("{text}@watcher"), plan);
    // It is compared with an earlier run.
    let out = folder("arms-before");
    let out = out.to_str().unwrap();
    let args = ["wake/100 us", "--quick", "--device", "sim", "--rounds", "2", "--arms", "block"];
    assert!(bench(&[&args[..], &["--out", out]].concat()).status.success());
    let before = format!("{out}/run.jsonl");
    let (_, table) = run("arms-after", &[&args[..], &["--baseline", &before]].concat());
    assert!(table.contains(&format!("from {before} to ")) && table.contains("ratio before"), "{table}");
    std::fs::remove_dir_all(out).unwrap();
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod on_the_stand_in {
    use wakeline_fake_driver::Fake;

    use super::{Line, cells, is_sane, run};

    #[test]
    fn every_suite_runs_with_the_drivers_own_ways_and_the_gpus_energy() {
        let fake = Fake::new().unwrap();
        let library = fake.path().to_str().unwrap();
        let args = [
            "wake",
            "burn",
            "serve/batch 4",
            "fan-in",
            "--quick",
            "--device",
            "auto",
            "--rounds",
            "2",
            "--arms",
            "raw,flag+predict@watcher",
            "--driver",
            library,
            "--nvml",
            library,
        ];
        let (lines, _) = run("cuda", &args);
        is_sane(&lines, 2);
        let Some(Line::Run(run)) = lines.first() else { panic!("no first line") };
        assert_eq!((run.device.as_str(), run.environment.gpu.as_deref()), ("cuda", Some("Fake GPU 0")));
        assert!(
            run.environment.driver.as_ref().is_some_and(|driver| driver.contains("CUDA 13.0")),
            "{run:?}"
        );
        for suite in ["wake", "burn", "serve"] {
            for arm in
                ["sync-spin", "sync-yield", "sync-block", "event-block", "host-fn", "flag+predict@watcher"]
            {
                let of_it = cells(&lines).into_iter().filter(|cell| cell.suite == suite && cell.arm == arm);
                assert!(of_it.count() > 0, "{suite}, {arm}");
            }
        }
        for cell in cells(&lines) {
            assert_eq!(
                cell.base,
                if matches!(cell.suite.as_str(), "burn" | "serve") { "sync-spin" } else { "spin" }
            );
            // The counter of a short turn has hardly moved.
            let energy = cell.metrics.get("energy");
            assert!(cell.suite != "burn" || energy.is_some_and(|energy| energy.value.mean > 0.0), "{cell:?}");
            assert!(cell.case != "12 us" || energy.is_none(), "{cell:?}");
            // Between the steps of a server the clocks are not compared.
            assert_eq!(cell.latency.is_none(), cell.suite == "serve", "{cell:?}");
        }
        assert!(cells(&lines).iter().any(|cell| cell.suite == "fan-in" && cell.case == "4096 flights"));
    }
}
