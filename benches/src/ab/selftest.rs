//! Whether the method finds what is there and nothing else: arms that are the same, and one that is slower by a known part.

use std::time::Instant;

use super::rounds::{Rounds, Turn, quantity};
use crate::Interval;

/// How often two arms that are the same are compared.
pub const TRIES: u32 = 20;

/// How often they may seem to differ. By chance an interval of 99 % errs once in a hundred: twice or more in twenty tries once in sixty.
pub const FALSE_ALARMS_MAX: u32 = 1;

/// By how much the slower arm is slower.
pub const SLOWER: f64 = 0.05;

/// How many rounds a comparison has.
pub const ROUNDS: u32 = 20;

/// How many pieces of work are timed in a round, of which the median counts, as in the suites.
const PIECES: usize = 25;

/// How long a piece is, in rounds of a loop: some 100 us.
const PIECE: u64 = 60_000;

/// What was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// How often arms that are the same seemed to differ.
    pub false_alarms: u32,
    /// The cost of the slower arm by the other's.
    pub slower: Option<Interval>,
}

impl Found {
    /// Whether that is as it should be: few false alarms, and the slower arm is told to be slower by about what it is.
    pub fn good(&self) -> bool {
        let found = self.slower.is_some_and(|ratio| ratio.mean > 1.0 && ratio.excludes(1.0));
        self.false_alarms <= FALSE_ALARMS_MAX && found
    }
}

/// Compares two arms by `rounds` rounds: what the second costs by the first. `cost` says what an arm costs in a round.
pub fn compare(rounds: u32, mut cost: impl FnMut(usize) -> f64) -> Option<Interval> {
    let mut log = Rounds::new(2, 0);
    for _ in 0..rounds {
        let turn = |arm| {
            let mut turn = Turn::new();
            turn.set(quantity::LATENCY_P50, Some(cost(arm)));
            Ok::<_, core::convert::Infallible>(turn)
        };
        let Ok(()) = log.round(turn);
    }
    log.ratio(1, 0, quantity::LATENCY_P50)
}

/// Runs it all with costs by `cost`: of an arm that is slower by a share.
pub fn run(mut cost: impl FnMut(f64) -> f64) -> Found {
    let mut false_alarms = 0;
    for _ in 0..TRIES {
        let ratio = compare(ROUNDS, |_| cost(0.0));
        false_alarms += u32::from(ratio.is_some_and(|ratio| ratio.excludes(1.0)));
    }
    Found { false_alarms, slower: compare(ROUNDS, |arm| cost(if arm == 0 { 0.0 } else { SLOWER })) }
}

/// What this machine takes for work that is longer by a share: the median of some pieces, in nanoseconds.
pub fn work(more: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "some thousands"
    )]
    let rounds = (PIECE as f64 * (1.0 + more)) as u64;
    let mut took: Vec<u128> = (0..PIECES)
        .map(|_| {
            let start = Instant::now();
            let mut state = 1_u64;
            for _ in 0..rounds {
                state = core::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            }
            start.elapsed().as_nanos()
        })
        .collect();
    took.sort_unstable();
    let median = took.get(PIECES / 2).copied().unwrap_or(0);
    u32::try_from(median).map_or(f64::from(u32::MAX), f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    /// A machine that drifts by half over a run, and whose costs jitter by 2 % besides, now and then by a lot.
    struct Machine {
        draws: Draws,
        drift: f64,
    }

    impl Machine {
        fn cost(&mut self, more: f64) -> f64 {
            self.drift += 0.002 * self.draws.normal();
            let hit = if self.draws.share() < 0.02 { 0.1 * self.draws.share() } else { 0.0 };
            100.0
                * (1.0 + more)
                * (1.0 + self.drift.clamp(-0.5, 0.5))
                * (1.0 + 0.01 * self.draws.normal() + hit)
        }
    }

    #[test]
    fn arms_that_are_the_same_differ_in_at_most_one_try_of_twenty_and_five_percent_are_found() {
        let mut machine = Machine { draws: Draws::new(4, 2), drift: 0.0 };
        let found = run(|more| machine.cost(more));
        assert!(found.false_alarms <= FALSE_ALARMS_MAX, "{found:?}");
        let slower = found.slower.unwrap();
        assert!(slower.excludes(1.0) && !slower.excludes(1.0 + SLOWER), "{slower:?}");
        assert!(found.good());
    }

    /// Over many seeds: an interval of 99 % misses the truth about once in a hundred.
    #[test]
    fn false_alarms_are_as_rare_as_the_intervals_say() {
        let mut alarms = 0;
        for seed in 0..2_000 {
            let mut machine = Machine { draws: Draws::new(seed, 9), drift: 0.0 };
            let ratio = compare(ROUNDS, |_| machine.cost(0.0)).unwrap();
            alarms += u32::from(ratio.excludes(1.0));
        }
        // 20 are expected; drifting and skewed costs may move that a little.
        assert!((5..=40).contains(&alarms), "{alarms} of 2000");
    }

    #[test]
    fn five_percent_are_found_whatever_the_seed() {
        for seed in 0..50 {
            let mut machine = Machine { draws: Draws::new(seed, 3), drift: 0.0 };
            let ratio = compare(ROUNDS, |arm| machine.cost(if arm == 0 { 0.0 } else { SLOWER })).unwrap();
            assert!(ratio.mean > 1.0 && ratio.excludes(1.0), "{seed}: {ratio:?}");
        }
    }

    #[test]
    fn what_is_found_is_judged() {
        let slower = |mean| Some(Interval { mean, half_width: Some(0.01), n: 20 });
        assert!(Found { false_alarms: 1, slower: slower(1.05) }.good());
        assert!(!Found { false_alarms: 2, slower: slower(1.05) }.good());
        assert!(!Found { false_alarms: 0, slower: slower(1.005) }.good());
        assert!(!Found { false_alarms: 0, slower: slower(0.95) }.good());
    }

    #[test]
    #[ignore = "measures this machine, for 2 s: `cargo xtask bench selftest` does so"]
    fn the_method_holds_on_this_machine() {
        let found = run(work);
        assert!(found.good(), "{found:?}");
    }
}
