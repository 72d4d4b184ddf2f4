//! The simulated device.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::task::Waker;

use wakeline_core::{ContextKey, Error, Instant, Nanos, Seq, Turn};

use crate::config::SimConfig;
use crate::fault::Faults;
use crate::line::SlotUse;
use crate::log::{Counts, LogEntry};
use crate::state::{Call, JobCall, State};
use crate::stream::SimStream;
use crate::sync::Lock;
use crate::time::{TimeLine, VirtualTime};

/// A device that exists only in memory: streams, words, statuses and faults, on a virtual or a real time line.
///
/// It spawns no thread and does nothing by itself. On a virtual time line a [`VirtualHost`](crate::VirtualHost)
/// moves it along; on a real one a thread of the host drives it through [`Turn`]. Every call first lets happen
/// what is due, so a status is right however late that thread is. Clones share one device.
///
/// ```
/// use wakeline_core::{CompletionPort, Nanos, Status};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let stream = device.stream()?;
/// stream.launch(Nanos::from_micros(50))?;
/// let mut point = stream.point();
/// assert_eq!(point.query()?, Status::Pending);
/// assert_eq!(point.block(None)?, Status::Done);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub struct SimDevice<T = VirtualTime> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    time: T,
    config: SimConfig,
    /// That of all devices beside each other, and its number among them.
    state: Arc<Lock<State>>,
    number: usize,
}

/// What to ring after something was enqueued, if anything.
#[must_use]
pub(crate) struct Bell(Option<Arc<Waker>>);

impl Bell {
    /// Rings. The caller holds no lock.
    pub(crate) fn ring(self) {
        if let Some(bell) = self.0 {
            bell.wake_by_ref();
        }
    }
}

impl<T> Clone for SimDevice<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T> fmt::Debug for SimDevice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDevice").finish_non_exhaustive()
    }
}

impl<T> SimDevice<T> {
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let (result, call) = {
            let mut state = self.inner.state.lock();
            state.select(self.inner.number);
            (f(&mut state), state.take_call())
        };
        self.make(call);
        result
    }

    /// Calls kernels and host functions whose turn has come. No lock is held while one runs.
    fn make(&self, mut call: Option<JobCall>) {
        while let Some(next) = call {
            let called = next.run();
            let mut state = self.inner.state.lock();
            state.end_call(called);
            call = state.take_call();
        }
    }

    /// The same, for what may make something due. The bell is for when no lock is held any more.
    pub(crate) fn enqueue<R>(&self, f: impl FnOnce(&mut State) -> R) -> (R, Bell) {
        let (result, call, bell) = {
            let mut state = self.inner.state.lock();
            state.select(self.inner.number);
            let result = f(&mut state);
            (result, state.take_call(), Bell(state.bell_to_ring()))
        };
        self.make(call);
        (result, bell)
    }

    /// The time line it lives on.
    pub fn time(&self) -> &T {
        &self.inner.time
    }

    /// How it was set up, with the faults that it began with.
    pub fn config(&self) -> &SimConfig {
        &self.inner.config
    }

    /// How often what has happened.
    pub fn counts(&self) -> Counts {
        self.with(|state| state.counts)
    }

    /// How its words are used.
    pub fn slots(&self) -> SlotUse {
        self.with(|state| state.lines.slot_use())
    }

    /// What each of its words reads, in the order in which they were made.
    ///
    /// ```
    /// use wakeline_core::{CompletionPort, Seq};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime};
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::exact())?;
    /// let stream = device.stream()?;
    /// stream.point().arm()?;
    /// assert_eq!(device.words()[..2], [Seq::new(1), Seq::ZERO]); // words are made by the line
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    pub fn words(&self) -> Vec<Seq> {
        self.with(|state| state.lines.words())
    }

    /// What happened, oldest first, as far as [`SimConfig::log_len_max`] reaches.
    pub fn log(&self) -> Vec<LogEntry> {
        self.with(|state| state.log.to_vec())
    }
}

impl<T: TimeLine> SimDevice<T> {
    /// A device on this time line.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit) where a value of `config` is out of range.
    pub fn new(time: T, config: SimConfig) -> Result<Self, Error> {
        config.check()?;
        let state = Arc::new(Lock::new(State::new(&config)));
        Ok(Self { inner: Arc::new(Inner { time, config, state, number: 0 }) })
    }

    /// Another device of the same machine, on the same time line: streams of the one can wait for events of the other, and memory is copied from the one to the
    /// other. What happens on all of them happens in one order, so that whoever drives one of them drives all; [misuses](Self::misuses) are those of all. A fault is
    /// that of its own device alone: streams of others that wait for it go on once it is known.
    ///
    /// ```
    /// use wakeline_core::{CompletionPort, Nanos};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime};
    /// let one = SimDevice::new(VirtualTime::new(), SimConfig::exact())?;
    /// let other = one.beside(SimConfig { copy_ns: 500, ..SimConfig::exact() })?;
    /// let (stream, theirs, event) = (one.stream()?, other.stream()?, one.event());
    /// stream.launch(Nanos::from_micros(50))?;
    /// stream.record(&event)?;
    /// theirs.wait(&event)?;
    /// one.inject_fault();
    /// theirs.point().block(None)?;
    /// assert!(one.health().is_some() && other.health().is_none());
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn beside(&self, config: SimConfig) -> Result<Self, Error>
    where
        T: Clone,
    {
        config.check()?;
        let (time, state) = (self.inner.time.clone(), Arc::clone(&self.inner.state));
        let number = state.lock().add_device(&config);
        Ok(Self { inner: Arc::new(Inner { time, config, state, number }) })
    }

    /// A new stream with a completion word of its own.
    ///
    /// # Errors
    ///
    /// The device's fault; [`Backend`](wakeline_core::ErrorCode::Backend) when all
    /// [`slots_max`](SimConfig::slots_max) words are taken or quarantined.
    pub fn stream(&self) -> Result<SimStream<T>, Error> {
        self.make_stream(false)
    }

    /// A stream, for captures alone or for all but them.
    pub(crate) fn make_stream(&self, captures: bool) -> Result<SimStream<T>, Error> {
        let now = self.now();
        let (key, place, line, armed) = self.with(|state| {
            state.begin(Call::Stream, now);
            state.health()?;
            state.new_stream()
        })?;
        Ok(SimStream::new(self.clone(), key, line, place.slot(), armed, captures))
    }

    /// The device's fault, `None` while it is healthy. Costs nothing and counts as no call.
    pub fn health(&self) -> Option<Error> {
        let now = self.now();
        self.with(|state| {
            state.turn(now);
            state.health().err()
        })
    }

    /// What goes wrong now.
    pub fn faults(&self) -> Faults {
        self.with(|state| *state.faults())
    }

    /// Changes what goes wrong from now on; what was drawn already stays as it is.
    ///
    /// ```
    /// use wakeline_core::{CompletionPort, Nanos};
    /// use wakeline_sim::{Faults, SimConfig, SimDevice, VirtualTime};
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::exact())?;
    /// let stream = device.stream()?;
    /// device.set_faults(&Faults { lost_store_ppm: 1_000_000, ..Faults::none() })?;
    /// stream.point().arm()?; // this store is lost
    /// device.set_faults(&Faults::none())?;
    /// stream.point().arm()?; // this one lands
    /// assert_eq!((device.counts().lost, device.counts().landed), (1, 1));
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit) where a value of `faults` is out of range.
    pub fn set_faults(&self, faults: &Faults) -> Result<(), Error> {
        faults.check()?;
        let now = self.now();
        self.with(|state| {
            state.turn(now);
            state.set_faults(faults);
        });
        Ok(())
    }

    /// Makes the device fault now, for good: unfinished work never ends, stores that have not landed never do.
    pub fn inject_fault(&self) {
        let now = self.now();
        self.with(|state| {
            state.turn(now);
            state.stop(now);
        });
    }

    pub(crate) fn context(&self) -> ContextKey {
        ContextKey::of(&*self.inner)
    }

    /// What all devices beside each other share.
    pub(crate) fn machine(&self) -> ContextKey {
        ContextKey::of(&*self.inner.state)
    }

    /// Its number among those beside it.
    #[cfg(feature = "ops")]
    pub(crate) fn number(&self) -> usize {
        self.inner.number
    }

    pub(crate) fn now(&self) -> Instant {
        self.inner.time.now()
    }

    /// Lets the calling thread spend the cost of a call.
    pub(crate) fn charge(&self, ns: u64) {
        if ns > 0 {
            self.pass(self.now() + Nanos::from_nanos(ns));
        }
    }

    /// Lets time pass on the calling thread until `until` has come.
    pub(crate) fn pass(&self, until: Instant) {
        while self.now() < until {
            self.inner.time.pass(until);
        }
    }
}

impl<T: TimeLine> Turn for SimDevice<T> {
    fn turn(&self, now: Instant) -> Option<Instant> {
        let next = self.with(|state| {
            state.turn(now);
            state.promise()
        });
        (next < Instant::MAX).then_some(next)
    }

    fn set_bell(&self, bell: Waker) {
        let old = self.with(|state| state.set_bell(Arc::new(bell)));
        drop(old);
    }
}
