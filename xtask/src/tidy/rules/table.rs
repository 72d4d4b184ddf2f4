//! `tests/TABLE.md`: which tests stand for which case and which promised feature. Every name in it is a test that
//! exists, and every test named after a case is in it.
//!
//! Its tables have a first column `case` (`case 3`) or `row` (`W3`) and a column `tests`; further columns are prose. A
//! cell of tests is a list, parted by commas, of `path/of/file.rs#name_of_the_test`.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::finding::{Finding, Rule};
use crate::tidy::markdown;
use crate::tidy::project::Project;

const TABLE: &str = "tests/TABLE.md";

/// A row of the table, and the tests it names as (path, name).
struct Row<'t> {
    line: usize,
    tests: Vec<(&'t str, &'t str)>,
}

pub(crate) fn check(project: &Project) -> Vec<Finding> {
    let Some(text) = project.files.get(TABLE) else {
        let right = "write a table `| case | tests |` and a table `| row | tests |`";
        return vec![Finding::file(TABLE, Rule::Table, "the table of cases is missing", right)];
    };
    let mut findings = Vec::new();
    let mut rows: BTreeMap<String, Row<'_>> = BTreeMap::new();
    let mut kinds = BTreeSet::new();
    for table in markdown::tables(text) {
        let kind = table.header.first().copied().filter(|kind| matches!(*kind, "case" | "row"));
        let (Some(kind), Some(column)) = (kind, table.column("tests")) else { continue };
        kinds.insert(kind);
        for (line, cells) in table.rows {
            let id = cells.first().map_or("", |cell| *cell);
            let cell = cells.get(column).map_or("", |cell| *cell);
            let tests = tests(project, line, cell, &mut findings);
            check_id(kind, id, line, &tests, &mut findings);
            if rows.insert(id.to_owned(), Row { line, tests }).is_some() {
                findings.push(Finding::at(
                    TABLE,
                    line,
                    Rule::Table,
                    format!("`{id}` has two rows"),
                    "make them one",
                ));
            }
        }
    }
    for kind in ["case", "row"].iter().filter(|kind| !kinds.contains(*kind)) {
        let right = format!("write a table `| {kind} | tests |`");
        findings.push(Finding::file(TABLE, Rule::Table, format!("there is no table of each {kind}"), right));
    }
    findings.extend(unlisted(project, &rows));
    findings
}

/// The tests a cell names; those that do not exist are reported.
fn tests<'t>(
    project: &Project,
    line: usize,
    cell: &'t str,
    findings: &mut Vec<Finding>,
) -> Vec<(&'t str, &'t str)> {
    let mut all = Vec::new();
    for entry in cell.split(',').map(|entry| entry.trim().trim_matches('`')) {
        let Some((path, name)) = entry.split_once('#') else {
            let wrong = format!("`{entry}` names no test");
            findings.push(Finding::at(
                TABLE,
                line,
                Rule::Table,
                wrong,
                "write `path/of/file.rs#name_of_the_test`",
            ));
            continue;
        };
        all.push((path, name));
        let Some(source) = project.sources.get(path) else {
            let wrong = format!("there is no Rust file `{path}`");
            findings.push(Finding::at(TABLE, line, Rule::Table, wrong, "name the file the test is in"));
            continue;
        };
        let functions: Vec<_> = source.items.iter().filter(|item| item.fn_name() == Some(name)).collect();
        if !functions.iter().any(|function| function.is_test_fn()) {
            let what =
                if functions.is_empty() { "has no function" } else { "has, but not as a test, the function" };
            let wrong = format!("`{path}` {what} `{name}`");
            findings.push(Finding::at(TABLE, line, Rule::Table, wrong, "name a function with `#[test]`"));
        }
    }
    all
}

/// A case has at least one test that is named after it.
fn check_id(kind: &str, id: &str, line: usize, tests: &[(&str, &str)], findings: &mut Vec<Finding>) {
    if kind != "case" {
        return;
    }
    let Some(number) = id.strip_prefix("case ").and_then(|number| number.parse().ok()) else {
        findings.push(Finding::at(
            TABLE,
            line,
            Rule::Table,
            format!("`{id}` is no case"),
            "write `case NUMBER`",
        ));
        return;
    };
    if !tests.iter().any(|(_, name)| case_of(name) == Some(number)) {
        let wrong = format!("no test of case {number} is named after it");
        findings.push(Finding::at(TABLE, line, Rule::Table, wrong, format!("name one `case_{number}_..`")));
    }
}

/// Tests named after a case that are missing in its row.
fn unlisted(project: &Project, rows: &BTreeMap<String, Row<'_>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in &project.sources {
        for item in source.items.iter().filter(|item| item.is_test_fn()) {
            let Some((name, number)) = item.fn_name().and_then(|name| Some((name, case_of(name)?))) else {
                continue;
            };
            let row = rows.get(&format!("case {number}"));
            if !row.is_some_and(|row| row.tests.contains(&(path, name))) {
                let place = row.map_or_else(|| TABLE.to_owned(), |row| format!("{TABLE}:{}", row.line));
                let right = format!("add `{path}#{name}` to `case {number}` in {place}");
                let wrong = format!("`{name}` is not in the table of cases");
                findings.push(Finding::at(path, item.first + 1, Rule::Table, wrong, right));
            }
        }
    }
    findings
}

/// The number in `case_12_late_store`.
fn case_of(name: &str) -> Option<u32> {
    name.strip_prefix("case_")?.split('_').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TESTS: &str =
        "#[test]\nfn case_3_overtaken() {}\nfn helper() {}\n#[test]\nfn plan_round_trips() {}\n";

    fn said(table: &str) -> Vec<String> {
        let project = Project::planted(&[(TABLE, table), ("crates/core/src/seq.rs", TESTS)]);
        check(&project).iter().map(ToString::to_string).collect()
    }

    fn with_rows(case: &str, row: &str) -> Vec<String> {
        said(&format!(
            "| case | tests |\n|---|---|\n{case}\n\n| row | what | tests |\n|---|---|---|\n{row}\n"
        ))
    }

    const CASE: &str = "| case 3 | `crates/core/src/seq.rs#case_3_overtaken` |";
    const ROW: &str =
        "| W3 | plans | crates/core/src/seq.rs#plan_round_trips, crates/core/src/seq.rs#case_3_overtaken |";

    #[test]
    fn a_right_table_passes() {
        assert_eq!(with_rows(CASE, ROW), Vec::<String>::new());
    }

    #[test]
    fn tests_that_do_not_exist_are_found() {
        let one = |row: &str| {
            let found = with_rows(CASE, row);
            assert_eq!(found.len(), 1, "{found:?}");
            found.into_iter().next().unwrap()
        };
        let place = "tests/TABLE.md:7: table: ";
        let gone = one("| W3 | x | crates/core/src/seq.rs#gone |");
        assert_eq!(
            gone,
            format!("{place}`crates/core/src/seq.rs` has no function `gone`; name a function with `#[test]`")
        );
        assert!(
            one("| W3 | x | crates/core/src/seq.rs#helper |")
                .contains("but not as a test, the function `helper`")
        );
        assert!(one("| W3 | x | crates/gone.rs#a |").contains("there is no Rust file `crates/gone.rs`"));
        assert!(one("| W3 | x | |").contains("`` names no test"));
    }

    #[test]
    fn cases_have_tests_of_their_name_and_the_tests_are_listed() {
        let found = with_rows("| case 4 | crates/core/src/seq.rs#plan_round_trips |", ROW);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("no test of case 4 is named after it; name one `case_4_..`"), "{found:?}");
        assert!(
            found[1].starts_with("crates/core/src/seq.rs:1: table: `case_3_overtaken` is not in"),
            "{found:?}"
        );
    }

    #[test]
    fn doubled_and_misnamed_rows_are_found() {
        let found =
            with_rows(&format!("{CASE}\n{CASE}\n| W3 | crates/core/src/seq.rs#plan_round_trips |"), ROW);
        assert!(found.iter().any(|finding| finding.contains("`case 3` has two rows")), "{found:?}");
        assert!(found.iter().any(|finding| finding.contains("`W3` is no case")), "{found:?}");
    }

    #[test]
    fn a_missing_table_is_found() {
        assert_eq!(check(&Project::default()).len(), 1);
        assert!(said(&format!("| case | tests |\n|---|---|\n{CASE}\n"))[0].contains("no table of each row"));
    }
}
