//! What a thread and the process have used: CPU time and context switches, for benchmarks and reports.
//!
//! `None` where the system does not tell. Each is one system call (about 0.3 us).

use wakeline_core::Nanos;

use crate::sys;

/// How often a thread was switched out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Switches {
    /// Because it slept.
    pub voluntary: u64,
    /// Because somebody else had to run.
    pub involuntary: u64,
}

/// The CPU time that the calling thread has used, user and system.
///
/// ```
/// use wakeline_std::usage::thread_cpu_time;
/// let before = thread_cpu_time();
/// assert!(thread_cpu_time() >= before);
/// ```
pub fn thread_cpu_time() -> Option<Nanos> {
    sys::thread_cpu()
}

/// The CPU time that all threads of the process have used, ended ones included, user and system.
pub fn process_cpu_time() -> Option<Nanos> {
    sys::process_cpu()
}

/// The context switches of the calling thread so far.
pub fn thread_switches() -> Option<Switches> {
    sys::thread_switches().map(|(voluntary, involuntary)| Switches { voluntary, involuntary })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::clock::StdClock;
    use wakeline_core::Clock;

    #[test]
    fn sleeping_costs_switches_and_no_time_and_spinning_costs_time() {
        let clock = StdClock::new();
        let (start, switches) = (thread_cpu_time().unwrap(), thread_switches().unwrap());
        for _ in 0..5 {
            clock.sleep_until(clock.now() + Nanos::from_millis(2));
        }
        let slept = thread_cpu_time().unwrap();
        assert!(slept - start < Nanos::from_millis(10), "{}", slept - start);
        assert!(thread_switches().unwrap().voluntary >= switches.voluntary + 5);
        while thread_cpu_time().unwrap() - slept < Nanos::from_millis(2) {}
        assert!(process_cpu_time().unwrap() >= thread_cpu_time().unwrap());
    }
}
