//! The timer slack of a thread, set for a while.

use core::marker::PhantomData;

use wakeline_core::{Error, ErrorCode, Nanos};

use crate::sys;

/// The calling thread's timer slack, until the guard is dropped.
///
/// Linux lets every timed sleep of a thread end late by its slack, 50 us by default, so as to merge wake-ups;
/// a slack of 1 ns makes a sleep as exact as the machine can, without any privilege. The hosts set it on
/// their own threads; on yours only you do, with this, but for the tens of microseconds of a nap before an [early wake](crate::WatcherConfig::early_wake)'s landing:
///
/// ```
/// use wakeline_core::Nanos;
/// use wakeline_std::TimerSlack;
/// let before = TimerSlack::of_this_thread();
/// let slack = TimerSlack::set(Nanos::from_nanos(1));
/// // ... exact waits ...
/// drop(slack);
/// assert_eq!(TimerSlack::of_this_thread(), before);
/// ```
///
/// Threads started meanwhile inherit it. Guards of one thread nest: drop them in reverse order. The guard
/// stays on its thread:
///
/// ```compile_fail
/// # use wakeline_core::Nanos;
/// # use wakeline_std::TimerSlack;
/// let slack = TimerSlack::set(Nanos::from_nanos(1));
/// std::thread::spawn(move || drop(slack)); // `TimerSlack` is not `Send`
/// ```
#[derive(Debug)]
#[must_use = "the slack is set back when the guard is dropped"]
pub struct TimerSlack {
    before: Nanos,
    /// Neither `Send` nor `Sync`: it is about this thread.
    this_thread: PhantomData<*const ()>,
}

impl TimerSlack {
    /// What the hosts set on their own threads: the least there is.
    pub const LEAST: Nanos = Nanos::from_nanos(1);

    /// Sets the slack of the calling thread, at least 1 ns. Two system calls, and one more at the drop.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Backend`] where the system knows no timer slack or refuses to set it: sleeps stay as they
    /// were.
    pub fn set(slack: Nanos) -> Result<Self, Error> {
        let set = sys::timer_slack()
            .and_then(|before| sys::set_timer_slack(slack.max(Self::LEAST)).map(|()| before));
        match set {
            Some(before) => Ok(Self { before, this_thread: PhantomData }),
            None => Err(Error::new(
                ErrorCode::Backend,
                [&"std", &"setting the timer slack", &"this system has none to set"],
            )),
        }
    }

    /// The slack of the calling thread, `None` where the system knows none. A system call.
    pub fn of_this_thread() -> Option<Nanos> {
        sys::timer_slack()
    }
}

impl Drop for TimerSlack {
    fn drop(&mut self) {
        // It was set once, so it can be set again; if not, sleeps stay more exact than before.
        let _ = sys::set_timer_slack(self.before);
    }
}
