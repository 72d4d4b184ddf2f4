//! Checks on a GPU: what must hold for every wait, whatever it takes.
//!
//! | file | check | what holds |
//! |---|---|---|
//! | `order.rs` | `order` | who awaits a copy to the host reads no byte of the one before |
//! | `waits.rs` | `waits` | no wait is lost, and none ends before its work, under any plan |
//! | `churn.rs` | `churn` | threads make, use and drop streams, lines and ports at once, and nothing is left |
//! | `exits.rs` | `exits` | a process that ends with waits in flight ends with code 0 |
//! | `behind.rs` | `behind` | work queued behind a point does not delay it |
//! | `faults.rs`, `meets.rs` | `faults` | a kernel that faults ends the waits of its context with the right cause soon after the driver tells, and no other process's |
//! | `soak/` | `soak` | for minutes: every host, plan and way of letting go at once, beside processes whose contexts are broken; only where it is asked for |
//! | `child.rs` | | the program run again, for what ends a process's use of the driver |
//!
//! Each thing that is checked is a line for people and a record; what does not hold is told with the reason, and ends the program with code 1
//! after all else was checked. Without arguments the counts are small; `--full` has those that a release is held to.
//!
//! ```console
//! $ cargo run --release -p wakeline-benches --bin gpu_checks -- --full --json gpu_checks.jsonl
//! ```

#![deny(unsafe_code)]

mod args;
mod behind;
mod child;
mod churn;
mod exits;
mod faults;
mod meets;
mod order;
mod output;
mod own;
mod soak;
mod waits;

use std::io::{self, Write as _};
use std::process::ExitCode;

use wakeline_benches::Environment;
use wakeline_benches::gpu::{Failure, Gpu, finish};

use args::{Args, Check, USAGE};
use output::Output;

fn main() -> ExitCode {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    finish("gpu_checks", Args::parse(words).map_err(Failure::Usage).and_then(|args| run(&args)))
}

fn run(args: &Args) -> Result<(), Failure> {
    if args.help {
        writeln!(io::stdout(), "{USAGE}")?;
        return Ok(());
    }
    let gpu = Gpu::open(args.driver.as_deref())?;
    if let Some(leaving) = args.leaving {
        return exits::leave(leaving, &gpu);
    }
    if let Some(row) = &args.meeting {
        return meets::meet(&gpu, row);
    }
    if let Some(fault) = args.ruining {
        return soak::ruin(&gpu, fault, args.seed);
    }
    let environment = Environment::of_this_thread(args.seed);
    let mut output = Output::new(io::stdout().lock(), args.json.as_deref(), &gpu, environment)?;
    for check in args.checks() {
        match check {
            Check::Order => order::order(&mut output, &gpu, args.counts.copies)?,
            Check::Waits => waits::waits(&mut output, &gpu, args.counts.waits)?,
            Check::Churn => churn::churn(&mut output, &gpu, args.counts.churn)?,
            Check::Exits => exits::exits(&mut output, args.driver.as_deref(), args.counts.exits)?,
            Check::Behind => behind::behind(&mut output, &gpu, args.counts.behind(), args.slack())?,
            Check::Faults => {
                faults::faults(&mut output, &gpu, args.driver.as_deref(), &args.faults(), args.slack())?;
            }
            Check::Soak => {
                let asked = (args.soak, args.seed);
                soak::soak(&mut output, &gpu, args.driver.as_deref(), asked, args.slack())?;
            }
        }
    }
    output.end()
}
