//! Graphs: what the launch of a captured chain takes and costs, beside the device's own calls.
//!
//! All arms of a case take turns within one run. One turn is some launches of one chain, each from before it to the sight of its end; the device's own calls are the launch of the graph, a store
//! of a word behind it, and a spin on that. What a launch costs the host is another case: many are submitted one behind the other, none of which has ended by then, and each ends where its calls
//! return: for an operation, where the poll that builds and submits it does.

use core::future::poll_fn;
use core::pin::Pin;
use core::task::Poll;
use std::sync::Arc;

use serde::Serialize;
use tokio::runtime::{Builder, Runtime as Tokio};
use wakeline_core::{Clock, Error, Instant, Nanos};
use wakeline_ops::port::{Device, Graphs, Priority};
use wakeline_ops::{DeviceOp, Graph, Runtime, RuntimeConfig, Stream, StreamPoolRoundRobin};
use wakeline_std::{Point, StdClock, Watcher};
use wakeline_tokio::TokioWatcher;

use crate::Interval;
use crate::Paired;
use crate::ops::{Machine, Work, quantile, system};

/// Kernels of the chain.
const KERNELS: usize = 32;

/// How long each of them is busy: nothing at all, and about as long as those of a small model.
const LENGTHS: [Nanos; 3] = [Nanos::ZERO, Nanos::from_micros(2), Nanos::from_micros(20)];

/// Launches of a turn.
const TIMES: usize = 40;

/// Launches that are submitted one behind the other, and how long each kernel of theirs takes.
const SUBMITS: usize = 16;
const SUBMITTED: Nanos = Nanos::from_micros(20);

/// A chain of kernels, and how often it is launched.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// How many there are.
    pub kernels: usize,
    /// How long each takes.
    pub length: Nanos,
    /// How often it is launched.
    pub times: usize,
    /// Whether each launch comes behind the end of the one before.
    pub awaits: bool,
}

/// What launches took.
#[derive(Debug)]
pub struct Replays {
    /// Each, from before it to the sight of its end.
    took: Vec<u64>,
    /// Of that, until the host's calls were made.
    submitted: Vec<u64>,
}

impl Replays {
    /// None yet, with room for so many.
    pub fn new(times: usize) -> Self {
        Self { took: Vec::with_capacity(times), submitted: Vec::with_capacity(times) }
    }

    /// One that was begun, submitted and seen to end then.
    pub fn push(&mut self, begun: Instant, submitted: Instant, ended: Instant) {
        self.took.push(ended.since(begun).as_nanos());
        self.submitted.push(submitted.since(begun).as_nanos());
    }
}

/// A machine whose graphs are launched.
pub trait GraphMachine: Machine<Device: Graphs> {
    /// Captures the chain in `stream`, and launches it by the device's own calls, one behind the end of the other.
    ///
    /// # Errors
    ///
    /// What the device says.
    fn raw_replays(
        &self,
        stream: &<Self::Device as Device>::Stream,
        chain: Chain,
        clock: &StdClock,
    ) -> Result<Replays, Error>;
}

/// What an arm did.
#[derive(Clone, Debug, Serialize)]
pub struct Launched {
    /// `graphs`, or `graph_submit`: of those times are what the host's calls took.
    pub case: &'static str,
    /// See [`Machine::NAME`].
    pub device: &'static str,
    /// Kernels of the chain.
    pub kernels: usize,
    /// How long each of them takes.
    pub kernel_ns: u64,
    /// `raw`: the device's own calls and a spin on the word; else how it was waited for.
    pub arm: &'static str,
    /// How many rounds there were, and how many launches.
    pub rounds: usize,
    /// See [`Launched::rounds`].
    pub count: usize,
    /// From before a launch to the sight of its end.
    pub p50_ns: u64,
    /// The same.
    pub p99_ns: u64,
    /// Medians of rounds by those of the raw calls, paired.
    pub ratio: Option<Interval>,
    /// What the median is more than that of the raw calls.
    pub added_p50_ns: i64,
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arm {
    Raw,
    Await,
    SyncOn,
    /// The same kernels, launched one by one as one operation.
    Eager,
}

impl Arm {
    const ALL: [Self; 4] = [Self::Raw, Self::Await, Self::SyncOn, Self::Eager];

    const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Await => "launch.await@current_thread",
            Self::SyncOn => "launch.sync_on",
            Self::Eager => "eager.await@current_thread",
        }
    }
}

/// Who waits for whom.
pub struct Launches<M: Machine> {
    machine: Arc<M>,
    clock: StdClock,
    watcher: Watcher,
    tokio: Tokio,
    runtime: Runtime<M::Device>,
    stream: Stream<M::Device>,
    raw: <M::Device as Device>::Stream,
}

impl<M: Machine> core::fmt::Debug for Launches<M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Launches").field("device", &M::NAME).finish_non_exhaustive()
    }
}

impl<M: GraphMachine> Launches<M> {
    /// Starts a runtime, a watcher and a runtime of tokio with one thread.
    ///
    /// # Errors
    ///
    /// The system refuses a thread, or the device a stream.
    pub fn new(machine: &Arc<M>) -> Result<Self, Error> {
        let (machine, watcher) = (Arc::clone(machine), Watcher::new()?);
        let tokio = Builder::new_current_thread().build().map_err(|error| system("a runtime", error))?;
        let tender = TokioWatcher::new(&watcher).tender(&Point::new("graphs"));
        let (policy, config) = (StreamPoolRoundRobin::new(1)?, RuntimeConfig::default());
        let runtime = Runtime::with_config(machine.device().clone(), &policy, tender, config)?;
        let stream = runtime.stream(Priority::Normal)?;
        let raw = machine.device().stream(Priority::Normal)?;
        Ok(Self { machine, clock: StdClock::new(), watcher, tokio, runtime, stream, raw })
    }

    /// Submits launches one behind the other, and awaits them then.
    fn submits(&self, graph: &Graph<M::Device>) -> Result<Replays, Error> {
        self.tokio.block_on(async {
            let (mut replays, mut flying) = (Replays::new(SUBMITS), Vec::with_capacity(SUBMITS));
            for _ in 0..SUBMITS {
                let before = self.clock.now();
                let mut op = graph.launch().on(&self.runtime);
                let first = poll_fn(|context| Poll::Ready(Pin::new(&mut op).poll(context))).await;
                let submitted = self.clock.now();
                replays.push(before, submitted, submitted);
                match first {
                    Poll::Ready(ended) => ended?,
                    Poll::Pending => flying.push(op),
                }
            }
            for op in flying {
                op.await?;
            }
            Ok(replays)
        })
    }

    /// Awaits operations one after another.
    fn awaits<O: DeviceOp<Device = M::Device>>(&self, make: impl Fn() -> O) -> Result<Replays, Error> {
        self.tokio.block_on(async {
            let mut replays = Replays::new(TIMES);
            for _ in 0..TIMES {
                let before = self.clock.now();
                make().on(&self.runtime).await?;
                replays.push(before, before, self.clock.now());
            }
            Ok(replays)
        })
    }

    fn turn(&self, arm: Arm, length: Nanos, graph: &Graph<M::Device>) -> Result<Replays, Error> {
        match arm {
            Arm::Raw => {
                let chain = Chain { kernels: KERNELS, length, times: TIMES, awaits: true };
                self.machine.raw_replays(&self.raw, chain, &self.clock)
            }
            Arm::Await => self.awaits(|| graph.launch()),
            Arm::SyncOn => {
                let mut replays = Replays::new(TIMES);
                for _ in 0..TIMES {
                    let before = self.clock.now();
                    graph.launch().sync_on(&self.stream)?;
                    replays.push(before, before, self.clock.now());
                }
                Ok(replays)
            }
            Arm::Eager => self.awaits(|| {
                let works = (0..KERNELS).map(|_| Work::new(&self.machine, length));
                wakeline_ops::all(works).in_one_stream()
            }),
        }
    }

    fn graph(&self, length: Nanos) -> Result<Graph<M::Device>, Error> {
        Graph::scope(&self.stream, |graph| {
            (0..KERNELS).try_for_each(|_| graph.record(Work::new(&self.machine, length)))
        })
    }

    /// Has the arms take turns, of which the first is what the others are told by.
    fn case(
        (case, length, rounds): (&'static str, Nanos, usize),
        arms: &[&'static str],
        turn: impl Fn(usize) -> Result<Vec<u64>, Error>,
    ) -> Result<Vec<Launched>, Error> {
        // What is to be learned, and what is slow the first time.
        for arm in 0..arms.len() {
            turn(arm)?;
        }
        let mut all: Vec<Vec<u64>> = arms.iter().map(|_| Vec::new()).collect();
        let mut order = Paired::new(arms.len());
        for _ in 0..rounds {
            order.round(|arm| {
                // The first of a turn finds the caches as others have left them.
                let mut took: Vec<u64> = turn(arm)?.into_iter().skip(1).collect();
                all[arm].extend(&took);
                took.sort_unstable();
                Ok::<_, Error>(quantile(&took, 50))
            })?;
        }
        let mut first = None;
        let told = |(number, arm): (usize, &&'static str)| {
            let took = &mut all[number];
            took.sort_unstable();
            let p50_ns = quantile(took, 50);
            Launched {
                case,
                device: M::NAME,
                kernels: KERNELS,
                kernel_ns: length.as_nanos(),
                arm,
                rounds: order.rounds(),
                count: took.len(),
                p50_ns,
                p99_ns: quantile(took, 99),
                ratio: order.ratio(number, 0),
                added_p50_ns: p50_ns.cast_signed() - first.get_or_insert(p50_ns).cast_signed(),
            }
        };
        Ok(arms.iter().enumerate().map(told).collect())
    }

    /// Runs all chains.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub fn run(&self, rounds: usize) -> Result<Vec<Launched>, Error> {
        let mut launched = Vec::new();
        for length in LENGTHS {
            let graph = self.graph(length)?;
            let turn = |arm: usize| Ok(self.turn(Arm::ALL[arm], length, &graph)?.took);
            launched.extend(Self::case(("graphs", length, rounds), &Arm::ALL.map(Arm::name), turn)?);
        }
        let graph = self.graph(SUBMITTED)?;
        let chain = Chain { kernels: KERNELS, length: SUBMITTED, times: SUBMITS, awaits: false };
        let turn = |arm| {
            let replays = match arm {
                0 => self.machine.raw_replays(&self.raw, chain, &self.clock)?,
                _ => self.submits(&graph)?,
            };
            Ok(replays.submitted)
        };
        launched.extend(Self::case(("graph_submit", SUBMITTED, rounds), &["raw", "launch"], turn)?);
        Ok(launched)
    }

    /// Ends the watcher's threads.
    ///
    /// # Errors
    ///
    /// One is held up.
    pub fn close(self) -> Result<(), Error> {
        self.watcher.close(Watcher::CLOSE)
    }
}
