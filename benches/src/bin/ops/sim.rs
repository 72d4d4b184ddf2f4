//! A simulated device in real time, with the costs of an H200's driver calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use wakeline_benches::ops::Machine;
use wakeline_core::{Error, Instant, Nanos, Turn};
use wakeline_sim::{RealTime, SimConfig, SimDevice, SimStream};
use wakeline_std::usage::thread_cpu_time;
use wakeline_std::{DeviceThread, StdClock};

type Time = RealTime<StdClock, fn(Nanos)>;

/// How long its thread watches the clock before something is due.
const SPIN_US: u32 = 1_000;

pub(crate) struct SimMachine {
    device: SimDevice<Time>,
    used: Arc<AtomicU64>,
    _thread: DeviceThread<Played>,
}

struct Played {
    device: SimDevice<Time>,
    used: Arc<AtomicU64>,
}

impl Turn for Played {
    fn turn(&self, now: Instant) -> Option<Instant> {
        let due = self.device.turn(now);
        self.used.store(thread_cpu_time().unwrap_or(Nanos::ZERO).as_nanos(), Ordering::Relaxed);
        due
    }

    fn set_bell(&self, bell: Waker) {
        self.device.set_bell(bell);
    }
}

fn sleep(length: Nanos) {
    std::thread::sleep(std::time::Duration::from_nanos(length.as_nanos()));
}

impl SimMachine {
    pub(crate) fn start() -> Result<Self, Error> {
        let clock = StdClock::new();
        let config = SimConfig { slots_max: 1_024, ..SimConfig::default() };
        let device = SimDevice::new(RealTime::new(clock, sleep as fn(Nanos)), config)?;
        let used = Arc::new(AtomicU64::new(0));
        let played = Played { device: device.clone(), used: Arc::clone(&used) };
        let thread = DeviceThread::spawn_spinning(clock, played, SPIN_US)?;
        Ok(Self { device, used, _thread: thread })
    }
}

impl Machine for SimMachine {
    type Device = SimDevice<Time>;

    const NAME: &'static str = "sim";

    fn device(&self) -> &Self::Device {
        &self.device
    }

    fn launch(&self, stream: &SimStream<Time>, length: Nanos) -> Result<(), Error> {
        stream.launch(length)
    }

    fn own_cpu(&self) -> Nanos {
        Nanos::from_nanos(self.used.load(Ordering::Relaxed))
    }
}
