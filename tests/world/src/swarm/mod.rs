//! Random programs of all that composes, against all that a task can do and all that can go wrong.
//!
//! Futures are awaited, run on the spot, dropped, forgotten and left pending between any two polls; they have time-outs and tokens that
//! come and that do not; branches go to several streams; shared operations run once; gates are opened, dropped, forgotten and left; closures and wakers panic; graphs are captured while others wait; the device loses stores, stores late, is slow to answer and faults at any moment or call.
//! Whatever happens: the device sees no misuse, a result that is given is the right one, nothing stays in flight, and memory that is not given
//! back is accounted for.
//!
//! | file | what |
//! |---|---|
//! | `program.rs` | a task's operations, one after the other, and the ways in which they end |
//! | `compose.rs` | the steps that compose |
//! | `graphs.rs` | the steps with graphs |
//! | `trees.rs` | trees of operations on the same few buffers |
//!
//! The steps know nothing of what runs them: that is a `Way`. Here it is `Alone`, which has one device and lets time pass on the spot;
//! [`whole`](crate::whole) has one of many tasks. A step draws all its numbers from the dice that it is handed.

// It launches kernels.
#![allow(unsafe_code)]

mod compose;
pub(crate) mod graphs;
pub(crate) mod program;
mod trees;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use wakeline_core::{Clock, Error, Nanos};
use wakeline_ops::{Completion, Runtime, RuntimeConfig, StreamPoolRoundRobin};
use wakeline_sim::{Faults, MemoryUse, SimConfig, SimDevice, VirtualTime, VirtualWatcher};

use crate::dice::Dice;
use crate::script::{Part, Script};
use graphs::{BUFFERS, Graphs};
use program::Program;
use trees::Trees;

/// How many steps a program has.
pub const STEPS: u32 = 20;

/// How many one has with graphs.
pub const GRAPH_STEPS: u32 = 24;

/// What the steps of a task need of whatever runs it.
pub(crate) trait Way {
    /// Waits for a future.
    ///
    /// # Errors
    ///
    /// It cannot end any more.
    fn wait<F: Future>(&self, future: F) -> impl Future<Output = Result<F::Output, Error>>;

    /// Lets others go on for a moment.
    fn moment(&self) -> impl Future<Output = ()>;

    /// The same, on the spot: as other threads go on while this one is at work.
    fn turn(&self) -> bool;

    /// Something may be closed, of which nobody in this task thinks any more, and will be open by so much later: lets that time pass, where nobody else does.
    fn left_closed(&self, within: Nanos) -> impl Future<Output = ()>;

    /// Notes what a task does, where somebody is going to read it.
    fn note(&self, line: impl FnOnce() -> String);

    /// Whether a task may wait on the spot: nothing is closed that only others would open.
    fn may_block(&self) -> bool;
}

/// One task, which lets time pass whenever it waits.
#[derive(Debug)]
pub(crate) struct Alone<'s> {
    watcher: VirtualWatcher,
    script: &'s Script,
}

impl Way for Alone<'_> {
    async fn wait<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.watcher.run(future)
    }

    async fn moment(&self) {
        self.watcher.turn();
    }

    fn turn(&self) -> bool {
        self.watcher.turn()
    }

    async fn left_closed(&self, within: Nanos) {
        let until = self.watcher.now() + within;
        while self.watcher.now() < until && self.watcher.turn() {}
        // A slow question may have taken the time by itself: what came due meanwhile, a gate's bound too, has its turns still.
        for _ in 0..=self.watcher.pending() {
            self.watcher.turn();
        }
    }

    fn note(&self, line: impl FnOnce() -> String) {
        self.script.note(|| format!("{:>12} {}", self.watcher.now().as_nanos(), line()));
    }

    fn may_block(&self) -> bool {
        true
    }
}

/// How ends become known in a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct How {
    /// Whether tasks watch by themselves, and words may be stored in other ways.
    pub watches: bool,
    /// `None` stands for the runtime's own.
    pub plan: Option<&'static str>,
}

/// Under the driver's authority.
pub const STRICT: How = How { watches: false, plan: Some("flag:park_us=50,backstop_us=1000") };
/// Under the word's.
pub const TRUSTING: How = How { watches: false, plan: Some("flag:park_us=50,backstop_us=1000+trust") };
/// Under the word's, by the runtime's own plan, with tasks that watch.
pub const WATCHING: How = How { watches: true, plan: None };
/// Under the driver's, with tasks that watch.
pub const WATCHING_STRICT: How = How {
    watches: true,
    plan: Some(
        "flag:park_us=50,backstop_us=1000+predict:margin_us=20,min_sleep_us=40,max_sleep_us=100000,window=8",
    ),
};

impl How {
    /// Whether the driver's word counts alone: then stores may lie.
    pub fn is_strict(self) -> bool {
        self == STRICT || self == WATCHING_STRICT
    }

    /// How a runtime is set up for it.
    pub(crate) fn config(self, dice: &mut Dice) -> RuntimeConfig {
        let completion = match dice.below(6) {
            0 => Completion::Callback,
            1 => Completion::Poll,
            _ => Completion::Word,
        };
        let spin_us = [0, 50, 200][dice.place(3)];
        let mut config = RuntimeConfig::default();
        if self.watches {
            config = config.completion(completion).spin_us(spin_us).unwrap_or_default();
        }
        match self.plan.map(str::parse) {
            Some(Ok(plan)) => config.plan(plan),
            Some(Err(error)) => unreachable!("a plan of ours: {error}"),
            None => config,
        }
    }
}

/// How a device of a program is set up, but for its faults.
pub(crate) fn config(seed: u64, dice: &mut Dice) -> SimConfig {
    let copy_ns = 1 + dice.below(60_000);
    let launch_ns = dice.below(3) * 700;
    let store_latency_ns = dice.below(2) * 2_300;
    SimConfig { seed, copy_ns, launch_ns, store_latency_ns, query_ns: 300, ..SimConfig::exact() }
}

/// A program of one task, before its first step, and who lets its time pass. `None` where its device failed before.
fn alone<'s>(
    seed: u64,
    faults: &Faults,
    how: How,
    script: &'s Script,
) -> Option<(Program<Alone<'s>>, VirtualWatcher)> {
    let mut dice = Dice::of_part(seed, u64::MAX);
    let config = SimConfig { faults: *faults, ..config(seed, &mut dice) };
    let device = SimDevice::new(VirtualTime::new(), config).ok()?;
    let watcher = VirtualWatcher::new(&device);
    watcher.let_tasks_watch(how.watches);
    let setup = how.config(&mut dice);
    let policy = StreamPoolRoundRobin::new(3).ok()?;
    let runtime = Runtime::with_config(device.clone(), &policy, watcher.clone(), setup).ok()?;
    let way = Alone { watcher: watcher.clone(), script };
    Some((Program::new(way, device, runtime), watcher))
}

/// Runs a step that waits for nobody else.
fn at_once<F: Future>(step: F) -> F::Output {
    match pin!(step).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("alone, nothing pends"),
    }
}

/// What a program came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ended {
    /// Whether the device was well at the end.
    pub well: bool,
    /// Whether a graph was made.
    pub graphs: bool,
}

/// Runs the program of a seed.
///
/// # Panics
///
/// A promise was broken.
pub fn run(seed: u64, faults: &Faults, how: How, script: &Script) -> Ended {
    let Some((mut program, watcher)) = alone(seed, faults, how, script) else { return Ended::default() };
    for step in (0..STEPS).filter(|&step| script.runs(Part::Step(0, step))) {
        program.dice = Dice::of_part(seed, step.into());
        at_once(program.step());
    }
    Ended { well: ends_clean(program, &watcher, 1), graphs: false }
}

/// Runs the program of a seed that has graphs.
///
/// # Panics
///
/// A promise was broken.
pub fn run_with_graphs(seed: u64, faults: &Faults, how: How, script: &Script) -> Ended {
    let Some((program, watcher)) = alone(seed ^ 0x6A4F, faults, how, script) else { return Ended::default() };
    let mut graphs = Graphs::new(program);
    let mut made = false;
    for step in (0..GRAPH_STEPS).filter(|&step| script.runs(Part::Step(0, step))) {
        graphs.program.dice = Dice::of_part(seed, step.into());
        at_once(graphs.step());
        made |= graphs.has_some();
    }
    Ended { well: ends_clean(graphs.end(), &watcher, BUFFERS), graphs: made }
}

/// Runs the program of a seed whose operations are trees on the same few buffers; whether the device was well, and whether all that is in those is known at the end.
///
/// # Panics
///
/// A promise was broken.
pub fn run_with_trees(seed: u64, faults: &Faults, how: How, script: &Script) -> (bool, bool) {
    let Some((program, watcher)) = alone(seed ^ 0x7EE5, faults, how, script) else { return (false, false) };
    let Some(mut trees) = Trees::new(program) else { return (false, false) };
    for step in (0..trees::STEPS).filter(|&step| script.runs(Part::Step(0, step))) {
        trees.draw(Dice::of_part(seed, step.into()));
        at_once(trees.step());
    }
    at_once(trees.checks());
    let (program, known) = trees.end();
    (ends_clean(program, &watcher, trees::BUFFERS), known)
}

/// Lets everything end, and looks at what is left, of which an owner that was leaked keeps so many buffers at most; whether the device was well.
fn ends_clean(program: Program<Alone<'_>>, watcher: &VirtualWatcher, each: usize) -> bool {
    let Program { device, runtime, tensors, pending, tokens, shared, forgotten, .. } = program;
    drop((tensors, pending, tokens, shared));
    while watcher.pending() > 0 && watcher.turn() {}
    while watcher.turn() {}
    is_clean(&device, &runtime, each, forgotten.get())
}

/// Looks at a device on which nothing is under way any more; whether it was well.
pub(crate) fn is_clean(
    device: &SimDevice,
    runtime: &Runtime<SimDevice>,
    each: usize,
    forgotten: usize,
) -> bool {
    let (counts, left) = (runtime.counts(), device.memory_use());
    assert_eq!(device.misuses(), [], "the device was misused");
    assert_eq!(counts.in_flight(), 0, "a flight did not end: {counts:?}");
    let leaked = usize::try_from(counts.owners_leaked + counts.frees_failed).unwrap_or(usize::MAX);
    let most = leaked.saturating_mul(each) + forgotten;
    assert!(left.buffers + left.pinned <= most, "memory was leaked and not counted: {left:?} {counts:?}");
    assert_eq!(device.gates_closed(), 0, "a gate was left closed: {counts:?}");
    let well = device.health().is_none();
    if well && forgotten == 0 && counts.leaked == 0 {
        let clean = (MemoryUse::default(), 0);
        assert_eq!((left, device.graphs()), clean, "something is left on a device that is well: {counts:?}");
    }
    well
}
