//! What collectives are to give, computed on the host.

use half::{bf16, f16};
use wakeline_ops::port::Reduce;
use wakeline_tensor::CollectiveElement;

/// The ways to reduce.
pub(crate) const REDUCES: [Reduce; 5] = [Reduce::Sum, Reduce::Prod, Reduce::Min, Reduce::Max, Reduce::Avg];

/// A number with a reference.
pub(crate) trait Sample: CollectiveElement + PartialEq + std::fmt::Debug {
    /// One that `draw` chooses. Sums and products of eight of them are exact, or wrap.
    fn sample(draw: u64) -> Self;

    /// The reduction of these.
    fn reduced(reduce: Reduce, all: &[Self]) -> Self;

    /// Whether an average is that, as libraries round it.
    fn is_near(self, other: Self) -> bool;
}

macro_rules! whole {
    ($($ty:ty)*) => {$(
        impl Sample for $ty {
            fn sample(draw: u64) -> Self {
                (draw % 7) as Self
            }

            fn reduced(reduce: Reduce, all: &[Self]) -> Self {
                let sum = || all.iter().fold(0, |sum: Self, number| sum.wrapping_add(*number));
                match reduce {
                    Reduce::Sum => sum(),
                    Reduce::Avg => (i128::from(sum()) / all.len() as i128) as Self,
                    Reduce::Prod => all.iter().fold(1, |product: Self, number| product.wrapping_mul(*number)),
                    Reduce::Min => *all.iter().min().unwrap(),
                    Reduce::Max => *all.iter().max().unwrap(),
                }
            }

            fn is_near(self, other: Self) -> bool {
                self == other
            }
        }
    )*};
}

whole!(i8 u8 i32 u32 i64 u64);

macro_rules! floating {
    ($($ty:ty, $from:expr, $to:expr;)*) => {$(
        impl Sample for $ty {
            fn sample(draw: u64) -> Self {
                $from([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0][(draw % 6) as usize])
            }

            fn reduced(reduce: Reduce, all: &[Self]) -> Self {
                let all: Vec<f64> = all.iter().map(|number| $to(*number)).collect();
                $from(match reduce {
                    Reduce::Sum => all.iter().sum(),
                    Reduce::Avg => all.iter().sum::<f64>() / all.len() as f64,
                    Reduce::Prod => all.iter().product(),
                    Reduce::Min => all.iter().copied().fold(f64::MAX, f64::min),
                    Reduce::Max => all.iter().copied().fold(f64::MIN, f64::max),
                })
            }

            fn is_near(self, other: Self) -> bool {
                ($to(self) - $to(other)).abs() <= 0.02
            }
        }
    )*};
}

floating! {
    f16, f16::from_f64, f16::to_f64;
    bf16, bf16::from_f64, bf16::to_f64;
    f32, |number: f64| number as f32, f64::from;
    f64, |number: f64| number, |number: f64| number;
}

/// The numbers of a rank, from a seed.
pub(crate) fn numbers<T: Sample>(seed: u64, rank: usize, count: usize) -> Vec<T> {
    let mut state =
        seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (rank as u64).wrapping_mul(0xd134_2543_de82_ef95);
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    (0..count).map(|_| T::sample(draw())).collect()
}

/// The reduction of all ranks' numbers.
pub(crate) fn reduced<T: Sample>(reduce: Reduce, each: &[Vec<T>]) -> Vec<T> {
    let at = |place: usize| each.iter().map(|numbers| numbers[place]).collect::<Vec<_>>();
    (0..each[0].len()).map(|place| T::reduced(reduce, &at(place))).collect()
}

/// That these are the numbers of the reference.
pub(crate) fn assert_reduced<T: Sample>(what: &str, reduce: Reduce, got: &[T], right: &[T]) {
    assert_eq!(got.len(), right.len(), "{what}");
    for (place, (got, right)) in got.iter().zip(right).enumerate() {
        let is_right = if reduce == Reduce::Avg { got.is_near(*right) } else { got == right };
        assert!(is_right, "{what}, {} at {place}, {reduce:?}: {got:?} and not {right:?}", T::NAME);
    }
}
