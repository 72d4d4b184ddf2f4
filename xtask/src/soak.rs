//! The soak: many seeded simulated runs. The program is the binary `soak` of `wakeline-tests`; here it is built,
//! started and ended when it hangs.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::cmd::Cmd;
use crate::workspace::Workspace;

/// How many seeds `ci` runs.
pub(crate) const CI_SEEDS: u64 = 100_000;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// How many seeds to run
    #[arg(long, value_name = "N")]
    pub(crate) seeds: u64,
    /// The first seed; a failure prints the one to repeat
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
    /// End it as failed when it runs for longer than this many seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) limit_s: Option<u64>,
}

/// Builds and runs it.
///
/// # Errors
/// It does not exist, does not build, fails, or runs past the limit.
pub(crate) fn run(args: &Args) -> Result<()> {
    let workspace = Workspace::load()?;
    workspace.require_bin("wakeline-tests", "soak", "tests/src/bin/soak.rs")?;
    Cmd::cargo().words("build --release --locked -p wakeline-tests --bin soak").run()?;
    let mut soak = Cmd::new(workspace.release_bin("soak")).args(["--seeds", &args.seeds.to_string()]);
    if let Some(seed) = args.seed {
        soak = soak.args(["--seed", &seed.to_string()]);
    }
    let result = match args.limit_s {
        Some(limit) => soak.run_within(Duration::from_secs(limit)),
        None => soak.run(),
    };
    result.context("the soak failed")
}
