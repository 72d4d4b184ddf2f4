//! `ops`: what awaiting device operations adds to a bare spin, what it costs, and how many a second there can be. JSON lines.
//!
//! See `wakeline_benches::ops` for how it is measured: on a simulated device in real time, played by a thread of its own, whose own CPU time is left
//! out, or by `--device cuda` on a GPU.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use wakeline_benches::compose::Compose;
use wakeline_benches::gpu::{CudaMachine, Failure, Gpu, finish};
use wakeline_benches::graphs::{GraphMachine, Launches};
use wakeline_benches::ops::Bench;
use wakeline_benches::sim::SimMachine;
use wakeline_core::{Error, Nanos};
use wakeline_ops::port::Gates;
use wakeline_sim::SimConfig;
use wakeline_std::{StdClock, TimerSlack};

const USAGE: &str = "usage: ops [--device sim|cuda] [--driver FILE] [--rounds N] [--seconds N] [CASE..]
  --device     what the work runs on (default: sim); cuda without a GPU says so and ends with code 3
  --driver     load this library in place of the system's driver
  --rounds N   rounds of each length (default: 20)
  --seconds N  how long each crowd runs (default: 3)
  CASE         await, submit, loop, idle, compose, graphs (default: all)";

/// Which lengths are awaited.
const LENGTHS_US: [u64; 6] = [5, 20, 100, 1_000, 5_000, 10_000];

struct Args {
    rounds: usize,
    seconds: u64,
    cuda: bool,
    driver: Option<PathBuf>,
    cases: Vec<String>,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args { rounds: 20, seconds: 3, cuda: false, driver: None, cases: Vec::new() };
    while let Some(word) = words.next() {
        if word == "--device" {
            args.cuda = match words.next().as_deref() {
                Some("sim") => false,
                Some("cuda") => true,
                _ => return Err(format!("`--device` wants `sim` or `cuda`\n{USAGE}")),
            };
            continue;
        }
        if word == "--driver" {
            args.driver =
                Some(words.next().ok_or_else(|| format!("`--driver` wants a file\n{USAGE}"))?.into());
            continue;
        }
        let mut number = || {
            let value = words
                .next()
                .and_then(|value| value.parse().ok())
                .filter(|value| (1..=100_000).contains(value));
            value.ok_or_else(|| format!("`{word}` wants a number from 1 to 100000\n{USAGE}"))
        };
        match word.as_str() {
            "--rounds" => args.rounds = usize::try_from(number()?).unwrap_or(1),
            "--seconds" => args.seconds = number()?,
            "await" | "submit" | "loop" | "idle" | "compose" | "graphs" => args.cases.push(word),
            _ => return Err(format!("unknown argument `{word}`\n{USAGE}")),
        }
    }
    Ok(args)
}

fn print(line: &impl Serialize) {
    // Where that cannot be written, there is nobody to be told.
    if let Ok(line) = serde_json::to_string(line) {
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

fn run<M: GraphMachine<Device: Gates>>(machine: M, args: &Args) -> Result<(), Error> {
    let bench = Bench::new(machine)?;
    let wants = |case: &str| args.cases.is_empty() || args.cases.iter().any(|wanted| wanted == case);
    let time = Duration::from_secs(args.seconds);
    if wants("await") {
        for us in LENGTHS_US {
            bench.awaits(Nanos::from_micros(us), args.rounds)?.iter().for_each(print);
        }
    }
    if wants("submit") {
        bench.submits(args.rounds)?.iter().for_each(print);
    }
    if wants("loop") {
        let length = Nanos::from_micros(50);
        print(&bench.raw_loop(512, 16, length, time)?);
        for tasks in [8, 64, 512] {
            print(&bench.crowd("loop", (tasks, 16), (length, 0), time)?);
        }
    }
    if wants("idle") {
        for (streams, late_us) in [(4, 0), (4, 500), (64, 0), (64, 500)] {
            print(&bench.crowd("idle", (64, streams), (Nanos::from_millis(20), late_us), time)?);
        }
    }
    if wants("compose") {
        let compose = Compose::new(bench.machine())?;
        compose.run(args.rounds)?.iter().for_each(print);
        compose.close()?;
    }
    if wants("graphs") {
        let launches = Launches::new(bench.machine())?;
        launches.run(args.rounds)?.iter().for_each(print);
        launches.close()?;
    }
    bench.close()
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(message) => {
            eprintln!("ops: {}", wakeline_benches::plain(&message));
            return ExitCode::from(2);
        }
    };
    // This thread's sleeps end in time.
    let _slack = TimerSlack::set(TimerSlack::LEAST);
    let ran = if args.cuda {
        let machine =
            Gpu::open(args.driver.as_deref()).and_then(|gpu| Ok(CudaMachine::new(&gpu.context()?)?));
        machine.and_then(|machine| Ok(run(machine, &args)?))
    } else {
        SimMachine::start(StdClock::new(), SimConfig { slots_max: 1_024, ..SimConfig::default() })
            .and_then(|machine| run(machine, &args))
            .map_err(Failure::from)
    };
    finish("ops", ran)
}
