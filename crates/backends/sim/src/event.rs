//! Points: places in a stream whose completion can be asked for, and the truth about each.

use wakeline_core::{Instant, Seq};

use crate::table::Key;

/// What really happened to a point, whatever its word and the driver say.
///
/// ```
/// use wakeline_core::{CompletionPort, Instant, Nanos, Seq};
/// use wakeline_sim::{SimConfig, SimDevice, Truth, VirtualTime};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig { store_latency_ns: 40, ..SimConfig::exact() })?;
/// let stream = device.stream()?;
/// stream.launch(Nanos::from_nanos(100))?;
/// let mut point = stream.point();
/// point.arm()?;
/// point.block(None)?;
/// let Truth { ended_at, armed, landed_at, blocks, .. } = point.witness().truth();
/// assert_eq!((ended_at, armed, blocks), (Some(Instant::from_nanos(100)), Some(Seq::new(1)), 1));
/// assert_eq!(landed_at, None); // the store is under way
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Truth {
    /// When the point's work ended.
    pub ended_at: Option<Instant>,
    /// The number whose store was enqueued for it.
    pub armed: Option<Seq>,
    /// When its own store landed, on the device's own time.
    pub landed_at: Option<Instant>,
    /// When the turn that landed it was made: later than [`landed_at`](Self::landed_at) by as much as whoever
    /// drives the device was late.
    pub stored_at: Option<Instant>,
    /// Status queries made for it.
    pub queries: u64,
    /// Blocking waits made for it.
    pub blocks: u64,
}

/// A point that somebody holds.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) truth: Truth,
    pub(crate) stream: Key,
    /// How many works of the stream are in front of it.
    pub(crate) works: u64,
    /// Whether the driver will never say that it is done.
    pub(crate) stuck: bool,
    /// How many handles name it; the last one to go takes it away.
    pub(crate) handles: usize,
}
