//! Runs crowds of waits in real time on every host that can be had, and judges each against the truth.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use wakeline_tests::crowds::{self, Host, Run};

/// Wait on every host in real time, and judge every wait against what really happened.
#[derive(Parser)]
#[command(name = "crowds")]
struct Args {
    /// The first seed; those after it are taken as well, one a run.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Stop after this many seconds, whatever the number of waits.
    #[arg(long)]
    seconds: Option<u64>,
    /// How many waits, on all hosts together.
    #[arg(long, default_value_t = 10_000_000)]
    waits: u64,
}

/// The waits on each host that can be had, in runs of at most a million: a hang is found within its run.
fn hosts(args: &Args) -> ExitCode {
    let start = Instant::now();
    let within = Duration::from_secs(args.seconds.unwrap_or(3_600));
    let mut hosts = Vec::from(Host::ALL);
    hosts.retain(|host| host.lacks().inspect(|lack| println!("skipped: {lack} ({host})")).is_none());
    let mut all = crowds::Summary::default();
    let mut seed = args.seed;
    for (place, &host) in hosts.iter().enumerate() {
        let left = u32::try_from(hosts.len() - place).unwrap_or(u32::MAX);
        // What is left of both, shared among those that are left.
        let waits = (args.waits - all.waits).div_ceil(left.into());
        let within = within.saturating_sub(start.elapsed()) / left;
        match one_host(host, &mut seed, waits, within) {
            Ok(its) => all += its,
            Err(broken) => {
                println!("{broken}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!(
        "{} hosts, {} skipped: {all:?}: none lost; {:.1} s",
        hosts.len(),
        Host::ALL.len() - hosts.len(),
        start.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}

/// The waits on one host; takes a seed a run.
fn one_host(host: Host, seed: &mut u64, waits: u64, within: Duration) -> Result<crowds::Summary, String> {
    let start = Instant::now();
    let mut all = crowds::Summary::default();
    while all.waits < waits && start.elapsed() < within {
        let run = Run {
            seed: *seed,
            waits: (waits - all.waits).min(1_000_000),
            within: within.saturating_sub(start.elapsed()),
            host,
        };
        all += crowds::run(run).map_err(|broken| format!("{host}, seed {seed}: {broken}"))?;
        *seed = seed.wrapping_add(1);
    }
    let a_second = u128::from(all.waits) * 1_000 / start.elapsed().as_millis().max(1);
    println!("{host:<19}: {} waits, {a_second} a second, the latest by {}", all.waits, all.latest);
    Ok(all)
}

fn main() -> ExitCode {
    hosts(&Args::parse())
}
