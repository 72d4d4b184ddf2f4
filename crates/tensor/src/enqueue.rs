//! The calls of the port, and the word that is given for each: the one place, next to kernels, where what may be done to memory is promised.
//!
//! What makes the promises hold:
//! 1. Device memory is reached by [`Submission::touch`] alone, which keeps it until the work is done and orders what else uses it.
//! 2. Pinned memory is new here, the submission keeps it, and nobody else has a name of it but [`Landed`], which reads once the work is done.

#![allow(unsafe_code)]

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wakeline_core::{Error, ErrorCode};
use wakeline_ops::Submission;
use wakeline_ops::port::{At, Memory, Pattern, Pinned, Promise};

use crate::block::Span;

/// Fills a span with a pattern, again and again. Its length is a multiple of the pattern's.
pub(crate) fn fill<D: Memory>(
    submission: &mut Submission<D>,
    to: Span<'_, D>,
    pattern: Pattern,
) -> Result<(), Error> {
    let count = to.len_bytes / pattern.bytes();
    submission.touch(&[to.storage.write()], |device, stream| {
        // SAFETY: 1 of the module.
        let promise = unsafe { Promise::new() };
        device.fill(stream, to.at(), pattern, count, promise)
    })
}

/// Copies a span to another as long, of other memory or of another part of it.
pub(crate) fn copy<D: Memory>(
    submission: &mut Submission<D>,
    from: Span<'_, D>,
    to: Span<'_, D>,
) -> Result<(), Error> {
    submission.touch(&[from.storage.read(), to.storage.write()], |device, stream| {
        // SAFETY: 1 of the module.
        let promise = unsafe { Promise::new() };
        device.copy(stream, from.at(), to.at(), from.len_bytes, promise)
    })
}

/// New pinned memory that the host may write until it is sent.
pub(crate) struct Fresh<D: Memory> {
    pinned: Arc<D::Pinned>,
}

impl<D: Memory> Fresh<D> {
    pub(crate) fn new(submission: &mut Submission<D>, len_bytes: usize) -> Result<Self, Error> {
        let pinned = Arc::new(submission.device().pinned(len_bytes)?);
        submission.retain_shared(&pinned);
        Ok(Self { pinned })
    }

    pub(crate) fn write(&mut self, offset_bytes: usize, bytes: &[u8]) -> Result<(), Error> {
        // SAFETY: nothing was enqueued that uses it, for `send` takes this; and this is its one name.
        let promise = unsafe { Promise::new() };
        self.pinned.write(offset_bytes, bytes, promise)
    }

    /// Sends its first bytes, which fill the span.
    pub(crate) fn send(self, submission: &mut Submission<D>, to: Span<'_, D>) -> Result<(), Error> {
        submission.touch(&[to.storage.write()], |device, stream| {
            // SAFETY: 1 and 2 of the module.
            let promise = unsafe { Promise::new() };
            device.upload(stream, At::from(&*self.pinned), to.at(), to.len_bytes, promise)
        })
    }
}

/// Bytes on their way to the host.
pub(crate) struct Landed<D: Memory> {
    pinned: Arc<D::Pinned>,
    landed: Arc<AtomicBool>,
}

impl<D: Memory> fmt::Debug for Landed<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Landed").field("landed", &self.landed).finish_non_exhaustive()
    }
}

/// Says that the work is done when its flight lets it go, and never where that leaks it.
struct Landing(Arc<AtomicBool>);

impl Drop for Landing {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl<D: Memory> Landed<D> {
    /// Fetches a span.
    pub(crate) fn fetch(submission: &mut Submission<D>, from: Span<'_, D>) -> Result<Self, Error> {
        let pinned = Arc::new(submission.device().pinned(from.len_bytes)?);
        submission.retain_shared(&pinned);
        submission.touch(&[from.storage.read()], |device, stream| {
            // SAFETY: 1 and 2 of the module.
            let promise = unsafe { Promise::new() };
            device.download(stream, from.at(), At::from(&*pinned), from.len_bytes, promise)
        })?;
        let landed = Arc::new(AtomicBool::new(false));
        submission.retain(Landing(Arc::clone(&landed)));
        Ok(Self { pinned, landed })
    }

    /// Reads its bytes from an offset on.
    ///
    /// # Errors
    ///
    /// [`StillInFlight`](ErrorCode::StillInFlight) where the device may still write them.
    pub(crate) fn read(&self, offset_bytes: usize, out: &mut [u8]) -> Result<(), Error> {
        if !self.landed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorCode::StillInFlight, [&"what is read back"]));
        }
        // SAFETY: the only work that writes it has landed, and none is enqueued any more.
        let promise = unsafe { Promise::new() };
        self.pinned.read(offset_bytes, out, promise)
    }
}
