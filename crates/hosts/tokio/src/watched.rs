//! Waits of any tokio runtime, watched from the threads of a watcher.

use core::pin::pin;
use core::task::Context;

use tokio::runtime::{Handle, RuntimeFlavor};
use wakeline_core::{CancelToken, Clock, CompletionPort, Instant, Nanos, Timer, WaitPlan, Wake, Watch};
use wakeline_std::{NAP_NS_MAX, Point, Tender, Watcher, WatcherHandle, WatcherWait};

/// The host of waits that a [`Watcher`] watches, for the tasks of one tokio runtime.
///
/// | | `TokioWatcher` | [`TokioLocal`](crate::TokioLocal) |
/// |---|---|---|
/// | runtimes | any; its tasks may move between workers, be spawned and aborted | `current_thread`, `LocalSet`, `block_on` |
/// | who watches | the watcher's threads; the task itself for the last microseconds, where it is woken early | the runtime's own thread, in slices |
/// | driver calls of [`wait`](Self::wait) | on the watcher's threads, but for the arming: none holds a worker up | on the runtime's thread |
/// | what it takes | a thread, and one wake-up from it a wait | no other thread, no wake-up |
///
/// So take this one on `multi_thread`, or where a status query may take long; and `TokioLocal` where one thread does everything.
///
/// Make one for each runtime, and clones of it for its tasks: clones share what is learned of how long the runtime takes to wake a task,
/// which says how early that is to be done. Needs nothing of tokio's drivers (`enable_io`, `enable_time`); its timer is the watcher's,
/// exact to microseconds where tokio's rounds up to a millisecond. A runtime that is dropped drops its waits, which ends
/// the waiting only.
///
/// As a host it is a [`WatcherHandle`] but for [`yield_now`](Timer::yield_now), which lets the runtime look at its events too, and
/// works in and out of a runtime.
///
/// ```
/// use wakeline_core::{Nanos, Wait, WaitPlan, drive};
/// use wakeline_sim::{RealTime, SimConfig, SimDevice};
/// use wakeline_std::{DeviceThread, Point, StdClock, Watcher};
/// use wakeline_tokio::TokioWatcher;
///
/// # fn main() -> Result<(), wakeline_core::Error> {
/// let clock = StdClock::new();
/// let sleep = |length: Nanos| std::thread::sleep(std::time::Duration::from_nanos(length.as_nanos()));
/// let device = SimDevice::new(RealTime::new(clock, sleep), SimConfig::default())?;
/// let thread = DeviceThread::spawn(clock, device.clone())?;
///
/// let watcher = Watcher::new()?;
/// let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
/// let tokio = TokioWatcher::new(&watcher);
/// let task = runtime.spawn(async move {
///     let plan: WaitPlan = "flag:park_us=50,backstop_us=1000".parse()?;
///     let (stream, point) = (device.stream()?, Point::new("decode"));
///     stream.launch(Nanos::from_micros(700))?;
///     tokio.wait(stream.point(), &plan, &point).await?; // the watcher asks the driver
///     stream.launch(Nanos::from_micros(700))?;
///     drive(Wait::new(&plan), &mut stream.point(), &tokio, None).await // this task does
/// });
/// assert!(runtime.block_on(task).unwrap()?.outcome().is_some());
/// watcher.close(Watcher::CLOSE)
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TokioWatcher {
    handle: WatcherHandle,
}

impl TokioWatcher {
    /// A handle for the tasks of one runtime, which need not be there yet. Starts nothing.
    pub fn new(watcher: &Watcher) -> Self {
        Self { handle: watcher.handle().polled_again_by(again).naps_for(nap) }
    }

    /// The watcher's own handle for it.
    pub fn handle(&self) -> &WatcherHandle {
        &self.handle
    }

    /// What sees the points of device operations to their ends, for tasks of this runtime; see [`WatcherHandle::tender`].
    pub fn tender(&self, point: &Point) -> Tender {
        self.handle.tender(point)
    }

    /// Awaits the point of `port` under `plan`; see [`WatcherWait`]. `point` says what it may be predicted by, and learns from it.
    pub fn wait<P>(&self, port: P, plan: &WaitPlan, point: &Point) -> WatcherWait<P>
    where
        P: CompletionPort + Send + 'static,
        P::Line: Send + Sync + 'static,
    {
        self.handle.wait(port, plan, point)
    }

    /// A token whose cancellation is looked at at once.
    pub fn cancel_token(&self) -> CancelToken {
        self.handle.cancel_token()
    }

    /// How long this runtime takes from a call of a waker to the poll of a task that has slept for so long, as learned: the median.
    pub fn wake_time(&self, slept: Nanos) -> Nanos {
        self.handle.wake_time(slept)
    }
}

/// Lets the runtime look at its events, and run what is ready, before the task is polled again. A task that wakes itself in its own poll has a
/// `multi_thread` runtime wake another worker to come and take it.
fn again(context: &mut Context<'_>) {
    // Its first poll has the runtime wake the task later; there is no second.
    let _ = pin!(tokio::task::yield_now()).poll(context);
}

/// For how long a task of this runtime that was woken too early has its worker sleep at a time. Other workers take what becomes ready meanwhile, where there are any.
fn nap() -> Nanos {
    let workers = Handle::try_current().is_ok_and(|runtime| {
        runtime.runtime_flavor() == RuntimeFlavor::MultiThread && runtime.metrics().num_workers() > 1
    });
    if workers { Nanos::from_nanos(NAP_NS_MAX) } else { Nanos::ZERO }
}

impl Clock for TokioWatcher {
    fn now(&self) -> Instant {
        self.handle.now()
    }
}

impl Timer for TokioWatcher {
    async fn sleep_until(&self, at: Instant) {
        self.handle.sleep_until(at).await;
    }

    async fn yield_now(&self) {
        tokio::task::yield_now().await;
    }
}

impl<P> Watch<P> for TokioWatcher
where
    P: CompletionPort,
    P::Line: Send + Sync + 'static,
{
    async fn watch(&self, port: &P, until: Instant) -> Wake {
        self.handle.watch(port, until).await
    }
}
