//! What tensors are made of.

use half::{bf16, f16};
use wakeline_core::Error;

/// How long an element is, which nobody else has a say in: what a kernel is told of memory rests on it.
pub trait ElementSize {
    /// How many bytes one has.
    const BYTES: usize;
}

impl<T> ElementSize for T {
    const BYTES: usize = size_of::<T>();
}

/// A number that tensors are made of, as it lies in memory of a device: in the byte order of the host.
///
/// Those of the table, and others of your own: `read` and `bytes` say how they lie in memory.
///
/// | | |
/// |---|---|
/// | floating point | `f32`, `f64`, and of the crate `half` `f16`, `bf16` |
/// | whole numbers | `i8` to `i64`, `u8` to `u64` |
/// | truth values | `bool`: a byte, of which everything but 0 reads as true |
pub trait Element: ElementSize + Copy + Send + Sync + 'static {
    /// What it is called.
    const NAME: &'static str;
    /// What memory of nothing but zero bytes reads as.
    const ZERO: Self;
    /// The bytes of these numbers, [`BYTES`](ElementSize::BYTES) each.
    fn bytes(numbers: &[Self]) -> &[u8];

    /// Has `read` fill in the bytes of these numbers.
    ///
    /// # Errors
    ///
    /// What `read` says.
    fn read(numbers: &mut [Self], read: impl FnOnce(&mut [u8]) -> Result<(), Error>) -> Result<(), Error>;
}

macro_rules! elements {
    ($($number:ident $zero:expr;)*) => {$(
        impl Element for $number {
            const NAME: &'static str = stringify!($number);
            const ZERO: Self = $zero;

            fn bytes(numbers: &[Self]) -> &[u8] {
                bytemuck::cast_slice(numbers)
            }

            fn read(numbers: &mut [Self], read: impl FnOnce(&mut [u8]) -> Result<(), Error>) -> Result<(), Error> {
                read(bytemuck::cast_slice_mut(numbers))
            }
        }
    )*};
}

elements! {
    u8 0; u16 0; u32 0; u64 0; i8 0; i16 0; i32 0; i64 0;
    f32 0.0; f64 0.0; f16 f16::ZERO; bf16 bf16::ZERO;
}

impl Element for bool {
    const NAME: &'static str = "bool";
    const ZERO: Self = false;

    fn bytes(numbers: &[Self]) -> &[u8] {
        bytemuck::cast_slice(numbers)
    }

    /// By way of as many bytes, for a device may have left others there than 0 and 1.
    fn read(numbers: &mut [Self], read: impl FnOnce(&mut [u8]) -> Result<(), Error>) -> Result<(), Error> {
        let mut bytes = vec![0; numbers.len()];
        read(&mut bytes)?;
        numbers.iter_mut().zip(bytes).for_each(|(number, byte)| *number = byte != 0);
        Ok(())
    }
}

/// An [`Element`] that one can count with.
pub trait Number: Element {
    /// One.
    const ONE: Self;

    /// `self + index * step`, and `None` where that is out of its range. Floating point numbers are computed in `f64` and rounded once.
    fn nth(self, step: Self, index: usize) -> Option<Self>;
}

macro_rules! whole_numbers {
    ($($number:ident)*) => {$(
        impl Number for $number {
            const ONE: Self = 1;

            fn nth(self, step: Self, index: usize) -> Option<Self> {
                // Of every two of these the product fits, but for the longest; then the sum would not either.
                let by = i128::from(step).checked_mul(i128::try_from(index).ok()?)?;
                Self::try_from(i128::from(self).checked_add(by)?).ok()
            }
        }
    )*};
}

whole_numbers!(u8 u16 u32 u64 i8 i16 i32 i64);

macro_rules! floats {
    ($($number:ident $one:expr, $from:expr;)*) => {$(
        impl Number for $number {
            const ONE: Self = $one;

            #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
            fn nth(self, step: Self, index: usize) -> Option<Self> {
                Some($from(f64::from(self) + f64::from(step) * index as f64))
            }
        }
    )*};
}

floats! {
    f32 1.0, |number: f64| number as Self;
    f64 1.0, |number: f64| number;
    f16 f16::ONE, f16::from_f64;
    bf16 bf16::ONE, bf16::from_f64;
}
