//! A watcher on virtual time: sees points to their ends, and runs futures that wait for them, on one thread.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::task::Wake as RawWake;
use alloc::vec::Vec;
use core::fmt;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use wakeline_core::{
    Action, Arming, Clock, CompletionPort, Error, ErrorCode, Instant, Mode, Nanos, Observation, Park, Report,
    Tend, Wait, WaitPlan, Wake,
};

use crate::device::SimDevice;
use crate::host::VirtualHost;
use crate::sync::{AtomicBool, Lock, Ordering};
use crate::time::VirtualTime;

/// How much time a wait that only asks lets pass between two questions.
pub const ASK_NS: u64 = 1_000;

/// What the watcher's threads of a host are in real time, on a virtual time line: nothing happens but in [`run`](Self::run) and
/// [`turn`](Self::turn), on the thread that calls them. Clones are the same watcher.
///
/// Every wait is the core's state machine and follows its plan. What was taken over and not seen to its end when the last clone is
/// dropped is dropped untold, as by a host whose process ends.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use wakeline_core::{Clock, Nanos, Tend};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::exact())?;
/// let watcher = VirtualWatcher::new(&device);
/// let stream = device.stream()?;
/// stream.launch(Nanos::from_micros(50))?;
/// let told = Arc::new(Mutex::new(None));
/// let tell = Arc::clone(&told);
/// watcher.tend(stream.point(), &"flag:park_us=50,backstop_us=1000".parse()?, move |result| {
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
    device: SimDevice<VirtualTime>,
    flights: Lock<Vec<Box<dyn Fly>>>,
    closed: AtomicBool,
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

struct Flight<P, E> {
    port: P,
    wait: Wait,
    action: Action,
    fault: Option<Error>,
    ended: E,
}

impl<P, E> Flight<P, E>
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

impl<P, E> Fly for Flight<P, E>
where
    P: CompletionPort + Send,
    E: FnOnce(Result<Report, Error>) + Send,
{
    fn advance(&mut self, host: &VirtualHost) -> bool {
        let mut asked = false;
        loop {
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
        match self.action {
            Action::SleepUntil(at) | Action::Park { until: at } => at,
            _ => now + Nanos::from_nanos(ASK_NS),
        }
    }

    fn reached(&self) -> bool {
        matches!(self.action, Action::Park { .. }) && self.port.poll() == Wake::Reached
    }

    fn tell(self: Box<Self>) {
        let Self { port, wait, action, fault, ended } = *self;
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
        let inner = Inner {
            host: VirtualHost::new(device),
            device: device.clone(),
            flights: Lock::new(Vec::new()),
            closed: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// How many points it sees to their ends.
    pub fn pending(&self) -> usize {
        self.inner.flights.lock().len()
    }

    /// Lets time pass to the next moment at which something can end, and tells of what has. False where nothing can come any more:
    /// it has no point, and nothing is due on the device.
    pub fn turn(&self) -> bool {
        let inner = &*self.inner;
        self.settle();
        let now = inner.host.now();
        let mut flights = core::mem::take(&mut *inner.flights.lock());
        let due = flights.iter().map(|flight| flight.due(now)).min();
        let next = inner.device.with(|state| state.next_due());
        let until = due.unwrap_or(next);
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

    /// Tells of all that has ended by now. No lock is held where it does.
    fn settle(&self) {
        loop {
            let flights = core::mem::take(&mut *self.inner.flights.lock());
            let (mut over, mut left) = (Vec::new(), Vec::new());
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
    fn tend<E>(&self, mut port: P, plan: &WaitPlan, ended: E)
    where
        E: FnOnce(Result<Report, Error>) + Send + 'static,
    {
        if self.inner.closed.load(Ordering::Acquire) {
            return ended(Err(Error::new(ErrorCode::WatcherClosed, [])));
        }
        let arming = match plan.mode() {
            Mode::Flag { .. } => port.arm(),
            Mode::Block | Mode::Poll => Ok(Arming::Unsupported),
        };
        let arming = match arming {
            Ok(arming) => arming,
            Err(error) => return ended(Err(error)),
        };
        let (wait, action) = Wait::new(plan).watched(arming).start(self.inner.host.now());
        let flight = Flight { port, wait, action, fault: None, ended };
        self.inner.flights.lock().push(Box::new(flight));
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
