//! A/B runs: ways of waiting beside each other. The program is the binary `bench` of `wakeline-benches`; here it is built and run, and told
//! which commit it is of. With `--peers` it is the binary `bench_peers` of the package `benches/peers`, which stands beside the workspace: the same
//! with arms of other libraries.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::cmd::Cmd;
use crate::interop;
use crate::workspace::Workspace;

/// Names the folder with CUDA's headers, to the build of cuda-async.
const TOOLKIT: &str = "CUDA_TOOLKIT_PATH";

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
    let asked = Asked::of(&args.words);
    let program = if asked.peers { with_peers()? } else { own()? };
    let mut bench = Cmd::new(program).here().args(&asked.words);
    if let Some(commit) = commit().filter(|_| asked.is_of_a_commit()) {
        bench = bench.arg("--commit").arg(commit);
    }
    bench.run_for_code()
}

/// What is asked for.
struct Asked<'a> {
    /// Whether the program is the one with arms of other libraries.
    peers: bool,
    /// What it is told.
    words: Vec<&'a OsString>,
}

impl<'a> Asked<'a> {
    fn of(words: &'a [OsString]) -> Self {
        let (peers, words): (Vec<_>, Vec<_>) = words.iter().partition(|word| *word == "--peers");
        Self { peers: !peers.is_empty(), words }
    }

    /// Whether the program is to be told which commit it is of: what only shows earlier runs is of none, and whoever says so knows it.
    fn is_of_a_commit(&self) -> bool {
        let reports = self.words.first().is_some_and(|word| *word == "report");
        !reports && !self.words.iter().any(|word| *word == "--commit")
    }
}

/// Builds the program of the workspace. Standard output is the table's alone, so cargo's is read.
fn own() -> Result<PathBuf> {
    let workspace = Workspace::load()?;
    workspace.require_bin("wakeline-benches", "bench", "benches/src/bin/bench/main.rs")?;
    Cmd::cargo().words("build --release --locked -p wakeline-benches --bin bench").read()?;
    Ok(workspace.release_bin("bench"))
}

/// Builds the one with arms of other libraries: of cuda-async where there are the headers that it wants.
fn with_peers() -> Result<PathBuf> {
    let folder = interop::target_dir()?;
    let mut build = Cmd::cargo()
        .words("build --release --locked --manifest-path benches/peers/Cargo.toml --target-dir")
        .arg(&folder);
    if std::env::var_os(TOOLKIT).is_some() {
        build = build.words("--features cuda-async");
    }
    build.read()?;
    Ok(folder.join("release").join(format!("bench_peers{}", std::env::consts::EXE_SUFFIX)))
}

/// The commit that is built, with a word where files differ from it; `None` outside of a repository.
fn commit() -> Option<String> {
    let git = |words: &str| Cmd::new("git").words(words).read_quietly().ok().map(|(said, _)| said);
    let hash = git("rev-parse --short=12 HEAD")?;
    let differs =
        git("status --porcelain --untracked-files=no").is_some_and(|files| !files.trim().is_empty());
    Some(format!("{}{}", hash.trim(), if differs { "-modified" } else { "" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_measures_is_told_its_commit() {
        for (line, peers, commit) in [
            ("", false, true),
            ("wake --quick", false, true),
            ("--peers wake", true, true),
            ("report a.jsonl", false, false),
            ("--peers report a.jsonl", true, false),
            ("report a.jsonl --peers", true, false),
            ("--commit c0ffee", false, false),
        ] {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            let asked = Asked::of(&words);
            assert_eq!((asked.peers, asked.is_of_a_commit()), (peers, commit), "{line}");
            assert!(asked.words.iter().all(|word| *word != "--peers"), "{line}");
        }
    }
}
