//! Where every package of the lock file comes from, and under which licence: what cargo knows of it, without the network.
//!
//! `deny.toml` says the same to those who have cargo-deny; a test holds the two against each other.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::cmd::Cmd;

/// Licences that may be chosen. All of them allow what this project's own do.
const ALLOWED: &[&str] = &["Apache-2.0", "BSD-2-Clause", "ISC", "MIT", "Unicode-3.0", "Zlib"];

/// The one registry.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// `None` for one of ours.
    source: Option<String>,
}

/// Checks all packages that anything of the workspace is built with, on any target.
///
/// # Errors
/// One comes from elsewhere, or has no licence that may be chosen.
pub(crate) fn run() -> Result<()> {
    let text = Cmd::cargo().words("metadata --locked --all-features --format-version 1").read()?;
    let metadata: Metadata =
        serde_json::from_str(&text).context("cannot read what `cargo metadata` printed")?;
    let wrong = wrong(&metadata);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!(
        "{} packages, each of crates.io or of here, under {}",
        metadata.packages.len(),
        ALLOWED.join(", ")
    );
    Ok(())
}

/// What is wrong with them, a line each.
fn wrong(metadata: &Metadata) -> Vec<String> {
    let mut wrong = Vec::new();
    for Package { name, version, license, source } in &metadata.packages {
        if let Some(source) = source.as_deref().filter(|source| *source != REGISTRY) {
            wrong.push(format!("{name} {version} comes from {source}; packages come from crates.io"));
        }
        let license = license.as_deref().unwrap_or_default();
        if !may_be_chosen(license) {
            let allowed = ALLOWED.join(", ");
            wrong.push(format!("{name} {version} is under `{license}`; what may be chosen is {allowed}"));
        }
    }
    wrong
}

/// Whether an expression of licences can be met by those that are allowed.
fn may_be_chosen(expression: &str) -> bool {
    // The slash is how it was written once.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    any_of(&mut rest).is_some_and(|chosen| chosen && rest.is_empty())
}

/// `all *( "OR" all )`
fn any_of(words: &mut &[&str]) -> Option<bool> {
    let mut any = all_of(words)?;
    while let Some(("OR", rest)) = words.split_first().map(|(word, rest)| (*word, rest)) {
        *words = rest;
        any |= all_of(words)?;
    }
    Some(any)
}

/// `one *( "AND" one )`
fn all_of(words: &mut &[&str]) -> Option<bool> {
    let mut all = one(words)?;
    while let Some(("AND", rest)) = words.split_first().map(|(word, rest)| (*word, rest)) {
        *words = rest;
        all &= one(words)?;
    }
    Some(all)
}

/// `"(" any ")" / name [ "WITH" name ]`: an exception allows more than the licence does.
fn one(words: &mut &[&str]) -> Option<bool> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    if *first == "(" {
        let inner = any_of(words)?;
        let (close, rest) = words.split_first()?;
        *words = rest;
        return (*close == ")").then_some(inner);
    }
    if let ["WITH", _, rest @ ..] = *words {
        *words = rest;
    }
    Some(ALLOWED.contains(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_licence_that_may_be_chosen_is_enough() {
        let good = [
            "MIT",
            "MIT/Apache-2.0",
            "Unlicense OR MIT",
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ];
        assert!(good.iter().all(|expression| may_be_chosen(expression)));
        let bad = [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT OR Apache-2.0",
            "MIT Apache-2.0",
            "LGPL-2.1-or-later OR GPL-2.0",
        ];
        assert!(!bad.iter().any(|expression| may_be_chosen(expression)));
    }

    #[test]
    fn a_planted_package_is_found() {
        let package = |source: Option<&str>, license: Option<&str>| Package {
            name: "x".to_owned(),
            version: "1.0.0".to_owned(),
            license: license.map(str::to_owned),
            source: source.map(str::to_owned),
        };
        let git = package(Some("git+https://example.org/x"), Some("MIT"));
        let packages = vec![package(None, Some("MIT")), git, package(Some(REGISTRY), None)];
        let wrong = wrong(&Metadata { packages });
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].contains("comes from git+") && wrong[1].contains("is under ``"), "{wrong:?}");
    }

    #[test]
    fn cargo_deny_is_told_the_same() {
        let text = include_str!("../../deny.toml");
        let deny: toml::Table = toml::from_str(text).unwrap();
        let allowed: Vec<&str> =
            deny["licenses"]["allow"].as_array().unwrap().iter().filter_map(toml::Value::as_str).collect();
        assert_eq!(allowed, ALLOWED);
    }
}
