//! Pages of completion lines, and which stream owns which word.
//!
//! Invariants:
//! 1. A word belongs to one stream at a time, and to none before every store of its last owner has landed: until then it settles, and where
//!    that can never be known it is set aside for good.
//! 2. A word's numbers never go backwards: a new owner goes on where the last one ended.
//! 3. A page is freed only when no store into it can still come, and after the last handle of its lines.

use core::ptr::NonNull;
use std::collections::VecDeque;

use wakeline_core::{CompletionLine, HostLine, Seq, Slot, WORDS};

use crate::driver::RawPage;

/// How many bytes are allocated at a time: one page of the host.
pub const PAGE_BYTES: usize = 4_096;

const LINES: usize = PAGE_BYTES / size_of::<CompletionLine>();
const SLOTS: usize = LINES * WORDS;

/// How many settling words one request for a word looks at.
const SETTLE_LOOKS_MAX: usize = 16;

/// One word: where the host and the device see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    line: NonNull<CompletionLine>,
    slot: Slot,
    device: u64,
}

// SAFETY: it is an address; whoever uses it holds the context that keeps the page, and lines are `Sync`.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    pub(crate) const fn line(self) -> NonNull<CompletionLine> {
        self.line
    }

    pub(crate) const fn slot(self) -> Slot {
        self.slot
    }

    /// The word's address for the device.
    pub(crate) const fn device(self) -> u64 {
        self.device
    }

    /// What the word reads.
    ///
    /// # Safety
    ///
    /// Its page has not been freed.
    pub(crate) unsafe fn word(self) -> Seq {
        // SAFETY: the page is there, says the caller, and was filled with a line here.
        let line = unsafe { self.line.as_ref() };
        line.load(self.slot)
    }

    /// Stores from the host, `Release`.
    ///
    /// # Safety
    ///
    /// Its page has not been freed.
    pub(crate) unsafe fn store(self, seq: Seq) {
        // SAFETY: the page is there, says the caller; a line that the host stores into has the layout of any.
        let line = unsafe { self.line.cast::<HostLine>().as_ref() };
        line.store(self.slot, seq);
    }
}

/// How the words of a context are used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SlotUse {
    /// Words that a stream owns.
    pub owned: usize,
    /// Words that wait for a stream.
    pub free: usize,
    /// Words without a stream into which a store may still land; looked at when a stream is made.
    pub settling: usize,
    /// Words set aside for good, since nobody can say whether a store will still land.
    pub lost: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Pool {
    pages: Vec<RawPage>,
    /// The word freed last is taken first, so that lines fill up.
    free: Vec<Place>,
    settling: VecDeque<(Place, Seq)>,
    owned: usize,
    lost: Vec<Place>,
}

// SAFETY: pages are addresses; the pool never goes through them but as `Place::word` says.
unsafe impl Send for Pool {}

impl Pool {
    /// A free word, if there is one.
    ///
    /// # Safety
    ///
    /// No page has been freed.
    pub(crate) unsafe fn take(&mut self) -> Option<Place> {
        // SAFETY: as the caller says.
        unsafe { self.settle(SETTLE_LOOKS_MAX) };
        let place = self.free.pop()?;
        self.owned += 1;
        Some(place)
    }

    /// Frees words whose stores have landed, of the `looks` that have waited longest.
    ///
    /// # Safety
    ///
    /// No page has been freed.
    pub(crate) unsafe fn settle(&mut self, looks: usize) {
        for _ in 0..looks.min(self.settling.len()) {
            let Some((place, armed)) = self.settling.pop_front() else { break };
            // SAFETY: the page is there, says the caller.
            if unsafe { place.word() }.reached(armed) {
                self.free.push(place);
            } else {
                self.settling.push_back((place, armed));
            }
        }
    }

    /// Takes back a stream's word.
    pub(crate) fn give(&mut self, place: Place, armed: Armed) {
        self.owned -= 1;
        match armed {
            Armed::Upto(seq) => self.settling.push_back((place, seq)),
            Armed::Unknown => self.lost.push(place),
        }
    }

    /// How many words there are.
    pub(crate) fn len(&self) -> usize {
        self.pages.len() * SLOTS
    }

    /// Adds the words of a fresh page.
    ///
    /// # Safety
    ///
    /// The page is [`PAGE_BYTES`] long, aligned to a line, and nobody else's until [`take_pages`](Self::take_pages).
    pub(crate) unsafe fn add(&mut self, page: RawPage) {
        self.pages.push(page);
        let first = page.host.cast::<CompletionLine>();
        for index in (0..LINES).rev() {
            // SAFETY: `index` is below the number of lines of the page.
            let line = unsafe { first.add(index) };
            // SAFETY: within the page, aligned, and nobody looks at it yet.
            unsafe { line.write(CompletionLine::new()) };
            for slot in Slot::ALL.into_iter().rev() {
                let offset = index * size_of::<CompletionLine>() + slot.index() * size_of::<u64>();
                self.free.push(Place { line, slot, device: page.device + offset as u64 });
            }
        }
    }

    pub(crate) fn usage(&self) -> SlotUse {
        SlotUse {
            owned: self.owned,
            free: self.free.len(),
            settling: self.settling.len(),
            lost: self.lost.len(),
        }
    }

    /// The pages, for good: those to free, and those into which a store may still come. No word is left.
    pub(crate) fn take_pages(&mut self) -> (Vec<RawPage>, Vec<RawPage>) {
        let unsure: Vec<_> =
            self.settling.drain(..).map(|(place, _)| place).chain(self.lost.drain(..)).collect();
        self.free.clear();
        let holds = |page: &RawPage, place: &Place| {
            (page.device..page.device + PAGE_BYTES as u64).contains(&place.device)
        };
        core::mem::take(&mut self.pages)
            .into_iter()
            .partition(|page| !unsure.iter().any(|place| holds(page, place)))
    }
}

/// Which stores of a word were enqueued by a stream that is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Armed {
    /// All numbers up to this one.
    Upto(Seq),
    /// A call failed in a way that leaves open what it did, or the context broke.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C, align(4096))]
    struct Page([CompletionLine; LINES]);

    /// A pool with the words of one page, which the test owns.
    fn pool() -> (Box<Page>, Pool) {
        let mut page = Box::new(Page([const { CompletionLine::new() }; LINES]));
        let host = NonNull::from(page.as_mut()).cast();
        let mut pool = Pool::default();
        // SAFETY: as long and as aligned as a page, and the test looks at it through the pool's words alone.
        unsafe { pool.add(RawPage { host, device: 0x10_0000 }) };
        (page, pool)
    }

    fn take(pool: &mut Pool) -> Option<Place> {
        // SAFETY: the tests keep their pages to the end.
        unsafe { pool.take() }
    }

    fn land(place: Place, seq: Seq) {
        // SAFETY: the tests keep their pages to the end.
        unsafe { place.store(seq) };
    }

    #[test]
    fn every_word_of_a_page_is_given_once_and_the_device_sees_it_where_the_host_does() {
        let (page, mut pool) = pool();
        let first = core::ptr::from_ref(page.as_ref()).addr();
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..SLOTS {
            let place = take(&mut pool).unwrap();
            let host = place.line().addr().get() + place.slot().index() * size_of::<u64>();
            assert_eq!(host - first, usize::try_from(place.device() - 0x10_0000).unwrap(), "word {number}");
            assert!(seen.insert(place.device()));
        }
        assert!(take(&mut pool).is_none());
        assert_eq!(pool.usage(), SlotUse { owned: SLOTS, ..SlotUse::default() });
    }

    /// A late store of the previous user's set the flag of the next one.
    #[test]
    fn case_2_a_word_settles_until_its_last_store_has_landed_and_goes_on_from_there() {
        let (_page, mut pool) = pool();
        let others: Vec<_> = (1..SLOTS).map(|_| take(&mut pool).unwrap()).collect();
        let place = take(&mut pool).unwrap();
        pool.give(place, Armed::Upto(Seq::new(3)));
        land(place, Seq::new(2));
        assert!(take(&mut pool).is_none(), "a store is under way");
        land(place, Seq::new(3));
        let again = take(&mut pool).unwrap();
        assert_eq!(again.device(), place.device());
        // SAFETY: the page is there.
        assert_eq!(unsafe { again.word() }, Seq::new(3));
        assert_eq!(others.len() + 1, pool.usage().owned);
    }

    #[test]
    fn a_word_of_which_nobody_knows_is_never_given_again_and_its_page_not_freed() {
        let (_page, mut pool) = pool();
        let places: Vec<_> = (0..SLOTS).map(|_| take(&mut pool).unwrap()).collect();
        let (lost, landed) = (places[0], places[1]);
        pool.give(lost, Armed::Unknown);
        pool.give(landed, Armed::Upto(Seq::ZERO));
        land(lost, Seq::new(9));
        assert_eq!(take(&mut pool).unwrap().device(), landed.device());
        assert!(take(&mut pool).is_none());
        assert_eq!(pool.usage().lost, 1);
        let (free, unsure) = pool.take_pages();
        assert_eq!((free.len(), unsure.len()), (0, 1));
    }

    #[test]
    fn a_page_is_freed_when_all_has_landed() {
        let (_page, mut pool) = pool();
        let place = take(&mut pool).unwrap();
        land(place, Seq::new(1));
        pool.give(place, Armed::Upto(Seq::new(1)));
        // SAFETY: the page is there.
        unsafe { pool.settle(usize::MAX) };
        let (free, unsure) = pool.take_pages();
        assert_eq!((free.len(), unsure.len()), (1, 0));
        assert!(take(&mut pool).is_none());
    }
}
