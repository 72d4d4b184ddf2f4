//! Choosing plans from a recorded trace. The program is the binary `tune` of `wakeline-benches`; here it is built and run.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use crate::cmd::Cmd;
use crate::workspace::Workspace;

/// What it is to replay, and how to show it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The trace, a CSV file like examples/data/h200-a.csv, and the arguments of `tune`: `--help` after it lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "TRACE")]
    words: Vec<OsString>,
}

/// Builds and runs it; its exit code is ours.
///
/// # Errors
/// It does not exist, does not build, or cannot be run.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let workspace = Workspace::load()?;
    workspace.require_bin("wakeline-benches", "tune", "benches/src/bin/tune/main.rs")?;
    // Read, not run: standard output is the report's alone.
    Cmd::cargo().words("build --quiet --release --locked -p wakeline-benches --bin tune").read()?;
    args.words.into_iter().fold(Cmd::new(workspace.release_bin("tune")), Cmd::arg).run_for_code()
}
