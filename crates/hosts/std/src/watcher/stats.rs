//! What a watcher has done, in numbers.

use super::sync::{AtomicU64, Ordering};

/// A number that one thread at a time adds to and all may read.
#[derive(Debug)]
pub(super) struct Count(AtomicU64);

impl Default for Count {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Count {
    /// By whoever leads the shard: a load and a store.
    pub(super) fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// By anybody.
    pub(super) fn bump(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one shard counts.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) arrivals: Count,
    pub(super) ends: Count,
    pub(super) early_wakes: Count,
    pub(super) queries: Count,
    pub(super) blocks: Count,
    pub(super) faults: Count,
    pub(super) wakes: Count,
    pub(super) panics: Count,
    pub(super) sleeps: Count,
    pub(super) naps: Count,
    pub(super) parks: Count,
    pub(super) takeovers: Count,
}

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident $text:literal,)*) => {
        /// What a [`Watcher`](crate::Watcher) has done since it was made, over all of its shards.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub struct WatcherStats { $($(#[$doc])* pub $name: u64,)* }

        impl WatcherStats {
            pub(super) fn add(&mut self, counters: &Counters) {
                $(self.$name += counters.$name.get();)*
            }

            /// Each number with its name and what it means, for a metrics page: each is a counter, named `watcher_..`.
            ///
            /// ```
            /// use wakeline_std::{Metric, Points, Watcher};
            /// let (watcher, points) = (Watcher::new()?, Points::new(8)?);
            /// let mut snapshot = points.snapshot();
            /// let counters = watcher.stats().list().into_iter();
            /// snapshot.metrics.extend(counters.map(|(name, help, value)| Metric::counter(name, help, value)));
            /// assert!(snapshot.prometheus().contains("\nwakeline_watcher_queries_total 0\n"));
            /// # Ok::<(), wakeline_core::Error>(())
            /// ```
            pub fn list(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((concat!("watcher_", stringify!($name)), $text, self.$name),)*]
            }
        }
    };
}

stats! {
    /// Flights that a shard took over. One that had an outcome at once never was a flight.
    arrivals "Flights that a shard took over.",
    /// Flights that have left, ended or abandoned.
    ends "Flights that have left, ended or abandoned.",
    /// Calls of wakers, early ones and those that stir included.
    wakes "Calls of wakers, early ones and those that stir included.",
    /// Tasks that were woken to watch themselves.
    early_wakes "Tasks that were woken before their word landed, to watch it themselves.",
    /// Status queries made by the watcher's threads.
    queries "Status queries made by the watcher's threads.",
    /// Driver's own waits made on helper threads.
    blocks "Driver's own waits made on helper threads.",
    /// How often a failed query had all flights of its context asked.
    faults "How often a failed query had all flights of its context asked.",
    /// Wakers that panicked, and subscribers of `tracing` on the watcher's threads.
    panics "Wakers, and subscribers of tracing on the watcher's threads, that panicked.",
    /// Sleeps with no word to watch.
    sleeps "Sleeps of a shard with no word to watch.",
    /// Naps between two looks at watched words.
    naps "Naps of a shard between two looks at watched words.",
    /// Parks on a line in hardware.
    parks "Parks of a shard on a line in hardware.",
    /// How often another thread took a shard over because its own was held up in a driver call or a waker.
    takeovers "How often another thread took a shard over from one that was held up.",
}
