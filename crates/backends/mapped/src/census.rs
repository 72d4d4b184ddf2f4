//! What was counted: things alive, left behind, and failures that nobody could be told of.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::driver::LineDriver;
use crate::error::{CallError, Kind};

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
    /// Pages never to be freed: a store into them may still come, or the driver did not take them back.
    pages_leaked
    /// Words never to be used again: a store into them may still come.
    slots_leaked
    /// Context references or contexts kept for such pages, or that the driver did not take back.
    contexts_leaked
    /// Driver calls that failed where nobody could be told: in a drop.
    drop_failures
    /// Host functions enqueued in place of stores.
    callbacks_made
}

/// A failure where nobody can be told. That the driver is gone is none.
pub(crate) fn failed_in_drop<D: LineDriver>(driver: &D, error: &CallError) {
    if error.kind != Kind::Gone {
        count(&driver.census().drop_failures);
    }
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
