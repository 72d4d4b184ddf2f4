//! A process that the system gives no thread more: alone in its program, for the limit is of all of it.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wakeline_core::{ErrorCode, Nanos, WaitPlan};
use wakeline_sim::{RealTime, SimConfig, SimDevice};
use wakeline_std::{DeviceThread, Point, StdClock, Watcher, block_on};

/// As much address space as there is in use, and less than a thread's stack more.
fn leave_no_room() {
    let used = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = used.split_whitespace().next().unwrap().parse().unwrap();
    let current = pages * rustix::param::page_size() as u64 + (1 << 20);
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: Some(current), maximum }).unwrap();
}

/// Every thread that is refused is an error of the call that wanted it, and the same call works when there is room again.
#[test]
fn without_threads_a_watcher_its_helper_and_a_device_are_errors_until_there_are_some_again() {
    let before = getrlimit(Resource::As);
    let clock = StdClock::new();
    let sleep = |length: Nanos| std::thread::sleep(core::time::Duration::from_nanos(length.as_nanos()));
    let device = SimDevice::new(RealTime::new(clock, sleep), SimConfig::default()).unwrap();
    let (watcher, point, plan) = (Watcher::new().unwrap(), Point::new("threads"), WaitPlan::block());
    let stream = device.stream().unwrap();

    leave_no_room();
    let refused = (Watcher::new().map(drop), DeviceThread::spawn(clock, device.clone()).map(drop));
    // Nobody plays the device: a wait that its helper cannot make for it must end all the same.
    stream.launch(Nanos::from_millis(1)).unwrap();
    let waited = block_on(watcher.wait(stream.point(), &plan, &point));
    setrlimit(Resource::As, before).unwrap();
    for error in [refused.0.unwrap_err(), refused.1.unwrap_err(), waited.unwrap_err()] {
        assert_eq!(error.code(), ErrorCode::Backend, "{error}");
        assert!(error.to_string().contains("spawn") || error.to_string().contains("thread"), "{error}");
    }

    let thread = DeviceThread::spawn(clock, device.clone()).unwrap();
    block_on(watcher.wait(stream.point(), &plan, &point)).unwrap();
    let other = Watcher::new().unwrap();
    block_on(other.wait(stream.point(), &plan, &point)).unwrap();
    other.close(Watcher::CLOSE).unwrap();
    watcher.close(Watcher::CLOSE).unwrap();
    drop(stream);
    thread.stop().unwrap();
}
