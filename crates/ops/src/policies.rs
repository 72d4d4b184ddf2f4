//! Policies that go by what is in flight, and by how urgent work is.

use std::sync::atomic::{AtomicUsize, Ordering};

use wakeline_core::{Error, Nanos, within};

use crate::lanes::Loads;
use crate::policy::{STREAMS_MAX, SchedulingPolicy};
use crate::port::Priority;

/// The stream in which all in flight is expected to end first; of those the one with the least in flight, and of those the next in turn.
///
/// What is expected is what the runtime has learned of how long each kind of operation takes, as waits are predicted by it. Operations of
/// kinds that are not known yet count by their number. Asking costs a look at the clock and two loads a stream. 4 streams by default.
///
/// ```
/// use wakeline_core::Nanos;
/// use wakeline_ops::{DeviceOp, LeastLoaded, Runtime};
/// use wakeline_tensor::Tensor;
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let watcher = VirtualWatcher::new(&device);
/// let runtime = Runtime::new(device, &LeastLoaded::new(3)?, watcher.clone())?;
/// assert_eq!(watcher.run(Tensor::full(2, 7_u8).then(|tensor| tensor.to_host()).on(&runtime))??, [7, 7]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct LeastLoaded {
    streams: usize,
    turn: AtomicUsize,
}

impl LeastLoaded {
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

impl Default for LeastLoaded {
    fn default() -> Self {
        Self { streams: 4, turn: AtomicUsize::new(0) }
    }
}

impl Clone for LeastLoaded {
    fn clone(&self) -> Self {
        Self { streams: self.streams, turn: AtomicUsize::new(self.turn.load(Ordering::Relaxed)) }
    }
}

/// The least loaded of these streams; where several are, the first of them from `turn` on.
fn least_loaded(loads: &Loads<'_>, turn: usize, counts: impl Fn(usize) -> bool) -> usize {
    let these = || (0..loads.streams()).filter(|&stream| counts(stream));
    let count = these().count().max(1);
    let in_turn = these().chain(these()).skip(turn % count).take(count);
    let load = |stream: &usize| -> (usize, Nanos, usize) {
        (loads.branches(*stream), loads.residual(*stream), loads.in_flight(*stream))
    };
    in_turn.min_by_key(load).unwrap_or(0)
}

impl SchedulingPolicy for LeastLoaded {
    fn streams(&self) -> usize {
        self.streams
    }

    /// In turn, where nobody tells what is in flight.
    fn next(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) % self.streams
    }

    fn choose(&self, loads: &Loads<'_>) -> usize {
        least_loaded(loads, self.turn.fetch_add(1, Ordering::Relaxed), |_| true)
    }
}

/// Streams of several priorities, the least loaded of those that have the one that is wanted.
///
/// A runtime that is made of it wants [`Priority::Normal`]. Have one operation want another by
/// [`schedule`](crate::DeviceOp::schedule), or many, branches included, by [`Runtime::scheduled`](crate::Runtime::scheduled):
///
/// ```
/// use wakeline_ops::{ByPriority, DeviceOp, Runtime, empty, port::Priority};
/// use wakeline_tensor::Tensor;
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let watcher = VirtualWatcher::new(&device);
/// let policy = ByPriority::new(1, 3, 2)?; // streams of low, normal and high priority
/// let runtime = Runtime::new(device, &policy, watcher.clone())?;
/// let urgent = Tensor::full(2, 7_u8).on(&runtime).schedule(&policy.at(Priority::High));
/// watcher.run(urgent)??;
/// let background = runtime.scheduled(&policy.at(Priority::Low));
/// watcher.run(background.scope(async { empty::<SimDevice>().await }))??;
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct ByPriority {
    /// How many of low, of normal, of high priority.
    streams: [usize; 3],
    wanted: Priority,
    turn: AtomicUsize,
}

const ALL: [Priority; 3] = [Priority::Low, Priority::Normal, Priority::High];

/// How far apart they are; one below is nearer than one above.
fn distance(one: Priority, wanted: Priority) -> (u8, bool) {
    ((one as u8).abs_diff(wanted as u8), one > wanted)
}

impl ByPriority {
    /// So many streams of each priority.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit) where that is none in all, or more than [`STREAMS_MAX`].
    pub fn new(low: usize, normal: usize, high: usize) -> Result<Self, Error> {
        within("streams", low.saturating_add(normal).saturating_add(high), 1, STREAMS_MAX)?;
        Ok(Self { streams: [low, normal, high], wanted: Priority::Normal, turn: AtomicUsize::new(0) })
    }

    /// The same streams, of which one of this priority is wanted, or of the nearest that there is.
    #[must_use]
    pub fn at(&self, wanted: Priority) -> Self {
        Self { wanted, ..self.clone() }
    }
}

impl Clone for ByPriority {
    fn clone(&self) -> Self {
        let turn = AtomicUsize::new(self.turn.load(Ordering::Relaxed));
        Self { streams: self.streams, wanted: self.wanted, turn }
    }
}

impl SchedulingPolicy for ByPriority {
    fn streams(&self) -> usize {
        self.streams.iter().sum()
    }

    /// In turn, where nobody tells what is in flight.
    fn next(&self) -> usize {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let all = 0..self.streams();
        let nearest = all.clone().map(|stream| distance(self.priority(stream), self.wanted)).min();
        let these =
            || all.clone().filter(|&stream| Some(distance(self.priority(stream), self.wanted)) == nearest);
        these().nth(turn % these().count().max(1)).unwrap_or(0)
    }

    fn choose(&self, loads: &Loads<'_>) -> usize {
        let away = |stream| distance(loads.priority(stream), self.wanted);
        let nearest = (0..loads.streams()).map(away).min();
        least_loaded(loads, self.turn.fetch_add(1, Ordering::Relaxed), |stream| Some(away(stream)) == nearest)
    }

    fn priority(&self, stream: usize) -> Priority {
        let mut first = 0;
        for (priority, count) in ALL.into_iter().zip(self.streams) {
            first += count;
            if stream < first {
                return priority;
            }
        }
        Priority::Normal
    }
}
