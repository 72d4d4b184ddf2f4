//! The soak: many seeded simulated programs. They are the binary `worlds` of `wakeline-world`; here it is built,
//! started and ended when it hangs.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::cmd::Cmd;
use crate::mutants;
use crate::workspace::Workspace;

/// How many seeds `ci` runs.
pub(crate) const CI_SEEDS: u64 = 10_000;

/// So many seeds where a time is said: more than there is time for.
const SEEDS_BY_TIME: u64 = u64::MAX >> 8;

/// What to run.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// How many seeds to run
    #[arg(long, value_name = "N", conflicts_with = "minutes", required_unless_present_any = ["minutes", "mutants"])]
    pub(crate) seeds: Option<u64>,
    /// Run as many seeds as there is time for
    #[arg(long, value_name = "M")]
    pub(crate) minutes: Option<u64>,
    /// The first seed; a failure prints the one to repeat
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
    /// One kind of programs alone: waits, swarm, graphs, trees or whole
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// These parts of one program alone, as a failure names them; with `--mutants`, those whose name contains it, or `sample`
    #[arg(long, value_name = "PARTS")]
    pub(crate) only: Option<String>,
    /// Put back known mistakes, one at a time, and see that each is caught: half an hour for all
    #[arg(long)]
    pub(crate) mutants: bool,
    /// End it as failed when it runs for longer than this many seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) limit_s: Option<u64>,
}

/// Builds and runs it.
///
/// # Errors
/// It does not exist, does not build, fails, or runs past the limit.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.mutants {
        return mutants::run(args.only.as_deref());
    }
    let workspace = Workspace::load()?;
    workspace.require_bin("wakeline-world", "worlds", "tests/world/src/bin/worlds.rs")?;
    Cmd::cargo().words("build --release --locked -p wakeline-world --bin worlds").run()?;
    let seeds = args.seeds.unwrap_or(SEEDS_BY_TIME).to_string();
    let mut soak = Cmd::new(workspace.release_bin("worlds")).args(["--seeds", &seeds]);
    let seconds = args.minutes.map(|minutes| (minutes * 60).to_string());
    let seed = args.seed.map(|seed| seed.to_string());
    let said = [("--seconds", &seconds), ("--seed", &seed), ("--kind", &args.kind), ("--only", &args.only)];
    for (name, value) in said {
        if let Some(value) = value {
            soak = soak.args([name, value]);
        }
    }
    let result = match args.limit_s {
        Some(limit) => soak.run_within(Duration::from_secs(limit)),
        None => soak.run(),
    };
    result.context("the soak failed")
}
