//! Waiting for kernels on a GPU: how long after a kernel's end who knows, at what cost.
//!
//! | file | suite | measures |
//! |---|---|---|
//! | `wake.rs`, `ways.rs` | `wake` | on the thread that waits: every plan, a point inside a kernel and the driver's own wait, beside a bare spin on the word |
//! | `hosts.rs` | `hosts` | tokio on one thread and on several, a watcher and a sleeping thread, beside the same spin, for kernels of 5 ms |
//! | `calls.rs` | `calls` | the driver calls that a wait is made of, one by one |
//! | `after.rs` | `after` | steps one behind the other: what the launch behind a wait takes, by how the thread waited |
//!
//! `bench.rs` holds the kernels and the hosts' parts, `samples.rs` what an arm did, `args.rs` and `output.rs` what goes in and comes out.
//!
//! A kernel stores the device's time when it ends; read on the host's time line that is what "known" is counted from. How far off that
//! is (some microseconds, in the records) is the same for all arms, which take turns in each round: what is compared are differences to the spin's.
//!
//! ```console
//! $ cargo run --release -p wakeline-benches --bin gpu -- --suite wake --json gpu.jsonl
//! ```

#![forbid(unsafe_code)]

mod after;
mod args;
mod bench;
mod calls;
mod hosts;
mod output;
mod samples;
mod wake;
mod ways;

use std::io::{self, Write as _};
use std::process::ExitCode;

use wakeline_benches::gpu::{Failure, Gpu, finish};
use wakeline_benches::{Apart, Environment};
use wakeline_core::Nanos;
use wakeline_std::TimerSlack;

use args::{Args, Suite, USAGE};
use bench::Bench;
use output::Output;

fn main() -> ExitCode {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    finish("gpu", Args::parse(words).map_err(Failure::Usage).and_then(|args| run(&args)))
}

fn run(args: &Args) -> Result<(), Failure> {
    if args.help {
        writeln!(io::stdout(), "{USAGE}")?;
        return Ok(());
    }
    let environment = Environment::of_this_thread(0);
    // The driver's threads, the watcher's and tokio's are on other processors than this one.
    let (opened, apart) = Apart::from(|| {
        let gpu = Gpu::open(args.driver.as_deref())?;
        Ok::<_, Failure>((Bench::new(&gpu)?, hosts::Hosts::new()?, gpu))
    });
    let (bench, hosts, gpu) = opened?;
    // From here on, so that the threads of others have what they always have. Where the system knows no slack, records say so.
    let _slack = TimerSlack::set(Nanos::ZERO).ok();
    let timer_slack_ns = TimerSlack::of_this_thread().map(Nanos::as_nanos);
    let environment = Environment { timer_slack_ns, ..environment };
    let mut output = Output::new(io::stdout().lock(), args.json.as_deref(), &gpu, &bench, environment)?;
    if apart.is_none() {
        output.line("all threads share a processor: the latencies are those of its scheduler")?;
    }
    for suite in args.suites() {
        let budget = args.budget(suite);
        match suite {
            Suite::Wake => wake::wake(&mut output, &bench, &budget)?,
            Suite::Hosts => hosts.measure(&mut output, &bench, &budget)?,
            Suite::Calls => calls::calls(&mut output, &bench, &budget)?,
            Suite::After => after::after(&mut output, &bench, &budget)?,
        }
    }
    Ok(())
}
