//! From the store of a completion word to the task that awaits it: what each way of waking takes.
//!
//! The device is played by a thread of its own, which stores a word at a set time. The arms take turns, round by round; each is a function in
//! `arms.rs`. What is compared is the median latency of a round, paired with that of the
//! arm that it is to be compared with.
//!
//! ```console
//! $ cargo run --release -p wakeline-benches --bin wake -- --seconds 30 --json wake.jsonl
//! ```

#![forbid(unsafe_code)]

mod arms;
mod bare;
mod stage;

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use wakeline::{Error, Nanos};
use wakeline_benches::{Apart, Environment, Interval, JsonLines, Paired, Quantiles, Record, Tail, Usage};
use wakeline_std::TimerSlack;
use wakeline_std::usage::process_cpu_time;

use arms::ARMS;
use stage::Stage;

const USAGE: &str = "usage: wake [--seconds N] [--json FILE]
  --seconds N   measure for about so long in all (default 20)
  --json FILE   write a record for each length of work and arm, as JSON lines";

/// How long the work takes that is waited for, microseconds: what eager steps, short and long graphs take.
const LENGTHS_US: [u64; 3] = [200, 1_000, 5_000];

/// How many waits an arm does in a round.
const WAITS: u32 = 20;

/// What a wait takes beside the work, roughly, microseconds.
const OVERHEAD_US: u64 = 100;

/// The fewest rounds that tell anything.
const ROUNDS_LEAST: u64 = 3;

/// What a record has beside what all have.
#[derive(Debug, Serialize)]
struct Detail {
    waits: u64,
    /// How long the work took, without what is drawn on top.
    length_ns: u64,
    /// From the store to the task.
    latency: Quantiles,
    /// CPU time of the process without what plays the device, all waits by their number.
    cpu_per_wait_ns: u64,
    /// Whether both threads had a processor of their own.
    threads_apart: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Args {
    seconds: u64,
    json: Option<PathBuf>,
    help: bool,
}

impl Args {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self { seconds: 20, json: None, help: false };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("`{word}` wants a value\n{USAGE}"));
            match word.as_str() {
                "--seconds" => {
                    let text = value()?;
                    let seconds = text.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
                    args.seconds = seconds
                        .ok_or_else(|| format!("`--seconds {text}` is not from 1 to 86400\n{USAGE}"))?;
                }
                "--json" => args.json = Some(value()?.into()),
                "--help" | "-h" => args.help = true,
                _ => return Err(format!("unknown argument `{word}`\n{USAGE}")),
            }
        }
        Ok(args)
    }
}

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(message) => return fail(&message, 2),
    };
    if args.help {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Failure::Output(error)) => fail(&format!("the results cannot be written: {error}"), 1),
        Err(Failure::Wait(error)) => fail(&error.to_string(), 1),
    }
}

fn fail(message: &str, code: u8) -> ExitCode {
    // Where even that cannot be written, the exit code tells.
    let _ = writeln!(io::stderr(), "wake: {message}");
    ExitCode::from(code)
}

/// Why it ends early.
enum Failure {
    Output(io::Error),
    Wait(Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Wait(error)
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    let mut json = args.json.as_ref().map(|path| File::create(path).map(JsonLines::new)).transpose()?;
    // Where it cannot be set, the environment's record says so.
    let _slack = TimerSlack::set(TimerSlack::LEAST);
    let environment = Environment::of_this_thread(0);
    // A real device needs no processor: the one that plays it shall not take the waiting thread's.
    let (stage, apart) = Apart::from(Stage::new);
    let stage = stage?;
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{}, {} CPUs, {} {}",
        environment.cpu, environment.cpus, environment.os, environment.kernel
    )?;
    if apart.is_none() {
        writeln!(out, "the threads share a processor: the latencies are those of its scheduler")?;
    }
    for (place, length_us) in LENGTHS_US.into_iter().enumerate() {
        let length = Nanos::from_micros(length_us);
        let left_us = args.seconds * 1_000_000 / LENGTHS_US.len() as u64;
        let round_us = (length_us + OVERHEAD_US) * u64::from(WAITS) * ARMS.len() as u64;
        let rounds = (left_us / round_us).max(ROUNDS_LEAST);
        let case = Case::measure(&stage, length, rounds)?;
        if place == 0 {
            writeln!(out, "{HEAD}")?;
        }
        writeln!(out, "work of {length_us} us, {rounds} rounds of {WAITS} waits")?;
        for (arm, result) in case.results.iter().enumerate() {
            let record = case.record(arm, result, length, apart.is_some(), &environment);
            writeln!(out, "{}", row(&record))?;
            if let Some(json) = &mut json {
                json.write(&record)?;
            }
        }
    }
    Ok(())
}

/// What the arms did for one length of work.
struct Case {
    paired: Paired,
    results: Vec<ArmResult>,
}

struct ArmResult {
    tail: Tail,
    usage: Usage,
    /// Of the process, without the device's thread.
    cpu: Nanos,
}

impl Case {
    fn measure(stage: &Stage, length: Nanos, rounds: u64) -> Result<Self, Error> {
        let result = || ArmResult { tail: Tail::new(), usage: Usage::default(), cpu: Nanos::ZERO };
        let mut results: Vec<_> = ARMS.iter().map(|_| result()).collect();
        // What an arm learns, and what is slow the first time.
        for arm in ARMS {
            (arm.run)(stage, length, WAITS)?;
        }
        let mut paired = Paired::new(ARMS.len());
        for _ in 0..rounds {
            paired.round(|arm| {
                let cpu = || process_cpu_time().unwrap_or(Nanos::ZERO) - stage.device_cpu();
                let (start, before) = (Usage::now(), cpu());
                let mut samples = (ARMS[arm].run)(stage, length, WAITS)?;
                results[arm].usage += Usage::now().since(start);
                results[arm].cpu = results[arm].cpu + (cpu() - before);
                for latency in &samples {
                    results[arm].tail.record(latency.as_nanos());
                }
                samples.sort_unstable();
                Ok::<_, Error>(samples.get(samples.len() / 2).map_or(0, |median| median.as_nanos()))
            })?;
        }
        Ok(Self { paired, results })
    }

    fn record(
        &self,
        arm: usize,
        result: &ArmResult,
        length: Nanos,
        threads_apart: bool,
        environment: &Environment,
    ) -> Record<Detail> {
        let latency = result.tail.quantiles();
        let base = ARMS.iter().position(|other| other.name == ARMS[arm].base).unwrap_or(0);
        Record {
            bench: "wake".to_owned(),
            case: format!("{} us", length.as_micros()),
            arm: ARMS[arm].name.to_owned(),
            base: ARMS[base].name.to_owned(),
            rounds: self.paired.rounds(),
            cost_ratio: self.paired.ratio(arm, base),
            usage: result.usage,
            detail: Detail {
                waits: latency.count,
                length_ns: length.as_nanos(),
                latency,
                cpu_per_wait_ns: result.cpu.as_nanos().checked_div(latency.count).unwrap_or(0),
                threads_apart,
            },
            environment: environment.clone(),
        }
    }
}

const HEAD: &str =
    "                             latency, us                                             CPU of a
  arm                     p50      p90      p99      max   by its base               wait, us";

#[allow(clippy::cast_precision_loss, reason = "shown with one digit")]
fn row(record: &Record<Detail>) -> String {
    let us = |ns: u64| ns as f64 / 1_000.0;
    let Quantiles { p50_ns, p90_ns, p99_ns, max_ns, .. } = record.detail.latency;
    let ratio = match record.cost_ratio {
        Some(Interval { mean, half_width: Some(half), .. }) => {
            format!("{mean:.2} ±{half:.2} {}", record.base)
        }
        Some(Interval { mean, .. }) => format!("{mean:.2} {}", record.base),
        None => "-".to_owned(),
    };
    format!(
        "  {:<18} {:>8.1} {:>8.1} {:>8.1} {:>8.1}   {:<27} {:>7.1}",
        record.arm,
        us(p50_ns),
        us(p90_ns),
        us(p99_ns),
        us(max_ns),
        ratio,
        us(record.detail.cpu_per_wait_ns)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_and_others_are_refused() {
        let parse = |words: &str| Args::parse(words.split_whitespace().map(str::to_owned));
        let default = Args { seconds: 20, json: None, help: false };
        assert_eq!(parse(""), Ok(default));
        let all = Args { seconds: 3, json: Some("a.jsonl".into()), help: true };
        assert_eq!(parse("--seconds 3 --json a.jsonl --help"), Ok(all));
        for (words, says) in [
            ("--second 3", "unknown argument `--second`"),
            ("--seconds 0", "`--seconds 0` is not from"),
            ("--json", "`--json` wants a value"),
        ] {
            assert!(parse(words).unwrap_err().starts_with(says), "{words}");
        }
    }

    #[test]
    fn every_arm_has_a_name_of_its_own() {
        let mut names: Vec<_> = ARMS.iter().map(|arm| arm.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ARMS.len());
    }
}
