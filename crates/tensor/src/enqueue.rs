//! The calls of the port, and the word that is given for each: the one place, next to kernels, where what may be done to memory is promised.
//!
//! What makes the promises hold:
//! 1. Device memory is reached by [`Submission::touch`] alone, which keeps it until the work is done and orders what else uses it.
//! 2. Pinned memory has one name, a [`Fresh`], while nothing in flight uses it; sending it or fetching into it has the submission keep it, and leaves at most a
//!    [`Landed`], which reads it, and is a [`Fresh`] again, once the work is done. Of work that is recorded in a graph that is once the graph and all its launches are
//!    gone; none of those writes it, for a fetch cannot be recorded.

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

/// How many entries of its stream's queue an operation takes that makes so many calls which use or allocate memory: these, and the event behind them.
pub(crate) const fn uses(calls: u32) -> u32 {
    if calls == 0 { 0 } else { calls.saturating_add(1) }
}

/// How many calls a copy takes from one layout to another of the same shape. None where they are not, or where there are more calls than a copy may take: that is an error.
pub(crate) fn copy_calls(from: &Layout, to: &Layout, bytes_each: usize) -> u32 {
    if from.dims() != to.dims() {
        return 0;
    }
    let calls = Plan::new(from, to, bytes_each).bounded().map_or(0, |plan| plan.calls());
    u32::try_from(calls).unwrap_or(u32::MAX)
}

/// The same between a layout and numbers that lie row by row. For one that does too it is one call.
pub(crate) fn rows_calls(of: &Layout, bytes_each: usize) -> u32 {
    Layout::rows(of.dims().clone(), bytes_each).map_or(0, |whole| copy_calls(of, &whole, bytes_each))
}

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

/// Pinned memory that nothing in flight uses: the host may write it until it is sent, and read it.
pub(crate) struct Fresh<D: Memory> {
    pinned: Arc<D::Pinned>,
}

impl<D: Memory> Fresh<D> {
    pub(crate) fn new(device: &D, len_bytes: usize) -> Result<Self, Error> {
        Ok(Self { pinned: Arc::new(device.pinned(len_bytes)?) })
    }

    pub(crate) fn read(&self, offset_bytes: usize, out: &mut [u8]) -> Result<(), Error> {
        // SAFETY: nothing in flight uses it.
        let promise = unsafe { Promise::new() };
        self.pinned.read(offset_bytes, out, promise)
    }

    pub(crate) fn write(&mut self, offset_bytes: usize, bytes: &[u8]) -> Result<(), Error> {
        // SAFETY: nothing in flight uses it, and this is its one name, which nobody else has meanwhile.
        let promise = unsafe { Promise::new() };
        self.pinned.write(offset_bytes, bytes, promise)
    }

    /// Sends its first bytes, row by row, to where numbers of a layout are, of so many bytes each.
    pub(crate) fn spread(
        self,
        submission: &mut Submission<D>,
        to: &Named<D>,
        bytes_each: usize,
    ) -> Result<Landed<D>, Error> {
        let whole = Layout::rows(to.layout.dims().clone(), bytes_each)?;
        let plan = Plan::new(&whole, &to.layout, bytes_each).bounded()?;
        let to = to.span(bytes_each);
        submission.retain_shared(&self.pinned);
        each(submission, &[to.storage.write()], &plan, |device, stream, from_offset, to_offset| {
            // SAFETY: 1 and 2 of the module.
            let promise = unsafe { Promise::new() };
            let (from, to) = (At::from(&*self.pinned).further(from_offset), to.at().further(to_offset));
            match plan.rows {
                Rows { len, count: 1, .. } => device.upload(stream, from, to, len, promise),
                rows => device.upload_rows(stream, from, to, rows, promise),
            }
        })?;
        Ok(Landed::landing(submission, self.pinned))
    }

    /// Sends its first bytes in rows.
    pub(crate) fn send_rows(
        self,
        submission: &mut Submission<D>,
        to: Span<'_, D>,
        rows: Rows,
    ) -> Result<(), Error> {
        within("the distance of two rows of a copy, in bytes,", rows.to_pitch, 0, PITCH_BYTES_MAX)?;
        submission.retain_shared(&self.pinned);
        submission.touch(&[to.storage.write()], |device, stream| {
            // SAFETY: 1 and 2 of the module.
            let promise = unsafe { Promise::new() };
            device.upload_rows(stream, At::from(&*self.pinned), to.at(), rows, promise)
        })
    }

    /// Sends its first bytes, which fill the span.
    pub(crate) fn send(self, submission: &mut Submission<D>, to: Span<'_, D>) -> Result<(), Error> {
        submission.retain_shared(&self.pinned);
        submission.touch(&[to.storage.write()], |device, stream| {
            // SAFETY: 1 and 2 of the module.
            let promise = unsafe { Promise::new() };
            device.upload(stream, At::from(&*self.pinned), to.at(), to.len_bytes, promise)
        })
    }

    /// Fetches a span into its first bytes.
    pub(crate) fn fetch(self, submission: &mut Submission<D>, from: Span<'_, D>) -> Result<Landed<D>, Error> {
        is_read_once(submission)?;
        submission.retain_shared(&self.pinned);
        submission.touch(&[from.storage.read()], |device, stream| {
            // SAFETY: 1 and 2 of the module.
            let promise = unsafe { Promise::new() };
            device.download(stream, from.at(), At::from(&*self.pinned), from.len_bytes, promise)
        })?;
        Ok(Landed::landing(submission, self.pinned))
    }

    /// Fetches numbers of a layout, of so many bytes each, by calls that [`gathers`](Self::gathers) has planned.
    pub(crate) fn gather(
        self,
        submission: &mut Submission<D>,
        from: &Named<D>,
        bytes_each: usize,
        plan: &Plan,
    ) -> Result<Landed<D>, Error> {
        is_read_once(submission)?;
        let from = from.span(bytes_each);
        submission.retain_shared(&self.pinned);
        each(submission, &[from.storage.read()], plan, |device, stream, from_offset, to_offset| {
            // SAFETY: 1 and 2 of the module.
            let promise = unsafe { Promise::new() };
            let (from, to) = (from.at().further(from_offset), At::from(&*self.pinned).further(to_offset));
            match plan.rows {
                Rows { len, count: 1, .. } => device.download(stream, from, to, len, promise),
                rows => device.download_rows(stream, from, to, rows, promise),
            }
        })?;
        Ok(Landed::landing(submission, self.pinned))
    }
}

/// A read to the host cannot be recorded in a graph: its memory is written again by each launch, while the host may read it.
fn is_read_once<D: Memory>(submission: &mut Submission<D>) -> Result<(), Error> {
    submission.not_recorded(
        &"a read to the host",
        &"read what it would have read behind a launch: `graph.launch().then(|()| tensor.to_host())`",
    )
}

/// How numbers of a layout, of so many bytes each, are fetched row by row.
///
/// # Errors
///
/// [`InvalidLimit`](ErrorCode::InvalidLimit) where that takes more than [`COPY_CALLS_MAX`](crate::COPY_CALLS_MAX) calls.
pub(crate) fn gathers(from: &Layout, bytes_each: usize) -> Result<Plan, Error> {
    let whole = Layout::rows(from.dims().clone(), bytes_each)?;
    Plan::new(from, &whole, bytes_each).bounded()
}

/// Pinned memory that work in flight may use.
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
    /// What was enqueued by now uses it, and nothing does that is enqueued later.
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
        self.check()?;
        // SAFETY: the only work that writes it has landed, and none is enqueued any more.
        let promise = unsafe { Promise::new() };
        self.pinned.read(offset_bytes, out, promise)
    }

    /// It, once the work is done.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub(crate) fn over(self) -> Result<Fresh<D>, Error> {
        self.check()?;
        Ok(Fresh { pinned: self.pinned })
    }

    fn check(&self) -> Result<(), Error> {
        if self.landed.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(Error::new(ErrorCode::StillInFlight, [&"pinned memory"]))
    }
}
