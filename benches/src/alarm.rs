//! The least that an early wake of a tokio task can cost: tokio's own `Notify`, called by a thread that knows the end beforehand.
//!
//! ```text
//!   task:    launches ─► tells the alarm ─► awaits its `Notify` ········ runs ─► watches the word
//!   alarm:               sleeps, in one or in two ──► `notify_one` ────────┘     ▲
//!                                                    └────────── lead ──────────┘
//! ```
//!
//! Nothing is learned and nothing is guessed, and the alarm does nothing else. So for every lead this is a bound of what any watcher of ours can
//! do: what it is late by against what it costs, of which the wake-up of a worker is the most. A watcher that does better has found another way to wake a task.

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use tokio::sync::Notify;
use wakeline_core::{Clock, Error, ErrorCode, Instant};
use wakeline_std::{StdClock, TimerSlack, approach};

/// What the alarm and the task share.
struct Shared {
    clock: StdClock,
    /// When to notify, in nanoseconds; the highest value while nobody is to be.
    at_ns: AtomicU64,
    in_two: bool,
    over: AtomicBool,
    notify: Notify,
}

/// The thread that knows the end.
pub struct Alarm {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Alarm {
    /// One whose thread sleeps in one, or in two.
    ///
    /// # Errors
    ///
    /// [`Backend`](ErrorCode::Backend): there is no thread to be had.
    pub fn spawn(clock: StdClock, in_two: bool) -> Result<Self, Error> {
        let at_ns = AtomicU64::new(u64::MAX);
        let (over, notify) = (AtomicBool::new(false), Notify::new());
        let shared = Arc::new(Shared { clock, at_ns, in_two, over, notify });
        let ringing = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("alarm".to_owned()).spawn(move || ringing.run());
        let thread = thread.map_err(|error| {
            Error::new(ErrorCode::Backend, [&"the alarm", &"starting a thread", &error]).with_source(error)
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Has the task notified then, and waits until it is.
    pub async fn until(&self, at: Instant) {
        self.shared.at_ns.store(at.as_nanos(), Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
        self.shared.notify.notified().await;
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").field("in_two", &self.shared.in_two).finish_non_exhaustive()
    }
}

impl Shared {
    fn run(&self) {
        // Where it cannot be set, its sleeps end later.
        let _slack = TimerSlack::set(TimerSlack::LEAST);
        while !self.over.load(Ordering::Acquire) {
            let at = Instant::from_nanos(self.at_ns.load(Ordering::Acquire));
            if at == Instant::MAX {
                std::thread::park();
                continue;
            }
            let now = self.clock.now();
            if now < at {
                self.clock.sleep_until(if self.in_two { approach(now, at) } else { at });
                continue;
            }
            self.at_ns.store(u64::MAX, Ordering::Relaxed);
            self.notify.notify_one();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It has nothing that could panic.
            let _ = thread.join();
        }
    }
}
