//! What an operation that launches a kernel is given for a parameter that is a tensor, and what of it goes back.

use std::sync::Arc;

use wakeline_core::Error;
use wakeline_ops::port::Memory;
use wakeline_ops::{IntoDeviceOp, OfDevice, Value, value};

use crate::dims::Dims;
use crate::element::Element;
use crate::partition::{IntoPartition, Partition};
use crate::tensor::Tensor;

/// A tensor that a kernel may read.
pub trait Reads<T: Element, D: Memory>: Send + 'static {
    /// What of it goes back to whoever handed it in.
    type Kept: Send + 'static;

    /// The tensor.
    fn tensor(&self) -> &Tensor<T, D>;

    /// What goes back, once the kernel was launched.
    fn keep(self) -> Self::Kept;
}

/// A tensor that a kernel may write.
pub trait Writes<T: Element, D: Memory>: Reads<T, D> {
    /// How many names of its memory are those of who handed it in.
    const NAMES: usize;

    /// How many tiles there are along each dimension, where it is cut into such.
    fn grid(&self) -> Option<Dims> {
        None
    }

    /// How long a tile is along each dimension, where it is cut into such.
    fn tile(&self) -> Option<&Dims> {
        None
    }
}

impl<T: Element, D: Memory> Reads<T, D> for Tensor<T, D> {
    type Kept = Self;

    fn tensor(&self) -> &Self {
        self
    }

    fn keep(self) -> Self {
        self
    }
}

impl<T: Element, D: Memory> Writes<T, D> for Tensor<T, D> {
    const NAMES: usize = 1;
}

impl<T: Element, D: Memory> Reads<T, D> for Arc<Tensor<T, D>> {
    type Kept = Self;

    fn tensor(&self) -> &Tensor<T, D> {
        self
    }

    fn keep(self) -> Self {
        self
    }
}

impl<T: Element, D: Memory> Reads<T, D> for Partition<Tensor<T, D>> {
    type Kept = Self;

    fn tensor(&self) -> &Tensor<T, D> {
        self.of_tensor()
    }

    fn keep(self) -> Self {
        self
    }
}

impl<T: Element, D: Memory> Writes<T, D> for Partition<Tensor<T, D>> {
    const NAMES: usize = 1;

    fn grid(&self) -> Option<Dims> {
        Some(Self::grid(self))
    }

    fn tile(&self) -> Option<&Dims> {
        Some(Self::tile(self))
    }
}

/// Another name of a tensor that is lent, and how it is cut. It is gone when the kernel was launched: what is in flight is no name.
pub struct Named<T: Element, D: Memory> {
    tensor: Tensor<T, D>,
    tile: Option<Dims>,
}

impl<T: Element, D: Memory> Named<T, D> {
    pub(super) fn of(tensor: &Tensor<T, D>) -> Self {
        Self { tensor: tensor.clone(), tile: None }
    }

    pub(super) fn of_tiles<B: IntoPartition<Element = T, Device = D>>(tiles: &Partition<B>) -> Self {
        Self { tensor: tiles.of_tensor().clone(), tile: Some(tiles.tile().clone()) }
    }
}

impl<T: Element, D: Memory> core::fmt::Debug for Named<T, D> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Named").field("tensor", &self.tensor).field("tile", &self.tile).finish()
    }
}

impl<T: Element, D: Memory> Reads<T, D> for Named<T, D> {
    type Kept = ();

    fn tensor(&self) -> &Tensor<T, D> {
        &self.tensor
    }

    fn keep(self) {}
}

impl<T: Element, D: Memory> Writes<T, D> for Named<T, D> {
    /// That of the lender, who cannot use it meanwhile, and this.
    const NAMES: usize = 2;

    fn grid(&self) -> Option<Dims> {
        let tile = self.tile.as_ref()?;
        Some(self.tensor.shape().iter().zip(tile.iter()).map(|(len, tile)| len.div_ceil(*tile)).collect())
    }

    fn tile(&self) -> Option<&Dims> {
        self.tile.as_ref()
    }
}

impl<T: Element, D: Memory> OfDevice for Tensor<T, D> {
    type Device = D;
}

/// A partition where an operation is expected.
impl<T: Element, D: Memory> IntoDeviceOp<D> for Partition<Tensor<T, D>> {
    type Op = Value<D, Self>;

    fn into_op(self) -> Value<D, Self> {
        value(self)
    }
}

/// How long a tensor is that a kernel takes: what conditions are about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Extent<'a> {
    shape: &'a [usize],
    len: usize,
}

impl<'a> Extent<'a> {
    pub(super) fn of<T: Element, D: Memory>(tensor: &'a Tensor<T, D>) -> Self {
        Self { shape: tensor.shape(), len: tensor.len() }
    }

    /// How many numbers it has.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How long it is along each dimension.
    pub const fn shape(&self) -> &'a [usize] {
        self.shape
    }
}

/// That a kernel can be handed the address of its first number alone.
pub(super) fn plain<T: Element, D: Memory>(tensor: &Tensor<T, D>) -> Result<(), Error> {
    if tensor.is_contiguous() {
        return Ok(());
    }
    let wrong = format!(
        "a kernel takes numbers that lie row by row, but those of this view have strides {:?}; hand in a copy of it",
        tensor.strides()
    );
    Err(tensor.layout().dims().invalid(&wrong))
}
