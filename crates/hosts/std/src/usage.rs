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
