//! What waiting for GPU work costs, on recorded steps and a simulated device (no GPU needed) or a GPU (`--device cuda`).
//!
//! ```text
//! cargo run --release --example decode_loop
//! ```
//!
//! Each recorded step becomes a work item of the same length on a device that runs in real time, a simulated one by default, and is waited for under several
//! plans in turn. `--help` lists the arguments.
//!
//! | file | what |
//! |---|---|
//! | `cli.rs` | the arguments |
//! | `steps.rs` | which recorded steps are replayed |
//! | `plans.rs` | the ways of waiting, and a margin for this machine |
//! | `hosts.rs` | who waits, and what that needs |
//! | `device/` | what plays the steps |
//! | `replay.rs` | launching a step, waiting for it and measuring the wait: **the part that uses wakeline** |
//! | `watched.rs` | the same where a watcher's thread watches |
//! | `meter.rs` | what several threads use |
//! | `tally.rs` | what the waits of one plan add up to |
//! | `table.rs` | the output |

#![forbid(unsafe_code)]

mod cli;
mod device;
mod hosts;
mod meter;
mod plans;
mod replay;
mod steps;
mod table;
mod tally;
mod watched;

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use thiserror::Error;
use wakeline::{Nanos, WaitBands};
use wakeline_measure::trace::{Row, TraceError, TraceWriter};
use wakeline_measure::{Apart, Environment, JsonLines, Paired};
use wakeline_std::{NAMED_POINTS_MAX, Oversleep, ParkPolicy, Points, StdClock, TimerSlack};

use cli::{Cli, Where};
use device::Device;
use device::cuda::Gpu;
use device::sim::Sim;
use hosts::{Host, Waiters};
use replay::{Learned, Stage};
use steps::{STEPS_A_ROUND, Source, Workload};
use table::Table;
use tally::Tally;

/// A workload is cut short when the run has taken so many hundredths of the time it was to take.
const OVERRUN_PERCENT: u32 = 125;

/// What the simulated device's random draws come from.
const SEED: u64 = 0;

fn main() -> ExitCode {
    let failure = match run() {
        Ok(()) => return ExitCode::SUCCESS,
        Err(failure) => failure,
    };
    match failure {
        // Whoever reads has seen enough.
        Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        Failure::Help(text) => {
            let _ = io::stdout().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    // Where even that cannot be written, the exit code tells.
    let _ = writeln!(io::stderr(), "decode_loop: {failure}");
    ExitCode::from(failure.code())
}

/// Why the program ends early.
#[derive(Debug, Error)]
enum Failure {
    /// Help was asked for.
    #[error("{0}")]
    Help(String),
    /// The arguments are wrong.
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The records cannot be written.
    #[error("{file}: the records cannot be written: {error}")]
    Json { file: String, error: io::Error },
    /// The trace cannot be written.
    #[error("{file}: the trace cannot be written: {error}")]
    Record { file: String, error: io::Error },
    /// The text for Prometheus cannot be written.
    #[error("{file}: the statistics cannot be written: {error}")]
    Prometheus { file: String, error: io::Error },
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
    /// A wait or the device failed.
    #[error(transparent)]
    Wait(#[from] wakeline::Error),
    /// A wait returned before its work had ended.
    #[error("a wait returned before its step had ended")]
    TooEarly,
    /// An arm has a host that was not started, which would be a fault of this program.
    #[error("the host of an arm was not started")]
    NoHost,
    /// There is no GPU to play them on.
    #[error("no CUDA device: {0}; `--device auto` takes a simulated one instead")]
    NoGpu(wakeline::Error),
    /// The task that waited is gone.
    #[error("the task of the waits failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Self::Help(_) => 0,
            Self::Usage(_)
            | Self::Trace(_)
            | Self::Json { .. }
            | Self::Record { .. }
            | Self::Prometheus { .. } => 2,
            Self::NoGpu(_) => 3,
            Self::Output(_) | Self::Wait(_) | Self::TooEarly | Self::NoHost | Self::Task(_) => 1,
        }
    }
}

fn run() -> Result<(), Failure> {
    let cli = Cli::read()?;
    let plans = cli.plans()?;
    let policy =
        ParkPolicy::new(cli.spin_us, cli.nap_us).map_err(|error| Failure::Usage(error.to_string()))?;
    let source = Source::new(cli.trace.as_deref());
    let (hosts, left_out) = hosts::choose(&cli.hosts)?;
    let sketch = plans::sketch(&cli, &plans, &hosts)?;
    let workloads = steps::load(&source, &cli, &sketch)?;
    for left in left_out {
        // Whoever closes it does not want to know.
        let _ = writeln!(io::stderr(), "decode_loop: {left}");
    }
    let setup = Setup { cli, plans, policy, source, hosts, sketch, workloads };
    let clock = StdClock::new();
    let gpu = match setup.cli.device {
        Where::Sim => None,
        Where::Cuda => Some(Gpu::open(clock).map_err(no_gpu)?),
        Where::Auto => match Gpu::open(clock) {
            Ok(gpu) => Some(gpu),
            Err(error) => {
                let _ = writeln!(io::stderr(), "decode_loop: warning: on a simulated device: {error}");
                None
            }
        },
    };
    match gpu {
        Some(gpu) => setup.measure(clock, || Ok(gpu)),
        None => setup.measure(clock, || Sim::start(clock, SEED)),
    }
}

/// Tells that there is no GPU from what is wrong with one.
fn no_gpu(error: wakeline::Error) -> Failure {
    if error.code().is_no_device() { Failure::NoGpu(error) } else { Failure::Wait(error) }
}

/// What is to be measured, and how.
struct Setup {
    cli: Cli,
    plans: Vec<WaitBands>,
    policy: ParkPolicy,
    source: Source,
    hosts: Vec<Host>,
    sketch: Vec<plans::Arm>,
    workloads: Vec<Workload>,
}

impl Setup {
    /// Measures on this device.
    fn measure<D: Device>(
        &self,
        clock: StdClock,
        device: impl FnOnce() -> Result<D, Failure>,
    ) -> Result<(), Failure> {
        let Self { cli, plans, policy, source, hosts, sketch, workloads } = self;
        let policy = *policy;
        let json = cli.json.as_deref().map(|path| {
            let failed = |error| Failure::Json { file: path.display().to_string(), error };
            File::create(path).map(JsonLines::new).map_err(failed)
        });
        let mut json = json.transpose()?;
        let prometheus = cli.prometheus.as_deref().map(|path| {
            let failed = |error| Failure::Prometheus { file: path.display().to_string(), error };
            let file = File::create(path).map_err(failed)?;
            Ok::<_, Failure>(move |text: &str| (&file).write_all(text.as_bytes()).map_err(failed))
        });
        let prometheus = prometheus.transpose()?;

        let mut recorded = cli.record.as_deref().map(Recorded::create).transpose()?;

        // Timers of this thread end as exactly as the machine can: its default is 50 us late.
        let slack_before = TimerSlack::of_this_thread();
        let slack = TimerSlack::set(TimerSlack::LEAST);
        let environment = Environment::of_this_thread(SEED);
        let waiters = Waiters::start(hosts, clock, policy)?;
        // A real device needs no processor: the simulated one shall not take the waiting thread's.
        let (device, apart) = Apart::from(device);
        let stage = Stage::new(clock, policy, device?, waiters);
        let oversleep = plans::oversleep(clock)?;

        let mut table = Table::new(io::stdout().lock(), cli.quiet);
        table.title(source, stage.device.name(), &environment)?;
        table.timers(slack_before, slack.as_ref().err(), &oversleep)?;
        table.hosts(hosts)?;
        table.threads(apart.as_ref(), stage.device.name().is_some(), hosts)?;
        table.parking(policy, stage.park_warning().as_ref())?;
        table.plans(&plans::texts(sketch, plans))?;
        let points = Points::new(NAMED_POINTS_MAX)?;
        let end = Instant::now() + Duration::from_secs(cli.seconds.into()) * OVERRUN_PERCENT / 100;
        for workload in workloads {
            let run = replay(&stage, workload, cli, (plans, hosts), &oversleep, &points, end)?;
            table.workload(workload, &run)?;
            if cli.stats {
                table.statistics(&run)?;
            }
            if let Some(recorded) = &mut recorded {
                recorded.workload(workload, &run)?;
            }
            if let (Some(json), Some(path)) = (&mut json, &cli.json) {
                for (number, tally) in run.tallies.iter().enumerate() {
                    let record = tally.record(workload, &run, number, source, &environment);
                    json.write(&record)
                        .map_err(|error| Failure::Json { file: path.display().to_string(), error })?;
                }
            }
        }
        table.legend(hosts)?;
        if let Some(write) = prometheus {
            write(&points.snapshot().prometheus())?;
        }
        stage.close()
    }
}

/// The trace that `--record` asks for.
struct Recorded {
    trace: TraceWriter<BufWriter<File>>,
    file: String,
}

impl Recorded {
    fn create(path: &Path) -> Result<Self, Failure> {
        let file = path.display().to_string();
        let trace = File::create(path).and_then(|out| TraceWriter::new(BufWriter::new(out)));
        match trace {
            Ok(trace) => Ok(Self { trace, file }),
            Err(error) => Err(Failure::Record { file, error }),
        }
    }

    /// Adds what was seen of a workload.
    fn workload(&mut self, workload: &Workload, run: &Run) -> Result<(), Failure> {
        let seen = run.tallies.first().and_then(|tally| tally.seen.as_ref());
        for ((step, residual), number) in seen.into_iter().flatten().zip(0..) {
            let row = Row {
                workload: &workload.name,
                point: workload.points.get(step.key.0).map_or("_", String::as_str),
                rows: step.rows,
                step: number,
                enqueue_ns: 0,
                residual_ns: residual.as_nanos(),
                gpu_ns: step.residual.as_nanos(),
            };
            self.trace.row(&row).map_err(|error| self.failed(error))?;
        }
        // What is kept back would be lost without a word.
        self.trace.flush().map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> Failure {
        Failure::Record { file: self.file.clone(), error }
    }
}

/// What replaying a workload gave.
struct Run {
    tallies: Vec<Tally>,
    paired: Paired,
    /// Where the plans are the default ones.
    margin: Option<plans::Margin>,
    oversleep_p99: Nanos,
    /// What played the steps, where it is not simulated.
    on: Option<String>,
    /// By how much the simulated device's thread stored words late.
    device: wakeline_measure::Tail,
    /// It took longer than it was to take, and was cut short.
    cut_short: bool,
}

/// Waits for the steps of a workload, round by round, in each round under every plan.
fn replay<D: Device>(
    stage: &Stage<D>,
    workload: &Workload,
    cli: &Cli,
    (plans, hosts): (&[WaitBands], &[Host]),
    oversleep: &Oversleep,
    points: &Points,
    end: Instant,
) -> Result<Run, Failure> {
    let margin = plans::Margin::new(oversleep, workload.shortfall);
    let arms = plans::arms(cli, plans, hosts, margin.total)?;
    // Each arm learns from its own waits alone.
    let learned = arms.iter().map(|_| Learned::new()).collect::<Result<Vec<_>, _>>()?;
    let tally = |arm: &plans::Arm| {
        let point = points.point(&format!("{}/{}", workload.name, arm.name))?;
        Ok::<_, Failure>(Tally::new(arm.clone(), point))
    };
    let mut run = Run {
        paired: Paired::new(arms.len()),
        tallies: arms.iter().map(tally).collect::<Result<_, _>>()?,
        margin: plans.is_empty().then_some(margin),
        oversleep_p99: margin.oversleep,
        on: stage.device.name().map(str::to_owned),
        device: wakeline_measure::Tail::new(),
        cut_short: false,
    };
    // The first polls: what it sees is what a spin sees.
    run.tallies[0].seen = cli.record.is_some().then(Vec::new);
    let rounds = workload.steps.chunks(STEPS_A_ROUND);
    let progress = progress(&workload.name, rounds.len(), cli.quiet);
    for steps in rounds {
        if Instant::now() >= end && run.paired.rounds() > 0 {
            run.cut_short = true;
            break;
        }
        let Run { paired, tallies, device, .. } = &mut run;
        paired.round(|arm| tallies[arm].round(stage, steps, &learned[arm], device))?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(run)
}

/// A bar on the terminal, where there is one. Drawn between rounds only.
fn progress(workload: &str, rounds: usize, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(rounds as u64).with_message(workload.to_owned());
    match ProgressStyle::with_template("  {msg:14} [{bar:40}] round {pos} of {len}, {eta} left") {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}
