//! The core's dependencies: what every user of wakeline compiles is a short list that grows only on purpose. And the lock files of the packages that are no members of
//! the workspace, which nothing else looks at before those are built.

use anyhow::{Result, bail};

use crate::cmd::Cmd;
use crate::{interop, licences};

/// What the core may depend on, proc macros aside.
const ALLOWED: &[&str] = &["bitflags", "futures-core", "thiserror"];

/// Checks the core's direct dependencies against the list, that all lock files are whole, and where all packages come from and under which licence.
///
/// # Errors
/// Others were found, or a lock file lacks something.
pub(crate) fn run() -> Result<()> {
    for package in interop::PACKAGES {
        let manifest = format!("{package}/Cargo.toml");
        Cmd::cargo().words("metadata --locked --format-version 1 --manifest-path").arg(manifest).read()?;
    }
    let tree = Cmd::cargo()
        .words("tree --locked -p wakeline-core -e normal,no-proc-macro --depth 1 --prefix none --format {p}");
    println!("  $ {tree}");
    let extra = extra(&tree.read()?);
    if extra.is_empty() {
        return licences::run();
    }
    bail!("wakeline-core depends on {}; it may depend on {} only", extra.join(", "), ALLOWED.join(", "))
}

/// The dependencies in the output of `cargo tree` that are not allowed. The first line is the core itself.
fn extra(tree: &str) -> Vec<String> {
    let names = tree.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| !ALLOWED.contains(name)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_dependency_is_found() {
        let tree = "wakeline-core v0.1.0 (path)\nbitflags v2.13.0\nlibc v0.2.0\nthiserror v2.0.0\n";
        assert_eq!(extra(tree), ["libc"]);
        assert!(extra("wakeline-core v0.1.0 (path)\n").is_empty());
    }
}
