//! How late sleeps end on this host.

use crate::sync::{AtomicU32, Ordering::Relaxed};

/// Lengths are told apart by powers of two: the shortest class is below two of these units, of 16.4 us.
const CLASS_NS_LOG2: u32 = 14;
/// From 16 us to 67 ms; longer ones count as these.
const CLASSES: usize = 13;
/// What is assumed at first: so much, and a part of the sleep's length. Timers of an idle machine are better than that.
const PRIOR_NS: u32 = 10_000;
const PRIOR_SHARE_LOG2: u32 = 6;

/// What 99 % of the sleeps of each class of lengths are late by at most, as a running estimate.
///
/// A sleep that is later raises it by half, any other lowers it by a two-hundredth: it settles where one in a hundred is later, follows a
/// host that changes within a few late sleeps, and one sleep that was late by seconds raises it by no more than any other.
#[derive(Debug)]
pub(crate) struct Oversleep {
    late_ns: [AtomicU32; CLASSES],
}

impl Oversleep {
    pub(crate) fn new() -> Self {
        let prior = |class| PRIOR_NS + ((1_u32 << (CLASS_NS_LOG2 + class)) >> PRIOR_SHARE_LOG2);
        let mut class = 0;
        Self {
            late_ns: [(); CLASSES].map(|()| {
                class += 1;
                AtomicU32::new(prior(class - 1))
            }),
        }
    }

    /// By how much a sleep of this length is to end early, so that it is hardly ever late.
    pub(crate) fn margin(&self, length_ns: u64) -> u64 {
        u64::from(self.class(length_ns).load(Relaxed))
    }

    /// By how much it usually ends late.
    pub(crate) fn usual(&self, length_ns: u64) -> u64 {
        self.margin(length_ns) / 2
    }

    /// Learns from a sleep that was to take so long.
    pub(crate) fn learn(&self, length_ns: u64, late_ns: u64) {
        let class = self.class(length_ns);
        let margin = class.load(Relaxed);
        let next = if late_ns > u64::from(margin) {
            margin.saturating_add(margin / 2)
        } else {
            margin - margin / 200
        };
        class.store(next.max(1_000), Relaxed);
    }

    fn class(&self, length_ns: u64) -> &AtomicU32 {
        let class = (length_ns >> CLASS_NS_LOG2).checked_ilog2().unwrap_or(0) as usize;
        &self.late_ns[class.min(CLASSES - 1)]
    }
}
