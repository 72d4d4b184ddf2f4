//! Until when words are watched: each watch of a word for a bounded time, however many parks it is made of.

use std::cell::Cell;

use wakeline_core::{Clock, Instant, LineRef, MemoryDescriptor, Nanos, Seq};

/// How many watches are remembered. Where two fall on one entry, the second counts as new at each of its parks: it
/// spins too long then, but not for good, and is not late.
const ENTRIES: usize = 256;

/// How long a thread has to do something else at least for the next park on the same word to begin a new watch.
const WATCH_GAP_US_LEAST: u64 = 50;

/// A *watch* is a run of parks on one word that do not reach it, each begun soon after the one before: the same as that
/// of [`StdPark`](wakeline_std::StdPark), but there are many at a time here. A wait parks, asks the driver at its
/// backstop and parks again: without the memory of that it would spin for good.
#[derive(Debug)]
pub(crate) struct Budget<C> {
    clock: C,
    watches: Box<[Cell<Watch>]>,
    spin: Nanos,
    gap: Nanos,
    /// When the last of them has spun enough.
    end: Cell<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    /// The address of the word, to tell words apart.
    word: usize,
    seq: Seq,
    began: Instant,
    /// When its last park ended.
    ended: Instant,
}

impl<C: Clock> Budget<C> {
    pub(crate) fn new(clock: C, spin_us_max: u32) -> Self {
        let spin = u64::from(spin_us_max);
        Self {
            clock,
            watches: (0..ENTRIES).map(|_| Cell::default()).collect(),
            spin: Nanos::from_micros(spin),
            gap: Nanos::from_micros(spin.max(WATCH_GAP_US_LEAST)),
            end: Cell::new(Instant::ORIGIN),
        }
    }

    /// Whether a watch may still spin.
    pub(crate) fn lasts(&self, now: Instant) -> bool {
        now < self.end.get()
    }

    /// A park on `word` begins, the first of its watch or one of many, and ends when what is returned is dropped.
    pub(crate) fn begin<L: LineRef>(&self, word: &MemoryDescriptor<L>) -> Parked<'_, C> {
        let now = self.clock.now();
        let address = core::ptr::from_ref(word.line()).addr() + word.slot().index() * size_of::<u64>();
        let parked = Parked { budget: self, index: address / size_of::<u64>() % ENTRIES, word: address };
        let cell = &self.watches[parked.index];
        let before = cell.get();
        let goes_on =
            before.word == address && before.seq == word.seq() && now.since(before.ended) < self.gap;
        let began = if goes_on { before.began } else { now };
        cell.set(Watch { word: address, seq: word.seq(), began, ended: Instant::MAX });
        self.end.set(self.end.get().max(began + self.spin));
        parked
    }
}

/// A park on a word.
pub(crate) struct Parked<'b, C: Clock> {
    budget: &'b Budget<C>,
    index: usize,
    word: usize,
}

impl<C: Clock> Drop for Parked<'_, C> {
    fn drop(&mut self) {
        let cell = &self.budget.watches[self.index];
        let watch = cell.get();
        // Another word's by now, maybe.
        if watch.word == self.word {
            cell.set(Watch { ended: self.budget.clock.now(), ..watch });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wakeline_core::{HostLine, ManualClock, Slot};

    #[test]
    fn a_watch_of_many_parks_is_bounded_as_one_and_another_word_begins_anew() {
        let us = |us| Instant::ORIGIN + Nanos::from_micros(us);
        let line = HostLine::new();
        let word = |slot: usize, seq| MemoryDescriptor::new(&line, Slot::ALL[slot], Seq::new(seq));
        let clock = ManualClock::new();
        let budget = Budget::new(&clock, 200);
        let park = |at, word: &MemoryDescriptor<_>, length| {
            clock.advance_to(us(at));
            let parked = budget.begin(word);
            clock.advance_to(us(at + length));
            drop(parked);
        };
        for park_of_50_us in 0..20 {
            park(1_000 + 51 * park_of_50_us, &word(0, 1), 50);
        }
        assert!(budget.lasts(us(1_199)) && !budget.lasts(us(1_200)), "{budget:?}");
        // The next point of the stream, and another word.
        park(3_000, &word(0, 2), 1);
        assert!(budget.lasts(us(3_199)));
        park(3_100, &word(1, 2), 1);
        assert!(budget.lasts(us(3_299)) && !budget.lasts(us(3_300)));
        // The same after something else.
        park(9_000, &word(1, 2), 1);
        assert!(budget.lasts(us(9_199)));
    }
}
