//! What it costs to see operations to their ends: it grows with those that are in flight, and not with devices.

use std::time::Duration;

use wakeline_core::Nanos;
use wakeline_ops::{DeviceOp, Machine, RuntimeConfig, SingleStream, StreamPoolRoundRobin};
use wakeline_sim::{RealTime, SimConfig, SimDevice};
use wakeline_std::{DeviceThread, Point, StdClock, Watcher, WatcherStats, block_on};
use wakeline_tensor::Tensor;

use crate::common::{CONFIG, poll_once};
use crate::{Machines, busy};

/// How often the watcher looks where so many at a time are in flight, spread over all devices.
fn looks(devices: usize, active: usize) -> u64 {
    // As many streams in all as there are at work, or one a device.
    let policy = StreamPoolRoundRobin::new((active / devices).max(1)).unwrap();
    // What is learned of each device by itself changes nothing here.
    let plan = "flag:park_us=50,backstop_us=1000+trust".parse().unwrap();
    let rig = Machines::planned(devices, &CONFIG, &policy, RuntimeConfig::default().plan(plan));
    let before = rig.watcher.looks();
    for _ in 0..10 {
        let mut flying: Vec<_> = (0..active).map(|_| rig.machine.run(|_| busy(5_000))).collect();
        for future in &mut flying {
            assert!(poll_once(future).is_pending());
        }
        for future in flying {
            rig.run(future).unwrap();
        }
    }
    rig.assert_clean();
    rig.watcher.looks() - before
}

#[test]
fn a_watcher_looks_as_often_for_many_devices_as_for_one() {
    for active in [1, 4, 32] {
        let one = looks(1, active);
        for devices in [2, 8, 64] {
            assert_eq!(looks(devices, active), one, "{active} active on {devices} devices");
        }
    }
    assert!(looks(64, 32) > 8 * looks(64, 1), "it grows with what is in flight");
}

type Device = SimDevice<RealTime<StdClock, fn(Nanos)>>;

/// What a watcher of real time does for so many devices: while nothing is in flight, and for a few operations at a time.
fn watched(devices: usize) -> (u64, u64) {
    let clock = StdClock::new();
    let sleep: fn(Nanos) = |length| std::thread::sleep(Duration::from_nanos(length.as_nanos()));
    let config = SimConfig { copy_ns: 2_000_000, ..SimConfig::default() };
    let first = SimDevice::new(RealTime::new(clock, sleep), config).unwrap();
    let thread = DeviceThread::spawn(clock, first.clone()).unwrap();
    let others = (1..devices).map(|_| first.beside(config).unwrap());
    let all: Vec<Device> = [first.clone()].into_iter().chain(others).collect();
    let watcher = Watcher::new().unwrap();
    let tender = watcher.handle().tender(&Point::new("machine"));
    // What is learned of each device by itself changes nothing here.
    let setup = RuntimeConfig::default().plan("flag:park_us=200,backstop_us=2000+trust".parse().unwrap());
    let machine = Machine::with_config(all, &SingleStream, tender, setup.spin_us(0).unwrap()).unwrap();
    let works = |stats: WatcherStats| stats.naps + stats.queries + stats.parks + stats.sleeps + stats.wakes;
    // Each device once, so that all are known.
    for site in machine.sites() {
        block_on(Tensor::full(1, 1_u8).on(site.runtime())).unwrap();
    }
    std::thread::sleep(Duration::from_millis(50));
    let before = works(watcher.stats());
    std::thread::sleep(Duration::from_millis(100));
    let idle = works(watcher.stats()) - before;
    for _ in 0..20 {
        block_on(machine.run(|_| Tensor::full(1, 1_u8).then(|tensor| tensor.to_host()))).unwrap();
    }
    let active = works(watcher.stats()) - before - idle;
    assert_eq!(first.misuses(), []);
    watcher.close(Watcher::CLOSE).unwrap();
    drop(machine);
    thread.stop().unwrap();
    (idle, active)
}

#[test]
fn a_watcher_in_real_time_does_nothing_for_devices_that_do_nothing() {
    let (idle_one, active_one) = watched(1);
    let (idle, active) = watched(64);
    assert!(idle <= idle_one + 4, "{idle} looks in a tenth of a second for 64 devices, {idle_one} for one");
    // One at a time, each some 6 ms: what is looked at is one line. Sixty-four would be a hundred times as much.
    assert!(active <= 3 * active_one + 200, "{active} looks for 64 devices, {active_one} for one");
}
