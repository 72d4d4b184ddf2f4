//! Tensors from the host and to the host, by way of pinned memory.

use core::fmt;
use core::marker::PhantomData;

use wakeline_core::Error;
use wakeline_ops::port::Memory;
use wakeline_ops::{DeviceOp, Submission, device_op};

use crate::block::Named;
use crate::dims::Dims;
use crate::element::Element;
use crate::enqueue::{Fresh, Landed, gathers, rows_calls, uses};
use crate::layout::Layout;
use crate::tensor::Tensor;

impl<T: Element, D: Memory> Tensor<T, D> {
    /// A tensor of these numbers, in one dimension. They go through pinned memory, into which they are copied at submission: one copy by the
    /// thread that submits, and one by the device. Of many of them see [`send_in_chunks`](Self::send_in_chunks).
    pub const fn from_host(numbers: Vec<T>) -> FromHost<T, D> {
        FromHost { numbers, dims: None, device: PhantomData }
    }

    /// A tensor of these numbers, row by row.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// use wakeline_tensor::Tensor;
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
    /// let tensor = Tensor::from_shaped([2, 3], vec![1_u8, 2, 3, 4, 5, 6]).on(&runtime).sync()?;
    /// assert_eq!(tensor.shape(), [2, 3]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    pub fn from_shaped(dims: impl Into<Dims>, numbers: Vec<T>) -> FromHost<T, D> {
        FromHost { numbers, dims: Some(dims.into()), device: PhantomData }
    }

    /// Writes these numbers over its own, row by row, and gives it back: no memory of the device is allocated.
    ///
    /// Its errors are those of [`from_shaped`](Self::from_shaped) and of [`copy_to`](Self::copy_to), as a target.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// use wakeline_tensor::Tensor;
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
    /// let op = Tensor::zeros(3).then(|batch| batch.overwrite(vec![1_u8, 2, 3])).then(|batch| batch.to_host());
    /// assert_eq!(op.on(&runtime).sync()?, [1, 2, 3]);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    pub const fn overwrite(self, numbers: Vec<T>) -> Overwrite<T, D> {
        Overwrite { tensor: self, numbers }
    }

    /// Its numbers, row by row, on the host. Writes that are submitted later do not change what is read. Of many of them see
    /// [`fetch_in_chunks`](Self::fetch_in_chunks).
    ///
    /// Of a view whose numbers do not lie row by row the device fetches those that count, where that takes no more than
    /// [`COPY_CALLS_MAX`](crate::COPY_CALLS_MAX) calls; else all between the first and the last, of which the host picks them.
    pub fn to_host(&self) -> ToHost<T, D> {
        ToHost { from: self.named(), element: PhantomData }
    }
}

/// See [`Tensor::from_host`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct FromHost<T, D> {
    numbers: Vec<T>,
    dims: Option<Dims>,
    device: PhantomData<fn() -> D>,
}

/// That so many numbers are those of a layout.
pub(crate) fn fits(layout: &Layout, count: usize) -> Result<(), Error> {
    if layout.count() == count {
        return Ok(());
    }
    let wrong = format!("it has {} number(s), but {count} were handed in", layout.count());
    Err(layout.dims().invalid(&wrong))
}

impl<T: Element, D: Memory> DeviceOp for FromHost<T, D> {
    type Device = D;
    type Pending = Tensor<T, D>;
    type Output = Tensor<T, D>;

    /// # Errors
    ///
    /// Besides what the device says, [`InvalidShape`](wakeline_core::ErrorCode::InvalidShape) where the shape is of another number of numbers.
    fn execute(self, submission: &mut Submission<D>) -> Result<Tensor<T, D>, Error> {
        let Self { numbers, dims, .. } = self;
        let layout = Layout::rows(dims.unwrap_or_else(|| numbers.len().into()), T::BYTES)?;
        fits(&layout, numbers.len())?;
        let tensor = Tensor::alloc(submission, layout)?;
        let mut fresh = Fresh::new(submission.device(), tensor.len_bytes())?;
        fresh.write(0, T::bytes(&numbers))?;
        fresh.send(submission, tensor.span())?;
        Ok(tensor)
    }

    fn finish(tensor: Tensor<T, D>) -> Result<Tensor<T, D>, Error> {
        Ok(tensor)
    }

    fn entries(&self) -> u32 {
        uses(2)
    }
}

device_op!([T, D] FromHost<T, D> where T: Element, D: Memory);

/// See [`Tensor::overwrite`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct Overwrite<T, D: Memory> {
    tensor: Tensor<T, D>,
    numbers: Vec<T>,
}

impl<T: Element, D: Memory> DeviceOp for Overwrite<T, D> {
    type Device = D;
    type Pending = Tensor<T, D>;
    type Output = Tensor<T, D>;

    fn execute(self, submission: &mut Submission<D>) -> Result<Tensor<T, D>, Error> {
        let Self { tensor, numbers } = self;
        tensor.block().named_by(1, "a tensor that is to be overwritten")?;
        fits(tensor.layout(), numbers.len())?;
        let mut fresh = Fresh::new(submission.device(), tensor.len_bytes())?;
        fresh.write(0, T::bytes(&numbers))?;
        fresh.spread(submission, &tensor.named(), T::BYTES)?;
        Ok(tensor)
    }

    fn finish(tensor: Tensor<T, D>) -> Result<Tensor<T, D>, Error> {
        Ok(tensor)
    }

    fn entries(&self) -> u32 {
        uses(rows_calls(self.tensor.layout(), T::BYTES))
    }
}

device_op!([T, D] Overwrite<T, D> where T: Element, D: Memory);

/// See [`Tensor::to_host`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct ToHost<T, D: Memory> {
    from: Named<D>,
    element: PhantomData<fn() -> T>,
}

/// Numbers on their way to the host.
pub struct HostCopy<T, D: Memory> {
    landed: Landed<D>,
    /// How many come.
    len: usize,
    /// Which of them count, where not all do.
    picked: Option<Layout>,
    element: PhantomData<fn() -> T>,
}

impl<T, D: Memory> fmt::Debug for HostCopy<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostCopy").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<T: Element, D: Memory> DeviceOp for ToHost<T, D> {
    type Device = D;
    type Pending = HostCopy<T, D>;
    type Output = Vec<T>;

    fn execute(self, submission: &mut Submission<D>) -> Result<HostCopy<T, D>, Error> {
        let Self { from, .. } = self;
        if let Ok(plan) = gathers(&from.layout, T::BYTES) {
            let len = from.layout.count();
            let room = Fresh::new(submission.device(), len * T::BYTES)?;
            let landed = room.gather(submission, &from, T::BYTES, &plan)?;
            return Ok(HostCopy { landed, len, picked: None, element: PhantomData });
        }
        let span = from.span(T::BYTES);
        let landed = Fresh::new(submission.device(), span.len_bytes)?.fetch(submission, span)?;
        let (len, picked) = (from.layout.extent(), Some(from.layout));
        Ok(HostCopy { landed, len, picked, element: PhantomData })
    }

    /// # Errors
    ///
    /// [`StillInFlight`](wakeline_core::ErrorCode::StillInFlight) where it is called while the device may still write.
    fn finish(copy: HostCopy<T, D>) -> Result<Vec<T>, Error> {
        let HostCopy { landed, len, picked, .. } = copy;
        let mut numbers = vec![T::ZERO; len];
        T::read(&mut numbers, |bytes| landed.read(0, bytes))?;
        Ok(match picked {
            Some(layout) => layout.places().filter_map(|place| numbers.get(place).copied()).collect(),
            None => numbers,
        })
    }

    fn entries(&self) -> u32 {
        // Where it would take too many calls, one fetches all between the first and the last.
        uses(gathers(&self.from.layout, T::BYTES).map_or(1, |_| rows_calls(&self.from.layout, T::BYTES)))
    }
}

device_op!([T, D] ToHost<T, D> where T: Element, D: Memory);
