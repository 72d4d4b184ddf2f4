//! Several devices in one program.
//!
//! ```text
//!   Machine ──► Site 0: a device, its runtime, whether it is in ─┐
//!      │    ──► Site 1                                           ├── Kin: who reaches whose memory, a stream for what leaves by way of the host
//!      │    ──► ..                                              ─┘
//!      └─ Placement: on which of them the next operation runs
//! ```
//!
//! A runtime of one device knows nothing of the others, and costs what one without a machine does. What devices have to do with each other is in three places: a
//! stream waits for an event of another device (`events.rs`: recorded by the one, waited for by the other), a submission copies from another's memory (`across.rs`), and
//! whoever came behind a device's work asks whether that was well (`doubt.rs`).
//!
//! Invariants:
//! 1. Memory is touched by operations of its own device, but for copies from one device to another.
//! 2. A device that has faulted is out: nothing is placed there any more. The others are not asked, and do not wait.
//! 3. No call of a driver is made for a placement.

mod across;
mod doubt;
mod kin;
mod placement;
mod retry;
mod spread;

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use wakeline_core::{Error, ErrorCode, Nanos, Tend, within};

pub use self::across::{STAGE_BYTES, STAGES_MAX};
pub(crate) use self::doubt::{Doubts, Settled};
pub(crate) use self::kin::Kin;
use self::placement::Loaded;
pub use self::placement::{ByKey, DeviceLoads, InTurn, LeastBusy, Placement};
pub use self::retry::{Retry, TRIES_MAX};
pub use self::spread::Spread;
use crate::config::RuntimeConfig;
use crate::known::Kind;
use crate::point::OpPoint;
use crate::policy::SchedulingPolicy;
use crate::port::{Device, Link, Peers};
use crate::room::ClosedGates;
use crate::runtime::Runtime;

/// How many devices a machine may have.
pub const DEVICES_MAX: usize = 256;

/// A device of a [`Machine`].
pub struct Site<D: Device> {
    number: usize,
    runtime: Runtime<D>,
    out: AtomicBool,
    placed: AtomicU64,
}

impl<D: Device> Site<D> {
    /// Its number, counted from 0.
    pub const fn number(&self) -> usize {
        self.number
    }

    /// Its runtime: for operations that are to run there and nowhere else.
    pub const fn runtime(&self) -> &Runtime<D> {
        &self.runtime
    }

    /// The device.
    pub fn device(&self) -> &D {
        self.runtime.device()
    }

    /// Whether operations are placed there.
    pub fn is_in(&self) -> bool {
        !self.out.load(Ordering::Acquire)
    }

    /// How many operations were.
    pub fn placed(&self) -> u64 {
        self.placed.load(Ordering::Relaxed)
    }

    /// Asks the device whether it is well. Where it is not, nothing is placed there from now on.
    ///
    /// # Errors
    ///
    /// The device's fault.
    pub fn health(&self) -> Result<(), Error> {
        let health = self.device().health();
        if health.is_err() {
            self.out.store(true, Ordering::Release);
        }
        health
    }

    /// Places nothing there from now on: to have it drained, say. What is in flight goes on.
    pub fn take_out(&self) {
        self.out.store(true, Ordering::Release);
    }

    /// Places operations there again.
    ///
    /// # Errors
    ///
    /// The device's fault: then it stays out.
    pub fn put_in(&self) -> Result<(), Error> {
        self.health()?;
        self.out.store(false, Ordering::Release);
        Ok(())
    }
}

impl<D: Device> fmt::Debug for Site<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site")
            .field("number", &self.number)
            .field("is_in", &self.is_in())
            .field("placed", &self.placed())
            .finish_non_exhaustive()
    }
}

/// Several devices of one type, and where among them operations run. Clones are the same machine.
///
/// Each device has a [runtime](Site::runtime) of its own; tensors belong to one of them, and get to another by a copy, which is an operation of the device that they go
/// to (`Tensor::to_device`, [`Submission::copy_across`](crate::Submission::copy_across)). What conflicts is ordered on the devices, whichever they are: the one waits for an event of
/// the other, and the host for nothing.
///
/// An operation that may run on any of them is made once it is known where: [`run`](Self::run). It is placed in turn, unless [another way](Self::placed_by) is asked
/// for. One watcher tends all of them.
///
/// ```
/// use wakeline_ops::{DeviceOp, LeastBusy, Machine, StreamPoolRoundRobin};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// use wakeline_tensor::Tensor;
/// let first = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let second = first.beside(SimConfig::default())?;
/// let watcher = VirtualWatcher::new(&first);
/// let machine = Machine::new([first, second], &StreamPoolRoundRobin::default(), watcher.clone())?;
/// let sum = watcher.run(async {
///     let here: Tensor<u32, SimDevice> = Tensor::from_host(vec![1, 2, 3]).on(machine.site(0)?.runtime()).await?;
///     let there = here.to_device().on(machine.site(1)?.runtime()).await?; // behind the first device's work
///     there.to_host().on(machine.site(1)?.runtime()).await
/// })??;
/// assert_eq!(sum, [1, 2, 3]);
/// let machine = machine.placed_by(LeastBusy::new());
/// let ones = watcher.run(machine.run(|_| Tensor::full(2, 1_u8).then(|tensor| tensor.to_host())))??;
/// assert_eq!(ones, [1, 1]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
///
/// # Faults
///
/// A device that has faulted fails what was placed there with its cause, and is taken out; what comes later is placed elsewhere, and the others go on as before. What has
/// come behind its work on another device fails with the same cause. [`retrying`](Self::retrying) has an operation made and placed again.
///
/// # Devices of several types
///
/// A machine has devices of one type: all CUDA's, say. A program with others has a machine for each type, and one watcher for both; numbers get from the one to the
/// other by way of the host.
pub struct Machine<D: Device> {
    inner: Arc<Inner<D>>,
    placement: Arc<dyn Placement>,
}

struct Inner<D: Device> {
    sites: Box<[Arc<Site<D>>]>,
    kin: Arc<Kin<D>>,
}

impl<D: Peers> Machine<D> {
    /// A machine of these devices, each with the streams that `policy` needs, whose points are all tended by `tender`.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](ErrorCode::InvalidLimit) for no device, or more than [`DEVICES_MAX`]; [`DevicesApart`](ErrorCode::DevicesApart) where two are not
    /// [of one driver](Peers::beside); as [`Runtime::new`].
    pub fn new<T>(
        devices: impl IntoIterator<Item = D>,
        policy: &impl SchedulingPolicy,
        tender: T,
    ) -> Result<Self, Error>
    where
        T: Tend<OpPoint<D::Point>> + Clone + Send + Sync + 'static,
    {
        Self::with_config(devices, policy, tender, RuntimeConfig::default())
    }

    /// The same, set up like this.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_config<T>(
        devices: impl IntoIterator<Item = D>,
        policy: &impl SchedulingPolicy,
        tender: T,
        config: RuntimeConfig,
    ) -> Result<Self, Error>
    where
        T: Tend<OpPoint<D::Point>> + Clone + Send + Sync + 'static,
    {
        let devices: Vec<D> = devices.into_iter().collect();
        let count = within("devices", devices.len(), 1, DEVICES_MAX)?;
        let (gates, kin) = (Arc::new(ClosedGates::new()), Kin::new(count));
        let mut sites: Vec<Arc<Site<D>>> = Vec::with_capacity(count);
        let tenders = core::iter::repeat_n(tender, count);
        for (number, (device, tender)) in devices.into_iter().zip(tenders).enumerate() {
            if let Some(first) = sites.first().filter(|first| !first.device().beside(&device)) {
                return Err(Error::new(ErrorCode::DevicesApart, [&number, &first.number]));
            }
            let place = (&gates, number);
            let runtime = Runtime::of_machine(device, policy, tender, config, place, &kin)?;
            let (out, placed) = (AtomicBool::new(false), AtomicU64::new(0));
            sites.push(Arc::new(Site { number, runtime, out, placed }));
        }
        let inner = Arc::new(Inner { sites: sites.into(), kin });
        Ok(Self { inner, placement: Arc::new(InTurn::new()) })
    }

    /// Has memory of `from` get to `to` as directly as it can, from now on and before the first copy, which would see to that else; and how that is.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](ErrorCode::InvalidLimit) for a number that no device has; the fault of either.
    pub fn link(&self, from: usize, to: usize) -> Result<Link, Error> {
        let (from, to) = (self.site(from)?, self.site(to)?);
        if from.number == to.number {
            return Ok(Link::Direct);
        }
        self.inner.kin.link(to.runtime.core(), from.runtime.core())
    }

    /// The same for each two.
    ///
    /// # Errors
    ///
    /// As [`link`](Self::link).
    pub fn link_all(&self) -> Result<(), Error> {
        for from in 0..self.len() {
            for to in 0..self.len() {
                self.link(from, to)?;
            }
        }
        Ok(())
    }
}

impl<D: Device> Machine<D> {
    /// The same devices, with operations placed in this way.
    #[must_use]
    pub fn placed_by(&self, placement: impl Placement) -> Self {
        Self { inner: Arc::clone(&self.inner), placement: Arc::new(placement) }
    }

    /// How many devices it has, those that are out among them.
    #[expect(clippy::len_without_is_empty, reason = "it has one at least")]
    pub fn len(&self) -> usize {
        self.inner.sites.len()
    }

    /// A device of it, by its number.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](ErrorCode::InvalidLimit) for a number that none has.
    pub fn site(&self, number: usize) -> Result<&Arc<Site<D>>, Error> {
        within("the number of a device", number, 0, self.len() - 1)?;
        self.inner.sites.get(number).ok_or_else(|| Error::new(ErrorCode::NoRuntime, []))
    }

    /// All of them.
    pub fn sites(&self) -> &[Arc<Site<D>>] {
        &self.inner.sites
    }

    /// The device for an operation with this key, now. Counts as placed there.
    ///
    /// # Errors
    ///
    /// [`DevicesOut`](ErrorCode::DevicesOut) where none is in.
    pub fn place(&self, key: u64) -> Result<Arc<Site<D>>, Error> {
        self.place_kind(Kind::of::<()>(key), key)
    }

    pub(crate) fn place_kind(&self, kind: Kind, key: u64) -> Result<Arc<Site<D>>, Error> {
        let sites = &self.inner.sites;
        let site = |number: usize| sites.get(number).map(|site| &**site as &dyn Loaded);
        let now = sites.first().map(|site| site.runtime.core().tender.now()).unwrap_or_default();
        let loads = DeviceLoads { sites: &site, devices: sites.len(), now, kind, key };
        let number = self.placement.place(&loads) % sites.len().max(1);
        let (before, from) = sites.split_at_checked(number).unwrap_or((&[], sites));
        let Some(site) = from.iter().chain(before).find(|site| site.is_in()) else {
            let mut faults = sites.iter().filter_map(|site| site.device().health().err());
            let why =
                faults.next_back().map_or_else(|| String::from("they were taken out"), |it| it.to_string());
            return Err(Error::new(ErrorCode::DevicesOut, [&sites.len(), &why]));
        };
        site.placed.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::clone(site))
    }

    /// Resolves when nothing is in flight on any of its devices; see [`Runtime::drain`]. `within` is for each.
    ///
    /// # Errors
    ///
    /// As [`Runtime::drain`], of the first of them that is not drained.
    pub async fn drain(&self, within: Nanos) -> Result<(), Error> {
        for site in &self.inner.sites {
            site.runtime.drain(within).await?;
        }
        Ok(())
    }
}

impl<D: Device> Clone for Machine<D> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), placement: Arc::clone(&self.placement) }
    }
}

impl<D: Device> fmt::Debug for Machine<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("sites", &self.inner.sites).finish_non_exhaustive()
    }
}
