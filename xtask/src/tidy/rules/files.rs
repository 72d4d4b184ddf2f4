//! Every Rust file: says at its top what lives in it, and stays short enough to be read at a sitting.

use crate::tidy::finding::{Finding, Level, Rule};
use crate::tidy::project::{Project, Source};

/// More lines than this are worth a warning.
const LINES_WARNED: usize = 600;

/// More lines than this are an error.
const LINES_MAX: usize = 700;

pub(crate) fn check(project: &Project) -> Vec<Finding> {
    let each = project.sources.iter();
    each.flat_map(|(path, source)| {
        [header(path, source), size(path, source.lines.len())].into_iter().flatten()
    })
    .collect()
}

fn header(path: &str, source: &Source) -> Option<Finding> {
    let first = source.lines.first().is_some_and(|line| line.comment.starts_with("//!"));
    let right = "begin with `//!` and say what lives here and why";
    (!first).then(|| Finding::file(path, Rule::Header, "the file does not begin with its docs", right))
}

fn size(path: &str, lines: usize) -> Option<Finding> {
    if lines <= LINES_WARNED {
        return None;
    }
    let level = if lines <= LINES_MAX { Level::Warning } else { Level::Error };
    let wrong = format!("the file has {lines} lines");
    let right = format!("keep one concept a file, below {LINES_WARNED} lines");
    Some(Finding { level, ..Finding::file(path, Rule::Size, wrong, right) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_begin_with_their_docs() {
        let project = Project::planted(&[
            ("a.rs", "\n//! x\n"),
            ("b.rs", "use c;\n"),
            ("c.rs", "//! x\n"),
            ("d.rs", ""),
        ]);
        let found: Vec<String> = check(&project).into_iter().map(|finding| finding.path).collect();
        assert_eq!(found, ["a.rs", "b.rs", "d.rs"]);
    }

    #[test]
    fn files_are_short() {
        let level = |lines| size("a.rs", lines).map(|finding| finding.level);
        assert_eq!(
            [600, 601, 700, 701].map(level),
            [None, Some(Level::Warning), Some(Level::Warning), Some(Level::Error)]
        );
    }
}
