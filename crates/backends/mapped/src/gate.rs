//! Gates: words that streams wait for, until the host stores them.

use core::fmt;
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode, Seq};

use crate::context::Context;
use crate::driver::LineDriver;
use crate::inner::Inner;
use crate::pool::{Armed, Place};
use crate::stream::Stream;

/// A word that work enqueued on streams waits for, until the host opens it by a store. Closed at first.
///
/// The word is of its context's pool, as those that streams own: the gate is open once it reads the number after the one that it read before. Numbers never go
/// backwards, so a wait stays over whoever has the word next. The page must outlast the wait: keep the value until what is behind it is done, or for good where nobody
/// can know. Dropping it opens it, and gives the word back.
///
/// A stream that waits holds up what else shares its queue of the device: on NVIDIA GPUs streams have 8 queues, where `CUDA_DEVICE_MAX_CONNECTIONS` says nothing else.
pub struct Gate<D: LineDriver> {
    context: Arc<Inner<D>>,
    place: Place,
    opens_at: Seq,
}

impl<D: LineDriver> Gate<D> {
    /// A gate, closed. Makes no driver call but where a page has to be made, and to bind the context.
    ///
    /// # Errors
    ///
    /// [`SlotsFull`](ErrorCode::SlotsFull), [`Forked`](ErrorCode::Forked), [`ContextClosed`](ErrorCode::ContextClosed), the context's fault, or whatever
    /// made a call fail.
    pub fn new(context: &Context<D>) -> Result<Self, Error> {
        let context = context.inner();
        context.open()?;
        let _bound = context.bind()?;
        let place = context.take_place()?;
        // SAFETY: the page is the context's. All that was stored by former owners has landed.
        let opens_at = unsafe { place.word() }.next();
        Ok(Self { context: Arc::clone(context), place, opens_at })
    }

    /// Has what is enqueued on `stream` from now on wait for it. The host does not.
    ///
    /// # Errors
    ///
    /// - [`ForeignStream`](ErrorCode::ForeignStream) for a stream of another context: nothing is enqueued.
    /// - [`StreamCapturing`](ErrorCode::StreamCapturing) while the stream is captured: a graph would wait each time that it is launched.
    /// - [`Backend`](ErrorCode::Backend): the driver or the device has no waits for words.
    /// - As [`new`](Self::new). The wait may have been enqueued all the same.
    pub fn wait(&self, stream: &Stream<D>) -> Result<(), Error> {
        let (context, shared) = (&self.context, stream.shared());
        context.open()?;
        if !Arc::ptr_eq(context, &shared.context) {
            let args: [&dyn fmt::Display; 4] = [&D::NAME, &shared.raw, &shared.context.raw, &context.raw];
            return Err(Error::new(ErrorCode::ForeignStream, args));
        }
        shared.is_here()?;
        let _bound = context.bind()?;
        shared.is_free()?;
        // SAFETY: the context is bound, the stream alive, and the word of a page that is kept at least as long as this value, which is kept until the
        // wait is over, says the contract of the type.
        let waited =
            unsafe { context.driver.wait_word(shared.raw, self.place.device(), self.opens_at.get()) };
        waited.map_err(|error| shared.failed(error))?;
        // A capture may have begun between the look and the call.
        shared.is_free()
    }

    /// Has it opened by the device, behind what is enqueued on `stream`, which may be of another of the driver's contexts.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), of the stream's context. The store may have been enqueued all the same.
    #[cfg(feature = "ops")]
    pub(crate) fn open_behind(&self, stream: &Stream<D>) -> Result<(), Error> {
        let shared = stream.shared();
        let context = &shared.context;
        context.open()?;
        shared.is_here()?;
        let _bound = context.bind()?;
        // SAFETY: the context is bound, the stream alive, and the word of a page that is kept until this store has landed: whoever enqueues it keeps the gate until it reads as open, or for good.
        let stored = unsafe { context.driver.store(shared.raw, self.place.device(), self.opens_at.get()) };
        stored.map_err(|error| shared.failed(error))
    }

    /// Whether it is open, by whomever.
    #[cfg(feature = "ops")]
    pub(crate) fn is_open(&self) -> bool {
        // SAFETY: the page is the context's.
        unsafe { self.place.word() }.reached(self.opens_at)
    }

    /// Opens it: one store. Nothing in a fork's child, which does not have the word.
    pub fn open(&self) {
        if self.context.forked() {
            return;
        }
        // SAFETY: the page is the context's, and the word this value's.
        unsafe { self.place.store(self.opens_at) };
    }
}

impl<D: LineDriver> Drop for Gate<D> {
    fn drop(&mut self) {
        self.open();
        self.context.give_place(self.place, Armed::Upto(self.opens_at));
    }
}

impl<D: LineDriver> fmt::Debug for Gate<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("backend", &D::NAME)
            .field("opens_at", &self.opens_at)
            .finish_non_exhaustive()
    }
}
