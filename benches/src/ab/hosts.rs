//! Who runs the waits of the arms: this thread, a watcher, a tokio runtime's thread; and how a wait of each arm is made.

use std::rc::Rc;

use tokio::runtime::{Builder, Runtime};
use wakeline_core::{
    Clock, CompletionPort, Error, ErrorCode, Inline, Instant, LineRef, Outcome, Report, Status, Wait,
    WaitPlan, Wake, drive, run_inline,
};
use wakeline_std::{
    ParkPolicy, Point, StdClock, StdIdle, StdPark, TscRate, Watcher, WatcherConfig, WatcherHandle,
};
use wakeline_tokio::TokioLocal;
use wakeline_wordwait::WordWait;

use super::arms::{Arm, Host, Way};
use super::device::{Device, RawWay};

/// All of them, made once a run.
pub struct Hosts<L> {
    clock: StdClock,
    idle: StdIdle,
    policy: ParkPolicy,
    word_wait: Result<WordWait<StdClock>, Error>,
    watcher: Watcher,
    handle: WatcherHandle,
    runtime: Runtime,
    local: Rc<TokioLocal<L>>,
}

impl<L: LineRef> Hosts<L> {
    /// Starts them: the watcher's threads, which are on the processors that this thread may be on now.
    ///
    /// # Errors
    ///
    /// The system refuses a thread or a file.
    pub fn start(clock: StdClock) -> Result<Self, Error> {
        let policy = ParkPolicy::default();
        let tsc_rate = || TscRate::measure(clock, TscRate::LENGTH).map(TscRate::ticks_per_2_32_ns);
        let word_wait = WordWait::probe(clock, tsc_rate);
        let mut config = WatcherConfig::default();
        if let Ok(park) = &word_wait {
            config = config.word_wait(*park);
        }
        let watcher = Watcher::with(config)?;
        let handle = watcher.handle();
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| {
            Error::new(ErrorCode::Backend, [&"bench", &"building the runtime", &error]).with_source(error)
        })?;
        let local = Rc::new(runtime.block_on(async { TokioLocal::new(clock, policy) })?);
        Ok(Self { clock, idle: StdIdle::new(clock), policy, word_wait, watcher, handle, runtime, local })
    }

    /// Why words are not waited for in hardware here, where they are not.
    pub fn park_warning(&self) -> Option<String> {
        self.word_wait.as_ref().err().map(ToString::to_string)
    }

    /// The runtime, for tasks of its own.
    pub const fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The host on the runtime's thread.
    pub const fn local(&self) -> &Rc<TokioLocal<L>> {
        &self.local
    }

    /// The watcher.
    pub const fn watcher(&self) -> &WatcherHandle {
        &self.handle
    }

    /// Runs a task of waits on this thread, as `host` has it.
    ///
    /// # Errors
    ///
    /// The task pended where nothing could wake it.
    pub fn run<F: Future>(&self, host: Host, task: F) -> Result<F::Output, Error> {
        match host {
            Host::Inline | Host::Threads => run_inline(task),
            Host::Watcher => Ok(self.idle.block_on(task)),
            Host::TokioLocal => Ok(self.runtime.block_on(task)),
        }
    }

    /// The idle of this thread.
    pub const fn idle(&self) -> &StdIdle {
        &self.idle
    }

    /// The park of a thread with this idle.
    pub fn park<'i>(&self, idle: &'i StdIdle) -> StdPark<&'i StdIdle, WordWait<StdClock>> {
        StdPark::new(idle, self.policy).with_word_wait(self.word_wait.clone())
    }

    /// Ends their threads.
    ///
    /// # Errors
    ///
    /// A thread of the watcher's is held up.
    pub fn close(self) -> Result<(), Error> {
        self.watcher.close(Watcher::CLOSE)
    }
}

impl<L> core::fmt::Debug for Hosts<L> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Hosts").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// A host of waits on the thread that it was made on.
pub type OnThread<'i> = Inline<StdClock, &'i StdIdle, StdPark<&'i StdIdle, WordWait<StdClock>>>;

/// Waits of this thread for work of a device, by any arm.
pub struct Waiter<'w, D: Device> {
    device: &'w D,
    hosts: &'w Hosts<Line<D>>,
    ways: &'w [Box<dyn RawWay + 'w>],
    inline: OnThread<'w>,
}

/// What the handle of a line is in the ports of a device.
pub type Line<D> = <<D as Device>::Port as CompletionPort>::Line;

/// What a wait came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// When the end of the work was known.
    pub at: Instant,
    /// Whether it slept past that; `None` of a wait that would not sleep.
    pub late_wake: Option<bool>,
}

impl Known {
    fn by(at: Instant, plan: &WaitPlan, report: &Report) -> Self {
        let late = report.outcome() == Some(Outcome::Late);
        Self { at, late_wake: (plan.predict().is_some() || plan.adapt().is_some()).then_some(late) }
    }
}

/// How many of some waits slept too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LateWakes {
    late: u64,
    all: u64,
}

impl LateWakes {
    /// Counts a wait, if it is one that may sleep.
    pub fn count(&mut self, known: Known) {
        if let Some(late) = known.late_wake {
            self.all += 1;
            self.late += u64::from(late);
        }
    }

    /// Their share; `None` where none may sleep.
    pub fn share(self) -> Option<f64> {
        (self.all > 0).then(|| super::session::real(self.late) / super::session::real(self.all))
    }
}

impl<'w, D: Device> Waiter<'w, D> {
    /// For waits of this thread.
    pub fn new(device: &'w D, hosts: &'w Hosts<Line<D>>, ways: &'w [Box<dyn RawWay + 'w>]) -> Self {
        let inline = Inline::new(hosts.clock, &hosts.idle, hosts.park(&hosts.idle));
        Self { device, hosts, ways, inline }
    }

    /// What is to be done before some waits of the arm.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn begin(&self, arm: &Arm) -> Result<(), Error> {
        match arm.way {
            Way::Raw(way) => self.ways[way].begin(),
            _ => Ok(()),
        }
    }

    /// What is to be undone behind them.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn end(&self, arm: &Arm) -> Result<(), Error> {
        match arm.way {
            Way::Raw(way) => self.ways[way].end(),
            _ => Ok(()),
        }
    }

    /// Waits for all that was launched, as the arm does for a batch of this many rows.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub async fn wait(&self, arm: &Arm, rows: u64, point: &Point) -> Result<Known, Error> {
        let clock = self.hosts.clock;
        match &arm.way {
            Way::Spin => {
                let mut port = self.device.port()?;
                port.arm()?;
                while port.poll() != Wake::Reached {
                    core::hint::spin_loop();
                }
            }
            Way::StatusSpin => {
                let mut port = self.device.port()?;
                while port.query()? == Status::Pending {
                    core::hint::spin_loop();
                }
            }
            Way::Raw(way) => self.ways[*way].wait()?,
            Way::Operation(_) => {
                let why = "it runs its own work, and waits for none that others launched";
                return Err(Error::new(ErrorCode::Backend, [&"bench", &arm.name, &why]));
            }
            Way::Plan(bands, host) => {
                let plan = bands.choose(rows);
                let mut port = self.device.port()?;
                if *host == Host::Watcher {
                    let report = self.hosts.handle.wait(port, plan, point).early_wake(true).await?;
                    return Ok(Known::by(clock.now(), plan, &report));
                }
                let wait = Wait::new(plan).expecting(point.forecast(plan));
                let result = if *host == Host::TokioLocal {
                    drive(wait, &mut port, &*self.hosts.local, None).await
                } else {
                    drive(wait, &mut port, &self.inline, None).await
                };
                let known = clock.now();
                point.observe(&result);
                return result.map(|report| Known::by(known, plan, &report));
            }
        }
        Ok(Known { at: clock.now(), late_wake: None })
    }
}

impl<D: Device> core::fmt::Debug for Waiter<'_, D> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Waiter").field("device", &D::KIND).finish_non_exhaustive()
    }
}
