//! Error codes are append-only: what a number once meant, it means for good. `tests/error_codes.txt` remembers them, a
//! line a code: `0x0001 InvalidPlan`.

use crate::tidy::finding::{Finding, Rule};
use crate::tidy::project::Project;

const SOURCE: &str = "crates/core/src/error.rs";
const LIST: &str = "tests/error_codes.txt";

/// A code, where it is written and what the line is.
#[derive(Clone, Copy)]
struct Code<'t> {
    line: usize,
    number: u32,
    name: &'t str,
}

pub(crate) fn check(project: &Project) -> Vec<Finding> {
    let Some(source) = project.sources.get(SOURCE) else {
        return vec![Finding::file(
            SOURCE,
            Rule::ErrorCodes,
            "the error codes are missing",
            "define them there",
        )];
    };
    let Some(list) = project.files.get(LIST) else {
        let right = "list every code in a line `0x0001 Name`";
        return vec![Finding::file(LIST, Rule::ErrorCodes, "the list of error codes is missing", right)];
    };
    let defined: Vec<Code<'_>> =
        source.shipped_lines().filter_map(|(line, text)| parse(line, &text.code)).collect();
    let listed: Vec<Code<'_>> =
        list.lines().enumerate().filter_map(|(index, text)| parse(index + 1, text)).collect();

    let mut findings = Vec::new();
    for code in &listed {
        let shown = show(code);
        match defined.iter().find(|other| other.number == code.number) {
            Some(other) if other.name == code.name => {}
            Some(other) => findings.push(Finding::at(
                SOURCE,
                other.line,
                Rule::ErrorCodes,
                format!("`{}` was `{shown}`", show(other)),
                "a number keeps its meaning: give the new code the next free one",
            )),
            None => findings.push(Finding::file(
                SOURCE,
                Rule::ErrorCodes,
                format!("`{shown}` is gone"),
                "a code stays, even when nothing makes it any more",
            )),
        }
    }
    for code in defined.iter().filter(|code| !listed.iter().any(|other| other.number == code.number)) {
        let right = format!("add that line to {LIST}");
        let wrong = format!("`{}` is not in the list", show(code));
        findings.push(Finding::at(SOURCE, code.line, Rule::ErrorCodes, wrong, right));
    }
    for (path, codes) in [(SOURCE, &defined), (LIST, &listed)] {
        for pair in codes.windows(2).filter(|pair| pair[0].number >= pair[1].number) {
            let wrong = format!("`{}` does not come after `{}`", show(&pair[1]), show(&pair[0]));
            findings.push(Finding::at(
                path,
                pair[1].line,
                Rule::ErrorCodes,
                wrong,
                "order them by number, each once",
            ));
        }
    }
    findings
}

/// `0x0001 InvalidPlan ..`
fn parse(line: usize, text: &str) -> Option<Code<'_>> {
    let (number, rest) = text.trim_start().strip_prefix("0x")?.split_once(' ')?;
    let name = rest.split_whitespace().next()?;
    Some(Code { line, number: u32::from_str_radix(number, 16).ok()?, name })
}

fn show(code: &Code<'_>) -> String {
    format!("{:#06x} {}", code.number, code.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(source: &str, list: &str) -> Vec<String> {
        let project = Project::planted(&[(SOURCE, source), (LIST, list)]);
        check(&project).iter().map(ToString::to_string).collect()
    }

    const SOURCES: &str = "codes! {\n    /// A.\n    0x0001 InvalidPlan \"a\",\n    0x000a Other \"b\",\n}\n";

    #[test]
    fn codes_and_list_agree() {
        assert!(said(SOURCES, "0x0001 InvalidPlan\n0x000A Other\n").is_empty());
    }

    #[test]
    fn a_changed_or_removed_code_is_found() {
        let found = said(SOURCES, "0x0001 Plan\n0x0002 Gone\n0x000a Other\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with(
                "crates/core/src/error.rs:3: error-codes: `0x0001 InvalidPlan` was `0x0001 Plan`"
            )
        );
        assert!(found[1].contains("`0x0002 Gone` is gone"), "{found:?}");
    }

    #[test]
    fn a_new_code_asks_to_be_listed() {
        let found = said(SOURCES, "0x0001 InvalidPlan\n");
        assert_eq!(
            found,
            [
                "crates/core/src/error.rs:4: error-codes: `0x000a Other` is not in the list; add that line to tests/error_codes.txt"
            ]
        );
    }

    #[test]
    fn numbers_rise() {
        let found = said("0x0002 A \"a\",\n0x0001 B \"b\",\n", "0x0001 B\n0x0002 A\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(check(&Project::default()).len(), 1);
    }
}
