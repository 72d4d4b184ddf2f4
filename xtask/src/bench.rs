//! A/B runs: ways of waiting beside each other. The program is the binary `bench` of `wakeline-benches`; here it is built and run, and told
//! which commit it is of.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use crate::cmd::Cmd;
use crate::workspace::Workspace;

/// What the program is asked for: see its `--help`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    words: Vec<OsString>,
}

/// Builds and runs it; its exit code is ours.
///
/// # Errors
/// It does not exist, does not build, or cannot be run.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::load()?;
    workspace.require_bin("wakeline-benches", "bench", "benches/src/bin/bench/main.rs")?;
    // Standard output is the table's alone.
    Cmd::cargo().words("build --release --locked -p wakeline-benches --bin bench").read()?;
    let mut bench = Cmd::new(workspace.release_bin("bench")).here().args(&args.words);
    if let Some(commit) = commit() {
        bench = bench.arg("--commit").arg(commit);
    }
    bench.run_for_code()
}

/// The commit that is built, with a word where files differ from it; `None` outside of a repository.
fn commit() -> Option<String> {
    let git = |words: &str| Cmd::new("git").words(words).read_quietly().ok().map(|(said, _)| said);
    let hash = git("rev-parse --short=12 HEAD")?;
    let differs =
        git("status --porcelain --untracked-files=no").is_some_and(|files| !files.trim().is_empty());
    Some(format!("{}{}", hash.trim(), if differs { "-modified" } else { "" }))
}
