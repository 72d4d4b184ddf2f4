//! The runtime: a device, its streams, and who sees its points to their ends.

use core::fmt;
use std::sync::Arc;

use wakeline_core::{CompletionPort, Error, ErrorCode, Tend, WaitPlan, within};

use crate::counts::{Counters, FlightCounts};
use crate::flight::Flight;
use crate::policy::{STREAMS_MAX, SchedulingPolicy};
use crate::port::{Device, Priority};
use crate::stream::Stream;

/// How points are waited for where no other plan is handed in: by the word alone, since the streams are the runtime's own, with a
/// question to the driver every 10 ms so that faults are found.
pub const PLAN: &str = "flag:park_us=50,backstop_us=10000+trust";

/// Runs operations on one device. Clones are the same runtime.
///
/// It starts no thread: points are seen to their ends by what is handed in as `tender`, the watcher of `wakeline-std` say. What is in
/// flight when the last clone is gone still ends.
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin, value};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let watcher = VirtualWatcher::new(&device);
/// let runtime = Runtime::new(device, &StreamPoolRoundRobin::new(2)?, watcher.clone())?;
/// assert_eq!(watcher.run(value(20).map(|n| n + 1).on(&runtime))??, 21);
/// assert_eq!(value(7).on(&runtime).sync()?, 7); // waits on the spot
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub struct Runtime<D: Device> {
    inner: Arc<Inner<D>>,
}

struct Inner<D: Device> {
    core: Arc<Core<D>>,
    streams: Vec<Stream<D>>,
    next: Box<dyn Fn() -> usize + Send + Sync>,
}

/// What all streams and runtimes of one device share.
pub(crate) struct Core<D: Device> {
    pub(crate) device: D,
    pub(crate) counters: Arc<Counters>,
    plan: WaitPlan,
    tender: Box<dyn Tender<D::Point>>,
}

/// [`Tend`] for flights, as an object: the type of who tends is no part of a runtime's.
trait Tender<P>: Send + Sync {
    fn tend(&self, port: P, plan: &WaitPlan, flight: Arc<Flight>);
}

impl<P: CompletionPort, T: Tend<P> + Send + Sync> Tender<P> for T {
    fn tend(&self, port: P, plan: &WaitPlan, flight: Arc<Flight>) {
        Tend::tend(self, port, plan, move |waited| flight.land(Flight::meaning(waited)));
    }
}

impl<D: Device> Core<D> {
    /// Has the flight end when all work enqueued in `stream` so far has.
    pub(crate) fn tend(&self, stream: &Stream<D>, flight: &Arc<Flight>) {
        match self.device.point(stream.raw()) {
            Ok(point) => self.tender.tend(point, &self.plan, Arc::clone(flight)),
            Err(error) => flight.land(Err(error)),
        }
    }
}

impl<D: Device> Runtime<D> {
    /// A runtime of this device with the streams that `policy` needs, whose points are waited for by [`PLAN`].
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](ErrorCode::InvalidLimit) where the policy asks for no stream or for too many; what the device says where it
    /// has none.
    pub fn new<T>(device: D, policy: &impl SchedulingPolicy, tender: T) -> Result<Self, Error>
    where
        T: Tend<D::Point> + Send + Sync + 'static,
    {
        Self::with_plan(device, policy, tender, PLAN.parse()?)
    }

    /// The same with another plan.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_plan<T>(
        device: D,
        policy: &impl SchedulingPolicy,
        tender: T,
        plan: WaitPlan,
    ) -> Result<Self, Error>
    where
        T: Tend<D::Point> + Send + Sync + 'static,
    {
        let counters = Arc::new(Counters::default());
        let core = Core { device, counters, plan, tender: Box::new(tender) };
        Self::of(Arc::new(core), policy)
    }

    /// The same device with another policy and streams of its own: hand it to [`DeviceOp::on`](crate::DeviceOp::on) for one
    /// operation, or to [`scope`](Self::scope) for many.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_policy(&self, policy: &impl SchedulingPolicy) -> Result<Self, Error> {
        Self::of(Arc::clone(&self.inner.core), policy)
    }

    fn of(core: Arc<Core<D>>, policy: &impl SchedulingPolicy) -> Result<Self, Error> {
        let policy = policy.clone();
        let streams = within("streams", policy.streams(), 1, STREAMS_MAX)?;
        let streams: Result<Vec<_>, Error> =
            (0..streams).map(|_| Stream::new(&core, Priority::Normal)).collect();
        let next = Box::new(move || policy.next());
        Ok(Self { inner: Arc::new(Inner { core, streams: streams?, next }) })
    }

    /// A stream of its own, beside those of the policy.
    ///
    /// # Errors
    ///
    /// What the device says where it has none.
    pub fn stream(&self, priority: Priority) -> Result<Stream<D>, Error> {
        Stream::new(&self.inner.core, priority)
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.inner.core.device
    }

    /// What has become of all flights of this device's runtimes that were made from one another.
    pub fn counts(&self) -> FlightCounts {
        self.inner.core.counters.read()
    }

    /// The stream for the next operation.
    pub(crate) fn next_stream(&self) -> Result<Stream<D>, Error> {
        let streams = &self.inner.streams;
        let stream = streams.get((self.inner.next)() % streams.len().max(1));
        stream.cloned().ok_or_else(|| Error::new(ErrorCode::NoRuntime, []))
    }
}

impl<D: Device> Clone for Runtime<D> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<D: Device> fmt::Debug for Runtime<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("streams", &self.inner.streams.len()).finish_non_exhaustive()
    }
}
