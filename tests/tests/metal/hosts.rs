//! The script that all backends pass, on every host.

use std::sync::Arc;

use tokio::runtime::Builder;
use wakeline_core::{Executor, HostLine, Inline, Reactor, run_inline};
use wakeline_fake_metal::{Call, Faults, Wait};
use wakeline_metal::Notified;
use wakeline_sim::SimConfig;
use wakeline_std::{ParkPolicy, Point, StdIdle, StdPark, Watcher, block_on};
use wakeline_tests::conform::{Driven, Watched, script};
use wakeline_tests::metal::MetalRig;
use wakeline_tests::watching::{Real, Stage};
use wakeline_tokio::{TokioClock, TokioLocal};

fn real() -> (Stage, MetalRig<Real>) {
    let stage = Stage::new(SimConfig { seed: 1, ..SimConfig::default() }).unwrap();
    let rig = MetalRig::on(&stage.device);
    (stage, rig)
}

#[test]
fn on_virtual_time_inline() {
    let (rig, host) = MetalRig::on_virtual_time(Faults::default());
    run_inline(script(&rig, Driven(&Inline::new(&host, &host, &host)))).unwrap().unwrap();
}

#[test]
fn on_virtual_time_on_the_executor() {
    let (rig, host) = MetalRig::on_virtual_time(Faults::default());
    let reactor = Reactor::new(&host);
    let mut executor = Executor::new(&reactor, &host, &host, 1).unwrap();
    executor.spawn(script(&rig, Driven(&reactor))).unwrap();
    executor.run(|_, result| result.unwrap()).unwrap();
    assert_eq!(reactor.registered(), 0);
}

#[test]
fn in_real_time_inline_on_the_std_host() {
    let (stage, rig) = real();
    let idle = StdIdle::new(stage.clock);
    let park = StdPark::new(&idle, ParkPolicy::default());
    run_inline(script(&rig, Driven(&Inline::new(stage.clock, &idle, &park)))).unwrap().unwrap();
}

#[test]
fn in_real_time_on_the_executor_of_the_std_host() {
    let (stage, rig) = real();
    let idle = StdIdle::new(stage.clock);
    let park = StdPark::new(&idle, ParkPolicy::default());
    let reactor = Reactor::<_, Arc<HostLine>>::new(stage.clock);
    let mut executor = Executor::new(&reactor, &idle, &park, 1).unwrap();
    executor.spawn(script(&rig, Driven(&reactor))).unwrap();
    executor.run(|_, result| result.unwrap()).unwrap();
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[test]
fn in_real_time_inline_on_the_uring_host() {
    let (stage, rig) = real();
    let idle = match wakeline_uring::UringIdle::new(stage.clock) {
        Ok(idle) => idle,
        Err(error) => return println!("skipped: no io_uring: {error}"),
    };
    let park = StdPark::new(&idle, ParkPolicy::default());
    run_inline(script(&rig, Driven(&Inline::new(stage.clock, &idle, &park)))).unwrap().unwrap();
}

#[test]
fn in_real_time_on_the_watcher() {
    let faults = [
        ("no listener", Faults { listener: Call::Lost, ..Faults::default() }),
        ("no handler", Faults { handler: Call::Lost, wait: Wait::GivesUp, ..Faults::default() }),
    ];
    for (name, faults) in faults {
        let (_stage, rig) = real();
        rig.metal.set_faults(faults);
        let watcher = Watcher::new().unwrap();
        let waits = Watched(watcher.handle(), Point::new("script"));
        block_on(script(&rig, waits)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(watcher.handle().pending(), 0, "{name}");
        watcher.close(Watcher::CLOSE).unwrap();
    }
}

#[test]
fn in_real_time_driven_on_the_ports_of_the_watcher() {
    let (_stage, rig) = real();
    let watcher = Watcher::new().unwrap();
    block_on(script(&rig, Driven(&watcher.handle()))).unwrap();
    watcher.close(Watcher::CLOSE).unwrap();
}

#[test]
fn in_real_time_on_the_thread_of_a_tokio_runtime() {
    let (stage, rig) = real();
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        let local = TokioLocal::new(stage.clock, ParkPolicy::default()).unwrap();
        script(&rig, Driven(&local)).await.unwrap();
        assert_eq!(local.registered(), 0);
    });
}

/// The wakes come from Metal's own threads, the time-outs from tokio's timers: no watcher and no thread of ours.
#[test]
fn in_real_time_notified_on_a_tokio_runtime_with_workers() {
    let (stage, rig) = real();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    runtime.block_on(async {
        let clock = TokioClock::new(stage.clock).unwrap();
        script(&rig, Driven(&Notified::new(&clock))).await.unwrap();
    });
}
