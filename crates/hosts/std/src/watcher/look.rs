//! Words and moments that somebody waits for: flights without a port.

use wakeline_core::{Clock, ContextKey, Error, Instant, LineRef, MemoryDescriptor, Nanos, Wake};

use super::flight::{Fly, Next, Seen, Tag};
use super::lines::Lines;
use super::sync::{AtomicU32, Ordering};
use super::wake_time::Lead;

/// A word or a moment, for whoever drives a wait of their own: no port, no driver.
#[derive(Debug)]
pub(super) struct Look<L: LineRef> {
    pub(super) tag: Tag,
    pub(super) word: Option<MemoryDescriptor<L>>,
    pub(super) until: Instant,
    outcome: AtomicU32,
}

/// The outcomes of a look.
const PENDING: u32 = 0;
const REACHED: u32 = 1;
const WOKE: u32 = 2;

impl<L: LineRef> Look<L> {
    pub(super) fn new(tag: Tag, word: Option<MemoryDescriptor<L>>, until: Instant) -> Self {
        Self { tag, word, until, outcome: AtomicU32::new(PENDING) }
    }

    pub(super) fn outcome(&self) -> Option<Wake> {
        match self.outcome.load(Ordering::Acquire) {
            REACHED => Some(Wake::Reached),
            WOKE => Some(Wake::Woke),
            _ => None,
        }
    }

    pub(super) fn end(&self, wake: Wake) {
        // The first counts no more than the last: whoever awaits looks for itself.
        let outcome = if wake == Wake::Reached { REACHED } else { WOKE };
        self.outcome.store(outcome, Ordering::Release);
    }

    /// What it needs at first.
    pub(super) fn begin(&self, now: impl FnOnce() -> Instant) -> Next {
        if self.word.as_ref().is_some_and(MemoryDescriptor::reached) {
            self.end(Wake::Reached);
            Next::Over
        } else if self.until < Instant::MAX && now() >= self.until {
            self.end(Wake::Woke);
            Next::Over
        } else if self.word.is_some() {
            Next::Watch { until: self.until }
        } else {
            Next::Sleep { until: self.until }
        }
    }
}

impl<L: LineRef + Send + Sync + 'static> Fly for Look<L> {
    fn tag(&self) -> &Tag {
        &self.tag
    }

    fn see(&self, now: Instant, seen: Seen) -> Next {
        match seen {
            Seen::Reached => self.end(Wake::Reached),
            // Whoever awaits looks again, and finds out that it is closed.
            Seen::Closed => self.end(Wake::Woke),
            Seen::Due => return self.begin(|| now),
        }
        Next::Over
    }

    fn land(&self, now: Instant) -> Next {
        self.begin(|| now)
    }

    fn ask(&self, clock: &dyn Clock) -> (Next, Option<Error>) {
        (self.begin(|| clock.now()), None)
    }

    fn block(&self, _: &dyn Clock) {}

    fn let_go(&self) {}

    fn fail(&self, _: Error) {
        self.end(Wake::Woke);
    }

    fn deadline(&self) -> Instant {
        self.until
    }

    fn late(&self) -> Nanos {
        Nanos::ZERO
    }

    fn looks(&self) -> bool {
        false
    }

    fn cancelled(&self) -> bool {
        false
    }

    fn trusted(&self) -> bool {
        true
    }

    fn ended(&self) -> bool {
        self.outcome().is_some()
    }

    fn early(&self, _: Instant) -> Option<Lead> {
        None
    }

    fn context(&self) -> Option<ContextKey> {
        None
    }

    fn observe(&self) {}

    fn watch(&self, lines: &mut Lines, flight: u32) {
        if let Some(word) = &self.word {
            lines.add(word, flight);
        }
    }

    fn unwatch(&self, lines: &mut Lines, flight: u32) {
        if let Some(word) = &self.word {
            lines.remove(word, flight);
        }
    }
}
