//! Who waits: a watcher for tasks and threads of all kinds, or one thread for its own tasks.

use core::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::PoisonError;

use tokio::runtime::Builder;
use tokio::task::LocalSet;
use wakeline_core::{
    CancelToken, Clock, Error, Executor, Instant, Reactor, Report, Timer, Wait, Watch, drive,
};
use wakeline_std::{
    ParkIdle, ParkPolicy, Point, StdClock, StdIdle, StdPark, Watcher, WatcherConfig, WatcherHandle, block_on,
};
use wakeline_tokio::TokioLocal;
use wakeline_uring::Probe;

use super::{Crowd, Drawn, HANGS};
use crate::watching::{HookPort, eventually};

/// How many tasks wait at a time.
const TASKS: usize = 24;

/// How many threads do besides, where a watcher watches for all of them.
const THREADS: usize = 3;

/// Who waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host {
    /// A watcher, for the tasks of a tokio runtime with several threads and for threads that block.
    Watcher {
        /// How many shards it has.
        shards: usize,
    },
    /// [`TokioLocal`], for the tasks of a tokio runtime of one thread.
    TokioLocal,
    /// The [`Reactor`] of an [`Executor`] that rests in a [`StdIdle`].
    Executor,
    /// The same in an `io_uring`.
    Uring,
}

impl Host {
    /// All of them; the watcher with one shard and with several.
    pub const ALL: [Self; 5] = [
        Self::Watcher { shards: 1 },
        Self::Watcher { shards: 4 },
        Self::TokioLocal,
        Self::Executor,
        Self::Uring,
    ];

    /// What this machine lacks for it, in words.
    pub fn lacks(self) -> Option<String> {
        let why_not = (self == Self::Uring).then(|| Probe::run().why_not().map(str::to_owned))?;
        why_not.map(|why| format!("no io_uring: {why}"))
    }

    /// Makes the crowd's waits.
    pub(super) fn run(self, crowd: &Arc<Crowd>) -> Result<(), String> {
        match self {
            Self::Watcher { shards } => watched(crowd, shards),
            Self::TokioLocal => on_one_thread(crowd, tokio_local),
            Self::Executor => on_one_thread(crowd, |crowd| executor(crowd, &StdIdle::new(StdClock::new()))),
            Self::Uring => on_one_thread(crowd, uring),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Watcher { shards: 1 } => f.pad("watcher of 1 shard"),
            Self::Watcher { shards } => f.pad(&format!("watcher of {shards} shards")),
            Self::TokioLocal => f.pad("tokio-local"),
            Self::Executor => f.pad("executor, std idle"),
            Self::Uring => f.pad("executor, io_uring"),
        }
    }
}

/// Makes a wait as it was drawn.
pub(super) trait Waits {
    fn token(&self, _: &Drawn) -> CancelToken {
        CancelToken::new()
    }

    fn wait(
        &self,
        port: HookPort,
        drawn: &Drawn,
        point: &Point,
        deadline: Option<Instant>,
        cancel: Option<&CancelToken>,
    ) -> impl Future<Output = Result<Report, Error>>;
}

impl Waits for WatcherHandle {
    /// Of both kinds.
    fn token(&self, drawn: &Drawn) -> CancelToken {
        if drawn.length.as_nanos().is_multiple_of(2) { CancelToken::new() } else { self.cancel_token() }
    }

    fn wait(
        &self,
        port: HookPort,
        drawn: &Drawn,
        point: &Point,
        deadline: Option<Instant>,
        cancel: Option<&CancelToken>,
    ) -> impl Future<Output = Result<Report, Error>> {
        let mut wait = self.wait(port, &drawn.plan, point);
        if let Some(deadline) = deadline {
            wait = wait.deadline(deadline);
        }
        if let Some(late) = drawn.late {
            wait = wait.late_us(late);
        }
        if let Some(yes) = drawn.early_wake {
            wait = wait.early_wake(yes);
        }
        if let Some(token) = cancel {
            wait = wait.cancelled_by(token);
        }
        wait
    }
}

/// `drive` on the ports of a host; it knows neither lateness nor early wakes.
struct Driven<'h, H>(&'h H);

impl<H: Clock + Timer + Watch<HookPort>> Waits for Driven<'_, H> {
    async fn wait(
        &self,
        mut port: HookPort,
        drawn: &Drawn,
        point: &Point,
        deadline: Option<Instant>,
        cancel: Option<&CancelToken>,
    ) -> Result<Report, Error> {
        let wait = Wait::new(&drawn.plan).expecting(point.forecast(&drawn.plan)).deadline(deadline);
        let result = drive(wait, &mut port, self.0, cancel).await;
        point.observe(&result);
        result
    }
}

fn watched(crowd: &Arc<Crowd>, shards: usize) -> Result<(), String> {
    let config = WatcherConfig::default().shards(shards).and_then(|config| config.helpers_max(64));
    let watcher = config.and_then(Watcher::with).map_err(text)?;
    let handle = watcher.handle();
    let runtime = Builder::new_multi_thread().worker_threads(2).build().map_err(text)?;
    let works = |number| {
        let (crowd, handle) = (Arc::clone(crowd), handle.clone());
        async move { crowd.works(&handle, number).await }
    };
    let tasks: Vec<_> = (0..).take(TASKS).map(|number| runtime.spawn(works(number))).collect();
    let threads: Vec<_> = (0..)
        .skip(TASKS)
        .take(THREADS)
        .map(|number| {
            let works = works(number);
            std::thread::spawn(move || block_on(works))
        })
        .collect();
    let ended = eventually(crowd.run.within + HANGS, || {
        threads.iter().all(std::thread::JoinHandle::is_finished)
            && tasks.iter().all(tokio::task::JoinHandle::is_finished)
    });
    let panicked = ended && tasks.into_iter().any(|task| runtime.block_on(task).is_err());
    runtime.shutdown_background();
    if !ended {
        return Err(format!("a wait is lost: {} pending, {:?}", handle.pending(), handle.stats()));
    }
    if threads.into_iter().any(|thread| thread.join().is_err()) || panicked {
        return Err("a task has panicked".into());
    }
    let mut outcome = crowd.outcome.lock().unwrap_or_else(PoisonError::into_inner);
    outcome.summary.early_wakes = handle.stats().early_wakes;
    drop(outcome);
    if handle.pending() != 0 {
        return Err(format!("{} waits are left behind", handle.pending()));
    }
    watcher.close(Watcher::CLOSE).map_err(text)
}

/// Runs what one thread does.
fn on_one_thread(
    crowd: &Arc<Crowd>,
    run: impl FnOnce(&Arc<Crowd>) -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    let there = Arc::clone(crowd);
    let thread = std::thread::spawn(move || run(&there));
    if !eventually(crowd.run.within + HANGS, || thread.is_finished()) {
        return Err("a wait is lost".into());
    }
    thread.join().unwrap_or_else(|_| Err("a task has panicked".into()))
}

fn tokio_local(crowd: &Arc<Crowd>) -> Result<(), String> {
    // Without tokio's timers, which the host has no use for.
    let runtime = Builder::new_current_thread().enable_io().build().map_err(text)?;
    let local = runtime.block_on(async { TokioLocal::new(StdClock::new(), ParkPolicy::default()) });
    let local = Rc::new(local.map_err(text)?);
    let set = LocalSet::new();
    let tasks: Vec<_> = (0..)
        .take(TASKS)
        .map(|number| {
            let (crowd, local) = (Arc::clone(crowd), Rc::clone(&local));
            set.spawn_local(async move { crowd.works(&Driven(&*local), number).await })
        })
        .collect();
    set.block_on(&runtime, async {
        for task in tasks {
            task.await.map_err(text)?;
        }
        left(local.registered())
    })
}

/// On the core's executor, whose thread rests in `idle`.
fn executor(crowd: &Crowd, idle: &impl ParkIdle) -> Result<(), String> {
    let park = StdPark::new(idle, ParkPolicy::default());
    let reactor = Reactor::new(StdClock::new());
    let host = Driven(&reactor);
    let mut executor = Executor::new(&reactor, idle, &park, TASKS).map_err(text)?;
    for number in (0..).take(TASKS) {
        executor.spawn(crowd.works(&host, number)).map_err(text)?;
    }
    executor.run(|_, ()| {}).map_err(|error| format!("a wait is lost: {error}"))?;
    left(reactor.registered())
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn uring(crowd: &Arc<Crowd>) -> Result<(), String> {
    executor(crowd, &wakeline_uring::UringIdle::new(StdClock::new()).map_err(text)?)
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn uring(_: &Arc<Crowd>) -> Result<(), String> {
    Err("no io_uring here".into())
}

/// None may be.
fn left(registered: usize) -> Result<(), String> {
    if registered == 0 { Ok(()) } else { Err(format!("{registered} words and moments are left behind")) }
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}
