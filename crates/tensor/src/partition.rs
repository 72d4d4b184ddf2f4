//! Partitions: a tensor cut into tiles, for a kernel whose blocks each write one.

use core::fmt;

use wakeline_core::Error;
use wakeline_ops::port::Memory;

use crate::block::Span;
use crate::dims::Dims;
use crate::element::Element;
use crate::tensor::Tensor;

/// What can be cut into tiles: a tensor, which is given away for as long as it is, and `&mut` of one, which is written in place and given back.
///
/// ```
/// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// use wakeline_tensor::{IntoPartition, Tensor};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
/// let mut tensor = Tensor::<f32, _>::zeros([100, 64]).on(&runtime).sync()?;
/// let tiles = (&mut tensor).partition([32, 64])?;
/// assert_eq!(tiles.grid(), [4, 1].into());
/// assert_eq!(tiles.tile_at(&[3, 0]).unwrap().dims, [4, 64].into()); // what is left for the last row of them
/// let tiles = tensor.partition([50, 50])?;
/// assert_eq!(tiles.grid(), [2, 2].into());
/// assert_eq!(tiles.unpartition().shape(), [100, 64]);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
///
/// A tensor that is being written in tiles cannot be used meanwhile:
///
/// ```compile_fail,E0502
/// use wakeline_sim::SimDevice;
/// use wakeline_tensor::{IntoPartition, Tensor};
/// fn both(mut tensor: Tensor<f32, SimDevice>) {
///     let tiles = (&mut tensor).partition([32]).unwrap();
///     let read = tensor.to_host(); // it is lent
///     drop(tiles);
/// }
/// ```
///
/// ```compile_fail,E0382
/// use wakeline_sim::SimDevice;
/// use wakeline_tensor::{IntoPartition, Tensor};
/// fn both(tensor: Tensor<f32, SimDevice>) {
///     let tiles = tensor.partition([32]).unwrap();
///     let read = tensor.to_host(); // it was given away
/// }
/// ```
pub trait IntoPartition: Sized {
    /// What the tensor is of.
    type Element: Element;
    /// Where it is.
    type Device: Memory;

    /// The tensor.
    fn tensor(&self) -> &Tensor<Self::Element, Self::Device>;

    /// Cuts it into tiles of this shape.
    ///
    /// # Errors
    ///
    /// - [`InvalidShape`](wakeline_core::ErrorCode::InvalidShape): the tile has another number of dimensions than the tensor, or is empty.
    /// - [`TensorShared`](wakeline_core::ErrorCode::TensorShared): a clone, a view or an operation that did not run yet names the same memory, and
    ///   would see it change. What is in flight does not count: it is ordered.
    fn partition(self, tile: impl Into<Dims>) -> Result<Partition<Self>, Error> {
        let tile = tile.into();
        let dims = self.tensor().layout().dims();
        if tile.rank() != dims.rank() {
            let (is, wanted) = (tile.rank(), dims.rank());
            return Err(tile.invalid(&format!("a tile of {is} dimension(s) for a tensor {dims} of {wanted}")));
        }
        if let Some(axis) = tile.iter().position(|len| *len == 0) {
            return Err(
                tile.invalid(&format!("a tile must be at least 1 long, but is 0 along dimension {axis}"))
            );
        }
        self.tensor().block().named_by(1, "a tensor that is to be written in tiles")?;
        Ok(Partition { of: self, tile })
    }
}

impl<T: Element, D: Memory> IntoPartition for Tensor<T, D> {
    type Element = T;
    type Device = D;

    fn tensor(&self) -> &Self {
        self
    }
}

impl<T: Element, D: Memory> IntoPartition for &mut Tensor<T, D> {
    type Element = T;
    type Device = D;

    fn tensor(&self) -> &Tensor<T, D> {
        self
    }
}

/// A tensor cut into tiles; see [`IntoPartition`].
///
/// Tiles are numbered along each dimension from 0 on. Where the length of a dimension is no multiple of the tile's, the last tile along it is shorter, and
/// the [grid](Self::grid) counts it: the length by the tile's, rounded up. A tensor without a number has no tile. Where the tile is longer than the
/// tensor there is one, as long as the tensor.
pub struct Partition<B> {
    of: B,
    tile: Dims,
}

/// One tile of a [`Partition`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Tile {
    /// Where it begins, along each dimension.
    pub start: Dims,
    /// How long it is.
    pub dims: Dims,
}

impl<B: IntoPartition> Partition<B> {
    /// How many tiles there are along each dimension.
    pub fn grid(&self) -> Dims {
        self.shape().iter().zip(self.tile.iter()).map(|(len, tile)| len.div_ceil(*tile)).collect()
    }

    /// How many tiles there are.
    pub fn tiles(&self) -> usize {
        // No more than numbers, whose count did not overflow: a grid without a 0 is of a shape without one.
        let grid = self.grid();
        if grid.contains(&0) { 0 } else { grid.iter().product() }
    }

    /// How long a tile is that is not the last along any dimension.
    pub const fn tile(&self) -> &Dims {
        &self.tile
    }

    /// Where the tile of this number is, and how long; `None` where there is none.
    pub fn tile_at(&self, number: &[usize]) -> Option<Tile> {
        let shape = self.shape();
        if number.len() != shape.len() {
            return None;
        }
        let starts = number.iter().zip(self.tile.iter()).map(|(number, tile)| number.checked_mul(*tile));
        let start: Dims = starts.collect::<Option<_>>()?;
        let left = shape
            .iter()
            .zip(start.iter())
            .map(|(len, start)| len.checked_sub(*start).filter(|left| *left > 0));
        let left: Dims = left.collect::<Option<_>>()?;
        let dims = left.iter().zip(self.tile.iter()).map(|(left, tile)| *left.min(tile)).collect();
        Some(Tile { start, dims })
    }

    /// How long the tensor is along each dimension.
    pub fn shape(&self) -> &[usize] {
        self.of.tensor().shape()
    }

    /// How far two neighbours along each dimension are apart, in numbers.
    pub fn strides(&self) -> &[usize] {
        self.of.tensor().strides()
    }

    /// Where its numbers lie: for kernels, and for operations of your own, which may write them.
    pub fn span(&self) -> Span<'_, B::Device> {
        self.of.tensor().span()
    }

    pub(crate) fn of_tensor(&self) -> &Tensor<B::Element, B::Device> {
        self.of.tensor()
    }

    /// The tensor, or the borrow of it.
    pub fn unpartition(self) -> B {
        self.of
    }
}

impl<B: IntoPartition> fmt::Debug for Partition<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition").field("of", self.of.tensor()).field("tile", &self.tile).finish()
    }
}
