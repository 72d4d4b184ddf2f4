//! Hostile inputs for what reads text. The program is the binary `fuzz` of `wakeline-fuzz`; here it is built and started.

use anyhow::{Context, Result};

use crate::cmd::Cmd;
use crate::workspace::Workspace;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// What reads them: plan, bands, setting, settings or trace; all, where it is not said
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// How many inputs each
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    runs: u64,
    /// What they are drawn from; a failure prints the one to repeat
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Write what each came to as a line of JSON
    #[arg(long)]
    json: bool,
}

/// Builds and runs it.
///
/// # Errors
/// It does not exist, does not build, or fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    let workspace = Workspace::load()?;
    workspace.require_bin("wakeline-fuzz", "fuzz", "tests/fuzz/src/bin/fuzz.rs")?;
    Cmd::cargo().words("build --release --locked -p wakeline-fuzz --bin fuzz").run()?;
    let mut fuzz = Cmd::new(workspace.release_bin("fuzz"));
    fuzz = fuzz.args(["--runs", &args.runs.to_string(), "--seed", &args.seed.to_string()]);
    if let Some(target) = &args.target {
        fuzz = fuzz.args(["--target", target]);
    }
    if args.json {
        fuzz = fuzz.arg("--json");
    }
    fuzz.run().context("the fuzzing failed")
}
