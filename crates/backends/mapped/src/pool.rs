//! Pages of completion lines, and which stream owns which word.
//!
//! Invariants:
//! 1. A word belongs to one stream at a time, and to none before every store of its last owner has landed: until then it settles, and where
//!    that can never be known it is set aside for good.
//! 2. A word's numbers never go backwards: a new owner goes on where the last one ended.
//! 3. A page is freed only when no store into it can still come, and after the last handle of its lines.

use core::ptr::NonNull;
use std::collections::VecDeque;

use wakeline_core::{CompletionLine, Seq, Slot, WORDS};

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
