//! On how many threads a kernel runs, and how it is launched.

use wakeline_core::{Error, ErrorCode, within};

/// How a kernel is launched: on how many threads, in what groups, beside what.
///
/// ```
/// use wakeline_ops::port::Shape;
/// let shape = Shape::new([8, 1, 1], [128, 1, 1]).shared_bytes(64 << 10).cluster([2, 1, 1]);
/// assert_eq!(shape.thread_count(), 1_024);
/// // Of enough blocks of 256 threads for a thousand numbers, one each:
/// assert_eq!(Shape::linear(1_000, 256).blocks, [4, 1, 1]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Shape {
    /// Blocks, in three dimensions.
    pub blocks: [u32; 3],
    /// Threads of a block, in three dimensions.
    pub threads: [u32; 3],
    /// Bytes of shared memory a block, beyond what the kernel itself says.
    pub shared_bytes: u32,
    /// Blocks of a cluster, in three dimensions: they run at one time and see each other's shared memory. `None` leaves it to the kernel.
    pub cluster: Option<[u32; 3]>,
    /// All blocks run at one time, so that they can wait for each other.
    pub cooperative: bool,
    /// It may begin before the kernel in front of it in its stream has ended; the kernel itself waits where it needs that.
    pub overlapping: bool,
}

impl Shape {
    /// So many blocks of so many threads, and nothing special.
    pub const fn new(blocks: [u32; 3], threads: [u32; 3]) -> Self {
        Self { blocks, threads, shared_bytes: 0, cluster: None, cooperative: false, overlapping: false }
    }

    /// Blocks of `threads` threads in one dimension, as many as give each of `count` numbers a thread; at least one. More than a `u32` has are
    /// [`u32::MAX`], which no device takes; so are those of blocks without threads.
    pub const fn linear(count: usize, threads: u32) -> Self {
        // No wider on any target.
        let threads_wide = if threads == 0 { 1 } else { threads as usize };
        let blocks = count.div_ceil(threads_wide);
        let blocks = if blocks > u32::MAX as usize {
            u32::MAX
        } else if blocks == 0 {
            1
        } else {
            #[expect(clippy::cast_possible_truncation, reason = "it is no more than a u32 has")]
            let blocks = blocks as u32;
            blocks
        };
        Self::new([blocks, 1, 1], [threads, 1, 1])
    }

    /// The same with so much shared memory a block, beyond what the kernel itself says.
    #[must_use]
    pub const fn shared_bytes(self, bytes: u32) -> Self {
        Self { shared_bytes: bytes, ..self }
    }

    /// The same in clusters of so many blocks.
    #[must_use]
    pub const fn cluster(self, blocks: [u32; 3]) -> Self {
        Self { cluster: Some(blocks), ..self }
    }

    /// The same with all blocks at one time.
    #[must_use]
    pub const fn cooperative(self) -> Self {
        Self { cooperative: true, ..self }
    }

    /// The same, and it may begin before the kernel in front of it has ended.
    #[must_use]
    pub const fn overlapping(self) -> Self {
        Self { overlapping: true, ..self }
    }

    /// Whether it is launched as any kernel: no cluster, not cooperative, not overlapping.
    pub const fn is_plain(self) -> bool {
        self.cluster.is_none() && !self.cooperative && !self.overlapping
    }

    /// How many threads it has in all.
    pub const fn thread_count(self) -> u64 {
        count(self.blocks).saturating_mul(count(self.threads))
    }

    /// That a device of these limits can run it.
    ///
    /// # Errors
    ///
    /// - [`InvalidLimit`](ErrorCode::InvalidLimit): a size is zero or beyond the device's.
    /// - [`LaunchUnsupported`](ErrorCode::LaunchUnsupported): clusters that the blocks cannot be divided into.
    pub fn check(self, backend: &'static str, limits: &ShapeLimits) -> Result<(), Error> {
        const AXES: [char; 3] = ['x', 'y', 'z'];
        let sizes = |what: &str, sizes: [u32; 3], most: [u32; 3]| {
            let each = AXES.into_iter().zip(sizes.into_iter().zip(most));
            each.into_iter().try_for_each(|(axis, (size, most))| {
                within(&format!("{what} in {axis}"), size, 1, most).map(drop)
            })
        };
        sizes("the blocks of a launch", self.blocks, limits.blocks)?;
        sizes("the threads of a block", self.threads, limits.threads)?;
        within("the threads of a block", count(self.threads), 1, limits.block_threads.into())?;
        within("the bytes of shared memory of a block", self.shared_bytes, 0, limits.shared_bytes)?;
        let Some(cluster) = self.cluster else { return Ok(()) };
        within("the blocks of a cluster", count(cluster), 1, limits.cluster_blocks.into())?;
        for (axis, (blocks, cluster)) in AXES.into_iter().zip(self.blocks.into_iter().zip(cluster)) {
            if blocks % cluster.max(1) != 0 {
                let how = format!("in clusters of {cluster} blocks in {axis}");
                let why = format!("its {blocks} blocks there are no multiple of that");
                return Err(Error::new(ErrorCode::LaunchUnsupported, [&backend, &how, &why]));
            }
        }
        Ok(())
    }
}

/// What a device can run at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShapeLimits {
    /// Blocks in each dimension.
    pub blocks: [u32; 3],
    /// Threads of a block in each dimension.
    pub threads: [u32; 3],
    /// Threads of a block.
    pub block_threads: u32,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// Blocks of a cluster.
    pub cluster_blocks: u32,
}

const fn count(sizes: [u32; 3]) -> u64 {
    let [x, y, z] = sizes;
    (x as u64).saturating_mul(y as u64).saturating_mul(z as u64)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LIMITS: ShapeLimits = ShapeLimits {
        blocks: [2_147_483_647, 65_535, 65_535],
        threads: [1_024, 1_024, 64],
        block_threads: 1_024,
        shared_bytes: 232_448,
        cluster_blocks: 16,
    };

    #[test]
    fn each_size_has_its_limit() {
        let fine = Shape::new([2_147_483_647, 1, 1], [32, 32, 1]).shared_bytes(232_448);
        assert!(fine.check("sim", &LIMITS).is_ok());
        assert!(fine.is_plain());
        for (shape, says) in [
            (
                Shape::new([0, 1, 1], [1; 3]),
                "the blocks of a launch in x is 0, but must be from 1 to 2147483647",
            ),
            (
                Shape::new([1, 65_536, 1], [1; 3]),
                "the blocks of a launch in y is 65536, but must be from 1 to 65535",
            ),
            (Shape::new([1; 3], [1, 1, 65]), "the threads of a block in z is 65, but must be from 1 to 64"),
            (Shape::new([1; 3], [64, 32, 1]), "the threads of a block is 2048, but must be from 1 to 1024"),
            (fine.shared_bytes(232_449), "shared memory of a block is 232449, but must be from 0 to 232448"),
            (
                Shape::new([32, 1, 1], [1; 3]).cluster([32, 1, 1]),
                "the blocks of a cluster is 32, but must be from 1 to 16",
            ),
            (Shape::new([32, 1, 1], [1; 3]).cluster([0, 1, 1]), "the blocks of a cluster is 0"),
        ] {
            let error = shape.check("sim", &LIMITS).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidLimit);
            assert!(error.to_string().contains(says), "{error}");
        }
        let odd = Shape::new([3, 1, 1], [1; 3]).cluster([2, 1, 1]).check("sim", &LIMITS).unwrap_err();
        assert_eq!(odd.code(), ErrorCode::LaunchUnsupported);
        assert!(odd.to_string().contains("its 3 blocks there are no multiple of that"), "{odd}");
    }

    #[test]
    fn a_line_of_numbers_has_a_thread_each() {
        for (count, blocks) in [(0, 1), (1, 1), (256, 1), (257, 2), (usize::MAX, u32::MAX)] {
            assert_eq!(Shape::linear(count, 256), Shape::new([blocks, 1, 1], [256, 1, 1]), "{count}");
        }
        assert!(Shape::linear(5, 0).check("sim", &LIMITS).is_err());
    }
}
