//! A simulated device in real time, with the costs of an H200's driver calls, and the thread that plays it.

use core::cell::RefCell;
use core::task::Waker;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wakeline_core::{Error, ErrorCode, Instant, Nanos, Turn};
use wakeline_sim::{RealTime, SimConfig, SimDevice, SimPort, SimStream, Witness};
use wakeline_std::usage::thread_cpu_time;
use wakeline_std::{DeviceThread, StdClock};

use super::{About, Device, RawWay};
use crate::ops::{Bench, Machine, Operations};
use crate::stats::{Quantiles, Tail};

type Time = RealTime<StdClock, fn(Nanos)>;

/// How long its thread watches the clock before something is due, microseconds: its sleeps must not make the device late, for a real one is
/// not.
const SPIN_US: u32 = 1_000;

/// How many words it has: for 4,096 flights, and some.
const SLOTS_MAX: usize = 8_192;

/// A simulated device that runs.
#[derive(Debug)]
pub struct SimBench {
    clock: StdClock,
    device: SimDevice<Time>,
    stream: SimStream<Time>,
    used: Arc<AtomicU64>,
    /// Who knows of the last port.
    last: RefCell<Option<Witness<Time>>>,
    /// How late its thread stored words.
    late: RefCell<Tail>,
    operations: Bench<SimMachine>,
    _thread: DeviceThread<Played>,
}

/// The device as operations see it.
#[derive(Debug)]
struct SimMachine {
    device: SimDevice<Time>,
    used: Arc<AtomicU64>,
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

impl SimBench {
    /// Starts it, with a thread.
    ///
    /// # Errors
    ///
    /// The system refuses the thread.
    pub fn start(seed: u64) -> Result<Self, Error> {
        let clock = StdClock::new();
        let config = SimConfig { seed, slots_max: SLOTS_MAX, ..SimConfig::default() };
        let device = SimDevice::new(RealTime::new(clock, sleep as fn(Nanos)), config)?;
        let stream = device.stream()?;
        let used = Arc::new(AtomicU64::new(0));
        let played = Played { device: device.clone(), used: Arc::clone(&used) };
        let thread = DeviceThread::spawn_spinning(clock, played, SPIN_US)?;
        let (last, late) = (RefCell::default(), RefCell::default());
        let operations = Bench::new(SimMachine { device: device.clone(), used: Arc::clone(&used) })?;
        Ok(Self { clock, device, stream, used, last, late, operations, _thread: thread })
    }
}

fn unknown() -> Error {
    Error::new(ErrorCode::Backend, [&"the simulated device", &"telling an end", &"it has not come"])
}

fn sleep(length: Nanos) {
    std::thread::sleep(core::time::Duration::from_nanos(length.as_nanos()));
}

impl Device for SimBench {
    type Port = SimPort<Time>;
    type Launched = ();
    type Lane = SimStream<Time>;
    type Flight = SimPort<Time>;
    type Landed = Witness<Time>;

    const KIND: &'static str = "sim";

    fn about(&self) -> About {
        About::default()
    }

    fn clock(&self) -> StdClock {
        self.clock
    }

    fn own_cpu(&self) -> Nanos {
        Nanos::from_nanos(self.used.load(Ordering::Relaxed))
    }

    fn tells_ends_freely(&self) -> bool {
        true
    }

    fn launch(&self, length: Nanos) -> Result<Self::Launched, Error> {
        self.stream.launch(length)
    }

    fn port(&self) -> Result<Self::Port, Error> {
        let port = self.stream.point();
        *self.last.borrow_mut() = Some(port.witness());
        Ok(port)
    }

    fn ended(&self, (): &Self::Launched, known: Instant) -> Result<Instant, Error> {
        match &*self.last.borrow() {
            Some(witness) => self.landed(witness, known),
            None => Err(unknown()),
        }
    }

    fn operations(&self) -> Option<&dyn Operations> {
        Some(&self.operations)
    }

    fn own_lateness(&self) -> Option<Quantiles> {
        let late = self.late.borrow().quantiles();
        (late.count > 0).then_some(late)
    }

    fn ways(&self) -> Result<Vec<Box<dyn RawWay + '_>>, Error> {
        Ok(Vec::new())
    }

    fn lanes(&self, flights: usize) -> Result<Vec<Self::Lane>, Error> {
        (0..flights).map(|_| self.device.stream()).collect()
    }

    fn fly(&self, lane: &Self::Lane, end: Instant) -> Result<(Self::Flight, Self::Landed), Error> {
        lane.launch_until(end)?;
        let port = lane.point();
        let landed = port.witness();
        Ok((port, landed))
    }

    fn landed(&self, landed: &Self::Landed, known: Instant) -> Result<Instant, Error> {
        let truth = landed.truth();
        let ended = truth.ended_at.ok_or_else(unknown)?;
        let Some((stored, landed)) = truth.stored_at.zip(truth.landed_at) else { return Ok(ended) };
        let late = stored.since(landed);
        self.late.borrow_mut().record(late.as_nanos());
        // Who knew before the word was stored knew by the status, which is right however late the thread is.
        Ok(if known >= stored { ended + late } else { ended })
    }
}
