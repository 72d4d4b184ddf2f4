//! The doctor, run as a program: what its JSON has, how long it takes, and what it says of wrong settings.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Runs it in an environment without settings but `vars`.
fn doctor(args: &[&str], vars: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doctor"));
    for name in wakeline::Settings::NAMES {
        command.env_remove(name);
    }
    command.args(args).envs(vars.iter().copied()).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_json_has_every_section_and_takes_a_moment() {
    let began = Instant::now();
    let output = doctor(&["--quick", "--json"], &[]);
    let took = began.elapsed();
    assert!(output.status.success(), "{output:?}");
    // 2 s on a machine of its own; tests share theirs.
    assert!(took < Duration::from_secs(10), "{took:?}");

    let report = json(&output);
    for (pointer, keys) in [
        ("", "version release quick machine park timers io_uring executors gpu cuda hip metal settings next"),
        (
            "/machine",
            "cpu cpu_vendor arch cpus_online cpus_usable is_virtual is_virtual_hint os kernel clock_source \
             clock_sources_available clock_read_ns tsc_constant tsc_nonstop tsc_mhz tsc_error_ppm_max",
        ),
        (
            "/park",
            "hardware_features hardware_kind hardware_why_not in_use threads_apart store_to_wake_in_use \
             store_to_wake_nap_slack_1_ns store_to_wake_nap_slack_as_given",
        ),
        ("/timers", "resolution_ns slack_ns slack_can_be_set oversleep"),
        ("/timers/oversleep/0", "length_us slack_1_ns slack_as_given margin_us_min"),
        ("/timers/oversleep/3/slack_as_given", "samples p50_ns p90_ns p99_ns max_ns"),
        ("/io_uring", "works why_not sysctl_disabled"),
        ("/executors/0", "requested granted warnings"),
        ("/gpu", "loader_cache_read libraries nvidia_driver devices device_nodes"),
        ("/cuda", "version lacks devices error default_runtime default_runtime_error"),
        ("/hip", "version library lacks devices error"),
        ("/metal", "built works error"),
        ("/gpu/libraries/0", "name what path version found_by_loader"),
        ("/settings", "names values error"),
        ("/settings/values/0", "name value is_default"),
    ] {
        let object = report.pointer(pointer).and_then(Value::as_object).expect(pointer);
        let (mut seen, mut expected) = (
            object.keys().map(String::as_str).collect::<Vec<_>>(),
            keys.split_whitespace().collect::<Vec<_>>(),
        );
        seen.sort_unstable();
        expected.sort_unstable();
        assert_eq!(seen, expected, "{pointer}");
    }

    assert_eq!(report["quick"], true);
    let lengths =
        report["timers"]["oversleep"].as_array().unwrap().iter().map(|row| row["length_us"].as_u64());
    assert_eq!(lengths.collect::<Option<Vec<_>>>().unwrap(), [100, 1_000, 5_000, 10_000]);
    assert!(report["next"].as_array().unwrap().len() <= 5);
    assert_eq!(report["executors"][0]["granted"], "naive");
    // Either there is a park in hardware or it is said why not.
    assert_ne!(report["park"]["hardware_kind"].is_null(), report["park"]["hardware_why_not"].is_null());
    // Either the driver says what it is or it is said why there is none.
    assert_ne!(report["cuda"]["version"].is_null(), report["cuda"]["error"].is_null());
    assert_ne!(report["hip"]["version"].is_null(), report["hip"]["error"].is_null());
}

#[test]
fn the_page_fits_its_width_and_says_what_to_do() {
    let output = doctor(&["--quick"], &[]);
    assert!(output.status.success(), "{output:?}");
    let page = String::from_utf8(output.stdout).unwrap();
    for title in
        ["Machine", "Park on a word", "Timers", "io_uring", "Executors", "Settings", "What to do next"]
    {
        assert!(page.lines().any(|line| line.starts_with(title)), "{title}:\n{page}");
    }
    // A path may be longer than a line.
    let long = page.lines().find(|line| line.chars().count() > 100 && !line.contains('/'));
    assert_eq!(long, None);
}

#[test]
fn a_setting_that_cannot_be_read_is_told_and_is_exit_code_2() {
    let output = doctor(&["--quick", "--json"], &[("WAKELINE_PLAN", "pol")]);
    assert_eq!(output.status.code(), Some(2));
    let report = json(&output);
    assert!(report["settings"]["values"].is_null());
    let error = report["settings"]["error"].as_str().unwrap();
    assert!(error.contains("WAKELINE_PLAN") && error.contains("`poll`"), "{error}");
    assert_eq!(String::from_utf8(output.stderr).unwrap().trim_end(), format!("doctor: {error}"));
    assert!(report["next"][0].as_str().unwrap().starts_with("Correct the environment"));
}

#[test]
fn a_wrong_argument_is_one_line_usage_and_exit_code_2() {
    let output = doctor(&["--jsn"], &[]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(String::from_utf8(output.stderr).unwrap().contains("unknown argument `--jsn`"));
}
