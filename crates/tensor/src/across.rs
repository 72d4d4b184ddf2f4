//! Tensors from one device of a machine to another.

use core::marker::PhantomData;

use wakeline_core::Error;
use wakeline_ops::port::Peers;
use wakeline_ops::{DeviceOp, Submission, device_op};

use crate::block::Named;
use crate::element::Element;
use crate::enqueue::uses;
use crate::layout::Layout;
use crate::tensor::Tensor;

/// Copies between the devices of a [`Machine`](wakeline_ops::Machine): work of the device that they go to, behind what is in flight on either. Where the driver lets the one reach the
/// other's memory each is one call; else it goes by way of a little pinned memory, piece by piece. See [`Submission::copy_across`].
impl<T: Element, D: Peers> Tensor<T, D> {
    /// A copy of it on the device that this operation runs on, row by row.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Machine, SingleStream};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// use wakeline_tensor::Tensor;
    /// let first = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let second = first.beside(SimConfig::default())?;
    /// let machine = Machine::new([first.clone(), second], &SingleStream, VirtualWatcher::new(&first))?;
    /// let (here, there) = (machine.site(0)?.runtime(), machine.site(1)?.runtime());
    /// let tensor = Tensor::from_host(vec![1_u8, 2, 3]).on(here).sync()?;
    /// let read = tensor.to_device().then(|copy| copy.to_host());
    /// assert_eq!(read.on(there).sync()?, [1, 2, 3]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// The error is [`InvalidShape`](wakeline_core::ErrorCode::InvalidShape) for a view whose numbers do not lie row by row: [`dup`](Self::dup) it first, where it is.
    pub fn to_device(&self) -> ToDevice<T, D> {
        ToDevice { from: self.named(), element: PhantomData }
    }

    /// Copies its numbers to `target`, of the same shape and on the device that this operation runs on, which is given back.
    ///
    /// The errors are those of [`copy_to`](Self::copy_to), and [`InvalidShape`](wakeline_core::ErrorCode::InvalidShape) where the numbers of either do not lie row by row.
    pub fn send_to(&self, target: Self) -> SendTo<T, D> {
        SendTo { from: self.named(), target }
    }
}

fn copy<T: Element, D: Peers>(
    submission: &mut Submission<D>,
    from: &Named<D>,
    to: &Named<D>,
) -> Result<(), Error> {
    for layout in [&from.layout, &to.layout] {
        if !layout.is_contiguous() {
            let wrong = "its numbers do not lie row by row, as a copy between devices needs them: make a copy of it first, where it is";
            return Err(layout.dims().invalid(wrong));
        }
    }
    let (source, target) = (from.span(T::BYTES), to.span(T::BYTES));
    let from = (source.storage, source.offset_bytes);
    submission.copy_across(from, (target.storage, target.offset_bytes), source.len_bytes)
}

/// See [`Tensor::to_device`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct ToDevice<T, D: Peers> {
    from: Named<D>,
    element: PhantomData<fn() -> T>,
}

impl<T: Element, D: Peers> DeviceOp for ToDevice<T, D> {
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
        uses(2)
    }
}

device_op!([T, D] ToDevice<T, D> where T: Element, D: Peers);

/// See [`Tensor::send_to`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct SendTo<T, D: Peers> {
    from: Named<D>,
    target: Tensor<T, D>,
}

impl<T: Element, D: Peers> DeviceOp for SendTo<T, D> {
    type Device = D;
    type Pending = Tensor<T, D>;
    type Output = Tensor<T, D>;

    fn execute(self, submission: &mut Submission<D>) -> Result<Tensor<T, D>, Error> {
        let Self { from, target } = self;
        target.block().named_by(1, "the target of a copy")?;
        let (dims, wanted) = (from.layout.dims(), target.layout().dims());
        if dims != wanted {
            return Err(wanted.invalid(&format!("it is to take a copy of {dims}: the two must be alike")));
        }
        copy::<T, D>(submission, &from, &target.named())?;
        Ok(target)
    }

    fn finish(tensor: Tensor<T, D>) -> Result<Tensor<T, D>, Error> {
        Ok(tensor)
    }

    fn entries(&self) -> u32 {
        uses(1)
    }
}

device_op!([T, D] SendTo<T, D> where T: Element, D: Peers);
