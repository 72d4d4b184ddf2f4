//! Sequence numbers: what a stream stores into a completion word.

use core::fmt;

/// A sequence number of one slot: each point armed on the slot takes the next.
///
/// The order wraps: [`Seq::reached`] compares by signed difference, so a word may run past 2^64 and on.
/// "Reaches or passes" is the only question asked: a word that jumped from 5 to 7 has reached 6.
///
/// Ordering hazard: the answer is right only while fewer than 2^63 points of a slot are outstanding, and
/// only for numbers of one slot. The type has no `Ord` for that reason.
///
/// ```
/// use wakeline_core::Seq;
/// assert!(Seq::new(7).reached(Seq::new(6)));
/// assert!(!Seq::new(5).reached(Seq::new(6)));
/// assert!(Seq::new(1).reached(Seq::new(u64::MAX))); // wrapped
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Seq(u64);

impl Seq {
    /// What a fresh word holds; the first point of a slot is `Seq::ZERO.next()`.
    pub const ZERO: Self = Self(0);

    /// The sequence number with this value.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The value that is stored into the word.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number after this one; wraps.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Whether a word that reads `self` has reached or passed `target`. Two instructions.
    #[inline]
    pub const fn reached(self, target: Self) -> bool {
        self.0.wrapping_sub(target.0).cast_signed() >= 0
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The counter was compared for equality, and a waiter missed a value that was overtaken.
    #[test]
    fn case_3_an_overtaken_counter_counts_as_reached() {
        for base in [0, u64::from(u32::MAX) - 6, u64::MAX - 6] {
            let word = Seq::new(base.wrapping_add(7));
            assert!(!Seq::new(base.wrapping_add(5)).reached(Seq::new(base.wrapping_add(6))));
            assert!(word.reached(Seq::new(base.wrapping_add(6))));
            assert!(word.reached(word));
            assert!(!word.reached(word.next()));
        }
    }

    proptest! {
        #[test]
        fn order_survives_the_wrap(base: u64, behind in 0..=i64::MAX as u64, ahead in 1..=i64::MAX as u64) {
            let target = Seq::new(base);
            prop_assert!(Seq::new(base.wrapping_add(behind)).reached(target));
            prop_assert!(!Seq::new(base.wrapping_sub(ahead)).reached(target));
        }

        #[test]
        fn next_is_reached_by_itself_and_not_by_its_predecessor(value: u64) {
            let seq = Seq::new(value);
            prop_assert!(seq.next().reached(seq) && seq.next().reached(seq.next()));
            prop_assert!(!seq.reached(seq.next()));
        }
    }
}
