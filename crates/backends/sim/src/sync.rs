//! The one place that chooses between the standard library's locks and loom's.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, Ordering};
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

use std::sync::PoisonError;

/// A mutex that goes on after a panic.
///
/// Nothing foreign runs under a lock of this crate, so a panic under one is a bug of the crate itself; a
/// destructor that comes by then must still not panic.
#[derive(Debug)]
pub(crate) struct Lock<V>(Mutex<V>);

impl<V> Lock<V> {
    pub(crate) fn new(value: V) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, V> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
