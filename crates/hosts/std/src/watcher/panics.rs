//! Code of others that panics on a thread of ours.

use alloc::string::String;
use core::any::Any;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use wakeline_core::{Error, ErrorCode};

use super::stats::Count;

/// Makes a driver call; a panic of the backend is a failed call.
pub(super) fn caught<T>(call: &str, run: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    // What a backend leaves behind when it panics is its own; nothing of ours is in the middle of anything.
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let message = message(panic);
        Err(Error::new(ErrorCode::Backend, [&"a backend", &call, &message]))
    })
}

/// Runs code of the user's; the message of its panic, where it panicked.
pub(super) fn message_of(run: impl FnOnce()) -> Option<String> {
    catch_unwind(AssertUnwindSafe(run)).err().map(message)
}

/// Lets go of what others made, on a thread of ours: a destructor that panics is told, and ends nothing else.
pub(super) fn let_go<T>(theirs: T) {
    if let Some(panic) = message_of(|| drop(theirs)) {
        tell(None, || crate::trace::destructor_panicked(&panic));
    }
}

/// Emits events, on a thread of ours: a subscriber that panics is counted where there is a count, and ends nothing else. Nobody is told
/// of that: there is nobody else to tell.
pub(super) fn tell(panics: Option<&Count>, emit: impl FnOnce()) {
    if let (Some(_), Some(count)) = (message_of(emit), panics) {
        count.bump();
    }
}

fn message(panic: Box<dyn Any + Send>) -> String {
    let text = crate::device::message(&*panic);
    // A payload may panic when it is dropped, and must not do so here.
    core::mem::forget(panic);
    text
}
