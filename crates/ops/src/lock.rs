//! The execution lock: while an operation is submitted, its thread executes no other.
//!
//! Closures of [`then`](crate::DeviceOp::then) and its like get names of what the device is still to make. An operation that one of them
//! executed by itself would come before what is enqueued behind the closure, in a stream of its own, and where it is waited for, in a
//! poll. So that is an error, and what a closure returns becomes a part of the submission instead.
//!
//! Another thread that a closure has such a name handed to is not kept from using it. Tensors are ordered by their records, whoever uses
//! them and however far the submission is; nothing here is locked while a closure runs that such a thread could wait for, but a
//! [`shared`](crate::DeviceOp::shared) operation that is being submitted, for which it waits a bounded time.

use core::cell::Cell;
use core::task::Waker;

use wakeline_core::{Error, ErrorCode};

use crate::panics::survive;

thread_local! {
    /// Whether an operation is being submitted on this thread.
    static SUBMITS: Cell<bool> = const { Cell::new(false) };
}

/// Held while an operation is submitted. Given back when it is dropped, by a panic too.
#[derive(Debug)]
pub(crate) struct Submits(());

impl Submits {
    /// Takes the lock of this thread.
    ///
    /// # Errors
    ///
    /// [`NestedExecution`](ErrorCode::NestedExecution): an operation is being submitted.
    #[inline]
    pub(crate) fn lock() -> Result<Self, Error> {
        check()?;
        SUBMITS.set(true);
        Ok(Self(()))
    }
}

impl Drop for Submits {
    #[inline]
    fn drop(&mut self) {
        SUBMITS.set(false);
    }
}

/// That no operation is being submitted on this thread.
#[inline]
pub(crate) fn check() -> Result<(), Error> {
    if SUBMITS.get() { Err(nested()) } else { Ok(()) }
}

#[cold]
fn nested() -> Error {
    Error::new(ErrorCode::NestedExecution, [])
}

/// Calls `f` without the lock.
pub(crate) fn released<R>(f: impl FnOnce() -> R) -> R {
    /// Takes it again.
    struct Again(bool);
    impl Drop for Again {
        fn drop(&mut self) {
            SUBMITS.set(self.0);
        }
    }
    let _again = Again(SUBMITS.replace(false));
    f()
}

/// Wakes a task without the lock, for a waker may poll it on the spot, and that may submit. No panic comes from here; whether there was none.
///
/// Called under no lock of ours.
pub(crate) fn wake(waker: Waker) -> bool {
    survive(|| released(|| waker.wake()))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_is_taken_once_and_given_back_by_a_panic_too() {
        let held = Submits::lock().unwrap();
        assert_eq!(Submits::lock().unwrap_err().code(), ErrorCode::NestedExecution);
        released(|| drop(Submits::lock().unwrap()));
        assert!(check().is_err(), "taken again");
        std::thread::spawn(check).join().unwrap().unwrap();
        drop(held);
        let panics = std::panic::catch_unwind(|| {
            let _held = Submits::lock();
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(panics.is_err() && check().is_ok());
    }
}
