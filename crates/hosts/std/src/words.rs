//! Which words are watched, line by line.

use alloc::collections::VecDeque;
use core::fmt;

use rustc_hash::FxHashMap;
use wakeline_core::{CompletionLine, LineRef, MemoryDescriptor, Seq, Slot, WORDS};

/// The armed words of a thread that watches many, over any number of lines.
///
/// A look at all of them loads the armed words line by line, and compares each with the lowest number awaited there; later numbers of a
/// word wait behind that. So the cost of a look grows with lines and armed words, not with how many wait.
///
/// Cost: adding and taking out a word are a look-up by the line's address, whatever the number of words; where several wait for one
/// word, a binary search among them, and moving at most half of them where not in order. A look takes 11
/// instructions an armed word with one, two or three words a line, fewer with more, 4 where lines are full (counted on x86-64). Nothing is
/// allocated in a steady state. A line is let go (its `L` dropped) as soon as nobody waits for a word of it.
///
/// ```
/// use wakeline_core::{HostLine, MemoryDescriptor, Seq, Slot};
/// use wakeline_std::WordSet;
/// let line = HostLine::new();
/// let mut words = WordSet::new();
/// words.add(&MemoryDescriptor::new(&line, Slot::ALL[3], Seq::new(1)), 7); // 7 is whoever waits for it
/// let mut reached = Vec::new();
/// words.scan(&mut reached);
/// assert!(reached.is_empty());
/// line.store(Slot::ALL[3], Seq::new(1));
/// words.scan(&mut reached);
/// assert_eq!((reached.as_slice(), words.len()), (&[7][..], 0));
/// ```
pub struct WordSet<L> {
    lines: Vec<Line<L>>,
    /// How many wait.
    len: usize,
    /// Beside `lines`.
    waiting: Vec<Waiting>,
    /// Where each line stands, by its address.
    places: FxHashMap<usize, usize>,
    /// Kept for their memory.
    spare: Vec<Waiting>,
}

/// Who waits for each word of a line, in the order of the numbers that they wait for; for the same number in the order of their own.
type Waiting = [VecDeque<(Seq, u32)>; WORDS];

/// Whether the one stands before the other.
fn is_before((seq, who): (Seq, u32), (other, its): (Seq, u32)) -> bool {
    if seq == other { who < its } else { other.reached(seq) }
}

struct Line<L> {
    words: L,
    /// Which words are awaited.
    armed: u32,
    /// Which, where they are few: see [`few`].
    few: u32,
    /// The lowest number awaited of each; one far ahead where none is.
    targets: [Seq; WORDS],
}

impl<L> Default for WordSet<L> {
    fn default() -> Self {
        Self {
            lines: Vec::new(),
            len: 0,
            waiting: Vec::new(),
            places: FxHashMap::default(),
            spare: Vec::new(),
        }
    }
}

fn address<L: LineRef>(word: &MemoryDescriptor<L>) -> usize {
    core::ptr::from_ref(word.line()).addr()
}

impl<L: LineRef> WordSet<L> {
    /// No words.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many words are waited for, each as often as it was added.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a [`scan`](Self::scan) may find anybody. Loads may be `Relaxed`.
    pub fn any_reached(&self) -> bool {
        self.lines.iter().any(Line::may_have_reached)
    }

    /// The line of all words, where it is one.
    pub fn lone_line(&self) -> Option<&CompletionLine> {
        match self.lines.as_slice() {
            [line] => Some(line.words.line()),
            _ => None,
        }
    }

    /// Watches a word for `who`.
    pub fn add(&mut self, word: &MemoryDescriptor<L>, who: u32) {
        let place = *self.places.entry(address(word)).or_insert_with(|| {
            self.lines.push(Line::new(word.line_ref().clone()));
            self.waiting.push(self.spare.pop().unwrap_or_default());
            self.lines.len() - 1
        });
        let slot = word.slot().index();
        let waiting = &mut self.waiting[place][slot];
        let new = (word.seq(), who);
        // Numbers of a word mostly come in order.
        if waiting.back().is_none_or(|last| is_before(*last, new)) {
            waiting.push_back(new);
        } else {
            waiting.insert(waiting.partition_point(|other| is_before(*other, new)), new);
        }
        self.lines[place].aim(slot, waiting);
        self.len += 1;
    }

    /// Watches it for `who` no longer; whether it did.
    pub fn remove(&mut self, word: &MemoryDescriptor<L>, who: u32) -> bool {
        let Some(&place) = self.places.get(&address(word)) else { return false };
        let slot = word.slot().index();
        let waiting = &mut self.waiting[place][slot];
        let this = (word.seq(), who);
        let found = waiting.partition_point(|other| is_before(*other, this));
        if waiting.get(found) != Some(&this) {
            return false;
        }
        waiting.remove(found);
        self.len -= 1;
        self.lines[place].aim(slot, waiting);
        if self.lines[place].armed == 0 {
            self.forget(place);
        }
        true
    }

    /// Looks at every word, takes out whoever waits for one that is reached, and appends them to `reached`. Loads are `Acquire`.
    #[inline]
    pub fn scan(&mut self, reached: &mut Vec<u32>) {
        let mut place = 0;
        loop {
            let mut lines = self.lines[place..].iter();
            // Counts no places meanwhile, which would cost an instruction a line.
            if !lines.any(Line::may_have_reached) {
                return;
            }
            place = self.lines.len() - lines.len() - 1;
            if !self.take(place, reached) {
                place += 1;
            }
            // Else another has taken its place and is looked at next.
        }
    }

    /// Nobody waits for a word of this line any longer: it is let go at once, since whoever made it may want to free it.
    fn forget(&mut self, place: usize) {
        let line = self.lines.swap_remove(place);
        self.spare.push(self.waiting.swap_remove(place));
        self.places.remove(&core::ptr::from_ref(&*line.words).addr());
        if let Some(moved) = self.lines.get(place) {
            self.places.insert(core::ptr::from_ref(&*moved.words).addr(), place);
        }
    }

    /// Takes out who waits for words of this line that are reached; whether nobody is left, and the line is gone.
    #[cold]
    fn take(&mut self, place: usize, reached: &mut Vec<u32>) -> bool {
        let line = &mut self.lines[place];
        let mut armed = line.armed;
        while armed != 0 {
            let slot = armed.trailing_zeros();
            armed &= armed - 1;
            let word = line.words.line().load(Slot::wrapping(slot));
            let slot = slot as usize;
            let waiting = &mut self.waiting[place][slot];
            let passed = waiting.iter().take_while(|(seq, _)| word.reached(*seq)).count();
            if passed > 0 {
                self.len -= passed;
                reached.extend(waiting.drain(..passed).map(|(_, who)| who));
                line.aim(slot, waiting);
            }
        }
        let empty = line.armed == 0;
        if empty {
            self.forget(place);
        }
        empty
    }
}

/// A target far ahead of any word that is near `word`.
fn far(word: Seq) -> Seq {
    Seq::new(word.get().wrapping_add(1 << 62))
}

/// Neither one nor two words of a line are armed.
const MANY: u32 = 64;

/// The slot of a lone armed word; of two the slot of the one and eight times that of the other, which is not zero; else [`MANY`].
fn few(armed: u32) -> u32 {
    let (first, others) = (armed.trailing_zeros(), armed & armed.wrapping_sub(1));
    match others.count_ones() {
        0 if armed != 0 => first,
        1 => first | others.trailing_zeros() << 3,
        _ => MANY,
    }
}

impl<L: LineRef> Line<L> {
    fn new(line: L) -> Self {
        let targets = core::array::from_fn(|slot| far(line.line().load(Slot::ALL[slot])));
        Self { words: line, armed: 0, few: MANY, targets }
    }

    /// Whether a word that is awaited may be reached.
    #[inline]
    fn may_have_reached(&self) -> bool {
        let reached = |slot: u32| {
            let slot = Slot::wrapping(slot);
            self.words.line().load(slot).reached(self.targets[slot.index()])
        };
        match self.few {
            lone @ ..8 => reached(lone),
            two @ ..MANY => reached(two) | reached(two >> 3),
            _ => self.words.line().any_reached(&self.targets),
        }
    }

    fn aim(&mut self, slot: usize, waiting: &VecDeque<(Seq, u32)>) {
        if let Some((seq, _)) = waiting.front() {
            self.targets[slot] = *seq;
            self.armed |= 1 << slot;
        } else {
            self.targets[slot] = far(self.words.line().load(Slot::ALL[slot]));
            self.armed &= !(1 << slot);
        }
        self.few = few(self.armed);
    }
}

impl<L> fmt::Debug for WordSet<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WordSet")
            .field("len", &self.len)
            .field("lines", &self.lines.len())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use wakeline_core::HostLine;

    fn word(line: &Arc<HostLine>, slot: usize, seq: u64) -> MemoryDescriptor<Arc<HostLine>> {
        MemoryDescriptor::new(Arc::clone(line), Slot::ALL[slot], Seq::new(seq))
    }

    #[test]
    fn a_line_that_nobody_waits_for_is_let_go() {
        let (line, other) = (Arc::new(HostLine::new()), Arc::new(HostLine::new()));
        let mut lines = WordSet::new();
        lines.add(&word(&line, 0, 1), 7);
        lines.add(&word(&line, 0, 2), 8);
        lines.add(&word(&other, 3, 1), 9);
        line.store(Slot::ALL[0], Seq::new(1));
        let mut reached = Vec::new();
        lines.scan(&mut reached);
        assert_eq!((reached.as_slice(), lines.len()), (&[7][..], 2));
        lines.remove(&word(&line, 0, 2), 8);
        assert_eq!((Arc::strong_count(&line), Arc::strong_count(&other)), (1, 2));
        other.store(Slot::ALL[3], Seq::new(1));
        lines.scan(&mut reached);
        assert_eq!((reached.as_slice(), lines.len()), (&[7, 9][..], 0));
        assert_eq!(Arc::strong_count(&other), 1);
    }

    /// Each word that is armed is looked at, and no other, whichever are armed.
    #[test]
    fn every_set_of_armed_words_is_looked_at() {
        for armed in 1_u32..256 {
            for slot in 0..WORDS {
                let line = Arc::new(HostLine::new());
                let mut words = WordSet::new();
                for slot in (0..WORDS).filter(|slot| armed & 1 << slot != 0) {
                    words.add(&word(&line, slot, 1), u32::try_from(slot).unwrap());
                }
                assert!(!words.any_reached());
                line.store(Slot::ALL[slot], Seq::new(1));
                let is_armed = armed & 1 << slot != 0;
                assert_eq!(words.any_reached(), is_armed, "{armed:#b}, {slot}");
                let mut reached = Vec::new();
                words.scan(&mut reached);
                let expected = is_armed.then(|| u32::try_from(slot).unwrap());
                assert_eq!(reached, Vec::from_iter(expected), "{armed:#b}, {slot}");
            }
        }
    }

    proptest! {
        /// Words jump, wrap and are awaited in any order; each flight is given once, as soon as its word has passed its number.
        #[test]
        fn every_flight_is_given_once_when_its_word_has_passed(
            start in prop::sample::select(vec![0_u64, u64::MAX - 20]),
            steps in prop::collection::vec((0_usize..3, 0_usize..8, 0_u64..30, 0_u8..4), 1..200),
        ) {
            let all: Vec<_> = (0..3).map(|_| Arc::new(HostLine::new())).collect();
            for line in &all {
                for slot in Slot::ALL {
                    line.store(slot, Seq::new(start));
                }
            }
            let mut lines = WordSet::new();
            let mut model: Vec<(u32, MemoryDescriptor<_>)> = Vec::new();
            for (flight, (line, slot, ahead, what)) in (0..).zip(steps) {
                let line = &all[line];
                match what {
                    0 | 1 => {
                        let word = word(line, slot, start.wrapping_add(ahead));
                        lines.add(&word, flight);
                        model.push((flight, word));
                    }
                    2 if !model.is_empty() => {
                        let (flight, word) = model.swap_remove(slot % model.len());
                        lines.remove(&word, flight);
                    }
                    _ => {
                        let now = line.load(Slot::ALL[slot]).get().wrapping_add(ahead / 4);
                        line.store(Slot::ALL[slot], Seq::new(now));
                        let mut reached = Vec::new();
                        lines.scan(&mut reached);
                        reached.sort_unstable();
                        let mut expected: Vec<u32> =
                            model.iter().filter(|(_, word)| word.reached()).map(|(flight, _)| *flight).collect();
                        expected.sort_unstable();
                        model.retain(|(_, word)| !word.reached());
                        prop_assert_eq!(reached, expected);
                    }
                }
                prop_assert_eq!(lines.len(), model.len());
            }
            drop(model);
            drop(lines);
            prop_assert!(all.iter().all(|line| Arc::strong_count(line) == 1));
        }
    }
}
