//! Words that do not belong into what is published: notes to oneself, paths of one machine, names of documents that are
//! not there; and tests that are switched off without a reason.

use std::collections::BTreeSet;

use crate::tidy::finding::{Finding, Rule};
use crate::tidy::project::{Project, Source, has_extension, is_record};
use crate::tidy::source::{has_word, is_word};

/// This rule's own folder names all of them.
const EXEMPT: &str = "xtask/src/tidy/";

const MARKERS: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];
const MARKER_MACROS: &[&str] = &["todo!", "unimplemented!", "dbg!"];

/// What begins a path of one machine, in any text; and what does in a string literal only, since docs may show it.
const MACHINE_PATHS: &[&str] = &["/home/", "/root/"];
const MACHINE_PATHS_IN_STRINGS: &[&str] = &["/tmp/"];

pub(crate) fn check(project: &Project) -> Vec<Finding> {
    let names: BTreeSet<&str> = project.files.keys().filter_map(|path| path.rsplit('/').next()).collect();
    let mut findings = Vec::new();
    for (path, text) in project.files.iter().filter(|(path, _)| !path.starts_with(EXEMPT)) {
        match project.sources.get(path) {
            Some(source) => rust(path, source, &names, &mut findings),
            // What a program wrote: the arguments that it was called with are all that somebody chose.
            None if is_record(path) => text.lines().enumerate().for_each(|(index, line)| {
                machine_path(path, index + 1, line, MACHINE_PATHS, &mut findings);
                machine_path(path, index + 1, line, MACHINE_PATHS_IN_STRINGS, &mut findings);
            }),
            None => text.lines().enumerate().for_each(|(index, line)| {
                prose(path, index + 1, line, &mut findings);
                if has_extension(path, "md") {
                    dangling(path, index + 1, line, &names, &mut findings);
                }
            }),
        }
    }
    findings
}

fn rust(path: &str, source: &Source, names: &BTreeSet<&str>, findings: &mut Vec<Finding>) {
    for (number, line) in source.numbered_lines() {
        prose(path, number, &line.comment, findings);
        dangling(path, number, &line.comment, names, findings);
        for text in &line.strings {
            prose(path, number, text, findings);
            machine_path(path, number, text, MACHINE_PATHS_IN_STRINGS, findings);
        }
        if let Some(what) = MARKER_MACROS.iter().find(|what| has_word(&line.code, what)) {
            findings.push(Finding::at(
                path,
                number,
                Rule::Marker,
                format!("`{what}`"),
                "finish it, or return an error",
            ));
        }
        let code: String = line.code.split_whitespace().collect();
        if code.contains("#[ignore]") || code.contains(",ignore)]") {
            let right = "write `#[ignore = \"why\"]`";
            findings.push(Finding::at(
                path,
                number,
                Rule::Ignore,
                "a test is switched off without a reason",
                right,
            ));
        }
    }
}

/// What is looked for in comments, strings, documents and scripts alike.
fn prose(path: &str, number: usize, text: &str, findings: &mut Vec<Finding>) {
    if let Some(what) = MARKERS.iter().find(|what| has_word(text, what)) {
        findings.push(Finding::at(
            path,
            number,
            Rule::Marker,
            format!("`{what}`"),
            "do it, or file an issue",
        ));
    }
    machine_path(path, number, text, MACHINE_PATHS, findings);
}

fn machine_path(path: &str, number: usize, text: &str, starts: &[&str], findings: &mut Vec<Finding>) {
    let absolute = |at: usize| !text[..at].ends_with(|c: char| is_word(c) || "./-~}*>)".contains(c));
    if let Some(start) = starts.iter().find(|start| text.match_indices(**start).any(|(at, _)| absolute(at))) {
        let right = "take the path as an argument, or make it relative";
        findings.push(Finding::at(path, number, Rule::MachinePath, format!("a path below `{start}`"), right));
    }
}

/// Names of Markdown files that are nowhere in the project.
fn dangling(path: &str, number: usize, text: &str, names: &BTreeSet<&str>, findings: &mut Vec<Finding>) {
    let tokens = text
        .split(|c: char| c.is_whitespace() || "`'\"()[]<>,;|".contains(c))
        .filter(|token| !token.contains("://"));
    for token in tokens {
        let file = token.split('#').next().unwrap_or("").trim_end_matches(['.', ':', '!', '?']);
        let name = file.rsplit('/').next().unwrap_or(file);
        let is_document = name
            .strip_suffix(".md")
            .is_some_and(|stem| !stem.is_empty() && stem.chars().all(|c| is_word(c) || c == '-'));
        if is_document && !names.contains(name) {
            let wrong = format!("`{file}` is not in the project");
            findings.push(Finding::at(
                path,
                number,
                Rule::Dangling,
                wrong,
                "name a document that a reader has",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &str, text: &str) -> Vec<String> {
        let project = Project::planted(&[("README.md", ""), (path, text)]);
        check(&project)
            .iter()
            .map(|finding| format!("{}:{}", finding.rule, finding.line.unwrap_or(0)))
            .collect()
    }

    #[test]
    fn notes_to_oneself_are_found() {
        assert_eq!(
            said("a.rs", "// TODO: x\nlet a = todo!();\ndbg!(x);\n"),
            ["marker:1", "marker:2", "marker:3"]
        );
        assert_eq!(said("a.md", "x\nFIXME\n"), ["marker:2"]);
        assert_eq!(said("a.toml", "# XXX\n"), ["marker:1"]);
        assert!(said("a.rs", "let todo = METODO; // todo list\n").is_empty());
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        assert_eq!(said("a.rs", "f(\"/tmp/x\");\n// see /root/x\n"), ["machine-path:1", "machine-path:2"]);
        assert_eq!(said("a.md", "run `/home/me/x`\n"), ["machine-path:1"]);
        assert_eq!(said(".ci/run.sh", "cd /home/me/x\n"), ["machine-path:1"]);
        assert!(
            said("a.rs", "// /tmp/report\nf(\"target/home/x\", \"https://x.invalid/home/y\");\n").is_empty()
        );
    }

    #[test]
    fn paths_of_one_machine_are_found_in_records() {
        let record =
            "{}\n{\"command\":[\"--out\",\"/root/out\"],\"note\":\"XXX\"}\n{\"driver\":\"/tmp/lib.so\"}\n";
        assert_eq!(said("benches/results/a.jsonl", record), ["machine-path:2", "machine-path:3"]);
        assert!(said("benches/results/a.jsonl", "{\"command\":[\"--out\",\"out/root/x\"]}\n").is_empty());
    }

    #[test]
    fn documents_that_are_not_there_are_found() {
        assert_eq!(said("a.rs", "//! As notes.md says.\n"), ["dangling:1"]);
        assert_eq!(said("a.md", "[x](docs/none.md#part)\n"), ["dangling:1"]);
        assert!(
            said("a.rs", "//! See README.md, https://x.invalid/y.md and *.md.\nf(\"none.md\");\n").is_empty()
        );
    }

    #[test]
    fn tests_are_not_switched_off_silently() {
        assert_eq!(said("a.rs", "#[ignore]\n#[cfg_attr(miri, ignore)]\n"), ["ignore:1", "ignore:2"]);
        assert!(said("a.rs", "#[ignore = \"needs a GPU\"]\n").is_empty());
    }
}
