//! Contexts: where lines live and streams come from.

use core::any::Any;
use core::ffi::c_void;
use core::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use wakeline_core::{Declared, Error, ErrorCode};

use crate::bound::Bound;
use crate::config::ContextConfig;
use crate::driver::{LineDriver, Ordinal, RawContext};
use crate::inner::{Hold, Inner};
use crate::kernel::KernelWord;
use crate::path::CompletionPath;
use crate::pool::SlotUse;
use crate::probe::Prober;
use crate::stream::Stream;

/// How often a closing looks whether everything has ended.
const CLOSE_NAP: Duration = Duration::from_micros(100);

/// A device's context, with the completion lines of its streams. Clones are handles of one.
///
/// It keeps the device's context alive from before its first page exists until after its last is freed. When the last
/// handle, stream, port and line of it are gone, it frees what no store can still come into; a page that one may come into is leaked, and counted
/// in the driver's [`Census`](crate::Census). [`close`](Self::close) waits for that instead, and tells.
pub struct Context<D: LineDriver> {
    inner: Arc<Inner<D>>,
}

impl<D: LineDriver> Clone for Context<D> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<D: LineDriver> fmt::Debug for Context<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("backend", &D::NAME)
            .field("raw", &self.inner.raw)
            .field("slots", &self.slots())
            .finish_non_exhaustive()
    }
}

impl<D: LineDriver> Context<D> {
    /// The primary context of a device: the one that it shares with every other library of the process.
    ///
    /// Tries the store of a word out on a stream of its own, once: about a millisecond, up to `probe_ms_max` where stores never land.
    ///
    /// # Errors
    ///
    /// - [`InvalidLimit`](ErrorCode::InvalidLimit) for a `config` out of range.
    /// - [`CompletionRefused`](ErrorCode::CompletionRefused) where the path asked for cannot be had and a fallback is refused.
    /// - [`Backend`](ErrorCode::Backend) where a call failed.
    pub fn primary(driver: &D, device: Ordinal, config: &ContextConfig) -> Result<Self, Error> {
        config.check()?;
        let raw = driver.retain(device)?;
        Self::set_up(Inner::new(driver.clone(), raw, Hold::Primary(device), config), config)
    }

    /// A context of its own, beside the primary one: a fault in it breaks no other. It is destroyed with the last handle.
    ///
    /// # Errors
    ///
    /// As [`primary`](Self::primary).
    pub fn create(driver: &D, device: Ordinal, config: &ContextConfig) -> Result<Self, Error> {
        config.check()?;
        let raw = driver.create(device)?;
        Self::set_up(Inner::new(driver.clone(), raw, Hold::Created, config), config)
    }

    /// A context that somebody else made.
    ///
    /// # Errors
    ///
    /// As [`primary`](Self::primary).
    ///
    /// # Safety
    ///
    /// `raw` is a live context of this driver, and stays so until the last handle, stream, port and line are gone.
    pub unsafe fn from_raw(driver: &D, raw: *mut c_void, config: &ContextConfig) -> Result<Self, Error> {
        config.check()?;
        let raw = RawContext::from_ptr(raw);
        Self::set_up(Inner::new(driver.clone(), raw, Hold::Foreign, config), config)
    }

    /// As [`from_raw`](Self::from_raw), with a value that keeps the context alive: it is dropped after the last page is freed, and leaked with a
    /// page that a store may still come into.
    ///
    /// # Errors
    ///
    /// As [`primary`](Self::primary).
    ///
    /// # Safety
    ///
    /// `raw` is a live context of this driver, and stays so until `owner` is dropped.
    pub unsafe fn from_raw_kept(
        driver: &D,
        raw: *mut c_void,
        owner: impl Any + Send + Sync,
        config: &ContextConfig,
    ) -> Result<Self, Error> {
        config.check()?;
        let raw = RawContext::from_ptr(raw);
        Self::set_up(Inner::kept(driver.clone(), raw, Box::new(owner), config), config)
    }

    /// A handle that finds the context as long as it is there, and does not keep it.
    pub fn downgrade(&self) -> WeakContext<D> {
        WeakContext { inner: Arc::downgrade(&self.inner), raw: self.inner.raw }
    }

    fn set_up(inner: Inner<D>, config: &ContextConfig) -> Result<Self, Error> {
        let inner = Arc::new(inner);
        let prober = Prober::new(&inner, Duration::from_millis(config.probe_ms_max));
        let path = Declared::resolve(config.completion, config.strictness, &prober)?;
        // A fault by now is no question of paths.
        inner.sound()?;
        let _ = inner.path.set(path);
        Ok(Self { inner })
    }

    pub(crate) const fn of(inner: Arc<Inner<D>>) -> Self {
        Self { inner }
    }

    pub(crate) const fn inner(&self) -> &Arc<Inner<D>> {
        &self.inner
    }

    /// Makes a stream that does not wait for the default stream.
    ///
    /// # Errors
    ///
    /// - [`SlotsFull`](ErrorCode::SlotsFull) when as many streams as the context was made for have a word.
    /// - [`Forked`](ErrorCode::Forked), [`ContextClosed`](ErrorCode::ContextClosed), the context's fault, or whatever made a call fail.
    pub fn stream(&self) -> Result<Stream<D>, Error> {
        self.stream_with_priority(0)
    }

    /// As [`stream`](Self::stream), served the sooner the lower `priority` is; the driver clamps it to what it has (0 to -5 on an H200).
    ///
    /// # Errors
    ///
    /// As [`stream`](Self::stream).
    pub fn stream_with_priority(&self, priority: i32) -> Result<Stream<D>, Error> {
        self.inner.open()?;
        Stream::make(&self.inner, priority, false)
    }

    /// A stream that operations capture, and nobody else has.
    #[cfg(feature = "ops")]
    pub(crate) fn stream_for_captures(&self, priority: i32) -> Result<Stream<D>, Error> {
        self.inner.open()?;
        Stream::make(&self.inner, priority, true)
    }

    /// A word for a kernel's own stores.
    ///
    /// # Errors
    ///
    /// As [`stream`](Self::stream).
    pub fn kernel_word(&self) -> Result<KernelWord<D>, Error> {
        KernelWord::new(&self.inner)
    }

    /// Makes what waits with `+warm` launch between their sleep and the end, so that the first of them need not: a stream, a word, and a kernel that does
    /// nothing. Some milliseconds, once.
    ///
    /// # Errors
    ///
    /// As [`stream`](Self::stream); [`Backend`](ErrorCode::Backend) where an earlier try failed. Waits go on all the same, without.
    pub fn prepare_warming(&self) -> Result<(), Error> {
        self.inner.prepare_warming()
    }

    /// What a wait with `+warm` does: see [`CompletionPort::warm`](wakeline_core::CompletionPort::warm). The first call of a context prepares it, where
    /// [`prepare_warming`](Self::prepare_warming) has not. 20 to 40 us of this thread where it has slept for milliseconds.
    pub fn warm(&self) {
        self.inner.warm();
    }

    /// Who stores the words.
    pub fn completion(&self) -> CompletionPath {
        self.inner.completion()
    }

    /// What is not as asked for: one warning where words are stored in another way. Whoever prints or logs it does it once.
    pub fn warnings(&self) -> &[Error] {
        self.inner.path.get().map_or(&[], Declared::warnings)
    }

    /// Asks the driver whether the context is sound; waits for nothing.
    ///
    /// # Errors
    ///
    /// The first fault, now and ever after.
    pub fn health(&self) -> Result<(), Error> {
        self.inner.health().inspect_err(|_| self.inner.abandon_if_failed())
    }

    /// That something new can be made in it. Costs three loads.
    ///
    /// # Errors
    ///
    /// [`Forked`](ErrorCode::Forked), [`ContextClosed`](ErrorCode::ContextClosed), or the context's first fault as far as it is known.
    pub fn open(&self) -> Result<(), Error> {
        self.inner.open()
    }

    /// How many functions handed to [`Stream::call_host`] panicked, or as they were dropped uncalled.
    pub fn host_function_panics(&self) -> u64 {
        self.inner.hosted.panics()
    }

    /// Whether a fault is known, and this is the process that made the context; asks nobody. For calls that let something go, which a closed context
    /// still takes.
    ///
    /// # Errors
    ///
    /// The first fault; [`Forked`](ErrorCode::Forked).
    pub fn health_known(&self) -> Result<(), Error> {
        self.inner.sound()?;
        self.inner.original()
    }

    /// How the words are used.
    pub fn slots(&self) -> SlotUse {
        self.inner.slots()
    }

    /// Makes the context this thread's, for driver calls of the caller's own, until the value is dropped.
    ///
    /// # Errors
    ///
    /// Whatever made a call fail.
    pub fn bind(&self) -> Result<Bound<'_, D>, Error> {
        self.inner.bind()
    }

    /// As [`bind`](Self::bind), for calls that only enqueue.
    pub(crate) fn bind_to_enqueue(&self) -> Result<Bound<'_, D>, Error> {
        self.inner.bind_to_enqueue()
    }

    /// As [`bind`](Self::bind), for calls of the caller's own in a drop: `None` where it fails, which is counted, and in a fork's
    /// child, where no call works.
    pub fn bind_in_drop(&self) -> Option<Bound<'_, D>> {
        self.inner.bind_in_drop()
    }

    /// What a failed call of the caller's own means for this context: a sticky fault breaks it for every wait.
    pub fn told(&self, error: crate::error::CallError) -> Error {
        self.inner.told(error)
    }

    /// As [`told`](Self::told), of a call that was to give so many bytes of memory of this sort ("device"): want of it is
    /// [`OutOfMemory`](ErrorCode::OutOfMemory).
    pub fn no_memory(&self, sort: &'static str, bytes: usize, error: crate::error::CallError) -> Error {
        self.inner.no_memory(sort, bytes, error)
    }

    /// Counts a failed call of the caller's own where nobody can be told: in a drop.
    pub fn failed_in_drop(&self, error: &crate::error::CallError) {
        self.inner.failed_in_drop(error);
    }

    /// The driver.
    pub fn driver(&self) -> &D {
        &self.inner.driver
    }

    /// The driver's own handle.
    pub fn raw(&self) -> RawContext {
        self.inner.raw
    }

    /// Waits until all stores have landed and nobody else uses the context, then frees it, and says what failed.
    ///
    /// From the call on no stream, point or word can be made in it. Pages that a store may still come into are leaked, and counted, and are no error.
    ///
    /// # Errors
    ///
    /// - [`ContextInUse`](ErrorCode::ContextInUse) when that has not come `within` the time given. Nothing was freed; drops of what is left
    ///   free what can be.
    /// - [`Forked`](ErrorCode::Forked) in a process that was forked off: there is nothing to free.
    /// - Whatever made a call fail; the rest was freed all the same.
    pub fn close(self, within: Duration) -> Result<(), Error> {
        self.inner.original()?;
        let start = Instant::now();
        self.inner.closed.store(true, Ordering::Relaxed);
        let mut inner = self.inner;
        // Its last store may be under way, and is waited for as any.
        if let Some(_bound) = inner.bind_in_drop()
            && let Err(error) = inner.end_warming()
        {
            inner.failed_in_drop(&error);
        }
        loop {
            inner = match Arc::try_unwrap(inner) {
                Ok(alone) if alone.slots().settling == 0 => return alone.free().map_err(Error::from),
                Ok(alone) => Arc::new(alone),
                Err(shared) => shared,
            };
            // What will never land is no reason to wait.
            if inner.sound().is_err() && Arc::strong_count(&inner) == 1 {
                return inner.free().map_err(Error::from);
            }
            if start.elapsed() >= within {
                let (handles, words) = (Arc::strong_count(&inner) - 1, inner.slots().settling);
                let millis = start.elapsed().as_millis();
                return Err(Error::new(ErrorCode::ContextInUse, [&D::NAME, &millis, &handles, &words]));
            }
            std::thread::sleep(CLOSE_NAP);
        }
    }
}

/// A handle of a [`Context`] that does not keep it. By [`Context::downgrade`].
pub struct WeakContext<D: LineDriver> {
    inner: Weak<Inner<D>>,
    raw: RawContext,
}

impl<D: LineDriver> WeakContext<D> {
    /// The context; `None` once its last handle is gone, or it is closed.
    pub fn upgrade(&self) -> Option<Context<D>> {
        let inner = self.inner.upgrade().filter(|inner| !inner.closed.load(Ordering::Relaxed))?;
        Some(Context { inner })
    }

    /// Whether its last handle is gone. It never comes back then.
    pub fn is_gone(&self) -> bool {
        self.inner.strong_count() == 0
    }

    /// The driver's own handle. While [`upgrade`](Self::upgrade) finds the context no other has the same.
    pub fn raw(&self) -> RawContext {
        self.raw
    }
}

impl<D: LineDriver> Clone for WeakContext<D> {
    fn clone(&self) -> Self {
        Self { inner: Weak::clone(&self.inner), raw: self.raw }
    }
}

impl<D: LineDriver> fmt::Debug for WeakContext<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakContext")
            .field("backend", &D::NAME)
            .field("raw", &self.raw)
            .finish_non_exhaustive()
    }
}
