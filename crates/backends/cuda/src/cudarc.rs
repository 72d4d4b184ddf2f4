//! Streams of cudarc, as ours.
//!
//! cudarc loads the driver by itself. A handle means something only to the library that gave it, so what is made here is made after
//! a look whether both have the same one: a text that the driver owns is at one address in one library, and nowhere else.
//!
//! Invariants: a stream of ours keeps cudarc's, and a context of ours cudarc's, until nothing here can use it any more; letting go of them
//! changes no thread's context; contexts that were found are remembered, not kept.

use core::ffi::{CStr, c_void};
use core::fmt::Display;
use core::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use ::cudarc::driver::{self as theirs, DriverError, sys};
use wakeline_core::{Error, ErrorCode};
use wakeline_mapped::driver::{LineDriver as _, RawContext, RawStream};
use wakeline_mapped::{ContextConfig, WeakContext};

use crate::cuda::Cuda;
use crate::error::BACKEND;
use crate::sys::CUDA_ERROR_NOT_READY;
use crate::wait::{CuStream, CudaContext};

/// What can be made of a stream of cudarc's: a [`CuStream`], whose points can be awaited, and the [`CudaContext`] that it needs.
/// With the feature `cudarc`.
///
/// ```no_run
/// use wakeline_cuda::{CuStream, Cuda, CudaContext, FromCudarc as _};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let theirs = cudarc::driver::CudaContext::new(0)?.new_stream()?;
/// let context = CudaContext::from_cudarc(&Cuda::load()?, &theirs)?;
/// let stream = CuStream::from_cudarc(&context, &theirs)?;
/// // .. launch work by cudarc ..
/// let port = stream.port()?; // and await it, on any host
/// # let _ = port;
/// # Ok(())
/// # }
/// ```
///
/// # Versions
///
/// It is cudarc 0.19, with its `driver` alone. cudarc's build script wants a CUDA version and ends the build where nobody chose one; none is
/// chosen here, so that the choice is yours: a feature of your own dependency on cudarc, such as `cuda-12080`. Nor is it chosen
/// how cudarc gets at the driver: `dynamic-loading`, `dynamic-linking` and `static-linking` all do; without any of them it is loaded when
/// first used.
///
/// # One library
///
/// cudarc opens `libcuda.so` and, where that is missing, `libcuda.so.1`; [`Cuda::load`] opens `libcuda.so.1` (see [`Loader`](crate::Loader)). An
/// installed driver has one file by both names, which the system opens once, so both are the same library. Where they are not (another
/// library by [`Loader::path`](crate::Loader::path), a toolkit's stub in `LD_LIBRARY_PATH`) cudarc's handles mean nothing here, and the stream is refused.
///
/// # Default streams
///
/// cudarc's [`default_stream`](theirs::CudaContext::default_stream) is the context's legacy one: it waits for all of the context's blocking streams,
/// and a point of it does so too. Points of its [`per_thread_stream`](theirs::CudaContext::per_thread_stream) can be made on this thread alone.
///
/// # cudarc's events
///
/// With more than one stream cudarc records an event of its own behind each use of a slice, in the call that launches or copies. A
/// point that is made after that call is behind them, so after the wait cudarc has nothing to wait for: reading a pinned slice, or
/// dropping one, costs no more than a look. It makes no difference to a wait whether that is on.
pub trait FromCudarc: Sized {
    /// What it is made in: a context in the driver, a stream in its context.
    type In;

    /// Makes it of cudarc's stream, which is kept alive.
    ///
    /// - A [`CudaContext`] is that of the stream's own context, with the default configuration; cudarc's is kept alive. As long as a handle, stream
    ///   or port of it is there, later calls find the same one: about the cost of a lock. The first one tries out the store of a
    ///   word, see [`Context::primary`](wakeline_mapped::Context::primary). A context that was made in another way, by [`Cuda::context`] for one,
    ///   does for cudarc's streams as well, where it is the same.
    /// - A [`CuStream`] takes a word of its context, about a microsecond: make one for each stream, or one for each wait, as it suits. Of
    ///   several for one stream each has a word of its own.
    ///
    /// Whoever is last to let go of a stream or context destroys it, by cudarc's drop, which may wait for the device.
    ///
    /// # Errors
    ///
    /// - [`ForeignStream`](ErrorCode::ForeignStream): the stream belongs to another context, or cudarc has loaded another library.
    /// - As [`Context::primary`](wakeline_mapped::Context::primary), as [`Stream::from_raw`](wakeline_mapped::Stream::from_raw).
    fn from_cudarc(within: &Self::In, stream: &Arc<theirs::CudaStream>) -> Result<Self, Error>;
}

impl FromCudarc for CudaContext {
    type In = Cuda;

    fn from_cudarc(cuda: &Cuda, stream: &Arc<theirs::CudaStream>) -> Result<Self, Error> {
        check_library(cuda, stream)?;
        let raw = context_of(stream);
        if let Some(context) = cuda.found().find(raw) {
            return Ok(context);
        }
        let owner = Kept::new(cuda, stream.context(), raw);
        // SAFETY: cudarc's context is alive as long as `owner` is, which has a reference to it, and of this driver's library.
        let context = unsafe { Self::from_raw_kept(cuda, raw.as_ptr(), owner, &ContextConfig::default()) }?;
        cuda.found().add(&context);
        Ok(context)
    }
}

impl FromCudarc for CuStream {
    type In = CudaContext;

    fn from_cudarc(context: &CudaContext, stream: &Arc<theirs::CudaStream>) -> Result<Self, Error> {
        let cuda = context.driver();
        check_library(cuda, stream)?;
        let raw = context_of(stream);
        // The driver cannot say it of a default stream, which is that of whichever context is bound.
        if raw != context.raw() {
            return Err(foreign(stream, &raw, &context.raw()));
        }
        let owner = Kept::new(cuda, stream, raw);
        // SAFETY: cudarc's stream is alive as long as `owner` is, which has a reference to it, and of this driver's library.
        unsafe { Self::from_raw_kept(context, stream_of(stream).as_ptr(), owner) }
    }
}

fn stream_of(stream: &theirs::CudaStream) -> RawStream {
    RawStream::from_ptr(stream.cu_stream().cast::<c_void>())
}

fn context_of(stream: &theirs::CudaStream) -> RawContext {
    RawContext::from_ptr(stream.context().cu_ctx().cast::<c_void>())
}

#[cold]
fn foreign(stream: &theirs::CudaStream, of: &dyn Display, wanted: &dyn Display) -> Error {
    Error::new(ErrorCode::ForeignStream, [&BACKEND, &stream_of(stream), of, wanted])
}

/// That cudarc has the library which `cuda` has. Two short calls, which look at a table.
fn check_library(cuda: &Cuda, stream: &theirs::CudaStream) -> Result<(), Error> {
    let mut ours = ptr::null();
    // SAFETY: it takes any number, needs no context, and `ours` is a pointer's room.
    let status = unsafe { (cuda.symbols().cuGetErrorName)(CUDA_ERROR_NOT_READY, &raw mut ours) };
    cuda.check("cuGetErrorName", status)?;
    let not_ready = DriverError(sys::CUresult::CUDA_ERROR_NOT_READY);
    if not_ready.error_name().is_ok_and(|text| ptr::eq(CStr::as_ptr(text), ours)) {
        Ok(())
    } else {
        Err(foreign(stream, &"another driver library", &cuda.library()))
    }
}

/// A reference to something of cudarc's. Its drop leaves this thread's context as it was: cudarc's own drop binds the one that goes.
struct Kept<T> {
    cuda: Cuda,
    /// `None` once it was let go of.
    value: Option<Arc<T>>,
    /// The context that it is, or is in.
    context: RawContext,
}

impl<T> Kept<T> {
    fn new(cuda: &Cuda, value: &Arc<T>, context: RawContext) -> Self {
        Self { cuda: cuda.clone(), value: Some(Arc::clone(value)), context }
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        let before = self.cuda.current();
        drop(self.value.take());
        let (Ok(before), Ok(after)) = (before, self.cuda.current()) else { return };
        if before != after && before != self.context {
            // SAFETY: it was this thread's context above, and the one that may be gone by now is another.
            let restored = unsafe { self.cuda.set_current(before) };
            // A failure here is that of a driver which has failed before: whoever asks it next is told.
            let _ = restored;
        }
    }
}

/// The contexts that were found so far, by their handles.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// One for each handle; never more than there were contexts at a time.
    contexts: Mutex<Vec<WeakContext<Cuda>>>,
}

impl Found {
    fn find(&self, raw: RawContext) -> Option<CudaContext> {
        let found = {
            let contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
            contexts.iter().find(|context| context.raw() == raw).cloned()
        };
        // Not under the lock: should it be closed, this may be the last to let go of it.
        found?.upgrade()
    }

    /// Of two threads that come at once each has its own, and the later one is found from then on.
    fn add(&self, context: &CudaContext) {
        let mut contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        contexts.retain(|known| known.raw() != context.raw() && !known.is_gone());
        contexts.push(context.downgrade());
    }
}
