//! Streams: where the work of operations is enqueued, in order.

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wakeline_core::Error;

use crate::events::Events;
use crate::lane::Lane;
use crate::point::HostWord;
use crate::port::{Device, Priority};
use crate::runtime::Core;

/// How many submissions of one stream are in flight at most; further ones wait for room, as futures. A device's own queue takes about
/// 1,000 entries, beyond which enqueueing blocks.
pub const IN_FLIGHT_MAX: usize = 512;

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
    lane: Arc<Lane>,
    host_word: HostWord,
    events: Events<D>,
}

impl<D: Device> Stream<D> {
    pub(crate) fn new(core: &Arc<Core<D>>, priority: Priority) -> Result<Self, Error> {
        // Only their being different counts.
        static IDS: AtomicU64 = AtomicU64::new(0);
        let raw = core.device.stream(priority)?;
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let (core, lane) = (Arc::clone(core), Lane::new());
        let (host_word, events) = (HostWord::new(), Events::new());
        Ok(Self { inner: Arc::new(Inner { core, raw, id, lane, host_word, events }) })
    }

    /// The device it belongs to.
    pub fn device(&self) -> &D {
        &self.inner.core.device
    }

    /// The device's own stream, for calls of the port.
    pub fn raw(&self) -> &D::Stream {
        &self.inner.raw
    }

    pub(crate) fn core(&self) -> &Arc<Core<D>> {
        &self.inner.core
    }

    /// A number of its own among all streams of this process, whatever their runtimes.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.inner.lane
    }

    pub(crate) fn events(&self) -> &Events<D> {
        &self.inner.events
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
