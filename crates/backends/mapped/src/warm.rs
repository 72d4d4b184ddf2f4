//! Keeping what a launch needs in the caches of the thread that launches next.
//!
//! What a driver's launch touches (its code, its queue's pages, the device's doorbell) has gone from a processor's caches when a thread has
//! slept for milliseconds, and the next launch takes several times as long. So a wait with `+warm` launches a kernel that does nothing, and stores
//! a word behind it, in a stream that nobody waits for: the same calls, at a moment at which it would only watch.

use std::sync::{Mutex, PoisonError, TryLockError};

use wakeline_core::{Error, ErrorCode, Seq, Status};

use crate::driver::{LineDriver, RawKernel, RawStream};
use crate::error::CallError;
use crate::inner::Inner;
use crate::path::CompletionPath;
use crate::pool::{Armed, Place};

/// What a context has for it. One thread at a time: who comes meanwhile does without, and nobody ever waits here.
#[derive(Debug, Default)]
pub(crate) struct Warming(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    /// Nobody has asked for it yet.
    #[default]
    Cold,
    Ready(Warmer),
    /// It cannot be had, or not any more, and why; `None` where the context lets it go.
    Out(Option<Error>),
}

#[derive(Debug)]
struct Warmer {
    stream: RawStream,
    /// `None` where the driver has none: then it stores only.
    kernel: Option<RawKernel>,
    place: Place,
    last: Seq,
    /// Whether the store of the last number was enqueued for sure.
    sure: bool,
}

impl<D: LineDriver> Inner<D> {
    /// Makes what [`warm`](Self::warm) needs, unless that was done.
    ///
    /// # Errors
    ///
    /// The context's fault; else that it could not be set up, the first time that it was asked for, with what made a call fail as its source.
    pub(crate) fn prepare_warming(&self) -> Result<(), Error> {
        self.open()?;
        let mut state = self.warming.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.make_warmer(&mut state);
        match &*state {
            State::Out(why) => {
                let error = |why: &dyn core::fmt::Display| {
                    Error::new(ErrorCode::Backend, [&D::NAME, &"warming", why])
                };
                Err(match why {
                    Some(why) => error(&"it could not be set up").with_source(why.clone()),
                    None => error(&"its context is gone"),
                })
            }
            State::Cold | State::Ready(_) => Ok(()),
        }
    }

    /// Makes the calls that a submission makes, for nothing. At most one kernel is outstanding: while it is, the driver is only asked.
    pub(crate) fn warm(&self) {
        if self.open().is_err() {
            return;
        }
        let mut state = match self.warming.0.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        self.make_warmer(&mut state);
        let State::Ready(warmer) = &mut *state else { return };
        if let Err(error) = self.launch(warmer) {
            // A fault is the context's, for all who wait in it.
            let error = self.told(error);
            if let State::Ready(warmer) = core::mem::replace(&mut *state, State::Out(Some(error)))
                && let Some(_bound) = self.bind_in_drop()
                && let Err(error) = self.let_go(warmer)
            {
                self.failed_in_drop(&error);
            }
        }
    }

    /// Asks for it the first time; what failed then is not tried again.
    fn make_warmer(&self, state: &mut State) {
        if matches!(state, State::Cold) {
            *state = self.warmer().map_or_else(|error| State::Out(Some(error)), State::Ready);
        }
    }

    fn warmer(&self) -> Result<Warmer, Error> {
        let _bound = self.bind()?;
        // SAFETY: the context is bound.
        let kernel = match unsafe { self.driver.idle_kernel() } {
            Ok(kernel) => kernel,
            // Stores alone are better than nothing; a fault is one all the same.
            Err(error) => {
                let _ = self.told(error);
                self.sound()?;
                None
            }
        };
        let place = self.take_place()?;
        // SAFETY: the page is the context's.
        let last = unsafe { place.word() };
        // SAFETY: the context is bound.
        match unsafe { self.driver.stream_create(0) } {
            Ok(stream) => Ok(Warmer { stream, kernel, place, last, sure: true }),
            Err(error) => {
                self.give_place(place, Armed::Upto(last));
                Err(self.told(error))
            }
        }
    }

    fn launch(&self, warmer: &mut Warmer) -> Result<(), CallError> {
        let _bound = self.try_bind()?;
        let Warmer { stream, kernel, place, last, sure } = warmer;
        // SAFETY: the context is bound, the stream its own and never captured: nobody else has it.
        if unsafe { self.driver.stream_query(*stream) }? == Status::Pending {
            return Ok(());
        }
        if let Some(kernel) = *kernel {
            // SAFETY: the context is bound, the kernel loaded for good and without parameters that mean anything.
            unsafe { self.driver.launch_idle(kernel, *stream) }?;
        }
        if self.completion() == CompletionPath::Word {
            *last = last.next();
            // SAFETY: the context is bound, the stream its own, the word this warmer's until its last store has landed.
            let stored = unsafe { self.driver.store(*stream, place.device(), last.get()) };
            *sure = stored.is_ok();
            return stored;
        }
        Ok(())
    }

    /// Gives the word back, and the stream, whose work still ends. The context is bound.
    fn let_go(&self, Warmer { stream, place, last, sure, .. }: Warmer) -> Result<(), CallError> {
        self.give_place(place, if sure { Armed::Upto(last) } else { Armed::Unknown });
        self.part_with(stream)
    }

    /// Lets go what there is, when nobody uses the context any more. It is bound.
    pub(crate) fn end_warming(&self) -> Result<(), CallError> {
        let mut state = self.warming.0.lock().unwrap_or_else(PoisonError::into_inner);
        match core::mem::replace(&mut *state, State::Out(None)) {
            State::Ready(warmer) => self.let_go(warmer),
            State::Cold | State::Out(_) => Ok(()),
        }
    }
}
