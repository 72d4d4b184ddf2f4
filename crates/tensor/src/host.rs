//! Tensors from the host and to the host, by way of pinned memory.

use core::fmt;
use core::marker::PhantomData;
use std::sync::Arc;

use wakeline_core::Error;
use wakeline_ops::port::Memory;
use wakeline_ops::{DeviceOp, Submission, device_op};

use crate::block::{Block, Span};
use crate::dims::Dims;
use crate::element::Element;
use crate::enqueue::{Fresh, Landed};
use crate::layout::Layout;
use crate::tensor::Tensor;

impl<T: Element, D: Memory> Tensor<T, D> {
    /// A tensor of these numbers, in one dimension. They go through pinned memory, into which they are copied at submission.
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

    /// Its numbers, row by row, on the host. Writes that are submitted later do not change what is read.
    pub fn to_host(&self) -> ToHost<T, D> {
        ToHost { block: Arc::clone(self.block()), layout: self.layout().clone(), element: PhantomData }
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
        if layout.count() != numbers.len() {
            let wrong = format!("it has {} number(s), but {} were handed in", layout.count(), numbers.len());
            return Err(layout.dims().invalid(&wrong));
        }
        let tensor = Tensor::alloc(submission, layout)?;
        let mut fresh = Fresh::new(submission, tensor.len_bytes())?;
        fresh.write(0, T::bytes(&numbers))?;
        fresh.send(submission, tensor.span())?;
        Ok(tensor)
    }

    fn finish(tensor: Tensor<T, D>) -> Result<Tensor<T, D>, Error> {
        Ok(tensor)
    }
}

device_op!([T, D] FromHost<T, D> where T: Element, D: Memory);

/// See [`Tensor::to_host`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Debug)]
pub struct ToHost<T, D: Memory> {
    block: Arc<Block<D>>,
    layout: Layout,
    element: PhantomData<fn() -> T>,
}

/// Numbers on their way to the host.
pub struct HostCopy<T, D: Memory> {
    landed: Landed<D>,
    len: usize,
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
        let Self { block, layout, .. } = self;
        let from = Span {
            storage: block.storage(),
            offset_bytes: layout.offset() * T::BYTES,
            len_bytes: layout.extent() * T::BYTES,
        };
        Ok(HostCopy { landed: Landed::fetch(submission, from)?, len: layout.count(), element: PhantomData })
    }

    /// # Errors
    ///
    /// [`StillInFlight`](wakeline_core::ErrorCode::StillInFlight) where it is called while the device may still write.
    fn finish(copy: HostCopy<T, D>) -> Result<Vec<T>, Error> {
        let mut numbers = vec![T::ZERO; copy.len];
        T::read(&mut numbers, |bytes| copy.landed.read(0, bytes))?;
        Ok(numbers)
    }
}

device_op!([T, D] ToHost<T, D> where T: Element, D: Memory);
