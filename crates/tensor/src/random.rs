//! Random numbers: the same for a seed on every device and every machine.
//!
//! Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3") turns a counter and a key into four numbers of 32 bits. Its key is the
//! seed, low half first; block `b` of a tensor has the counter `(b, b >> 32, 0, 0)`. The numbers of a tensor, row by row, take what they need of the blocks in
//! order: those of 64 bits two a block, all others four.

use half::{bf16, f16};

use crate::element::Number;

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Block `number` of this seed.
pub(crate) fn block(seed: u64, number: u64) -> [u32; 4] {
    let [low, high] = halves(number);
    philox([low, high, 0, 0], halves(seed))
}

#[allow(clippy::cast_possible_truncation)]
const fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let [a, b, c, d] = counter;
        let [low, high] = halves(u64::from(a) * u64::from(MULTIPLIERS[0]));
        let [other_low, other_high] = halves(u64::from(c) * u64::from(MULTIPLIERS[1]));
        counter = [other_high ^ b ^ key[0], other_low, high ^ d ^ key[1], low];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// A floating point [`Number`], of which tensors of random numbers are made.
pub trait Float: Number {
    /// How many of them are made of one block of random bits.
    const PER_BLOCK: usize;

    /// The nearest to this number.
    fn nearest(number: f64) -> Self;

    /// Numbers of [0, 1), of these bits: the first [`PER_BLOCK`](Self::PER_BLOCK) count.
    fn uniform(block: [u32; 4]) -> [Self; 4];

    /// Numbers of the normal distribution with mean 0 and variance 1, of these bits: the first [`PER_BLOCK`](Self::PER_BLOCK) count. By Box and Muller, in
    /// `f64`, rounded once.
    fn normal(block: [u32; 4]) -> [Self; 4];
}

/// A number of (0, 1] and one of [0, 1), to two of the normal distribution.
fn box_muller(one: f64, two: f64) -> [f64; 2] {
    let radius = libm::sqrt(-2.0 * libm::log(one));
    let (sine, cosine) = libm::sincos(core::f64::consts::TAU * two);
    [radius * cosine, radius * sine]
}

/// The highest 24 bits, of [0, 1).
fn unit(bits: u32) -> f64 {
    f64::from(bits >> 8) / f64::from(1 << 24)
}

macro_rules! narrow {
    ($($number:ident $bits:literal $nearest:expr;)*) => {$(
        impl Float for $number {
            const PER_BLOCK: usize = 4;

            fn nearest(number: f64) -> Self {
                $nearest(number)
            }

            /// The highest bits of each, as many as the number can tell apart: no rounding, so that none is 1.
            fn uniform(block: [u32; 4]) -> [Self; 4] {
                block.map(|bits| $nearest(f64::from(bits >> (32 - $bits)) / f64::from(1_u32 << $bits)))
            }

            fn normal([a, b, c, d]: [u32; 4]) -> [Self; 4] {
                let above_zero = |bits| unit(bits) + 1.0 / f64::from(1 << 24);
                let ([first, second], [third, fourth]) =
                    (box_muller(above_zero(a), unit(b)), box_muller(above_zero(c), unit(d)));
                [first, second, third, fourth].map($nearest)
            }
        }
    )*};
}

#[allow(clippy::cast_possible_truncation)]
const fn single(number: f64) -> f32 {
    number as f32
}

narrow! {
    f32 24 single;
    f16 11 f16::from_f64;
    bf16 8 bf16::from_f64;
}

impl Float for f64 {
    const PER_BLOCK: usize = 2;

    fn nearest(number: f64) -> Self {
        number
    }

    /// The highest 53 bits of each two, the first the lower.
    fn uniform([a, b, c, d]: [u32; 4]) -> [Self; 4] {
        [wide(a, b), wide(c, d), 0.0, 0.0]
    }

    fn normal([a, b, c, d]: [u32; 4]) -> [Self; 4] {
        let [first, second] = box_muller(wide(a, b) + STEP, wide(c, d));
        [first, second, 0.0, 0.0]
    }
}

/// How far two neighbours of [`wide`] are apart.
const STEP: f64 = f64::EPSILON / 2.0;

#[allow(clippy::cast_precision_loss)] // 53 bits are as many as it has.
fn wide(low: u32, high: u32) -> f64 {
    ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 * STEP
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of the paper's own library.
    #[test]
    fn the_generator_gives_its_known_answers() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, wanted) in cases {
            assert_eq!(philox(counter, key), wanted);
        }
    }

    #[test]
    fn the_ends_of_the_bits_stay_within_their_range() {
        for bits in [[0; 4], [u32::MAX; 4]] {
            assert!(f32::uniform(bits).iter().all(|n| (0.0..1.0).contains(n)));
            assert!(f64::uniform(bits).iter().all(|n| (0.0..1.0).contains(n)));
            assert!(f16::uniform(bits).iter().all(|n| (0.0..1.0).contains(&n.to_f64())));
            assert!(bf16::uniform(bits).iter().all(|n| (0.0..1.0).contains(&n.to_f64())));
            assert!(f32::normal(bits).iter().all(|n| n.is_finite()));
            assert!(f64::normal(bits).iter().all(|n| n.is_finite()));
        }
    }

    #[test]
    fn normal_numbers_have_the_moments_of_their_distribution() {
        const BLOCKS: u32 = 50_000;
        let mut sums = [0.0; 4];
        for number in 0..BLOCKS {
            for n in f32::normal(block(7, number.into())).map(f64::from) {
                for (power, sum) in (1..).zip(&mut sums) {
                    *sum += n.powi(power);
                }
            }
        }
        let [mean, variance, skew, kurtosis] = sums.map(|sum| sum / f64::from(BLOCKS * 4));
        // Each within five of its standard errors.
        assert!(mean.abs() < 0.012 && (variance - 1.0).abs() < 0.016, "{mean} {variance}");
        assert!(skew.abs() < 0.044 && (kurtosis - 3.0).abs() < 0.11, "{skew} {kurtosis}");
    }
}
