//! Who names memory of a device.
//!
//! Tensors, views, and operations that did not run yet share a block by its `Arc`: the count of that is how many names there are. Flights
//! keep the storage within, and so are no names.

use core::fmt;
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode};
use wakeline_ops::port::{At, Memory};
use wakeline_ops::{Storage, Submission};

use crate::layout::Layout;

/// The memory that tensors name.
pub(crate) struct Block<D: Memory> {
    storage: Arc<Storage<D>>,
}

impl<D: Memory> Block<D> {
    pub(crate) fn alloc(submission: &mut Submission<D>, len_bytes: usize) -> Result<Arc<Self>, Error> {
        Ok(Self::of(Storage::alloc(submission, len_bytes)?))
    }

    pub(crate) fn of(storage: Arc<Storage<D>>) -> Arc<Self> {
        Arc::new(Self { storage })
    }

    /// What owns its memory, where that is somebody else's and nothing of it is in use.
    pub(crate) fn into_owner<O: Send + Sync + 'static>(self: Arc<Self>) -> Result<O, (Arc<Self>, Error)> {
        if let Err(error) = self.named_by(1, "memory that is to be given back") {
            return Err((self, error));
        }
        let block = Arc::try_unwrap(self).map_err(|block| {
            let error = Error::new(ErrorCode::TensorShared, [&"memory that is to be given back", &1]);
            (block, error)
        })?;
        block.storage.into_owner::<O>().map_err(|storage| {
            let what = format!("memory that a `{}` owns", core::any::type_name::<O>());
            (Self::of(storage), Error::new(ErrorCode::StillInFlight, [&what]))
        })
    }

    #[inline]
    pub(crate) const fn storage(&self) -> &Arc<Storage<D>> {
        &self.storage
    }

    /// That nobody but so many names of one's own knows it.
    #[inline]
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

/// A part of memory of a device, as a name of it.
pub(crate) struct Named<D: Memory> {
    pub(crate) block: Arc<Block<D>>,
    pub(crate) layout: Layout,
}

impl<D: Memory> Named<D> {
    /// From its first number, of so many bytes, to behind the last.
    #[inline]
    pub(crate) fn span(&self, bytes_each: usize) -> Span<'_, D> {
        Span {
            storage: self.block.storage(),
            offset_bytes: self.layout.offset() * bytes_each,
            len_bytes: self.layout.extent() * bytes_each,
        }
    }
}

impl<D: Memory> fmt::Debug for Named<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Named").field("block", &self.block).field("layout", &self.layout).finish()
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

impl<'a, D: Memory> Span<'a, D> {
    /// What a call of the port is handed.
    #[inline]
    pub fn at(&self) -> At<'a, D::Buffer> {
        At { memory: self.storage.buffer(), offset_bytes: self.offset_bytes }
    }
}

impl<D: Memory> Copy for Span<'_, D> {}
