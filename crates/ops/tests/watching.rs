//! Tasks that watch by themselves, in real time: by the threads of a watcher, on one thread and on tokio's.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::poll_once;
use wakeline_core::{ErrorCode, Nanos};
use wakeline_ops::{Completion, DeviceOp, Runtime, RuntimeConfig, StreamPoolRoundRobin};
use wakeline_sim::{MemoryUse, RealTime, SimConfig, SimDevice};
use wakeline_std::{DeviceThread, Point, StdClock, Watcher, WatcherConfig, block_on};
use wakeline_tensor::Tensor;

type Device = SimDevice<RealTime<StdClock, fn(Nanos)>>;

fn sleep(length: Nanos) {
    std::thread::sleep(Duration::from_nanos(length.as_nanos()));
}

struct Rig {
    device: Device,
    thread: DeviceThread<Device>,
    watcher: Watcher,
    runtime: Runtime<Device>,
}

fn rig(copy_ns: u64, config: RuntimeConfig) -> Rig {
    let clock = StdClock::new();
    let time = RealTime::new(clock, sleep as fn(Nanos));
    let device = SimDevice::new(time, SimConfig { copy_ns, ..SimConfig::default() }).unwrap();
    let thread = DeviceThread::spawn(clock, device.clone()).unwrap();
    // Also where there is one processor only.
    let watcher = Watcher::with(WatcherConfig::default().early_wake(true)).unwrap();
    let tender = watcher.handle().tender(&Point::new("ops"));
    let runtime =
        Runtime::with_config(device.clone(), &StreamPoolRoundRobin::default(), tender, config).unwrap();
    Rig { device, thread, watcher, runtime }
}

impl Rig {
    fn close(self) {
        let start = Instant::now();
        while self.runtime.counts().in_flight() > 0 || self.device.memory_use() != MemoryUse::default() {
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", self.runtime.counts());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!((self.device.misuses(), self.runtime.counts().leaked), (vec![], 0));
        self.watcher.close(Watcher::CLOSE).unwrap();
        drop(self.runtime);
        self.thread.stop().unwrap();
    }
}

fn one(rig: &Rig, byte: u8) -> impl DeviceOp<Device = Device, Output = Vec<u8>> + use<> {
    let _ = rig;
    Tensor::full(16, byte).then(|tensor: Tensor<u8, Device>| tensor.to_host())
}

#[test]
fn short_work_is_seen_by_its_own_task() {
    let rig = rig(5_000, RuntimeConfig::default());
    for round in 0..200_u8 {
        assert_eq!(block_on(one(&rig, round).on(&rig.runtime)).unwrap(), [round; 16]);
    }
    let counts = rig.runtime.counts();
    assert!(counts.spun + counts.watched > 20, "{counts:?}");
    rig.close();
}

#[test]
fn long_work_is_seen_by_a_task_that_was_woken_before() {
    let rig = rig(1_000_000, RuntimeConfig::default());
    for round in 0..60_u8 {
        assert_eq!(block_on(one(&rig, round).on(&rig.runtime)).unwrap(), [round; 16]);
    }
    let (counts, stats) = (rig.runtime.counts(), rig.watcher.stats());
    assert!(stats.early_wakes > 0, "{stats:?} {counts:?}");
    rig.close();
}

#[test]
fn all_rungs_hold_with_tasks_of_several_threads_that_drop_and_forget() {
    for completion in [Completion::Word, Completion::Callback, Completion::Poll] {
        let rig = rig(20_000, RuntimeConfig::default().completion(completion));
        std::thread::scope(|scope| {
            for thread in 0..3_u8 {
                let rig = &rig;
                scope.spawn(move || {
                    for round in 0..60_u8 {
                        let mut future = one(rig, round).on(&rig.runtime);
                        match (round + thread) % 5 {
                            0 => drop((poll_once(&mut future).is_ready(), future)),
                            1 => {
                                let _ = poll_once(&mut future).is_ready();
                                let _ = poll_once(&mut future).is_ready();
                                drop(future);
                            }
                            _ => assert_eq!(block_on(future).unwrap(), [round; 16]),
                        }
                    }
                });
            }
        });
        rig.close();
    }
}

#[test]
fn a_time_out_ends_in_time_while_the_work_goes_on() {
    // Long enough for a machine that is busy.
    let rig = rig(800_000_000, RuntimeConfig::default());
    let start = Instant::now();
    let late = one(&rig, 1).on(&rig.runtime).timeout(Nanos::from_millis(2));
    assert_eq!(block_on(late).unwrap_err().code(), ErrorCode::Timeout);
    assert!(start.elapsed() < Duration::from_millis(400), "{:?}", start.elapsed());
    let token = rig.runtime.cancel_token();
    let cancelled = one(&rig, 1).on(&rig.runtime).cancelled_by(&token);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(2));
            token.cancel();
        });
        assert_eq!(block_on(cancelled).unwrap_err().code(), ErrorCode::Cancelled);
    });
    assert_eq!(rig.runtime.counts().in_flight(), 2);
    rig.close();
}
