//! Completion lines: cache lines of eight words that devices store sequence numbers into.

use core::fmt;
use core::ops::Deref;

use crate::error::{Error, ErrorCode};
use crate::seq::Seq;
use crate::sync::{AtomicU64, Ordering};

/// How many completion words a line has.
pub const WORDS: usize = 8;

/// One cache line of eight completion words.
///
/// A device stores into it through its own mapping, the host only reads: whoever could forge a word of a device's line would say
/// that a store has landed which may still come, and its page may be freed by then. What the host itself stores into is a
/// [`HostLine`]. 64 bytes, 64-aligned: one hardware monitor covers all of it.
#[repr(C, align(64))]
pub struct CompletionLine {
    words: [AtomicU64; WORDS],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<CompletionLine>() == 64, "a line is one cache line");
    assert!(align_of::<CompletionLine>() == 64, "a line starts at a cache line");
};

impl CompletionLine {
    /// A line whose words all read [`Seq::ZERO`].
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { words: [const { AtomicU64::new(0) }; WORDS] }
    }

    /// A line whose words all read [`Seq::ZERO`].
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { words: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// What the word at `slot` reads. `Acquire`: what the device wrote before its store is visible after.
    #[inline]
    pub fn load(&self, slot: Slot) -> Seq {
        Seq::new(self.words[slot.index()].load(Ordering::Acquire))
    }

    /// Whether any of the eight words has reached its target: three instructions a word. A hint, for the loads are `Relaxed`:
    /// [`load`](Self::load) the words then.
    #[inline]
    pub fn any_reached(&self, targets: &[Seq; WORDS]) -> bool {
        let mut all_before = -1_i64;
        for (word, target) in self.words.iter().zip(targets) {
            // Negative before the target, as in `Seq::reached`.
            all_before &= word.load(Ordering::Relaxed).wrapping_sub(target.get()).cast_signed();
        }
        all_before >= 0
    }
}

impl Default for CompletionLine {
    fn default() -> Self {
        Self::new()
    }
}

impl AsRef<Self> for CompletionLine {
    #[inline]
    fn as_ref(&self) -> &Self {
        self
    }
}

impl fmt::Debug for CompletionLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(Slot::ALL.iter().map(|&slot| self.load(slot).get())).finish()
    }
}

/// A [`CompletionLine`] that this process itself stores into: simulated devices, jobs of the CPU, tests.
///
/// It has the same layout, and reads as the line that it is.
///
/// ```
/// use wakeline_core::{HostLine, Seq, Slot};
/// let line = HostLine::new();
/// let slot = Slot::new(3)?;
/// line.store(slot, Seq::new(1)); // what the device does
/// assert_eq!(line.load(slot), Seq::new(1));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
///
/// A line that is only read has no such call:
///
/// ```compile_fail,E0599
/// # use wakeline_core::{HostLine, MemoryDescriptor, Seq, Slot};
/// # let line = HostLine::new();
/// let point = MemoryDescriptor::new(&line, Slot::ALL[0], Seq::new(1));
/// point.line().store(Slot::ALL[0], Seq::new(1));
/// ```
#[repr(transparent)]
#[derive(Default)]
pub struct HostLine(CompletionLine);

impl HostLine {
    /// A line whose words all read [`Seq::ZERO`].
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(CompletionLine::new())
    }

    /// A line whose words all read [`Seq::ZERO`].
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(CompletionLine::new())
    }

    /// Stores `seq` at `slot`, `Release`: what was written before it is visible to whoever reads it there.
    #[inline]
    pub fn store(&self, slot: Slot, seq: Seq) {
        self.0.words[slot.index()].store(seq.get(), Ordering::Release);
    }
}

impl Deref for HostLine {
    type Target = CompletionLine;

    #[inline]
    fn deref(&self) -> &CompletionLine {
        &self.0
    }
}

impl AsRef<CompletionLine> for HostLine {
    #[inline]
    fn as_ref(&self) -> &CompletionLine {
        &self.0
    }
}

impl fmt::Debug for HostLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Which of a line's eight words.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(u8);

impl Slot {
    /// All slots of a line, in order.
    pub const ALL: [Self; WORDS] = [Self(0), Self(1), Self(2), Self(3), Self(4), Self(5), Self(6), Self(7)];

    /// The slot with this index.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidSlot`] when `index` is 8 or more.
    pub fn new(index: usize) -> Result<Self, Error> {
        Self::ALL
            .get(index)
            .copied()
            .ok_or_else(|| Error::new(ErrorCode::InvalidSlot, [&index, &(WORDS - 1)]))
    }

    /// The slot whose index is the low three bits of `index`: for a loop over bits, which checks nothing.
    #[inline]
    pub const fn wrapping(index: u32) -> Self {
        Self((index & 7) as u8)
    }

    /// The index, 0 to 7.
    #[inline]
    pub const fn index(self) -> usize {
        // The mask tells the compiler what the constructor guarantees, so no load checks its bounds.
        (self.0 & 7) as usize
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A handle that keeps a line alive: `&HostLine`, `Arc<HostLine>` or a backend's own.
///
/// Implemented for everything that fits. A clone must name the same line.
pub trait LineRef: Deref<Target: AsRef<CompletionLine>> + Clone {
    /// The line.
    #[inline]
    fn line(&self) -> &CompletionLine {
        (**self).as_ref()
    }
}

impl<L: Deref<Target: AsRef<CompletionLine>> + Clone> LineRef for L {}

/// "This slot of this line reaches this sequence number": what is awaited.
///
/// ```
/// use wakeline_core::{HostLine, MemoryDescriptor, Seq, Slot};
/// let line = HostLine::new();
/// let point = MemoryDescriptor::new(&line, Slot::ALL[0], Seq::new(2));
/// assert!(!point.reached());
/// line.store(Slot::ALL[0], Seq::new(3)); // overtaken: counts as reached
/// assert!(point.reached());
/// ```
#[derive(Clone, Debug)]
pub struct MemoryDescriptor<L> {
    line: L,
    slot: Slot,
    seq: Seq,
}

impl<L: LineRef> MemoryDescriptor<L> {
    /// Names the moment when `slot` of `line` reaches `seq`.
    pub const fn new(line: L, slot: Slot, seq: Seq) -> Self {
        Self { line, slot, seq }
    }

    /// Whether the word has reached or passed the number: one `Acquire` load and a subtraction.
    #[inline]
    pub fn reached(&self) -> bool {
        self.word().reached(self.seq)
    }

    /// What the word reads now, `Acquire`.
    #[inline]
    pub fn word(&self) -> Seq {
        self.line().load(self.slot)
    }

    /// The line that holds the word.
    #[inline]
    pub fn line(&self) -> &CompletionLine {
        self.line.line()
    }

    /// The handle that keeps the line alive.
    pub const fn line_ref(&self) -> &L {
        &self.line
    }

    /// The word's place in the line.
    pub const fn slot(&self) -> Slot {
        self.slot
    }

    /// The number awaited.
    pub const fn seq(&self) -> Seq {
        self.seq
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_slot_out_of_range_names_itself_and_the_range() {
        let error = Slot::new(8).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidSlot);
        assert_eq!(error.args(), ["8", "7"]);
        assert!(error.to_string().contains("slot 8"), "{error}");
        assert!(Slot::new(usize::MAX).is_err());
        assert_eq!(Slot::new(7).unwrap(), Slot::ALL[7]);
    }

    #[test]
    fn any_word_at_or_past_its_target_is_seen_and_no_other() {
        for base in [0, u64::MAX - 3] {
            let line = HostLine::new();
            for slot in Slot::ALL {
                line.store(slot, Seq::new(base));
            }
            let targets = [Seq::new(base.wrapping_add(5)); WORDS];
            assert!(!line.any_reached(&targets));
            for slot in Slot::ALL {
                assert_eq!(Slot::wrapping(8 + u32::try_from(slot.index()).unwrap()), slot);
                line.store(slot, Seq::new(base.wrapping_add(4)));
                assert!(!line.any_reached(&targets), "{line:?}");
                line.store(slot, Seq::new(base.wrapping_add(6)));
                assert!(line.any_reached(&targets), "{line:?}");
                line.store(slot, Seq::new(base));
            }
        }
    }

    #[test]
    fn words_are_independent_and_shown_in_order() {
        let line = HostLine::new();
        line.store(Slot::ALL[1], Seq::new(9));
        assert_eq!(alloc::format!("{line:?}"), "[0, 9, 0, 0, 0, 0, 0, 0]");
    }
}
