//! What the changelog says of what is gone: a line under `### Breaking` of `[Unreleased]` that names the item, or its type.

use std::collections::BTreeSet;

use super::paths;

/// Those of `gone` that nothing under `### Breaking` names.
pub(crate) fn unsaid<'g>(changelog: &str, gone: &'g [String]) -> Vec<&'g str> {
    let said = said(changelog);
    let is_said = |item: &&str| names(item).iter().any(|name| said.contains(name));
    gone.iter().map(String::as_str).filter(|item| !is_said(item)).collect()
}

/// All names in backticks that stand under `### Breaking` of `[Unreleased]`.
fn said(changelog: &str) -> BTreeSet<&str> {
    let unreleased = changelog.split("\n## ").find(|part| part.starts_with("[Unreleased]"));
    let breaking = unreleased.and_then(|part| part.split("\n### ").find(|part| part.starts_with("Breaking")));
    let quoted = breaking.unwrap_or_default().split('`').skip(1).step_by(2);
    quoted.flat_map(|text| text.split(|c: char| !(c.is_alphanumeric() || c == '_'))).collect()
}

/// What an item may be called: the last part of its path, and the one before where that is a type.
fn names(item: &str) -> Vec<&str> {
    // `impl Trait for path::Type<..>`, `pub const fn path::Type::method(..)`, `pub path::Type::field: ..`
    let item = item.split(" for ").last().unwrap_or(item);
    let Some(path) = paths::of(item) else { return vec![item] };
    let mut parts = path.rsplit("::");
    let last = parts.next();
    let parent = parts.next().filter(|part| part.starts_with(char::is_uppercase));
    last.into_iter().chain(parent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "# Changelog\n\n## [Unreleased]\n\n### Breaking\n\n- `Plan::pieces` is `Plan::count`.\n- `Dup` is gone.\n\n\
                             ### Added\n\n- `late`\n\n## [0.1.0]\n\n### Breaking\n\n- `early`\n";

    #[test]
    fn an_item_is_said_by_its_name_or_its_types_under_breaking_of_what_is_unreleased() {
        let gone = |item: &str| unsaid(CHANGELOG, &[item.to_owned()]).len();
        assert_eq!(gone("pub const fn w::copy::Plan::pieces(&self) -> usize"), 0);
        assert_eq!(gone("pub w::Dup::0: w::Tensor<T>"), 0);
        assert_eq!(gone("impl<T> core::clone::Clone for w::Dup<T>"), 0);
        assert_eq!(gone("pub fn w::early()"), 1, "of another release");
        assert_eq!(gone("pub fn w::late()"), 1, "under another heading");
        assert_eq!(gone("pub struct w::Spread<T>"), 1);
        assert_eq!(unsaid("# Changelog\n", &["pub fn w::a()".to_owned()]), ["pub fn w::a()"]);
    }
}
