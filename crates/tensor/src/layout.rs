//! Where the numbers of a shape lie in memory: strides and an offset, all in numbers.

use wakeline_core::Error;

use crate::dims::{Dims, PerAxis};

/// A shape and where its numbers are.
///
/// All of them are within the memory that it was made for, so that no sum or product of these overflows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    dims: Dims,
    /// How far two neighbours along a dimension are apart. 1 where that is empty or there are no two.
    strides: PerAxis,
    offset: usize,
    count: usize,
}

impl Layout {
    /// Row by row from the first on, each number of so many bytes.
    pub(crate) fn rows(dims: Dims, bytes_each: usize) -> Result<Self, Error> {
        let count = dims.numbers(bytes_each)?;
        let strides = strides_of(&dims);
        Ok(Self { dims, strides, offset: 0, count })
    }

    pub(crate) const fn dims(&self) -> &Dims {
        &self.dims
    }

    pub(crate) fn strides(&self) -> &[usize] {
        &self.strides
    }

    pub(crate) const fn offset(&self) -> usize {
        self.offset
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// How many numbers there are from the first to behind the last, gaps included.
    pub(crate) fn extent(&self) -> usize {
        if self.count == 0 {
            return 0;
        }
        self.dims.iter().zip(&self.strides).map(|(len, stride)| (len - 1) * stride).sum::<usize>() + 1
    }

    /// Whether its numbers lie row by row without a gap.
    pub(crate) fn is_contiguous(&self) -> bool {
        let plain = strides_of(&self.dims);
        let mut axes = self.dims.iter().zip(&self.strides).zip(&plain);
        self.count == 0 || axes.all(|((len, stride), plain)| *len == 1 || stride == plain)
    }

    /// The same numbers in another shape.
    pub(crate) fn reshaped(&self, dims: Dims, bytes_each: usize) -> Result<Self, Error> {
        let count = dims.numbers(bytes_each)?;
        if count != self.count {
            let wrong = format!("it has {count} number(s), but {} has {}", self.dims, self.count);
            return Err(dims.invalid(&wrong));
        }
        if !self.is_contiguous() {
            let wrong = format!(
                "a view of shape {} and strides {:?} has no other shape: its numbers do not lie row by row; copy it first (`dup`)",
                self.dims, self.strides
            );
            return Err(dims.invalid(&wrong));
        }
        let strides = strides_of(&dims);
        Ok(Self { dims, strides, offset: self.offset, count })
    }
}

/// Those of a shape that lies row by row. Of an empty one each is 1.
fn strides_of(dims: &Dims) -> PerAxis {
    let mut strides: PerAxis = dims.iter().map(|_| 1).collect();
    if dims.contains(&0) {
        return strides;
    }
    let mut stride = 1;
    for (room, len) in strides.iter_mut().zip(dims.iter()).rev() {
        *room = stride;
        // The product of all of them is a count that was checked.
        stride *= len;
    }
    strides
}
