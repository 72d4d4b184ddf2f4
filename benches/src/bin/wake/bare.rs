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

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use tokio::sync::Notify;
use wakeline::{Clock, CompletionPort, Error, ErrorCode, Instant, Nanos, Wake};
use wakeline_std::{StdClock, TimerSlack, approach};

use crate::arms::on_workers;
use crate::stage::Stage;

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
struct Alarm {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Alarm {
    fn spawn(clock: StdClock, in_two: bool) -> Result<Self, Error> {
        let at_ns = AtomicU64::new(u64::MAX);
        let (over, notify) = (AtomicBool::new(false), Notify::new());
        let shared = Arc::new(Shared { clock, at_ns, in_two, over, notify });
        let ringing = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("alarm".to_owned()).spawn(move || ringing.run());
        let thread = thread.map_err(|error| {
            Error::new(ErrorCode::Backend, [&"wake", &"starting the alarm", &error]).with_source(error)
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Has the task notified then.
    fn set(&self, at: Instant) {
        self.shared.at_ns.store(at.as_nanos(), Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
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

/// Waits so often for a task that is notified `LEAD_US` before the end, and watches from then on.
pub(crate) fn bare<const LEAD_US: u64, const IN_TWO: bool>(
    stage: &Stage,
    length: Nanos,
    waits: u32,
) -> Result<Vec<Nanos>, Error> {
    let (launcher, clock) = (stage.launcher(), stage.clock());
    let alarm = Alarm::spawn(clock, IN_TWO)?;
    on_workers(stage, async move {
        let mut samples = Vec::new();
        for _ in 0..waits {
            let point = launcher.launch(length);
            alarm.set(Instant::from_nanos(point.due().as_nanos().saturating_sub(LEAD_US * 1_000)));
            alarm.shared.notify.notified().await;
            while point.poll() != Wake::Reached {
                core::hint::spin_loop();
            }
            samples.push(clock.now().since(point.stored_at()));
        }
        Ok(samples)
    })
}
