//! Tests under loom: every interleaving of the few threads that share something, within loom's bounds.
//!
//! A package's loom tests are those whose names hold `loom`: unit tests in a module of that name, and
//! integration tests in files that begin with it. Finding none is an error, so they cannot get lost.

use anyhow::{Result, ensure};

use crate::cmd::Cmd;
use crate::workspace::{Package, Workspace};

/// The packages that have loom tests.
const PACKAGES: &[&str] = &["wakeline-core", "wakeline-ops", "wakeline-sim", "wakeline-std"];

/// What a loom test has in its name.
const FILTER: &str = "loom";

/// Runs the loom tests of all packages that have some.
///
/// # Errors
/// A test fails, or a package has none.
pub(crate) fn run() -> Result<()> {
    let workspace = Workspace::load()?;
    let mut total = 0;
    for name in PACKAGES {
        let package = workspace.package(name);
        let command = command(name, package, &workspace);
        let mut passed = 0;
        command.run_reading(|line| passed += passed_tests(line).unwrap_or(0))?;
        ensure!(
            passed > 0,
            "`{name}` has no loom test: name one `{FILTER}..`, or take the package out of the list in xtask/src/loom.rs; \
             to repeat: {command}"
        );
        total += passed;
    }
    println!("  {total} loom tests in {} packages", PACKAGES.len());
    Ok(())
}

fn command(name: &str, package: Option<&Package>, workspace: &Workspace) -> Cmd {
    let targets = package.map_or(&[][..], |package| &package.targets);
    let integration = targets
        .iter()
        .filter(|target| target.kind.iter().any(|kind| kind == "test") && target.name.starts_with(FILTER))
        .flat_map(|target| ["--test", &target.name]);
    Cmd::cargo()
        .env("RUSTFLAGS", "--cfg loom -D warnings")
        .env("CARGO_TARGET_DIR", workspace.target_directory.join("loom"))
        .words("test --release --locked -p")
        .arg(name)
        .arg("--lib")
        .args(integration)
        .arg(FILTER)
}

/// The number in `test result: ok. 3 passed; ..`.
fn passed_tests(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("test result: ok. ")?;
    rest.split_once(" passed")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_tests_are_counted() {
        let line =
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.1s";
        assert_eq!(passed_tests(line), Some(3));
        assert_eq!(passed_tests("running 3 tests"), None);
    }
}
