//! Which stream an operation runs in.

use std::sync::atomic::{AtomicUsize, Ordering};

use wakeline_core::{Error, within};

use crate::lanes::Loads;
use crate::port::Priority;

/// How many streams a policy may ask for.
pub const STREAMS_MAX: usize = 64;

/// Maps operations to streams, by number. A chain stays in one stream; of branches ([`zip!`](crate::zip)) each but the first is asked for again.
///
/// Those that come with this crate: [`StreamPoolRoundRobin`], [`SingleStream`], [`LeastLoaded`](crate::LeastLoaded),
/// [`ByPriority`](crate::ByPriority). How to write another: [`guide::policies`](crate::guide::policies).
///
/// ```
/// use wakeline_ops::{Runtime, SchedulingPolicy};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
///
/// /// Every third operation in a stream of its own.
/// #[derive(Clone)]
/// struct Thirds(std::sync::Arc<std::sync::atomic::AtomicUsize>);
/// impl SchedulingPolicy for Thirds {
///     fn streams(&self) -> usize {
///         2
///     }
///     fn next(&self) -> usize {
///         usize::from(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 3 == 0)
///     }
/// }
///
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let runtime = Runtime::new(device.clone(), &Thirds(Default::default()), VirtualWatcher::new(&device))?;
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub trait SchedulingPolicy: Clone + Send + Sync + 'static {
    /// How many streams it needs, from 1 to [`STREAMS_MAX`]. Asked once.
    fn streams(&self) -> usize;

    /// The number of the stream for the next operation, counted from 0. MUST NOT block; a number too large counts from 0 again.
    fn next(&self) -> usize;

    /// The same, by what is in flight in each stream. MUST NOT block. Provided: [`next`](Self::next).
    ///
    /// `loads` tells of the streams of the runtime that asks, which may be another's than this policy made
    /// ([`Runtime::scheduled`](crate::Runtime::scheduled)): more of them, or fewer.
    fn choose(&self, loads: &Loads<'_>) -> usize {
        let _ = loads;
        self.next()
    }

    /// The priority of the stream of that number. Asked once for each. Provided: [`Priority::Normal`].
    fn priority(&self, stream: usize) -> Priority {
        let _ = stream;
        Priority::Normal
    }
}

/// Streams in turn, 4 by default. Clones go on from where the original was, each by itself.
///
/// ```
/// use wakeline_ops::{SchedulingPolicy, StreamPoolRoundRobin};
/// let policy = StreamPoolRoundRobin::new(2)?;
/// assert_eq!([policy.next(), policy.next(), policy.next()], [0, 1, 0]);
/// assert_eq!(StreamPoolRoundRobin::default().streams(), 4);
/// assert!(StreamPoolRoundRobin::new(0).is_err());
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct StreamPoolRoundRobin {
    streams: usize,
    turn: AtomicUsize,
}

impl StreamPoolRoundRobin {
    /// This many streams.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit) for none, and for more than [`STREAMS_MAX`].
    pub fn new(streams: usize) -> Result<Self, Error> {
        let streams = within("streams", streams, 1, STREAMS_MAX)?;
        Ok(Self { streams, turn: AtomicUsize::new(0) })
    }
}

impl Default for StreamPoolRoundRobin {
    fn default() -> Self {
        Self { streams: 4, turn: AtomicUsize::new(0) }
    }
}

impl Clone for StreamPoolRoundRobin {
    fn clone(&self) -> Self {
        Self { streams: self.streams, turn: AtomicUsize::new(self.turn.load(Ordering::Relaxed)) }
    }
}

impl SchedulingPolicy for StreamPoolRoundRobin {
    fn streams(&self) -> usize {
        self.streams
    }

    fn next(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) % self.streams
    }

    /// The next in turn; of a branch, the next that has the fewest of them.
    fn choose(&self, loads: &Loads<'_>) -> usize {
        if !loads.is_branch() {
            return self.next();
        }
        let streams = loads.streams().max(1);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let fewest = (0..streams).map(|stream| loads.branches(stream)).min().unwrap_or(0);
        let in_turn = (0..streams).map(|step| turn.wrapping_add(step) % streams);
        in_turn.into_iter().find(|&stream| loads.branches(stream) == fewest).unwrap_or(0)
    }
}

/// One stream for everything: operations run in the order in which they are submitted.
///
/// ```
/// use wakeline_ops::{SchedulingPolicy, SingleStream};
/// assert_eq!((SingleStream.streams(), SingleStream.next()), (1, 0));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SingleStream;

impl SchedulingPolicy for SingleStream {
    fn streams(&self) -> usize {
        1
    }

    fn next(&self) -> usize {
        0
    }
}
