//! The program: what it shows, what it writes, how it ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use wakeline_benches::ab::report::RunFile;

use crate::synthetic;

/// A folder of this test's own.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn write(folder: &Path, file: &RunFile) {
    std::fs::write(folder.join(&file.name), synthetic::text(file)).unwrap();
}

fn report(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_bench"))
        .current_dir(folder)
        .arg("report")
        .args(args)
        .output()
        .unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_run_is_shown_and_its_page_written() {
    let folder = folder("page");
    write(&folder, &synthetic::full("run.jsonl", 1, 1.0));
    let (code, shown, errors) = report(&folder, &["run.jsonl", "--out", "page.html"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{shown}");
    assert!(shown.contains("spin on the word (base)") && shown.contains("wrote page.html"), "{shown}");
    let page = std::fs::read_to_string(folder.join("page.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("run.jsonl"));
    let (code, _, errors) = report(&folder, &["run.jsonl", "--out", "no/such/page.html"]);
    assert_eq!(code, Some(1));
    assert!(errors.starts_with("bench report: no/such/page.html cannot be written: "), "{errors}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn conditions_decide_how_it_ends() {
    let folder = folder("conditions");
    write(&folder, &synthetic::full("a.jsonl", 1, 1.0));
    write(&folder, &synthetic::full("b.jsonl", 2, 1.5));
    let passing = "ratio(wake/*/poll).cpu > 1.5";
    let holding = "ratio(wake/200 us/poll).cpu > 0.5";
    let nothing = "ratio(wake/200 us/pol).cpu > 0.5";
    for (conditions, code, says) in [
        (&[passing][..], 0, "passed  a.jsonl: wake/20 us/poll: "),
        (&[passing, holding], 3, "FAILED  a.jsonl: wake/200 us/poll: 0."),
        (&[nothing], 1, "ERROR   no suite, case and arm of a.jsonl match"),
        (&[nothing, holding], 3, "FAILED"),
    ] {
        let mut args = vec!["a.jsonl"];
        args.extend(conditions.iter().flat_map(|condition| ["--fail-if", condition]));
        let (found, shown, errors) = report(&folder, &args);
        assert_eq!(found, Some(code), "{shown}{errors}");
        assert!(shown.contains(says), "{says}: {shown}");
        assert!(shown.contains("fail if ratio(wake/"), "{shown}");
    }
    let change = "change(wake/*/flag*predict*).cpu > 0.01";
    let (code, shown, _) = report(&folder, &["a.jsonl", "b.jsonl", "--compare", "--fail-if", change]);
    assert_eq!(code, Some(3), "{shown}");
    assert!(shown.contains("from a.jsonl to b.jsonl") && shown.contains("99 % interval"), "{shown}");
    // The first is what the others are compared to, and is not judged itself.
    assert!(!shown.contains("FAILED  a.jsonl"), "{shown}");
    let (code, ..) = report(&folder, &["b.jsonl", "a.jsonl", "--compare", "--fail-if", change]);
    assert_eq!(code, Some(0));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_cannot_be_done_is_told_on_standard_error() {
    let folder = folder("errors");
    std::fs::write(folder.join("bad.jsonl"), "{\"kind\":\"cell\"}\n").unwrap();
    for (args, code, says) in [
        (&[][..], 2, "bench report: give a run's file at least; see --help"),
        (&["none.jsonl"], 1, "bench report: none.jsonl: it cannot be read: "),
        (&["bad.jsonl"], 1, "bench report: bad.jsonl, line 1: it is no object of kind `run`"),
        (
            &["bad.jsonl", "--fail-if", "latency(a/b/c) > 1"],
            2,
            "bench report: invalid condition, column 1: `latency` is refused",
        ),
    ] {
        let (found, shown, errors) = report(&folder, args);
        assert_eq!((found, shown.as_str()), (Some(code), ""), "{errors}");
        assert!(errors.starts_with(says), "{errors}");
    }
    let (code, shown, errors) = report(&folder, &["--help"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert!(
        ["--out", "--compare", "--fail-if", "3 a condition holds"].iter().all(|word| shown.contains(word))
    );
    std::fs::remove_dir_all(folder).unwrap();
}
