//! A storm of signals on one thread.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "only tests use it")]

extern crate alloc;

use alloc::sync::Arc;
use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::thread::JoinHandle;

thread_local! {
    static SIGNALS: Cell<u32> = const { Cell::new(0) };
}

extern "C" fn count(_signal: libc::c_int) {
    SIGNALS.set(SIGNALS.get() + 1);
}

/// Sends a signal to the thread that made it a thousand times a second, until it is dropped.
pub(crate) struct Storm {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Not `Send`: the thread that is signalled outlives it.
    this_thread: PhantomData<*const ()>,
}

impl Storm {
    pub(crate) fn on_this_thread() -> Self {
        // SAFETY: all fields of `sigaction` are integers, sets of bits and optional functions: zeroes are valid.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        // No SA_RESTART: every system call that can be interrupted is.
        action.sa_sigaction = count as *const () as libc::sighandler_t;
        // SAFETY: the handler only touches a plain thread-local number; the action is valid for the call.
        let status = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut()) };
        assert_eq!(status, 0);
        // SAFETY: it has no requirements.
        let target = unsafe { libc::pthread_self() };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                // SAFETY: the target outlives this thread, which `Storm`, bound to the target, joins.
                unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_micros(930));
            }
        });
        SIGNALS.set(0);
        Self { stop, thread: Some(thread), this_thread: PhantomData }
    }

    /// How many signals this thread has had since the storm began.
    // Of a storm: there is none without.
    #[allow(clippy::unused_self)]
    pub(crate) fn signals(&self) -> u32 {
        SIGNALS.get()
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
