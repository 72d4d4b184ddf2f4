//! Copies between tensors.

use core::marker::PhantomData;
use std::sync::Arc;

use wakeline_core::Error;
use wakeline_ops::port::Memory;
use wakeline_ops::{DeviceOp, Submission, device_op};

use crate::block::{Block, Span};
use crate::element::Element;
use crate::enqueue;
use crate::layout::Layout;
use crate::tensor::Tensor;

impl<T: Element, D: Memory> Tensor<T, D> {
    /// Copies its numbers to `target`, of the same shape, which is given back.
    pub fn copy_to(&self, target: Self) -> CopyTo<T, D> {
        let (from, layout) = (Arc::clone(self.block()), self.layout().clone());
        CopyTo { from, layout, target, element: PhantomData }
    }
}

/// See [`Tensor::copy_to`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct CopyTo<T, D: Memory> {
    from: Arc<Block<D>>,
    layout: Layout,
    target: Tensor<T, D>,
    element: PhantomData<fn() -> T>,
}

impl<T: Element, D: Memory> DeviceOp for CopyTo<T, D> {
    type Device = D;
    type Pending = Tensor<T, D>;
    type Output = Tensor<T, D>;

    /// # Errors
    ///
    /// Besides what the device says, [`InvalidShape`](wakeline_core::ErrorCode::InvalidShape) where the shapes differ, and
    /// [`TensorShared`](wakeline_core::ErrorCode::TensorShared) where somebody else names what is written.
    fn execute(self, submission: &mut Submission<D>) -> Result<Tensor<T, D>, Error> {
        let Self { from, layout, target, .. } = self;
        if target.layout().dims() != layout.dims() {
            let wrong = format!("it is to take a copy of {}: the two must be alike", layout.dims());
            return Err(target.layout().dims().invalid(&wrong));
        }
        target.block().named_by(1, "the target of a copy")?;
        let from = Span {
            storage: from.storage(),
            offset_bytes: layout.offset() * T::BYTES,
            len_bytes: layout.extent() * T::BYTES,
        };
        enqueue::copy(submission, from, target.span())?;
        Ok(target)
    }

    fn finish(tensor: Tensor<T, D>) -> Result<Tensor<T, D>, Error> {
        Ok(tensor)
    }
}

device_op!([T, D] CopyTo<T, D> where T: Element, D: Memory);
