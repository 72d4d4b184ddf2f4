//! Views: other names for a part of a tensor's numbers, or for all of them in another order.

use core::ops::{Bound, RangeBounds};

use wakeline_core::Error;
use wakeline_ops::port::Memory;

use crate::layout::Layout;
use crate::tensor::Tensor;

/// Views name the tensor's own memory and move nothing. Each is a tensor of its own, with another shape, other strides and another offset: operations on
/// it and on the tensor are ordered as those on one, and neither may be written while the other is there.
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// use wakeline_tensor::Tensor;
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
/// let table = Tensor::from_shaped([2, 3], vec![1_u8, 2, 3, 4, 5, 6]).on(&runtime).sync()?;
/// assert_eq!(table.select(1, 2)?.to_host().on(&runtime).sync()?, [3, 6]); // a column
/// assert_eq!(table.slice(1, 1..)?.to_host().on(&runtime).sync()?, [2, 3, 5, 6]);
/// assert_eq!(table.transpose()?.to_host().on(&runtime).sync()?, [1, 4, 2, 5, 3, 6]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
///
/// The error of each is [`InvalidShape`](wakeline_core::ErrorCode::InvalidShape): it names the shape, what is not there and what is.
impl<T, D: Memory> Tensor<T, D> {
    /// Of one dimension, counted from 0, only this range.
    ///
    /// # Errors
    ///
    /// There is no such dimension, or it is not that long.
    pub fn slice(&self, axis: usize, range: impl RangeBounds<usize>) -> Result<Self, Error> {
        self.stepped(axis, range, 1)
    }

    /// The same, of which only each `step`th counts, from the first on.
    ///
    /// # Errors
    ///
    /// As [`slice`](Self::slice); a step of 0.
    pub fn stepped(&self, axis: usize, range: impl RangeBounds<usize>, step: usize) -> Result<Self, Error> {
        Ok(self.view(stepped(self.layout(), axis, range, step)?))
    }

    /// Of one dimension only what is at `index`, without that dimension: a row, a column.
    ///
    /// # Errors
    ///
    /// There is no such dimension, or it is not that long.
    pub fn select(&self, axis: usize, index: usize) -> Result<Self, Error> {
        Ok(self.view(self.layout().selected(axis, index)?))
    }

    /// The dimensions in this order: the first of the view is the tensor's `order[0]`.
    ///
    /// # Errors
    ///
    /// It does not name each dimension once.
    pub fn permute(&self, order: &[usize]) -> Result<Self, Error> {
        Ok(self.view(self.layout().permuted(order)?))
    }

    /// The last two dimensions exchanged.
    ///
    /// # Errors
    ///
    /// There are no two.
    pub fn transpose(&self) -> Result<Self, Error> {
        let rank = self.shape().len();
        let mut order: Vec<usize> = (0..rank).collect();
        let Some(last) = rank.checked_sub(2) else {
            let dims = self.layout().dims();
            return Err(dims.invalid(&format!("it has {rank} dimension(s): two are needed to exchange them")));
        };
        order.swap(last, last + 1);
        self.permute(&order)
    }

    fn view(&self, layout: Layout) -> Self {
        self.clone().with_layout(layout)
    }
}

/// Of one dimension only each `step`th in this range.
pub(crate) fn stepped(
    layout: &Layout,
    axis: usize,
    range: impl RangeBounds<usize>,
    step: usize,
) -> Result<Layout, Error> {
    let behind = |bound: &usize| bound.saturating_add(1);
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => behind(before),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => behind(last),
        Bound::Excluded(end) => *end,
        // Of a dimension that is not there, the error says so.
        Bound::Unbounded => layout.dims().get(axis).copied().unwrap_or(start),
    };
    layout.sliced(axis, start..end, step)
}
