//! Streams: ours and others'.

use core::any::Any;
use core::ffi::c_void;
use core::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::ThreadId;

use wakeline_core::{CompletionPort, Error, ErrorCode, MemoryDescriptor, Seq};

use crate::bound::Bound;
use crate::callback::Callbacks;
use crate::census::count;
use crate::context::Context;
use crate::driver::{LineDriver, RawStream, Special};
use crate::error::{CallError, Kind};
use crate::inner::Inner;
use crate::line::MappedLine;
use crate::path::CompletionPath;
use crate::pool::{Armed, Place};
use crate::port::Port;
use crate::sync::Lock;

/// A word with the number awaited in it.
pub(crate) type Word<D> = MemoryDescriptor<MappedLine<D>>;

/// A stream whose points can be awaited. Clones share one stream.
///
/// When the last clone and the last port of it are gone, a stream that was made here is destroyed (what is enqueued still runs), and its word
/// goes to another stream once every store into it has landed.
pub struct Stream<D: LineDriver> {
    inner: Arc<Shared<D>>,
}

pub(crate) struct Shared<D: LineDriver> {
    pub(crate) context: Arc<Inner<D>>,
    pub(crate) raw: RawStream,
    /// Whether it was made here and is destroyed here.
    made: bool,
    /// Whether operations have it for captures alone: it joins them by waiting for events that were recorded there.
    pub(crate) captures: bool,
    /// Keeps a stream of somebody else's alive.
    owner: Option<Box<dyn Any + Send + Sync>>,
    place: Place,
    /// The submission lock, around the numbers taken. Held from taking one to the enqueue of its store, so that two threads
    /// that arm one stream cannot pass each other.
    submission: Lock<Submission>,
    /// What host functions that have not run are called with.
    callbacks: Callbacks,
    /// Whose default stream it is, where each thread has one.
    pub(crate) thread: Option<ThreadId>,
}

#[derive(Clone, Copy, Debug)]
struct Submission {
    last: Seq,
    /// Whether the store of the last number was enqueued for sure: the call may have failed with it or without.
    sure: bool,
    /// A store became part of a graph, which may store the number again at any time.
    captured: bool,
}

impl<D: LineDriver> Clone for Stream<D> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<D: LineDriver> fmt::Debug for Stream<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("backend", &D::NAME)
            .field("raw", &self.inner.raw)
            .field("slot", &self.inner.place.slot())
            .field("made", &self.inner.made)
            .field("kept", &self.inner.owner.is_some())
            .finish_non_exhaustive()
    }
}

impl<D: LineDriver> Stream<D> {
    /// Makes a stream, which does not wait for the default stream. The context is open.
    pub(crate) fn make(context: &Arc<Inner<D>>, priority: i32, captures: bool) -> Result<Self, Error> {
        let bound = context.bind()?;
        context.part();
        let place = context.take_place()?;
        // SAFETY: the context is bound.
        let raw = match unsafe { context.driver.stream_create(priority) } {
            Ok(raw) => raw,
            Err(error) => {
                // SAFETY: the page is the context's.
                let armed = Armed::Upto(unsafe { place.word() });
                context.give_place(place, armed);
                return Err(context.told(error));
            }
        };
        drop(bound);
        Ok(Self::with(context, raw, (true, captures), None, place))
    }

    fn with(
        context: &Arc<Inner<D>>,
        raw: RawStream,
        (made, captures): (bool, bool),
        owner: Option<Box<dyn Any + Send + Sync>>,
        place: Place,
    ) -> Self {
        // SAFETY: the page is the context's. Every number of former owners has landed, so the word reads the last.
        let last = unsafe { place.word() };
        let thread = (D::special(raw) == Some(Special::PerThread)).then(|| std::thread::current().id());
        let submission = Lock::new(Submission { last, sure: true, captured: false });
        let context = Arc::clone(context);
        Self {
            inner: Arc::new(Shared {
                context,
                raw,
                made,
                captures,
                owner,
                place,
                submission,
                callbacks: Callbacks::default(),
                thread,
            }),
        }
    }

    /// A stream that somebody else made, in `context`; also one of the numbers that stand for default streams.
    ///
    /// Points of a per-thread default stream can be made on this thread alone.
    ///
    /// # Errors
    ///
    /// - [`ForeignStream`](ErrorCode::ForeignStream) where it belongs to another context.
    /// - [`SlotsFull`](ErrorCode::SlotsFull), the context's fault, or whatever made a call fail.
    ///
    /// # Safety
    ///
    /// `raw` is a live stream of this driver, and stays so until the last clone of the value and the last port made of it are gone.
    pub unsafe fn from_raw(context: &Context<D>, raw: *mut c_void) -> Result<Self, Error> {
        // SAFETY: as the caller says.
        unsafe { Self::foreign(context, raw, None) }
    }

    /// As [`from_raw`](Self::from_raw), with a value that keeps the stream alive: it is dropped after the last clone and the last port.
    ///
    /// # Errors
    ///
    /// As [`from_raw`](Self::from_raw).
    ///
    /// # Safety
    ///
    /// `raw` is a live stream of this driver, and stays so until `owner` is dropped.
    pub unsafe fn from_raw_kept(
        context: &Context<D>,
        raw: *mut c_void,
        owner: impl Any + Send + Sync,
    ) -> Result<Self, Error> {
        // SAFETY: as the caller says; the value lives as long as the stream is used.
        unsafe { Self::foreign(context, raw, Some(Box::new(owner))) }
    }

    /// # Safety
    ///
    /// `raw` is a live stream of this driver for as long as the value, its clones and its ports are, or until `owner` is dropped.
    unsafe fn foreign(
        context: &Context<D>,
        raw: *mut c_void,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Result<Self, Error> {
        let (raw, context) = (RawStream::from_ptr(raw), context.inner());
        context.open()?;
        let _bound = context.bind()?;
        if D::special(raw).is_none() {
            // SAFETY: the stream is alive, says the caller.
            let other = unsafe { context.driver.stream_context(raw) }.map_err(|error| context.told(error))?;
            if other != context.raw {
                return Err(Error::new(ErrorCode::ForeignStream, [&D::NAME, &raw, &other, &context.raw]));
            }
        }
        let place = context.take_place()?;
        Ok(Self::with(context, raw, (false, false), owner, place))
    }

    /// The point that all work enqueued so far is in front of. What is enqueued behind it later never delays it.
    ///
    /// Records an event: about 0.2 us on an H200 (driver 580). The word is stored behind the point when the port is armed, which a wait
    /// does; where others enqueue more work in between, [`armed_port`](Self::armed_port) does it at once.
    ///
    /// # Errors
    ///
    /// - [`StreamCapturing`](ErrorCode::StreamCapturing) while the stream is captured: there is no point to wait for then.
    /// - [`ForeignStream`](ErrorCode::ForeignStream) for a per-thread default stream on another thread than the one that it was handed in on.
    /// - [`Forked`](ErrorCode::Forked), [`ContextClosed`](ErrorCode::ContextClosed), the context's fault, or whatever made a call fail.
    pub fn port(&self) -> Result<Port<D>, Error> {
        let mut port = Port::new(self)?;
        if self.inner.thread.is_some() {
            // Another thread could not.
            port.arm()?;
        }
        Ok(port)
    }

    /// As [`port`](Self::port), armed: 1.2 us more.
    ///
    /// # Errors
    ///
    /// As [`port`](Self::port).
    pub fn armed_port(&self) -> Result<Port<D>, Error> {
        Port::armed(self)
    }

    /// As [`armed_port`](Self::armed_port), for whoever trusts the word: no event is recorded where the stream stores its words by itself, which saves the
    /// event's cost and that of keeping it.
    ///
    /// Without one the driver knows of the point only when the stream has nothing left: [`query`](wakeline_core::CompletionPort::query) says pending until
    /// then, though the word is there. A store that was lost is made good by the next of the stream, or is found out then.
    ///
    /// # Errors
    ///
    /// As [`port`](Self::port).
    pub fn word_port(&self) -> Result<Port<D>, Error> {
        Port::by_word(self)
    }

    /// That something may be enqueued on it now and from this thread, to be awaited by a point: it is not captured, its context is sound and open,
    /// and it is this thread's where each thread has one.
    ///
    /// # Errors
    ///
    /// As [`port`](Self::port).
    pub fn ready(&self) -> Result<(), Error> {
        self.inner.context.open()?;
        self.ready_in_drop()
    }

    /// As [`ready`](Self::ready), of a context that may be closed: what lets it go is to do so to the end.
    pub(crate) fn ready_in_drop(&self) -> Result<(), Error> {
        let shared = &self.inner;
        shared.context.sound()?;
        shared.context.original()?;
        shared.is_here()?;
        let _bound = shared.context.bind()?;
        shared.is_free()
    }

    /// The driver's own handle, for launching work by other means.
    pub fn raw(&self) -> RawStream {
        self.inner.raw
    }

    /// Whether it belongs to this context.
    pub fn is_of(&self, context: &Context<D>) -> bool {
        Arc::ptr_eq(&self.inner.context, context.inner())
    }

    /// The context that it belongs to.
    pub fn context(&self) -> Context<D> {
        Context::of(Arc::clone(&self.inner.context))
    }

    pub(crate) fn shared(&self) -> &Shared<D> {
        &self.inner
    }
}

impl<D: LineDriver> Shared<D> {
    /// Whether a capture of this stream is under way. The context is bound.
    pub(crate) fn capturing(&self) -> Result<bool, CallError> {
        // SAFETY: the stream is alive while this is, by its own hold or by the contract of `from_raw`.
        unsafe { self.context.driver.capturing(self.raw) }
    }

    /// That it is this thread's, where each thread has one.
    pub(crate) fn is_here(&self) -> Result<(), Error> {
        if self.thread.is_none_or(|thread| thread == std::thread::current().id()) {
            return Ok(());
        }
        let other = "the default stream of another thread";
        Err(Error::new(ErrorCode::ForeignStream, [&D::NAME, &self.raw, &other, &"this thread's"]))
    }

    /// That the stream may be used: neither it nor a stream that a default stream waits for is being captured. The context is bound.
    pub(crate) fn is_free(&self) -> Result<(), Error> {
        match self.capturing() {
            Ok(false) => Ok(()),
            Ok(true) => Err(self.refuse_capture()),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// What a failed call on the stream is to its caller.
    pub(crate) fn failed(&self, error: CallError) -> Error {
        match error.kind {
            Kind::Capturing => self.refuse_capture().with_source(error),
            _ => self.context.told(error),
        }
    }

    /// That nothing can be awaited, for a capture is under way.
    pub(crate) fn refuse_capture(&self) -> Error {
        Error::new(ErrorCode::StreamCapturing, [&D::NAME, &self.raw])
    }

    /// Takes the next number and enqueues its store as the context does; no word where nothing can be stored.
    pub(crate) fn store(&self) -> Result<Option<Word<D>>, Error> {
        self.store_by(self.context.completion())
    }

    /// As [`store`](Self::store), on this path.
    pub(crate) fn store_by(&self, path: CompletionPath) -> Result<Option<Word<D>>, Error> {
        if path == CompletionPath::Poll {
            return Ok(None);
        }
        let bound = self.context.bind()?;
        // A store would become part of the graph, or run at once, as some drivers do.
        self.is_free()?;
        self.store_bound(&bound, path)
    }

    /// As [`store`](Self::store), with the context bound and right behind a look that found no capture.
    pub(crate) fn store_bound(
        &self,
        bound: &Bound<'_, D>,
        path: CompletionPath,
    ) -> Result<Option<Word<D>>, Error> {
        let context = &self.context;
        if path == CompletionPath::Poll {
            return Ok(None);
        }
        let (result, seq) = {
            let mut submission = self.submission.lock();
            let seq = submission.last.next();
            let result = self.enqueue(bound, path, seq);
            match &result {
                // What was in front of it lands before it, or was not enqueued.
                Ok(()) => *submission = Submission { last: seq, sure: true, ..*submission },
                // Nothing was enqueued.
                Err(error) if error.enqueued_nothing() => {}
                // It may have been, all the same: the number is gone, for a later point must not end by this store.
                Err(_) => *submission = Submission { last: seq, sure: false, ..*submission },
            }
            (result, seq)
        };
        match result {
            Ok(()) => {
                // A capture may have begun between the look and the call.
                if let Err(error) = self.is_free() {
                    self.submission.lock().captured = true;
                    self.callbacks.keep(seq);
                    return Err(error);
                }
                // SAFETY: the place is of the context's pages.
                let line = unsafe { MappedLine::new(Arc::clone(context), self.place.line()) };
                Ok(Some(MemoryDescriptor::new(line, self.place.slot(), seq)))
            }
            Err(error) if error.kind == Kind::NotSupported => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn enqueue(&self, _bound: &Bound<'_, D>, path: CompletionPath, seq: Seq) -> Result<(), CallError> {
        let driver = &self.context.driver;
        if path == CompletionPath::Callback {
            // SAFETY: the context is bound, the stream alive, the page kept until the store has landed.
            return unsafe { self.callbacks.enqueue(driver, self.raw, self.place, seq) };
        }
        // SAFETY: the context is bound, the stream alive, the address that of a word of a page which is kept until this has landed.
        unsafe { driver.store(self.raw, self.place.device(), seq.get()) }
    }
}

impl<D: LineDriver> Drop for Shared<D> {
    fn drop(&mut self) {
        let context = &self.context;
        if context.forked() {
            // Its drop would call the driver too.
            core::mem::forget(self.owner.take());
            return;
        }
        // SAFETY: the page is the context's.
        unsafe { self.callbacks.end(self.place) };
        let submission = *self.submission.lock();
        let armed = if submission.sure && !submission.captured {
            Armed::Upto(submission.last)
        } else {
            Armed::Unknown
        };
        context.give_place(self.place, armed);
        if self.made {
            // It was made here, and this is its last holder.
            if let Err(error) = context.try_bind().and_then(|_bound| context.part_with(self.raw)) {
                context.failed_in_drop(&error);
            }
        }
        // Before the context: it may have something in it. A panic in somebody else's destructor is theirs, but not to pass on from here.
        let owner = self.owner.take();
        if catch_unwind(AssertUnwindSafe(|| drop(owner))).is_err() {
            count(&context.driver.census().drop_failures);
        }
    }
}
