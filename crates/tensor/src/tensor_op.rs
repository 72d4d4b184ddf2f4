//! What can be said of a tensor that is still to be made.

use wakeline_core::Error;
use wakeline_ops::port::Memory;
use wakeline_ops::{DeviceOp, Submission, device_op};

use core::task::{Context, Poll};

use crate::dims::Dims;
use crate::element::Element;
use crate::partition::{IntoPartition, Partition};
use crate::tensor::Tensor;

/// An operation that gives a tensor: in a chain, what the tensor's own methods say at once.
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// use wakeline_tensor::{Tensor, TensorOp};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
/// let tiles = Tensor::<f32, _>::arange(0.0, 1.0, 12).reshape([3, 4]).partition([2, 2]).on(&runtime).sync()?;
/// assert_eq!(tiles.grid(), [2, 2].into());
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub trait TensorOp<T: Element, D: Memory>:
    DeviceOp<Device = D, Pending = Tensor<T, D>, Output = Tensor<T, D>>
{
    /// Its tensor in another shape; see [`Tensor::reshape`], whose errors are those of the operation.
    fn reshape(self, dims: impl Into<Dims>) -> Reshaped<Self> {
        Reshaped { op: self, dims: dims.into() }
    }

    /// Its tensor in tiles; see [`IntoPartition::partition`], whose errors are those of the operation.
    fn partition(self, tile: impl Into<Dims>) -> Partitioned<Self> {
        Partitioned { op: self, tile: tile.into() }
    }
}

impl<T: Element, D: Memory, O> TensorOp<T, D> for O where
    O: DeviceOp<Device = D, Pending = Tensor<T, D>, Output = Tensor<T, D>>
{
}

/// See [`TensorOp::reshape`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Clone, Debug)]
pub struct Reshaped<O> {
    op: O,
    dims: Dims,
}

impl<T: Element, D: Memory, O> DeviceOp for Reshaped<O>
where
    O: DeviceOp<Device = D, Pending = Tensor<T, D>, Output = Tensor<T, D>>,
{
    type Device = D;
    type Pending = Tensor<T, D>;
    type Output = Tensor<T, D>;

    fn execute(self, submission: &mut Submission<D>) -> Result<Tensor<T, D>, Error> {
        self.op.execute(submission)?.reshape(self.dims)
    }

    fn finish(tensor: Tensor<T, D>) -> Result<Tensor<T, D>, Error> {
        Ok(tensor)
    }

    fn entries(&self) -> u32 {
        self.op.entries()
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.op.poll_ready(context)
    }
}

device_op!([T, D, O] Reshaped<O>
where
    T: Element,
    D: Memory,
    O: DeviceOp<Device = D, Pending = Tensor<T, D>, Output = Tensor<T, D>>
);

/// See [`TensorOp::partition`].
#[must_use = "an operation does nothing until it is awaited or run"]
#[derive(Clone, Debug)]
pub struct Partitioned<O> {
    op: O,
    tile: Dims,
}

impl<T: Element, D: Memory, O> DeviceOp for Partitioned<O>
where
    O: DeviceOp<Device = D, Pending = Tensor<T, D>, Output = Tensor<T, D>>,
{
    type Device = D;
    type Pending = Partition<Tensor<T, D>>;
    type Output = Partition<Tensor<T, D>>;

    fn execute(self, submission: &mut Submission<D>) -> Result<Partition<Tensor<T, D>>, Error> {
        self.op.execute(submission)?.partition(self.tile)
    }

    fn finish(partition: Partition<Tensor<T, D>>) -> Result<Partition<Tensor<T, D>>, Error> {
        Ok(partition)
    }

    fn entries(&self) -> u32 {
        self.op.entries()
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        self.op.poll_ready(context)
    }
}

device_op!([T, D, O] Partitioned<O>
where
    T: Element,
    D: Memory,
    O: DeviceOp<Device = D, Pending = Tensor<T, D>, Output = Tensor<T, D>>
);
