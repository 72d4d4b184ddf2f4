//! Parts of a tensor that are written in place.

use core::fmt;
use core::ops::RangeBounds;

use wakeline_core::Error;
use wakeline_ops::port::Memory;
use wakeline_ops::{DeviceOp, Submission, device_op};

use crate::block::Named;
use crate::copy::CopyInto;
use crate::element::Element;
use crate::enqueue::{Fresh, rows_calls, uses};
use crate::host::fits;
use crate::layout::Layout;
use crate::lend::Lent;
use crate::tensor::Tensor;
use crate::view;

/// A part of a borrowed tensor, to be written in place. Its parts are had as those of a tensor, each in place of the one before.
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// use wakeline_tensor::Tensor;
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
/// // Two lines of a table, one after the other: as a cache is filled.
/// let mut cache = Tensor::<u8, _>::zeros([3, 2]).on(&runtime).sync()?;
/// let line = Tensor::from_host(vec![1, 2]).on(&runtime).sync()?;
/// cache.view_mut().select(0, 1)?.copy_from(&line).on(&runtime).sync()?;
/// cache.view_mut().select(0, 2)?.overwrite(vec![3, 4]).on(&runtime).sync()?;
/// assert_eq!(cache.to_host().on(&runtime).sync()?, [0, 0, 1, 2, 3, 4]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub struct ViewMut<'t, T, D: Memory> {
    of: &'t mut Tensor<T, D>,
    layout: Layout,
}

impl<T, D: Memory> Tensor<T, D> {
    /// All of it, to be written in place.
    pub fn view_mut(&mut self) -> ViewMut<'_, T, D> {
        let layout = self.layout().clone();
        ViewMut { of: self, layout }
    }
}

impl<T, D: Memory> ViewMut<'_, T, D> {
    /// As [`Tensor::slice`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn slice(self, axis: usize, range: impl RangeBounds<usize>) -> Result<Self, Error> {
        self.stepped(axis, range, 1)
    }

    /// As [`Tensor::stepped`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn stepped(self, axis: usize, range: impl RangeBounds<usize>, step: usize) -> Result<Self, Error> {
        let layout = view::stepped(&self.layout, axis, range, step)?;
        Ok(Self { layout, ..self })
    }

    /// As [`Tensor::select`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn select(self, axis: usize, index: usize) -> Result<Self, Error> {
        let layout = self.layout.selected(axis, index)?;
        Ok(Self { layout, ..self })
    }

    /// As [`Tensor::permute`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn permute(self, order: &[usize]) -> Result<Self, Error> {
        let layout = self.layout.permuted(order)?;
        Ok(Self { layout, ..self })
    }

    /// How long it is along each dimension.
    pub fn shape(&self) -> &[usize] {
        self.layout.dims()
    }

    fn named(&self) -> Named<D> {
        Named { layout: self.layout.clone(), ..self.of.named() }
    }
}

impl<'t, T: Element, D: Memory> ViewMut<'t, T, D> {
    /// Has a copy of `from`, of the same shape, written here. Its errors are those of [`Tensor::copy_to`]; the view comes back with the end of it.
    pub fn copy_from(self, from: &Tensor<T, D>) -> Lent<CopyInto<T, D>, Self> {
        Lent::new(CopyInto::new(from.named(), self.named()), self)
    }

    /// Writes these numbers here, row by row. Its errors are those of [`Tensor::overwrite`]; the view comes back with the end of it.
    pub fn overwrite(self, numbers: Vec<T>) -> Lent<OverwriteInto<T, D>, Self> {
        Lent::new(OverwriteInto { to: self.named(), numbers }, self)
    }

    /// The tensor.
    pub fn into_tensor(self) -> &'t mut Tensor<T, D> {
        self.of
    }
}

impl<T, D: Memory> fmt::Debug for ViewMut<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewMut").field("of", self.of).field("layout", &self.layout).finish()
    }
}

/// See [`ViewMut::overwrite`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct OverwriteInto<T, D: Memory> {
    to: Named<D>,
    numbers: Vec<T>,
}

impl<T: Element, D: Memory> DeviceOp for OverwriteInto<T, D> {
    type Device = D;
    type Pending = ();
    type Output = ();

    fn execute(self, submission: &mut Submission<D>) -> Result<(), Error> {
        let Self { to, numbers } = self;
        // This one, and the tensor that it was lent.
        to.block.named_by(2, "a tensor that is to be overwritten")?;
        fits(&to.layout, numbers.len())?;
        let bytes = T::bytes(&numbers);
        let mut fresh = Fresh::new(submission.device(), bytes.len())?;
        fresh.write(0, bytes)?;
        fresh.spread(submission, &to, T::BYTES)?;
        Ok(())
    }

    fn finish((): ()) -> Result<(), Error> {
        Ok(())
    }

    fn entries(&self) -> u32 {
        uses(rows_calls(&self.to.layout, T::BYTES))
    }
}

device_op!([T, D] OverwriteInto<T, D> where T: Element, D: Memory);
