//! What the driver keeps for each thread: the stack of contexts, how captures of others bind it, whether it is one of ours.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use super::Answer;
use super::state::State;
use crate::Status;

/// Counts the times that all threads are to forget what is kept for them.
static EPOCH: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SEEN: Cell<u64> = const { Cell::new(0) };
    static CONTEXTS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static DEVICE: Cell<i32> = const { Cell::new(0) };
    static CAPTURE_MODE: Cell<u32> = const { Cell::new(0) };
    static RUNS_HOST_FUNCTIONS: Cell<bool> = const { Cell::new(false) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread's number.
pub(super) fn thread() -> u64 {
    let asked = || {
        let number = crate::thread_id();
        // A thread that is ending may have lost its memory of it.
        let _ = THREAD.try_with(|thread| thread.set(number));
        number
    };
    THREAD.try_with(Cell::get).ok().filter(|number| *number != 0).unwrap_or_else(asked)
}

/// Empties what is kept for every thread, when it comes to look.
pub(super) fn forget() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

fn forget_if_told() {
    let epoch = EPOCH.load(Ordering::Relaxed);
    if SEEN.try_with(|seen| seen.replace(epoch)).is_ok_and(|seen| seen != epoch) {
        let _ = CONTEXTS.try_with(|contexts| contexts.borrow_mut().clear());
        let _ = CAPTURE_MODE.try_with(|mode| mode.set(0));
        let _ = DEVICE.try_with(|device| device.set(0));
    }
}

/// Works on the calling thread's stack. One that is ending has none any more.
fn contexts<T>(work: impl FnOnce(&mut Vec<u64>) -> T) -> Option<T> {
    forget_if_told();
    CONTEXTS.try_with(|contexts| work(&mut contexts.borrow_mut())).ok()
}

/// The handle of the current context, whatever became of it.
pub(super) fn top() -> Option<u64> {
    contexts(|contexts| contexts.last().copied()).flatten()
}

pub(super) fn push(context: u64) {
    contexts(|contexts| contexts.push(context));
}

pub(super) fn pop() -> Option<u64> {
    contexts(Vec::pop).flatten()
}

/// HIP's current device.
pub(super) fn device() -> i32 {
    forget_if_told();
    DEVICE.try_with(Cell::get).unwrap_or(0)
}

pub(super) fn set_device(device: i32) {
    forget_if_told();
    let _ = DEVICE.try_with(|cell| cell.set(device));
}

/// How captures by other threads bind this one: a `CUstreamCaptureMode`.
pub(super) fn capture_mode() -> u32 {
    forget_if_told();
    CAPTURE_MODE.try_with(Cell::get).unwrap_or(0)
}

pub(super) fn set_capture_mode(mode: u32) {
    forget_if_told();
    let _ = CAPTURE_MODE.try_with(|cell| cell.set(mode));
}

pub(super) fn runs_host_functions() -> bool {
    RUNS_HOST_FUNCTIONS.try_with(Cell::get).unwrap_or(false)
}

pub(super) fn now_runs_host_functions() {
    let _ = RUNS_HOST_FUNCTIONS.try_with(|cell| cell.set(true));
}

impl State {
    /// The context that a call works in: there, and well.
    pub(super) fn current(&self) -> Answer<u64> {
        let context = top().ok_or(Status::INVALID_CONTEXT)?;
        self.well(context)?;
        Ok(context)
    }

    /// Stops a call in a context that is gone or has failed.
    pub(super) fn well(&self, context: u64) -> Answer {
        let context = self.contexts.get(&context).ok_or(Status::CONTEXT_IS_DESTROYED)?;
        match context.failure(self.now) {
            Some(status) => Err(status.into()),
            None => Ok(()),
        }
    }
}
