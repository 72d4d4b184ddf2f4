//! The device on a real clock, driven by a thread of this test as a host would.
#![cfg(not(loom))]

extern crate alloc;

use alloc::sync::Arc;
use alloc::task::Wake as RawWake;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::task::Waker;
use std::thread::{self, Thread};
use std::time;

use wakeline_core::{Clock, CompletionPort, Error, Instant, ManualClock, Nanos, Status, Turn, Wake};
use wakeline_sim::{Chance, Faults, RealTime, SimConfig, SimDevice, TimeLine};

#[derive(Clone, Copy)]
struct WallClock(time::Instant);

impl Clock for WallClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

fn sleep(length: Nanos) {
    thread::sleep(time::Duration::from_nanos(length.as_nanos()));
}

type Time = RealTime<WallClock, fn(Nanos)>;

fn device(config: &SimConfig) -> Result<SimDevice<Time>, Error> {
    SimDevice::new(RealTime::new(WallClock(time::Instant::now()), sleep), *config)
}

struct Unpark(Thread);

impl RawWake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Ends the driving thread, also where the test fails.
struct Over<'a>(&'a AtomicBool, Thread);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        self.1.unpark();
    }
}

/// Drives the device on a thread of its own while `body` runs.
fn driven<R>(device: &SimDevice<Time>, body: impl FnOnce() -> R) -> R {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let driver = scope.spawn(|| {
            device.set_bell(Waker::from(Arc::new(Unpark(thread::current()))));
            while !over.load(Ordering::Acquire) {
                match device.turn(device.time().now()) {
                    Some(next) => {
                        let left = next.since(device.time().now());
                        thread::park_timeout(time::Duration::from_nanos(left.as_nanos()));
                    }
                    None => thread::park(),
                }
            }
        });
        let _over = Over(&over, driver.thread().clone());
        body()
    })
}

#[test]
fn words_are_stored_by_the_driving_thread_while_this_one_makes_no_call() -> Result<(), Error> {
    let device = device(&SimConfig::default())?;
    driven(&device, || {
        let stream = device.stream()?;
        for _ in 0..20 {
            stream.launch(Nanos::from_micros(300))?;
            let mut point = stream.point();
            point.arm()?;
            let calls = device.counts().calls;
            while point.poll() == Wake::Woke {
                sleep(Nanos::from_micros(50));
            }
            assert_eq!(device.counts().calls, calls);
            let truth = point.witness().truth();
            assert!(truth.ended_at < truth.landed_at && truth.landed_at <= truth.stored_at, "{truth:?}");
            assert_eq!(point.block(None)?, Status::Done);
        }
        Ok(())
    })
}

#[test]
fn a_status_is_right_without_anybody_driving() -> Result<(), Error> {
    let device = device(&SimConfig::default())?;
    let stream = device.stream()?;
    stream.launch(Nanos::from_millis(300))?;
    let mut point = stream.point();
    assert_eq!(point.query()?, Status::Pending);
    let start = device.time().now();
    assert_eq!(point.block(Some(start + Nanos::from_millis(1)))?, Status::Pending);
    assert_eq!(point.block(None)?, Status::Done);
    let ended = point.witness().truth().ended_at;
    assert!(ended.is_some_and(|ended| ended <= device.time().now()), "{ended:?}");
    Ok(())
}

#[test]
fn a_slow_query_really_takes_its_time() -> Result<(), Error> {
    let slow = Nanos::from_millis(20);
    let faults = Faults { slow_query: Chance::always(slow.as_nanos()), ..Faults::none() };
    let device = device(&SimConfig { faults, ..SimConfig::default() })?;
    let stream = device.stream()?;
    let before = device.time().now();
    stream.point().query()?;
    assert!(device.time().now().since(before) >= slow);
    Ok(())
}

#[test]
fn a_block_sees_the_work_and_the_fault_of_another_thread() -> Result<(), Error> {
    let device = device(&SimConfig::default())?;
    let stream = device.stream()?;
    stream.launch(Nanos::MAX)?;
    let mut point = stream.point();
    thread::scope(|scope| {
        scope.spawn(|| {
            sleep(Nanos::from_millis(3));
            device.inject_fault();
        });
        assert!(point.block(None).is_err());
    });
    Ok(())
}

/// A clock that only moves when somebody sleeps; panics where nobody does.
struct Played(ManualClock, AtomicU32);

impl Clock for &Played {
    fn now(&self) -> Instant {
        assert!(self.1.fetch_add(1, Ordering::Relaxed) < 1_000_000, "it only ever looks at its clock");
        self.0.now()
    }
}

#[test]
fn a_clock_that_is_played_lets_short_and_long_times_pass() -> Result<(), Error> {
    let played = Played(ManualClock::new(), AtomicU32::new(0));
    let time = RealTime::new(&played, |length| played.0.advance(length));
    for length in [1, 20_000, 20_001, 1_000_000] {
        let until = time.now() + Nanos::from_nanos(length);
        time.pass(until);
        assert_eq!(time.now(), until);
    }
    // Every charge is shorter than what is slept otherwise.
    let device = SimDevice::new(time, SimConfig::default())?;
    let stream = device.stream()?;
    stream.launch(Nanos::from_micros(10))?;
    let mut point = stream.point();
    point.arm()?;
    assert_eq!((point.query()?, point.block(None)?), (Status::Pending, Status::Done));
    Ok(())
}

#[test]
fn a_short_time_on_a_real_clock_is_spun_and_not_slept() {
    let sleeps = AtomicU32::new(0);
    let time = RealTime::new(WallClock(time::Instant::now()), |length| {
        sleeps.fetch_add(1, Ordering::Relaxed);
        sleep(length);
    });
    for _ in 0..100 {
        let until = time.now() + Nanos::from_micros(10);
        time.pass(until);
        assert!(time.now() >= until);
    }
    assert_eq!(sleeps.load(Ordering::Relaxed), 0);
}
