//! On how many threads a kernel runs, where its call does not say.

use wakeline_ops::port::Shape;

use super::input::Tiles;

/// How many threads a block has, where nothing else is said: no more than there are numbers for it.
pub const THREADS_DEFAULT: u32 = 256;

/// How a kernel is launched, as far as that is not for its arguments to say. A kernel is given one by the unsafe `with` of its type, since not all code does with
/// every number of threads, or without the shared memory that it was written for.
///
/// ```
/// use wakeline_tensor::LaunchConfig;
/// // As many blocks as there are tiles, or numbers for their threads; 128 threads each, 64 KiB of shared memory.
/// let config = LaunchConfig::new().threads([128, 1, 1]).shared_bytes(64 << 10);
/// // Just this.
/// let config = LaunchConfig::new().blocks([4, 1, 1]).threads([32, 8, 1]).cluster([2, 1, 1]);
/// # let _ = config;
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "it launches nothing by itself"]
pub struct LaunchConfig {
    blocks: Option<[u32; 3]>,
    threads: Option<[u32; 3]>,
    /// All else of it.
    shape: Shape,
}

impl Default for LaunchConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl LaunchConfig {
    /// A block for each tile of the first partition that is written; else one for each [`THREADS_DEFAULT`] numbers of the first tensor that is. A thread for
    /// each number of a tile, [`THREADS_DEFAULT`] at most.
    pub const fn new() -> Self {
        Self { blocks: None, threads: None, shape: Shape::new([1; 3], [1; 3]) }
    }

    /// So many blocks, whatever the arguments.
    pub const fn blocks(self, blocks: [u32; 3]) -> Self {
        Self { blocks: Some(blocks), ..self }
    }

    /// So many threads a block.
    pub const fn threads(self, threads: [u32; 3]) -> Self {
        Self { threads: Some(threads), ..self }
    }

    /// As [`Shape::shared_bytes`].
    pub const fn shared_bytes(self, bytes: u32) -> Self {
        Self { shape: self.shape.shared_bytes(bytes), ..self }
    }

    /// As [`Shape::cluster`].
    pub const fn cluster(self, blocks: [u32; 3]) -> Self {
        Self { shape: self.shape.cluster(blocks), ..self }
    }

    /// As [`Shape::cooperative`].
    pub const fn cooperative(self) -> Self {
        Self { shape: self.shape.cooperative(), ..self }
    }

    /// As [`Shape::overlapping`].
    pub const fn overlapping(self) -> Self {
        Self { shape: self.shape.overlapping(), ..self }
    }

    /// For a launch whose first tensor that is written is this, where one is. `None` where there is nothing to do: not a tile, not a number.
    ///
    /// # Errors
    ///
    /// More tiles along more dimensions than a launch has: the dimensions.
    #[inline]
    pub(super) fn shape(self, tiles: Option<&Tiles<'_>>) -> Result<Option<Shape>, usize> {
        let few = |numbers: usize| u32::try_from(numbers).unwrap_or(u32::MAX).clamp(1, THREADS_DEFAULT);
        let in_tile = tiles.map(|tiles| match tiles.tile {
            Some(tile) => tile.iter().fold(1, |all: usize, len| all.saturating_mul(*len)),
            None => tiles.len,
        });
        let threads = self.threads.unwrap_or_else(|| [in_tile.map_or(THREADS_DEFAULT, few), 1, 1]);
        let blocks = match (self.blocks, tiles) {
            (Some(blocks), _) => blocks,
            (None, Some(Tiles { grid: Some(grid), .. })) => {
                // The innermost dimension is x.
                let mut blocks = [1; 3];
                let (inner, outer) = (grid.iter().rev().take(3), grid.iter().rev().skip(3));
                for (room, count) in blocks.iter_mut().zip(inner) {
                    *room = u32::try_from(*count).unwrap_or(u32::MAX);
                }
                if grid.contains(&0) {
                    return Ok(None);
                }
                if outer.into_iter().any(|count| *count != 1) {
                    return Err(grid.len());
                }
                blocks
            }
            (None, Some(tiles)) if tiles.len == 0 => return Ok(None),
            (None, Some(tiles)) => {
                let [x, y, z] = threads;
                Shape::linear(tiles.len, x.saturating_mul(y).saturating_mul(z)).blocks
            }
            (None, None) => [1; 3],
        };
        let mut shape = self.shape;
        (shape.blocks, shape.threads) = (blocks, threads);
        Ok(Some(shape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dims::Dims;

    fn sizes(
        config: LaunchConfig,
        grid: Option<Dims>,
        tile: Option<&Dims>,
        len: usize,
    ) -> Option<([u32; 3], [u32; 3])> {
        let shape = config.shape(Some(&Tiles { grid, tile, len })).unwrap();
        shape.map(|shape| (shape.blocks, shape.threads))
    }

    #[test]
    fn a_block_for_each_tile_the_innermost_in_x() {
        let tile = Dims::from([4, 32]);
        let of = |grid: [usize; 2]| sizes(LaunchConfig::new(), Some(grid.into()), Some(&tile), 100);
        assert_eq!(of([3, 5]), Some(([5, 3, 1], [128, 1, 1])));
        assert_eq!(of([0, 5]), None);
        let large = Dims::from(1_000);
        assert_eq!(
            sizes(LaunchConfig::new(), Some(7.into()), Some(&large), 7_000),
            Some(([7, 1, 1], [256, 1, 1]))
        );
        let config = LaunchConfig::new().threads([64, 2, 1]);
        assert_eq!(sizes(config, Some([1, 2, 3, 4].into()), Some(&tile), 24), Some(([4, 3, 2], [64, 2, 1])));
        let tiles = Tiles { grid: Some([2, 2, 3, 4].into()), tile: Some(&tile), len: 48 };
        assert_eq!(LaunchConfig::new().shape(Some(&tiles)), Err(4));
        assert!(LaunchConfig::new().blocks([9, 1, 1]).shape(Some(&tiles)).unwrap().is_some());
    }

    #[test]
    fn a_thread_for_each_number_where_there_are_no_tiles() {
        assert_eq!(sizes(LaunchConfig::new(), None, None, 1_000), Some(([4, 1, 1], [256, 1, 1])));
        assert_eq!(sizes(LaunchConfig::new(), None, None, 10), Some(([1, 1, 1], [10, 1, 1])));
        assert_eq!(
            sizes(LaunchConfig::new().threads([32, 2, 1]), None, None, 1_000),
            Some(([16, 1, 1], [32, 2, 1]))
        );
        assert_eq!(sizes(LaunchConfig::new(), None, None, 0), None);
        let shape = LaunchConfig::new().shared_bytes(9).cooperative().shape(None).unwrap().unwrap();
        assert_eq!(shape, Shape::new([1; 3], [256, 1, 1]).shared_bytes(9).cooperative());
    }
}
