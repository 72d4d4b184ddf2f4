//! What tidy says: the place, the rule, what is wrong there and what would be right.

use std::fmt;

/// The rules by their names, as findings and `tidy: allow(..)` comments give them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    Allow,
    Arrow,
    Ci,
    CoreDyn,
    CoreStd,
    Dangling,
    Docs,
    DriverName,
    Env,
    ErrorCodes,
    ForbidUnsafe,
    Header,
    Ignore,
    Link,
    MachinePath,
    Marker,
    NoStd,
    Size,
    Spawn,
    Static,
    Table,
    UnsafeComment,
    UnsafePlace,
}

impl Rule {
    const NAMES: &[(Self, &str)] = &[
        (Self::Allow, "allow"),
        (Self::Arrow, "arrow"),
        (Self::Ci, "ci"),
        (Self::CoreDyn, "core-dyn"),
        (Self::CoreStd, "core-std"),
        (Self::Dangling, "dangling"),
        (Self::Docs, "docs"),
        (Self::DriverName, "driver-name"),
        (Self::Env, "env"),
        (Self::ErrorCodes, "error-codes"),
        (Self::ForbidUnsafe, "forbid-unsafe"),
        (Self::Header, "header"),
        (Self::Ignore, "ignore"),
        (Self::Link, "link"),
        (Self::MachinePath, "machine-path"),
        (Self::Marker, "marker"),
        (Self::NoStd, "no-std"),
        (Self::Size, "size"),
        (Self::Spawn, "spawn"),
        (Self::Static, "static"),
        (Self::Table, "table"),
        (Self::UnsafeComment, "unsafe-comment"),
        (Self::UnsafePlace, "unsafe-place"),
    ];

    /// The rule of that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, its)| *its == name).map(|(rule, _)| *rule)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(rule, _)| rule == self).map_or("?", |(_, name)| name);
        f.write_str(name)
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Shown; tidy still passes.
    Warning,
    /// Tidy fails.
    Error,
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// From 1; `None` where the whole file is meant.
    pub(crate) line: Option<usize>,
    pub(crate) rule: Rule,
    pub(crate) level: Level,
    pub(crate) wrong: String,
    pub(crate) right: String,
}

impl Finding {
    /// An error in a line, counted from 1.
    pub(crate) fn at(
        path: &str,
        line: usize,
        rule: Rule,
        wrong: impl Into<String>,
        right: impl Into<String>,
    ) -> Self {
        Self { line: Some(line), ..Self::file(path, rule, wrong, right) }
    }

    /// An error of a file as a whole.
    pub(crate) fn file(path: &str, rule: Rule, wrong: impl Into<String>, right: impl Into<String>) -> Self {
        let (wrong, right) = (wrong.into(), right.into());
        Self { path: path.to_owned(), line: None, rule, level: Level::Error, wrong, right }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, level, wrong, right } = self;
        let warning = if *level == Level::Warning { "warning: " } else { "" };
        write!(f, "{path}:{}: {rule}: {warning}{wrong}; {right}", line.unwrap_or(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_read_like_a_compilers() {
        let finding = Finding::at("a/b.rs", 7, Rule::Env, "reads `X`", "take it as a value");
        assert_eq!(finding.to_string(), "a/b.rs:7: env: reads `X`; take it as a value");
        let finding = Finding { level: Level::Warning, ..Finding::file("a.rs", Rule::Size, "big", "split") };
        assert_eq!(finding.to_string(), "a.rs:1: size: warning: big; split");
    }

    #[test]
    fn rules_are_found_by_their_names() {
        for (rule, name) in Rule::NAMES {
            assert_eq!(Rule::named(name), Some(*rule));
            assert_eq!(rule.to_string(), *name);
        }
        assert_eq!(Rule::named("nonsense"), None);
    }
}
