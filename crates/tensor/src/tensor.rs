//! The tensor: memory of a device with a type and a shape.

use core::fmt;
use core::marker::PhantomData;
use std::sync::Arc;

use wakeline_core::Error;
use wakeline_ops::port::{Device, Memory};
use wakeline_ops::{IntoDeviceOp, Storage, Submission, Value, value};

use crate::block::{Block, Named, Span};
use crate::dims::Dims;
use crate::element::Element;
use crate::layout::Layout;

/// Numbers in memory of a device.
///
/// Operations on one tensor are ordered as they are submitted, whichever streams they run in: one that conflicts with another waits for
/// it on the device. Dropping it frees the memory once the device is done with it, and waits for nothing.
///
/// A clone is another name for the same numbers, not a copy of them, and costs a count. What writes a tensor wants it for itself: see
/// [`copy_to`](Self::copy_to), [`IntoPartition`](crate::IntoPartition).
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// use wakeline_tensor::Tensor;
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let watcher = VirtualWatcher::new(&device);
/// let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), watcher.clone())?;
/// let back = watcher.run(runtime.scope(async {
///     let from: Tensor<f32, SimDevice> = Tensor::from_host(vec![1.5, -2.0]).await?;
///     let to = from.copy_to(Tensor::full(2, 0.0).await?).await?; // each in a stream of its own
///     to.to_host().await
/// }))?;
/// assert_eq!(back?, [1.5, -2.0]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub struct Tensor<T, D: Memory> {
    block: Arc<Block<D>>,
    layout: Layout,
    element: PhantomData<fn() -> T>,
}

impl<T: Element, D: Memory> Tensor<T, D> {
    /// New memory for numbers of this layout, which begins with the memory.
    pub(crate) fn alloc(submission: &mut Submission<D>, layout: Layout) -> Result<Self, Error> {
        let block = Block::alloc(submission, layout.count() * T::BYTES)?;
        Ok(Self { block, layout, element: PhantomData })
    }

    /// The same numbers, in the same order, in another shape. Moves nothing.
    ///
    /// ```
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// use wakeline_tensor::Tensor;
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
    /// let tensor = Tensor::<f32, _>::zeros([4, 6]).on(&runtime).sync()?.reshape([2, 12])?;
    /// assert_eq!((tensor.shape(), tensor.strides()), (&[2, 12][..], &[12, 1][..]));
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](wakeline_core::ErrorCode::InvalidShape): it is of another number of numbers; or this is a view whose numbers do not lie row
    /// by row.
    pub fn reshape(self, dims: impl Into<Dims>) -> Result<Self, Error> {
        let layout = self.layout.reshaped(dims.into(), T::BYTES)?;
        Ok(self.with_layout(layout))
    }

    /// Where its numbers lie: for kernels, and for operations of your own.
    #[inline]
    pub fn span(&self) -> Span<'_, D> {
        Span {
            storage: self.block.storage(),
            offset_bytes: self.layout.offset() * T::BYTES,
            len_bytes: self.layout.extent() * T::BYTES,
        }
    }

    /// How many bytes its numbers have.
    pub fn len_bytes(&self) -> usize {
        self.layout.count() * T::BYTES
    }
}

impl<T, D: Memory> Tensor<T, D> {
    /// How many numbers it has.
    #[inline]
    pub const fn len(&self) -> usize {
        self.layout.count()
    }

    /// Whether it has none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.layout.count() == 0
    }

    /// How long it is along each dimension.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        self.layout.dims()
    }

    /// How far two neighbours along each dimension are apart, in numbers.
    #[inline]
    pub fn strides(&self) -> &[usize] {
        self.layout.strides()
    }

    /// Whether its numbers lie row by row, without a gap.
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// The memory that it names, together with others maybe.
    pub fn storage(&self) -> &Arc<Storage<D>> {
        self.block.storage()
    }

    #[inline]
    pub(crate) const fn block(&self) -> &Arc<Block<D>> {
        &self.block
    }

    #[inline]
    pub(crate) const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Another name, for an operation.
    pub(crate) fn named(&self) -> Named<D> {
        Named { block: Arc::clone(&self.block), layout: self.layout.clone() }
    }

    pub(crate) const fn of(block: Arc<Block<D>>, layout: Layout) -> Self {
        Self { block, layout, element: PhantomData }
    }

    pub(crate) fn into_parts(self) -> (Arc<Block<D>>, Layout) {
        (self.block, self.layout)
    }

    /// The same memory, in which numbers lie so.
    pub(crate) fn with_layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }
}

/// Another name for the same numbers.
impl<T, D: Memory> Clone for Tensor<T, D> {
    fn clone(&self) -> Self {
        Self { block: Arc::clone(&self.block), layout: self.layout.clone(), element: PhantomData }
    }
}

impl<T, D: Memory> fmt::Debug for Tensor<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("shape", self.layout.dims())
            .field("strides", &self.layout.strides())
            .field("block", &self.block)
            .finish()
    }
}

/// A tensor where an operation is expected.
impl<T: Element, D: Memory + Device> IntoDeviceOp<D> for Tensor<T, D> {
    type Op = Value<D, Self>;

    fn into_op(self) -> Value<D, Self> {
        value(self)
    }
}
