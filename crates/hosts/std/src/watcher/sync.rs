//! The one place that chooses between the system's synchronisation and loom's.

#[cfg(not(loom))]
pub(super) use real::*;

#[cfg(loom)]
pub(super) use model::*;

#[cfg(not(loom))]
mod real {
    pub(crate) use atomic_waker::AtomicWaker;
    pub(crate) use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use crossbeam_queue::SegQueue as Queue;
    pub(crate) use std::sync::MutexGuard;
    use std::sync::{Mutex, PoisonError};

    /// A lock that no panic poisons: what it guards is left whole by every line that could panic.
    #[derive(Debug, Default)]
    pub(crate) struct Lock<T>(Mutex<T>);

    impl<T> Lock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// A value that is set once, by whoever comes first.
    #[derive(Debug)]
    pub(crate) struct Once<T>(std::sync::OnceLock<T>);

    impl<T: Clone> Once<T> {
        pub(crate) fn new() -> Self {
            Self(std::sync::OnceLock::new())
        }

        /// Whether this was the first. `Release`, for the `Acquire` of [`get`](Self::get).
        pub(crate) fn set(&self, value: T) -> bool {
            self.0.set(value).is_ok()
        }

        pub(crate) fn get(&self) -> Option<T> {
            self.0.get().cloned()
        }

        pub(crate) fn is_set(&self) -> bool {
            self.0.get().is_some()
        }
    }
}

/// The same over loom's. A queue and a waker's cell are locks here: loom cannot look into those of other crates, which are
/// tested in their own.
#[cfg(loom)]
mod model {
    pub(crate) use loom::sync::MutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

    use core::fmt;
    use core::task::Waker;
    use loom::sync::Mutex;
    use std::collections::VecDeque;
    use std::sync::PoisonError;

    pub(crate) struct Lock<T>(Mutex<T>);

    impl<T> Lock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl<T: Default> Default for Lock<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    impl<T> fmt::Debug for Lock<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Lock")
        }
    }

    #[derive(Debug)]
    pub(crate) struct Once<T>(Lock<Option<T>>);

    impl<T: Clone> Once<T> {
        pub(crate) fn new() -> Self {
            Self(Lock::new(None))
        }

        pub(crate) fn set(&self, value: T) -> bool {
            let mut first = self.0.lock();
            let is_first = first.is_none();
            first.get_or_insert(value);
            is_first
        }

        pub(crate) fn get(&self) -> Option<T> {
            self.0.lock().clone()
        }

        pub(crate) fn is_set(&self) -> bool {
            self.0.lock().is_some()
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Queue<T>(Lock<VecDeque<T>>);

    impl<T> Queue<T> {
        pub(crate) fn new() -> Self {
            Self(Lock::new(VecDeque::new()))
        }

        pub(crate) fn push(&self, value: T) {
            self.0.lock().push_back(value);
        }

        pub(crate) fn pop(&self) -> Option<T> {
            self.0.lock().pop_front()
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.0.lock().is_empty()
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct AtomicWaker(Lock<Option<Waker>>);

    impl AtomicWaker {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        pub(crate) fn register(&self, waker: &Waker) {
            let old = self.0.lock().replace(waker.clone());
            drop(old);
        }

        pub(crate) fn take(&self) -> Option<Waker> {
            self.0.lock().take()
        }
    }
}
