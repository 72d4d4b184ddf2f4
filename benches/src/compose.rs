//! Composed operations: what branches, gates and chains take beside the device's own calls.
//!
//! The arms of a case take turns within one run, and the first is what the others are told by. A figure is the time from before the submission, or the opening of a gate, to the code
//! behind the await, or to the sight of the word.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use serde::Serialize;
use tokio::runtime::{Builder, Runtime as Tokio};
use wakeline_core::{Clock, CompletionPort, Error, Nanos, Wake};
use wakeline_ops::port::{Device, Gates, Priority};
use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin, all, gate};
use wakeline_std::{Point, StdClock, Watcher};

use crate::Paired;
use crate::ops::{Machine, Work, quantile, real, system};

/// The length of a branch.
const BRANCH: Nanos = Nanos::from_millis(1);

/// For how long what is behind a gate has been enqueued before that is opened.
const SETTLED: Nanos = Nanos::from_micros(200);

/// How long a gate stays closed at most.
const CLOSED: Nanos = Nanos::from_millis(2_000);

/// Operations of a turn.
const TIMES: usize = 20;

/// Streams, and most branches.
const STREAMS: usize = 8;

/// What an arm did.
#[derive(Clone, Debug, Serialize)]
pub struct Composed {
    /// `zip`, `gate` or `chain`.
    pub case: &'static str,
    /// See [`Machine::NAME`].
    pub device: &'static str,
    /// What it does.
    pub arm: &'static str,
    /// How many there were.
    pub count: usize,
    /// How long one took.
    pub p50_ns: u64,
    /// The same.
    pub p99_ns: u64,
    /// The median by that of the first arm.
    pub by_first: f64,
}

type Turn<'b> = Box<dyn Fn() -> Result<Vec<u64>, Error> + 'b>;

/// Who waits for whom.
pub struct Compose<M: Machine> {
    machine: Arc<M>,
    clock: StdClock,
    watcher: Watcher,
    tokio: Tokio,
    runtime: Runtime<M::Device>,
    stream: <M::Device as Device>::Stream,
}

impl<M: Machine> std::fmt::Debug for Compose<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compose").field("device", &M::NAME).finish_non_exhaustive()
    }
}

/// Sixteen in a row.
macro_rules! sixteen {
    ($make:ident) => { sixteen!(@ $make, $make(), a b c d e f g h i j k l m n o) };
    (@ $make:ident, $chain:expr, $one:ident $($more:ident)*) => {
        sixteen!(@ $make, $chain.then({ let $make = $make.clone(); move |()| $make() }), $($more)*)
    };
    (@ $make:ident, $chain:expr,) => { $chain };
}

impl<M: Machine<Device: Gates>> Compose<M> {
    /// Starts a runtime, a watcher and a runtime of tokio with one thread.
    ///
    /// # Errors
    ///
    /// The system refuses a thread, or the device a stream.
    pub fn new(machine: &Arc<M>) -> Result<Self, Error> {
        let (machine, watcher) = (Arc::clone(machine), Watcher::new()?);
        let tokio = Builder::new_current_thread().build().map_err(|error| system("a runtime", error))?;
        let tender = watcher.handle().tender(&Point::new("compose"));
        let policy = StreamPoolRoundRobin::new(STREAMS)?;
        let runtime = Runtime::new(machine.device().clone(), &policy, tender)?;
        let stream = machine.device().stream(Priority::Normal)?;
        Ok(Self { machine, clock: StdClock::new(), watcher, tokio, runtime, stream })
    }

    fn work(&self, length: Nanos) -> Work<M> {
        Work::new(&self.machine, length)
    }

    /// Awaits operations one after another.
    fn awaits<O: DeviceOp<Device = M::Device>>(&self, make: impl Fn() -> O) -> Result<Vec<u64>, Error> {
        self.tokio.block_on(async {
            let mut took = Vec::with_capacity(TIMES);
            for _ in 0..TIMES {
                let before = self.clock.now();
                make().on(&self.runtime).await?;
                took.push(self.clock.now().since(before).as_nanos());
            }
            Ok(took)
        })
    }

    /// The device's calls, a spin on the word; `gated` has it wait for a gate in front, from whose opening it counts then.
    fn raw(&self, gated: bool, kernels: usize) -> Result<Vec<u64>, Error> {
        let (device, clock) = (self.machine.device(), self.clock);
        let mut took = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            let word = if gated { Some(device.word()?) } else { None };
            let mut before = clock.now();
            if let Some(word) = &word {
                device.wait_open(&self.stream, word)?;
            }
            for _ in 0..kernels {
                self.machine.launch(&self.stream, Nanos::ZERO)?;
            }
            let point = device.armed_point(&self.stream)?;
            if let Some(word) = &word {
                self.spin(SETTLED);
                before = clock.now();
                <M::Device as Gates>::open(word);
            }
            while point.poll() != Wake::Reached {
                core::hint::spin_loop();
            }
            took.push(clock.now().since(before).as_nanos());
        }
        Ok(took)
    }

    /// The same, to the kernel's own first store. Nothing where the device has no kernels that say so.
    fn begun(&self, gated: bool) -> Result<Vec<u64>, Error> {
        let (device, clock) = (self.machine.device(), self.clock);
        let mut took = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            let word = if gated { Some(device.word()?) } else { None };
            if let Some(word) = &word {
                device.wait_open(&self.stream, word)?;
            }
            let mut before = clock.now();
            let Some(begun) = self.machine.begins(&self.stream)? else { return Ok(took) };
            if let Some(word) = &word {
                self.spin(SETTLED);
                before = clock.now();
                <M::Device as Gates>::open(word);
            }
            while !begun() {
                core::hint::spin_loop();
            }
            took.push(clock.now().since(before).as_nanos());
            // The word goes on to the next once nothing waits for it.
            let point = device.armed_point(&self.stream)?;
            while point.poll() != Wake::Reached {
                core::hint::spin_loop();
            }
        }
        Ok(took)
    }

    fn spin(&self, length: Nanos) {
        let until = self.clock.now() + length;
        while self.clock.now() < until {
            core::hint::spin_loop();
        }
    }

    /// An operation behind a gate, from its opening to the code behind its await.
    fn gated(&self) -> Result<Vec<u64>, Error> {
        self.tokio.block_on(async {
            let mut took = Vec::with_capacity(TIMES);
            for _ in 0..TIMES {
                let (handle, opened) = gate(CLOSED)?;
                let work = self.work(Nanos::ZERO);
                let mut step = opened.then(move |()| work).on(&self.runtime);
                // The first poll enqueues it.
                let early =
                    poll_fn(|context| Poll::Ready(Pin::new(&mut step).poll(context).is_ready())).await;
                self.spin(SETTLED);
                let before = self.clock.now();
                handle.open()?;
                if !early {
                    step.await?;
                }
                took.push(self.clock.now().since(before).as_nanos());
            }
            Ok(took)
        })
    }

    fn case(
        case: &'static str,
        rounds: usize,
        arms: &[(&'static str, Turn<'_>)],
    ) -> Result<Vec<Composed>, Error> {
        for (_, turn) in arms {
            turn()?;
        }
        let mut all: Vec<Vec<u64>> = arms.iter().map(|_| Vec::new()).collect();
        let mut order = Paired::new(arms.len());
        for _ in 0..rounds {
            order.round(|arm| {
                // The first of a turn finds the caches as others have left them.
                all[arm].extend((arms[arm].1)()?.into_iter().skip(1));
                Ok::<_, Error>(0)
            })?;
        }
        let mut first = None;
        Ok(arms
            .iter()
            .zip(&mut all)
            .filter(|(_, took)| !took.is_empty())
            .map(|((arm, _), took)| {
                took.sort_unstable();
                let (p50_ns, p99_ns) = (quantile(took, 50), quantile(took, 99));
                let by_first = real(p50_ns) / real(*first.get_or_insert(p50_ns)).max(1.0);
                Composed { case, device: M::NAME, arm, count: took.len(), p50_ns, p99_ns, by_first }
            })
            .collect())
    }

    /// Runs all cases.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub fn run(&self, rounds: usize) -> Result<Vec<Composed>, Error> {
        let branches = |count: usize| {
            move || -> Result<Vec<u64>, Error> { self.awaits(|| all((0..count).map(|_| self.work(BRANCH)))) }
        };
        let in_turn = || self.awaits(|| all((0..2).map(|_| self.work(BRANCH))).in_one_stream());
        let mut records = Self::case(
            "zip",
            rounds,
            &[
                ("one of 1 ms", Box::new(|| self.awaits(|| self.work(BRANCH)))),
                ("two branches", Box::new(branches(2))),
                ("eight branches", Box::new(branches(STREAMS))),
                ("two in one stream", Box::new(in_turn)),
            ],
        )?;
        records.extend(Self::case(
            "gate",
            rounds,
            &[
                ("an empty kernel, launched", Box::new(|| self.raw(false, 1))),
                ("a word behind a gate", Box::new(|| self.raw(true, 0))),
                ("an empty kernel behind a gate", Box::new(|| self.raw(true, 1))),
                ("a kernel launched, to its own first word", Box::new(|| self.begun(false))),
                ("a kernel behind a gate, to its own first word", Box::new(|| self.begun(true))),
                ("an operation behind a gate, awaited", Box::new(|| self.gated())),
            ],
        )?);
        let chain = || {
            let machine = Arc::clone(&self.machine);
            let work = move || Work::new(&machine, Nanos::ZERO);
            sixteen!(work)
        };
        records.extend(Self::case(
            "chain",
            rounds,
            &[
                ("16 empty kernels, launched", Box::new(|| self.raw(false, 16))),
                ("a chain of 16, awaited", Box::new(move || self.awaits(chain))),
            ],
        )?);
        Ok(records)
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
