//! Arms that take turns, and ratios paired by round.

use alloc::vec::Vec;

use crate::order::order;
use crate::stats::Interval;

/// What each arm cost in each round.
///
/// ```text
///   round 0   arm 2   arm 0   arm 1
///   round 1   arm 0   arm 1   arm 2     drawn from the seed, so that each arm comes behind each other arm
///   round 2   arm 1   arm 0   arm 2     equally often: in 2, 4, 6, .. rounds of so many arms, in twice as many
///   round 3   ...                       rounds of an odd number of arms
/// ```
///
/// Memory: 8 bytes for each arm and round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paired {
    arms: usize,
    /// What the orders are drawn from.
    seed: u64,
    /// What every arm cost, round after round, each in the order of the arms.
    costs: Vec<u64>,
}

impl Paired {
    /// No rounds yet, of `arms` arms, whose orders are drawn from the seed 0.
    pub const fn new(arms: usize) -> Self {
        Self::seeded(arms, 0)
    }

    /// The same with the orders of another seed.
    pub const fn seeded(arms: usize, seed: u64) -> Self {
        Self { arms, seed, costs: Vec::new() }
    }

    /// Runs every arm once, in the order of the round. `run` is given the arm and says what it cost, in any unit.
    ///
    /// # Errors
    ///
    /// What `run` fails with. The round does not count then, and the arms that are left are not run.
    pub fn round<E>(&mut self, mut run: impl FnMut(usize) -> Result<u64, E>) -> Result<(), E> {
        let start = self.costs.len();
        let order = order(self.arms, self.seed, self.rounds());
        self.costs.resize(start + self.arms, 0);
        for arm in order {
            match run(arm) {
                Ok(cost) => self.costs[start + arm] = cost,
                Err(error) => {
                    self.costs.truncate(start);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// How many rounds were run to their end.
    pub const fn rounds(&self) -> usize {
        match self.costs.len().checked_div(self.arms) {
            Some(rounds) => rounds,
            None => 0,
        }
    }

    /// What `arm` cost in each round.
    pub fn costs(&self, arm: usize) -> impl Iterator<Item = u64> + '_ {
        debug_assert!(arm < self.arms, "there are {} arms", self.arms);
        self.costs.chunks_exact(self.arms.max(1)).filter_map(move |round| round.get(arm).copied())
    }

    /// What `arm` cost by what `base` cost, round by round. Rounds in which `base` cost nothing tell no ratio.
    pub fn ratios(&self, arm: usize, base: usize) -> impl Iterator<Item = f64> + '_ {
        // Nanoseconds of one round: an f64 is exact to 104 days of them.
        #[allow(clippy::cast_precision_loss)]
        let ratio = |(cost, base): (u64, u64)| (base > 0).then(|| cost as f64 / base as f64);
        self.costs(arm).zip(self.costs(base)).filter_map(ratio)
    }

    /// The mean of the [`ratios`](Self::ratios), with its interval; `None` where there are none.
    pub fn ratio(&self, arm: usize, base: usize) -> Option<Interval> {
        let ratios: Vec<f64> = self.ratios(arm, base).collect();
        Interval::of(&ratios)
    }

    /// All that `arm` cost by all that `base` did, with the interval that the rounds tell: for rounds that are not of the same work. `None` where there are none.
    pub fn ratio_of_totals(&self, arm: usize, base: usize) -> Option<Interval> {
        #[allow(clippy::cast_precision_loss, reason = "as in `ratios`")]
        let pairs: Vec<(f64, f64)> =
            self.costs(arm).zip(self.costs(base)).map(|(cost, base)| (cost as f64, base as f64)).collect();
        Interval::of_totals(&pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::convert::Infallible;

    #[test]
    fn every_round_runs_each_arm_once_and_none_always_behind_the_same() {
        let mut paired = Paired::new(4);
        let mut rounds = Vec::new();
        for _ in 0..4 {
            let mut seen = Vec::new();
            paired
                .round(|arm| {
                    seen.push(arm);
                    Ok::<_, Infallible>(1)
                })
                .unwrap();
            rounds.push(seen);
        }
        let mut pairs: Vec<[usize; 2]> =
            rounds.iter().flat_map(|round| round.windows(2)).map(|pair| [pair[0], pair[1]]).collect();
        pairs.sort_unstable();
        pairs.dedup();
        // Of four arms in four rounds, each pair there is.
        assert_eq!((pairs.len(), paired.rounds()), (12, 4), "{rounds:?}");
    }

    #[test]
    fn costs_are_kept_by_arm_whatever_the_order() {
        let mut paired = Paired::new(2);
        for round in [0, 100] {
            paired.round(|arm| Ok::<_, Infallible>(round + arm as u64)).unwrap();
        }
        assert_eq!(paired.costs(0).collect::<Vec<_>>(), [0, 100]);
        assert_eq!(paired.costs(1).collect::<Vec<_>>(), [1, 101]);
    }

    #[test]
    fn ratios_are_those_computed_by_hand() {
        // Rounds of (base, arm): (10, 5), (20, 5), (0, 7), (40, 10): ratios 1/2, 1/4, none, 1/4; their mean is 1/3.
        let mut paired = Paired::new(2);
        for costs in [[10, 5], [20, 5], [0, 7], [40, 10]] {
            paired.round(|arm| Ok::<_, Infallible>(costs[arm])).unwrap();
        }
        assert_eq!(paired.ratios(1, 0).collect::<Vec<_>>(), [0.5, 0.25, 0.25]);
        assert_eq!(paired.ratios(0, 0).collect::<Vec<_>>(), [1.0; 3]);
        let ratio = paired.ratio(1, 0).unwrap();
        assert_eq!(ratio.n, 3);
        assert!((ratio.mean - 1.0 / 3.0).abs() < 1e-12);
        // s = sqrt(((1/6)^2 + 2 (1/12)^2) / 2) = 0.144337..., t(2) = 9.9248, half = t s / sqrt(3) = 0.82707
        assert!((ratio.half_width.unwrap() - 0.827_07).abs() < 1e-4, "{ratio:?}");
    }

    #[test]
    fn a_round_that_fails_does_not_count() {
        let mut paired = Paired::new(2);
        paired.round(|_| Ok::<_, &str>(3)).unwrap();
        assert_eq!(paired.round(|arm| if arm == 0 { Err("broken") } else { Ok(9) }), Err("broken"));
        assert_eq!(paired.rounds(), 1);
        assert_eq!(paired.costs(1).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn without_rounds_there_is_no_ratio() {
        assert_eq!(Paired::new(2).ratio(1, 0), None);
        assert_eq!(Paired::new(0).rounds(), 0);
    }
}
