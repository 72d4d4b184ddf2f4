//! The table for a terminal.

use wakeline_benches::ab::report::{RunFile, table};

use crate::synthetic;

#[test]
fn every_arm_has_a_row_and_what_is_missing_is_a_dash() {
    let text = table(&synthetic::full("run.jsonl", 1, 1.0));
    assert!(text.starts_with("run.jsonl: cuda on INTEL"), "{text}");
    assert!(text.contains("NOT GOOD  quiet to the end: others took 23 %"), "{text}");
    let row =
        |arm: &str| text.lines().find(|line| line.contains(arm)).unwrap_or_else(|| panic!("{arm}: {text}"));
    assert!(row("await, current_thread").contains('\u{2013}'), "its energy is missing: {text}");
    assert!(row("spin on the word (base)").ends_with('1'), "{text}");
    assert!(row("cuStreamSynchronize, spin").contains(" us "), "{text}");
    assert!(text.contains("note: nothing in flight, none: not run: the driver has no such call"), "{text}");
    assert!(text.contains("\ngraphs\n  nothing was recorded"), "{text}");
    // The long plan is broken over lines, none of it lost.
    assert!(
        text.contains("flag:park_us=50,backstop_us=1000\n") || text.contains("+predict:margin_us=50"),
        "{text}"
    );
    assert!(text.contains("window=16+trust"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 170), "{text}");
}

#[test]
fn a_run_that_was_cut_off_says_so() {
    let mut file = synthetic::full("run.jsonl", 1, 1.0);
    file.end = None;
    let whole = synthetic::text(&file);
    let cut = RunFile::read("cut.jsonl", &whole[..whole.len() - 30]).unwrap();
    assert!(table(&cut).contains("CUT OFF"));
}
