//! Device operations being awaited: what is added to a bare spin on the word, what it costs, and how many a second there can be.
//!
//! All arms of a case take turns within one run. One turn is some operations, each from before its submission to the code behind its await;
//! what is added is the difference to the median of the bare spin, which makes the same calls of the device and looks at the word.

use core::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant as Wall};

use serde::Serialize;
use tokio::runtime::{Builder, Runtime as Tokio};
use wakeline_core::{Clock, CompletionPort, Error, ErrorCode, Nanos, Wake};
use wakeline_ops::port::{Device, Priority};
use wakeline_ops::{
    DeviceOp, PLAN, Runtime, RuntimeConfig, Stream, StreamPoolRoundRobin, Submission, device_op,
};
use wakeline_std::usage::process_cpu_time;
use wakeline_std::{Point, StdClock, TimerSlack, Watcher};
use wakeline_tokio::TokioWatcher;

use crate::Paired;
use crate::alarm::Alarm;

mod arm;
mod submit;

pub use arm::Arm;
use arm::{alarmed, lead, spin, submitted};
pub use submit::Submitted;

/// Whether a kernel has begun.
pub type Begun = Box<dyn Fn() -> bool>;

/// A device with work of a known length.
pub trait Machine: Send + Sync + 'static {
    /// What it is.
    type Device: Device;

    /// Its name in records.
    const NAME: &'static str;

    /// The device.
    fn device(&self) -> &Self::Device;

    /// Enqueues work of this length.
    ///
    /// # Errors
    ///
    /// What the device says.
    fn launch(&self, stream: &<Self::Device as Device>::Stream, length: Nanos) -> Result<(), Error>;

    /// Enqueues a kernel that does nothing but say that it began, and gives who sees that: by its own first store into a word. `None` where there are no such kernels.
    ///
    /// # Errors
    ///
    /// What the device says.
    fn begins(&self, stream: &<Self::Device as Device>::Stream) -> Result<Option<Begun>, Error> {
        let _ = stream;
        Ok(None)
    }

    /// How long `times` launches take with a store of a word behind each, by the device's own calls; returns when all are done.
    ///
    /// # Errors
    ///
    /// What the device says.
    fn raw_submits(
        &self,
        stream: &<Self::Device as Device>::Stream,
        length: Nanos,
        times: usize,
        clock: &StdClock,
    ) -> Result<Nanos, Error>;

    /// CPU time of what plays it; zero for a real one.
    fn own_cpu(&self) -> Nanos;
}

/// Work of a known length, as an operation.
pub(crate) struct Work<M>(Arc<M>, Nanos);

impl<M: Machine> Work<M> {
    pub(crate) fn new(machine: &Arc<M>, length: Nanos) -> Self {
        Self(Arc::clone(machine), length)
    }
}

impl<M: Machine> DeviceOp for Work<M> {
    type Device = M::Device;
    type Pending = ();
    type Output = ();

    fn execute(self, submission: &mut Submission<M::Device>) -> Result<(), Error> {
        self.0.launch(submission.stream().raw(), self.1)
    }

    fn finish((): ()) -> Result<(), Error> {
        Ok(())
    }
}

device_op!([M] Work<M> where M: Machine);

/// What an arm of `await` did.
#[derive(Clone, Debug, Serialize)]
pub struct Awaited {
    /// `await`.
    pub case: &'static str,
    /// See [`Machine::NAME`].
    pub device: &'static str,
    /// The length of the work.
    pub length_us: u64,
    /// See [`Arm::name`].
    pub arm: &'static str,
    /// How many were awaited.
    pub count: usize,
    /// From before the submission to the code behind it.
    pub p50_ns: u64,
    /// The same.
    pub p99_ns: u64,
    /// What that is more than the median of the spin.
    pub added_p50_ns: i64,
    /// The same.
    pub added_p99_ns: i64,
    /// CPU time of the process for each, without what plays the device.
    pub cpu_ns: u64,
    /// By the length of the work.
    pub cpu_share: f64,
    /// How many were seen to their end by the task that awaits them; `None` where there is none.
    pub seen_by_task: Option<u64>,
}

/// What many tasks did.
#[derive(Clone, Debug, Serialize)]
pub struct Crowd {
    /// `loop` or `idle`.
    pub case: &'static str,
    /// See [`Machine::NAME`].
    pub device: &'static str,
    /// How many tasks there were, and streams.
    pub tasks: usize,
    /// See [`Crowd::tasks`].
    pub streams: usize,
    /// The length of the work.
    pub length_us: u64,
    /// By how much ends may be told late.
    pub late_us: u32,
    /// `raw`: one thread that scans words; else `await@multi_thread(4)`.
    pub arm: &'static str,
    /// Operations a second.
    pub per_second: f64,
    /// CPU time by time, without what plays the device.
    pub cores: f64,
}

/// Operations on some device, for the suite `ops` of A/B runs.
pub trait Operations {
    /// Runs `times` operations in the way of `arm`, and says how long each took, from before its submission to the code behind it.
    ///
    /// # Errors
    ///
    /// What the device says.
    fn turn(&self, arm: Arm, length: Nanos, times: usize) -> Result<Vec<u64>, Error>;

    /// Has so many tasks on tokio's `multi_thread` with four workers, or one thread that scans words, run operations on so many streams one after another
    /// for this time: how many there were.
    ///
    /// # Errors
    ///
    /// What the device says.
    fn crowd(
        &self,
        raw: bool,
        tasks_streams: (usize, usize),
        length_late: (Nanos, u32),
        time: Duration,
    ) -> Result<u64, Error>;
}

impl<M: Machine> Operations for Bench<M> {
    fn turn(&self, arm: Arm, length: Nanos, times: usize) -> Result<Vec<u64>, Error> {
        Self::turn(self, arm, length, times)
    }

    fn crowd(
        &self,
        raw: bool,
        (tasks, streams): (usize, usize),
        length_late: (Nanos, u32),
        time: Duration,
    ) -> Result<u64, Error> {
        if raw {
            return self.scan(tasks, streams, length_late.0, time);
        }
        self.run_crowd(&self.crowded(streams)?, tasks, length_late, time)
    }
}

/// Who waits for whom.
pub struct Bench<M: Machine> {
    machine: Arc<M>,
    clock: StdClock,
    /// Who knows the ends, for the arms that are bounds.
    alarm: Arc<Alarm>,
    watcher: Watcher,
    current: Tokio,
    multi: Tokio,
    runtime: Runtime<M::Device>,
    workers: Runtime<M::Device>,
    no_spin: Runtime<M::Device>,
    cold: Runtime<M::Device>,
    stream: Stream<M::Device>,
}

impl<M: Machine> fmt::Debug for Bench<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench").field("device", &M::NAME).finish_non_exhaustive()
    }
}

pub(crate) fn system(what: &'static str, error: std::io::Error) -> Error {
    Error::new(ErrorCode::Backend, [&"bench", &what, &error]).with_source(error)
}

impl<M: Machine> Bench<M> {
    /// What the work runs on.
    pub fn machine(&self) -> &Arc<M> {
        &self.machine
    }

    /// Starts the runtimes and a watcher.
    ///
    /// # Errors
    ///
    /// The system refuses a thread, or the device a stream.
    pub fn new(machine: M) -> Result<Self, Error> {
        let machine = Arc::new(machine);
        let clock = StdClock::new();
        let watcher = Watcher::new()?;
        let current = Builder::new_current_thread().build().map_err(|error| system("a runtime", error))?;
        let mut multi = Builder::new_multi_thread();
        multi.worker_threads(4).on_thread_start(|| {
            // Where it cannot be set, its sleeps end later.
            if let Ok(slack) = TimerSlack::set(TimerSlack::LEAST) {
                core::mem::forget(slack);
            }
        });
        let multi = multi.build().map_err(|error| system("a runtime", error))?;
        let config = RuntimeConfig::default();
        let single = StreamPoolRoundRobin::new(1)?;
        let runtime = |config| {
            // A handle each: what is learned of wake-ups is a runtime's own.
            let tender = TokioWatcher::new(&watcher).tender(&Point::new("ops"));
            Runtime::with_config(machine.device().clone(), &single, tender, config)
        };
        let cold = config.plan(PLAN.replace("+warm", "").parse()?);
        let (no_spin, cold) = (runtime(config.spin_us(0)?)?, runtime(cold)?);
        let (workers, runtime) = (runtime(config)?, runtime(config)?);
        let stream = runtime.stream(Priority::Normal)?;
        let alarm = Arc::new(Alarm::spawn(clock, false)?);
        Ok(Self { machine, clock, alarm, watcher, current, multi, runtime, workers, no_spin, cold, stream })
    }

    fn work(&self, length: Nanos) -> Work<M> {
        Work::new(&self.machine, length)
    }

    /// Runs `times` operations in the way of `arm`, and says how long each took.
    fn turn(&self, arm: Arm, length: Nanos, times: usize) -> Result<Vec<u64>, Error> {
        let mut took = Vec::with_capacity(times);
        let clock = self.clock;
        match arm {
            Arm::Spin | Arm::Bare => {
                for _ in 0..times {
                    let before = clock.now();
                    let point = submitted(&*self.machine, &self.stream, length)?;
                    if arm == Arm::Bare {
                        clock.sleep_until(before + (length - lead(length)));
                    }
                    spin(&point);
                    took.push(clock.now().since(before).as_nanos());
                }
            }
            Arm::BareCurrent | Arm::BareMulti => {
                let (machine, stream) = (Arc::clone(&self.machine), self.stream.clone());
                let waits = alarmed(machine, stream, (Arc::clone(&self.alarm), clock), length, times);
                if arm == Arm::BareCurrent {
                    return self.current.block_on(waits);
                }
                let task = self.multi.spawn(waits);
                return self.multi.block_on(task).map_err(lost)?;
            }
            Arm::SyncOn => {
                for _ in 0..times {
                    let before = clock.now();
                    self.work(length).sync_on(&self.stream)?;
                    took.push(clock.now().since(before).as_nanos());
                }
            }
            Arm::Current | Arm::CurrentNoSpin | Arm::CurrentCold => {
                let runtime = match arm {
                    Arm::CurrentNoSpin => &self.no_spin,
                    Arm::CurrentCold => &self.cold,
                    _ => &self.runtime,
                };
                self.current.block_on(async {
                    for _ in 0..times {
                        let before = clock.now();
                        self.work(length).on(runtime).await?;
                        took.push(clock.now().since(before).as_nanos());
                    }
                    Ok::<_, Error>(())
                })?;
            }
            Arm::Multi => {
                let (machine, runtime) = (Arc::clone(&self.machine), self.workers.clone());
                let task = self.multi.spawn(async move {
                    for _ in 0..times {
                        let before = clock.now();
                        Work(Arc::clone(&machine), length).on(&runtime).await?;
                        took.push(clock.now().since(before).as_nanos());
                    }
                    Ok::<_, Error>(took)
                });
                return self.multi.block_on(task).map_err(lost)?;
            }
        }
        Ok(took)
    }

    fn cpu(&self) -> Nanos {
        process_cpu_time().unwrap_or(Nanos::ZERO) - self.machine.own_cpu()
    }

    fn seen(&self, arm: Arm) -> Option<u64> {
        let runtime = match arm {
            Arm::Spin | Arm::SyncOn | Arm::Bare | Arm::BareCurrent | Arm::BareMulti => return None,
            Arm::Current => &self.runtime,
            Arm::Multi => &self.workers,
            Arm::CurrentNoSpin => &self.no_spin,
            Arm::CurrentCold => &self.cold,
        };
        let counts = runtime.counts();
        Some(counts.spun + counts.watched)
    }

    /// Measures work of one length in every way, `rounds` times some operations each. The first of a turn does not count: what it needs has gone from the
    /// caches while others had theirs.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub fn awaits(&self, length: Nanos, rounds: usize) -> Result<Vec<Awaited>, Error> {
        let times = usize::try_from(20_000_000 / length.as_nanos().max(100_000)).unwrap_or(1).clamp(9, 100);
        for arm in Arm::ALL {
            self.turn(arm, length, times)?;
        }
        let mut all = Arm::ALL.map(|_| (Vec::new(), Nanos::ZERO, 0));
        let mut order = Paired::new(Arm::ALL.len());
        for _ in 0..rounds {
            order.round(|arm| {
                let way = Arm::ALL[arm];
                let (before, seen) = (self.cpu(), self.seen(way));
                all[arm].0.extend(self.turn(way, length, times + 1)?.into_iter().skip(1));
                all[arm].1 = all[arm].1 + (self.cpu() - before);
                all[arm].2 += self.seen(way).zip(seen).map_or(0, |(now, then)| now - then);
                Ok::<_, Error>(0)
            })?;
        }
        let mut base = None;
        Ok(Arm::ALL
            .iter()
            .zip(&mut all)
            .map(|(arm, (took, cpu, seen))| {
                took.sort_unstable();
                let (p50, p99) = (quantile(took, 50), quantile(took, 99));
                let base = *base.get_or_insert(p50);
                let added = |ns: u64| ns.cast_signed() - base.cast_signed();
                let counted = took.len() as u64;
                let cpu_ns = cpu.as_nanos() / (counted + rounds as u64).max(1);
                Awaited {
                    case: "await",
                    device: M::NAME,
                    length_us: length.as_micros(),
                    arm: arm.name(),
                    count: took.len(),
                    p50_ns: p50,
                    p99_ns: p99,
                    added_p50_ns: added(p50),
                    added_p99_ns: added(p99),
                    cpu_ns,
                    cpu_share: real(cpu_ns) / real(length.as_nanos()),
                    seen_by_task: self.seen(*arm).map(|_| *seen),
                }
            })
            .collect())
    }

    fn meter(&self, crowd: &Crowd, run: impl FnOnce() -> Result<u64, Error>) -> Result<Crowd, Error> {
        let (cpu, start) = (self.cpu(), Wall::now());
        let count = run()?;
        let (took, cpu) = (start.elapsed().as_secs_f64(), self.cpu() - cpu);
        Ok(Crowd {
            per_second: real(count) / took,
            cores: real(cpu.as_nanos()) / 1e9 / took,
            ..crowd.clone()
        })
    }

    /// So many tasks, each of which awaits one operation after another.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub fn crowd(
        &self,
        case: &'static str,
        (tasks, streams): (usize, usize),
        (length, late_us): (Nanos, u32),
        time: Duration,
    ) -> Result<Crowd, Error> {
        let runtime = self.crowded(streams)?;
        let crowd = Self::described(case, "await@multi_thread(4)", (tasks, streams), (length, late_us));
        // What is to be learned, and what is slow the first time.
        self.run_crowd(&runtime, tasks, (length, late_us), time / 10)?;
        self.meter(&crowd, || self.run_crowd(&runtime, tasks, (length, late_us), time))
    }

    /// A runtime with so many streams.
    fn crowded(&self, streams: usize) -> Result<Runtime<M::Device>, Error> {
        let tender = TokioWatcher::new(&self.watcher).tender(&Point::new("crowd"));
        Runtime::new(self.machine.device().clone(), &StreamPoolRoundRobin::new(streams)?, tender)
    }

    fn described(
        case: &'static str,
        arm: &'static str,
        (tasks, streams): (usize, usize),
        (length, late_us): (Nanos, u32),
    ) -> Crowd {
        let (device, length_us) = (M::NAME, length.as_micros());
        Crowd { case, device, tasks, streams, length_us, late_us, arm, per_second: 0.0, cores: 0.0 }
    }

    fn run_crowd(
        &self,
        runtime: &Runtime<M::Device>,
        tasks: usize,
        (length, late_us): (Nanos, u32),
        time: Duration,
    ) -> Result<u64, Error> {
        let end = Wall::now() + time;
        let tasks: Vec<_> = (0..tasks)
            .map(|_| {
                let (machine, runtime) = (Arc::clone(&self.machine), runtime.clone());
                self.multi.spawn(async move {
                    let mut count = 0;
                    while Wall::now() < end {
                        Work(Arc::clone(&machine), length).on(&runtime).late_us(late_us).await?;
                        count += 1;
                    }
                    Ok::<u64, Error>(count)
                })
            })
            .collect();
        self.multi.block_on(async {
            let mut count = 0;
            for task in tasks {
                count += task.await.map_err(lost)??;
            }
            Ok(count)
        })
    }

    /// One thread that keeps so many in flight, and scans their words: the device's limit.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub fn raw_loop(
        &self,
        flights: usize,
        streams: usize,
        length: Nanos,
        time: Duration,
    ) -> Result<Crowd, Error> {
        let crowd = Self::described("loop", "raw", (flights, streams), (length, 0));
        self.meter(&crowd, || self.scan(flights, streams, length, time))
    }

    fn scan(&self, flights: usize, streams: usize, length: Nanos, time: Duration) -> Result<u64, Error> {
        let device = self.machine.device();
        let streams: Vec<_> =
            (0..streams).map(|_| device.stream(Priority::Normal)).collect::<Result<_, _>>()?;
        let end = Wall::now() + time;
        let launch = |number: usize| {
            self.machine.launch(&streams[number], length)?;
            let mut point = device.point(&streams[number])?;
            point.arm()?;
            Ok::<_, Error>(point)
        };
        let mut flying = Vec::with_capacity(flights);
        for number in 0..flights {
            flying.push((number % streams.len(), launch(number % streams.len())?));
        }
        let mut count = 0;
        while Wall::now() < end {
            for (number, point) in &mut flying {
                if point.poll() == Wake::Reached {
                    *point = launch(*number)?;
                    count += 1;
                }
            }
        }
        for (_, point) in flying {
            while point.poll() != Wake::Reached {
                core::hint::spin_loop();
            }
        }
        Ok(count)
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

fn lost(error: tokio::task::JoinError) -> Error {
    Error::new(ErrorCode::Backend, [&"bench", &"running a task", &error]).with_source(error)
}

/// The value that so many percent of these, which are sorted, are not above; 0 of none.
pub fn quantile(sorted: &[u64], percent: usize) -> u64 {
    sorted.get((sorted.len().max(1) - 1) * percent / 100).copied().unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "times and counts of a run")]
pub(crate) fn real(value: u64) -> f64 {
    value as f64
}
