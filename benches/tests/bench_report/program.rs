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
fn a_guard_says_where_a_run_was_cut_off_and_that_an_older_one_did_not_count_its_lines() {
    let folder = folder("cut");
    let file = synthetic::full("whole.jsonl", 1, 1.0);
    let text = synthetic::text(&file);
    let count = text.lines().count();
    let guard = ["--fail-if", "ratio(wake/*/poll).cpu > 1.5"];
    let with = |name: &str, text: &str, conditions: &[&str]| {
        std::fs::write(folder.join(name), text).unwrap();
        report(&folder, &[&[name], conditions].concat())
    };
    let (code, shown, errors) = with("whole.jsonl", &text, &guard);
    assert_eq!((code, errors.as_str(), shown.contains("NOTE")), (Some(0), "", false), "{shown}");
    // The last line is torn.
    let (code, shown, errors) = with("torn.jsonl", &text[..text.len() - 20], &guard);
    assert_eq!(code, Some(1), "{shown}");
    let says =
        format!("not all of torn.jsonl can be held against it: line {count}: the run was cut off here");
    assert!(errors.contains(&says) && shown.contains("  ERROR   torn.jsonl: line "), "{shown}{errors}");
    // It is still shown, and said to be short; and what holds is told first.
    assert!(
        shown.contains("CUT OFF  at line") && shown.contains("passed  torn.jsonl: wake/20 us/poll"),
        "{shown}"
    );
    let holding = ["--fail-if", "ratio(wake/200 us/poll).cpu > 0.5"];
    assert_eq!(with("torn.jsonl", &text[..text.len() - 20], &holding).0, Some(3));
    assert_eq!(with("torn.jsonl", &text[..text.len() - 20], &[]).0, Some(0));
    // A line of its middle is missing.
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let (code, shown, errors) = with("lost.jsonl", &[&lines[..9], &lines[10..]].concat().concat(), &[]);
    assert_eq!((code, shown.as_str()), (Some(1), ""));
    let says = format!(
        "bench report: lost.jsonl, line {}: the run wrote {} line(s) of kind `cell`",
        count - 1,
        file.cells.len()
    );
    assert!(errors.starts_with(&says), "{errors}");
    // As an older program wrote it.
    let mut old = file.clone();
    old.end = None;
    let end = "{\"kind\":\"end\",\"took_s\":1.5,\"checks\":[]}\n";
    let (code, shown, errors) = with("old.jsonl", &(synthetic::text(&old) + end), &guard);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{shown}");
    let note =
        format!("\nNOTE  old.jsonl, line {count}: an older program wrote it, and did not count its lines");
    assert!(shown.contains(&note), "{shown}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// Those that earlier programs wrote are shown as ever, and say in which order their arms took turns.
#[test]
fn the_records_of_this_repository_are_shown() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    let folder = folder("records");
    let page = folder.join("page.html");
    for name in ["bench-h200.jsonl", "bench-quick-2core.jsonl", "ops-h200.jsonl", "serve-warm-h200.jsonl"] {
        let (code, shown, errors) = report(&results, &[name, "--out", page.to_str().unwrap()]);
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{name}");
        assert!(shown.starts_with(name) && !shown.contains("CUT OFF"), "{shown}");
        let page = std::fs::read_to_string(&page).unwrap();
        assert!(
            page.contains("each came behind the same other one in every round") && !page.contains("Williams")
        );
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// Nothing of a file, of its name or of an argument commands the terminal, on either output.
#[test]
fn foreign_text_is_shown_with_its_control_characters_written_out() {
    let folder = folder("control");
    let evil = "\x1b]0;x\x07\u{9b}2J\u{202e}\n\rb";
    let mut file = synthetic::full("a.jsonl", 1, 1.0);
    file.run.suites.push(evil.to_owned());
    file.run.device = evil.to_owned();
    file.run.checks[0].good = false;
    file.run.checks[0].found = evil.to_owned();
    for cell in file.cells.iter_mut().filter(|cell| cell.suite == "wake") {
        cell.notes.push(evil.to_owned());
        cell.case += evil;
        cell.base = if cell.base == synthetic::SPIN { cell.base.clone() } else { evil.to_owned() };
    }
    let (name, torn) = (format!("{evil}.jsonl"), format!("torn{evil}.jsonl"));
    let text = synthetic::text(&file);
    std::fs::write(folder.join(&name), &text).unwrap();
    std::fs::write(folder.join(&torn), &text[..text.len() - 9]).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    std::fs::write(folder.join("twice.jsonl"), [lines[0], lines[1], lines[1], ""].join("\n")).unwrap();
    let shape = serde_json::json!({"kind": evil}).to_string();
    std::fs::write(folder.join("shape.jsonl"), [lines[0], &shape, ""].join("\n")).unwrap();
    let condition = format!("ratio(\"{evil}\"/*/*).cpu > 1");
    let page = format!("{evil}.html");
    let mut seen = 0;
    for args in [
        &[name.as_str(), &torn, "--compare"][..],
        &[&name, "--out", &page],
        &[&name, "--out", &name],
        &[&name, "--out", &format!("no/such/{evil}")],
        &[&name, "--fail-if", &condition],
        &[&torn, "--fail-if", "ratio(wake/*/poll).cpu > 1.5"],
        &[&name, "--fail-if", &format!("ratio(a/b/c).cpu > 1{evil}")],
        &[&name, "--fail-if", evil],
        &["twice.jsonl"],
        &["shape.jsonl"],
        &[&format!("none{evil}")],
        &[&format!("--{evil}")],
    ] {
        let (_, shown, errors) = report(&folder, args);
        let all = shown + &errors;
        let obeyed = all.chars().find(|c| *c != '\n' && (c.is_control() || *c == '\u{202e}'));
        assert_eq!(obeyed, None, "{args:?}: {all:?}");
        seen += usize::from(all.contains("\\u{1b}]0;x\\u{7}\\u{9b}2J\\u{202e}\\n\\rb"));
    }
    assert_eq!(seen, 12);
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
