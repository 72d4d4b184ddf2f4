//! The thread that drives a simulated device.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, too")]

extern crate alloc;

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::task::Waker;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wakeline_core::{Clock, ErrorCode, Instant, Nanos, Turn};
use wakeline_std::{DeviceThread, StdClock, TimerSlack};

/// Ends work at set moments, and notes how late each was.
#[derive(Clone, Default)]
struct Alarms {
    inner: Arc<Mutex<Inner>>,
    turns: Arc<AtomicU32>,
    dropped: Arc<AtomicBool>,
}

#[derive(Default)]
struct Inner {
    due: BTreeSet<Instant>,
    late: Vec<Nanos>,
    slack: Option<Nanos>,
    bell: Option<Waker>,
}

impl Alarms {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, at: Instant) {
        let mut inner = self.inner();
        inner.due.insert(at);
        let bell = inner.bell.clone();
        drop(inner);
        bell.into_iter().for_each(Waker::wake);
    }

    fn turns(&self) -> u32 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Waits until `count` alarms have gone off; panics after ten seconds.
    fn wait_for(&self, count: usize) {
        let clock = StdClock::new();
        let guard = clock.now() + Nanos::from_millis(10_000);
        while self.inner().late.len() < count {
            assert!(clock.now() < guard, "an alarm was lost");
            clock.sleep_until(clock.now() + Nanos::from_micros(100));
        }
    }
}

impl Turn for Alarms {
    fn turn(&self, now: Instant) -> Option<Instant> {
        self.turns.fetch_add(1, Ordering::Relaxed);
        let mut inner = self.inner();
        inner.slack = TimerSlack::of_this_thread();
        while let Some(at) = inner.due.first().copied().filter(|at| *at <= now) {
            inner.due.remove(&at);
            inner.late.push(now.since(at));
        }
        inner.due.first().copied()
    }

    fn set_bell(&self, bell: Waker) {
        self.inner().bell = Some(bell);
    }
}

impl Drop for Alarms {
    fn drop(&mut self) {
        if std::thread::current().name() == Some("wakeline-device") {
            self.dropped.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn work_ends_in_time_and_never_early_in_whatever_order_it_comes() {
    let clock = StdClock::new();
    let alarms = Alarms::default();
    let thread = DeviceThread::spawn(clock, alarms.clone()).unwrap();
    let start = clock.now();
    // Each but the first is due before what the thread sleeps for, or after it.
    for ms in [40, 20, 5, 30, 10, 45, 1] {
        alarms.add(start + Nanos::from_millis(ms));
    }
    alarms.wait_for(7);
    assert!(thread.is_running());
    let device = thread.stop().unwrap();
    assert!(Arc::ptr_eq(&device.inner, &alarms.inner), "another device came back");
    println!("late by {:?}", alarms.inner().late);
    assert!(clock.now().since(start) >= Nanos::from_millis(45), "an alarm went off early");
}

#[test]
#[cfg(target_os = "linux")]
fn the_slack_of_the_thread_is_the_least_and_that_of_its_maker_stays() {
    let before = TimerSlack::of_this_thread();
    let alarms = Alarms::default();
    let thread = DeviceThread::spawn(StdClock::new(), alarms.clone()).unwrap();
    alarms.add(Instant::ORIGIN);
    alarms.wait_for(1);
    thread.stop().unwrap();
    assert_eq!(alarms.inner().slack, Some(TimerSlack::LEAST));
    assert_eq!(TimerSlack::of_this_thread(), before);
}

/// It neither spins nor wakes while nothing is due: a device that is never rung is turned once.
#[test]
fn nothing_due_means_no_turns() {
    let clock = StdClock::new();
    let alarms = Alarms::default();
    let thread = DeviceThread::spawn(clock, alarms.clone()).unwrap();
    clock.sleep_until(clock.now() + Nanos::from_millis(50));
    assert!(alarms.turns() <= 1);
    thread.stop().unwrap();
}

/// Far-off work is no reason to outstay: a stop, and a drop, end the thread whatever is still due.
#[test]
fn a_stop_and_a_drop_join_with_work_outstanding() {
    let clock = StdClock::new();
    for by_drop in [false, true] {
        let alarms = Alarms::default();
        alarms.add(Instant::MAX);
        let thread = DeviceThread::spawn(clock, alarms.clone()).unwrap();
        clock.sleep_until(clock.now() + Nanos::from_millis(2));
        if by_drop {
            drop(thread);
            assert!(alarms.dropped.load(Ordering::Relaxed) || Arc::strong_count(&alarms.inner) == 1);
        } else {
            thread.stop().unwrap();
        }
        assert_eq!(alarms.inner().due.len(), 1);
    }
}

/// Panics at its first turn.
struct Broken;

impl Turn for Broken {
    fn turn(&self, _now: Instant) -> Option<Instant> {
        panic!("the model is inconsistent")
    }

    fn set_bell(&self, _bell: Waker) {}
}

#[test]
fn a_panic_of_the_device_is_an_error_of_stop_and_nothing_to_drop() {
    let clock = StdClock::new();
    drop(DeviceThread::spawn(clock, Broken).unwrap());
    let thread = DeviceThread::spawn(clock, Broken).unwrap();
    let guard = clock.now() + Nanos::from_millis(10_000);
    while thread.is_running() {
        assert!(clock.now() < guard, "the panic did not end the thread");
        clock.sleep_until(clock.now() + Nanos::from_micros(100));
    }
    let Err(error) = thread.stop() else { panic!("the panic was lost") };
    assert_eq!(error.code(), ErrorCode::Backend);
    assert!(error.to_string().contains("the model is inconsistent"), "{error}");
}

/// Owns the handle of its own thread, and drops it in a turn.
struct Ouroboros(Arc<Mutex<Option<DeviceThread<Ouroboros>>>>);

impl Turn for Ouroboros {
    fn turn(&self, _now: Instant) -> Option<Instant> {
        let own = self.0.lock().unwrap().take();
        Some(if own.is_some() { Instant::MAX } else { Instant::ORIGIN })
    }

    fn set_bell(&self, _bell: Waker) {}
}

#[test]
fn a_device_that_drops_its_own_thread_does_not_wait_for_itself() {
    let own = Arc::new(Mutex::new(None));
    let thread = DeviceThread::spawn(StdClock::new(), Ouroboros(Arc::clone(&own))).unwrap();
    *own.lock().unwrap() = Some(thread);
    let clock = StdClock::new();
    let guard = clock.now() + Nanos::from_millis(10_000);
    while Arc::strong_count(&own) > 1 {
        assert!(clock.now() < guard, "the thread never ended");
        clock.sleep_until(clock.now() + Nanos::from_micros(100));
    }
}

#[test]
fn an_endless_spin_is_refused() {
    let Err(error) = DeviceThread::spawn_spinning(StdClock::new(), Broken, 10_001) else {
        panic!("it was taken")
    };
    assert_eq!(error.args(), ["spin_us_max", "10001", "0", "10000"]);
}
