//! The one place that chooses between the standard library's locks and loom's.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, MutexGuard};

#[cfg(loom)]
use loom::sync::Mutex;
#[cfg(not(loom))]
use std::sync::Mutex;
use std::sync::PoisonError;

/// A lock that goes on after a panic.
///
/// Nothing foreign runs under a lock of this crate, so a panic under one is a bug of the crate itself; a destructor that comes by then
/// must still not panic.
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
