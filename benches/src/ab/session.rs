//! A run under way: what all suites need, the rounds of a case, and where its cells go.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant as Wall};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use wakeline_core::{Error, Nanos};
use wakeline_std::usage::{process_cpu_time, thread_cpu_time, thread_switches};

use super::arms::{Arm, Host, Way};
use super::device::{Device, RawWay};
use super::energy::{Energy, Used};
use super::hosts::{Hosts, Line, Waiter};
use super::rounds::{ArmLabel, Label, Rounds, Turn, quantity};
use super::schema;
use crate::JsonLines;
use crate::gpu::Failure;
use crate::threads::Threads;

/// The fewest rounds that tell anything, and the most that are run.
const ROUNDS_LEAST: usize = 5;
const ROUNDS_MAX: usize = 2_000;

/// How many rounds are run before those that count: what arms learn, and what is slow the first time.
const WARM_UPS: u64 = 2;

/// How much is to be run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Fewer cases, and less of each.
    pub quick: bool,
    /// What loads are drawn from.
    pub seed: u64,
    /// Exactly so many rounds a case, however long they take.
    pub rounds: Option<usize>,
    /// So long a suite, in place of its own time.
    pub seconds: Option<u64>,
}

/// What all suites need.
pub struct Setup<'s, D: Device> {
    /// What work runs on.
    pub device: &'s D,
    /// Who waits for it.
    pub hosts: &'s Hosts<Line<D>>,
    /// The driver's and the peers' ways.
    pub ways: &'s Ways<'s>,
    /// The counters.
    pub energy: &'s Energy,
    /// The arms that were chosen.
    pub arms: &'s [Arm],
    /// All arms that there are: a base is run whether or not it was chosen.
    pub all: &'s [Arm],
    /// How much is to be run.
    pub extent: Extent,
}

impl<D: Device> core::fmt::Debug for Setup<'_, D> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Setup")
            .field("device", &D::KIND)
            .field("extent", &self.extent)
            .finish_non_exhaustive()
    }
}

/// The driver's and the peers' ways.
pub struct Ways<'w>(pub Vec<Box<dyn RawWay + 'w>>);

impl core::fmt::Debug for Ways<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|way| way.name())).finish()
    }
}

/// The arms of a case, and which of them the others are compared with.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The arms.
    pub arms: Vec<Arm>,
    /// The index of the base.
    pub base: usize,
}

/// A case of a suite.
#[derive(Clone, Debug)]
pub struct Named {
    /// What its cells are called.
    pub label: Label,
    /// How long it may take.
    pub budget: Duration,
}

impl<D: Device> Setup<'_, D> {
    /// The chosen arms that `fit`, with the first of `bases` that there is; `None` where nothing but that would be left.
    pub fn choose(&self, bases: &[&str], fit: impl Fn(&Arm) -> bool) -> Option<Chosen> {
        let mut arms: Vec<Arm> = self.arms.iter().filter(|arm| fit(arm)).cloned().collect();
        if arms.is_empty() {
            return None;
        }
        let named = |base: &&str| self.all.iter().find(|arm| arm.name == **base);
        let base = bases.iter().find_map(named)?;
        if !arms.contains(base) {
            arms.insert(0, base.clone());
        }
        let base = arms.iter().position(|arm| arm == base)?;
        Some(Chosen { arms, base })
    }

    /// For waits of this thread.
    pub fn waiter(&self) -> Waiter<'_, D> {
        Waiter::new(self.device, self.hosts, &self.ways.0)
    }

    /// Runs the rounds of a case, and writes its cells. `turn` has an arm, by its index, take its turn in a round, by its number: rounds of
    /// one number are the same load for all arms.
    ///
    /// # Errors
    ///
    /// What `turn` fails with, or the cells cannot be written.
    pub fn rounds(
        &self,
        output: &mut Output,
        named: &Named,
        chosen: &Chosen,
        mut turn: impl FnMut(usize, u64) -> Result<Turn, Error>,
    ) -> Result<(), Failure> {
        output.begins(&named.label, self.extent.rounds);
        for warm_up in 0..WARM_UPS {
            for arm in 0..chosen.arms.len() {
                turn(arm, warm_up)?;
                output.ticks();
            }
        }
        let mut rounds = Rounds::new(chosen.arms.len(), named.label.seed(self.extent.seed));
        let start = Wall::now();
        let more = |rounds: usize| match self.extent.rounds {
            Some(wanted) => rounds < wanted,
            None => rounds < ROUNDS_LEAST || (start.elapsed() < named.budget && rounds < ROUNDS_MAX),
        };
        while more(rounds.rounds()) {
            let number = WARM_UPS + rounds.rounds() as u64;
            rounds.round(|arm| {
                output.ticks();
                turn(arm, number)
            })?;
            output.advances(rounds.rounds(), start.elapsed(), named.budget);
        }
        let labels: Vec<ArmLabel> = chosen.arms.iter().map(Arm::label).collect();
        for arm in 0..chosen.arms.len() {
            output.write(&schema::Line::Cell(rounds.cell(&named.label, &labels, (arm, chosen.base))))?;
        }
        Ok(())
    }

    /// Runs a part of a turn of this arm, and says what it used.
    ///
    /// # Errors
    ///
    /// What `run` fails with.
    pub fn metered<T>(
        &self,
        arm: &Arm,
        run: impl FnOnce() -> Result<T, Error>,
    ) -> Result<(T, Meters), Error> {
        let whose = match arm.way {
            Way::Raw(way) if self.ways.0[way].has_threads() => Whose::Process,
            Way::Plan(_, Host::Watcher) => Whose::Watcher,
            // Tasks are on a runtime's threads, and what they have not seen themselves is a watcher's.
            Way::Operation(_) => Whose::Process,
            _ => Whose::Own,
        };
        // The threads' counts are files, and take the longest to read: they are the outermost.
        let watching = || if whose == Whose::Watcher { Threads::now() } else { None };
        let threads = watching();
        let (energy, device, own) = (self.energy.now(), self.device.own_cpu(), Own::now());
        let start = Wall::now();
        let result = run()?;
        let took = start.elapsed();
        // In the other order, so that reading is in neither.
        let (own_now, device_now, energy_now) = (Own::now(), self.device.own_cpu(), self.energy.now());
        let threads = watching().zip(threads).map(|(now, then)| now.since(then));
        let thread = own_now.thread.zip(own.thread).map(|(now, then)| now - then);
        // The playing thread's own count may be ahead of the process's by a scheduler's tick.
        let process = own_now.process.zip(own.process);
        let process = process.map(|(now, then)| (now - then) - (device_now - device));
        let (others, other_switches) = match whose {
            Whose::Own => (Some(Nanos::ZERO), Some(0)),
            // Where they are not shown, what they used is not known.
            Whose::Watcher => (
                threads.map(|threads| Nanos::from_nanos(threads.cpu_ns)),
                threads.map(|threads| threads.wake_ups),
            ),
            Whose::Process => (process.zip(thread).map(|(all, own)| all - own), None),
        };
        let meters = Meters {
            took,
            thread,
            process,
            switches: own_now.switches.zip(own.switches).map(|(now, then)| now - then),
            others,
            other_switches,
            energy: self.energy.used(&energy, &energy_now),
        };
        Ok((result, meters))
    }
}

/// Whose CPU time is an arm's, besides this thread's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Nobody's.
    Own,
    /// The watcher's threads'.
    Watcher,
    /// All of the process's: of threads that nobody here knows.
    Process,
}

/// What this thread and the process have used; `None` where the system does not tell.
#[derive(Clone, Copy)]
struct Own {
    thread: Option<Nanos>,
    process: Option<Nanos>,
    switches: Option<u64>,
}

impl Own {
    fn now() -> Self {
        Self {
            switches: thread_switches().map(|switches| switches.voluntary),
            process: process_cpu_time(),
            thread: thread_cpu_time(),
        }
    }
}

/// How long a turn has to take for its energy to be told: a GPU's counter moves every 20 to 100 ms (60 on an H200), and what a shorter turn reads is nothing, or
/// another's. What a step too many or too few makes in a longer one shows in the interval of the rounds.
pub const ENERGY_TURN_LEAST: Duration = Duration::from_millis(100);

/// What a part of a turn used.
#[derive(Clone, Copy, Debug)]
pub struct Meters {
    /// How long it took.
    pub took: Duration,
    /// CPU time of this thread.
    pub thread: Option<Nanos>,
    /// CPU time of the process without what plays the device.
    pub process: Option<Nanos>,
    /// Voluntary context switches of this thread.
    pub switches: Option<u64>,
    /// CPU time of the other threads that wait, of an arm that has some.
    pub others: Option<Nanos>,
    /// Their voluntary context switches.
    pub other_switches: Option<u64>,
    /// Energy.
    pub energy: Used,
}

impl Meters {
    /// Sets what `operations` of them used: `waiting` is the CPU time of this thread that counts.
    pub fn tell(&self, turn: &mut Turn, operations: u64, waiting: Option<Nanos>) {
        let each = |value: f64| value / real(operations.max(1));
        let ns = |nanos: Nanos| real(nanos.as_nanos());
        let cpu = waiting.zip(self.others).map(|(own, others)| each(ns(own + others)));
        turn.set(quantity::CPU, cpu);
        turn.set(quantity::PROCESS_CPU, self.process.map(|process| each(ns(process))));
        let switches = self.switches.zip(self.other_switches);
        turn.set(quantity::SWITCHES, switches.map(|(own, others)| each(real(own + others))));
        if self.took < ENERGY_TURN_LEAST {
            return;
        }
        turn.set(quantity::ENERGY, self.energy.total().map(each));
        if self.energy.gpu.is_some() && self.energy.cpu.is_some() {
            turn.set(quantity::ENERGY_GPU, self.energy.gpu.map(each));
            turn.set(quantity::ENERGY_CPU, self.energy.cpu.map(each));
        }
    }
}

/// A count or nanoseconds, for quotients.
#[expect(clippy::cast_precision_loss, reason = "an f64 is exact to 2^53: 104 days of nanoseconds")]
pub fn real(value: u64) -> f64 {
    value as f64
}

/// From `earlier` to `later`, in nanoseconds; below zero where they are the other way round.
pub fn since(later: wakeline_core::Instant, earlier: wakeline_core::Instant) -> i64 {
    let ns = |length: Nanos| i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
    ns(later.since(earlier)) - ns(earlier.since(later))
}

/// CPU time of this thread so far; `None` where the system does not tell.
pub fn cpu() -> Option<Nanos> {
    thread_cpu_time()
}

/// Where a run's lines go: into a file as they come, with a bar on a terminal.
#[derive(Debug)]
pub struct Output {
    json: JsonLines<File>,
    path: PathBuf,
    bar: ProgressBar,
    /// How many lines of these kinds were written, for the last one to tell.
    cells: usize,
    timelines: usize,
}

/// The same error with the file or folder that it is of.
pub fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The bar's length.
const STEPS: u64 = 1_000;

impl Output {
    /// Into a new file.
    ///
    /// # Errors
    ///
    /// The file cannot be made; it is named.
    pub fn new(path: &Path) -> io::Result<Self> {
        let json = JsonLines::new(File::create(path).map_err(|error| at(path, &error))?);
        // Without a terminal it draws nothing.
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
        let bar = match ProgressStyle::with_template("  [{bar:30}] {elapsed:>4}  {msg}") {
            Ok(style) => bar.with_style(style.progress_chars("=> ")),
            Err(_) => bar,
        };
        Ok(Self { json, path: path.to_owned(), bar, cells: 0, timelines: 0 })
    }

    /// Writes a line.
    ///
    /// # Errors
    ///
    /// The file's, which is named.
    pub fn write(&mut self, line: &schema::Line) -> io::Result<()> {
        match line {
            schema::Line::Cell(_) => self.cells += 1,
            schema::Line::Timeline(_) => self.timelines += 1,
            schema::Line::Run(_) | schema::Line::End(_) => {}
        }
        self.json.write(line).map_err(|error| at(&self.path, &error))
    }

    /// Writes the last line, by which a reader knows that the file is whole.
    ///
    /// # Errors
    ///
    /// The file's, which is named.
    pub fn end(&mut self, took: Duration, checks: Vec<schema::Check>) -> io::Result<()> {
        let (cells, timelines) = (Some(self.cells), Some(self.timelines));
        self.write(&schema::Line::End(schema::End { took_s: took.as_secs_f64(), cells, timelines, checks }))
    }

    /// Says something on standard error, above the bar.
    pub fn say(&self, what: &str) {
        self.bar.suspend(|| {
            // Where that cannot be written, the run goes on.
            let _ = writeln!(io::stderr(), "{what}");
        });
    }

    /// Says that a case has no arm to run.
    pub fn passes_over(&self, named: &Named) {
        self.say(&format!("{}/{}: none of the chosen arms is for it", named.label.suite, named.label.case));
    }

    /// Takes the bar away.
    pub fn done(&self) {
        self.bar.finish_and_clear();
    }

    fn begins(&self, label: &Label, rounds: Option<usize>) {
        self.bar.set_position(0);
        let rounds = rounds.map_or_else(String::new, |rounds| format!(", {rounds} rounds"));
        self.bar.set_message(format!("{}: {}{rounds}", label.suite, label.case));
    }

    fn ticks(&self) {
        self.bar.tick();
    }

    fn advances(&self, rounds: usize, took: Duration, budget: Duration) {
        let by_time = took.as_secs_f64() / budget.as_secs_f64().max(1e-9);
        #[expect(clippy::cast_precision_loss, reason = "some rounds")]
        let by_rounds = rounds as f64 / ROUNDS_LEAST as f64;
        let share = by_time.min(by_rounds).clamp(0.0, 1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0 and 1,000")]
        self.bar.set_position((share * real(STEPS)) as u64);
    }
}
