//! Numbers as arguments of kernels.

use super::sealed::Sealed;

/// A number that kernels take by value, of one to eight bytes. Those that there are: what a launch hands over rests on how long each is.
pub trait Scalar: Sealed + Copy + Send + Sync + 'static {
    /// How many bytes a kernel takes.
    const BYTES: usize = size_of::<Self>();

    /// It, as the low bytes of a word.
    fn word(self) -> u64;

    /// The one whose word that is.
    fn of_word(word: u64) -> Self;
}

macro_rules! scalars {
    ($($number:ty)*) => {$(
        impl Sealed for $number {}

        impl Scalar for $number {
            #[inline]
            fn word(self) -> u64 {
                let mut word = [0; size_of::<u64>()];
                let bytes = self.to_le_bytes();
                word.iter_mut().zip(bytes).for_each(|(room, byte)| *room = byte);
                u64::from_le_bytes(word)
            }

            fn of_word(word: u64) -> Self {
                let mut bytes = [0; size_of::<Self>()];
                bytes.iter_mut().zip(word.to_le_bytes()).for_each(|(room, byte)| *room = byte);
                Self::from_le_bytes(bytes)
            }
        }
    )*};
}

scalars!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64 half::f16 half::bf16);

impl Sealed for bool {}

impl Scalar for bool {
    #[inline]
    fn word(self) -> u64 {
        self.into()
    }

    fn of_word(word: u64) -> Self {
        word & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_low_bytes_of_its_word() {
        assert_eq!((-1_i8).word(), 0xff);
        assert_eq!(1.5_f32.word(), u64::from(1.5_f32.to_bits()));
        assert_eq!(half::f16::ONE.word(), 0x3c00);
        assert_eq!((i8::of_word(0xff), f32::of_word(1.5_f32.word())), (-1, 1.5));
        assert!(bool::of_word(true.word()) && !bool::of_word(0));
        assert_eq!((<u16 as Scalar>::BYTES, <bool as Scalar>::BYTES, <f64 as Scalar>::BYTES), (2, 1, 8));
    }
}
