//! Sanitizers: the suites of the backends under the address sanitizer and its leak check, those of the hosts under the thread sanitizer.
//!
//! The address sanitizer needs nothing but the runtime that comes with Rust: what it instruments is our code, and the allocations of all. The thread
//! sanitizer has to see the standard library as well, which is built for it from its sources. That it knows no fences is why some things are left out:
//! each line of `tests/sanitizers/*.txt` and each test that is passed over has its reason beside it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::cmd::Cmd;
use crate::missing::Missing;
use crate::targets::toolchain;
use crate::workspace::{Workspace, root};

/// Sanitizers' runtimes come with the toolchains of this host.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// What each has in common with a release of its own folder: lines are enough of debug information.
const FLAGS: &str = "-Cdebuginfo=line-tables-only";

/// What to run.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// The sanitizers: all, where none is named
    #[arg(value_enum)]
    sanitizers: Vec<Sanitizer>,
    /// The suites of this name alone
    #[arg(long, value_name = "NAME")]
    suite: Option<String>,
    /// Append what each suite came to, as lines of JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Go on, with a line `skipped:`, where the machine lacks what a sanitizer needs
    #[arg(long)]
    pub(crate) allow_missing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Sanitizer {
    /// Memory that is not one's own, and what is never given back
    Address,
    /// Data races
    Thread,
}

/// Tests that are run together.
#[derive(Debug)]
struct Suite {
    name: &'static str,
    sanitizer: Sanitizer,
    /// What cargo builds, and which of its tests are run.
    tests: &'static str,
    /// Tests that are passed over, each with the reason.
    passed_over: &'static [(&'static str, &'static str)],
}

/// The device plays in a process of its own, the stand-in for a driver in the test's: both are instrumented.
const SUITES: &[Suite] = &[
    address("cuda", "-p wakeline-tests --test cuda"),
    address("operations", "-p wakeline-tests --test operations"),
    address("machine", "-p wakeline-tests --test machine"),
    address("collectives", "-p wakeline-tests --test collectives"),
    address("wakeline-mapped", "-p wakeline-mapped --all-features --lib --tests"),
    address("wakeline-cuda", "-p wakeline-cuda --all-features --lib --tests"),
    address("wakeline-hip", "-p wakeline-hip --all-features --lib --tests"),
    thread("wakeline-core", "-p wakeline-core --lib executor"),
    thread("wakeline-std", "-p wakeline-std --lib --tests"),
    thread("wakeline-tokio", "-p wakeline-tokio --lib --tests"),
    thread("wakeline-uring", "-p wakeline-uring --lib --tests"),
    thread("wakeline-ops", "-p wakeline-ops --lib --tests"),
    thread("wakeline-sim", "-p wakeline-sim --all-features --lib --tests"),
];

const fn address(name: &'static str, tests: &'static str) -> Suite {
    Suite { name, sanitizer: Sanitizer::Address, tests, passed_over: &[] }
}

const fn thread(name: &'static str, tests: &'static str) -> Suite {
    Suite { name, sanitizer: Sanitizer::Thread, tests, passed_over: &[] }
}

/// What a suite came to.
#[derive(Debug, Serialize)]
struct Came {
    bench: &'static str,
    sanitizer: Sanitizer,
    suite: &'static str,
    tests: u64,
    seconds: u64,
    findings: usize,
    /// What it is told not to tell of, and tests that are passed over.
    exceptions: usize,
}

/// Builds and runs them.
///
/// # Errors
/// A test fails, something is found, no suite has the name, or the machine lacks what it takes: a [`Missing`].
pub(crate) fn run(args: &Args) -> Result<()> {
    let asked = |suite: &&Suite| {
        (args.sanitizers.is_empty() || args.sanitizers.contains(&suite.sanitizer))
            && args.suite.as_ref().is_none_or(|name| name == suite.name)
    };
    let suites: Vec<_> = SUITES.iter().filter(asked).collect();
    ensure!(!suites.is_empty(), "no suite of that name and sanitizer; see SUITES in xtask/src/sanitize.rs");
    let target_dir = Workspace::load()?.target_directory.join("sanitize");
    let mut bad = Vec::new();
    for suite in suites {
        let (came, failed) = suite.run(&target_dir)?;
        let line = serde_json::to_string(&came)?;
        println!("{line}");
        if let Some(path) = &args.json {
            let file = fs::OpenOptions::new().create(true).append(true).open(path);
            let written = file.and_then(|mut file| writeln!(file, "{line}"));
            written.with_context(|| path.display().to_string())?;
        }
        if failed || came.findings > 0 || came.tests == 0 {
            bad.push(suite.name);
        }
    }
    ensure!(bad.is_empty(), "not clean: {}; what was found is told above", bad.join(", "));
    Ok(())
}

impl Sanitizer {
    /// What its runtime is called, its variable and what its reports say.
    const fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Address => ("asan", "ASAN_OPTIONS", "ERROR: "),
            Self::Thread => ("tsan", "TSAN_OPTIONS", "WARNING: ThreadSanitizer"),
        }
    }

    /// The list of what it is told not to tell of.
    fn list(self) -> PathBuf {
        let name = match self {
            Self::Address => "leaks.txt",
            Self::Thread => "races.txt",
        };
        root().join("tests/sanitizers").join(name)
    }

    /// Cargo, set up for it. Reports go to files that begin so.
    fn cargo(self, reports: &Path) -> Result<Cmd> {
        let (runtime, variable, _) = self.names();
        has_runtime(runtime)?;
        let (list, reports) = (self.list(), reports.display());
        match self {
            // Stable, and what is not: the sanitizer's flag. The library that stands in for a driver has the program's runtime.
            Self::Address => Ok(Cmd::cargo()
                .env("RUSTC_BOOTSTRAP", "1")
                .env(
                    "RUSTFLAGS",
                    format!("-Zsanitizer=address {FLAGS} -Clink-arg=-Wl,--export-dynamic-symbol=__asan_*"),
                )
                .env(variable, format!("log_path={reports}:detect_leaks=1"))
                .env("LSAN_OPTIONS", format!("suppressions={}:print_suppressions=0", list.display()))
                .arg("test")),
            Self::Thread => Ok(toolchain::with_sources(&[TRIPLE])?
                .cargo()
                .env("RUSTFLAGS", format!("-Zsanitizer=thread {FLAGS}"))
                .env(variable, format!("log_path={reports}:suppressions={}", list.display()))
                .words("test -Zbuild-std")),
        }
    }
}

impl Suite {
    /// Runs it: what it came to, and whether its tests failed.
    fn run(&self, target_dir: &Path) -> Result<(Came, bool)> {
        let reports = target_dir.join("reports").join(format!("{:?}-{}", self.sanitizer, self.name));
        if reports.exists() {
            fs::remove_dir_all(&reports)?;
        }
        fs::create_dir_all(&reports)?;
        let mut cargo = self
            .sanitizer
            .cargo(&reports.join("report"))?
            .words("--locked --no-fail-fast --target")
            .arg(TRIPLE)
            .arg("--target-dir")
            .arg(target_dir.join(format!("{:?}", self.sanitizer).to_lowercase()))
            .words(self.tests)
            .arg("--");
        for (test, reason) in self.passed_over {
            println!("  passed over: {test}: {reason}");
            cargo = cargo.args(["--skip", test]);
        }
        // Beside the compiler's lines, of which there are many without an end.
        let (started, mut tests) = (Instant::now(), 0);
        let ran = cargo.run_reading(|line| tests += passed_tests(line).unwrap_or(0));
        if let Err(error) = &ran {
            println!("  {error:#}");
        }
        let findings = found(&reports, self.sanitizer.names().2)?;
        let exceptions = exceptions(&self.sanitizer.list())? + self.passed_over.len();
        let came = Came {
            bench: "sanitize",
            sanitizer: self.sanitizer,
            suite: self.name,
            tests,
            seconds: started.elapsed().as_secs(),
            findings,
            exceptions,
        };
        Ok((came, ran.is_err()))
    }
}

/// Prints the reports, and counts what they tell of.
fn found(reports: &Path, says: &str) -> Result<usize> {
    let mut found = 0;
    for entry in fs::read_dir(reports)? {
        let text = fs::read_to_string(entry?.path())?;
        found += text.matches(says).count();
        print!("{text}");
    }
    Ok(found)
}

/// How many lines a list has that are no comments.
fn exceptions(list: &Path) -> Result<usize> {
    let text = fs::read_to_string(list).with_context(|| list.display().to_string())?;
    Ok(text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).count())
}

/// The number in `test result: ok. 3 passed; ..`, whatever the result is.
fn passed_tests(line: &str) -> Option<u64> {
    let (_, rest) = line.strip_prefix("test result: ")?.split_once(". ")?;
    rest.split_once(" passed")?.0.parse().ok()
}

/// That the toolchain has the sanitizer's runtime.
fn has_runtime(runtime: &str) -> Result<()> {
    let folder = Cmd::new("rustc").words("--print target-libdir --target").arg(TRIPLE).read()?;
    let ending = format!("_rt.{runtime}.a");
    let named = fs::read_dir(folder.trim()).into_iter().flatten().flatten().map(|entry| entry.file_name());
    if named.into_iter().any(|name| name.to_string_lossy().ends_with(&ending)) {
        return Ok(());
    }
    Err(Missing {
        what: format!("the toolchain has no sanitizer of the name {runtime}"),
        install: format!("a toolchain of rustup's for {TRIPLE}"),
    }
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_passed_are_counted_whatever_else_failed() {
        let line = "test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 7 filtered out";
        assert_eq!(passed_tests(line), Some(3));
        assert_eq!(passed_tests("test result: ok. 12 passed; 0 failed"), Some(12));
        assert_eq!(passed_tests("running 3 tests"), None);
    }

    #[test]
    fn every_exception_has_its_reason_above_it() {
        for sanitizer in [Sanitizer::Address, Sanitizer::Thread] {
            let text = fs::read_to_string(sanitizer.list()).unwrap();
            let mut reasons = 0;
            for line in text.lines().filter(|line| !line.trim().is_empty()) {
                if line.starts_with("# ") {
                    reasons += 1;
                    continue;
                }
                assert!(reasons > 0, "`{line}` of {} has no reason", sanitizer.list().display());
                reasons = 0;
            }
        }
        assert!(SUITES.iter().flat_map(|suite| suite.passed_over).all(|(_, reason)| reason.len() > 20));
    }
}
