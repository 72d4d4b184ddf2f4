//! The gates: what each runs, and which budget it draws on.

use std::fmt;
use std::time::Duration;

use anyhow::Result;

use crate::cmd::Cmd;
use crate::{api, deps, hip, instructions, interop, loom, package, soak, targets, tidy};

/// One gate.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// What it makes sure of, in a few words.
    pub(crate) what: &'static str,
    pub(crate) group: Group,
    /// Whether it is `cargo test --workspace`, which a caller may run itself.
    pub(crate) is_tests: bool,
    /// Whether it is left out, and that is said and counted, where the machine lacks what it needs.
    pub(crate) may_lack: bool,
    pub(crate) run: fn() -> Result<()>,
}

/// Gates that share a budget of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Lints,
    Tests,
    Docs,
    Interop,
    Loom,
    Targets,
    Soak,
}

impl Group {
    pub(crate) const ALL: &[Self] =
        &[Self::Lints, Self::Tests, Self::Docs, Self::Interop, Self::Loom, Self::Targets, Self::Soak];

    /// What its gates may take together on two cores, nothing built before. 28 minutes over all groups.
    pub(crate) const fn budget(self) -> Duration {
        Duration::from_secs(
            60 * match self {
                Self::Docs => 1,
                Self::Lints => 2,
                Self::Loom | Self::Soak => 3,
                Self::Targets => 4,
                Self::Interop => 5,
                Self::Tests => 10,
            },
        )
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lints => "lints",
            Self::Tests => "tests",
            Self::Docs => "docs",
            Self::Interop => "interop",
            Self::Loom => "loom",
            Self::Targets => "targets",
            Self::Soak => "soak",
        })
    }
}

/// How long the soak may run before it counts as hung: well past its budget, so that a slow machine only warns.
const SOAK_LIMIT_S: u64 = 540;

/// All gates, in the order they run: what fails fast is first.
pub(crate) const STEPS: &[Step] = &[
    step("fmt", "the code is formatted", Group::Lints, fmt),
    step("tidy", "the architecture's invariants hold", Group::Lints, tidy::run),
    step(
        "deps",
        "the core's dependencies are the listed ones, all of known licence and source",
        Group::Lints,
        deps::run,
    ),
    step("clippy", "no warnings, nothing newer than the minimum Rust version", Group::Lints, clippy),
    Step { is_tests: true, ..step("tests", "the tests pass, those in the docs too", Group::Tests, tests) },
    step("docs", "the docs build without a warning", Group::Docs, docs),
    Step {
        may_lack: true,
        ..step(
            "api",
            "the public items are the listed ones, and the changelog has what breaks",
            Group::Docs,
            api,
        )
    },
    step("package", "what would be published is whole", Group::Docs, package),
    step(
        "interop",
        "the packages with other libraries build, and run without a GPU",
        Group::Interop,
        interop::run,
    ),
    Step {
        may_lack: true,
        ..step(
            "hip",
            "AMD's library and headers are what the backend believes of them",
            Group::Tests,
            hip::run,
        )
    },
    step("loom", "what threads share is right in every interleaving", Group::Loom, loom::run),
    step("targets", "every target builds, and runs where it can", Group::Targets, targets::run_for_ci),
    step("soak", "whole simulated programs keep every promise, whatever goes wrong", Group::Soak, soak),
    step("instructions", "the hot paths cost no more than their limits", Group::Tests, instructions::run),
];

const fn step(name: &'static str, what: &'static str, group: Group, run: fn() -> Result<()>) -> Step {
    Step { name, what, group, is_tests: false, may_lack: false, run }
}

fn fmt() -> Result<()> {
    Cmd::cargo().words("fmt --all --check").run()
}

/// The minimum Rust version is checked by clippy's `incompatible_msrv`, one of the workspace's lints.
///
/// All features include `cudarc`, whose build needs a CUDA version: it is in `.cargo/config.toml`, for builds in this folder alone.
fn clippy() -> Result<()> {
    Cmd::cargo().words("clippy --workspace --all-targets --all-features --locked -- -D warnings").run()?;
    // What the feature `tracing` leaves out, which the workspace's tests turn on.
    Cmd::cargo().words("clippy -p wakeline-std --all-targets --locked -- -D warnings").run()
}

fn api() -> Result<()> {
    api::run(&api::Args::default())
}

fn package() -> Result<()> {
    package::run(&package::Args::default())
}

fn tests() -> Result<()> {
    Cmd::cargo().words("test --workspace --locked").run()
}

fn docs() -> Result<()> {
    Cmd::cargo()
        .env("RUSTDOCFLAGS", "-D warnings")
        .words("doc --workspace --all-features --no-deps --locked")
        .run()
}

fn soak() -> Result<()> {
    soak::run(&soak::Args {
        seeds: Some(soak::CI_SEEDS),
        limit_s: Some(SOAK_LIMIT_S),
        ..soak::Args::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budgets_are_28_minutes() {
        let total: Duration = Group::ALL.iter().map(|group| group.budget()).sum();
        assert_eq!(total, Duration::from_secs(28 * 60));
        assert!(STEPS.iter().all(|step| Group::ALL.contains(&step.group)));
    }
}
