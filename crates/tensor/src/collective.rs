//! Tensors as what collectives read and write.

use half::{bf16, f16};
use wakeline_core::{Error, ErrorCode};
use wakeline_ops::port::{Memory, Number};
use wakeline_ops::{CollectiveMemory, Region};

use crate::element::Element;
use crate::tensor::Tensor;

/// A number that collectives know.
pub trait CollectiveElement: Element {
    /// What they call it.
    const NUMBER: Number;
}

macro_rules! numbers {
    ($($number:ident $called:ident;)*) => {$(
        impl CollectiveElement for $number {
            const NUMBER: Number = Number::$called;
        }
    )*};
}

numbers! {
    i8 I8; u8 U8; i32 I32; u32 U32; i64 I64; u64 U64; f16 F16; bf16 Bf16; f32 F32; f64 F64;
}

/// One whose numbers lie one behind the other. What is written nobody else may name: a clone, a view, an operation that did not run yet.
impl<T: CollectiveElement, D: Memory> CollectiveMemory<D> for Tensor<T, D> {
    fn region(&self) -> Result<Region<'_, D>, Error> {
        if !self.is_contiguous() {
            let wrong = "the tensor's numbers do not lie one behind the other: `dup` it first";
            return Err(Error::new(ErrorCode::InvalidCollective, [&"a collective", &wrong]));
        }
        let span = self.span();
        Ok(Region {
            storage: span.storage,
            offset_bytes: span.offset_bytes,
            count: self.len(),
            number: T::NUMBER,
        })
    }

    fn region_to_write(&self) -> Result<Region<'_, D>, Error> {
        self.block().named_by(1, "a tensor that a collective writes")?;
        self.region()
    }
}
