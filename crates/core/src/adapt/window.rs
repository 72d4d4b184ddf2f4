//! The last residuals of a point, in the order of their length.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Known, Oversleep};

/// Residuals are kept in units of 16 ns, so that a minute fits into 32 bits.
const UNIT_NS_LOG2: u32 = 4;

/// Residuals, ascending.
#[derive(Clone, Debug)]
pub(crate) struct Sorted {
    /// As long as the window; what is behind the last residual says nothing.
    units: Box<[u32]>,
    len: usize,
}

impl Sorted {
    pub(crate) fn new(window: usize) -> Self {
        Self { units: alloc::vec![0; window].into_boxed_slice(), len: 0 }
    }

    /// In units.
    pub(super) fn all(&self) -> &[u32] {
        self.units.get(..self.len).unwrap_or_default()
    }

    /// Puts `new` in, for `old` where the window is full.
    fn put(&mut self, new: u32, old: u32) {
        let to = self.all().partition_point(|unit| *unit < new);
        if self.len < self.units.len() {
            self.units.copy_within(to..self.len, to + 1);
            self.units[to] = new;
            self.len += 1;
            return;
        }
        let from = self.all().partition_point(|unit| *unit < old).min(self.len - 1);
        if from < to {
            self.units.copy_within(from + 1..to, from);
            self.units[to - 1] = new;
        } else {
            self.units.copy_within(to..from, to + 1);
            self.units[to] = new;
        }
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
    /// The first is handed out.
    shared: [Arc<Known>; 2],
}

impl Window {
    pub(crate) fn new(window: u16, oversleep: &Arc<Oversleep>) -> Self {
        let sorted = Sorted::new(usize::from(window));
        let known = || Arc::new(Known { residuals: sorted.clone(), oversleep: Arc::clone(oversleep) });
        let (ring, shared) = (sorted.units.clone(), [known(), known()]);
        Self { sorted, ring, next: 0, shared }
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
        if let Some(place) = self.ring.get_mut(self.next) {
            self.sorted.put(new, *place);
            *place = new;
        }
        self.next = if self.next + 1 < self.ring.len() { self.next + 1 } else { 0 };
        if !self.share() {
            self.shared.swap(0, 1);
            if !self.share() {
                self.shared.swap(0, 1);
            }
        }
    }

    /// Brings the first up to date, unless a wait holds it.
    fn share(&mut self) -> bool {
        let Some(known) = Arc::get_mut(&mut self.shared[0]) else { return false };
        known.residuals.len = self.sorted.len;
        known.residuals.units.copy_from_slice(&self.sorted.units);
        true
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
