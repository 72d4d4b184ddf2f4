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

/// How many budgets of lateness are told apart: one from each power of two of `late_pct` on, of which 50 is the most. A power of two itself.
const BUDGETS: usize = 8;
/// A sleep that is later than its margin raises that by this part of it, as a power of two.
const UP_LOG2: u32 = 2;
/// And one that is later than twice its margin.
const FAR_UP_LOG2: u32 = 1;
/// Any other lowers it by one in so many, at a `late_pct` of 1: so it settles where one sleep in 90 is later.
const DOWN: u32 = 400;

/// How late sleeps end on this host, for each budget of lateness.
///
/// A sleep that ends late by more than its margin is late by the rest; covering more of them costs CPU in all waits, since a margin is watched
/// through. So the share of the sleeps that a margin covers follows `late_pct`: all but `late_pct` in a hundred of them, rounded down to a power of two. That keeps
/// both senses of the plan's promise. Of the waits that end behind such a sleep at most that share is late for the timer. And
/// what that adds is on average that share of what the timer is late by beyond its margin: less than that share of the residual, unless the timer
/// is then late by more than the residual.
///
/// The spread of the point's own residuals has the same budget again, in the decisions: neither is taken off the other. What the spread makes late, it
/// makes late by the distance between two known residuals, which is short where they are many, and a sleep that ends ahead of the first of a cluster has the cluster's width to be
/// late in. On the recorded decode steps the two together come to `late_pct` at 1.
#[derive(Debug)]
pub(crate) struct Oversleep {
    budgets: [Margins; BUDGETS],
}

/// What all but a share of the sleeps of each class of lengths are late by at most, as a running estimate.
///
/// A sleep that is later raises it by a quarter, or by half where it is twice as late, any other lowers it by as small a part as the share is: it follows
/// a host that changes within a dozen late sleeps, and one sleep that was late by seconds raises it by no more than any other.
#[derive(Debug)]
pub(crate) struct Margins {
    late_ns: [AtomicU32; CLASSES],
    /// A sleep that is not later lowers it by one in so many.
    down: u32,
}

impl Oversleep {
    pub(crate) fn new() -> Self {
        let mut down = 2 * DOWN;
        Self {
            budgets: [(); BUDGETS].map(|()| {
                down /= 2;
                Margins::new(down)
            }),
        }
    }

    /// For waits of which `late_pct` in a hundred may be late.
    #[inline]
    pub(crate) fn at(&self, late_pct: u64) -> &Margins {
        let budget = (late_pct | 1).ilog2() as usize;
        &self.budgets[budget % BUDGETS]
    }
}

impl Margins {
    fn new(down: u32) -> Self {
        let prior = |class| PRIOR_NS + ((1_u32 << (CLASS_NS_LOG2 + class)) >> PRIOR_SHARE_LOG2);
        let mut class = 0;
        let late_ns = [(); CLASSES].map(|()| {
            class += 1;
            AtomicU32::new(prior(class - 1))
        });
        Self { late_ns, down }
    }

    /// By how much a sleep of this length is to end early, so that it is hardly ever late.
    #[inline]
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
        self.learn_of(class, late_ns);
        if !core::ptr::eq(class, wanted) {
            self.learn_of(wanted, late_ns);
        }
    }

    /// There was time for a sleep of this length, but not for its margin, so nothing was learned: a margin that is too large is lowered, a little.
    /// One that is right is tried in one wait of some hundreds so.
    pub(crate) fn fade(&self, length_ns: u64) {
        let class = self.class(length_ns);
        let margin = class.load(Relaxed);
        class.store((margin - margin / FADES).max(LEAST_NS), Relaxed);
    }

    fn learn_of(&self, class: &AtomicU32, late_ns: u64) {
        let margin = class.load(Relaxed);
        let next = if late_ns > u64::from(margin) {
            let far = late_ns / 2 > u64::from(margin);
            margin.saturating_add(margin >> if far { FAR_UP_LOG2 } else { UP_LOG2 })
        } else {
            margin - margin / self.down
        };
        class.store(next.max(LEAST_NS), Relaxed);
    }

    fn class(&self, length_ns: u64) -> &AtomicU32 {
        let class = ((length_ns >> CLASS_NS_LOG2) | 1).ilog2() as usize;
        &self.late_ns[class.min(CLASSES - 1)]
    }
}
