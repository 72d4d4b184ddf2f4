//! What collectives read and write.

use core::fmt;
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode};

use crate::hazard::Storage;
use crate::port::{At, Memory, Number};

/// Where numbers lie, one behind the other.
#[derive(Debug)]
pub struct Region<'a, D: Memory> {
    /// The memory.
    pub storage: &'a Arc<Storage<D>>,
    /// The first byte there.
    pub offset_bytes: usize,
    /// How many numbers.
    pub count: usize,
    /// Of what.
    pub number: Number,
}

#[expect(clippy::expl_impl_clone_on_copy, reason = "a derive would ask for a device that is `Copy`")]
impl<D: Memory> Clone for Region<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Memory> Copy for Region<'_, D> {}

impl<'a, D: Memory> Region<'a, D> {
    /// So many of its numbers, from this one on. Within it.
    pub(crate) const fn part(self, first: usize, count: usize) -> Self {
        Self { offset_bytes: self.offset_bytes + first * self.number.bytes(), count, ..self }
    }

    pub(crate) fn at(&self) -> At<'a, D::Buffer> {
        At { memory: self.storage.buffer(), offset_bytes: self.offset_bytes }
    }

    const fn len_bytes(&self) -> usize {
        self.count.saturating_mul(self.number.bytes())
    }

    /// That it lies within its memory, and begins where a number may.
    pub(crate) fn check(&self, what: &str) -> Result<(), Error> {
        let (has, end) = (self.storage.len_bytes(), self.offset_bytes.saturating_add(self.len_bytes()));
        let wrong = if end > has {
            format!(
                "{} {:?} from byte {} on end at byte {end}, but the memory has {has}",
                self.count, self.number, self.offset_bytes
            )
        } else if !self.offset_bytes.is_multiple_of(self.number.bytes()) {
            format!(
                "{:?} begin at byte {}, which is no multiple of their length",
                self.number, self.offset_bytes
            )
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorCode::InvalidCollective, [&what, &wrong]))
    }

    /// Whether the two have bytes in common.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let (start, end) = (self.offset_bytes, self.offset_bytes.saturating_add(self.len_bytes()));
        let (others, its_end) = (other.offset_bytes, other.offset_bytes.saturating_add(other.len_bytes()));
        Arc::ptr_eq(self.storage, other.storage) && start < its_end && others < end
    }
}

/// What a collective may be handed: a tensor of `wakeline-tensor`, or [`Numbers`] of memory of your own.
pub trait CollectiveMemory<D: Memory>: Send + 'static {
    /// Where it lies, to be read.
    ///
    /// # Errors
    ///
    /// Its numbers do not lie one behind the other.
    fn region(&self) -> Result<Region<'_, D>, Error>;

    /// Where it lies, to be written. MUST fail where others name it who would not expect that.
    ///
    /// # Errors
    ///
    /// As [`region`](Self::region), and that others name it.
    fn region_to_write(&self) -> Result<Region<'_, D>, Error>;
}

/// To be read, as others who have it do; written where nobody else has it.
impl<D: Memory, M: CollectiveMemory<D> + Sync> CollectiveMemory<D> for Arc<M> {
    fn region(&self) -> Result<Region<'_, D>, Error> {
        (**self).region()
    }

    fn region_to_write(&self) -> Result<Region<'_, D>, Error> {
        let others = Self::strong_count(self).saturating_sub(1);
        if others > 0 {
            return Err(Error::new(ErrorCode::TensorShared, [&"memory that a collective writes", &others]));
        }
        (**self).region_to_write()
    }
}

/// Numbers in memory of a runtime.
///
/// ```
/// use wakeline_ops::{Numbers, Storage, port::Number};
/// fn all_of(storage: std::sync::Arc<Storage<wakeline_sim::SimDevice>>) -> Numbers<wakeline_sim::SimDevice> {
///     let count = storage.len_bytes() / 4;
///     Numbers { storage, offset_bytes: 0, count, number: Number::F32 }
/// }
/// # let _ = all_of;
/// ```
pub struct Numbers<D: Memory> {
    /// The memory.
    pub storage: Arc<Storage<D>>,
    /// The first byte there.
    pub offset_bytes: usize,
    /// How many numbers.
    pub count: usize,
    /// Of what.
    pub number: Number,
}

impl<D: Memory> CollectiveMemory<D> for Numbers<D> {
    fn region(&self) -> Result<Region<'_, D>, Error> {
        let Self { storage, offset_bytes, count, number } = self;
        Ok(Region { storage, offset_bytes: *offset_bytes, count: *count, number: *number })
    }

    /// Whoever has the memory knows who else uses it; their uses are ordered.
    fn region_to_write(&self) -> Result<Region<'_, D>, Error> {
        self.region()
    }
}

impl<D: Memory> Clone for Numbers<D> {
    fn clone(&self) -> Self {
        Self { storage: Arc::clone(&self.storage), ..*self }
    }
}

impl<D: Memory> fmt::Debug for Numbers<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Numbers")
            .field("storage", &self.storage)
            .field("offset_bytes", &self.offset_bytes)
            .field("count", &self.count)
            .field("number", &self.number)
            .finish()
    }
}
