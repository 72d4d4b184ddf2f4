//! What a stretch of code used: CPU clocks and context switches.

use core::ops::AddAssign;

use serde::{Deserialize, Serialize};
use wakeline_core::Nanos;
use wakeline_std::usage::{process_cpu_time, thread_cpu_time, thread_switches};

/// CPU time and context switches, as counters or as the difference of two readings. 0 where the system does not tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of the calling thread, user and system.
    pub thread_cpu_ns: u64,
    /// CPU time of the whole process: the thread that plays the device counts too.
    pub process_cpu_ns: u64,
    /// How often the thread was switched out because it slept.
    pub voluntary_switches: u64,
    /// How often it was because another had to run.
    pub involuntary_switches: u64,
}

impl Usage {
    /// What this thread and its process have used so far. Three system calls, about 1 us.
    pub fn now() -> Self {
        let switches = thread_switches().unwrap_or_default();
        // The thread's clock is read last here and taken off first by `since` in no order: what lies between the
        // readings, a microsecond, is for spans of many waits. One wait is measured by the thread's clock alone.
        Self {
            process_cpu_ns: process_cpu_time().map_or(0, Nanos::as_nanos),
            voluntary_switches: switches.voluntary,
            involuntary_switches: switches.involuntary,
            thread_cpu_ns: thread_cpu_time().map_or(0, Nanos::as_nanos),
        }
    }

    /// What was used since `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            thread_cpu_ns: self.thread_cpu_ns.saturating_sub(earlier.thread_cpu_ns),
            process_cpu_ns: self.process_cpu_ns.saturating_sub(earlier.process_cpu_ns),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self.involuntary_switches.saturating_sub(earlier.involuntary_switches),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.thread_cpu_ns += other.thread_cpu_ns;
        self.process_cpu_ns += other.process_cpu_ns;
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_and_sums_are_by_field() {
        let at = |n| Usage {
            thread_cpu_ns: n,
            process_cpu_ns: 2 * n,
            voluntary_switches: 3 * n,
            involuntary_switches: 4 * n,
        };
        let mut sum = at(5).since(at(2));
        assert_eq!(sum, at(3));
        sum += at(4);
        assert_eq!(sum, at(7));
        assert_eq!(at(1).since(at(9)), Usage::default());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn work_uses_cpu_time_and_sleep_a_switch() {
        let start = Usage::now();
        let mut sum = 0_u64;
        while Usage::now().since(start).thread_cpu_ns < 1_000_000 {
            sum = core::hint::black_box(sum + 1);
        }
        std::thread::sleep(core::time::Duration::from_millis(1));
        let used = Usage::now().since(start);
        assert!(used.process_cpu_ns >= 1_000_000 && used.voluntary_switches >= 1, "{used:?}");
    }
}
