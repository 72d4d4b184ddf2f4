//! Reductions, by the library's numbers of types and operations.

use core::ffi::c_int;

use half::{bf16, f16};

/// `ncclDataType_t`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Number {
    I8,
    U8,
    I32,
    U32,
    I64,
    U64,
    F16,
    F32,
    F64,
    Bf16,
}

impl Number {
    pub(super) fn of(number: c_int) -> Option<Self> {
        const ALL: [Number; 10] = [
            Number::I8,
            Number::U8,
            Number::I32,
            Number::U32,
            Number::I64,
            Number::U64,
            Number::F16,
            Number::F32,
            Number::F64,
            Number::Bf16,
        ];
        ALL.get(usize::try_from(number).ok()?).copied()
    }

    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

/// `ncclSum`, `ncclProd`, `ncclMax`, `ncclMin`, `ncclAvg`
const SUM: c_int = 0;
const PROD: c_int = 1;
const MAX: c_int = 2;
const MIN: c_int = 3;
const AVG: c_int = 4;

/// The reduction of these, number by number.
pub(super) fn reduced(number: Number, how: c_int, each: &[Vec<u8>]) -> Vec<u8> {
    macro_rules! whole {
        ($ty:ty) => {{
            let both = |one: $ty, other: $ty| match how {
                PROD => one.wrapping_mul(other),
                MAX => one.max(other),
                MIN => one.min(other),
                _ => one.wrapping_add(other),
            };
            let ranks = i128::try_from(each.len()).unwrap_or(1);
            let end = |sum: $ty| {
                if how == AVG { <$ty>::try_from(i128::from(sum) / ranks).unwrap_or(sum) } else { sum }
            };
            fold::<$ty, { size_of::<$ty>() }>(each, <$ty>::from_ne_bytes, <$ty>::to_ne_bytes, both, end)
        }};
    }
    macro_rules! floating {
        ($ty:ty, $of:expr) => {{
            let both = |one: $ty, other: $ty| match how {
                PROD => one * other,
                MAX => one.max(other),
                MIN => one.min(other),
                _ => one + other,
            };
            let end = |sum: $ty| if how == AVG { sum / $of } else { sum };
            fold::<$ty, { size_of::<$ty>() }>(each, <$ty>::from_ne_bytes, <$ty>::to_ne_bytes, both, end)
        }};
    }
    debug_assert!((SUM..=AVG).contains(&how));
    #[allow(clippy::cast_precision_loss, reason = "there are few ranks")]
    let ranks = each.len() as f32;
    match number {
        Number::I8 => whole!(i8),
        Number::U8 => whole!(u8),
        Number::I32 => whole!(i32),
        Number::U32 => whole!(u32),
        Number::I64 => whole!(i64),
        Number::U64 => whole!(u64),
        Number::F16 => floating!(f16, f16::from_f32(ranks)),
        Number::F32 => floating!(f32, ranks),
        Number::F64 => floating!(f64, f64::from(ranks)),
        Number::Bf16 => floating!(bf16, bf16::from_f32(ranks)),
    }
}

fn fold<N: Copy, const BYTES: usize>(
    each: &[Vec<u8>],
    read: fn([u8; BYTES]) -> N,
    write: fn(N) -> [u8; BYTES],
    both: impl Fn(N, N) -> N,
    end: impl Fn(N) -> N,
) -> Vec<u8> {
    let numbers =
        |bytes: &[u8]| bytes.as_chunks::<BYTES>().0.iter().map(|number| read(*number)).collect::<Vec<_>>();
    let Some((first, others)) = each.split_first() else { return Vec::new() };
    let mut all = numbers(first);
    for other in others {
        all.iter_mut().zip(numbers(other)).for_each(|(number, other)| *number = both(*number, other));
    }
    all.into_iter().flat_map(|number| write(end(number))).collect()
}
