//! Several simulated devices in one program: where operations run, what devices have to do with each other, what is left when one faults.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::panic)]

mod across;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod looks;
mod placement;

use common::{Busy, CONFIG};
use wakeline_core::Nanos;
use wakeline_ops::{Machine, RuntimeConfig, SchedulingPolicy, StreamPoolRoundRobin};
use wakeline_sim::{MemoryUse, SimConfig, SimDevice, VirtualTime, VirtualWatcher};
use wakeline_tensor::Tensor;

pub(crate) type Bytes = Tensor<u8, SimDevice>;

/// A machine of simulated devices on one virtual time line.
pub(crate) struct Machines {
    pub(crate) devices: Vec<SimDevice>,
    pub(crate) watcher: VirtualWatcher,
    pub(crate) machine: Machine<SimDevice>,
}

impl Machines {
    pub(crate) fn new(devices: usize) -> Self {
        Self::with(devices, &CONFIG, &StreamPoolRoundRobin::new(2).unwrap())
    }

    pub(crate) fn with(count: usize, config: &SimConfig, policy: &impl SchedulingPolicy) -> Self {
        Self::planned(count, config, policy, RuntimeConfig::default())
    }

    pub(crate) fn planned(
        count: usize,
        config: &SimConfig,
        policy: &impl SchedulingPolicy,
        setup: RuntimeConfig,
    ) -> Self {
        let first = SimDevice::new(VirtualTime::new(), *config).unwrap();
        let others = (1..count).map(|_| first.beside(*config).unwrap());
        let devices: Vec<_> = [first.clone()].into_iter().chain(others).collect();
        let watcher = VirtualWatcher::new(&first);
        let machine = Machine::with_config(devices.clone(), policy, watcher.clone(), setup).unwrap();
        Self { devices, watcher, machine }
    }

    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        self.watcher.run(future).unwrap()
    }

    pub(crate) fn on(&self, device: usize) -> &wakeline_ops::Runtime<SimDevice> {
        self.machine.site(device).unwrap().runtime()
    }

    /// How many operations were placed on each device.
    pub(crate) fn placed(&self) -> Vec<u64> {
        self.machine.sites().iter().map(|site| site.placed()).collect()
    }

    pub(crate) fn settle(&self) {
        while self.watcher.pending() > 0 && self.watcher.turn() {}
        while self.watcher.turn() {}
    }

    /// Nothing was misused, nothing is in flight, and all memory was given back.
    pub(crate) fn assert_clean(&self) {
        self.settle();
        assert_eq!(self.devices[0].misuses(), []);
        for (site, device) in self.machine.sites().iter().zip(&self.devices) {
            let counts = site.runtime().counts();
            assert_eq!((counts.in_flight(), counts.leaked), (0, 0), "{counts:?}");
            assert_eq!(device.memory_use(), MemoryUse::default());
        }
    }
}

/// Work that keeps its stream busy.
pub(crate) fn busy(us: u64) -> Busy<()> {
    Busy(Nanos::from_micros(us), ())
}
