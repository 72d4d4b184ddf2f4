//! The orders in which arms take turns: balanced, so that what an arm leaves behind meets all others alike.
//!
//! An arm leaves the processor's caches, its clocks and the device in some state, and whoever comes next pays for it. In an order that
//! only rotates, each arm comes behind the same one in every round, and its ratio has the other's cost in it however many rounds there are.
//! So orders are those of Williams (1949): squares in which each arm has each place once and comes behind each other arm once.
//!
//! ```text
//!   4 arms, one square            5 arms: a square and its mirror
//!   round 0   0 1 3 2             0 1 4 2 3      3 2 4 1 0
//!   round 1   1 2 0 3             1 2 0 3 4      4 3 0 2 1
//!   round 2   2 3 1 0             2 3 1 4 0      0 4 1 3 2
//!   round 3   3 0 2 1             3 4 2 0 1      1 0 2 4 3
//!                                 4 0 3 1 2      2 1 3 0 4
//! ```
//!
//! One such block after the other; in each the arms' numbers and the rows are drawn anew from the seed. So a run that ends within a block has no
//! arm twice behind the same one (or three times, of an odd number of arms), and which pairs it lacks differs from seed to seed. The first turn of a round comes behind the
//! last of the one before: behind each arm as often as the other, on average.

use alloc::vec::Vec;

use crate::draws::Draws;

/// How many rounds are balanced in themselves.
pub(crate) const fn block(arms: usize) -> usize {
    if arms.is_multiple_of(2) { arms } else { 2 * arms }
}

/// The order in which this round runs its arms.
pub(crate) fn order(arms: usize, seed: u64, round: usize) -> Vec<usize> {
    let rounds = block(arms).max(1);
    let mut draws = Draws::new(seed, (round / rounds) as u64);
    let (names, rows) = (draws.shuffled(arms), draws.shuffled(rounds));
    let row = rows.get(round % rounds).copied().unwrap_or(0);
    let place = |place: usize| if row < arms { place } else { arms - 1 - place };
    let number = |place: usize| (zigzag(arms, place) + row) % arms;
    (0..arms).filter_map(|at| names.get(number(place(at))).copied()).collect()
}

/// 0, 1, the last, 2, the one before the last, ..: two neighbours are apart by another distance each time.
const fn zigzag(arms: usize, place: usize) -> usize {
    if place.is_multiple_of(2) { (arms - place / 2) % arms } else { place.div_ceil(2) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// How often each arm comes right behind each other in these rounds, and how often at each place.
    fn counts(arms: usize, seed: u64, rounds: core::ops::Range<usize>) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
        let (mut behind, mut at) = (vec![vec![0; arms]; arms], vec![vec![0; arms]; arms]);
        for round in rounds {
            let order = order(arms, seed, round);
            order.windows(2).for_each(|pair| behind[pair[0]][pair[1]] += 1);
            order.iter().enumerate().for_each(|(place, arm)| at[place][*arm] += 1);
        }
        (behind, at)
    }

    #[test]
    fn the_square_is_the_one_that_is_drawn() {
        let row = |arms, row| (0..arms).map(|place| (zigzag(arms, place) + row) % arms).collect::<Vec<_>>();
        assert_eq!([row(4, 0), row(4, 1)], [vec![0, 1, 3, 2], vec![1, 2, 0, 3]]);
        assert_eq!([row(5, 0), row(5, 4)], [vec![0, 1, 4, 2, 3], vec![4, 0, 3, 1, 2]]);
    }

    #[test]
    fn a_seed_gives_the_same_orders_again_and_another_others() {
        let of = |seed| (0..40).map(|round| order(7, seed, round)).collect::<Vec<_>>();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        // And no block has the orders of the one before.
        let block =
            |number| (0..block(7)).map(|row| order(7, 3, number * block(7) + row)).collect::<Vec<_>>();
        assert!((0..20).all(|number| block(number) != block(number + 1)));
        assert_eq!((order(0, 3, 9), order(1, 3, 9)), (Vec::new(), vec![0]));
    }

    proptest! {
        /// What a rotation lacks: there each arm comes behind one other in every round but that in which it is the first.
        #[test]
        fn each_arm_comes_behind_each_other_equally_often(arms in 1_usize..20, seed: u64, number in 0_usize..4) {
            let block = block(arms);
            let (behind, at) = counts(arms, seed, number * block..(number + 1) * block);
            let times = u32::from(!arms.is_multiple_of(2)) + 1;
            for (one, others) in behind.iter().enumerate() {
                for (other, count) in others.iter().enumerate() {
                    prop_assert_eq!(*count, if one == other { 0 } else { times }, "{} behind {}", other, one);
                }
            }
            prop_assert!(at.iter().flatten().all(|count| *count == times), "{:?}", at);
        }

        #[test]
        fn a_part_of_a_block_repeats_no_more_than_the_whole(arms in 2_usize..20, seed: u64, part in 0_usize..40) {
            let (behind, _) = counts(arms, seed, 0..part.min(block(arms)));
            let most = u32::from(!arms.is_multiple_of(2)) + 1;
            prop_assert!(behind.iter().flatten().all(|count| *count <= most), "{:?}", behind);
        }

        /// Across the ends of rounds, too, no arm is always behind the same one.
        #[test]
        fn the_first_of_a_round_comes_behind_many_others(arms in 3_usize..12, seed: u64) {
            let mut behind = vec![std::collections::BTreeSet::new(); arms];
            for round in 0..40 * arms {
                let (last, first) = (order(arms, seed, round).pop(), order(arms, seed, round + 1)[0]);
                behind[first].insert(last);
            }
            prop_assert!(behind.iter().all(|others| others.len() >= arms.div_ceil(2)), "{:?}", behind);
        }
    }
}
