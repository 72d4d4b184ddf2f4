//! The doctor: what this machine can do for a wait. The program is the binary `doctor` of `wakeline-benches`; here it is
//! built and run.

use std::process::ExitCode;

use anyhow::Result;

use crate::cmd::Cmd;
use crate::workspace::Workspace;

/// How to show it.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// One JSON object on standard output, and nothing else
    #[arg(long)]
    json: bool,
    /// Fewer samples: at most 2 s in place of 10
    #[arg(long)]
    quick: bool,
}

/// Builds and runs it; its exit code is ours.
///
/// # Errors
/// It does not exist, does not build, or cannot be run.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let workspace = Workspace::load()?;
    workspace.require_bin("wakeline-benches", "doctor", "benches/src/bin/doctor/main.rs")?;
    // Read, not run: standard output is the report's alone.
    Cmd::cargo().words("build --quiet --release --locked -p wakeline-benches --bin doctor").read()?;
    let mut doctor = Cmd::new(workspace.release_bin("doctor"));
    for (given, flag) in [(args.json, "--json"), (args.quick, "--quick")] {
        if given {
            doctor = doctor.arg(flag);
        }
    }
    doctor.run_for_code()
}
