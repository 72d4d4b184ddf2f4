//! Tensors of one number.

use core::marker::PhantomData;

use wakeline_core::Error;
use wakeline_ops::port::{Memory, Pattern};
use wakeline_ops::{DeviceOp, Submission, device_op};

use crate::dims::Dims;
use crate::element::{Element, Number};
use crate::enqueue::{self, Fresh};
use crate::layout::Layout;
use crate::tensor::Tensor;

impl<T: Element, D: Memory> Tensor<T, D> {
    /// A tensor that has this number everywhere.
    ///
    /// The device fills by itself where the number has up to four bytes, or bytes that repeat; others are sent.
    pub fn full(dims: impl Into<Dims>, number: T) -> Full<T, D> {
        Full { dims: dims.into(), number, device: PhantomData }
    }

    /// A tensor of zeros.
    pub fn zeros(dims: impl Into<Dims>) -> Full<T, D> {
        Self::full(dims, T::ZERO)
    }
}

impl<T: Number, D: Memory> Tensor<T, D> {
    /// A tensor of ones.
    pub fn ones(dims: impl Into<Dims>) -> Full<T, D> {
        Self::full(dims, T::ONE)
    }
}

/// See [`Tensor::full`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct Full<T, D> {
    dims: Dims,
    number: T,
    device: PhantomData<fn() -> D>,
}

/// What the device can fill with so that these bytes are there again and again.
fn pattern(bytes: &[u8]) -> Option<Pattern> {
    let repeats =
        |len: usize| bytes.len().is_multiple_of(len) && bytes.chunks(len).all(|part| part == &bytes[..len]);
    match *bytes {
        [one, ..] if repeats(1) => Some(Pattern::One(one)),
        [one, two, ..] if repeats(2) => Some(Pattern::Two(u16::from_ne_bytes([one, two]))),
        [one, two, three, four, ..] if repeats(4) => {
            Some(Pattern::Four(u32::from_ne_bytes([one, two, three, four])))
        }
        _ => None,
    }
}

impl<T: Element, D: Memory> DeviceOp for Full<T, D> {
    type Device = D;
    type Pending = Tensor<T, D>;
    type Output = Tensor<T, D>;

    /// # Errors
    ///
    /// Besides what the device says, [`InvalidShape`](wakeline_core::ErrorCode::InvalidShape) where there cannot be that many.
    fn execute(self, submission: &mut Submission<D>) -> Result<Tensor<T, D>, Error> {
        let tensor = Tensor::alloc(submission, Layout::rows(self.dims, T::BYTES)?)?;
        let number = [self.number];
        let bytes = T::bytes(&number);
        if let Some(pattern) = pattern(bytes) {
            enqueue::fill(submission, tensor.span(), pattern)?;
        } else if !bytes.is_empty() {
            let mut fresh = Fresh::new(submission, tensor.len_bytes())?;
            fresh.write(0, &bytes.repeat(tensor.len()))?;
            fresh.send(submission, tensor.span())?;
        }
        Ok(tensor)
    }

    fn finish(tensor: Tensor<T, D>) -> Result<Tensor<T, D>, Error> {
        Ok(tensor)
    }
}

device_op!([T, D] Full<T, D> where T: Element, D: Memory);
