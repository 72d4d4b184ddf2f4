//! What happened on the device, in order: for tests and for reading a failing run.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use wakeline_core::{Instant, Seq, Status};

/// One thing that happened.
///
/// ```
/// use wakeline_core::{Instant, Nanos};
/// use wakeline_sim::{LogEntry, LogEvent, SimConfig, SimDevice, VirtualTime};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig { log_len_max: 10, ..SimConfig::exact() })?;
/// device.stream()?.launch(Nanos::ZERO)?;
/// let entry = |event| LogEntry { at: Instant::ORIGIN, stream: 0, event };
/// assert_eq!(device.log(), [entry(LogEvent::Launched), entry(LogEvent::Ended)]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// When, on the device's own time.
    pub at: Instant,
    /// In which stream, counted from 0 in the order in which they were made.
    pub stream: u64,
    /// What.
    pub event: LogEvent,
}

/// What can happen; see [`LogEntry`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LogEvent {
    /// Work was enqueued.
    Launched,
    /// The oldest work ended.
    Ended,
    /// A store was enqueued.
    Armed(Seq),
    /// A store landed and changed its word.
    Landed(Seq),
    /// A store landed behind a later one and changed nothing.
    Overtaken(Seq),
    /// A store was lost.
    Lost(Seq),
    /// The driver was asked and answered.
    Queried(Status),
    /// A blocking wait began.
    Blocked,
    /// The device faulted; the stream means nothing.
    Faulted,
}

/// How often what happened on a device, since it was made.
///
/// ```
/// use wakeline_core::CompletionPort;
/// use wakeline_sim::{Counts, SimConfig, SimDevice, VirtualTime};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::exact())?;
/// device.stream()?.point().query()?;
/// assert_eq!(device.counts(), Counts { queries: 1, calls: 2, ..Counts::default() }); // making a stream is a call
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Launches that were enqueued.
    pub launches: u64,
    /// Stores that were enqueued.
    pub arms: u64,
    /// Status queries.
    pub queries: u64,
    /// Blocking waits.
    pub blocks: u64,
    /// Driver calls of all kinds, failed ones too.
    pub calls: u64,
    /// Stores that landed, overtaken and repeated ones too.
    pub landed: u64,
    /// Stores that landed behind a later number. Without faults there is none: real devices would lower the word.
    pub overtaken: u64,
    /// Stores that were lost.
    pub lost: u64,
    /// Stores made late.
    pub late: u64,
    /// Stores made early.
    pub early: u64,
    /// Stores that land twice.
    pub repeated: u64,
    /// Pairs of stores that changed places.
    pub swapped: u64,
    /// Stores that wait for a query.
    pub deferred: u64,
    /// Queries made slow.
    pub slow: u64,
    /// Points that the driver never says are done.
    pub stuck: u64,
    /// Streams that cannot store words.
    pub unsupported: u64,
    /// Log entries that were thrown away.
    pub log_dropped: u64,
}

/// The newest entries, up to a limit.
#[derive(Debug)]
pub(crate) struct Log {
    entries: VecDeque<LogEntry>,
    len_max: usize,
}

impl Log {
    pub(crate) const fn new(len_max: usize) -> Self {
        Self { entries: VecDeque::new(), len_max }
    }

    /// Adds an entry; says whether one was thrown away for it.
    pub(crate) fn push(&mut self, entry: LogEntry) -> bool {
        if self.len_max == 0 {
            return false;
        }
        let full = self.entries.len() == self.len_max;
        if full {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
        full
    }

    pub(crate) fn to_vec(&self) -> Vec<LogEntry> {
        self.entries.iter().copied().collect()
    }
}
