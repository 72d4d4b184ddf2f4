//! Every random draw of the simulation, from one seed.
//!
//! Each stream has its own dice, and each kind of draw its own sequence, derived from the seed, the stream's
//! number and the kind. So the draws of a stream do not depend on what other streams do, and switching one
//! fault off leaves the draws of all others as they were: a failing run can be made smaller fault by fault.
//! The generator is PCG-32, whose sequences are the same on every platform and in every version.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::fault::Chance;

/// What a draw decides.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Draw {
    /// Whether a store lands late, and by how much. Drawn when the stream reaches the store.
    LateStore,
    /// Whether a store is lost. Drawn when the stream reaches the store.
    LostStore,
    /// Whether a store lands before the work's end, and by how much. Drawn when it is enqueued.
    EarlyStore,
    /// Whether a store lands a second time, and how much later. Drawn when the stream reaches the store.
    RepeatedStore,
    /// Whether a store changes places with the next one of its stream. Drawn when the stream reaches the store.
    SwappedStore,
    /// Whether a store is submitted only by the next query. Drawn when it is enqueued.
    DeferredStore,
    /// Whether a query is slow, and by how much. Drawn at each query.
    SlowQuery,
    /// Whether the driver never says that a point is done. Drawn when the point is made.
    StuckPoint,
    /// Whether a stream cannot store words. Drawn when the stream is made.
    Unsupported,
    /// Whether a park ends for no reason, and after how long. Drawn at each park.
    SpuriousWake,
    /// Whether a sleep ends early, and by how much. Drawn at each sleep.
    EarlySleep,
    /// Whether the clock jumps, and by how much. Drawn after each park and sleep.
    ClockStep,
    /// Which faults of a swarm are on, and how strong they are.
    Swarm,
}

const DRAWS: usize = Draw::Swarm as usize + 1;

/// The number of the host's dice; streams count from 0.
pub(crate) const HOST: u64 = u64::MAX;

/// One part in a million is the unit of probability.
pub(crate) const PPM_MAX: u32 = 1_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Dice([Pcg32; DRAWS]);

impl Dice {
    /// The dice of the stream with this number.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(core::array::from_fn(|draw| {
            // Odd constants spread the three numbers over the word; seeding then mixes it.
            let stream = stream.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let draw = (draw as u64 + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
            Pcg32::seed_from_u64(seed ^ stream.rotate_left(17) ^ draw)
        }))
    }

    /// Whether something of this probability happens.
    pub(crate) fn happens(&mut self, draw: Draw, ppm: u32) -> bool {
        match ppm {
            0 => false,
            PPM_MAX.. => true,
            _ => self.below(draw, u64::from(PPM_MAX)) < u64::from(ppm),
        }
    }

    /// By how many nanoseconds it happens, `None` where it does not.
    pub(crate) fn roll(&mut self, draw: Draw, chance: Chance) -> Option<u64> {
        if !self.happens(draw, chance.ppm) {
            return None;
        }
        let span = chance.ns_max.saturating_sub(chance.ns_min);
        Some(chance.ns_min + if span == 0 { 0 } else { self.below(draw, span.saturating_add(1)) })
    }

    /// A number below `bound`, each as likely.
    pub(crate) fn below(&mut self, draw: Draw, bound: u64) -> u64 {
        let random = self.0[draw as usize].next_u64();
        // The high half of the product: as good as a division for bounds far below 2^64.
        u64::try_from((u128::from(random) * u128::from(bound)) >> 64).unwrap_or_default()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn draws_repeat_from_their_seed_and_differ_by_seed_stream_and_kind() {
        let draw = |seed, stream, kind| Dice::new(seed, stream).below(kind, u64::MAX);
        let first = draw(1, 0, Draw::LateStore);
        assert_eq!(first, draw(1, 0, Draw::LateStore));
        assert_ne!(first, draw(2, 0, Draw::LateStore));
        assert_ne!(first, draw(1, 1, Draw::LateStore));
        assert_ne!(first, draw(1, 0, Draw::LostStore));
    }

    #[test]
    fn a_kind_of_draw_does_not_disturb_another() {
        let (mut quiet, mut busy) = (Dice::new(3, 5), Dice::new(3, 5));
        for _ in 0..10 {
            busy.below(Draw::SlowQuery, 100);
        }
        assert_eq!(quiet.below(Draw::LostStore, 1 << 40), busy.below(Draw::LostStore, 1 << 40));
    }

    #[test]
    fn frequencies_are_those_asked_for() {
        let mut dice = Dice::new(7, 0);
        let hits = (0..100_000).filter(|_| dice.happens(Draw::LostStore, 250_000)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
        assert!(!dice.happens(Draw::LostStore, 0));
        assert!(dice.happens(Draw::LostStore, PPM_MAX));
    }

    #[test]
    fn magnitudes_stay_within_their_bounds_and_reach_both() {
        let mut dice = Dice::new(7, 0);
        let chance = Chance { ppm: PPM_MAX, ns_min: 3, ns_max: 5 };
        let mut seen = [false; 3];
        for _ in 0..100 {
            let ns = dice.roll(Draw::LateStore, chance).unwrap();
            assert!((3..=5).contains(&ns));
            seen[usize::try_from(ns - 3).unwrap()] = true;
        }
        assert_eq!(seen, [true; 3]);
    }
}
