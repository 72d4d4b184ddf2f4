//! Simulated memory: contents, who touches them in which order, and what is wrong with that.
//!
//! Every access is checked when it is enqueued, against those enqueued before it: whichever way the simulated times fall, two
//! accesses that nothing orders are found unless the first has ended by then.

use alloc::vec::Vec;
use core::fmt;

use crate::order::Place;
use crate::table::{Key, Table};

/// How many misuses are kept; later ones are only counted.
pub const MISUSES_MAX: usize = 64;

/// What fresh memory reads, so that nobody takes it for zeros.
pub(crate) const FRESH: u8 = 0xA5;

/// Something that a correct program never does. Found by the simulated device where a real one would corrupt memory or hang.
///
/// ```
/// use wakeline_sim::{Misuse, SimConfig, SimDevice, VirtualTime};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig { copy_ns: 500, ..SimConfig::exact() })?;
/// let (one, other) = (device.stream()?, device.stream()?);
/// let memory = one.alloc(16)?;
/// assert!(other.fill(&memory, 7).is_err(), "nothing has the other stream wait for the allocation");
/// assert!(matches!(device.misuses()[..], [Misuse::Unordered { .. }]));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Misuse {
    /// Memory was used after its free had been enqueued.
    UseAfterFree {
        /// The number of the buffer, counted from 0 in the order in which they were made.
        buffer: u64,
    },
    /// Memory was freed a second time.
    DoubleFree {
        /// The number of the buffer.
        buffer: u64,
    },
    /// Two operations on one buffer, one of them a write, and nothing says which comes first.
    Unordered {
        /// The number of the buffer.
        buffer: u64,
        /// The number of the stream in which the second was enqueued.
        stream: u64,
        /// The number of the stream in which the first was.
        other: u64,
    },
    /// The host touched or let go pinned memory that the device still uses.
    ByHost {
        /// The number of the buffer.
        buffer: u64,
        /// The number of the stream that uses it.
        stream: u64,
    },
    /// More bytes were named than the buffer has.
    Beyond {
        /// The number of the buffer.
        buffer: u64,
        /// How many bytes it has.
        len: usize,
        /// How many were named.
        wanted: usize,
    },
    /// A stream was to wait for an event that was never recorded: a real one would wait for nothing.
    Unsubmitted {
        /// The number of the stream.
        stream: u64,
    },
    /// A gate was dropped while streams were to wait for it: a real one's word would be gone.
    WordInUse {
        /// How many waits for it were enqueued and not over.
        waits: u64,
    },
    /// A graph was dropped while launches of it were enqueued.
    GraphInUse {
        /// How many of them were not over.
        launches: u64,
    },
    /// A graph was launched, and nothing orders that behind its last launch: it can only run once at a time.
    GraphTwice {
        /// The number of the stream in which it was launched.
        stream: u64,
        /// The number of the stream of the launch before.
        other: u64,
    },
    /// A buffer, an event, a gate or a graph of another device was handed in.
    Foreign,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UseAfterFree { buffer } => write!(f, "buffer {buffer} was freed before: use it no more"),
            Self::DoubleFree { buffer } => write!(f, "buffer {buffer} was freed before: free it once"),
            Self::Unordered { buffer, stream, other } => write!(
                f,
                "buffer {buffer} is used by stream {stream} and by stream {other}, and nothing orders the two: let one wait for an event of the other"
            ),
            Self::ByHost { buffer, stream } => {
                write!(
                    f,
                    "buffer {buffer} is still used by stream {stream}: wait for it before the host does"
                )
            }
            Self::Beyond { buffer, len, wanted } => {
                write!(f, "buffer {buffer} has {len} bytes, but {wanted} were named")
            }
            Self::Unsubmitted { stream } => {
                write!(f, "stream {stream} was to wait for an event that was never recorded: record it first")
            }
            Self::WordInUse { waits } => {
                write!(
                    f,
                    "a gate was dropped with {waits} wait(s) for it enqueued: keep it until they are over"
                )
            }
            Self::GraphInUse { launches } => {
                write!(
                    f,
                    "a graph was dropped with {launches} launch(es) enqueued: keep it until they are over"
                )
            }
            Self::GraphTwice { stream, other } => write!(
                f,
                "a graph was launched in stream {stream} and in stream {other}, and nothing orders the two: let one wait for an event of the other"
            ),
            Self::Foreign => {
                f.write_str("a buffer, an event, a gate or a graph of another device: hand it to its own")
            }
        }
    }
}

/// How much memory there is now; see [`SimDevice::memory_use`](crate::SimDevice::memory_use).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryUse {
    /// Buffers of the device whose free was not enqueued.
    pub buffers: usize,
    /// Pinned buffers of the host that somebody holds.
    pub pinned: usize,
}

/// One buffer, of the device or pinned.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) number: u64,
    pub(crate) len: usize,
    /// Empty while a kernel has them.
    pub(crate) bytes: Vec<u8>,
    pub(crate) pinned: bool,
    /// Of which device, or for which.
    pub(crate) device: usize,
    pub(crate) freed: bool,
    pub(crate) written: Option<Place>,
    pub(crate) read: Vec<Place>,
}

#[derive(Debug, Default)]
pub(crate) struct Buffers {
    table: Table<Buffer>,
    numbered: u64,
    misuses: Vec<Misuse>,
    misused: u64,
    /// Which device is at hand.
    pub(crate) device: usize,
    /// Of each device: its own, and pinned for it.
    tallies: Vec<[Tally; 2]>,
}

/// How many bytes of one sort there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tally {
    pub(crate) in_use: u64,
    pub(crate) high_water: u64,
    pub(crate) limit: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { in_use: 0, high_water: 0, limit: u64::MAX }
    }
}

impl Default for Table<Buffer> {
    fn default() -> Self {
        Self::new()
    }
}

impl Buffers {
    /// New memory, where the limit allows it; of its sort what there is by now.
    pub(crate) fn try_add(&mut self, len: usize, pinned: bool) -> Result<Key, Tally> {
        let tally = self.tally_mut(pinned);
        let sum = tally.in_use.saturating_add(len as u64);
        if sum > tally.limit && len > 0 {
            return Err(*tally);
        }
        tally.in_use = sum;
        tally.high_water = tally.high_water.max(sum);
        Ok(self.add(len, pinned))
    }

    /// Of the device at hand.
    pub(crate) fn tally_mut(&mut self, pinned: bool) -> &mut Tally {
        let device = self.device;
        if self.tallies.len() <= device {
            self.tallies.resize_with(device + 1, Default::default);
        }
        &mut self.tallies[device][usize::from(pinned)]
    }

    /// How many bytes of the device there are, those included whose free was enqueued and did not run yet.
    #[cfg(feature = "ops")]
    pub(crate) fn reserved(&mut self) -> u64 {
        let device = self.device;
        let own = |buffer: &&mut Buffer| !buffer.pinned && buffer.device == device;
        self.table.values_mut().filter(own).map(|buffer| buffer.len as u64).sum()
    }

    /// It counts no more: its free was enqueued, or it was given back.
    pub(crate) fn retire(&mut self, key: Key) {
        if let Some(buffer) = self.table.get(key).filter(|buffer| !buffer.freed) {
            let (len, pinned, device) = (buffer.len as u64, buffer.pinned, buffer.device);
            let at_hand = core::mem::replace(&mut self.device, device);
            self.tally_mut(pinned).in_use -= len;
            self.device = at_hand;
        }
    }

    fn add(&mut self, len: usize, pinned: bool) -> Key {
        let bytes = alloc::vec![FRESH; len];
        let number = self.numbered;
        self.numbered += 1;
        self.table.insert(Buffer {
            number,
            len,
            bytes,
            pinned,
            device: self.device,
            freed: false,
            written: None,
            read: Vec::new(),
        })
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Buffer> {
        self.table.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Buffer> {
        self.table.get_mut(key)
    }

    pub(crate) fn remove(&mut self, key: Key) {
        self.retire(key);
        self.table.remove(key);
    }

    /// Notes a misuse, and gives it back to be told.
    pub(crate) fn misuse(&mut self, misuse: Misuse) -> Misuse {
        self.misused += 1;
        if self.misuses.len() < MISUSES_MAX {
            self.misuses.push(misuse);
        }
        misuse
    }

    pub(crate) fn misuses(&self) -> &[Misuse] {
        &self.misuses
    }

    pub(crate) fn in_use(&mut self) -> MemoryUse {
        let mut in_use = MemoryUse::default();
        let device = self.device;
        for buffer in self.table.values_mut().filter(|buffer| buffer.device == device) {
            in_use.pinned += usize::from(buffer.pinned);
            in_use.buffers += usize::from(!buffer.pinned && !buffer.freed);
        }
        in_use
    }
}
