//! Who names memory of a device.
//!
//! Tensors, views, and operations that did not run yet share a block by its `Arc`: the count of that is how many names there are. Flights
//! keep the storage within, and so are no names.

use core::fmt;
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode};
use wakeline_ops::port::{At, Memory};
use wakeline_ops::{Storage, Submission};

/// The memory that tensors name.
pub(crate) struct Block<D: Memory> {
    storage: Arc<Storage<D>>,
}

impl<D: Memory> Block<D> {
    pub(crate) fn alloc(submission: &mut Submission<D>, len_bytes: usize) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self { storage: Storage::alloc(submission, len_bytes)? }))
    }

    pub(crate) const fn storage(&self) -> &Arc<Storage<D>> {
        &self.storage
    }

    /// That nobody but so many names of one's own knows it.
    pub(crate) fn named_by(self: &Arc<Self>, own: usize, what: &str) -> Result<(), Error> {
        let others = Arc::strong_count(self).saturating_sub(own);
        if others == 0 {
            return Ok(());
        }
        Err(Error::new(ErrorCode::TensorShared, [&what, &others]))
    }
}

impl<D: Memory> fmt::Debug for Block<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.storage.fmt(f)
    }
}

/// Where in memory of a device something lies: what an operation of your own hands to [`Submission::touch`].
///
/// It borrows a tensor or a partition, and names no memory by itself.
#[derive(Clone, Debug)]
pub struct Span<'a, D: Memory> {
    /// The memory.
    pub storage: &'a Arc<Storage<D>>,
    /// Its first byte there.
    pub offset_bytes: usize,
    /// How many bytes there are from the first to behind the last; with gaps, where it is a view that leaves some out.
    pub len_bytes: usize,
}

impl<D: Memory> Span<'_, D> {
    /// What a call of the port is handed.
    pub fn at(&self) -> At<'_, D::Buffer> {
        At { memory: self.storage.buffer(), offset_bytes: self.offset_bytes }
    }
}

impl<D: Memory> Copy for Span<'_, D> {}
