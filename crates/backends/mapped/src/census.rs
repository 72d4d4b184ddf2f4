//! What was counted: things alive, left behind, and failures that nobody could be told of.

use core::sync::atomic::{AtomicU64, Ordering};

macro_rules! census {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// Counters of one loaded driver. Relaxed additions, off the hot path.
        #[derive(Debug, Default)]
        pub struct Census { $(pub(crate) $name: AtomicU64,)* }

        /// What a [`Census`] has counted so far.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        impl Census {
            /// Nothing counted yet.
            pub const fn new() -> Self {
                Self { $($name: AtomicU64::new(0),)* }
            }

            /// What was counted so far; each counter by itself.
            pub fn counts(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

census! {
    /// Pages of lines allocated.
    pages_made
    /// Pages freed.
    pages_freed
    /// Pages never to be freed: a store into them may still come.
    pages_leaked
    /// Words never to be used again: a store into them may still come.
    slots_leaked
    /// Context references or contexts kept for such pages.
    contexts_leaked
    /// Driver calls that failed where nobody could be told: in a drop.
    drop_failures
    /// Host functions enqueued in place of stores.
    callbacks_made
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
