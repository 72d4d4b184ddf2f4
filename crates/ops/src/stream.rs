//! Streams: where the work of operations is enqueued, in order.

use core::fmt;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wakeline_core::Error;

use crate::panics::survive;
use crate::port::{Device, Priority};
use crate::runtime::Core;
use crate::sync::Lock;

/// How many submissions of one stream are in flight at most; further ones wait for room, as futures. A device's own queue takes about
/// 1,000 entries, beyond which enqueueing blocks.
pub const IN_FLIGHT_MAX: usize = 512;

/// A stream of a runtime: what is enqueued in it runs one after another. Clones share one stream.
///
/// Made by [`Runtime::stream`](crate::Runtime::stream).
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, SingleStream, Tensor, port::Priority};
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
    room: Arc<Lock<Room>>,
}

#[derive(Debug, Default)]
struct Room {
    taken: usize,
    waiting: Vec<Waker>,
}

/// A place among what is in flight. Given back when it is dropped, which wakes who waits for one.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Lock<Room>>);

impl Drop for Permit {
    fn drop(&mut self) {
        let waiting = {
            let mut room = self.0.lock();
            room.taken -= 1;
            core::mem::take(&mut room.waiting)
        };
        // All of them: one that is woken and never polled again must not keep the others waiting.
        for waker in waiting {
            survive(|| waker.wake());
        }
    }
}

impl<D: Device> Stream<D> {
    pub(crate) fn new(core: &Arc<Core<D>>, priority: Priority) -> Result<Self, Error> {
        // Only their being different counts.
        static IDS: AtomicU64 = AtomicU64::new(0);
        let raw = core.device.stream(priority)?;
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let room = Arc::new(Lock::new(Room::default()));
        Ok(Self { inner: Arc::new(Inner { core: Arc::clone(core), raw, id, room }) })
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

    pub(crate) fn id(&self) -> u64 {
        self.inner.id
    }

    /// A place among what is in flight, once there is one. Where there is none, looks through who waits, so that each task waits once
    /// however often it is polled.
    pub(crate) fn admit(&self, context: &Context<'_>) -> Poll<Permit> {
        // Cloned and dropped without the lock: a waker is somebody else's code.
        let mut waker = Some(context.waker().clone());
        let admitted = {
            let mut room = self.inner.room.lock();
            let full = room.taken >= IN_FLIGHT_MAX;
            if full && !room.waiting.iter().any(|other| other.will_wake(context.waker())) {
                room.waiting.extend(waker.take());
            }
            room.taken += usize::from(!full);
            !full
        };
        drop(waker);
        if admitted { Poll::Ready(Permit(Arc::clone(&self.inner.room))) } else { Poll::Pending }
    }

    /// A place, whether or not there is one: for whoever waits on the spot, which is one a thread at most.
    pub(crate) fn admit_anyway(&self) -> Permit {
        self.inner.room.lock().taken += 1;
        Permit(Arc::clone(&self.inner.room))
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
