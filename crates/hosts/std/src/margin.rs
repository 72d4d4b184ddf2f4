//! How early to end a sleep so that it is over in time.

use wakeline_core::Nanos;

/// How early to end a sleep, learned from the oversleep by length of sleep: a virtual processor that slept longer
/// wakes later. Lengths count as equal within a factor of two, from 1 us to 8 s. Allocates nothing.
///
/// ```
/// use wakeline_core::Nanos;
/// use wakeline_std::SleepMargin;
/// let us = Nanos::from_micros;
/// let mut margin = SleepMargin::new(us(100));
/// assert_eq!(margin.of(us(5_000)), us(100)); // nothing is known yet: the most
/// for _ in 0..100 {
///     margin.observe(us(5_000), us(20)); // such a sleep ended 20 us late
/// }
/// assert!(margin.of(us(5_000)) < us(25));
/// ```
#[derive(Clone, Debug)]
pub struct SleepMargin {
    ns_max: u64,
    /// By how many halvings of what was too much it comes down.
    down: u32,
    /// By the class of the length.
    ns: [u64; LENGTHS],
}

/// How many classes of lengths there are.
pub(crate) const LENGTHS: usize = 24;

/// The class of a length of sleep, by its power of two in microseconds: up to 1 us, 2 us, 4 us, ..., 8 s, longer.
pub(crate) fn length_class(length: Nanos) -> usize {
    let bits = u64::BITS - length.as_micros().leading_zeros();
    (bits as usize).min(LENGTHS - 1)
}

impl SleepMargin {
    /// A margin of at most `most`, which is also what it begins with.
    pub fn new(most: Nanos) -> Self {
        Self { ns_max: most.as_nanos(), down: 4, ns: [most.as_nanos(); LENGTHS] }
    }

    /// One that is in balance when half of the sleeps end too late, and begins with none: for whoever would rather not spin.
    pub fn at_median(most: Nanos) -> Self {
        Self { down: 1, ns: [0; LENGTHS], ..Self::new(most) }
    }

    /// The margin for a sleep of this length.
    pub fn of(&self, length: Nanos) -> Nanos {
        Nanos::from_nanos(self.ns[length_class(length)])
    }

    /// Learns that a sleep of `length` ended late by `late`.
    ///
    /// Follows a high quantile: up by half of what was lacking, down by a sixteenth of what was too much. In
    /// balance about one sleep of nine ends too late, by little. One made [`at_median`](Self::at_median) goes down by half as well.
    pub fn observe(&mut self, length: Nanos, late: Nanos) {
        let margin = &mut self.ns[length_class(length)];
        let late = late.as_nanos().min(self.ns_max);
        *margin = if late > *margin {
            *margin + (late - *margin) / 2
        } else {
            *margin - ((*margin - late) >> self.down)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_follows_the_oversleep_of_each_length_and_stays_within_its_bound() {
        let us = Nanos::from_micros;
        let mut margin = SleepMargin::new(us(100));
        for _ in 0..200 {
            margin.observe(us(1_000), us(12));
            margin.observe(us(10_000), us(60));
        }
        assert!((us(11)..=us(14)).contains(&margin.of(us(1_000))), "{}", margin.of(us(1_000)));
        assert!((us(59)..=us(62)).contains(&margin.of(us(10_000))), "{}", margin.of(us(10_000)));
        for _ in 0..100 {
            margin.observe(us(1_000), us(5_000));
        }
        assert!(margin.of(us(1_000)) <= us(100));
        for length in [Nanos::ZERO, Nanos::MAX] {
            margin.observe(length, Nanos::MAX);
            assert_eq!(margin.of(length), us(100));
        }
    }
}
