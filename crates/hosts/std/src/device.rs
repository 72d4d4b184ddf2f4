//! A thread that drives a simulated device in real time.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Waker;
use std::thread::{Builder, JoinHandle};

use wakeline_core::{Clock, Error, ErrorCode, Idle, Instant, Nanos, Turn};

use crate::clock::StdClock;
use crate::idle::StdIdle;
use crate::margin::SleepMargin;
use crate::slack::TimerSlack;

/// How long the device's thread spins at most before something is due, microseconds: its sleeps end by the
/// measured oversleep early, but by no more than this. On the machines measured 100 us cover p90 of the
/// oversleep of a 10 ms sleep, at 2 % of a core for a step of 5 ms.
pub const DEVICE_SPIN_US_MAX: u32 = 100;

/// Owns the thread that drives a simulated device in real time.
///
/// The thread sleeps until shortly before the device's next due time, spins the rest, and calls
/// [`Turn::turn`]; new work wakes it by the bell it handed over with [`Turn::set_bell`]. Its timer slack is 1
/// ns. While nothing is due it sleeps without bound.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use std::task::Waker;
/// use wakeline_core::{Instant, Turn};
/// use wakeline_std::{DeviceThread, StdClock};
///
/// /// Counts its turns, and has nothing to do.
/// struct Counter(AtomicU32);
/// impl Turn for Counter {
///     fn turn(&self, _now: Instant) -> Option<Instant> {
///         self.0.fetch_add(1, Ordering::Relaxed);
///         None
///     }
///     fn set_bell(&self, _bell: Waker) {}
/// }
///
/// let thread = DeviceThread::spawn(StdClock::new(), Counter(AtomicU32::new(0)))?;
/// let device = thread.stop()?;
/// assert!(device.0.into_inner() <= 1);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub struct DeviceThread<T> {
    shared: Arc<Shared>,
    bell: Waker,
    /// `None` once it is being joined.
    thread: Option<JoinHandle<T>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
}

impl<T: Turn + Send + 'static> DeviceThread<T> {
    /// Starts the thread and hands it the device; spins for at most [`DEVICE_SPIN_US_MAX`] before something
    /// is due.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Backend`] when the system refuses another thread.
    pub fn spawn(clock: StdClock, device: T) -> Result<Self, Error> {
        Self::spawn_spinning(clock, device, DEVICE_SPIN_US_MAX)
    }

    /// As [`spawn`](Self::spawn), but spins for at most `spin_us_max` microseconds before something is due: 0
    /// to 10,000. Less saves CPU time and makes the device later.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn), and [`ErrorCode::InvalidLimit`].
    pub fn spawn_spinning(clock: StdClock, device: T, spin_us_max: u32) -> Result<Self, Error> {
        const LIMIT: u32 = 10_000;
        if spin_us_max > LIMIT {
            return Err(Error::new(ErrorCode::InvalidLimit, [&"spin_us_max", &spin_us_max, &0, &LIMIT]));
        }
        let idle = StdIdle::new(clock);
        let bell = idle.bell();
        let shared = Arc::new(Shared::default());
        let drive = Drive {
            idle,
            shared: Arc::clone(&shared),
            margin: SleepMargin::new(Nanos::from_micros(spin_us_max.into())),
        };
        // Before the thread is there, so that work which comes at once rings.
        device.set_bell(bell.clone());
        let thread = Builder::new()
            .name("wakeline-device".to_owned())
            .spawn(move || drive.run(device))
            .map_err(|error| Error::new(ErrorCode::Backend, [&"std", &"spawn", &error]).with_source(error))?;
        Ok(Self { shared, bell, thread: Some(thread) })
    }
}

impl<T> DeviceThread<T> {
    /// Whether the thread still runs: `false` after a panic of the device, which [`stop`](Self::stop) tells.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops the thread and gives the device back. Blocks for at most the rest of one [`Turn::turn`]; what is
    /// still due is not done.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Backend`] with the message when the device panicked.
    pub fn stop(mut self) -> Result<T, Error> {
        match self.join() {
            Some(Ok(device)) => Ok(device),
            Some(Err(panic)) => {
                let message = message(&*panic);
                // A payload may panic when it is dropped, and must not do so here.
                core::mem::forget(panic);
                Err(Error::new(ErrorCode::Backend, [&"the simulated device", &"turn", &message]))
            }
            None => Err(Error::new(
                ErrorCode::Backend,
                [&"the simulated device", &"stop", &"it was called from the device's own thread"],
            )),
        }
    }

    fn join(&mut self) -> Option<Result<T, Box<dyn Any + Send>>> {
        let thread = self.thread.take()?;
        self.shared.stop.store(true, Ordering::Release);
        self.bell.wake_by_ref();
        // A device that owns its own thread's handle must not wait for itself.
        (thread.thread().id() != std::thread::current().id()).then(|| thread.join())
    }
}

impl<T> Drop for DeviceThread<T> {
    /// Stops the thread and waits for it: at most the rest of one [`Turn::turn`], which does not block. Never
    /// panics; a panic of the device goes unreported here, [`stop`](Self::stop) tells it.
    fn drop(&mut self) {
        if let Some(Err(panic)) = self.join() {
            core::mem::forget(panic);
        }
    }
}

impl<T> fmt::Debug for DeviceThread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceThread").field("running", &self.thread.is_some()).finish_non_exhaustive()
    }
}

pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    alloc::format!("it panicked: {}", text.unwrap_or("without a message"))
}

/// What the thread works with.
struct Drive {
    idle: StdIdle,
    shared: Arc<Shared>,
    margin: SleepMargin,
}

impl Drive {
    fn run<T: Turn>(mut self, device: T) -> T {
        // Where it cannot be set, the margin learns the longer oversleep.
        let _slack = TimerSlack::set(TimerSlack::LEAST);
        let clock = self.idle.clock();
        while !self.stopped() {
            let now = clock.now();
            match device.turn(now) {
                None => {
                    self.idle.sleep(None);
                }
                Some(due) => self.wait(now, due),
            }
        }
        device
    }

    fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    /// Sleeps until shortly before `due`, then spins; ends early at a ring.
    fn wait(&mut self, now: Instant, due: Instant) {
        let length = due.since(now);
        let wake_at = due - self.margin.of(length);
        if wake_at > now {
            if self.idle.sleep(Some(wake_at)) {
                return;
            }
            self.margin.observe(length, self.idle.clock().now().since(wake_at));
        }
        // At most the margin, so at most `spin_us_max`.
        while !self.idle.take_ring() && self.idle.clock().now() < due {
            spin_loop();
        }
    }
}
