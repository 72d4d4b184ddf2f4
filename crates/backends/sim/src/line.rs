//! Which stream owns which completion word.
//!
//! Invariants:
//! 1. A word belongs to one stream at a time, and to no stream before every store of its last owner is known to
//!    have landed; until then it is quarantined.
//! 2. A word is never lowered, and a new owner goes on with the sequence where the last one ended: a store of a
//!    former owner that lands after all cannot reach what the new one waits for.

use alloc::sync::Arc;
use alloc::vec::Vec;

use wakeline_core::{HostLine, Seq, Slot, WORDS};

/// Names a word of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    line: usize,
    slot: Slot,
}

impl Place {
    pub(crate) const fn slot(self) -> Slot {
        self.slot
    }
}

/// How the words of a device are used. Words are made by the line, so eight at a time.
///
/// ```
/// use wakeline_sim::{SimConfig, SimDevice, SlotUse, VirtualTime};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let stream = device.stream()?;
/// assert_eq!(device.slots(), SlotUse { owned: 1, free: 7, quarantined: 0 });
/// drop(stream); // no store of it is under way
/// assert_eq!(device.slots(), SlotUse { owned: 0, free: 8, quarantined: 0 });
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SlotUse {
    /// Words that a stream owns.
    pub owned: usize,
    /// Words that wait for a stream.
    pub free: usize,
    /// Words without a stream into which a store may still land. After a fault, or when the last store was
    /// lost, for good.
    pub quarantined: usize,
}

#[derive(Debug)]
pub(crate) struct Lines {
    all: Vec<Line>,
    /// The word freed last is taken first: the reuse that a stale store would hit is the common case.
    free: Vec<Place>,
    owned: usize,
    slots_max: usize,
    first_word: Seq,
}

#[derive(Debug)]
struct Line {
    words: Arc<HostLine>,
    slots: [Usage; WORDS],
}

#[derive(Clone, Copy, Debug)]
struct Usage {
    owned: bool,
    /// The number armed last.
    armed: Seq,
    /// Stores that are enqueued or under way.
    in_flight: usize,
    /// Second landings that are under way. They outlive the stream whose stores they repeat.
    repeats: usize,
}

/// What landing did to the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Landing {
    Stored,
    /// A later number had landed before.
    Overtaken,
}

impl Lines {
    pub(crate) const fn new(slots_max: usize, first_word: Seq) -> Self {
        Self { all: Vec::new(), free: Vec::new(), owned: 0, slots_max, first_word }
    }

    /// Gives a word to a stream, and says which number was armed on it last. `None` where there is none left.
    pub(crate) fn take(&mut self) -> Option<(Place, Arc<HostLine>, Seq)> {
        if self.free.is_empty() {
            self.add_line();
        }
        let place = self.free.pop()?;
        let line = self.all.get_mut(place.line)?;
        let usage = &mut line.slots[place.slot.index()];
        usage.owned = true;
        self.owned += 1;
        Some((place, Arc::clone(&line.words), usage.armed))
    }

    /// What each word reads.
    pub(crate) fn words(&self) -> Vec<Seq> {
        self.all.iter().flat_map(|line| Slot::ALL.map(|slot| line.words.load(slot))).collect()
    }

    fn add_line(&mut self) {
        let first = self.all.len() * WORDS;
        let slots = self.slots_max.saturating_sub(first).min(WORDS);
        if slots == 0 {
            return;
        }
        let words = HostLine::new();
        for slot in Slot::ALL {
            words.store(slot, self.first_word);
        }
        let usage = Usage { owned: false, armed: self.first_word, in_flight: 0, repeats: 0 };
        let line = self.all.len();
        self.all.push(Line { words: Arc::new(words), slots: [usage; WORDS] });
        self.free.extend(Slot::ALL[..slots].iter().rev().map(|&slot| Place { line, slot }));
    }

    /// Takes note of a store of `seq` that was enqueued.
    pub(crate) fn armed(&mut self, place: Place, seq: Seq) {
        if let Some(usage) = self.usage(place) {
            usage.armed = seq;
            usage.in_flight += 1;
        }
    }

    /// How many stores of the word are enqueued or under way.
    pub(crate) fn in_flight(&self, place: Place) -> usize {
        self.all.get(place.line).map_or(0, |line| line.slots[place.slot.index()].in_flight)
    }

    /// A store arrives at its word.
    pub(crate) fn land(&mut self, place: Place, seq: Seq) -> Landing {
        let Some(line) = self.all.get(place.line) else { return Landing::Overtaken };
        if line.words.load(place.slot).reached(seq) {
            return Landing::Overtaken;
        }
        line.words.store(place.slot, seq);
        Landing::Stored
    }

    /// A store is no longer under way: it landed or was lost.
    pub(crate) fn settled(&mut self, place: Place) {
        if let Some(usage) = self.usage(place) {
            usage.in_flight = usage.in_flight.saturating_sub(1);
            self.free_if_quiet(place);
        }
    }

    /// A store is to land a second time; says whether there is room for that beside what is under way already.
    pub(crate) fn repeated(&mut self, place: Place, repeats_max: usize) -> bool {
        let Some(usage) = self.usage(place).filter(|usage| usage.repeats < repeats_max) else { return false };
        usage.repeats += 1;
        true
    }

    /// It has landed a second time.
    pub(crate) fn repeat_landed(&mut self, place: Place) {
        if let Some(usage) = self.usage(place) {
            usage.repeats = usage.repeats.saturating_sub(1);
        }
    }

    /// The stream is gone.
    pub(crate) fn release(&mut self, place: Place) {
        if let Some(usage) = self.usage(place)
            && usage.owned
        {
            usage.owned = false;
            self.owned -= 1;
            self.free_if_quiet(place);
        }
    }

    fn free_if_quiet(&mut self, place: Place) {
        let Some(line) = self.all.get(place.line) else { return };
        let usage = line.slots[place.slot.index()];
        // Streams store in order: a word that reads the number armed last says that all earlier ones landed or never will.
        if !usage.owned && usage.in_flight == 0 && line.words.load(place.slot).reached(usage.armed) {
            self.free.push(place);
        }
    }

    pub(crate) fn slot_use(&self) -> SlotUse {
        let all = self.slots_max.min(self.all.len() * WORDS);
        let (owned, free) = (self.owned, self.free.len());
        SlotUse { owned, free, quarantined: all - owned - free }
    }

    fn usage(&mut self, place: Place) -> Option<&mut Usage> {
        Some(&mut self.all.get_mut(place.line)?.slots[place.slot.index()])
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_word_goes_to_another_stream_only_when_the_last_store_has_landed() {
        let mut lines = Lines::new(1, Seq::ZERO);
        let (place, words, last) = lines.take().unwrap();
        let (first, second) = (last.next(), last.next().next());
        lines.armed(place, first);
        lines.armed(place, second);
        lines.release(place);
        assert!(lines.take().is_none());
        assert_eq!(lines.slot_use(), SlotUse { owned: 0, free: 0, quarantined: 1 });
        lines.settled(place); // the first is lost
        assert_eq!(lines.land(place, second), Landing::Stored);
        lines.settled(place);
        let (again, _, last) = lines.take().unwrap();
        assert_eq!((again, last), (place, second));
        assert_eq!(words.load(place.slot()), second);
    }

    #[test]
    fn a_word_that_a_swapped_store_has_raised_waits_for_the_other_one_and_is_freed_once() {
        let mut lines = Lines::new(1, Seq::ZERO);
        let (place, _, last) = lines.take().unwrap();
        let (first, second) = (last.next(), last.next().next());
        lines.armed(place, first);
        lines.armed(place, second);
        lines.release(place);
        assert_eq!(lines.land(place, second), Landing::Stored);
        lines.settled(place);
        assert_eq!(lines.slot_use(), SlotUse { owned: 0, free: 0, quarantined: 1 });
        assert_eq!(lines.land(place, first), Landing::Overtaken);
        lines.settled(place);
        assert_eq!(lines.slot_use(), SlotUse { owned: 0, free: 1, quarantined: 0 });
    }

    #[test]
    fn a_word_whose_last_store_was_lost_stays_in_quarantine() {
        let mut lines = Lines::new(8, Seq::ZERO);
        let (place, _, last) = lines.take().unwrap();
        lines.armed(place, last.next());
        lines.settled(place);
        lines.release(place);
        assert_eq!(lines.slot_use(), SlotUse { owned: 0, free: 7, quarantined: 1 });
    }

    #[test]
    fn words_run_out_at_their_limit_and_each_is_given_once() {
        let mut lines = Lines::new(11, Seq::new(u64::MAX));
        let mut seen = Vec::new();
        while let Some((place, words, last)) = lines.take() {
            assert_eq!((words.load(place.slot()), last), (Seq::new(u64::MAX), Seq::new(u64::MAX)));
            assert!(!seen.contains(&place));
            seen.push(place);
        }
        assert_eq!(seen.len(), 11);
    }

    #[test]
    fn a_word_is_never_lowered() {
        let mut lines = Lines::new(1, Seq::new(u64::MAX));
        let (place, words, _) = lines.take().unwrap();
        assert_eq!(lines.land(place, Seq::new(1)), Landing::Stored); // across the wrap
        assert_eq!(lines.land(place, Seq::new(0)), Landing::Overtaken);
        assert_eq!(words.load(place.slot()), Seq::new(1));
    }
}
