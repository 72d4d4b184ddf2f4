//! What an operation that launches a kernel is given for a parameter that is a tensor, and what of it goes back.

use core::fmt;
use std::sync::Arc;

use wakeline_core::Error;
use wakeline_ops::port::Memory;
use wakeline_ops::{IntoDeviceOp, OfDevice, Value, value};

use super::sealed::Sealed;
use crate::block::{Block, Span};
use crate::dims::Dims;
use crate::element::Element;
use crate::partition::{IntoPartition, Partition};
use crate::tensor::Tensor;

/// A tensor that a kernel may read. Those that there are: what a launch touches rests on what they say.
pub trait Reads<T: Element, D: Memory>: Sealed + Send + 'static {
    /// What of it goes back to whoever handed it in.
    type Kept: Send + 'static;

    /// Where its numbers lie.
    fn span(&self) -> Span<'_, D>;

    /// How long it is.
    fn extent(&self) -> Extent<'_>;

    /// That it can be handed over by the address of its first number alone.
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](wakeline_core::ErrorCode::InvalidShape): its numbers do not lie row by row.
    fn plain(&self) -> Result<(), Error>;

    /// What goes back, once the kernel was launched.
    fn keep(self) -> Self::Kept;
}

/// A tensor that a kernel may write.
pub trait Writes<T: Element, D: Memory>: Reads<T, D> {
    /// That nobody but who handed it in names its memory.
    ///
    /// # Errors
    ///
    /// [`TensorShared`](wakeline_core::ErrorCode::TensorShared).
    fn alone(&self) -> Result<(), Error>;

    /// How many tiles there are along each dimension, where it is cut into such.
    fn grid(&self) -> Option<Dims> {
        None
    }

    /// How long a tile is along each dimension, where it is cut into such.
    fn tile(&self) -> Option<&Dims> {
        None
    }
}

/// What is written, in errors.
const WRITTEN: &str = "a tensor that a kernel is to write";

macro_rules! reads {
    ($($owned:ty: $this:ident => $tensor:expr;)+) => {$(
        impl<T: Element, D: Memory> Sealed for $owned {}

        impl<T: Element, D: Memory> Reads<T, D> for $owned {
            type Kept = Self;

            #[inline]
            fn span(&self) -> Span<'_, D> {
                let $this = self;
                $tensor.span()
            }

            #[inline]
            fn extent(&self) -> Extent<'_> {
                let $this = self;
                Extent { shape: $tensor.shape(), len: $tensor.len() }
            }

            #[inline]
            fn plain(&self) -> Result<(), Error> {
                let $this = self;
                if is_plain($tensor) { Ok(()) } else { Err(not_plain($tensor.shape())) }
            }

            #[inline]
            fn keep(self) -> Self {
                self
            }
        }
    )+};
}

reads! {
    Tensor<T, D>: this => this;
    Arc<Tensor<T, D>>: this => &**this;
    Partition<Tensor<T, D>>: this => this.of_tensor();
}

impl<T: Element, D: Memory> Writes<T, D> for Tensor<T, D> {
    #[inline]
    fn alone(&self) -> Result<(), Error> {
        self.block().named_by(1, WRITTEN)
    }
}

impl<T: Element, D: Memory> Writes<T, D> for Partition<Tensor<T, D>> {
    #[inline]
    fn alone(&self) -> Result<(), Error> {
        self.of_tensor().block().named_by(1, WRITTEN)
    }

    fn grid(&self) -> Option<Dims> {
        Some(Self::grid(self))
    }

    fn tile(&self) -> Option<&Dims> {
        Some(Self::tile(self))
    }
}

/// Another name of the memory of a tensor that is lent, and how it is cut. It is gone when the kernel was launched: what is in flight is no name.
pub struct Named<D: Memory> {
    block: Arc<Block<D>>,
    offset_bytes: usize,
    len_bytes: usize,
    shape: Dims,
    len: usize,
    is_plain: bool,
    tile: Option<Dims>,
}

impl<D: Memory> Named<D> {
    pub(super) fn of<T: Element>(tensor: &Tensor<T, D>) -> Self {
        let Span { offset_bytes, len_bytes, .. } = tensor.span();
        let (block, shape) = (Arc::clone(tensor.block()), Dims::from(tensor.shape()));
        Self {
            block,
            offset_bytes,
            len_bytes,
            shape,
            len: tensor.len(),
            is_plain: is_plain(tensor),
            tile: None,
        }
    }

    pub(super) fn of_tiles<B: IntoPartition<Device = D>>(tiles: &Partition<B>) -> Self {
        Self { tile: Some(Dims::from(&**tiles.tile())), ..Self::of(tiles.of_tensor()) }
    }
}

impl<D: Memory> fmt::Debug for Named<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Named").field("shape", &self.shape).field("tile", &self.tile).finish_non_exhaustive()
    }
}

impl<D: Memory> Sealed for Named<D> {}

impl<T: Element, D: Memory> Reads<T, D> for Named<D> {
    type Kept = ();

    #[inline]
    fn span(&self) -> Span<'_, D> {
        let Self { offset_bytes, len_bytes, .. } = *self;
        Span { storage: self.block.storage(), offset_bytes, len_bytes }
    }

    #[inline]
    fn extent(&self) -> Extent<'_> {
        Extent { shape: &self.shape, len: self.len }
    }

    #[inline]
    fn plain(&self) -> Result<(), Error> {
        if self.is_plain { Ok(()) } else { Err(not_plain(&self.shape)) }
    }

    #[inline]
    fn keep(self) {}
}

impl<T: Element, D: Memory> Writes<T, D> for Named<D> {
    /// That of the lender, who cannot use it meanwhile, and this.
    #[inline]
    fn alone(&self) -> Result<(), Error> {
        self.block.named_by(2, WRITTEN)
    }

    fn grid(&self) -> Option<Dims> {
        let tile = self.tile.as_ref()?;
        Some(self.shape.iter().zip(tile.iter()).map(|(len, tile)| len.div_ceil(*tile)).collect())
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
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent<'a> {
    shape: &'a [usize],
    len: usize,
}

impl<'a> Extent<'a> {
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

/// As its shape.
impl fmt::Debug for Extent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shape.fmt(f)
    }
}

/// Whether the numbers of a tensor lie row by row.
#[inline]
fn is_plain<T: Element, D: Memory>(tensor: &Tensor<T, D>) -> bool {
    let mut wanted = 1;
    let axes = tensor.shape().iter().zip(tensor.strides()).rev();
    tensor.is_empty()
        || axes.into_iter().all(|(len, stride)| {
            let fits = *len == 1 || *stride == wanted;
            // The product of all of them is a count that was checked.
            wanted *= len;
            fits
        })
}

#[cold]
fn not_plain(shape: &[usize]) -> Error {
    let wrong = "a kernel takes numbers that lie row by row, but those of this view do not; hand in a copy of it (`dup`)";
    Dims::from(shape).invalid(wrong)
}
