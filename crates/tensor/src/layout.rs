//! Where the numbers of a shape lie in memory: strides and an offset, all in numbers.

use core::ops::Range;

use wakeline_core::Error;

use crate::dims::{Dims, PerAxis};

/// A shape and where its numbers are.
///
/// No two of them are in one place, and all are within the memory that it was made for, so that no sum or product of these overflows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    dims: Dims,
    /// How far two neighbours along a dimension are apart, at least 1; anything where there are no two.
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

    #[inline]
    pub(crate) const fn dims(&self) -> &Dims {
        &self.dims
    }

    #[inline]
    pub(crate) fn strides(&self) -> &[usize] {
        &self.strides
    }

    #[inline]
    pub(crate) const fn offset(&self) -> usize {
        self.offset
    }

    #[inline]
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// How many numbers there are from the first to behind the last, gaps included.
    #[inline]
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

    /// Of one dimension only those within `range`, and of them each `step`th.
    pub(crate) fn sliced(&self, axis: usize, range: Range<usize>, step: usize) -> Result<Self, Error> {
        let (len, stride) = self.axis(axis)?;
        let Range { start, end } = range;
        if start > end || end > len {
            let wrong = format!("there is no {start}..{end} along dimension {axis}: it is {len} long");
            return Err(self.dims.invalid(&wrong));
        }
        if step == 0 {
            return Err(self
                .dims
                .invalid(&format!("a step along dimension {axis} must be at least 1, but is 0")));
        }
        let mut sliced = self.clone();
        let left = (end - start).div_ceil(step);
        sliced.dims.set(axis, left);
        if self.count == 0 || left == 0 {
            // Of none there is no first one: the offset stays within the memory.
            sliced.count = 0;
            return Ok(sliced);
        }
        sliced.offset += start * stride;
        if left > 1 {
            // The second one of them is in the range.
            sliced.strides[axis] = stride * step;
        }
        sliced.count = self.count / len * left;
        Ok(sliced)
    }

    /// Of one dimension only this one, without that dimension.
    pub(crate) fn selected(&self, axis: usize, index: usize) -> Result<Self, Error> {
        let (len, _) = self.axis(axis)?;
        if index >= len {
            let wrong =
                format!("there is no {index} along dimension {axis}: it is {len} long, counted from 0");
            return Err(self.dims.invalid(&wrong));
        }
        let mut selected = self.sliced(axis, index..index + 1, 1)?;
        selected.dims.remove(axis);
        selected.strides.remove(axis);
        Ok(selected)
    }

    /// The dimensions in another order.
    pub(crate) fn permuted(&self, order: &[usize]) -> Result<Self, Error> {
        let mut sorted: PerAxis = order.iter().copied().collect();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..self.dims.rank()) {
            let wrong =
                format!("{order:?} is no order of its {} dimension(s): name each once", self.dims.rank());
            return Err(self.dims.invalid(&wrong));
        }
        let dims = order.iter().map(|axis| self.dims[*axis]).collect();
        let strides = order.iter().map(|axis| self.strides[*axis]).collect();
        Ok(Self { dims, strides, ..*self })
    }

    fn axis(&self, axis: usize) -> Result<(usize, usize), Error> {
        let found = self.dims.get(axis).copied().zip(self.strides.get(axis).copied());
        found.ok_or_else(|| {
            self.dims.invalid(&format!(
                "it has no dimension {axis}: there are {}, counted from 0",
                self.dims.rank()
            ))
        })
    }

    /// Where each of its numbers is, from the first one's memory on, row by row.
    pub(crate) fn places(&self) -> Places<'_> {
        let index = self.dims.iter().map(|_| 0).collect();
        Places { layout: self, index, place: 0, left: self.count }
    }
}

/// See [`Layout::places`].
pub(crate) struct Places<'a> {
    layout: &'a Layout,
    index: PerAxis,
    place: usize,
    left: usize,
}

impl Iterator for Places<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let place = self.place;
        for axis in (0..self.index.len()).rev() {
            let (len, stride) = (self.layout.dims[axis], self.layout.strides[axis]);
            if self.index[axis] + 1 < len {
                self.index[axis] += 1;
                self.place += stride;
                break;
            }
            self.place -= self.index[axis] * stride;
            self.index[axis] = 0;
        }
        Some(place)
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
