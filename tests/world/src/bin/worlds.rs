//! Runs many seeds of simulated programs, on all processors; `cargo xtask soak` calls it.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use wakeline_world::kinds::{Kind, Total};
use wakeline_world::script::Part;
use wakeline_world::shrink::{self, RUNS_MAX, SECONDS_MAX};

/// A program that runs longer than this counts as hung: the longest of 100,000 took a fraction of a second.
const PROGRAM_S_MAX: u64 = 60;

/// How often it is looked whether one hangs.
const LOOK_MS: u64 = 100;

/// Run simulated programs and judge each against what really happened.
#[derive(Parser)]
#[command(name = "worlds")]
struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first seed; a failing one is run again with `--seeds 1 --seed` and its number.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Stop after this many seconds, whatever the number of seeds.
    #[arg(long)]
    seconds: Option<u64>,
    /// One kind of programs alone: waits, swarm, graphs or whole.
    #[arg(long)]
    kind: Option<Kind>,
    /// These parts of a program alone, as a failure names them.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// How many threads run seeds of their own; as many as there are processors where it is not said.
    #[arg(long)]
    threads: Option<usize>,
    /// Tell of a failing program as it is, without making it smaller.
    #[arg(long)]
    quick: bool,
    /// Write what each kind came to as a line of JSON.
    #[arg(long)]
    json: bool,
}

/// What a thread is at, for who looks whether it hangs.
#[derive(Default)]
struct At {
    /// In milliseconds since the start, and one more; 0 where it is at nothing.
    since_ms: AtomicU64,
    program: AtomicU64,
    kind: AtomicU64,
}

struct Run {
    args: Args,
    start: Instant,
    next: AtomicU64,
    /// Somebody has failed, or the time is over.
    over: AtomicBool,
    failed: Mutex<Option<(Kind, u64, String)>>,
    totals: Mutex<[(Total, Duration); Kind::ALL.len()]>,
    at: Vec<At>,
}

impl Run {
    fn kinds(&self) -> impl Iterator<Item = (usize, Kind)> {
        let only = self.args.kind;
        Kind::ALL.into_iter().enumerate().filter(move |(_, kind)| only.is_none_or(|only| only == *kind))
    }

    fn ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Seeds, one after the other, until there are no more.
    fn work(&self, at: &At) {
        let script = wakeline_world::script::Script::all();
        let mut totals = [(Total::default(), Duration::ZERO); Kind::ALL.len()];
        while !self.over.load(Ordering::Relaxed) {
            let offset = self.next.fetch_add(1, Ordering::Relaxed);
            if offset >= self.args.seeds
                || self.args.seconds.is_some_and(|seconds| self.start.elapsed().as_secs() >= seconds)
            {
                break;
            }
            let seed = self.args.seed.wrapping_add(offset);
            for (number, kind) in self.kinds() {
                let began = Instant::now();
                // A seed of its own for each of them; whoever names one kind names its programs.
                let programs = if self.args.kind.is_some() { 1 } else { kind.programs() };
                for program in 0..programs {
                    let seed = seed.wrapping_mul(programs).wrapping_add(program);
                    at.kind.store(number as u64, Ordering::Relaxed);
                    at.program.store(seed, Ordering::Relaxed);
                    at.since_ms.store(self.ms() + 1, Ordering::Release);
                    match kind.run(seed, &script) {
                        Ok(total) => totals[number].0 += total,
                        Err(broken) => return self.fail(kind, seed, broken),
                    }
                }
                totals[number].1 += began.elapsed();
            }
        }
        at.since_ms.store(0, Ordering::Release);
        let mut all = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        for (all, its) in all.iter_mut().zip(totals) {
            all.0 += its.0;
            all.1 += its.1;
        }
    }

    fn fail(&self, kind: Kind, seed: u64, broken: String) {
        self.over.store(true, Ordering::Relaxed);
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert((kind, seed, broken));
    }

    /// Ends the process where a program hangs in real time, which no error could.
    fn look(&self) {
        let now = self.ms();
        for at in &self.at {
            let since = at.since_ms.load(Ordering::Acquire);
            if since > 0 && now.saturating_sub(since) > PROGRAM_S_MAX * 1_000 {
                let number = usize::try_from(at.kind.load(Ordering::Relaxed)).unwrap_or(0);
                let (kind, seed) = (Kind::ALL[number], at.program.load(Ordering::Relaxed));
                println!("{kind}, seed {seed}: hangs, for {PROGRAM_S_MAX} s by now");
                println!("again with: {}", again(kind, seed, &BTreeSet::new()));
                std::process::exit(1);
            }
        }
    }
}

fn again(kind: Kind, seed: u64, only: &BTreeSet<Part>) -> String {
    let parts: Vec<_> = only.iter().map(ToString::to_string).collect();
    let only = if parts.is_empty() { String::new() } else { format!(" --only {}", parts.join(",")) };
    format!("cargo xtask soak --seeds 1 --seed {seed} --kind {kind}{only}")
}

/// Tells of a failing program, made as small as it gets.
fn tell(kind: Kind, seed: u64, only: Option<BTreeSet<Part>>) -> ExitCode {
    let Some(small) = shrink::shrink(kind, seed, only) else {
        println!("{kind}, seed {seed}: holds");
        return ExitCode::SUCCESS;
    };
    println!("{kind}, seed {seed}: {}", small.broken);
    println!("again with: {}", again(kind, seed, &BTreeSet::new()));
    println!(
        "made smaller by {} runs (at most {RUNS_MAX}, or {SECONDS_MAX} s): {} parts; with them alone: {}",
        small.runs,
        small.parts.len(),
        again(kind, seed, &small.parts)
    );
    for line in small.lines {
        println!("  {line}");
    }
    ExitCode::FAILURE
}

fn main() -> ExitCode {
    let args = Args::parse();
    if !args.only.is_empty() {
        let Some(kind) = args.kind else {
            println!("--only names parts of a program of one kind: name that by --kind");
            return ExitCode::FAILURE;
        };
        return tell(kind, args.seed, Some(args.only.into_iter().collect()));
    }
    let threads = args.threads.or_else(|| thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let run = Run {
        args,
        start: Instant::now(),
        next: AtomicU64::new(0),
        over: AtomicBool::new(false),
        failed: Mutex::new(None),
        totals: Mutex::default(),
        at: (0..threads.max(1)).map(|_| At::default()).collect(),
    };
    thread::scope(|scope| {
        let workers: Vec<_> = run.at.iter().map(|at| scope.spawn(|| run.work(at))).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            run.look();
            thread::sleep(Duration::from_millis(LOOK_MS));
        }
    });
    let failed = run.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((kind, seed, broken)) = failed {
        if run.args.quick {
            println!("{kind}, seed {seed}: {broken}");
            return ExitCode::FAILURE;
        }
        return tell(kind, seed, None);
    }
    report(&run);
    ExitCode::SUCCESS
}

fn report(run: &Run) {
    let seeds = run.next.load(Ordering::Relaxed).min(run.args.seeds);
    let totals = run.totals.lock().unwrap_or_else(PoisonError::into_inner);
    for (number, kind) in run.kinds() {
        let (Total { programs, waits, done, flights, leaked, streams, polls }, took) = totals[number];
        let (seed, took_ms) = (run.args.seed, took.as_millis());
        if run.args.json {
            println!(
                "{{\"bench\":\"soak\",\"case\":\"{kind}\",\"seed\":{seed},\"seeds\":{seeds},\"programs\":{programs},\"waits\":{waits},\"done\":{done},\
                 \"flights\":{flights},\"leaked\":{leaked},\"streams\":{streams},\"polls\":{polls},\"thread_ms\":{took_ms},\"broken\":0}}"
            );
        } else {
            println!(
                "{kind:<6}: {programs} programs, {waits} waits judged, {done} done; {flights} flights, {leaked} leaked and counted, \
                 {streams} streams, {polls} polls; {:.1} s of a thread",
                took.as_secs_f64()
            );
        }
    }
    if !run.args.json {
        println!(
            "{seeds} seeds from {}: all promises held; {:.1} s",
            run.args.seed,
            run.start.elapsed().as_secs_f64()
        );
    }
}
