//! The runtime: a device, its streams, and who sees its points to their ends.

use core::any::Any;
use core::fmt;
use core::task::{Context, Waker};
use std::sync::{Arc, Weak};

use wakeline_core::{
    Authority, CancelToken, Charge, Clock, CompletionPort, Error, ErrorCode, Instant, Lookout, Mode, Nanos,
    Tend, WaitPlan, Watched, within,
};

use crate::config::{Completion, RuntimeConfig};
use crate::counts::FlightCounts;
use crate::flight::{Fleet, Handle};
use crate::interest::Interests;
use crate::point::OpPoint;
use crate::policy::{STREAMS_MAX, SchedulingPolicy};
use crate::port::{Device, Priority};
use crate::stream::Stream;

/// Runs operations on one device. Clones are the same runtime.
///
/// Made once, and cheap to clone (a count); what an operation costs in it is told at [`DeviceFuture`](crate::DeviceFuture#cost).
///
/// It starts no thread: points are seen to their ends by what is handed in as `tender`, the watcher of `wakeline-std` say. What is in
/// flight when the last clone is gone still ends; to close who tends, or to end the process, wait for that first: [`drain`](Self::drain).
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

pub(crate) struct Inner<D: Device> {
    core: Arc<Core<D>>,
    streams: Vec<Stream<D>>,
    next: Box<dyn Fn() -> usize + Send + Sync>,
}

/// What all streams and runtimes of one device share.
pub(crate) struct Core<D: Device> {
    pub(crate) device: D,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) config: RuntimeConfig,
    /// Whether the plan watches words, and whether one alone says that its work is done.
    pub(crate) watches_words: bool,
    pub(crate) trusts: bool,
    /// Whether they are words that the device stores itself, where it can.
    pub(crate) by_word: bool,
    /// For how long a task watches from submission on.
    pub(crate) spin: Nanos,
    pub(crate) tender: Box<dyn Tender<OpPoint<D::Point>>>,
    pub(crate) interests: Arc<Interests<D>>,
}

/// [`Tend`] for flights, as an object: the type of who tends is no part of a runtime's.
pub(crate) trait Tender<P: CompletionPort>: Send + Sync {
    fn now(&self) -> Instant;
    fn tend(&self, port: P, charge: &Charge<'_>, flight: Handle);
    fn watch(&self, lookout: &Lookout, who: usize, ended: &mut dyn FnMut() -> bool) -> Watched;
    fn again(&self, context: &mut Context<'_>);
    fn unwatch(&self, lookout: &Lookout, who: usize);
    fn let_go(&self);
    fn alarm(&self, at: Instant, waker: &Waker);
}

impl<P: CompletionPort, T: Tend<P> + Send + Sync> Tender<P> for T {
    fn now(&self) -> Instant {
        Clock::now(self)
    }

    fn tend(&self, port: P, charge: &Charge<'_>, flight: Handle) {
        let ends = flight.clone();
        Tend::tend(self, port, charge, flight, move |waited| ends.land_told(waited));
    }

    fn watch(&self, lookout: &Lookout, who: usize, ended: &mut dyn FnMut() -> bool) -> Watched {
        Tend::watch(self, lookout, who, ended)
    }

    fn again(&self, context: &mut Context<'_>) {
        Tend::again(self, context);
    }

    fn unwatch(&self, lookout: &Lookout, who: usize) {
        Tend::unwatch(self, lookout, who);
    }

    fn let_go(&self) {
        Tend::let_go(self);
    }

    fn alarm(&self, at: Instant, waker: &Waker) {
        Tend::alarm(self, at, waker);
    }
}

impl<D: Device> Runtime<D> {
    /// A runtime of this device with the streams that `policy` needs, whose points are waited for by [`PLAN`](crate::PLAN).
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](ErrorCode::InvalidLimit) where the policy asks for no stream or for too many; what the device says where it
    /// has none.
    pub fn new<T>(device: D, policy: &impl SchedulingPolicy, tender: T) -> Result<Self, Error>
    where
        T: Tend<OpPoint<D::Point>> + Send + Sync + 'static,
    {
        Self::with_config(device, policy, tender, RuntimeConfig::default())
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
        T: Tend<OpPoint<D::Point>> + Send + Sync + 'static,
    {
        Self::with_config(device, policy, tender, RuntimeConfig::default().plan(plan))
    }

    /// The same, set up like this.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_config<T>(
        device: D,
        policy: &impl SchedulingPolicy,
        tender: T,
        config: RuntimeConfig,
    ) -> Result<Self, Error>
    where
        T: Tend<OpPoint<D::Point>> + Send + Sync + 'static,
    {
        let watches_words = matches!(config.plan.mode(), Mode::Flag { .. });
        let trusts = watches_words && config.plan.authority() == Authority::Word;
        let by_word = watches_words && config.completion == Completion::Word;
        let spin = Nanos::from_micros(config.spin_us.into());
        let core = |core: &Weak<Core<D>>| {
            let (fleet, interests) = (Fleet::new(), Interests::new(Weak::clone(core)));
            let tender = Box::new(tender);
            Core { device, fleet, config, watches_words, trusts, by_word, spin, tender, interests }
        };
        Self::of(Arc::new_cyclic(core), policy)
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
        self.inner.core.fleet.counters.read()
    }

    pub(crate) fn core(&self) -> &Arc<Core<D>> {
        &self.inner.core
    }

    pub(crate) fn inner(&self) -> Arc<Inner<D>> {
        Arc::clone(&self.inner)
    }

    /// The runtime that this is the inside of, if it is of this kind of device.
    pub(crate) fn of_inner(inner: &Arc<dyn Any + Send + Sync>) -> Option<Self> {
        // Looked at before it is cloned: of nested scopes most are of the kind that is asked for, but not all.
        if !inner.is::<Inner<D>>() {
            return None;
        }
        Arc::clone(inner).downcast().ok().map(|inner| Self { inner })
    }

    /// A token for [`DeviceFuture::cancelled_by`](crate::DeviceFuture::cancelled_by) whose cancellation is looked at at once.
    pub fn cancel_token(&self) -> CancelToken {
        self.inner.core.interests.token()
    }

    /// The stream for the next operation: that of this number, or of the policy's.
    pub(crate) fn next_stream(&self, number: Option<usize>) -> Result<Stream<D>, Error> {
        let streams = &self.inner.streams;
        let number = number.unwrap_or_else(|| (self.inner.next)());
        // Most policies count so far and no further.
        let number = if number < streams.len() { number } else { number % streams.len().max(1) };
        streams.get(number).cloned().ok_or_else(|| Error::new(ErrorCode::NoRuntime, []))
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
