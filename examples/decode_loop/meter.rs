//! What several threads use to wait: all of the process's CPU time but that of the simulated device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use wakeline::{Instant, Nanos, Turn};
use wakeline_std::usage::{process_cpu_time, thread_cpu_time};

/// For so long everything is let come to rest before the clocks are read.
///
/// The system adds the time of a thread that runs on another processor to the process's only when that thread sleeps, or at the
/// timer's next tick, milliseconds later. With all others asleep the reading is exact. After a wait they are so within some
/// tens of microseconds.
pub(crate) const REST: Nanos = Nanos::from_micros(500);

/// A device that tells what its thread has used.
#[derive(Debug)]
pub(crate) struct Metered<T> {
    device: T,
    used: Meter,
}

/// Reads the clocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    device_ns: Arc<AtomicU64>,
}

impl Meter {
    pub(crate) fn device<T>(&self, device: T) -> Metered<T> {
        Metered { device, used: self.clone() }
    }

    /// What all threads but the device's have used, once they have come to [`REST`]. Of the device's own time, what it takes to
    /// fall asleep after its last turn (about 2 us) is missing; in a difference of two readings that cancels out.
    pub(crate) fn others(&self) -> Nanos {
        let device = Nanos::from_nanos(self.device_ns.load(Ordering::Acquire));
        process_cpu_time().unwrap_or(Nanos::ZERO) - device
    }
}

impl<T: Turn> Turn for Metered<T> {
    fn turn(&self, now: Instant) -> Option<Instant> {
        let due = self.device.turn(now);
        // After what was due, so that it is no later for this.
        let used = thread_cpu_time().unwrap_or(Nanos::ZERO);
        self.used.device_ns.store(used.as_nanos(), Ordering::Release);
        due
    }

    fn set_bell(&self, bell: Waker) {
        self.device.set_bell(bell);
    }
}
