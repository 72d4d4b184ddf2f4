//! A simulated device in real time, with the costs of an H200's driver calls, and the thread that plays it.

use core::cell::RefCell;

use wakeline_core::{Error, ErrorCode, Instant, Nanos};
use wakeline_sim::{SimConfig, SimDevice, SimPort, SimStream, Witness};
use wakeline_std::StdClock;

use super::{About, Device, RawWay};
use crate::ops::{Bench, Machine, Operations};
use crate::sim::{SimMachine, Time};
use crate::{Quantiles, Tail};

/// How many words it has: for 4,096 flights, and some.
const SLOTS_MAX: usize = 8_192;

/// A simulated device that runs.
#[derive(Debug)]
pub struct SimBench {
    clock: StdClock,
    device: SimDevice<Time>,
    stream: SimStream<Time>,
    /// Who knows of the last port.
    last: RefCell<Option<Witness<Time>>>,
    /// How late its thread stored words.
    late: RefCell<Tail>,
    operations: Bench<SimMachine>,
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
        let machine = SimMachine::start(clock, config)?;
        let device = machine.device().clone();
        let stream = device.stream()?;
        let (last, late) = (RefCell::default(), RefCell::default());
        Ok(Self { clock, device, stream, last, late, operations: Bench::new(machine)? })
    }
}

fn unknown() -> Error {
    Error::new(ErrorCode::Backend, [&"the simulated device", &"telling an end", &"it has not come"])
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
        self.operations.machine().own_cpu()
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
