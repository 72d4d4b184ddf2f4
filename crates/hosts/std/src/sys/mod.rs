//! The boundary to the operating system. Each file supplies, under the same names:
//!
//! - `Clock`: `Copy`, `new()`, `now()` and `sleep_until(at)`, which never returns before `at`
//! - `Sleeper`: `wait(word, expected, until, clock)` puts the calling thread to sleep while `word` reads
//!   `expected`, atomically with respect to `rouse(word)`, which ends it from any thread; may end for no
//!   reason
//! - `timer_slack()` and `set_timer_slack(ns)` of the calling thread, `None` where there is no such thing
//! - `thread_cpu()`, `process_cpu()` and `thread_switches()`, `None` where they cannot be read

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub(crate) use linux::{
    Clock, Sleeper, process_cpu, set_timer_slack, thread_cpu, thread_switches, timer_slack,
};

// Compiled on Linux too under test, so that the file cannot rot.
#[cfg(any(not(target_os = "linux"), test))]
#[cfg_attr(any(target_os = "linux", windows), allow(dead_code))]
mod portable;
#[cfg(not(any(target_os = "linux", windows)))]
pub(crate) use portable::{
    Clock, Sleeper, process_cpu, set_timer_slack, thread_cpu, thread_switches, timer_slack,
};

#[cfg(windows)]
mod windows;
#[cfg(windows)]
pub(crate) use windows::{
    Clock, Sleeper, process_cpu, set_timer_slack, thread_cpu, thread_switches, timer_slack,
};
