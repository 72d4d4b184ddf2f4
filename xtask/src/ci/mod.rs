//! `cargo xtask ci`: every gate, cheapest first, up to the first that fails; then what each took.

mod report;
mod step;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use self::report::{Report, Took};
use self::step::{Group, STEPS};
use crate::missing;

/// How to run the gates.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave `cargo test --workspace` out, because the caller runs it itself
    #[arg(long)]
    no_tests: bool,
    /// The seconds that the caller's own `cargo test --workspace` took, to be counted in
    #[arg(long, value_name = "SECONDS", default_value_t = 0, requires = "no_tests")]
    tests_took_s: u64,
    /// Go on, with a line `skipped:`, where the machine lacks what a gate needs
    #[arg(long)]
    allow_missing: bool,
    /// Fail when a group of gates took longer than its budget, instead of warning
    #[arg(long)]
    strict_budget: bool,
}

/// Runs all gates.
///
/// # Errors
/// The first gate that fails; or a budget that was overrun, where `--strict-budget` asks for that.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut report = Report::default();
    if args.no_tests {
        report.took.push(Took::done(
            "tests (by the caller)",
            Group::Tests,
            Duration::from_secs(args.tests_took_s),
        ));
    }
    for step in STEPS.iter().filter(|step| !(args.no_tests && step.is_tests)) {
        println!("==> {}: {}", step.name, step.what);
        let started = Instant::now();
        let result = missing::settle((step.run)(), args.allow_missing || step.may_lack);
        let time = started.elapsed();
        println!("<== {}: {:.1} s", step.name, time.as_secs_f64());
        match result {
            Ok(outcome) => report.took.push(Took { name: step.name, group: step.group, time, outcome }),
            Err(error) => {
                print!("{report}");
                return Err(error)
                    .with_context(|| format!("gate `{}` failed, the later ones did not run", step.name));
            }
        }
    }
    print!("{report}");
    let overruns = report.overruns();
    ensure!(overruns.is_empty() || !args.strict_budget, "over the budget: {}", overruns.join("; "));
    Ok(())
}
