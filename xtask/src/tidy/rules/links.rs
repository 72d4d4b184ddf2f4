//! Links of documents within the project: that what they name is there, and that it has the heading they lead to.

use std::collections::BTreeSet;

use crate::tidy::finding::{Finding, Rule};
use crate::tidy::markdown::prose_lines;
use crate::tidy::project::{Project, has_extension};

pub(crate) fn check(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in project.files.iter().filter(|(path, _)| has_extension(path, "md")) {
        for (number, line) in prose_lines(text) {
            for target in targets(line) {
                if let Some((wrong, right)) = fault(project, path, target) {
                    findings.push(Finding::at(path, number, Rule::Link, wrong, right));
                }
            }
        }
    }
    findings
}

/// What the line's links and pictures name within the project. A path of Rust's is for rustdoc, which checks it.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let within = |target: &&str| !["://", "mailto:", "::"].iter().any(|mark| target.contains(mark));
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(within)
}

/// What is wrong with a target, and what would be right.
fn fault(project: &Project, from: &str, target: &str) -> Option<(String, &'static str)> {
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let Some(path) = resolved(from, file) else {
        return Some((format!("`{target}` leads out of the project"), "name a file that a reader has"));
    };
    let Some(text) = project.files.get(&path) else {
        let folder = format!("{path}/");
        let is_folder = path.is_empty() || project.files.keys().any(|file| file.starts_with(&folder));
        let wrong = || (format!("`{target}` is not there"), "name a file or a folder of the project");
        return (!is_folder || anchor.is_some()).then(wrong);
    };
    let missing = anchor.is_some_and(|anchor| has_extension(&path, "md") && !anchors(text).contains(anchor));
    missing.then(|| (format!("`{path}` has no heading for `{target}`"), "name one of its headings"))
}

/// The path of what a document names, from the project's root.
fn resolved(from: &str, file: &str) -> Option<String> {
    if file.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// What leads to a document's headings, as forges make it of them: letters, digits, `-` and `_`; the second of a name gets `-1`.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose_lines(text).filter(|(_, line)| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let again = (1..).map(|number| format!("{name}-{number}"));
        if let Some(free) = core::iter::once(name.clone()).chain(again).find(|name| !found.contains(name)) {
            found.insert(free);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<String> {
        let project = Project::planted(&[
            ("guide/a.md", text),
            ("guide/b.md", "# One\n## It's `so` good\n```sh\n# No heading\n```\n## One\n"),
            ("tests/src/lib.rs", ""),
        ]);
        check(&project)
            .iter()
            .map(|finding| format!("{}: {}", finding.line.unwrap_or(0), finding.wrong))
            .collect()
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        assert_eq!(
            said("[a](c.md) [b](b.md)\n\n[c](../tests/src) ![d](../tests/x.svg)\n[e](../../e.md)\n"),
            [
                "1: `c.md` is not there",
                "3: `../tests/x.svg` is not there",
                "4: `../../e.md` leads out of the project"
            ]
        );
    }

    #[test]
    fn anchors_are_those_of_headings() {
        assert_eq!(
            said("[a](b.md#one) [b](b.md#one-1) [c](b.md#its-so-good)\n[d](b.md#no-heading)\n[e](#none)\n"),
            [
                "2: `guide/b.md` has no heading for `b.md#no-heading`",
                "3: `guide/a.md` has no heading for `#none`"
            ]
        );
    }

    #[test]
    fn what_is_elsewhere_or_code_is_left_alone() {
        assert!(
            said("[a](https://x.invalid/y.md) [b](mailto:a@b.invalid) [c](crate::C)\n```\n[c](c.md)\n```\n")
                .is_empty()
        );
    }
}
