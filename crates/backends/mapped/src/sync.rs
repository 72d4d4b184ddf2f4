//! A lock that goes on after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A mutex under which nothing foreign runs: a panic under it is a bug of this crate, and a destructor that comes by then
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
