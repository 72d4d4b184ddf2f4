//! The documents that a stranger looks for, the commands they start with, the guide's chapters, and the job that runs the gates.

use crate::tidy::finding::{Finding, Rule};
use crate::tidy::markdown;
use crate::tidy::project::{Project, has_extension};

const FILES: &[&str] =
    &["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Where a chapter of the guide has to be named: its index, and the tests that run its programs.
const CHAPTERS: &[&str] = &["guide/README.md", "tests/src/lib.rs"];

/// What a program that needs a GPU says, which is all that excuses it from being run.
const NEEDS_GPU: &[&str] = &["cuda", "Cuda", "hip", "Hip"];

/// What a block may be besides a program that is run: `rust` with a system that it is not for, and what is no program.
const BLOCKS: &[&str] = &["rust", "rust,ignore-apple,ignore-windows", "console", "text", "toml"];

/// What must stand in which file, by which rule.
const CONTENTS: &[(&str, Rule, &str)] = &[
    ("README.md", Rule::Docs, "cargo run --release --example decode_loop"),
    ("README.md", Rule::Docs, "cargo test --workspace"),
    (".ci/run", Rule::Ci, "cargo test --workspace"),
    (".ci/run", Rule::Ci, "cargo xtask ci"),
];

pub(crate) fn check(project: &Project) -> Vec<Finding> {
    let absent = FILES.iter().filter(|path| !project.files.contains_key(**path));
    let mut findings: Vec<Finding> =
        absent.map(|path| Finding::file(path, Rule::Docs, "the file is missing", "write it")).collect();
    for (path, rule, what) in CONTENTS {
        let says = project
            .files
            .get(*path)
            .is_some_and(|text| text.lines().any(|line| line.contains(what) && !is_remark(path, line)));
        if !says {
            findings.push(Finding::file(
                path,
                *rule,
                format!("`{what}` is missing"),
                "it is what people start with: add it",
            ));
        }
    }
    for chapter in project.files.keys().filter_map(|path| path.strip_prefix("guide/")) {
        if !has_extension(chapter, "md") || chapter == "README.md" {
            continue;
        }
        for place in CHAPTERS {
            if !project.files.get(*place).is_some_and(|text| text.contains(chapter)) {
                findings.push(Finding::file(
                    place,
                    Rule::Docs,
                    format!("the chapter `guide/{chapter}` is not named"),
                    "add a line for it: readers find it there, and its programs are run from there",
                ));
            }
        }
    }
    findings.extend(
        project
            .files
            .iter()
            .filter(|(path, _)| is_read_first(path))
            .flat_map(|(path, text)| unrun(path, text)),
    );
    findings
}

/// The README and the guide, whose programs are tests.
fn is_read_first(path: &str) -> bool {
    path == "README.md" || (path.starts_with("guide/") && has_extension(path, "md"))
}

/// The blocks that a reader takes for programs and that nobody runs.
fn unrun<'t>(path: &'t str, text: &'t str) -> impl Iterator<Item = Finding> + use<'t> {
    markdown::blocks(text).filter_map(move |block| {
        let (wrong, right) = if block.kind == "rust,no_run" {
            if NEEDS_GPU.iter().any(|word| block.text.contains(word)) {
                return None;
            }
            ("a program that is not run, and needs no GPU", "make it run on the simulated device")
        } else if BLOCKS.contains(&block.kind) {
            return None;
        } else {
            (
                "a block that may be a program and is not run",
                "say `rust`, or what it is: `console`, `text`, `toml`",
            )
        };
        Some(Finding::at(path, block.line, Rule::Docs, wrong, right))
    })
}

/// A comment of the script, which runs nothing.
fn is_remark(path: &str, line: &str) -> bool {
    path == ".ci/run" && line.trim_start().starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_documents_and_commands_are_found() {
        let readme = "cargo run --release --example decode_loop\n";
        let project = Project::planted(&[
            ("README.md", readme),
            (".ci/run", "# cargo test --workspace\ncargo xtask ci\n"),
        ]);
        let said: Vec<String> =
            check(&project).iter().map(|finding| format!("{}: {}", finding.path, finding.wrong)).collect();
        assert_eq!(
            said,
            [
                "ARCHITECTURE.md: the file is missing",
                "CHANGELOG.md: the file is missing",
                "CONTRIBUTING.md: the file is missing",
                "LICENSE-APACHE: the file is missing",
                "LICENSE-MIT: the file is missing",
                "README.md: `cargo test --workspace` is missing",
                ".ci/run: `cargo test --workspace` is missing",
            ]
        );
    }

    #[test]
    fn programs_of_the_guide_that_nobody_runs_are_found() {
        let guide = "```rust\nf();\n```\n```rust,no_run\nCuda::load();\n```\n```rust,no_run\nf();\n```\n```text\nx\n```\n\
                     ```rust,ignore\nf();\n```\n```\nf();\n```\n";
        let project = Project::planted(&[("guide/a.md", guide), ("tests/TABLE.md", "```\nx\n```\n")]);
        let found = check(&project);
        let lines = found
            .iter()
            .filter(|finding| finding.wrong.contains("not run,") || finding.wrong.contains("is not run"));
        let lines: Vec<_> = lines.map(|finding| (finding.path.as_str(), finding.line)).collect();
        assert_eq!(lines, [("guide/a.md", Some(7)), ("guide/a.md", Some(13)), ("guide/a.md", Some(16))]);
    }

    #[test]
    fn chapters_that_are_in_no_index_or_are_not_run_are_found() {
        let project = Project::planted(&[
            ("guide/README.md", "[a](a.md)\n"),
            ("guide/a.md", ""),
            ("guide/b.md", ""),
            ("guide/c.svg", ""),
            ("tests/src/lib.rs", "B: \"guide/b.md\",\n"),
        ]);
        let said = check(&project);
        let said = said.iter().filter(|finding| finding.wrong.contains("chapter"));
        let said: Vec<String> = said.map(|finding| format!("{}: {}", finding.path, finding.wrong)).collect();
        assert_eq!(
            said,
            [
                "tests/src/lib.rs: the chapter `guide/a.md` is not named",
                "guide/README.md: the chapter `guide/b.md` is not named",
            ]
        );
    }
}
