//! The calls of the port, and the word that is given for each: the one place, next to kernels, where what may be done to memory is promised.
//!
//! What makes the promises hold:
//! 1. Device memory is reached by [`Submission::touch`] alone, which keeps it until the work is done and orders what else uses it.
//! 2. Pinned memory is new here, the submission keeps it, and nobody else has a name of it but [`Landed`], which reads once the work is done.

#![allow(unsafe_code)]

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wakeline_core::{Error, ErrorCode, within};
use wakeline_ops::port::{At, Memory, Pattern, Pinned, Promise, Rows};
use wakeline_ops::{Submission, Touch};

use crate::block::{Named, Span};
use crate::layout::Layout;
use crate::plan::{PITCH_BYTES_MAX, Plan};

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

/// Copies a span to another as long, behind it in the same memory.
pub(crate) fn copy_on<D: Memory>(
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

/// Copies all numbers, of so many bytes each, to where those of another layout of the same shape are.
pub(crate) fn copy<D: Memory>(
    submission: &mut Submission<D>,
    from: &Named<D>,
    to: &Named<D>,
    bytes_each: usize,
) -> Result<(), Error> {
    let plan = Plan::new(&from.layout, &to.layout, bytes_each).bounded()?;
    let (from, to) = (from.span(bytes_each), to.span(bytes_each));
    let touches = [from.storage.read(), to.storage.write()];
    each(submission, &touches, &plan, |device, stream, from_offset, to_offset| {
        // SAFETY: 1 of the module.
        let promise = unsafe { Promise::new() };
        let (from, to) = (from.at().further(from_offset), to.at().further(to_offset));
        match plan.rows {
            Rows { len, count: 1, .. } => device.copy(stream, from, to, len, promise),
            rows => device.copy_rows(stream, from, to, rows, promise),
        }
    })
}

/// Makes the calls of a plan, each a use of these buffers by itself: so each is counted in its stream's queue, and where one fails those before it are ordered all
/// the same. What comes between two of them from another thread writes none of these buffers, unless by the unsafe `launch`: the operation that makes them is a name of each.
fn each<D: Memory>(
    submission: &mut Submission<D>,
    touches: &[Touch<'_, D>],
    plan: &Plan,
    call: impl Fn(&D, &D::Stream, usize, usize) -> Result<(), Error>,
) -> Result<(), Error> {
    plan.each(|from_offset, to_offset| {
        submission.touch(touches, |device, stream| call(device, stream, from_offset, to_offset))
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

    /// Sends its first bytes, row by row, to where numbers of a layout are, of so many bytes each.
    pub(crate) fn spread(
        self,
        submission: &mut Submission<D>,
        to: &Named<D>,
        bytes_each: usize,
    ) -> Result<(), Error> {
        let whole = Layout::rows(to.layout.dims().clone(), bytes_each)?;
        let plan = Plan::new(&whole, &to.layout, bytes_each).bounded()?;
        let to = to.span(bytes_each);
        each(submission, &[to.storage.write()], &plan, |device, stream, from_offset, to_offset| {
            // SAFETY: 1 and 2 of the module.
            let promise = unsafe { Promise::new() };
            let (from, to) = (At::from(&*self.pinned).further(from_offset), to.at().further(to_offset));
            match plan.rows {
                Rows { len, count: 1, .. } => device.upload(stream, from, to, len, promise),
                rows => device.upload_rows(stream, from, to, rows, promise),
            }
        })
    }

    /// Sends its first bytes in rows.
    pub(crate) fn send_rows(
        self,
        submission: &mut Submission<D>,
        to: Span<'_, D>,
        rows: Rows,
    ) -> Result<(), Error> {
        within("the distance of two rows of a copy, in bytes,", rows.to_pitch, 0, PITCH_BYTES_MAX)?;
        submission.touch(&[to.storage.write()], |device, stream| {
            // SAFETY: 1 and 2 of the module.
            let promise = unsafe { Promise::new() };
            device.upload_rows(stream, At::from(&*self.pinned), to.at(), rows, promise)
        })
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
        let pinned = Self::room(submission, from.len_bytes)?;
        submission.touch(&[from.storage.read()], |device, stream| {
            // SAFETY: 1 and 2 of the module.
            let promise = unsafe { Promise::new() };
            device.download(stream, from.at(), At::from(&*pinned), from.len_bytes, promise)
        })?;
        Ok(Self::landing(submission, pinned))
    }

    /// Fetches all numbers of a layout, of so many bytes each, row by row. `None` where that takes too many calls.
    pub(crate) fn gather(
        submission: &mut Submission<D>,
        from: &Named<D>,
        bytes_each: usize,
    ) -> Result<Option<Self>, Error> {
        let whole = Layout::rows(from.layout.dims().clone(), bytes_each)?;
        let Ok(plan) = Plan::new(&from.layout, &whole, bytes_each).bounded() else { return Ok(None) };
        let from = from.span(bytes_each);
        let pinned = Self::room(submission, whole.count() * bytes_each)?;
        each(submission, &[from.storage.read()], &plan, |device, stream, from_offset, to_offset| {
            // SAFETY: 1 and 2 of the module.
            let promise = unsafe { Promise::new() };
            let (from, to) = (from.at().further(from_offset), At::from(&*pinned).further(to_offset));
            match plan.rows {
                Rows { len, count: 1, .. } => device.download(stream, from, to, len, promise),
                rows => device.download_rows(stream, from, to, rows, promise),
            }
        })?;
        Ok(Some(Self::landing(submission, pinned)))
    }

    fn room(submission: &mut Submission<D>, len_bytes: usize) -> Result<Arc<D::Pinned>, Error> {
        let pinned = Arc::new(submission.device().pinned(len_bytes)?);
        submission.retain_shared(&pinned);
        Ok(pinned)
    }

    /// What was enqueued by now writes it, and nothing does that is enqueued later.
    fn landing(submission: &mut Submission<D>, pinned: Arc<D::Pinned>) -> Self {
        let landed = Arc::new(AtomicBool::new(false));
        submission.retain(Landing(Arc::clone(&landed)));
        Self { pinned, landed }
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
