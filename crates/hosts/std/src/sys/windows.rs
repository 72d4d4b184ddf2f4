//! Windows: a waitable timer of high resolution and an event for the sleeper, and the times of threads and processes.
//!
//! The clock is `std`'s, which reads the performance counter; its sleeps are such timers, too. Parking a thread is not: it ends at the next tick of the
//! system's timer, up to 16 ms late. So the sleeper waits for two objects of the system's instead.
#![allow(unsafe_code, reason = "the system's calls")]

use core::ptr::null;
use core::sync::atomic::{AtomicU32, Ordering};

use wakeline_core::{Instant, Nanos};
use windows_sys::Win32::Foundation::{CloseHandle, FILETIME, HANDLE};
use windows_sys::Win32::System::Threading::{
    CREATE_WAITABLE_TIMER_HIGH_RESOLUTION, CreateEventW, CreateWaitableTimerExW, GetCurrentProcess,
    GetCurrentThread, GetProcessTimes, GetThreadTimes, INFINITE, SetEvent, SetWaitableTimerEx,
    TIMER_ALL_ACCESS, WaitForMultipleObjects, WaitForSingleObject,
};

use super::portable;
use crate::bell::Rouse;

pub(crate) use portable::{Clock, set_timer_slack, thread_switches, timer_slack};

/// What the system counts times in.
const NS_PER_UNIT: u64 = 100;

/// An object of the system's, closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Object(HANDLE);

// SAFETY: a handle is a number that names an object of the process; every thread may use it.
unsafe impl Send for Object {}
// SAFETY: as above; the system synchronises its objects.
unsafe impl Sync for Object {}

impl Object {
    fn new(handle: HANDLE) -> Option<Self> {
        (!handle.is_null()).then_some(Self(handle))
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: it is this value's own, and nobody waits for it any more: whoever does borrows it.
        unsafe { CloseHandle(self.0) };
    }
}

/// What a thread sleeps on.
#[derive(Debug)]
pub(crate) enum Sleeper {
    /// Both end one wait and are reset by it.
    Objects {
        /// Set by who rouses; stays set until a wait takes it, so none is lost.
        ring: Object,
        timer: Object,
    },
    /// Where the system has no such timer (before Windows 10, version 1803) or no more objects.
    Portable(portable::Sleeper),
}

impl Sleeper {
    pub(crate) fn new() -> Self {
        // SAFETY: no attributes and no name; resets itself, not set.
        let ring = Object::new(unsafe { CreateEventW(null(), 0, 0, null()) });
        let flags = CREATE_WAITABLE_TIMER_HIGH_RESOLUTION;
        // SAFETY: no attributes and no name.
        let timer = Object::new(unsafe { CreateWaitableTimerExW(null(), null(), flags, TIMER_ALL_ACCESS) });
        match (ring, timer) {
            (Some(ring), Some(timer)) => Self::Objects { ring, timer },
            _ => Self::Portable(portable::Sleeper::new()),
        }
    }

    pub(crate) fn wait(&self, word: &AtomicU32, expected: u32, until: Option<Instant>, clock: Clock) {
        let (ring, timer) = match self {
            Self::Objects { ring, timer } => (ring, timer),
            Self::Portable(sleeper) => return sleeper.wait(word, expected, until, clock),
        };
        // Whoever changes the word after this look sets the event, which ends the wait at once.
        if word.load(Ordering::SeqCst) != expected {
            return;
        }
        let Some(until) = until else {
            // SAFETY: the handle is alive, since it is borrowed.
            unsafe { WaitForSingleObject(ring.0, INFINITE) };
            return;
        };
        // Negative: from now on. Rounded up, and without a tolerance.
        let units = until.since(clock.now()).as_nanos().div_ceil(NS_PER_UNIT);
        let due = -i64::try_from(units).unwrap_or(i64::MAX);
        // SAFETY: the handle is alive; `due` is read in the call; there is neither a routine nor a context.
        let set = unsafe { SetWaitableTimerEx(timer.0, &raw const due, 0, None, null(), null(), 0) };
        if set == 0 {
            // It looks again; late is allowed, lost is not.
            std::thread::yield_now();
            return;
        }
        let objects = [ring.0, timer.0];
        // SAFETY: both are alive, and the array has two.
        unsafe { WaitForMultipleObjects(2, objects.as_ptr(), 0, INFINITE) };
    }
}

impl Rouse for Sleeper {
    fn rouse(&self, word: &AtomicU32) {
        match self {
            // SAFETY: the handle is alive, since it is borrowed.
            Self::Objects { ring, .. } => _ = unsafe { SetEvent(ring.0) },
            Self::Portable(sleeper) => sleeper.rouse(word),
        }
    }
}

/// What a thread or a process has run, in user mode and in the kernel.
fn times(ask: impl FnOnce(&mut [FILETIME; 4]) -> i32) -> Option<Nanos> {
    let mut times = [FILETIME::default(); 4];
    if ask(&mut times) == 0 {
        return None;
    }
    let units = |time: FILETIME| u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
    let [_, _, kernel, user] = times;
    Some(Nanos::from_nanos(units(kernel).saturating_add(units(user)).saturating_mul(NS_PER_UNIT)))
}

pub(crate) fn thread_cpu() -> Option<Nanos> {
    // SAFETY: it takes nothing, and its handle needs no closing.
    let thread = unsafe { GetCurrentThread() };
    // SAFETY: the handle stands for the calling thread, and the four are there to be written.
    times(|[made, ended, kernel, user]| unsafe { GetThreadTimes(thread, made, ended, kernel, user) })
}

pub(crate) fn process_cpu() -> Option<Nanos> {
    // SAFETY: as above.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: the handle stands for this process, and the four are there to be written.
    times(|[made, ended, kernel, user]| unsafe { GetProcessTimes(process, made, ended, kernel, user) })
}
