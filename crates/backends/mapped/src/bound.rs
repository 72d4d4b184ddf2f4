//! Binding a context around the calls of one operation, and standing aside of captures.

use core::marker::PhantomData;

use crate::census::failed_in_drop;
use crate::driver::{CaptureMode, LineDriver, RawContext};
use crate::error::{CallError, Kind};

/// This thread has the right context, and none of its calls can invalidate a capture, for as long as this lives. Then the caller's
/// own context and mode are back.
///
/// A thread pool's thread has another context than the one that made the stream, or none at all: every operation binds its own.
/// Costs a look at the thread's context and two exchanges of its mode; nothing else where the context is right, and one exchange less
/// within another of these. Calls that only enqueue disturb no capture in any mode: for those the look is enough.
#[derive(Debug)]
pub struct Bound<'d, D: LineDriver> {
    driver: &'d D,
    context: RawContext,
    /// The caller's context, where it is another.
    before: Option<RawContext>,
    mode: Option<CaptureMode>,
    /// Both belong to this thread.
    here: PhantomData<*const ()>,
}

impl<'d, D: LineDriver> Bound<'d, D> {
    /// Binds `context`, for calls that only enqueue.
    ///
    /// # Safety
    ///
    /// `context` is alive for as long as the value is, and the caller's own for as long as well: nothing destroys a context that is
    /// another thread's by the driver's own rules.
    pub(crate) unsafe fn new(driver: &'d D, context: RawContext) -> Result<Self, CallError> {
        let current = driver.current()?;
        let before = if current == context {
            None
        } else {
            // SAFETY: alive, says the caller.
            if let Err(error) = unsafe { driver.set_current(context) } {
                // It may have been done all the same.
                // SAFETY: it is this thread's context, and alive by the contract.
                let _ = unsafe { driver.set_current(current) };
                return Err(error);
            }
            Some(current)
        };
        Ok(Self { driver, context, before, mode: None, here: PhantomData })
    }

    /// The same, and none of this thread's calls can invalidate a capture.
    ///
    /// # Safety
    ///
    /// As [`new`](Self::new).
    pub(crate) unsafe fn aside(driver: &'d D, context: RawContext) -> Result<Self, CallError> {
        // SAFETY: as the caller says.
        let mut bound = unsafe { Self::new(driver, context) }?;
        bound.mode = match driver.exchange_capture_mode(D::RELAXED) {
            // As it is, there is nothing to give back.
            Ok(mode) => Some(mode).filter(|mode| *mode != D::RELAXED),
            // A driver that knows of no modes knows of no captures to disturb.
            Err(error) if error.kind == Kind::NotSupported => None,
            Err(error) => return Err(error),
        };
        Ok(bound)
    }
}

impl<D: LineDriver> Bound<'_, D> {
    fn note(&self, result: Result<(), CallError>) {
        if let Err(error) = result {
            failed_in_drop(self.driver, &error);
        }
    }
}

impl<D: LineDriver> Drop for Bound<'_, D> {
    fn drop(&mut self) {
        // What fails here leaves the thread with another context or mode than its own, and nobody can be told.
        if let Some(mode) = self.mode {
            self.note(self.driver.exchange_capture_mode(mode).map(drop));
        }
        if let Some(before) = self.before {
            // Where guards are dropped out of order, another's context is this thread's by now: it stays.
            match self.driver.current() {
                Ok(current) if current != self.context => return,
                current => self.note(current.map(drop)),
            }
            // SAFETY: it was this thread's context when the value was made, and is alive by the contract of `new`.
            let give_back = || unsafe { self.driver.set_current(before) };
            if let Err(error) = give_back() {
                self.note(Err(error));
                // Else ours stays this thread's, and would be given back to it by the next of another context when it is long destroyed.
                let _ = give_back();
            }
        }
    }
}
