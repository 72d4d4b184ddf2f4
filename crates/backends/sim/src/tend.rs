//! A watcher on virtual time: sees points to their ends, and runs futures that wait for them, on one thread.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::task::Wake as RawWake;
use alloc::vec::Vec;
use core::fmt;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use wakeline_core::{
    Action, Arming, Awaiter, Charge, Clock, CompletionPort, Error, ErrorCode, Instant, Lookout, Mode, Nanos,
    Observation, Park, Report, Tend, Wait, Wake, Watched,
};

use crate::device::SimDevice;
use crate::host::VirtualHost;
use crate::sync::{AtomicBool, Lock, Ordering};
use crate::time::VirtualTime;

/// How much time a wait that only asks lets pass between two questions.
pub const ASK_NS: u64 = 1_000;

/// For how long a task watches in one poll, where it watches.
pub const WATCH_SLICE_NS: u64 = 20_000;

/// How long before its landing a task is woken to watch, where tasks watch.
pub const EARLY_NS: u64 = 30_000;

/// How long after its landing it watches at most, beyond twice the plan's margin.
pub const WATCH_NS: u64 = 50_000;

/// What the watcher's threads of a host are in real time, on a virtual time line: nothing happens but in [`run`](Self::run) and
/// [`turn`](Self::turn), on the thread that calls them. Clones are the same watcher.
///
/// Every wait is the core's state machine and follows its plan. What was taken over and not seen to its end when the last clone is
/// dropped is dropped untold, as by a host whose process ends.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use wakeline_core::{Charge, Clock, Nanos, Tend};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::exact())?;
/// let watcher = VirtualWatcher::new(&device);
/// let stream = device.stream()?;
/// stream.launch(Nanos::from_micros(50))?;
/// let told = Arc::new(Mutex::new(None));
/// let tell = Arc::clone(&told);
/// let plan = "flag:park_us=50,backstop_us=1000".parse()?;
/// watcher.tend(stream.point(), &Charge::new(&plan), (), move |result| {
///     *tell.lock().unwrap() = Some(result.is_ok());
/// });
/// while watcher.turn() {}
/// assert_eq!(*told.lock().unwrap(), Some(true));
/// assert_eq!(watcher.now(), wakeline_core::Instant::from_nanos(50_000));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone)]
pub struct VirtualWatcher {
    inner: Arc<Inner>,
}

struct Inner {
    host: VirtualHost,
    flights: Lock<Vec<Box<dyn Fly>>>,
    closed: AtomicBool,
    /// How often it looked at a point.
    looks: Lock<u64>,
    /// Whether tasks watch by themselves, and which does, until when at most.
    watches: AtomicBool,
    watching: Lock<(usize, Instant)>,
}

/// One point that is seen to its end.
trait Fly: Send {
    /// Does what can be done now; whether it is over.
    fn advance(&mut self, clock: &VirtualHost) -> bool;
    /// When it has to be looked at by.
    fn due(&self, now: Instant) -> Instant;
    fn reached(&self) -> bool;
    /// Tells of its end, which is an error where it was not over.
    fn tell(self: Box<Self>);
}

struct Flight<P, A, E> {
    port: P,
    wait: Wait,
    action: Action,
    fault: Option<Error>,
    awaiter: A,
    /// Whether its task is to be woken early.
    early: bool,
    ended: E,
}

impl<P, A, E> Flight<P, A, E>
where
    P: CompletionPort,
{
    fn observe(&mut self, result: Result<Observation, Error>) -> Observation {
        result.unwrap_or_else(|error| {
            self.fault = Some(error);
            Observation::Failed
        })
    }
}

impl<P, A, E> Flight<P, A, E>
where
    P: CompletionPort,
    A: Awaiter,
{
    /// When its task is to be woken to watch, in a sleep that is predicted.
    fn rouse_at(&self) -> Option<Instant> {
        let landing = self.wait.landing().filter(|_| self.early && self.awaiter.lookout().is_some())?;
        Some(Instant::from_nanos(landing.as_nanos().saturating_sub(EARLY_NS)))
    }

    /// Wakes its task to watch, and looks at the word from now on itself.
    fn rouse(&mut self, now: Instant) {
        if let (Some(lookout), Some(landing)) = (self.awaiter.lookout(), self.wait.landing()) {
            let margin = self.wait.margin().unwrap_or(Nanos::ZERO);
            lookout.woken(now, now.since(self.wait.started()));
            lookout.watch_until(landing + margin + margin + Nanos::from_nanos(WATCH_NS));
        }
        self.early = false;
        self.action = self.wait.land_now(now);
        self.awaiter.wake();
    }
}

impl<P, A, E> Fly for Flight<P, A, E>
where
    P: CompletionPort + Send,
    A: Awaiter,
    E: FnOnce(Result<Report, Error>) + Send,
{
    fn advance(&mut self, host: &VirtualHost) -> bool {
        let mut asked = false;
        if self.rouse_at().is_some_and(|at| host.now() >= at) {
            self.rouse(host.now());
        }
        loop {
            if self.awaiter.is_over() {
                return true;
            }
            let observation = match self.action {
                Action::Finish(_) => return true,
                Action::Query if asked => return false,
                Action::Query => {
                    asked = true;
                    let status = self.port.query().map(Observation::Status);
                    self.observe(status)
                }
                Action::Block { until } => {
                    let status = self.port.block(until).map(Observation::Status);
                    self.observe(status)
                }
                Action::Arm => {
                    let armed = self.port.arm().map(|arming| match arming {
                        Arming::Armed => Observation::Armed,
                        Arming::Unsupported => Observation::Unsupported,
                    });
                    self.observe(armed)
                }
                Action::SleepUntil(at) if host.now() < at => return false,
                Action::Park { .. } if self.port.poll() == Wake::Reached => Observation::Reached,
                Action::Park { until } if host.now() < until => return false,
                Action::SleepUntil(_) | Action::Park { .. } | Action::Warm => Observation::Woke,
            };
            self.action = self.wait.step(host.now(), observation);
        }
    }

    fn due(&self, now: Instant) -> Instant {
        if let Some(at) = self.rouse_at() {
            return at;
        }
        match self.action {
            Action::SleepUntil(at) | Action::Park { until: at } => at,
            _ => now + Nanos::from_nanos(ASK_NS),
        }
    }

    fn reached(&self) -> bool {
        matches!(self.action, Action::Park { .. }) && self.port.poll() == Wake::Reached
    }

    fn tell(self: Box<Self>) {
        let Self { port, wait, action, fault, awaiter, ended, .. } = *self;
        if awaiter.is_over() {
            return;
        }
        let result = match action {
            Action::Finish(report) => {
                let at = report.outcome().and_then(|_| port.ended());
                report.ended_at(wait.started(), at).into_result(port.descriptor(), fault)
            }
            _ => Err(Error::new(ErrorCode::WatcherClosed, [])),
        };
        ended(result);
    }
}

impl VirtualWatcher {
    /// A watcher of the points of this device.
    pub fn new(device: &SimDevice<VirtualTime>) -> Self {
        Self::on(VirtualHost::new(device))
    }

    /// A watcher of the points of this device and the others, which are on one time line. The faults of the host are the first one's.
    ///
    /// ```
    /// use wakeline_core::{Clock, Nanos};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// let time = VirtualTime::new();
    /// let devices = [(); 2].map(|()| SimDevice::new(time.clone(), SimConfig::exact()).expect("a device"));
    /// let watcher = VirtualWatcher::of(&devices[0], &devices[1..]);
    /// let stream = devices[1].stream()?;
    /// stream.launch(Nanos::from_micros(50))?;
    /// while watcher.turn() {}
    /// assert_eq!(watcher.now(), wakeline_core::Instant::from_nanos(50_000));
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    pub fn of(device: &SimDevice<VirtualTime>, others: &[SimDevice<VirtualTime>]) -> Self {
        Self::on(others.iter().fold(VirtualHost::new(device), VirtualHost::and))
    }

    /// A watcher of the points of all devices of this host.
    ///
    /// ```
    /// use wakeline_core::{Charge, Nanos, Tend};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime, VirtualWatcher};
    /// let time = VirtualTime::new();
    /// let device = |_| SimDevice::new(time.clone(), SimConfig::exact());
    /// let (one, other) = (device(0)?, device(1)?);
    /// let watcher = VirtualWatcher::on(VirtualHost::new(&one).and(&other));
    /// let plan = "flag:park_us=50,backstop_us=1000".parse()?;
    /// for stream in [one.stream()?, other.stream()?] {
    ///     stream.launch(Nanos::from_micros(50))?;
    ///     watcher.tend(stream.point(), &Charge::new(&plan), (), |ended| assert!(ended.is_ok()));
    /// }
    /// while watcher.turn() {}
    /// assert_eq!(watcher.pending(), 0);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    pub fn on(host: VirtualHost) -> Self {
        let inner = Inner {
            host,
            flights: Lock::new(Vec::new()),
            closed: AtomicBool::new(false),
            looks: Lock::new(0),
            watches: AtomicBool::new(false),
            watching: Lock::new((0, Instant::ORIGIN)),
        };
        Self { inner: Arc::new(inner) }
    }

    /// How many points it sees to their ends.
    pub fn pending(&self) -> usize {
        self.inner.flights.lock().len()
    }

    /// How often it has looked at a point so far: what it costs a host to see points to their ends.
    pub fn looks(&self) -> u64 {
        *self.inner.looks.lock()
    }

    /// Whether tasks watch words by themselves, in polls that let a slice of time pass: where they are woken early, and where whoever
    /// hands a point over says so. Not at first, so that a poll takes no time.
    pub fn let_tasks_watch(&self, yes: bool) {
        self.inner.watches.store(yes, Ordering::Release);
    }

    /// Lets time pass to the next moment at which something can end, and tells of what has. False where nothing can come any more:
    /// it has no point, and nothing is due on the device.
    pub fn turn(&self) -> bool {
        let inner = &*self.inner;
        self.settle();
        let now = inner.host.now();
        let mut flights = core::mem::take(&mut *inner.flights.lock());
        let due = flights.iter().map(|flight| flight.due(now)).min();
        // What would be looked at when time ends is looked at when something happens before.
        let until = due.filter(|due| *due < Instant::MAX).unwrap_or_else(|| inner.host.next_due());
        if until < Instant::MAX {
            inner.host.park(None, until, || flights.iter().any(|flight| flight.reached()));
        }
        inner.flights.lock().append(&mut flights);
        self.settle();
        until < Instant::MAX
    }

    /// Runs a future to its end on this thread, letting time pass whenever it pends.
    ///
    /// # Errors
    ///
    /// [`Stalled`](ErrorCode::Stalled) where it pends, nobody has woken it and nothing can come any more. It is dropped then.
    pub fn run<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        let woken = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Ok(output);
            }
            while !woken.0.swap(false, Ordering::AcqRel) {
                if !self.turn() && !woken.0.load(Ordering::Acquire) {
                    return Err(Error::new(ErrorCode::Stalled, [&1]));
                }
            }
        }
    }

    /// Ends everything that is pending, and whatever comes later, with [`WatcherClosed`](ErrorCode::WatcherClosed).
    pub fn close(&self) {
        self.inner.closed.store(true, Ordering::Release);
        let flights = core::mem::take(&mut *self.inner.flights.lock());
        flights.into_iter().for_each(Fly::tell);
    }

    /// When it has to look at one of its points by, whatever their words say: `None` where it has none. For whoever lets time pass for
    /// several watchers, from one moment at which something is due to the next, and has each [look](Self::look) then.
    pub fn due(&self) -> Option<Instant> {
        let now = self.inner.host.now();
        self.inner.flights.lock().iter().map(|flight| flight.due(now)).min()
    }

    /// Looks at its points, and tells of those that have ended by now. Lets no time pass but that of its driver calls.
    pub fn look(&self) {
        self.settle();
    }

    /// Tells of all that has ended by now. No lock is held where it does.
    fn settle(&self) {
        loop {
            let flights = core::mem::take(&mut *self.inner.flights.lock());
            let (mut over, mut left) = (Vec::new(), Vec::new());
            *self.inner.looks.lock() += flights.len() as u64;
            for mut flight in flights {
                if flight.advance(&self.inner.host) { over.push(flight) } else { left.push(flight) }
            }
            {
                let mut flights = self.inner.flights.lock();
                // Those that came meanwhile came later.
                left.append(&mut flights);
                *flights = left;
            }
            if over.is_empty() {
                return;
            }
            over.into_iter().for_each(Fly::tell);
        }
    }
}

impl Clock for VirtualWatcher {
    fn now(&self) -> Instant {
        self.inner.host.now()
    }
}

impl<P> Tend<P> for VirtualWatcher
where
    P: CompletionPort + Send + 'static,
{
    /// The lateness that a charge allows is not made use of.
    fn tend<A, E>(&self, mut port: P, charge: &Charge<'_>, awaiter: A, ended: E)
    where
        A: Awaiter,
        E: FnOnce(Result<Report, Error>) + Send + 'static,
    {
        if self.inner.closed.load(Ordering::Acquire) {
            return ended(Err(Error::new(ErrorCode::WatcherClosed, [])));
        }
        let arming = match (charge.arming, charge.plan.mode()) {
            (Some(arming), _) => Ok(arming),
            (None, Mode::Flag { .. }) => port.arm(),
            (None, Mode::Block | Mode::Poll) => Ok(Arming::Unsupported),
        };
        let arming = match arming {
            Ok(arming) => arming,
            Err(error) => return ended(Err(error)),
        };
        let wait = Wait::new(charge.plan).predicted(charge.residual).watched(arming);
        let (wait, action) = wait.start(self.inner.host.now());
        let early = self.inner.watches.load(Ordering::Acquire) && charge.late == Nanos::ZERO;
        let flight = Flight { port, wait, action, fault: None, awaiter, early, ended };
        self.inner.flights.lock().push(Box::new(flight));
    }

    /// Lets a slice of virtual time pass where tasks are [let watch](Self::let_tasks_watch).
    fn watch(&self, lookout: &Lookout, who: usize, mut ended: impl FnMut() -> bool) -> Watched {
        let inner = &*self.inner;
        lookout.take_woken();
        let now = inner.host.now();
        let until = lookout.until().filter(|until| now < *until && inner.watches.load(Ordering::Acquire));
        let mine = until.is_some_and(|until| {
            let mut watching = inner.watching.lock();
            let mine = watching.0 == who || now >= watching.1;
            if mine {
                *watching = (who, until);
            }
            mine
        });
        let Some(until) = until.filter(|_| mine) else {
            <Self as Tend<P>>::unwatch(self, lookout, who);
            return Watched::NotAsked;
        };
        let slice = until.min(now + Nanos::from_nanos(WATCH_SLICE_NS));
        if ended() || inner.host.park(None, slice, &mut ended) == Wake::Reached {
            <Self as Tend<P>>::unwatch(self, lookout, who);
            return Watched::Ended;
        }
        if slice < until {
            return Watched::Again;
        }
        <Self as Tend<P>>::unwatch(self, lookout, who);
        Watched::NotAsked
    }

    fn unwatch(&self, lookout: &Lookout, who: usize) {
        lookout.take_woken();
        lookout.stop();
        let mut watching = self.inner.watching.lock();
        if watching.0 == who {
            *watching = (0, Instant::ORIGIN);
        }
    }

    fn alarm(&self, at: Instant, waker: &Waker) {
        let alarm = Alarm { at, waker: waker.clone(), over: false };
        self.inner.flights.lock().push(Box::new(alarm));
    }
}

/// Somebody to be woken at a moment.
struct Alarm {
    at: Instant,
    waker: Waker,
    over: bool,
}

impl Fly for Alarm {
    fn advance(&mut self, host: &VirtualHost) -> bool {
        self.over |= host.now() >= self.at;
        self.over
    }

    fn due(&self, _: Instant) -> Instant {
        self.at
    }

    fn reached(&self) -> bool {
        false
    }

    fn tell(self: Box<Self>) {
        if self.over {
            self.waker.wake();
        }
    }
}

impl fmt::Debug for VirtualWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualWatcher").field("pending", &self.pending()).finish_non_exhaustive()
    }
}

/// Whether a future was woken.
struct Flag(AtomicBool);

impl RawWake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}
