//! Every host, made anew for one wait.

use wakeline_core::{
    Clock, Error, ErrorCode, Executor, Inline, Nanos, Reactor, Report, Wait, WaitPlan, drive, run_inline,
};
use wakeline_cuda::CudaPort;
use wakeline_std::{ParkIdle, ParkPolicy, Point, StdClock, StdIdle, StdPark, Watcher, block_on};
use wakeline_tokio::{TokioLocal, TokioWatcher};

/// Who runs a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host {
    /// The thread that awaits it.
    Inline,
    /// An executor of one thread.
    Executor,
    /// The same, idling in an `io_uring`.
    Ring,
    /// A watcher, and a thread that sleeps until it is told.
    Watcher,
    /// A tokio runtime's own thread.
    TokioLocal,
    /// A watcher, and a task of a tokio runtime with several threads.
    TokioWorkers,
}

impl Host {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Inline, Self::Executor, Self::Ring, Self::Watcher, Self::TokioLocal, Self::TokioWorkers];

    /// What it is called in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Executor => "executor",
            Self::Ring => "ring",
            Self::Watcher => "watcher",
            Self::TokioLocal => "tokio-local",
            Self::TokioWorkers => "tokio-workers",
        }
    }

    /// Those that this machine can run: it may forbid rings.
    pub fn here() -> Vec<Self> {
        Self::ALL.into_iter().filter(|host| *host != Self::Ring || ring().is_some()).collect()
    }

    /// Waits for the point of `port` for at most so long, with what `point` predicts.
    ///
    /// # Errors
    ///
    /// As [`drive`]; [`Backend`](ErrorCode::Backend) where the host cannot be made.
    pub fn wait(
        self,
        plan: &WaitPlan,
        port: CudaPort,
        point: &Point,
        within: Nanos,
    ) -> Result<Report, Error> {
        let wait = Wait::new(plan).predicted(point.predict(plan));
        match self {
            Self::Inline => inline(wait, port, within),
            Self::Executor => executed(wait, port, within, &StdIdle::new(StdClock::new())),
            Self::Ring => match ring() {
                Some(idle) => executed(wait, port, within, &idle),
                None => Err(failed(&"making a ring", &"this machine has none")),
            },
            Self::Watcher => {
                let watcher = Watcher::new()?;
                let at = StdClock::new().now() + within;
                let result = block_on(watcher.wait(port, plan, point).deadline(at));
                watcher.close(Watcher::CLOSE)?;
                result
            }
            Self::TokioLocal => {
                let mut builder = tokio::runtime::Builder::new_current_thread();
                let runtime = builder.enable_all().build().map_err(|error| runtime(&error))?;
                runtime.block_on(async move {
                    let clock = StdClock::new();
                    let (local, mut port) = (TokioLocal::new(clock, ParkPolicy::default())?, port);
                    let wait = wait.deadline(Some(clock.now() + within));
                    drive(wait, &mut port, &local, None).await
                })
            }
            Self::TokioWorkers => {
                let mut builder = tokio::runtime::Builder::new_multi_thread();
                let built = builder.worker_threads(2).enable_all().build();
                let runtime = built.map_err(|error| runtime(&error))?;
                let watcher = Watcher::new()?;
                let at = StdClock::new().now() + within;
                let wait = TokioWatcher::new(&watcher).wait(port, plan, point).deadline(at);
                let result = runtime
                    .block_on(runtime.spawn(wait))
                    .unwrap_or_else(|error| Err(failed(&"running a task", &error)));
                watcher.close(Watcher::CLOSE)?;
                result
            }
        }
    }
}

fn failed(what: &dyn core::fmt::Display, why: &dyn core::fmt::Display) -> Error {
    Error::new(ErrorCode::Backend, [&"the host", what, why])
}

fn runtime(error: &std::io::Error) -> Error {
    failed(&"building the runtime", error)
}

fn inline(wait: Wait, mut port: CudaPort, within: Nanos) -> Result<Report, Error> {
    let clock = StdClock::new();
    let idle = StdIdle::new(clock);
    let park = StdPark::new(&idle, ParkPolicy::default());
    let host = Inline::new(clock, &idle, &park);
    run_inline(drive(wait.deadline(Some(clock.now() + within)), &mut port, &host, None))?
}

fn executed(wait: Wait, mut port: CudaPort, within: Nanos, idle: &impl ParkIdle) -> Result<Report, Error> {
    let clock = StdClock::new();
    let reactor = Reactor::new(clock);
    let park = StdPark::new(idle, ParkPolicy::default());
    let mut executor = Executor::new(&reactor, idle, &park, 1)?;
    let wait = wait.deadline(Some(clock.now() + within));
    executor.spawn(async { drive(wait, &mut port, &reactor, None).await })?;
    let mut ended = Err(failed(&"running a task", &"it did not end"));
    executor.run(|_, result| ended = result)?;
    ended
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn ring() -> Option<wakeline_uring::UringIdle> {
    wakeline_uring::UringIdle::new(StdClock::new()).ok()
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn ring() -> Option<StdIdle> {
    None
}
