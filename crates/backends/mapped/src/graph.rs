//! Graphs: work that is captured from a stream once and launched as one, any number of times.
//!
//! ```text
//!   capture(stream, keep, work)
//!      begin ─► work enqueues ─► end ─► instantiate ─► Graph ─launch─► ..
//!                    │ error, panic                      owns `keep`
//!                    └─► end all the same: the stream can be used again
//! ```
//!
//! Captures are of the calling thread alone: no other thread's calls can invalidate them, nor they another's.

use wakeline_core::Error;

use crate::context::Context;
use crate::driver::{RawExec, RawGraph, RawStream, WorkDriver};
use crate::error::CallError;
use crate::stream::Stream;

/// Captured work that can be launched as one, and `K`: what it needs to stay alive.
#[derive(Debug)]
pub struct Graph<D: WorkDriver, K = ()> {
    /// Dropped before what it uses is.
    runs: Executable<D>,
    keep: K,
}

/// What can be launched.
#[derive(Debug)]
pub(crate) struct Executable<D: WorkDriver> {
    pub(crate) context: Context<D>,
    pub(crate) raw: RawExec,
}

impl<D: WorkDriver, K> Graph<D, K> {
    /// Captures what `work` enqueues on `stream`, to be launched later; nothing of it runs now.
    ///
    /// The capture ends whatever comes of `work`: when it fails or panics, its work is thrown away and the stream is as before.
    /// While it runs the context is bound.
    ///
    /// # Errors
    ///
    /// What `work` returns; or [`Backend`](wakeline_core::ErrorCode::Backend): the driver has no captures, the
    /// stream cannot be captured (the legacy default stream, one that is being captured) or the capture was invalidated, say by a wait for it.
    pub fn capture(
        stream: &Stream<D>,
        keep: K,
        work: impl FnOnce(&K) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let context = &stream.context();
        let driver = context.driver();
        let told = |error: CallError| context.told(error);
        let _bound = context.bind()?;
        // SAFETY: the context is bound, and the stream of it and borrowed.
        let capture = unsafe { Capture::begin(context, stream.raw()) }.map_err(told)?;
        work(&keep)?;
        let captured = capture.end().map_err(told)?;
        // SAFETY: the context is bound, and the graph was captured above.
        let raw = unsafe { driver.instantiate(captured.raw) }.map_err(told)?;
        Ok(Self { runs: Executable { context: context.clone(), raw }, keep })
    }

    /// Enqueues all of it on `stream`, behind what is there and behind its own last launch. Does not wait for the device, but for room in
    /// its queue.
    ///
    /// # Errors
    ///
    /// [`Backend`](wakeline_core::ErrorCode::Backend): the context has failed, or the like.
    ///
    /// # Safety
    ///
    /// - `stream` is alive and of the context of the capture.
    /// - What was captured is sound to run now, and neither the graph nor what it keeps is dropped or used otherwise until it is done.
    pub unsafe fn launch(&mut self, stream: RawStream) -> Result<(), Error> {
        let Executable { context, raw } = &self.runs;
        let _bound = context.bind()?;
        // SAFETY: the context is bound, the graph is alive and no other thread's, by `&mut`; the rest is as the caller says.
        let launched = unsafe { context.driver().graph_launch(*raw, stream) };
        launched.map_err(|error| context.told(error))
    }

    /// The driver's handle of what is launched, for calls of the caller's own.
    pub fn raw(&self) -> RawExec {
        self.runs.raw
    }

    /// What it keeps alive.
    pub fn kept(&self) -> &K {
        &self.keep
    }
}

impl<D: WorkDriver> Drop for Executable<D> {
    fn drop(&mut self) {
        let Some(_bound) = self.context.bind_in_drop() else { return };
        // SAFETY: the context is bound, the graph was made here and is destroyed once; the driver lets a launch of it end.
        if let Err(error) = unsafe { self.context.driver().exec_destroy(self.raw) } {
            self.context.failed_in_drop(&error);
        }
    }
}

/// A capture under way, which ends when this is dropped. The context is bound for as long.
struct Capture<'c, D: WorkDriver> {
    context: &'c Context<D>,
    stream: RawStream,
    ended: bool,
}

impl<'c, D: WorkDriver> Capture<'c, D> {
    /// # Safety
    ///
    /// The stream is alive and of the bound context, for as long as the value lives.
    unsafe fn begin(context: &'c Context<D>, stream: RawStream) -> Result<Self, CallError> {
        // SAFETY: the context is bound and the stream alive, says the caller.
        unsafe { context.driver().capture_begin(stream) }?;
        Ok(Self { context, stream, ended: false })
    }

    fn end(mut self) -> Result<Captured<D>, CallError> {
        let captured = self.end_now()?;
        self.ended = true;
        Ok(captured)
    }

    fn end_now(&self) -> Result<Captured<D>, CallError> {
        // SAFETY: the context is bound, and the capture of this stream was begun here, on this thread.
        unsafe { Captured::end(self.context, self.stream) }
    }
}

impl<D: WorkDriver> Drop for Capture<'_, D> {
    fn drop(&mut self) {
        if !self.ended {
            // Whoever drops it has an error of its own to tell. Where that is of a first try to end it, which may have ended it all the
            // same, the second says that nothing is being captured.
            match self.end_now() {
                Err(error) if !D::captures_nothing(&error) => self.context.failed_in_drop(&error),
                _ => {}
            }
        }
    }
}

/// A captured graph: what executables are made from.
#[derive(Debug)]
pub(crate) struct Captured<D: WorkDriver> {
    pub(crate) context: Context<D>,
    pub(crate) raw: RawGraph,
}

impl<D: WorkDriver> Captured<D> {
    /// Ends a capture.
    ///
    /// # Safety
    ///
    /// The context is bound, the stream alive and of it, and its capture was begun on this thread.
    pub(crate) unsafe fn end(context: &Context<D>, stream: RawStream) -> Result<Self, CallError> {
        // SAFETY: as the caller says.
        let raw = unsafe { context.driver().capture_end(stream) }?;
        Ok(Self { context: context.clone(), raw })
    }
}

impl<D: WorkDriver> Drop for Captured<D> {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        let Some(_bound) = self.context.bind_in_drop() else { return };
        // SAFETY: the context is bound; it was captured here, and nobody else has it.
        if let Err(error) = unsafe { self.context.driver().graph_destroy(self.raw) } {
            self.context.failed_in_drop(&error);
        }
    }
}
