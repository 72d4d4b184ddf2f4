//! How late sleeps end on this host.

use crate::sync::{AtomicU32, Ordering::Relaxed};

/// Lengths are told apart by powers of two: the shortest class is below two of these units, of 16.4 us.
const CLASS_NS_LOG2: u32 = 14;
/// From 16 us to 67 ms; longer ones count as these.
const CLASSES: usize = 13;
/// What is assumed at first: so much, and a part of the sleep's length. Timers of an idle machine are better than that.
const PRIOR_NS: u32 = 10_000;
const PRIOR_SHARE_LOG2: u32 = 6;
/// No margin is less.
const LEAST_NS: u32 = 1_000;
/// A margin that leaves no time for a sleep fades by this part for each wait that it keeps awake.
const FADES: u32 = 2_000;

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

    /// Learns from a sleep that was to take so long, and whose margin was that of `wanted_ns`: of both lengths. A margin that shortens its sleep into
    /// a class below would else be kept whatever its sleeps are late by.
    pub(crate) fn learn(&self, length_ns: u64, wanted_ns: u64, late_ns: u64) {
        let (class, wanted) = (self.class(length_ns), self.class(wanted_ns));
        Self::learn_of(class, late_ns);
        if !core::ptr::eq(class, wanted) {
            Self::learn_of(wanted, late_ns);
        }
    }

    /// There was time for a sleep of this length, but not for its margin, so nothing was learned: a margin that is too large is lowered, a little.
    /// One that is right is tried in one wait of some hundreds so.
    pub(crate) fn fade(&self, length_ns: u64) {
        let class = self.class(length_ns);
        let margin = class.load(Relaxed);
        class.store((margin - margin / FADES).max(LEAST_NS), Relaxed);
    }

    fn learn_of(class: &AtomicU32, late_ns: u64) {
        let margin = class.load(Relaxed);
        let next = if late_ns > u64::from(margin) {
            margin.saturating_add(margin / 2)
        } else {
            margin - margin / 200
        };
        class.store(next.max(LEAST_NS), Relaxed);
    }

    fn class(&self, length_ns: u64) -> &AtomicU32 {
        let class = ((length_ns >> CLASS_NS_LOG2) | 1).ilog2() as usize;
        &self.late_ns[class.min(CLASSES - 1)]
    }
}
