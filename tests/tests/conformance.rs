//! The same scripted waits on every pair of backend and host: `src/conform.rs` has the script.
//!
//! A backend and a host that are new get a test here and must pass the script as it stands.

#![allow(clippy::unwrap_used, clippy::large_types_passed_by_value, reason = "tests")]

use std::sync::Arc;

use tokio::runtime::Builder;
use tokio::task::LocalSet;
use wakeline_core::{Executor, HostLine, Inline, Nanos, Reactor, run_inline};
use wakeline_sim::{Chance, Faults, RealTime, SimConfig, SimDevice, VirtualHost, VirtualTime};
use wakeline_std::{
    DeviceThread, ParkPolicy, Point, StdClock, StdIdle, StdPark, Watcher, WatcherConfig, block_on,
};
use wakeline_tests::conform::{Driven, Watched, script};
use wakeline_tokio::TokioLocal;

fn config() -> SimConfig {
    SimConfig { seed: 1, ..SimConfig::default() }
}

#[test]
fn sim_on_virtual_time_inline() {
    let device = SimDevice::new(VirtualTime::new(), config()).unwrap();
    let host = VirtualHost::new(&device);
    run_inline(script(&device, Driven(&Inline::new(&host, &host, &host)))).unwrap().unwrap();
}

#[test]
fn sim_on_virtual_time_on_the_executor() {
    let device = SimDevice::new(VirtualTime::new(), config()).unwrap();
    let host = VirtualHost::new(&device);
    let reactor = Reactor::new(&host);
    let mut executor = Executor::new(&reactor, &host, &host, 1).unwrap();
    executor.spawn(script(&device, Driven(&reactor))).unwrap();
    executor.run(|_, result| result.unwrap()).unwrap();
    assert_eq!(reactor.registered(), 0);
}

/// A device in real time, with the thread that drives it.
type RealDevice = SimDevice<RealTime<StdClock, fn(Nanos)>>;

fn real() -> (StdClock, RealDevice, DeviceThread<RealDevice>) {
    real_with(config())
}

fn real_with(config: SimConfig) -> (StdClock, RealDevice, DeviceThread<RealDevice>) {
    let clock = StdClock::new();
    let sleep: fn(Nanos) = |length| std::thread::sleep(std::time::Duration::from_nanos(length.as_nanos()));
    let device = SimDevice::new(RealTime::new(clock, sleep), config).unwrap();
    let thread = DeviceThread::spawn(clock, device.clone()).unwrap();
    (clock, device, thread)
}

#[test]
fn sim_in_real_time_inline_on_the_std_host() {
    let (clock, device, thread) = real();
    let idle = StdIdle::new(clock);
    let park = StdPark::new(&idle, ParkPolicy::default());
    run_inline(script(&device, Driven(&Inline::new(clock, &idle, &park)))).unwrap().unwrap();
    thread.stop().unwrap();
}

#[test]
fn sim_in_real_time_on_the_executor_of_the_std_host() {
    let (clock, device, thread) = real();
    let idle = StdIdle::new(clock);
    let park = StdPark::new(&idle, ParkPolicy::default());
    let reactor = Reactor::<_, Arc<HostLine>>::new(clock);
    let mut executor = Executor::new(&reactor, &idle, &park, 1).unwrap();
    executor.spawn(script(&device, Driven(&reactor))).unwrap();
    executor.run(|_, result| result.unwrap()).unwrap();
    thread.stop().unwrap();
}

/// What a device may do to its words and its calls so that every wait still ends well.
fn faulty() -> [(&'static str, SimConfig); 6] {
    let with = |faults| SimConfig { faults, ..config() };
    [
        ("healthy", config()),
        ("no bounded block", SimConfig { bounded_block: false, ..config() }),
        ("no stores", with(Faults { unsupported_ppm: 1_000_000, ..Faults::none() })),
        ("late stores", with(Faults { late_store: Chance::always(400_000), ..Faults::none() })),
        ("deferred stores", with(Faults { deferred_store_ppm: 1_000_000, ..Faults::none() })),
        ("slow queries", with(Faults { slow_query: Chance::always(300_000), ..Faults::none() })),
    ]
}

#[test]
fn sim_in_real_time_on_the_watcher() {
    for ((name, config), shards) in faulty().into_iter().zip([1, 3].into_iter().cycle()) {
        let (_, device, thread) = real_with(config);
        let watcher = Watcher::with(WatcherConfig::default().shards(shards).unwrap()).unwrap();
        let waits = Watched(watcher.handle(), Point::new("script"));
        block_on(script(&device, waits)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(watcher.handle().pending(), 0, "{name}");
        watcher.close(Watcher::CLOSE).unwrap();
        thread.stop().unwrap();
    }
}

#[test]
fn sim_in_real_time_driven_on_the_ports_of_the_watcher() {
    for (name, config) in faulty().into_iter().filter(|(_, config)| config.bounded_block) {
        let (_, device, thread) = real_with(config);
        let watcher = Watcher::new().unwrap();
        let handle = watcher.handle();
        block_on(script(&device, Driven(&handle))).unwrap_or_else(|error| panic!("{name}: {error}"));
        watcher.close(Watcher::CLOSE).unwrap();
        thread.stop().unwrap();
    }
}

/// Nobody watches any more: then the task looks itself.
#[test]
fn sim_in_real_time_driven_on_the_ports_of_a_closed_watcher() {
    let (_, device, thread) = real();
    let watcher = Watcher::new().unwrap();
    let handle = watcher.handle();
    watcher.close(Watcher::CLOSE).unwrap();
    block_on(script(&device, Driven(&handle))).unwrap();
    thread.stop().unwrap();
}

/// `None`, and a line that is counted, where there is no ring to be had.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn ring(clock: StdClock) -> Option<wakeline_uring::UringIdle> {
    wakeline_uring::UringIdle::new(clock).map_err(|error| println!("skipped: no io_uring: {error}")).ok()
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[test]
fn sim_in_real_time_inline_on_the_uring_host() {
    let (clock, device, thread) = real();
    let Some(ring) = ring(clock) else { return };
    let park = StdPark::new(&ring, ParkPolicy::default());
    run_inline(script(&device, Driven(&Inline::new(clock, &ring, &park)))).unwrap().unwrap();
    thread.stop().unwrap();
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[test]
fn sim_in_real_time_on_the_executor_of_the_uring_host() {
    let (clock, device, thread) = real();
    let Some(ring) = ring(clock) else { return };
    let park = StdPark::new(&ring, ParkPolicy::default());
    let reactor = Reactor::<_, Arc<HostLine>>::new(clock);
    let mut executor = Executor::new(&reactor, &ring, &park, 1).unwrap();
    executor.spawn(script(&device, Driven(&reactor))).unwrap();
    executor.run(|_, result| result.unwrap()).unwrap();
    thread.stop().unwrap();
}

#[test]
fn sim_in_real_time_on_the_thread_of_a_tokio_runtime() {
    let (clock, device, thread) = real();
    // Without tokio's timers, which the host has no use for.
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        let local = TokioLocal::new(clock, ParkPolicy::default()).unwrap();
        script(&device, Driven(&local)).await.unwrap();
        assert_eq!(local.registered(), 0);
    });
    thread.stop().unwrap();
}

#[test]
fn sim_in_real_time_on_a_local_set_of_a_tokio_runtime_with_workers() {
    let (clock, device, thread) = real();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_io().build().unwrap();
    let set = LocalSet::new();
    let task = set.spawn_local(async move {
        let local = TokioLocal::new(clock, ParkPolicy::default()).unwrap();
        local.run_until(script(&device, Driven(&local))).await.unwrap();
        assert_eq!(local.registered(), 0);
    });
    set.block_on(&runtime, task).unwrap();
    thread.stop().unwrap();
}
