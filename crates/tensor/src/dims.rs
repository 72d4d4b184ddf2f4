//! Shapes: how long a tensor is along each of its dimensions.

use core::fmt;
use core::ops::Deref;

use smallvec::SmallVec;
use wakeline_core::{Error, ErrorCode};

/// How many dimensions a tensor has at most.
pub const RANK_MAX: usize = 16;

/// How many are kept without an allocation.
const RANK_INLINE: usize = 4;

/// How many bytes a tensor has at most: what the address of a byte and its distance from any other can tell.
const BYTES_MAX: usize = isize::MAX.unsigned_abs();

/// One number for each dimension of a tensor.
pub(crate) type PerAxis = SmallVec<[usize; RANK_INLINE]>;

/// How long something is along each dimension, the outermost first. Up to four dimensions cost no allocation.
///
/// Made of a number (one dimension), an array, a slice or a vector. None at all is the shape of a single number.
///
/// ```
/// use wakeline_tensor::Dims;
/// let dims = Dims::from([2, 3]);
/// assert_eq!((dims.rank(), dims[1], dims.to_string()), (2, 3, "[2, 3]".to_owned()));
/// assert_eq!(dims.numbers(4)?, 6);
/// let error = Dims::from([usize::MAX, 2]).numbers(4).unwrap_err();
/// assert_eq!(error.code(), wakeline_core::ErrorCode::InvalidShape);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Dims(PerAxis);

impl Dims {
    /// How many dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// How many numbers a tensor of this shape has, each of so many bytes. None where any dimension is 0, however long the others.
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](ErrorCode::InvalidShape): more than [`RANK_MAX`] dimensions; or more bytes than can be counted, and where that begins.
    pub fn numbers(&self, bytes_each: usize) -> Result<usize, Error> {
        if self.rank() > RANK_MAX {
            let wrong = format!("it has {} dimensions, but there may be at most {RANK_MAX}", self.rank());
            return Err(self.invalid(&wrong));
        }
        if self.0.contains(&0) {
            return Ok(0);
        }
        let most = BYTES_MAX / bytes_each.max(1);
        let mut count = 1_usize;
        for (axis, len) in self.0.iter().enumerate() {
            count = count.checked_mul(*len).filter(|count| *count <= most).ok_or_else(|| {
                let wrong = format!(
                    "with dimension {axis} it has more numbers than memory can hold: at most {most} of {bytes_each} byte(s) each"
                );
                self.invalid(&wrong)
            })?;
        }
        Ok(count)
    }

    pub(crate) fn set(&mut self, axis: usize, len: usize) {
        if let Some(room) = self.0.get_mut(axis) {
            *room = len;
        }
    }

    pub(crate) fn remove(&mut self, axis: usize) {
        self.0.remove(axis);
    }

    /// An error about this shape: what is wrong, and what would be right.
    #[cold]
    pub(crate) fn invalid(&self, wrong: &str) -> Error {
        Error::new(ErrorCode::InvalidShape, [self, &wrong])
    }
}

impl Deref for Dims {
    type Target = [usize];

    #[inline]
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

impl fmt::Debug for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<usize> for Dims {
    /// One dimension.
    fn from(len: usize) -> Self {
        Self([len].into_iter().collect())
    }
}

impl<const N: usize> From<[usize; N]> for Dims {
    fn from(dims: [usize; N]) -> Self {
        Self(dims.into_iter().collect())
    }
}

impl From<&[usize]> for Dims {
    fn from(dims: &[usize]) -> Self {
        Self(SmallVec::from_slice(dims))
    }
}

impl From<Vec<usize>> for Dims {
    fn from(dims: Vec<usize>) -> Self {
        Self(SmallVec::from_vec(dims))
    }
}

impl From<&Self> for Dims {
    fn from(dims: &Self) -> Self {
        dims.clone()
    }
}

impl FromIterator<usize> for Dims {
    fn from_iter<I: IntoIterator<Item = usize>>(dims: I) -> Self {
        Self(dims.into_iter().collect())
    }
}
