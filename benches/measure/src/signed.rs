//! Quantiles of times that may be below zero: how long after a moment that is known to a microsecond something was seen.

use serde::{Deserialize, Serialize};

/// Quantiles of times in nanoseconds, or their differences to another's. All are 0 without any times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Signed {
    /// The lowest.
    pub min_ns: i64,
    /// The median.
    pub p50_ns: i64,
    /// What 90 % stay within.
    pub p90_ns: i64,
    /// What 99 % stay within: of fewer than 100 times, the highest.
    pub p99_ns: i64,
    /// The highest.
    pub max_ns: i64,
}

impl Signed {
    /// The quantiles of these times, which are sorted for it.
    pub fn of(times_ns: &mut [i64]) -> Self {
        times_ns.sort_unstable();
        let at = |permille: usize| {
            let rank = (times_ns.len() * permille).div_ceil(1_000).max(1);
            times_ns.get(rank - 1).copied().unwrap_or_default()
        };
        Self { min_ns: at(0), p50_ns: at(500), p90_ns: at(900), p99_ns: at(990), max_ns: at(1_000) }
    }

    /// By how much each is above that of `base`.
    #[must_use]
    pub const fn over(self, base: Self) -> Self {
        Self {
            min_ns: self.min_ns - base.min_ns,
            p50_ns: self.p50_ns - base.p50_ns,
            p90_ns: self.p90_ns - base.p90_ns,
            p99_ns: self.p99_ns - base.p99_ns,
            max_ns: self.max_ns - base.max_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_times() {
        let mut times: Vec<i64> = (-99..=100).rev().collect();
        let found = Signed::of(&mut times);
        let by_hand = Signed { min_ns: -99, p50_ns: 0, p90_ns: 80, p99_ns: 98, max_ns: 100 };
        assert_eq!(found, by_hand);
        let one = Signed::of(&mut [7]);
        assert_eq!((one.min_ns, one.p50_ns, one.max_ns), (7, 7, 7));
        assert_eq!(Signed::of(&mut []), Signed::default());
    }

    #[test]
    fn differences_are_by_quantile() {
        let one =
            |ns: i64| Signed { min_ns: ns, p50_ns: 2 * ns, p90_ns: 3 * ns, p99_ns: 4 * ns, max_ns: 5 * ns };
        assert_eq!(one(3).over(one(5)), one(-2));
    }
}
