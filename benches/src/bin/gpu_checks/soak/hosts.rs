//! Who runs the tasks of a soak: every host, each on a thread of its own.

use core::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;

use tokio::runtime::Builder;
use tokio::task::LocalSet;
use wakeline_benches::gpu::Host;
use wakeline_core::{
    CancelToken, Clock, Error, ErrorCode, Executor, Inline, Instant, Reactor, Report, Timer, Wait, Watch,
    drive, run_inline,
};
use wakeline_cuda::{CudaPort, CudaRuntime};
use wakeline_ops::{LeastLoaded, Runtime};
use wakeline_std::{
    ParkIdle, ParkPolicy, Point, StdClock, StdIdle, StdPark, Watcher, WatcherConfig, WatcherHandle, block_on,
};
use wakeline_tokio::{TokioLocal, TokioWatcher};

use super::load::{Load, Stop};
use super::operations::operates;
use super::waits::{Drawn, waits};
use crate::own::LOST;

/// How many tasks wait for points of streams on a host with tasks, and how many for operations.
const WAITING: u64 = 12;
const OPERATING: u64 = 6;

/// How many threads do, where each has one task: inline, and by a watcher.
const THREADS: u64 = 2;

/// How many threads a tokio runtime has for its tasks.
const WORKERS: usize = 3;

/// How many streams the operations of a host have.
const STREAMS: usize = 4;

/// The tasks of one host have numbers from its place times this on.
const TASKS_MAX: u64 = 1_000;

/// Makes a wait as it was drawn.
pub(super) trait Waits {
    /// Whether its waits may be forgotten under way.
    const FORGETS: bool;

    /// A token that cancels: the host's own kind, or any.
    fn token(&self, own: bool) -> CancelToken;

    fn wait(
        &self,
        port: CudaPort,
        drawn: &Drawn,
        point: &Point,
        deadline: Instant,
        cancel: Option<&CancelToken>,
    ) -> impl Future<Output = Result<Report, Error>>;
}

impl Waits for WatcherHandle {
    const FORGETS: bool = true;

    fn token(&self, own: bool) -> CancelToken {
        if own { self.cancel_token() } else { CancelToken::new() }
    }

    fn wait(
        &self,
        port: CudaPort,
        drawn: &Drawn,
        point: &Point,
        deadline: Instant,
        cancel: Option<&CancelToken>,
    ) -> impl Future<Output = Result<Report, Error>> {
        let mut wait = self.wait(port, &drawn.plan, point).deadline(deadline);
        if drawn.is_kernel_point() {
            wait = wait.kernel_point();
        }
        if let Some(late) = drawn.late_us {
            wait = wait.late_us(late);
        }
        if let Some(yes) = drawn.early_wake {
            wait = wait.early_wake(yes);
        }
        match cancel {
            Some(token) => wait.cancelled_by(token),
            None => wait,
        }
    }
}

/// `drive` on a host's own thread.
struct Driven<'h, H>(&'h H);

impl<H: Clock + Timer + Watch<CudaPort>> Waits for Driven<'_, H> {
    /// Others of its thread may depend on its polls.
    const FORGETS: bool = false;

    fn token(&self, _: bool) -> CancelToken {
        CancelToken::new()
    }

    async fn wait(
        &self,
        mut port: CudaPort,
        drawn: &Drawn,
        point: &Point,
        deadline: Instant,
        cancel: Option<&CancelToken>,
    ) -> Result<Report, Error> {
        let mut wait = Wait::new(&drawn.plan).expecting(point.forecast(&drawn.plan)).deadline(Some(deadline));
        if drawn.is_kernel_point() {
            wait = wait.kernel_point();
        }
        let result = drive(wait, &mut port, self.0, cancel).await;
        point.observe(&result);
        result
    }
}

/// A host's threads.
pub(super) struct Worker {
    pub(super) name: String,
    thread: std::thread::JoinHandle<()>,
}

impl Worker {
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Of one that has ended.
    pub(super) fn join(self, load: &Load) {
        if self.thread.join().is_err() {
            load.problem(format!("{}: a panic", self.name));
        }
    }
}

/// Starts all hosts that this machine can run.
pub(super) fn start(load: &Arc<Load>, watcher: &Watcher) -> std::io::Result<Vec<Worker>> {
    let mut workers = Vec::new();
    for (place, host) in (1..).zip(Host::here()) {
        let threads = if matches!(host, Host::Inline | Host::Watcher) { THREADS } else { 1 };
        for thread in 0..threads {
            let (load, tokio) = (Arc::clone(load), TokioWatcher::new(watcher));
            let handle = if host == Host::TokioWorkers { tokio.handle().clone() } else { watcher.handle() };
            let first = place * TASKS_MAX + thread * (TASKS_MAX / THREADS);
            let name = format!("{} {thread}", host.name());
            let there = name.clone();
            let run = move || {
                let result = Crew { load: &load, handle: &handle, host, first }.run();
                if let Err(Stop::Error(error)) = &result
                    && load.is_of_the_fault(error)
                {
                    return;
                }
                if let Err(stop) = result {
                    load.problem(format!("{there}: {stop:?}"));
                }
            };
            workers.push(Worker { name, thread: std::thread::Builder::new().spawn(run)? });
        }
    }
    Ok(workers)
}

/// A watcher for all of them: each task may block under a plan that does.
pub(super) fn watcher() -> Result<Watcher, Error> {
    Watcher::with(WatcherConfig::default().shards(2)?.helpers_max(64)?)
}

/// One host with its tasks.
struct Crew<'l> {
    load: &'l Arc<Load>,
    handle: &'l WatcherHandle,
    host: Host,
    /// The number of its first task.
    first: u64,
}

impl Crew<'_> {
    fn run(&self) -> Result<(), Stop> {
        match self.host {
            Host::Inline => self.inline(),
            Host::Watcher => self.thread(),
            Host::Executor => self.executor(&StdIdle::new(StdClock::new())),
            Host::Ring => self.ring(),
            Host::TokioLocal => self.tokio_local(),
            Host::TokioWorkers => self.tokio_workers(),
        }
    }

    fn numbers(&self, count: u64) -> impl Iterator<Item = u64> + use<> {
        self.first..self.first + count
    }

    /// A runtime of operations, with streams of its own.
    fn operations(&self) -> Result<CudaRuntime, Error> {
        let tender = self.handle.tender(&Point::new("soak"));
        Runtime::new(self.load.device.clone(), &LeastLoaded::new(STREAMS)?, tender)
    }

    /// Sees that nothing of its operations is left.
    fn settled(&self, runtime: &CudaRuntime) -> Result<(), Stop> {
        let drained = block_on(runtime.drain(LOST));
        if self.load.is_to_fault() {
            // What was in flight when its context faulted can be leaked.
            return drained.map_err(|error| Stop::Broken(format!("operations after a fault: {error}")));
        }
        drained?;
        match runtime.counts() {
            counts if counts.leaked == 0 => Ok(()),
            counts => Err(Stop::Broken(format!("operations are left: {counts:?}"))),
        }
    }

    /// Where nothing else can run on the thread.
    fn inline(&self) -> Result<(), Stop> {
        let clock = StdClock::new();
        let idle = StdIdle::new(clock);
        let park = StdPark::new(&idle, ParkPolicy::default());
        let host = Inline::new(clock, &idle, &park);
        // It pends where it polls again for no reason.
        block_on(waits(self.load, &Driven(&host), self.host.name(), self.first));
        run_inline(core::future::ready(())).map_err(Stop::from)
    }

    fn thread(&self) -> Result<(), Stop> {
        let runtime = self.operations()?;
        let [one, other] = [self.first, self.first + 1];
        std::thread::scope(|scope| {
            scope.spawn(|| block_on(waits(self.load, self.handle, self.host.name(), one)));
            scope.spawn(|| block_on(operates(self.load, &runtime, self.host.name(), other)));
        });
        self.settled(&runtime)
    }

    fn executor(&self, idle: &impl ParkIdle) -> Result<(), Stop> {
        let park = StdPark::new(idle, ParkPolicy::default());
        let reactor = Reactor::new(StdClock::new());
        let host = Driven(&reactor);
        let runtime = self.operations()?;
        let tasks = WAITING + OPERATING;
        let room = usize::try_from(tasks).unwrap_or(usize::MAX);
        let mut executor = Executor::new(&reactor, idle, &park, room)?;
        let (name, load, runtime, host) = (self.host.name(), self.load, &runtime, &host);
        for (place, number) in (0..).zip(self.numbers(tasks)) {
            executor.spawn(async move {
                if place < WAITING {
                    waits(load, host, name, number).await;
                } else {
                    operates(load, runtime, name, number).await;
                }
            })?;
        }
        executor.run(|_, ()| {})?;
        drop(executor);
        self.settled(runtime)?;
        left(self.host, reactor.registered())
    }

    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn ring(&self) -> Result<(), Stop> {
        self.executor(&wakeline_uring::UringIdle::new(StdClock::new())?)
    }

    #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
    fn ring(&self) -> Result<(), Stop> {
        Ok(())
    }

    fn tokio_local(&self) -> Result<(), Stop> {
        let tokio = Builder::new_current_thread().enable_all().build().map_err(|error| made(&error))?;
        let local = tokio.block_on(async { TokioLocal::new(StdClock::new(), ParkPolicy::default()) })?;
        let (local, set, name) = (Rc::new(local), LocalSet::new(), self.host.name());
        let runtime = self.operations()?;
        let mut tasks = Vec::new();
        for (place, number) in (0..).zip(self.numbers(WAITING + OPERATING)) {
            let (load, local, runtime) = (Arc::clone(self.load), Rc::clone(&local), runtime.clone());
            tasks.push(set.spawn_local(async move {
                if place < WAITING {
                    waits(&load, &Driven(&*local), name, number).await;
                } else {
                    operates(&load, &runtime, name, number).await;
                }
            }));
        }
        set.block_on(&tokio, async {
            for task in tasks {
                task.await.map_err(|error| Stop::Broken(error.to_string()))?;
            }
            Ok::<_, Stop>(())
        })?;
        self.settled(&runtime)?;
        left(self.host, local.registered())
    }

    fn tokio_workers(&self) -> Result<(), Stop> {
        let mut builder = Builder::new_multi_thread();
        let tokio = builder.worker_threads(WORKERS).enable_all().build().map_err(|error| made(&error))?;
        let (runtime, name) = (self.operations()?, self.host.name());
        let tasks: Vec<_> = (0..)
            .zip(self.numbers(WAITING + OPERATING))
            .map(|(place, number)| {
                let (load, handle, runtime) = (Arc::clone(self.load), self.handle.clone(), runtime.clone());
                tokio.spawn(async move {
                    if place < WAITING {
                        waits(&load, &handle, name, number).await;
                    } else {
                        operates(&load, &runtime, name, number).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            tokio.block_on(task).map_err(|error| Stop::Broken(error.to_string()))?;
        }
        self.settled(&runtime)
    }
}

fn left(host: Host, registered: usize) -> Result<(), Stop> {
    if registered == 0 {
        return Ok(());
    }
    Err(Stop::Broken(format!("{}: {registered} words and moments are left behind", host.name())))
}

fn made(error: &dyn Display) -> Error {
    Error::new(ErrorCode::Backend, [&"the soak", &"building a runtime", error])
}
