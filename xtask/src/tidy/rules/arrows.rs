//! The layers: which of our packages may depend on which.
//!
//! `ARCHITECTURE.md` has the table, and this rule reads it there. A row is `folder -> folder, folder` or
//! `folder -> nothing`; a folder may end in `/*`, for all packages directly below; where several rows fit a package, the
//! one without `*` counts. Normal and build dependencies must be in the table; a package's tests may use any other.

use super::ARCHITECTURE;
use crate::tidy::finding::{Finding, Rule};
use crate::tidy::markdown;
use crate::tidy::project::Project;
use crate::workspace::{Dependency, Package};

/// What a row has on its right when nothing may be depended on.
const NOTHING: &str = "nothing";

struct Row<'t> {
    line: usize,
    from: &'t str,
    to: Vec<&'t str>,
}

pub(crate) fn check(project: &Project) -> Vec<Finding> {
    let text = project.files.get(ARCHITECTURE).map_or("", String::as_str);
    let Some(block) = markdown::marked_block(text, "arrows") else {
        let right = "head a fenced block of rows `folder -> folder, folder` with `<!-- tidy: arrows -->`";
        return vec![Finding::file(ARCHITECTURE, Rule::Arrow, "the table of arrows is missing", right)];
    };
    let mut findings = Vec::new();
    let mut rows = Vec::new();
    for (line, text) in block {
        match parse(line, text) {
            Some(row) => rows.push(row),
            None => findings.push(Finding::at(
                ARCHITECTURE,
                line,
                Rule::Arrow,
                format!("`{text}` is no arrow"),
                "write `folder -> folder, folder` or `folder -> nothing`",
            )),
        }
    }
    findings.extend(rows.iter().flat_map(|row| stale(row, &project.packages)));
    for package in &project.packages {
        check_package(project, package, &rows, &mut findings);
    }
    findings
}

fn parse(line: usize, text: &str) -> Option<Row<'_>> {
    let (from, to) = text.split_once("->")?;
    let to: Vec<&str> = to.split(',').map(str::trim).collect();
    let from = from.trim();
    if from.is_empty() || from.contains(' ') || to.iter().any(|to| to.is_empty() || to.contains(' ')) {
        return None;
    }
    Some(Row { line, from, to: to.into_iter().filter(|to| *to != NOTHING).collect() })
}

/// Folders in the row that hold no package: mistyped, or left over.
fn stale(row: &Row<'_>, packages: &[Package]) -> Vec<Finding> {
    let named = [row.from].into_iter().chain(row.to.iter().copied());
    let unknown = named.filter(|pattern| !packages.iter().any(|package| fits(pattern, &package.folder())));
    let finding = |pattern| {
        let wrong = format!("no package is in `{pattern}`");
        Finding::at(ARCHITECTURE, row.line, Rule::Arrow, wrong, "name folders of packages that exist")
    };
    unknown.map(finding).collect()
}

fn check_package(project: &Project, package: &Package, rows: &[Row<'_>], findings: &mut Vec<Finding>) {
    let folder = package.folder();
    let manifest = format!("{folder}/Cargo.toml");
    let fitting = rows.iter().filter(|row| fits(row.from, &folder));
    let Some(row) = fitting.max_by_key(|row| !row.from.contains('*')) else {
        let right = format!("add a row `{folder} -> ..` to the table in {ARCHITECTURE}");
        findings.push(Finding::file(&manifest, Rule::Arrow, format!("no arrow begins at `{folder}`"), right));
        return;
    };
    for dependency in
        package.dependencies.iter().filter(|dependency| dependency.kind.as_deref() != Some("dev"))
    {
        let Some(to) = dependency.folder() else { continue };
        if !row.to.iter().any(|pattern| fits(pattern, &to)) {
            let line = line_of(project, &manifest, dependency);
            let wrong = format!("`{folder}` depends on `{to}`, against the arrows");
            let right = format!("{ARCHITECTURE}:{} allows {}", row.line, allowed(row));
            findings.push(Finding::at(&manifest, line, Rule::Arrow, wrong, right));
        }
    }
}

fn allowed(row: &Row<'_>) -> String {
    if row.to.is_empty() { NOTHING.to_owned() } else { row.to.join(", ") }
}

/// The line of the manifest in which the dependency is, from 1.
fn line_of(project: &Project, manifest: &str, dependency: &Dependency) -> usize {
    let text = project.files.get(manifest).map_or("", String::as_str);
    let starts = |line: &str| {
        line.strip_prefix(dependency.name.as_str()).is_some_and(|rest| rest.starts_with([' ', '.', '=']))
    };
    text.lines().position(starts).map_or(1, |index| index + 1)
}

/// Whether `folder` is what the pattern names.
fn fits(pattern: &str, folder: &str) -> bool {
    match pattern.strip_suffix("/*") {
        Some(parent) => folder.rsplit_once('/').is_some_and(|(its, _)| its == parent),
        None => pattern == folder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    fn package(folder: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependency = |(to, kind): &(&str, Option<&str>)| Dependency {
            name: format!("wakeline-{}", to.rsplit('/').next().unwrap()),
            kind: kind.map(str::to_owned),
            path: Some(workspace::root().join(to)),
        };
        Package {
            name: folder.to_owned(),
            manifest_path: workspace::root().join(folder).join("Cargo.toml"),
            dependencies: dependencies.iter().map(dependency).collect(),
            targets: Vec::new(),
        }
    }

    fn said(arrows: &str, packages: Vec<Package>) -> Vec<String> {
        let architecture = format!("<!-- tidy: arrows -->\n```text\n{arrows}```\n");
        let manifest = "[dependencies]\nwakeline-sim.workspace = true\n";
        let planted = [(ARCHITECTURE, architecture.as_str()), ("crates/hosts/std/Cargo.toml", manifest)];
        let project = Project { packages, ..Project::planted(&planted) };
        check(&project).iter().map(ToString::to_string).collect()
    }

    const ARROWS: &str =
        "crates/core -> nothing\ncrates/backends/* -> crates/core\ncrates/hosts/* -> crates/core\n";

    fn packages(host: &[(&str, Option<&str>)]) -> Vec<Package> {
        vec![
            package("crates/core", &[("crates/backends/sim", Some("dev"))]),
            package("crates/backends/sim", &[("crates/core", None)]),
            package("crates/hosts/std", host),
        ]
    }

    #[test]
    fn allowed_arrows_pass_and_tests_may_use_anything() {
        assert!(
            said(ARROWS, packages(&[("crates/core", None), ("crates/backends/sim", Some("dev"))])).is_empty()
        );
    }

    #[test]
    fn an_arrow_against_the_layers_is_found_where_it_is_written() {
        let expected = "crates/hosts/std/Cargo.toml:2: arrow: `crates/hosts/std` depends on `crates/backends/sim`, \
                        against the arrows; ARCHITECTURE.md:5 allows crates/core";
        assert_eq!(said(ARROWS, packages(&[("crates/backends/sim", None)])), [expected]);
        assert_eq!(said(ARROWS, packages(&[("crates/backends/sim", Some("build"))])), [expected]);
    }

    #[test]
    fn the_exact_row_counts_before_the_pattern() {
        let arrows = format!("crates/hosts/std -> crates/backends/sim\n{ARROWS}");
        assert!(said(&arrows, packages(&[("crates/backends/sim", None)])).is_empty());
    }

    #[test]
    fn the_table_and_the_workspace_cannot_drift_apart() {
        let mut all = packages(&[]);
        all.push(package("crates/new", &[]));
        let found = said(&format!("{ARROWS}crates/gone -> crates/core\nnonsense\n"), all);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("ARCHITECTURE.md:7: arrow: `nonsense` is no arrow"), "{found:?}");
        assert!(
            found[1].starts_with("ARCHITECTURE.md:6: arrow: no package is in `crates/gone`"),
            "{found:?}"
        );
        assert!(found[2].starts_with("crates/new/Cargo.toml:1: arrow: no arrow begins at"), "{found:?}");
    }

    #[test]
    fn a_missing_table_is_found() {
        assert_eq!(check(&Project::default()).len(), 1);
    }
}
