//! The last residuals of a point, in the order of their length.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{GROWTH, Known, Oversleep};
use crate::plan::WINDOW_MAX;

/// Residuals are kept in units of 16 ns, so that a minute fits into 32 bits.
const UNIT_NS_LOG2: u32 = 4;

/// As many as the largest window holds, whatever the window: a search then takes steps of known lengths.
const PLACES: usize = WINDOW_MAX as usize;

/// Residuals, ascending.
#[derive(Clone, Debug)]
pub(crate) struct Sorted {
    /// The most there is from `len` on.
    units: Box<[u32; PLACES]>,
    len: usize,
}

impl Sorted {
    pub(crate) fn new() -> Self {
        Self { units: Box::new([u32::MAX; PLACES]), len: 0 }
    }

    /// In units.
    #[inline]
    pub(super) fn all(&self) -> &[u32] {
        &self.units[..self.len.min(PLACES)]
    }

    /// How many are `at` or before.
    #[inline]
    pub(super) fn passed(&self, at: u32) -> usize {
        // As `partition_point` does it, in half of its instructions: by steps of known lengths, which end one short of all places.
        let step = |passed: usize, step: usize| {
            let next = passed | step;
            if self.units[next - 1] <= at { next } else { passed }
        };
        let passed = [128, 64, 32, 16].into_iter().fold(0, step);
        // That it has no other bits is known, but not to the compiler.
        let passed = [8, 4, 2, 1].into_iter().fold(passed & (PLACES - 16), step);
        (passed + usize::from(self.units[PLACES - 1] <= at)).min(self.len)
    }

    /// How many are below `at`.
    fn below(&self, at: u32) -> usize {
        at.checked_sub(1).map_or(0, |at| self.passed(at))
    }

    /// Puts `new` in, for `old` where it is full.
    fn put(&mut self, new: u32, old: Option<u32>) {
        let to = self.below(new);
        let Some(old) = old else {
            self.units.copy_within(to..self.len, to + 1);
            self.units[to] = new;
            self.len += 1;
            return;
        };
        let from = self.below(old).min(self.len - 1);
        if from < to {
            self.units.copy_within(from + 1..to, from);
            self.units[to - 1] = new;
        } else {
            self.units.copy_within(to..from, to + 1);
            self.units[to] = new;
        }
    }

    /// The same as another of the same window, which has as many or more.
    fn take(&mut self, other: &Self) {
        let len = other.len.min(PLACES);
        self.units[..len].copy_from_slice(&other.units[..len]);
        self.len = len;
    }
}

/// How many of the last residuals tell what has come lately.
const LATELY: usize = 8;

/// Of about how many waits the share of misses is.
const TRIALS_LOG2: u32 = 7;

/// A share of the waits, in 65,536ths: what is assumed of misses at first, which 146 without one bring down to what is few enough.
const MISSES_FIRST: u32 = 2_048;
const MISSES_FEW: u32 = 655;

/// By what part of it a residual may be below what was told and no miss: sleeps end ahead of what they are for by as much at least.
const NEAR_LOG2: u32 = 8;

/// Whether the next residual is most likely not below those that came last: a regime, a batch or the length of a context say, that a longer window
/// knows others beside.
///
/// Tried out on each residual before anything is decided by it, wherever it would make a difference: where a window has shorter ones. The share of
/// misses is a running estimate: one miss in 128 is few enough, and two are too many.
#[derive(Clone, Copy, Debug)]
struct Regime {
    misses: u32,
}

impl Regime {
    /// The residual `new` has come, where none below `floor` was to.
    fn observe(&mut self, new: u32, floor: u32) {
        self.misses -= self.misses >> TRIALS_LOG2;
        if new < floor - (floor >> NEAR_LOG2) {
            self.misses += (1 << 16) >> TRIALS_LOG2;
        }
    }

    const fn holds(self) -> bool {
        self.misses <= MISSES_FEW
    }
}

/// A residual in units, and back.
pub(super) fn units(ns: u64) -> u32 {
    u32::try_from(ns >> UNIT_NS_LOG2).unwrap_or(u32::MAX)
}

pub(super) fn ns(units: u32) -> u64 {
    u64::from(units) << UNIT_NS_LOG2
}

/// The residuals of one point, for its table.
///
/// Waits share a copy of them. There are two: while a wait still holds the one, the other is brought up to date and handed to the next waits. Where
/// waits hold both, the next waits know a residual less; nothing is allocated for them.
#[derive(Debug)]
pub(crate) struct Window {
    sorted: Sorted,
    /// The same in the order in which they came, from `next` on once it is full.
    ring: Box<[u32]>,
    next: usize,
    /// The last ones once more, in any order.
    lately: [u32; LATELY],
    turn: usize,
    /// What the next residual is not below, going by those: see [`Window::floor`].
    floor: u32,
    regime: Regime,
    /// The last wait was late for no reason that is known.
    careful: bool,
    /// The first is handed out.
    shared: [Arc<Known>; 2],
}

impl Window {
    pub(crate) fn new(window: u16, oversleep: &Arc<Oversleep>) -> Self {
        let sorted = Sorted::new();
        let oversleep = || Arc::clone(oversleep);
        let known = || {
            Arc::new(Known { residuals: sorted.clone(), floor: 0, growth: GROWTH, oversleep: oversleep() })
        };
        let ring = alloc::vec![0; usize::from(window).min(PLACES)].into_boxed_slice();
        let regime = Regime { misses: MISSES_FIRST };
        let shared = [known(), known()];
        Self { sorted, ring, next: 0, lately: [0; LATELY], turn: 0, floor: 0, regime, careful: false, shared }
    }

    pub(crate) fn known(&self) -> &Arc<Known> {
        &self.shared[0]
    }

    pub(crate) fn window(&self) -> usize {
        self.ring.len()
    }

    /// Adds a residual; the oldest of a full window leaves.
    pub(crate) fn push(&mut self, ns: u64) {
        let new = units(ns);
        if self.floor > 0 {
            self.regime.observe(new, self.floor);
        }
        let full = self.sorted.len == self.window();
        if let Some(place) = self.ring.get_mut(self.next) {
            let old = full.then_some(*place);
            self.sorted.put(new, old);
            *place = new;
        }
        self.turn = (self.turn + 1) % LATELY;
        self.lately[self.turn] = new;
        self.next = if self.next + 1 < self.ring.len() { self.next + 1 } else { 0 };
        self.floor = self.floor();
        if !self.share() {
            self.shared.swap(0, 1);
            if !self.share() {
                self.shared.swap(0, 1);
            }
        }
    }

    /// Whether nothing that is known tells why a residual ended between a sleep's begin and its wake: none that counts lies there. Where one does,
    /// it was that one's like that came, or the timer was late.
    pub(crate) fn surprises(&self, pending_ns: u64, wake_ns: u64) -> bool {
        let (pending, wake) = (units(pending_ns), units(wake_ns));
        (self.regime.holds() && wake < self.floor) || self.sorted.passed(pending) == self.sorted.passed(wake)
    }

    /// From the next residual on, waits are careful after a surprise: they nap, so that one that came is not passed by much, until an end was seen.
    ///
    /// What is now known of the one that came is between two moments. Where steps get shorter, a wait that slept by that would be late again.
    pub(crate) fn careful(&mut self, yes: bool) {
        self.careful = yes;
    }

    /// Brings the first up to date, unless a wait holds it.
    fn share(&mut self) -> bool {
        let goes = self.regime.holds() && !self.careful;
        let Some(known) = Arc::get_mut(&mut self.shared[0]) else { return false };
        known.floor = if goes { self.floor } else { 0 };
        known.growth = if self.careful { 0 } else { GROWTH };
        known.residuals.take(&self.sorted);
        true
    }

    /// What the next residual is not below, going by the last ones: the least of them, less by three quarters of what they are apart. Zero where that tells no more than
    /// the window does.
    fn floor(&self) -> u32 {
        if self.sorted.len < 2 * LATELY {
            return 0;
        }
        let (least, most) =
            self.lately.iter().fold((u32::MAX, 0), |(least, most), unit| (least.min(*unit), most.max(*unit)));
        let floor = least.saturating_sub((most - least) / 4 * 3);
        if self.sorted.units[0] < floor { floor } else { 0 }
    }

    /// From the oldest to the newest, in nanoseconds.
    pub(crate) fn in_order(&self) -> Vec<u64> {
        let count = self.sorted.len;
        let oldest = if count < self.ring.len() { 0 } else { self.next };
        (0..count).map(|index| ns(self.ring[(oldest + index) % self.ring.len()])).collect()
    }
}

impl Clone for Window {
    /// A window of its own with the same residuals.
    fn clone(&self) -> Self {
        let mut clone =
            Self::new(u16::try_from(self.ring.len()).unwrap_or(u16::MAX), &self.shared[0].oversleep);
        for ns in self.in_order() {
            clone.push(ns);
        }
        clone
    }
}
