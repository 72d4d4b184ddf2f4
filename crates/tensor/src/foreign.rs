//! Tensors of memory that somebody else has allocated.

use wakeline_core::{Error, within};
use wakeline_ops::Foreign;
use wakeline_ops::port::Memory;

use crate::block::Block;
use crate::dims::Dims;
use crate::element::Element;
use crate::layout::Layout;
use crate::tensor::Tensor;

impl<T: Element, D: Memory> Tensor<T, D> {
    /// A tensor of memory that somebody else has allocated, row by row from its first byte on. Whoever owns that is kept until the last use is done.
    ///
    /// ```
    /// use wakeline_core::Error;
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream, Storage, Submission, value, with_context};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// use wakeline_tensor::Tensor;
    /// # use std::sync::Arc;
    /// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
    /// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
    /// let lend = with_context(|submission: &mut Submission<SimDevice>| {
    ///     // What another library has allocated, and how it owns that.
    ///     let theirs = submission.stream().raw().alloc(12)?;
    ///     let owner = theirs.clone();
    ///     // SAFETY: it stays, and it was allocated in this stream.
    ///     unsafe { Storage::foreign(submission, theirs, 12, owner) }.map(value)
    /// });
    /// let tensor = Tensor::<u32, _>::from_foreign(lend.on(&runtime).sync()?, 3)?;
    /// let tensor = tensor.overwrite(vec![1, 2, 3]).on(&runtime).sync()?;
    /// assert_eq!(tensor.to_host().on(&runtime).sync()?, [1, 2, 3]);
    /// let theirs: wakeline_sim::SimMemory = tensor.give_back().map_err(|(_, error)| error)?;
    /// assert_eq!(theirs.len(), 12);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](wakeline_core::ErrorCode::InvalidShape), [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit): it is of more bytes than there are. What
    /// was lent is let go then.
    pub fn from_foreign(foreign: Foreign<D>, dims: impl Into<Dims>) -> Result<Self, Error> {
        let layout = Layout::rows(dims.into(), T::BYTES)?;
        let storage = foreign.into_storage();
        within("the length of a tensor, in bytes,", layout.count() * T::BYTES, 0, storage.len_bytes())?;
        Ok(Self::of(Block::of(storage), layout))
    }

    /// What owns its memory, of the type that it was handed in as. Nothing waits: where it is in use, await that first.
    ///
    /// # Errors
    ///
    /// With the tensor, as it was:
    /// - [`TensorShared`](wakeline_core::ErrorCode::TensorShared): somebody else names the memory.
    /// - [`StillInFlight`](wakeline_core::ErrorCode::StillInFlight): work that uses it is not known to be done; or its memory is not owned by an `O`.
    pub fn give_back<O: Send + Sync + 'static>(self) -> Result<O, (Self, Error)> {
        let (block, layout) = self.into_parts();
        block.into_owner().map_err(|(block, error)| (Self::of(block, layout), error))
    }
}
