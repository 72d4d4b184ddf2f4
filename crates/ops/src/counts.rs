//! What has become of a runtime's flights.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many flights there were and what became of them; see [`Runtime::counts`](crate::Runtime::counts).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlightCounts {
    /// Flights that began: submissions, those too that failed half way.
    pub begun: u64,
    /// Flights whose work was done, and that let go what they kept.
    pub landed: u64,
    /// Those of them whose end the poll that submitted them has seen.
    pub spun: u64,
    /// Those of them whose end a later poll has seen by itself.
    pub watched: u64,
    /// Flights whose end nobody can know, and that leaked what they kept.
    pub leaked: u64,
    /// Flights whose streams took nothing, since they are captured or their device has failed: what they were to keep was let go.
    pub refused: u64,
    /// What was leaked: buffers, owners, points.
    pub owners_leaked: u64,
    /// Destructors of owners and wakers that panicked as a flight ended.
    pub panics: u64,
    /// Buffers that could not be freed, since the device said so.
    pub frees_failed: u64,
}

impl FlightCounts {
    /// How many flights are under way.
    pub const fn in_flight(&self) -> u64 {
        self.begun.saturating_sub(self.landed + self.leaked + self.refused)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) begun: AtomicU64,
    /// Of those that the poll that submitted them has not seen.
    pub(crate) landed: AtomicU64,
    pub(crate) spun: AtomicU64,
    pub(crate) watched: AtomicU64,
    pub(crate) leaked: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) owners_leaked: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) frees_failed: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> FlightCounts {
        // In one order with what `drain` waits by.
        let read = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        let spun = read(&self.spun);
        FlightCounts {
            // First what ends, so that no flight is seen to end before it began.
            landed: read(&self.landed) + spun,
            spun,
            watched: read(&self.watched),
            leaked: read(&self.leaked),
            refused: read(&self.refused),
            owners_leaked: read(&self.owners_leaked),
            panics: read(&self.panics),
            frees_failed: read(&self.frees_failed),
            begun: read(&self.begun),
        }
    }

    /// Another flight begins: how many did before.
    #[inline]
    pub(crate) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::AcqRel)
    }

    /// How many flights are under way, about, besides the one of this number.
    #[inline]
    pub(crate) fn in_flight_before(&self, number: u64) -> u64 {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let over = read(&self.spun) + read(&self.landed) + read(&self.leaked) + read(&self.refused);
        number.saturating_sub(over)
    }

    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::SeqCst);
    }
}
