//! Sanitizers: the suites of the backends under the address sanitizer, and once more with its check for leaks, those of the hosts under the thread sanitizer.
//!
//! The address sanitizer needs nothing but the runtime that comes with Rust: what it instruments is our code, the stand-in for a driver too, and the allocations of
//! all. Tests that leave something behind on purpose are left out where leaks are looked for. The thread sanitizer has to see the standard library as well, which is
//! built for it from its sources. It knows no fences: each line of `tests/sanitizers/*.txt` and each test that is passed over has its reason beside it.

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
    /// Memory that is not one's own
    Address,
    /// Memory that is never given back
    Leak,
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
    /// What the tests' program is told.
    told: &'static str,
    /// Tests that are passed over, each with the reason.
    passed_over: &'static [(&'static str, &'static str)],
}

/// What leaves out tests that leave something behind on purpose.
const NO_LEAVING: &str = "--no-leaving";

const SUITES: &[Suite] = &[
    suite(Sanitizer::Address, "cuda", "-p wakeline-tests --test cuda"),
    suite(Sanitizer::Address, "operations", "-p wakeline-tests --test operations"),
    suite(Sanitizer::Address, "machine", "-p wakeline-tests --test machine"),
    suite(Sanitizer::Address, "wakeline-mapped", "-p wakeline-mapped --all-features --lib"),
    suite(Sanitizer::Address, "wakeline-cuda", "-p wakeline-cuda --features compile,ops --lib --tests"),
    suite(Sanitizer::Address, "wakeline-hip", "-p wakeline-hip --features compile,ops --lib --tests"),
    Suite { told: NO_LEAVING, ..suite(Sanitizer::Leak, "cuda", "-p wakeline-tests --test cuda") },
    Suite { told: NO_LEAVING, ..suite(Sanitizer::Leak, "operations", "-p wakeline-tests --test operations") },
    Suite { told: NO_LEAVING, ..suite(Sanitizer::Leak, "machine", "-p wakeline-tests --test machine") },
    suite(Sanitizer::Thread, "wakeline-core", "-p wakeline-core --lib executor"),
    suite(Sanitizer::Thread, "wakeline-std", "-p wakeline-std --lib --tests"),
    Suite {
        passed_over: &[
            (
                "case_64_compute_beside_waits_is_not_starved",
                "it judges shares of one thread's time, of which the sanitizer takes most",
            ),
            (
                "case_64_no_slice_makes_a_poll_last_over_50_us",
                "it judges how long one thread's polls take, which is ten times as long here",
            ),
        ],
        ..suite(Sanitizer::Thread, "wakeline-tokio", "-p wakeline-tokio --lib --tests")
    },
    suite(Sanitizer::Thread, "wakeline-uring", "-p wakeline-uring --lib --tests"),
    Suite {
        passed_over: &[(
            "operations_allocate_nothing",
            "it bounds how many blocks a queue between two threads grows by, of which there are more where both are slow",
        )],
        ..suite(Sanitizer::Thread, "wakeline-ops", "-p wakeline-ops --lib --tests")
    },
    suite(Sanitizer::Thread, "wakeline-sim", "-p wakeline-sim --all-features --lib --tests"),
];

const fn suite(sanitizer: Sanitizer, name: &'static str, tests: &'static str) -> Suite {
    Suite { name, sanitizer, tests, told: "", passed_over: &[] }
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
    /// What it is told not to tell of, tests that are passed over, and tests that are left out since they leave something behind on purpose.
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
            // One each, however many there are.
            Self::Leak => ("asan", "ASAN_OPTIONS", "Direct leak of"),
            Self::Thread => ("tsan", "TSAN_OPTIONS", "WARNING: ThreadSanitizer"),
        }
    }

    /// The list of what it is told not to tell of.
    fn list(self) -> Option<PathBuf> {
        let name = match self {
            Self::Address => return None,
            Self::Leak => "leaks.txt",
            Self::Thread => "races.txt",
        };
        Some(root().join("tests/sanitizers").join(name))
    }

    /// Where it builds: one sanitizer finds both addresses and leaks.
    const fn folder(self) -> &'static str {
        match self {
            Self::Address | Self::Leak => "address",
            Self::Thread => "thread",
        }
    }

    /// Cargo, set up for it. Reports go to files that begin so.
    fn cargo(self, reports: &Path) -> Result<Cmd> {
        let (runtime, variable, _) = self.names();
        has_runtime(runtime)?;
        let (list, reports) = (self.list().unwrap_or_default(), reports.display());
        let list = list.display();
        match self {
            // Stable, and what is not: the sanitizer's flag. The library that stands in for a driver has the program's runtime.
            Self::Address | Self::Leak => Ok(Cmd::cargo()
                .env("RUSTC_BOOTSTRAP", "1")
                .env(
                    "RUSTFLAGS",
                    format!("-Zsanitizer=address {FLAGS} -Clink-arg=-Wl,--export-dynamic-symbol=__asan_*"),
                )
                .env(variable, format!("log_path={reports}:detect_leaks={}", u8::from(self == Self::Leak)))
                .env("LSAN_OPTIONS", format!("suppressions={list}:print_suppressions=0"))
                .arg("test")),
            Self::Thread => Ok(toolchain::with_sources(&[TRIPLE])?
                .cargo()
                .env("RUSTFLAGS", format!("-Zsanitizer=thread {FLAGS}"))
                .env(variable, format!("log_path={reports}:suppressions={list}"))
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
            .arg(target_dir.join(self.sanitizer.folder()))
            .words(self.tests)
            .arg("--")
            .words(self.told);
        for (test, reason) in self.passed_over {
            println!("  passed over: {test}: {reason}");
            cargo = cargo.args(["--skip", test]);
        }
        // Beside the compiler's lines, of which there are many without an end.
        let (started, mut tests, mut left_out) = (Instant::now(), 0, 0);
        let ran = cargo.run_reading(|line| {
            tests += passed_tests(line).unwrap_or(0);
            left_out += left_out_tests(line).unwrap_or(0);
        });
        if let Err(error) = &ran {
            println!("  {error:#}");
        }
        let findings = found(&reports, self.sanitizer.names().2)?;
        let exceptions = self.sanitizer.list().map_or(Ok(0), |list| exceptions(&list))?;
        let exceptions = exceptions + self.passed_over.len() + left_out;
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

/// The number in `left out: 3 tests, ..`, which a suite says that is told to leave out tests.
fn left_out_tests(line: &str) -> Option<usize> {
    line.strip_prefix("left out: ")?.split_once(" tests")?.0.parse().ok()
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
        assert_eq!(left_out_tests("left out: 39 tests, which may leave something behind"), Some(39));
        assert_eq!(left_out_tests("running 3 tests"), None);
    }

    #[test]
    fn every_exception_has_its_reason_above_it() {
        for list in [Sanitizer::Leak, Sanitizer::Thread].into_iter().filter_map(Sanitizer::list) {
            let text = fs::read_to_string(&list).unwrap();
            let mut reasons = 0;
            for line in text.lines().filter(|line| !line.trim().is_empty()) {
                if line.starts_with("# ") {
                    reasons += 1;
                    continue;
                }
                assert!(reasons > 0, "`{line}` of {} has no reason", list.display());
                reasons = 0;
            }
        }
        assert!(SUITES.iter().flat_map(|suite| suite.passed_over).all(|(_, reason)| reason.len() > 20));
    }
}
