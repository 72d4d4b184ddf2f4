//! Runs many seeds of the simulated program of waits; `cargo xtask soak` calls it. With `--hosts`, crowds of waits on a watcher in real
//! time instead.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use wakeline_tests::crowds;
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
    /// Wait on a watcher in real time instead: with 1 and 4 shards in turn, by `--seed` and those after it.
    #[arg(long)]
    hosts: bool,
    /// How many waits with `--hosts`.
    #[arg(long, default_value_t = 10_000_000)]
    waits: u64,
}

/// The waits on a watcher, in runs of at most a million: a hang is found within its run.
fn hosts(args: &Args) -> ExitCode {
    let start = Instant::now();
    let mut all = crowds::Summary::default();
    let within = Duration::from_secs(args.seconds.unwrap_or(3_600));
    let mut seed = args.seed;
    while all.waits < args.waits && start.elapsed() < within {
        let shards = if seed.is_multiple_of(2) { 1 } else { 4 };
        let waits = (args.waits - all.waits).min(1_000_000);
        let within = within.saturating_sub(start.elapsed());
        match crowds::run(crowds::Run { seed, waits, within, shards }) {
            Ok(one) => all += one,
            Err(broken) => {
                println!("seed {seed}, {shards} shard(s): {broken}");
                return ExitCode::FAILURE;
            }
        }
        seed = seed.wrapping_add(1);
    }
    println!("{all:?}: none lost; {:.1} s", start.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.hosts {
        return hosts(&args);
    }
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
