//! Streams: where the work of operations is enqueued, in order.

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wakeline_core::Error;

use crate::events::{Closed, Events, Place};
use crate::lane::Lane;
use crate::machine::Kin;
use crate::point::HostWord;
use crate::port::{Device, Graphs, Priority};
use crate::runtime::Core;

/// How many entries of a stream's queue the submissions in flight there have at most, by what they have enqueued and, of one that is still to be submitted, by
/// what is known of that ([`DeviceOp::entries`](crate::DeviceOp::entries)); further ones wait for room, as futures. Room is kept for one that takes
/// many until it has its turn, or for a bounded time where it is no longer polled.
///
/// A device's own queue takes about 1,000 (NVIDIA's), beyond which the call that enqueues blocks its thread until there is room, which is for as long as a gate is
/// closed. What is left is for what nobody counts beforehand: a last event, the store behind a submission that was refused room half way.
///
/// A submission that is larger by itself, [`all`](crate::all) of a thousand operations, is enqueued as far as there is room; then its thread waits, for what is in front
/// of it in that stream and nothing else, and goes on. Where a gate may be in front of it that is closed, it is not waited for: that is
/// [`QueueFull`](wakeline_core::ErrorCode::QueueFull), and what was enqueued by then runs. [`Runtime::join_all`](crate::Runtime::join_all) has few in flight, and its task waits.
pub const ENTRIES_MAX: u32 = 896;

/// How many submissions of one stream are in flight at most: each has two entries at least, for what it enqueues and the store behind it.
pub const IN_FLIGHT_MAX: usize = ENTRIES_MAX as usize / 2;

/// A stream of a runtime: what is enqueued in it runs one after another. Clones share one stream.
///
/// Made by [`Runtime::stream`](crate::Runtime::stream).
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, SingleStream, port::Priority};
/// use wakeline_tensor::Tensor;
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let watcher = VirtualWatcher::new(&device);
/// let runtime = Runtime::new(device, &SingleStream, watcher)?;
/// let urgent = runtime.stream(Priority::High)?;
/// let tensor = Tensor::full(8, 7_u8).sync_on(&urgent)?;
/// assert_eq!(tensor.to_host().sync_on(&urgent)?, [7; 8]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub struct Stream<D: Device> {
    inner: Arc<Inner<D>>,
}

struct Inner<D: Device> {
    core: Arc<Core<D>>,
    raw: D::Stream,
    id: u64,
    priority: Priority,
    lane: Arc<Lane>,
    host_word: HostWord,
    events: Events<D>,
    /// What the devices of its machine share, where it is of one.
    kin: Option<Arc<Kin<D>>>,
}

impl<D: Device> Stream<D> {
    pub(crate) fn new(
        core: &Arc<Core<D>>,
        priority: Priority,
        kin: Option<Arc<Kin<D>>>,
    ) -> Result<Self, Error> {
        Ok(Self::made(core, core.device.stream(priority)?, priority, kin))
    }

    /// One that is captured, or joins a capture.
    pub(crate) fn for_captures(core: &Arc<Core<D>>, priority: Priority) -> Result<Self, Error>
    where
        D: Graphs,
    {
        Ok(Self::made(core, core.device.capture_stream(priority)?, priority, None))
    }

    fn made(core: &Arc<Core<D>>, raw: D::Stream, priority: Priority, kin: Option<Arc<Kin<D>>>) -> Self {
        // Only their being different counts.
        static IDS: AtomicU64 = AtomicU64::new(0);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let (core, lane) = (Arc::clone(core), Lane::new());
        let (host_word, events) = (HostWord::new(), Events::new());
        Self { inner: Arc::new(Inner { core, raw, id, priority, lane, host_word, events, kin }) }
    }

    /// The device it belongs to.
    pub fn device(&self) -> &D {
        &self.inner.core.device
    }

    /// The device's own stream, for calls of the port.
    pub fn raw(&self) -> &D::Stream {
        &self.inner.raw
    }

    /// How urgent what is enqueued in it is.
    pub fn priority(&self) -> Priority {
        self.inner.priority
    }

    pub(crate) fn core(&self) -> &Arc<Core<D>> {
        &self.inner.core
    }

    /// What the devices of its machine share.
    pub(crate) fn kin(&self) -> Option<&Arc<Kin<D>>> {
        self.inner.kin.as_ref()
    }

    /// A number of its own among all streams of this process, whatever their runtimes.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.inner.lane
    }

    /// The next place; see [`Events`].
    pub(crate) fn open_place(&self) -> Result<Place, Error> {
        self.inner.events.open(self.device())
    }

    /// Something was enqueued that others may have to come behind, and do not know of yet.
    #[inline]
    pub(crate) fn enqueued(&self, place: Place) {
        self.inner.events.enqueued(place);
    }

    /// See [`Events::in_front`].
    pub(crate) fn in_front_of(&self, place: Place) -> u64 {
        self.inner.events.in_front(place)
    }

    /// Closes a place behind what is enqueued by now.
    pub(crate) fn close_place(&self, place: Place) -> (Closed, Result<(), Error>) {
        self.inner.events.close(self.device(), self.raw(), place)
    }

    /// Closes a place that nobody is to wait for.
    pub(crate) fn end_place(&self, place: Place) -> Closed {
        self.inner.events.end(place)
    }

    /// Has what is enqueued from now on wait for a place of `other`, unless that is known to have landed; whether it does.
    pub(crate) fn wait_behind(&self, other: &Self, place: Place) -> Result<bool, Error> {
        if other.has_landed(place) {
            return Ok(false);
        }
        self.lane().inherit_gates(other.lane());
        let own = (other.device(), other.raw());
        other.inner.events.wait(own, (self.device(), self.raw()), place)?;
        Ok(true)
    }

    /// Whether all up to this place is known to be done.
    pub(crate) fn has_landed(&self, place: Place) -> bool {
        self.lane().has_landed(place.number)
    }

    pub(crate) fn host_word(&self) -> &HostWord {
        &self.inner.host_word
    }
}

impl<D: Device> Clone for Stream<D> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<D: Device> fmt::Debug for Stream<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("id", &self.id()).finish_non_exhaustive()
    }
}
