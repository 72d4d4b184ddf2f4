//! Runs many seeds of the simulated program of waits; `cargo xtask soak` calls it.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use wakeline_tests::waits::{self, Summary};

/// Run simulated programs of waits and judge every wait against what really happened.
#[derive(Parser)]
#[command(name = "soak")]
struct Args {
    /// How many seeds to run, one program each.
    #[arg(long, default_value_t = 100_000)]
    seeds: u64,
    /// The first seed; a failing one is run again with `--seeds 1 --seed` and its number.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Stop after this many seconds, whatever the number of seeds.
    #[arg(long)]
    seconds: Option<u64>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let start = Instant::now();
    let mut summary = Summary::default();
    let mut seeds = 0;
    for offset in 0..args.seeds {
        if args.seconds.is_some_and(|seconds| start.elapsed().as_secs() >= seconds) {
            println!(
                "stopped after {seeds} of {} seeds: {} s are over",
                args.seeds,
                start.elapsed().as_secs()
            );
            break;
        }
        let seed = args.seed.wrapping_add(offset);
        match waits::run(seed) {
            Ok(one) => summary += one,
            Err(broken) => {
                println!("seed {seed}: {broken}");
                println!("again with: cargo xtask soak --seeds 1 --seed {seed}");
                return ExitCode::FAILURE;
            }
        }
        seeds += 1;
    }
    let Summary { waits, done, failed, dropped } = summary;
    let elapsed = start.elapsed();
    let a_second = u128::from(waits) * 1_000 / elapsed.as_millis().max(1);
    println!(
        "{seeds} seeds from {}: {waits} waits, {done} done, {failed} ended by a fault, deadline or token, \
         {dropped} dropped, none lost; {:.1} s, {a_second} waits a second",
        args.seed,
        elapsed.as_secs_f64()
    );
    ExitCode::SUCCESS
}
