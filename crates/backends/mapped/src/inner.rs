//! What all handles of one context share, and the order in which it goes.
//!
//! ```text
//!   reference to the context ─► pages ─► words ─► streams ─► ports, lines
//!        taken first                                          gone first
//!   given back last, and only after every page is freed
//! ```
//!
//! No lock here covers a driver call. A drop makes driver calls that do not wait for the device; it never panics, and a failure
//! in it is counted and told to nobody else.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use wakeline_core::{Declared, Error, ErrorCode};

use crate::bound::Bound;
use crate::census::{count, failed_in_drop};
use crate::config::ContextConfig;
use crate::driver::{LineDriver, Ordinal, RawContext, RawEvent, RawStream};
use crate::error::{CallError, Kind};
use crate::hosted::Hosted;
use crate::path::CompletionPath;
use crate::pinned::Blocks;
use crate::pool::{Armed, PAGE_BYTES, Place, Pool};
use crate::process;
use crate::sync::Lock;
use crate::warm::Warming;

/// Why the context is alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// A reference to the device's primary context is held.
    Primary(Ordinal),
    /// It was made here.
    Created,
    /// Whoever handed it in keeps it.
    Foreign,
    /// The value that was handed in with it keeps it.
    Kept,
}

#[derive(Debug)]
pub(crate) struct Inner<D: LineDriver> {
    pub(crate) driver: D,
    pub(crate) raw: RawContext,
    hold: Hold,
    /// Keeps a context of somebody else's alive.
    owner: Lock<Option<Box<dyn Any + Send + Sync>>>,
    pub(crate) slots_max: usize,
    /// Set once, when the context is whole.
    pub(crate) path: OnceLock<Declared<CompletionPath>>,
    /// The first sticky fault.
    fault: OnceLock<Error>,
    /// The process that made it. The driver does not work in another that was forked off.
    process: u32,
    pub(crate) closed: AtomicBool,
    pool: Lock<Pool>,
    /// Streams that are destroyed once they are idle.
    pub(crate) parting: Lock<VecDeque<RawStream>>,
    /// Events that no port owns.
    events: Lock<Vec<RawEvent>>,
    /// Never recorded: asking for it tells of faults alone.
    health: OnceLock<RawEvent>,
    /// What waits with `+warm` launch.
    pub(crate) warming: Warming,
    /// Pinned memory that nobody owns.
    pub(crate) pinned: Lock<Blocks>,
    /// Functions of the host that the driver may still call.
    pub(crate) hosted: Hosted,
    freed: AtomicBool,
}

impl<D: LineDriver> Inner<D> {
    /// Takes over `raw` as `hold` says.
    pub(crate) fn new(driver: D, raw: RawContext, hold: Hold, config: &ContextConfig) -> Self {
        Self {
            driver,
            raw,
            hold,
            owner: Lock::default(),
            slots_max: usize::try_from(config.slots_max).unwrap_or(usize::MAX),
            path: OnceLock::new(),
            fault: OnceLock::new(),
            process: process::id(),
            closed: AtomicBool::new(false),
            pool: Lock::default(),
            parting: Lock::default(),
            events: Lock::default(),
            health: OnceLock::new(),
            warming: Warming::default(),
            pinned: Lock::new(Blocks::new(config.pinned_bytes_max)),
            hosted: Hosted::default(),
            freed: AtomicBool::new(false),
        }
    }

    /// Takes over `raw`, which lives until `owner` is dropped: after the last page is freed.
    pub(crate) fn kept(
        driver: D,
        raw: RawContext,
        owner: Box<dyn Any + Send + Sync>,
        config: &ContextConfig,
    ) -> Self {
        let inner = Self::new(driver, raw, Hold::Kept, config);
        *inner.owner.lock() = Some(owner);
        inner
    }

    /// Who stores the words.
    pub(crate) fn completion(&self) -> CompletionPath {
        self.path.get().map_or(CompletionPath::Poll, Declared::granted)
    }

    /// Whether waits in this context can still end well. One load.
    ///
    /// # Errors
    ///
    /// The first fault.
    #[inline]
    pub(crate) fn sound(&self) -> Result<(), Error> {
        self.fault.get().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    /// Whether something new may be made in it.
    ///
    /// # Errors
    ///
    /// The first fault; that the process was forked; that the context was closed.
    pub(crate) fn open(&self) -> Result<(), Error> {
        self.sound()?;
        self.original()?;
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorCode::ContextClosed, [&D::NAME]));
        }
        Ok(())
    }

    /// That this is the process which made it.
    ///
    /// # Errors
    ///
    /// That it was forked off.
    pub(crate) fn original(&self) -> Result<(), Error> {
        if self.forked() { Err(Error::new(ErrorCode::Forked, [&D::NAME])) } else { Ok(()) }
    }

    pub(crate) fn forked(&self) -> bool {
        self.process != process::id()
    }

    /// Binds the context for the calls of one operation.
    pub(crate) fn bind(&self) -> Result<Bound<'_, D>, Error> {
        self.try_bind().map_err(|error| self.told(error))
    }

    /// As [`bind`](Self::bind), for drops: a failure breaks nothing.
    pub(crate) fn try_bind(&self) -> Result<Bound<'_, D>, CallError> {
        // SAFETY: `hold` keeps the context alive while `self` is.
        unsafe { Bound::aside(&self.driver, self.raw) }
    }

    /// As [`bind`](Self::bind), for calls that only enqueue: launches, and stores of words.
    pub(crate) fn bind_to_enqueue(&self) -> Result<Bound<'_, D>, Error> {
        // SAFETY: as in `try_bind`.
        unsafe { Bound::new(&self.driver, self.raw) }.map_err(|error| self.told(error))
    }

    /// What a failed call is to its caller; a sticky fault breaks the context, and whoever comes later is told the first.
    #[cold]
    pub(crate) fn told(&self, error: CallError) -> Error {
        // In a fork's child no call works, and that says nothing of the context.
        if let Err(forked) = self.original() {
            return forked.with_source(error);
        }
        if error.kind == Kind::Sticky {
            return self.fault.get_or_init(|| error.into()).clone();
        }
        error.into()
    }

    /// What a call that was to give memory and failed is to its caller; want of memory has a code of its own.
    #[cold]
    pub(crate) fn no_memory(&self, sort: &'static str, bytes: usize, error: CallError) -> Error {
        if error.kind == Kind::OutOfMemory {
            let coded = Error::new(ErrorCode::OutOfMemory, [&D::NAME, &sort, &bytes, &error]);
            return coded.with_source(error);
        }
        self.told(error)
    }

    /// Asks the driver whether the context is sound.
    pub(crate) fn health(&self) -> Result<(), Error> {
        self.sound()?;
        let _bound = self.bind()?;
        let event = if let Some(event) = self.health.get() {
            *event
        } else {
            // SAFETY: the context is bound.
            let made = unsafe { self.driver.event_create() }.map_err(|error| self.told(error))?;
            let event = *self.health.get_or_init(|| made);
            if event != made {
                self.give_event(made);
            }
            event
        };
        // SAFETY: the context is bound and the event its own.
        unsafe { self.driver.event_query(event) }.map_err(|error| self.told(error))?;
        Ok(())
    }

    /// An event of the pool, if there is one.
    pub(crate) fn kept_event(&self) -> Option<RawEvent> {
        self.events.lock().pop()
    }

    /// An event that nobody else uses. The context is bound.
    pub(crate) fn take_event(&self) -> Result<RawEvent, Error> {
        match self.kept_event() {
            Some(event) => Ok(event),
            // SAFETY: the caller has bound the context.
            None => unsafe { self.driver.event_create() }.map_err(|error| self.told(error)),
        }
    }

    /// Keeps an event for the next port. That work may still be in front of it does not matter: it is recorded anew.
    pub(crate) fn give_event(&self, event: RawEvent) {
        // Another thread of the parent may have held the lock when the child was forked off.
        if self.forked() {
            return;
        }
        self.events.lock().push(event);
    }

    /// A free word. The context is bound.
    pub(crate) fn take_place(&self) -> Result<Place, Error> {
        loop {
            {
                let mut pool = self.pool.lock();
                // SAFETY: pages are freed in `free` alone, when no handle is left.
                if let Some(place) = unsafe { pool.take() } {
                    return Ok(place);
                }
                if pool.len() + PAGE_BYTES / size_of::<u64>() > self.slots_max {
                    return Err(Error::new(ErrorCode::SlotsFull, [&D::NAME, &self.slots_max]));
                }
            }
            // Not under the lock: it may wait for the device. Two threads may both come here; then there are two pages.
            // SAFETY: the caller has bound the context.
            let page = unsafe { self.driver.page_alloc(PAGE_BYTES) }.map_err(|error| self.told(error))?;
            count(&self.driver.census().pages_made);
            let surplus = {
                let mut pool = self.pool.lock();
                if pool.len() + PAGE_BYTES / size_of::<u64>() > self.slots_max {
                    true
                } else {
                    // SAFETY: it is as long as asked for, aligned as the driver's contract says, and was made just now.
                    unsafe { pool.add(page) };
                    false
                }
            };
            if surplus {
                // SAFETY: the context is bound, and nobody has seen the page.
                unsafe { self.driver.page_free(page) }.map_err(|error| self.told(error))?;
                count(&self.driver.census().pages_freed);
            }
        }
    }

    pub(crate) fn give_place(&self, place: Place, armed: Armed) {
        if self.forked() {
            return;
        }
        if armed == Armed::Unknown {
            count(&self.driver.census().slots_leaked);
        }
        self.pool.lock().give(place, armed);
    }

    /// How the words are used, after a look at all that settle. A fork's child does not have the pages, and none are used.
    pub(crate) fn slots(&self) -> crate::pool::SlotUse {
        if self.forked() {
            return crate::pool::SlotUse::default();
        }
        let mut pool = self.pool.lock();
        // SAFETY: pages are freed in `free` alone, when no handle is left.
        unsafe { pool.settle(usize::MAX) };
        pool.usage()
    }

    /// A failure where nobody can be told. That the driver is gone is none.
    pub(crate) fn failed_in_drop(&self, error: &CallError) {
        failed_in_drop(&self.driver, error);
    }

    /// Binds the context for calls in a drop: not where the process was forked off, and a failure is counted.
    pub(crate) fn bind_in_drop(&self) -> Option<Bound<'_, D>> {
        if self.forked() {
            return None;
        }
        self.try_bind().inspect_err(|error| self.failed_in_drop(error)).ok()
    }

    /// Frees everything, once: pages that no store can come into, events, the reference. Nobody uses the context any more.
    ///
    /// # Errors
    ///
    /// The first call that failed; the rest was tried all the same.
    pub(crate) fn free(&self) -> Result<(), CallError> {
        if self.freed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let owner = self.owner.lock().take();
        if self.forked() {
            // Its drop would call the driver too.
            core::mem::forget(owner);
            return Ok(());
        }
        let mut first = Ok(());
        let mut note = |result: Result<(), CallError>| {
            if let (Err(error), true) = (result, first.is_ok()) {
                first = Err(error);
            }
        };
        let census = self.driver.census();
        note(self.try_bind().and_then(|_bound| self.end_warming()));
        let (pages, unsure) = {
            let mut pool = self.pool.lock();
            // SAFETY: they are freed below, after this.
            unsafe { pool.settle(usize::MAX) };
            pool.take_pages()
        };
        for _ in &unsure {
            count(&census.pages_leaked);
        }
        match self.try_bind() {
            Ok(_bound) => {
                let events = core::mem::take(&mut *self.events.lock());
                for event in events.into_iter().chain(self.health.get().copied()) {
                    // SAFETY: the context is bound and the event its own; no port is left.
                    note(unsafe { self.driver.event_destroy(event) });
                }
                let streams = core::mem::take(&mut *self.parting.lock());
                for stream in streams {
                    // SAFETY: the context is bound; the stream was made here and has no holder left.
                    note(unsafe { self.driver.stream_destroy(stream) });
                }
                let blocks = self.pinned.lock().take();
                for block in blocks {
                    // SAFETY: the block is of this driver, nobody owns it, and what used it was done before it was given back.
                    note(unsafe { self.driver.page_free(block) });
                }
                for page in pages {
                    // SAFETY: the page is of this driver; no handle of its lines is left, and every store into it has landed.
                    let result = unsafe { self.driver.page_free(page) };
                    count(if result.is_ok() { &census.pages_freed } else { &census.pages_leaked });
                    note(result);
                }
            }
            Err(error) => {
                for _ in &pages {
                    count(&census.pages_leaked);
                }
                note(Err(error));
            }
        }
        if unsure.is_empty() {
            // It may make driver calls, which see to their own failures.
            drop(owner);
            let given_back = match self.hold {
                // SAFETY: taken once, when this was made, and given back once.
                Hold::Primary(device) => unsafe { self.driver.release(device) },
                // SAFETY: made for this, and nothing in it is in use any more.
                Hold::Created => unsafe { self.driver.destroy(self.raw) },
                Hold::Foreign | Hold::Kept => Ok(()),
            };
            if given_back.is_err() {
                count(&census.contexts_leaked);
            }
            match self.hold {
                // Nothing of it runs any more.
                Hold::Created => self.hosted.abandon(),
                // Others may hold it too.
                Hold::Primary(_) | Hold::Foreign | Hold::Kept => self.hosted.leave(),
            }
            note(given_back);
        } else if self.hold != Hold::Foreign {
            core::mem::forget(owner);
            count(&census.contexts_leaked);
            self.hosted.leave();
        }
        self.abandon_if_failed();
        first
    }
}

impl<D: LineDriver> Drop for Inner<D> {
    fn drop(&mut self) {
        if let Err(error) = self.free() {
            self.failed_in_drop(&error);
        }
    }
}
