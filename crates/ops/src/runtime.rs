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
use crate::lane::Permit;
use crate::lanes::{Branched, Lanes, Loads, Places, Streams};
use crate::machine::Kin;
use crate::point::OpPoint;
use crate::policy::{STREAMS_MAX, SchedulingPolicy};
use crate::port::{Device, Priority};
use crate::room::ClosedGates;
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
    streams: Arc<[Stream<D>]>,
    lanes: Lanes,
    next: Box<dyn Fn(&Loads<'_>) -> usize + Send + Sync>,
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
    /// Those of all devices of its machine: streams of one may be behind gates of another.
    pub(crate) gates: Arc<ClosedGates>,
    /// Its number in its machine.
    pub(crate) number: usize,
}

/// [`Tend`] for flights, as an object: the type of who tends is no part of a runtime's.
pub(crate) trait Tender<P: CompletionPort>: Send + Sync {
    fn now(&self) -> Instant;
    fn tend(&self, port: P, charge: &Charge<'_>, flight: Handle);
    fn watch(&self, lookout: &Lookout, who: usize, ended: &mut dyn FnMut() -> bool) -> Watched;
    fn again(&self, context: &mut Context<'_>);
    fn unwatch(&self, lookout: &Lookout, who: usize);
    fn let_go(&self);
    fn attend(&self);
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

    fn attend(&self) {
        Tend::attend(self);
    }

    fn alarm(&self, at: Instant, waker: &Waker) {
        Tend::alarm(self, at, waker);
    }
}

impl<D: Device> Core<D> {
    fn new<T>(
        device: D,
        tender: T,
        config: RuntimeConfig,
        (gates, number): (Arc<ClosedGates>, usize),
    ) -> Arc<Self>
    where
        T: Tend<OpPoint<D::Point>> + Send + Sync + 'static,
    {
        let watches_words = matches!(config.plan.mode(), Mode::Flag { .. });
        let trusts = watches_words && config.plan.authority() == Authority::Word;
        let by_word = watches_words && config.completion == Completion::Word;
        let spin = Nanos::from_micros(config.spin_us.into());
        let tender = Box::new(tender);
        Arc::new_cyclic(|core: &Weak<Self>| {
            let (fleet, interests) = (Fleet::new(), Interests::new(Weak::clone(core)));
            Self {
                device,
                fleet,
                config,
                watches_words,
                trusts,
                by_word,
                spin,
                tender,
                interests,
                gates,
                number,
            }
        })
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
        Self::of(Core::new(device, tender, config, (Arc::new(ClosedGates::new()), 0)), policy, None)
    }

    /// A runtime of one device of a machine.
    pub(crate) fn of_machine<T>(
        device: D,
        policy: &impl SchedulingPolicy,
        tender: T,
        config: RuntimeConfig,
        (gates, number): (&Arc<ClosedGates>, usize),
        kin: &Arc<Kin<D>>,
    ) -> Result<Self, Error>
    where
        T: Tend<OpPoint<D::Point>> + Send + Sync + 'static,
    {
        let core = Core::new(device, tender, config, (Arc::clone(gates), number));
        Self::of(core, policy, Some(kin))
    }

    /// The same device with another policy and streams of its own: hand it to [`DeviceOp::on`](crate::DeviceOp::on) for one
    /// operation, or to [`scope`](Self::scope) for many.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_policy(&self, policy: &impl SchedulingPolicy) -> Result<Self, Error> {
        Self::of(Arc::clone(&self.inner.core), policy, self.kin())
    }

    /// What the devices of its machine share: its streams have it.
    fn kin(&self) -> Option<&Arc<Kin<D>>> {
        self.inner.streams.first()?.kin()
    }

    fn of(
        core: Arc<Core<D>>,
        policy: &impl SchedulingPolicy,
        kin: Option<&Arc<Kin<D>>>,
    ) -> Result<Self, Error> {
        let policy = policy.clone();
        let streams = within("streams", policy.streams(), 1, STREAMS_MAX)?;
        let with_priority = |number| {
            Ok((Stream::new(&core, policy.priority(number), kin.cloned())?, policy.priority(number)))
        };
        let made: Result<Vec<_>, Error> = (0..streams).map(with_priority).collect();
        let made = made?;
        let lanes = made.iter().map(|(stream, priority)| (Arc::clone(stream.lane()), *priority));
        let lanes = Streams::new(lanes);
        let streams = made.into_iter().map(|(stream, _)| stream).collect();
        let next = Box::new(move |loads: &Loads<'_>| policy.choose(loads));
        Ok(Self { inner: Arc::new(Inner { core, streams, lanes, next }) })
    }

    /// The same streams with another policy: for one operation by [`DeviceOp::on`](crate::DeviceOp::on), for many by
    /// [`scope`](Self::scope). How many streams the policy asks for, and of which priorities, does not matter here. Makes no driver call.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, LeastLoaded, Runtime, SingleStream, StreamPoolRoundRobin};
    /// use wakeline_tensor::Tensor;
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let watcher = VirtualWatcher::new(&device);
    /// let runtime = Runtime::new(device, &LeastLoaded::default(), watcher.clone())?;
    /// let in_order = runtime.scheduled(&SingleStream);
    /// let ones = watcher.run(in_order.scope(async {
    ///     let ones: Tensor<u8, SimDevice> = Tensor::full(4, 1).await?;
    ///     ones.to_host().await
    /// }))??;
    /// assert_eq!(ones, [1; 4]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    #[must_use]
    pub fn scheduled(&self, policy: &impl SchedulingPolicy) -> Self {
        let Inner { core, streams, lanes, .. } = &*self.inner;
        let (core, streams, lanes) = (Arc::clone(core), Arc::clone(streams), Arc::clone(lanes));
        let policy = policy.clone();
        let next = Box::new(move |loads: &Loads<'_>| policy.choose(loads));
        Self { inner: Arc::new(Inner { core, streams, lanes, next }) }
    }

    /// A stream of its own, beside those of the policy.
    ///
    /// # Errors
    ///
    /// What the device says where it has none.
    pub fn stream(&self, priority: Priority) -> Result<Stream<D>, Error> {
        Stream::new(&self.inner.core, priority, self.kin().cloned())
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
        let number = number.unwrap_or_else(|| self.choose(&[], 0, &*self.inner.next));
        // Most policies count so far and no further.
        let number = if number < streams.len() { number } else { number % streams.len().max(1) };
        streams.get(number).cloned().ok_or_else(|| Error::new(ErrorCode::NoRuntime, []))
    }

    /// How many operations are in flight in its streams, and how long until all in them have ended, added up.
    pub(crate) fn pressure(&self, now: Instant) -> (usize, Nanos) {
        let lanes = self.inner.lanes.iter();
        lanes.fold((0, Nanos::ZERO), |(flying, left), (lane, _)| {
            (flying + lane.in_flight(), left + lane.residual(now))
        })
    }

    /// How many streams it has.
    pub(crate) fn streams(&self) -> usize {
        self.inner.streams.len()
    }

    /// What `policy` says, of streams that have so many branches of an operation each.
    #[inline]
    pub(crate) fn choose<R>(&self, branched: &[u32], own: u64, policy: impl FnOnce(&Loads<'_>) -> R) -> R {
        let core = &self.inner.core;
        policy(&Loads::new(&self.inner.lanes, branched, own, &|| core.tender.now()))
    }

    /// The streams for so many branches of what is submitted in `home`, where the policy says so and there is room: each in that one, or else in one behind it;
    /// `None` stands for home. `at_work` are the streams, one bit each, that have branches around these, and then these too.
    pub(crate) fn branches(
        &self,
        (home, permit): (&Stream<D>, &mut Permit),
        at_work: &mut u64,
        count: usize,
    ) -> impl Iterator<Item = Option<Stream<D>>> {
        let streams = &self.inner.streams;
        let home = streams.iter().position(|stream| stream.id() == home.id());
        let at_work_before = *at_work;
        let begun = |number| u32::from(Some(number) == home || at_work_before >> number & 1 == 1);
        let mut branched: Branched = (0..streams.len()).map(begun).collect();
        *at_work |= home.map_or(0, |home| 1 << home);
        (0..count).map(move |_| {
            let places = permit.also().get_or_insert_with(|| Places::new(&self.inner.lanes));
            let number = self.branch(home, places, &branched);
            if let Some(branches) = number.or(home).and_then(|number| branched.get_mut(number)) {
                *branches += 1;
            }
            *at_work |= number.map_or(0, |number| 1 << number);
            number.and_then(|number| streams.get(number).cloned())
        })
    }

    /// The number of the stream for a branch, with a place in it; `None` for home.
    fn branch(&self, home: Option<usize>, places: &mut Places, branched: &[u32]) -> Option<usize> {
        let count = self.inner.streams.len().max(1);
        let own = places.taken() | home.map_or(0, |home| 1 << home);
        let first = self.choose(branched, own, &*self.inner.next) % count;
        if Some(first) == home {
            return None;
        }
        let others = (0..count).map(|step| (first + step) % count).filter(|&number| Some(number) != home);
        others.into_iter().find(|&number| places.take(number))
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
