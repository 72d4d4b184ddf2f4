//! Seeded draws: the same seed gives the same load, whatever the machine.

use alloc::vec::Vec;

use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Random numbers of a seed.
#[derive(Clone, Debug)]
pub struct Draws(Pcg32);

impl Draws {
    /// Those of `seed`, and of `stream` among them: draws of two streams have nothing to do with each other.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut bytes = [0; 16];
        let (first, second) = bytes.split_at_mut(8);
        // A generator takes its own stream without the lowest bit; and those of neighbouring ones, from the same state, resemble each other at first.
        first.copy_from_slice(&(seed ^ scattered(stream)).to_le_bytes());
        second.copy_from_slice(&(stream << 1).to_le_bytes());
        Self(Pcg32::from_seed(bytes))
    }

    /// Evenly from 0 up to, but not, 1.
    pub fn share(&mut self) -> f64 {
        f64::from(self.0.next_u32()) / (f64::from(u32::MAX) + 1.0)
    }

    /// Evenly from `least` to `most`, both included; `least` where that is above `most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        match most.checked_sub(least).and_then(|span| span.checked_add(1)) {
            Some(span) => least + self.0.next_u64() % span,
            None => least,
        }
    }

    /// The numbers below `count` in a random order, each order as likely as any other.
    pub fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut numbers: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            // Below 2^32 of them the remainder favours none by as much as one part in 2^32.
            let other = self.between(0, last as u64);
            numbers.swap(last, usize::try_from(other).unwrap_or(last));
        }
        numbers
    }

    /// The time to the next of events that come at random, so often in a unit of time on average.
    pub fn until_next(&mut self, rate: f64) -> f64 {
        -(1.0 - self.share()).ln() / rate
    }

    /// Normally distributed around 0, with a standard deviation of 1.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.share()).ln()).sqrt();
        radius * (core::f64::consts::TAU * self.share()).cos()
    }
}

/// Another number for each, of which half the bits differ between neighbours: the end of `SplitMix64`.
const fn scattered(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(draw: impl FnMut() -> f64) -> f64 {
        core::iter::repeat_with(draw).take(20_000).sum::<f64>() / 20_000.0
    }

    #[test]
    fn a_seed_gives_the_same_draws_again_and_another_stream_others() {
        let of = |seed, stream| {
            let mut draws = Draws::new(seed, stream);
            [draws.between(0, u64::MAX - 1), draws.between(0, u64::MAX - 1)]
        };
        assert_eq!(of(1, 1), of(1, 1));
        assert_ne!(of(1, 1), of(1, 2));
        // Also where they differ by one bit, whichever.
        for bit in 0..64 {
            assert_ne!(of(1, 0), of(1, 1 << bit), "bit {bit}");
        }
        assert_ne!(of(1, 1), of(2, 1));
    }

    #[test]
    fn every_order_is_as_likely_as_any_other() {
        let (mut draws, mut seen) = (Draws::new(3, 1), std::collections::BTreeMap::new());
        (0..6_000).for_each(|_| *seen.entry(draws.shuffled(3)).or_insert(0) += 1);
        // 1,000 of each of six are expected, give or take 29.
        assert!(seen.len() == 6 && seen.values().all(|count| (850..1_150).contains(count)), "{seen:?}");
        assert_eq!((draws.shuffled(0), draws.shuffled(1)), (vec![], vec![0]));
    }

    #[test]
    fn draws_have_the_means_that_they_should() {
        let mut draws = Draws::new(7, 0);
        assert!((mean(|| draws.share()) - 0.5).abs() < 0.01);
        assert!((mean(|| draws.until_next(4.0)) - 0.25).abs() < 0.01);
        assert!(mean(|| draws.normal()).abs() < 0.03);
        assert!((mean(|| draws.normal().powi(2)) - 1.0).abs() < 0.05);
        assert!((0..1_000).all(|_| (3..=5).contains(&draws.between(3, 5))));
        assert_eq!((draws.between(9, 9), draws.between(9, 3)), (9, 9));
    }
}
