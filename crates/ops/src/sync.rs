//! A lock that goes on after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Nothing foreign runs under a lock of this crate, so a panic under one is a bug of the crate itself; a destructor that comes by then
/// must still not panic.
#[derive(Debug, Default)]
pub(crate) struct Lock<V>(Mutex<V>);

impl<V> Lock<V> {
    pub(crate) const fn new(value: V) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, V> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
