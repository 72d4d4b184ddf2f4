//! Exceptions: a comment `tidy: allow(rule) reason` in the line of a finding or in the comment right above it. For a
//! finding about the whole file it may stand anywhere in it. It needs a reason, and it must be used.

use std::collections::BTreeSet;

use super::finding::{Finding, Rule};
use super::project::{Project, has_extension};

const START: &str = "tidy: allow(";

/// One exception.
struct Allow<'p> {
    path: &'p str,
    /// From 1.
    line: usize,
    /// The last line it covers: the first after it that is more than a comment.
    until: usize,
    rule: Rule,
}

/// Takes the findings that are excepted out, and adds what is wrong with the exceptions themselves.
pub(crate) fn apply(project: &Project, findings: Vec<Finding>) -> Vec<Finding> {
    let mut left = Vec::new();
    let allows = collect(project, &mut left);
    let mut used = BTreeSet::new();
    for finding in findings {
        let covers = |allow: &Allow<'_>| {
            allow.path == finding.path
                && allow.rule == finding.rule
                && finding.line.is_none_or(|line| (allow.line..=allow.until).contains(&line))
        };
        match allows.iter().position(covers) {
            Some(index) => _ = used.insert(index),
            None => left.push(finding),
        }
    }
    for (_, allow) in allows.iter().enumerate().filter(|(index, _)| !used.contains(index)) {
        let wrong = format!("nothing here is against `{}`", allow.rule);
        left.push(Finding::at(allow.path, allow.line, Rule::Allow, wrong, "remove the exception"));
    }
    left
}

fn collect<'p>(project: &'p Project, findings: &mut Vec<Finding>) -> Vec<Allow<'p>> {
    let mut all = Vec::new();
    for (path, text) in &project.files {
        let source = project.sources.get(path);
        // In Rust only comments count, and only those that are not docs; elsewhere any line.
        let comments: Vec<&str> = match source {
            Some(source) => source.lines.iter().map(|line| line.comment.as_str()).collect(),
            None if has_extension(path, "toml") || has_extension(path, "sh") => text.lines().collect(),
            None => continue,
        };
        for (index, comment) in comments.iter().enumerate() {
            let is_doc = source.is_some() && (comment.starts_with("///") || comment.starts_with("//!"));
            let Some(at) = comment.find(START).filter(|_| !is_doc) else { continue };
            let (name, reason) = comment[at + START.len()..].split_once(')').unwrap_or(("", ""));
            let Some(rule) = Rule::named(name) else {
                let wrong = format!("there is no rule `{name}`");
                findings.push(Finding::at(
                    path,
                    index + 1,
                    Rule::Allow,
                    wrong,
                    "name the rule as its finding does",
                ));
                continue;
            };
            if reason.trim().is_empty() {
                let right = format!("write `tidy: allow({name}) why`");
                findings.push(Finding::at(
                    path,
                    index + 1,
                    Rule::Allow,
                    "an exception without a reason",
                    right,
                ));
            }
            let is_comment = |line: usize| match source {
                Some(source) => {
                    source.lines.get(line).is_some_and(|line| line.is_comment_only() || line.is_attribute())
                }
                None => comments.get(line).is_some_and(|line| line.trim_start().starts_with('#')),
            };
            let until = if is_comment(index) {
                (index..comments.len()).find(|line| !is_comment(*line)).unwrap_or(index)
            } else {
                index
            };
            all.push(Allow { path, line: index + 1, until: until + 1, rule });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str, findings: &[(Rule, Option<usize>)]) -> Vec<String> {
        let project = Project::planted(&[("a.rs", text)]);
        let planted = findings
            .iter()
            .map(|(rule, line)| Finding { line: *line, ..Finding::file("a.rs", *rule, "w", "r") });
        apply(&project, planted.collect())
            .iter()
            .map(|f| format!("{}:{}", f.rule, f.line.unwrap_or(0)))
            .collect()
    }

    #[test]
    fn exceptions_hold_in_their_line_and_below_their_comment() {
        let text = "// tidy: allow(static) the library\n// is one a process\n#[x]\nstatic A;\nstatic B; // tidy: allow(static) y\nstatic C;\n";
        let all: Vec<_> = [4, 5, 6].map(|line| (Rule::Static, Some(line))).to_vec();
        assert_eq!(said(text, &all), ["static:6"]);
        assert_eq!(said("// tidy: allow(size) a table\n", &[(Rule::Size, None)]), Vec::<String>::new());
    }

    #[test]
    fn exceptions_are_of_one_rule() {
        let text = "static A; // tidy: allow(env) x\n";
        assert_eq!(said(text, &[(Rule::Static, Some(1))]), ["static:1", "allow:1"]);
    }

    #[test]
    fn exceptions_need_a_reason_a_rule_and_a_use() {
        assert_eq!(said("static A; // tidy: allow(static)\n", &[(Rule::Static, Some(1))]), ["allow:1"]);
        assert_eq!(said("// tidy: allow(nonsense) x\n", &[]), ["allow:1"]);
        assert_eq!(said("// tidy: allow(static) x\n", &[]), ["allow:1"]);
        assert!(said("/// Write `tidy: allow(static) x`.\n", &[]).is_empty());
    }
}
