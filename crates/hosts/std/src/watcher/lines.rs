//! Which words are watched, line by line.

use core::any::{Any, TypeId};
use std::collections::HashMap;

use wakeline_core::{LineRef, MemoryDescriptor, Seq, Slot, WORDS};

/// The armed words of a shard, over lines of any kind.
///
/// A look at all of them is one virtual call a kind of line; within a kind it is a loop over lines that loads the armed words and
/// compares each with the lowest number awaited there. Later numbers of a word wait behind that.
#[derive(Default)]
pub(super) struct Lines {
    /// Few: one a backend.
    sets: Vec<(TypeId, Box<dyn LineSet>)>,
    armed: usize,
}

/// The lines of one kind.
trait LineSet: Any + Send {
    fn scan(&mut self, reached: &mut Vec<u32>);
    fn as_any(&mut self) -> &mut dyn Any;
}

impl Lines {
    /// How many registrations there are.
    pub(super) fn armed(&self) -> usize {
        self.armed
    }

    /// Watches a word for the flight of this number.
    pub(super) fn add<L: LineRef + Send + 'static>(&mut self, word: &MemoryDescriptor<L>, flight: u32) {
        if let Some(set) = self.set() {
            set.add(word, flight);
            self.armed += 1;
        }
    }

    /// Watches it no longer; it was added and has not been reached.
    pub(super) fn remove<L: LineRef + Send + 'static>(&mut self, word: &MemoryDescriptor<L>, flight: u32) {
        if self.set().is_some_and(|set| set.remove(word, flight)) {
            self.armed -= 1;
        }
    }

    /// Looks at every word and takes out the flights whose word is reached.
    #[inline]
    pub(super) fn scan(&mut self, reached: &mut Vec<u32>) {
        let before = reached.len();
        for (_, set) in &mut self.sets {
            set.scan(reached);
        }
        self.armed -= reached.len() - before;
    }

    fn set<L: LineRef + Send + 'static>(&mut self) -> Option<&mut Set<L>> {
        let kind = TypeId::of::<L>();
        let place = self.sets.iter().position(|(its, _)| *its == kind).unwrap_or_else(|| {
            self.sets.push((kind, Box::new(Set::<L>::default())));
            self.sets.len() - 1
        });
        // Never `None`: a set stands under the kind of its lines.
        self.sets[place].1.as_any().downcast_mut()
    }
}

struct Set<L> {
    lines: Vec<Line<L>>,
    /// Beside `lines`: who waits for each word, in the order of their numbers.
    waiting: Vec<[Vec<(Seq, u32)>; WORDS]>,
    /// Where each line stands, by its address.
    places: HashMap<usize, usize>,
    /// Kept for their memory.
    spare: Vec<[Vec<(Seq, u32)>; WORDS]>,
}

struct Line<L> {
    line: L,
    /// Which words are awaited.
    armed: u32,
    /// The lowest number awaited of each.
    targets: [Seq; WORDS],
}

impl<L> Default for Set<L> {
    fn default() -> Self {
        Self { lines: Vec::new(), waiting: Vec::new(), places: HashMap::new(), spare: Vec::new() }
    }
}

fn address<L: LineRef>(word: &MemoryDescriptor<L>) -> usize {
    core::ptr::from_ref(word.line()).addr()
}

impl<L: LineRef> Set<L> {
    fn add(&mut self, word: &MemoryDescriptor<L>, flight: u32) {
        let place = *self.places.entry(address(word)).or_insert_with(|| {
            self.lines.push(Line { line: word.line_ref().clone(), armed: 0, targets: [Seq::ZERO; WORDS] });
            self.waiting.push(self.spare.pop().unwrap_or_default());
            self.lines.len() - 1
        });
        let slot = word.slot().index();
        let waiting = &mut self.waiting[place][slot];
        // Numbers of a word mostly come in order.
        let behind = waiting.iter().rposition(|(seq, _)| word.seq().reached(*seq)).map_or(0, |last| last + 1);
        waiting.insert(behind, (word.seq(), flight));
        self.lines[place].aim(slot, waiting);
    }

    fn remove(&mut self, word: &MemoryDescriptor<L>, flight: u32) -> bool {
        let Some(&place) = self.places.get(&address(word)) else { return false };
        let slot = word.slot().index();
        let waiting = &mut self.waiting[place][slot];
        let Some(found) = waiting.iter().position(|(_, its)| *its == flight) else { return false };
        waiting.remove(found);
        self.lines[place].aim(slot, waiting);
        if self.lines[place].armed == 0 {
            self.forget(place);
        }
        true
    }

    /// Nobody waits for a word of this line any longer: it is let go at once, since whoever made it may want to free it.
    fn forget(&mut self, place: usize) {
        let line = self.lines.swap_remove(place);
        self.spare.push(self.waiting.swap_remove(place));
        self.places.remove(&core::ptr::from_ref(&*line.line).addr());
        if let Some(moved) = self.lines.get(place) {
            self.places.insert(core::ptr::from_ref(&*moved.line).addr(), place);
        }
    }

    #[cold]
    fn take(&mut self, place: usize, slot: usize, reached: &mut Vec<u32>) {
        let word = self.lines[place].line.load(Slot::ALL[slot]);
        let waiting = &mut self.waiting[place][slot];
        let passed = waiting.iter().take_while(|(seq, _)| word.reached(*seq)).count();
        reached.extend(waiting.drain(..passed).map(|(_, flight)| flight));
        self.lines[place].aim(slot, waiting);
    }
}

impl<L> Line<L> {
    fn aim(&mut self, slot: usize, waiting: &[(Seq, u32)]) {
        match waiting.first() {
            Some((seq, _)) => {
                self.targets[slot] = *seq;
                self.armed |= 1 << slot;
            }
            None => self.armed &= !(1 << slot),
        }
    }
}

impl<L: LineRef + Send + 'static> LineSet for Set<L> {
    #[inline]
    fn scan(&mut self, reached: &mut Vec<u32>) {
        let mut place = 0;
        while let Some(line) = self.lines.get(place) {
            let mut armed = line.armed;
            let mut hit = 0;
            while armed != 0 {
                let slot = armed.trailing_zeros() as usize & (WORDS - 1);
                armed &= armed - 1;
                if line.line.load(Slot::ALL[slot]).reached(line.targets[slot]) {
                    hit |= 1 << slot;
                }
            }
            while hit != 0 {
                let slot = u32::trailing_zeros(hit) as usize;
                hit &= hit - 1;
                self.take(place, slot, reached);
            }
            if self.lines[place].armed == 0 {
                // Another takes its place and is looked at next.
                self.forget(place);
            } else {
                place += 1;
            }
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use wakeline_core::CompletionLine;

    fn word(line: &Arc<CompletionLine>, slot: usize, seq: u64) -> MemoryDescriptor<Arc<CompletionLine>> {
        MemoryDescriptor::new(Arc::clone(line), Slot::ALL[slot], Seq::new(seq))
    }

    #[test]
    fn a_line_that_nobody_waits_for_is_let_go() {
        let (line, other) = (Arc::new(CompletionLine::new()), Arc::new(CompletionLine::new()));
        let mut lines = Lines::default();
        lines.add(&word(&line, 0, 1), 7);
        lines.add(&word(&line, 0, 2), 8);
        lines.add(&word(&other, 3, 1), 9);
        line.store(Slot::ALL[0], Seq::new(1));
        let mut reached = Vec::new();
        lines.scan(&mut reached);
        assert_eq!((reached.as_slice(), lines.armed()), (&[7][..], 2));
        lines.remove(&word(&line, 0, 2), 8);
        assert_eq!((Arc::strong_count(&line), Arc::strong_count(&other)), (1, 2));
        other.store(Slot::ALL[3], Seq::new(1));
        lines.scan(&mut reached);
        assert_eq!((reached.as_slice(), lines.armed()), (&[7, 9][..], 0));
        assert_eq!(Arc::strong_count(&other), 1);
    }

    proptest! {
        /// Words jump, wrap and are awaited in any order; each flight is given once, as soon as its word has passed its number.
        #[test]
        fn every_flight_is_given_once_when_its_word_has_passed(
            start in prop::sample::select(vec![0_u64, u64::MAX - 20]),
            steps in prop::collection::vec((0_usize..3, 0_usize..8, 0_u64..30, 0_u8..4), 1..200),
        ) {
            let all: Vec<_> = (0..3).map(|_| Arc::new(CompletionLine::new())).collect();
            for line in &all {
                Slot::ALL.iter().for_each(|slot| line.store(*slot, Seq::new(start)));
            }
            let mut lines = Lines::default();
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
                prop_assert_eq!(lines.armed(), model.len());
            }
            drop(model);
            drop(lines);
            prop_assert!(all.iter().all(|line| Arc::strong_count(line) == 1));
        }
    }
}
