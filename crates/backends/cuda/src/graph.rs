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

use core::ptr;

use wakeline_core::Error;
use wakeline_mapped::driver::RawStream;
use wakeline_mapped::error::CallError;
use wakeline_mapped::{Context, Stream};

use crate::cuda::Cuda;
use crate::sys::{CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CUDA_ERROR_ILLEGAL_STATE, Handle};

/// Captured work that can be launched as one, and `K`: what it needs to stay alive.
///
/// ```no_run
/// # use wakeline_cuda::{Cuda, DeviceBuffer, Graph, HostBuffer};
/// # let context = Cuda::load()?.context(0)?;
/// let stream = context.stream()?;
/// let (mut host, device) = (HostBuffer::new(&context, 4_096)?, DeviceBuffer::new(&context, 4_096)?);
/// host.as_mut_slice().fill(1);
/// let mut graph = Graph::capture(&stream, (host, device), |(host, device)| {
///     // SAFETY: the stream is alive; the graph owns both buffers.
///     unsafe { device.copy_from(stream.raw(), host) }
/// })?;
/// // SAFETY: the stream is alive, and the graph not dropped before the copy is done.
/// unsafe { graph.launch(stream.raw()) }?;
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Graph<K = ()> {
    /// Dropped before what it uses is.
    runs: Executable,
    keep: K,
}

/// What can be launched. Destroyed when it is dropped; what was launched goes on.
#[derive(Debug)]
pub(crate) struct Executable {
    pub(crate) context: Context<Cuda>,
    pub(crate) raw: Handle,
}

impl<K> Graph<K> {
    /// Captures what `work` enqueues on `stream`, to be launched later; nothing of it runs now.
    ///
    /// The capture ends whatever comes of `work`: when it fails or panics, its work is thrown away and the stream is as before.
    /// While it runs the context is bound.
    ///
    /// # Errors
    ///
    /// What `work` returns; or [`Backend`](wakeline_core::ErrorCode::Backend): the driver lacks [`Caps::GRAPHS`](crate::Caps::GRAPHS), the
    /// stream cannot be captured (the legacy default stream, one that is being captured) or the capture was invalidated, say by a wait for it.
    pub fn capture(
        stream: &Stream<Cuda>,
        keep: K,
        work: impl FnOnce(&K) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let context = &stream.context();
        let cuda = context.driver();
        let instantiate = cuda
            .symbols()
            .cuGraphInstantiateWithFlags
            .ok_or_else(|| cuda.absent("cuGraphInstantiateWithFlags"))?;
        let told = |error: CallError| context.told(error);
        let _bound = context.bind()?;
        // SAFETY: the context is bound, and the stream of it and borrowed.
        let capture = unsafe { Capture::begin(context, stream.raw()) }.map_err(told)?;
        work(&keep)?;
        let captured = capture.end().map_err(told)?;
        let mut raw = ptr::null_mut();
        // SAFETY: the context is bound, and the graph was captured above.
        let status = unsafe { instantiate(&raw mut raw, captured.raw.0, 0) };
        cuda.check("cuGraphInstantiateWithFlags", status).map_err(told)?;
        Ok(Self { runs: Executable { context: context.clone(), raw: Handle(raw) }, keep })
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
        let cuda = context.driver();
        let launch = cuda.symbols().cuGraphLaunch.ok_or_else(|| cuda.absent("cuGraphLaunch"))?;
        let _bound = context.bind()?;
        // SAFETY: the context is bound, the graph is alive and no other thread's, by `&mut`; the rest is as the caller says.
        let status = unsafe { launch(raw.0, stream.as_ptr()) };
        cuda.check("cuGraphLaunch", status).map_err(|error| context.told(error))
    }

    pub(crate) const fn raw(&self) -> Handle {
        self.runs.raw
    }

    /// What it keeps alive.
    pub fn kept(&self) -> &K {
        &self.keep
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        let cuda = self.context.driver();
        let Some(destroy) = cuda.symbols().cuGraphExecDestroy else { return };
        let Some(_bound) = self.context.bind_in_drop() else { return };
        // SAFETY: the context is bound, the graph was made here and is destroyed once; the driver lets a launch of it end.
        let status = unsafe { destroy(self.raw.0) };
        if let Err(error) = cuda.check("cuGraphExecDestroy", status) {
            self.context.failed_in_drop(&error);
        }
    }
}

/// A capture under way, which ends when this is dropped. The context is bound for as long.
struct Capture<'c> {
    context: &'c Context<Cuda>,
    stream: RawStream,
    ended: bool,
}

impl<'c> Capture<'c> {
    /// # Safety
    ///
    /// The stream is alive and of the bound context, for as long as the value lives.
    unsafe fn begin(context: &'c Context<Cuda>, stream: RawStream) -> Result<Self, CallError> {
        // SAFETY: as the caller says.
        unsafe { begin(context, stream) }?;
        Ok(Self { context, stream, ended: false })
    }

    fn end(mut self) -> Result<Captured, CallError> {
        let captured = self.end_now()?;
        self.ended = true;
        Ok(captured)
    }

    fn end_now(&self) -> Result<Captured, CallError> {
        // SAFETY: the context is bound, and the capture of this stream was begun here, on this thread.
        unsafe { end(self.context, self.stream) }
    }
}

/// Begins a capture of the calling thread's.
///
/// # Safety
///
/// The context is bound, and the stream alive and of it.
pub(crate) unsafe fn begin(context: &Context<Cuda>, stream: RawStream) -> Result<(), CallError> {
    let cuda = context.driver();
    let begin = cuda.symbols().cuStreamBeginCapture.ok_or_else(|| cuda.absent("cuStreamBeginCapture"))?;
    // Where there is no end there is no beginning.
    if cuda.symbols().cuStreamEndCapture.is_none() {
        return Err(cuda.absent("cuStreamEndCapture"));
    }
    // SAFETY: as the caller says.
    let status = unsafe { begin(stream.as_ptr(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) };
    cuda.check("cuStreamBeginCapture", status)
}

/// Ends it.
///
/// # Safety
///
/// As of [`begin`], by the thread that called it.
pub(crate) unsafe fn end(context: &Context<Cuda>, stream: RawStream) -> Result<Captured, CallError> {
    let cuda = context.driver();
    let end = cuda.symbols().cuStreamEndCapture.ok_or_else(|| cuda.absent("cuStreamEndCapture"))?;
    let mut graph = ptr::null_mut();
    // SAFETY: as the caller says, and `graph` is a handle's room.
    let status = unsafe { end(stream.as_ptr(), &raw mut graph) };
    let captured = Captured { context: context.clone(), raw: Handle(graph) };
    cuda.check("cuStreamEndCapture", status)?;
    Ok(captured)
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // Whoever drops it has an error of its own to tell. Where that is of a first try to end it, which may have ended it all the
            // same, the second says that nothing is being captured.
            match self.end_now() {
                Err(error) if error.status != CUDA_ERROR_ILLEGAL_STATE => self.context.failed_in_drop(&error),
                _ => {}
            }
        }
    }
}

/// A captured graph: what executables are made from.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) context: Context<Cuda>,
    pub(crate) raw: Handle,
}

impl Drop for Captured {
    fn drop(&mut self) {
        if self.raw.0.is_null() {
            return;
        }
        let cuda = self.context.driver();
        let Some(destroy) = cuda.symbols().cuGraphDestroy else { return };
        let Some(_bound) = self.context.bind_in_drop() else { return };
        // SAFETY: the context is bound; it was captured here, and nobody else has it.
        let status = unsafe { destroy(self.raw.0) };
        if let Err(error) = cuda.check("cuGraphDestroy", status) {
            self.context.failed_in_drop(&error);
        }
    }
}
