//! One wait, on each host.

use std::cell::RefCell;

use wakeline_core::{
    Clock, CompletionPort, Error, Executor, Inline, Nanos, PointTable, Reactor, Report, Wait, WaitPlan,
    drive, drive_at, run_inline,
};
use wakeline_std::{ParkPolicy, Point, StdClock, StdIdle, StdPark, Watcher, block_on};
use wakeline_tokio::{TokioLocal, TokioWatcher};

/// A wait that has not ended by then is lost: its work is over within milliseconds.
const LOST: Nanos = Nanos::from_millis(5_000);

/// How long the threads of a watcher may take to end.
const CLOSING: Nanos = Nanos::from_millis(2_000);

/// Who drives a wait.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Host {
    Inline,
    Executor,
    Watcher,
    TokioLocal,
    TokioWatcher,
}

impl Host {
    pub(super) const ALL: [Self; 5] =
        [Self::Inline, Self::Executor, Self::Watcher, Self::TokioLocal, Self::TokioWatcher];

    /// Waits for `port` on this host and drops it there. Without an end it is a time-out, which no row allows.
    pub(super) fn wait<P>(self, plan: &WaitPlan, of_kernel: bool, port: P) -> Result<Report, Error>
    where
        P: CompletionPort + Send + 'static,
        P::Line: Send + Sync + 'static,
    {
        let clock = StdClock::new();
        let lost = clock.now() + LOST;
        let wait = Wait::new(plan).deadline(Some(lost));
        let wait = if of_kernel { wait.kernel_point() } else { wait };
        match self {
            Self::Inline => inline(clock, wait, port),
            Self::Executor => executed(clock, wait, port),
            Self::Watcher => {
                let watcher = Watcher::new()?;
                let point = Point::new("row");
                let wait = watcher.wait(port, plan, &point).deadline(lost);
                let report = block_on(if of_kernel { wait.kernel_point() } else { wait });
                watcher.close(CLOSING)?;
                report
            }
            Self::TokioLocal => on_tokios_thread(clock, wait, port),
            Self::TokioWatcher => {
                let watcher = Watcher::new()?;
                let handle = TokioWatcher::new(&watcher);
                let point = Point::new("row");
                let wait = handle.wait(port, plan, &point).deadline(lost);
                let wait = if of_kernel { wait.kernel_point() } else { wait };
                let mut runtime = tokio::runtime::Builder::new_multi_thread();
                let runtime = runtime.enable_all().worker_threads(1).build().unwrap();
                let report = runtime.block_on(runtime.spawn(wait)).unwrap();
                drop(runtime);
                watcher.close(CLOSING)?;
                report
            }
        }
    }
}

fn inline<P: CompletionPort>(clock: StdClock, wait: Wait, mut port: P) -> Result<Report, Error> {
    let idle = StdIdle::new(clock);
    let park = StdPark::new(&idle, ParkPolicy::default());
    run_inline(drive(wait, &mut port, &Inline::new(clock, &idle, &park), None))?
}

fn executed<P: CompletionPort>(clock: StdClock, wait: Wait, port: P) -> Result<Report, Error> {
    let idle = StdIdle::new(clock);
    let park = StdPark::new(&idle, ParkPolicy::default());
    let reactor = Reactor::new(clock);
    let table = RefCell::new(PointTable::new(1)?);
    let task = async |mut port: P| drive_at(&table, "row", wait, &mut port, &reactor, None).await;
    let mut ended = None;
    let mut executor = Executor::new(&reactor, &idle, &park, 1)?;
    executor.spawn(task(port))?;
    executor.run(|_, report| ended = Some(report))?;
    ended.unwrap()
}

fn on_tokios_thread<P: CompletionPort>(clock: StdClock, wait: Wait, mut port: P) -> Result<Report, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let local = TokioLocal::new(clock, ParkPolicy::default())?;
        let table = RefCell::new(PointTable::new(1)?);
        drive_at(&table, "row", wait, &mut port, &local, None).await
    })
}
