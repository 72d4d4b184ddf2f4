//! Code of others that may panic where there is nobody to be told.

use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

/// Runs it; whether it came to its end.
pub(crate) fn survive(f: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => true,
        Err(payload) => {
            // It may panic as it is dropped.
            core::mem::forget(payload);
            false
        }
    }
}
