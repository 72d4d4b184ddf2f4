//! Waits on a tokio runtime's own thread allocate nothing, counted.

#![allow(clippy::unwrap_used, clippy::large_types_passed_by_value, reason = "tests")]

use std::alloc::System;
use std::cell::RefCell;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::runtime::Builder;
use wakeline_core::{Nanos, PointTable, Wait, WaitPlan, drive_at};
use wakeline_sim::{RealTime, SimConfig, SimDevice};
use wakeline_std::{DeviceThread, ParkPolicy, StdClock};
use wakeline_tokio::TokioLocal;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One test, for the counter is the whole process's: the device's thread is counted too.
#[test]
fn waits_on_a_tokio_thread_allocate_nothing() {
    // The harness's own thread allocates for a moment after it has started this one, and all threads are counted.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let plan: WaitPlan =
        "flag:park_us=50,backstop_us=1000+predict:margin_us=40,min_sleep_us=100,max_sleep_us=20000,window=8"
            .parse()
            .unwrap();
    let clock = StdClock::new();
    let sleep = |length: Nanos| std::thread::sleep(std::time::Duration::from_nanos(length.as_nanos()));
    let device = SimDevice::new(RealTime::new(clock, sleep), SimConfig::default()).unwrap();
    let thread = DeviceThread::spawn(clock, device.clone()).unwrap();
    Builder::new_current_thread().enable_io().build().unwrap().block_on(async {
        let local = TokioLocal::new(clock, ParkPolicy::default()).unwrap();
        let table = RefCell::new(PointTable::new(4).unwrap());
        let streams = [0; 4].map(|_| device.stream().unwrap());
        let one = async |n: usize| {
            streams[n].launch(Nanos::from_micros(200 + 150 * n as u64)).unwrap();
            let mut port = streams[n].point();
            drive_at(&table, n, Wait::new(&plan), &mut port, &local, None).await.unwrap();
        };
        let mut counted = Vec::with_capacity(2);
        for rounds in [50, 200] {
            let region = Region::new(ALLOCATOR);
            for _ in 0..rounds {
                tokio::join!(one(0), one(1), one(2), one(3));
            }
            counted.push(region.change().allocations);
        }
        // The first rounds grow what is kept for the most waits at a time.
        assert_eq!(counted[1], 0, "for 800 waits, four at a time");
    });
    thread.stop().unwrap();
}
