//! `cargo xtask tidy`: the invariants of ARCHITECTURE.md that a program can check.
//!
//! The rules work on a [`Project`], find all they can and print it at once as
//! `path:line: rule: what is wrong; what would be right`. An exception is a comment `// tidy: allow(rule) reason`.

mod allow;
mod finding;
mod items;
mod markdown;
mod project;
mod rules;
mod source;

use anyhow::{Result, ensure};

use self::finding::{Finding, Level};
use self::project::Project;

/// Checks the workspace.
///
/// # Errors
/// Something is not as it should be; it was printed.
pub(crate) fn run() -> Result<()> {
    let findings = check(&Project::load()?);
    for finding in &findings {
        println!("{finding}");
    }
    let errors = findings.iter().filter(|finding| finding.level == Level::Error).count();
    ensure!(errors == 0, "tidy found {errors} errors; to repeat: cargo xtask tidy");
    Ok(())
}

/// All findings that are not excepted, in the order of their places.
fn check(project: &Project) -> Vec<Finding> {
    let found = rules::ALL.iter().flat_map(|rule| rule(project)).collect();
    let mut left = allow::apply(project, found);
    left.sort_by(|a, b| (&a.path, a.line, a.rule).cmp(&(&b.path, b.line, b.rule)));
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_tidy() {
        let result = run();
        assert!(result.is_ok(), "what is printed above");
    }

    #[test]
    fn planted_violations_of_several_rules_are_listed_at_once() {
        let host = "use std::env;\nfn f() { unsafe { g() } }\n// tidy: allow(driver-name) a test of this\nfn cuda() {}\n";
        let project = Project::planted(&[("crates/hosts/std/src/a.rs", host)]);
        let said: Vec<String> = check(&project)
            .iter()
            .filter(|finding| finding.path.ends_with("a.rs"))
            .map(|finding| format!("{}:{}", finding.rule, finding.line.unwrap_or(0)))
            .collect();
        assert_eq!(said, ["header:0", "env:1", "unsafe-comment:2", "unsafe-place:2"]);
    }
}
