//! Copies between tensors.

use core::marker::PhantomData;

use wakeline_core::Error;
use wakeline_ops::port::Memory;
use wakeline_ops::{DeviceOp, Submission, device_op};

use crate::block::Named;
use crate::element::Element;
use crate::enqueue;
use crate::layout::Layout;
use crate::lend::Lent;
use crate::tensor::Tensor;

/// A copy between layouts without gaps is one call of the device. Of views it is one call for each two dimensions that do not lie as one on both sides:
/// rows, and how far they are apart; each call costs the recording of an event besides. One that would take more than [`COPY_CALLS_MAX`](crate::COPY_CALLS_MAX) calls is an error,
/// [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit): copy parts of it, or a view that has its longest dimension whole.
impl<T: Element, D: Memory> Tensor<T, D> {
    /// Copies its numbers to `target`, of the same shape, which is given back.
    ///
    /// The error is [`InvalidShape`](wakeline_core::ErrorCode::InvalidShape) where the shapes differ, and
    /// [`TensorShared`](wakeline_core::ErrorCode::TensorShared) where somebody else names what is written: a clone, a view, an operation that did not run yet. What
    /// is in flight does not count.
    pub fn copy_to(&self, target: Self) -> CopyTo<T, D> {
        CopyTo { from: self.named(), target }
    }

    /// Copies its numbers to what is borrowed, in place; the borrow comes back with the end of it. To a part of a tensor:
    /// [`ViewMut::copy_from`](crate::ViewMut::copy_from). Its errors are those of [`copy_to`](Self::copy_to).
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// use wakeline_tensor::Tensor;
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
    /// let from = Tensor::from_host(vec![1_u8, 2, 3]).on(&runtime).sync()?;
    /// let mut to = Tensor::zeros(3).on(&runtime).sync()?;
    /// let ((), to) = from.copy_into(&mut to).on(&runtime).sync()?;
    /// assert_eq!(to.to_host().on(&runtime).sync()?, [1, 2, 3]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    pub fn copy_into<'t>(&self, target: &'t mut Self) -> Lent<CopyInto<T, D>, &'t mut Self> {
        Lent::new(CopyInto::new(self.named(), target.named()), target)
    }

    /// A copy of it in memory of its own, row by row.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// use wakeline_tensor::Tensor;
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
    /// let table = Tensor::from_shaped([2, 2], vec![1_u8, 2, 3, 4]).on(&runtime).sync()?;
    /// let column = table.select(1, 0)?.dup().on(&runtime).sync()?;
    /// assert!(column.is_contiguous());
    /// assert_eq!(column.to_host().on(&runtime).sync()?, [1, 3]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    pub fn dup(&self) -> Dup<T, D> {
        Dup { from: self.named(), element: PhantomData }
    }
}

/// What copies all of one layout to another of the same shape.
fn copy<T: Element, D: Memory>(
    submission: &mut Submission<D>,
    from: &Named<D>,
    to: &Named<D>,
) -> Result<(), Error> {
    let (dims, target) = (from.layout.dims(), to.layout.dims());
    if dims != target {
        return Err(target.invalid(&format!("it is to take a copy of {dims}: the two must be alike")));
    }
    enqueue::copy(submission, from, to, T::BYTES)
}

/// See [`Tensor::copy_to`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct CopyTo<T, D: Memory> {
    from: Named<D>,
    target: Tensor<T, D>,
}

impl<T: Element, D: Memory> DeviceOp for CopyTo<T, D> {
    type Device = D;
    type Pending = Tensor<T, D>;
    type Output = Tensor<T, D>;

    fn execute(self, submission: &mut Submission<D>) -> Result<Tensor<T, D>, Error> {
        let Self { from, target } = self;
        target.block().named_by(1, "the target of a copy")?;
        copy::<T, D>(submission, &from, &target.named())?;
        Ok(target)
    }

    fn finish(tensor: Tensor<T, D>) -> Result<Tensor<T, D>, Error> {
        Ok(tensor)
    }

    fn entries(&self) -> u32 {
        enqueue::uses(enqueue::copy_calls(&self.from.layout, self.target.layout(), T::BYTES))
    }
}

device_op!([T, D] CopyTo<T, D> where T: Element, D: Memory);

/// See [`Tensor::copy_into`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct CopyInto<T, D: Memory> {
    from: Named<D>,
    to: Named<D>,
    element: PhantomData<fn() -> T>,
}

impl<T, D: Memory> CopyInto<T, D> {
    /// To a part of what is lent by who has its one name.
    pub(crate) const fn new(from: Named<D>, to: Named<D>) -> Self {
        Self { from, to, element: PhantomData }
    }
}

impl<T: Element, D: Memory> DeviceOp for CopyInto<T, D> {
    type Device = D;
    type Pending = ();
    type Output = ();

    fn execute(self, submission: &mut Submission<D>) -> Result<(), Error> {
        // This one, and the tensor that it was lent.
        self.to.block.named_by(2, "the target of a copy")?;
        copy::<T, D>(submission, &self.from, &self.to)
    }

    fn finish((): ()) -> Result<(), Error> {
        Ok(())
    }

    fn entries(&self) -> u32 {
        enqueue::uses(enqueue::copy_calls(&self.from.layout, &self.to.layout, T::BYTES))
    }
}

device_op!([T, D] CopyInto<T, D> where T: Element, D: Memory);

/// See [`Tensor::dup`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct Dup<T, D: Memory> {
    from: Named<D>,
    element: PhantomData<fn() -> T>,
}

impl<T: Element, D: Memory> DeviceOp for Dup<T, D> {
    type Device = D;
    type Pending = Tensor<T, D>;
    type Output = Tensor<T, D>;

    fn execute(self, submission: &mut Submission<D>) -> Result<Tensor<T, D>, Error> {
        let layout = Layout::rows(self.from.layout.dims().clone(), T::BYTES)?;
        let tensor = Tensor::alloc(submission, layout)?;
        copy::<T, D>(submission, &self.from, &tensor.named())?;
        Ok(tensor)
    }

    fn finish(tensor: Tensor<T, D>) -> Result<Tensor<T, D>, Error> {
        Ok(tensor)
    }

    fn entries(&self) -> u32 {
        enqueue::uses(enqueue::rows_calls(&self.from.layout, T::BYTES).saturating_add(1))
    }
}

device_op!([T, D] Dup<T, D> where T: Element, D: Memory);
