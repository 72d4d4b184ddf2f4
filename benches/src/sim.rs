//! A simulated device in real time, with the costs of an H200's driver calls, and the thread that plays it.

use core::task::Waker;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wakeline_core::{Clock, CompletionPort, Error, Instant, Nanos, Turn, Wake};
use wakeline_sim::{RealTime, SimConfig, SimDevice, SimStream};
use wakeline_std::usage::thread_cpu_time;
use wakeline_std::{DeviceThread, StdClock};

use crate::graphs::{Chain, GraphMachine, Replays};
use crate::ops::Machine;

/// The time it runs in: the host's.
pub type Time = RealTime<StdClock, fn(Nanos)>;

/// How long its thread watches the clock before something is due, microseconds: its sleeps must not make the device late, for a real one is
/// not.
const SPIN_US: u32 = 1_000;

/// A simulated device that runs for as long as this lives.
#[derive(Debug)]
pub struct SimMachine {
    device: SimDevice<Time>,
    used: Arc<AtomicU64>,
    _thread: DeviceThread<Played>,
}

/// The device, in the hands of its thread.
#[derive(Debug)]
struct Played {
    device: SimDevice<Time>,
    used: Arc<AtomicU64>,
}

impl Turn for Played {
    fn turn(&self, now: Instant) -> Option<Instant> {
        let due = self.device.turn(now);
        // After what was due, so that it is no later for this.
        self.used.store(thread_cpu_time().unwrap_or(Nanos::ZERO).as_nanos(), Ordering::Relaxed);
        due
    }

    fn set_bell(&self, bell: Waker) {
        self.device.set_bell(bell);
    }
}

fn sleep(length: Nanos) {
    std::thread::sleep(core::time::Duration::from_nanos(length.as_nanos()));
}

impl SimMachine {
    /// Starts it, with a thread.
    ///
    /// # Errors
    ///
    /// The settings are refused, or the system refuses the thread.
    pub fn start(clock: StdClock, config: SimConfig) -> Result<Self, Error> {
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

    fn raw_submits(
        &self,
        stream: &SimStream<Time>,
        length: Nanos,
        times: usize,
        clock: &StdClock,
    ) -> Result<Nanos, Error> {
        let mut points = Vec::with_capacity(times);
        let before = clock.now();
        for _ in 0..times {
            self.launch(stream, length)?;
            let mut point = stream.point();
            point.arm()?;
            points.push(point);
        }
        let took = clock.now().since(before);
        while points.last().is_some_and(|point| point.poll() != Wake::Reached) {
            core::hint::spin_loop();
        }
        Ok(took)
    }

    fn own_cpu(&self) -> Nanos {
        Nanos::from_nanos(self.used.load(Ordering::Relaxed))
    }
}

impl GraphMachine for SimMachine {
    fn raw_replays(
        &self,
        stream: &SimStream<Time>,
        chain: Chain,
        clock: &StdClock,
    ) -> Result<Replays, Error> {
        let Chain { kernels, length, times, awaits } = chain;
        stream.begin_capture()?;
        let launched = (0..kernels).try_for_each(|_| self.launch(stream, length));
        let captured = stream.end_capture();
        let graph = launched.and_then(|()| self.device.instantiate(&captured?))?;
        let (mut replays, mut points) = (Replays::new(times), Vec::with_capacity(times));
        for _ in 0..times {
            let before = clock.now();
            stream.launch_graph(&graph)?;
            let mut point = stream.point();
            point.arm()?;
            let submitted = clock.now();
            while awaits && point.poll() != Wake::Reached {
                core::hint::spin_loop();
            }
            replays.push(before, submitted, clock.now());
            points.push(point);
        }
        while points.last().is_some_and(|point| point.poll() != Wake::Reached) {
            core::hint::spin_loop();
        }
        Ok(replays)
    }
}
