//! A fallback is asked where no runtime is bound, and only there. In a process of its own: it counts for all of it.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use std::any::Any;
use std::sync::OnceLock;

use wakeline_core::ErrorCode;
use wakeline_ops::{DeviceOp, Runtime, SingleStream, fall_back_on, value};
use wakeline_sim::{RealTime, SimConfig, SimDevice, VirtualTime, VirtualWatcher};
use wakeline_std::StdClock;

static HELD: OnceLock<Runtime<SimDevice>> = OnceLock::new();

fn fill(slot: &mut dyn Any) {
    if let Some(slot) = slot.downcast_mut::<Option<Runtime<SimDevice>>>() {
        *slot = HELD.get().cloned();
    }
}

/// Never asked: the first one stays.
fn other(_: &mut dyn Any) {
    std::process::abort();
}

fn runtime() -> Runtime<SimDevice> {
    let device = SimDevice::new(VirtualTime::new(), SimConfig::default()).unwrap();
    let watcher = VirtualWatcher::new(&device);
    Runtime::new(device, &SingleStream, watcher).unwrap()
}

#[test]
fn a_fallback_is_asked_where_nothing_is_bound_and_the_first_stays() {
    let run = || value::<SimDevice, _>(3).sync();
    assert_eq!(run().unwrap_err().code(), ErrorCode::NoRuntime);
    assert!(fall_back_on(fill) && !fall_back_on(other) && fall_back_on(fill));
    assert_eq!(run().unwrap_err().code(), ErrorCode::NoRuntime, "it has none yet");
    let held = HELD.get_or_init(runtime);
    assert_eq!((run().unwrap(), held.counts().begun), (3, 1));
    let bound = runtime();
    assert_eq!((bound.enter(run).unwrap(), held.counts().begun, bound.counts().begun), (3, 1, 1));
    // Of another kind of device it knows nothing.
    let of_another = value::<SimDevice<RealTime<StdClock, fn(wakeline_core::Nanos)>>, _>(3).sync();
    assert_eq!(of_another.unwrap_err().code(), ErrorCode::NoRuntime);
}
