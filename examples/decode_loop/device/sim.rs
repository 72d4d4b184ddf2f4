//! The simulated device in real time, and a thread of this process that drives it.

use wakeline::Nanos;
use wakeline::sim::{RealTime, SimConfig, SimDevice, SimPort, SimStream, Witness};
use wakeline_std::{DeviceThread, StdClock};

use crate::Failure;
use crate::device::{Device, Stream, Truth};
use crate::meter::{Meter, Metered};
use crate::replay::sleep;
use crate::steps::Step;

type Time = RealTime<StdClock, fn(Nanos)>;

/// How long the device's thread watches the clock before something is due: its sleeps must not make the device late, for a real one
/// is not. The table tells how late it was all the same.
const SPIN_US: u32 = 1_000;

/// A simulated device that runs.
pub(crate) struct Sim {
    stream: SimStream<Time>,
    meter: Meter,
    thread: DeviceThread<Metered<SimDevice<Time>>>,
}

impl Sim {
    /// Starts it. Its draws come from `seed`.
    pub(crate) fn start(clock: StdClock, seed: u64) -> Result<Self, Failure> {
        let config = SimConfig { seed, ..SimConfig::default() };
        let device = SimDevice::new(RealTime::new(clock, sleep as fn(Nanos)), config)?;
        let stream = device.stream()?;
        let meter = Meter::default();
        let thread = DeviceThread::spawn_spinning(clock, meter.device(device), SPIN_US)?;
        Ok(Self { stream, meter, thread })
    }
}

impl Device for Sim {
    type Stream = SimStream<Time>;

    fn stream(&self) -> &Self::Stream {
        &self.stream
    }

    fn name(&self) -> Option<&str> {
        None
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn close(self) -> Result<(), Failure> {
        self.thread.stop()?;
        Ok(())
    }
}

impl Stream for SimStream<Time> {
    type Port = SimPort<Time>;
    type Witness = Witness<Time>;

    fn launch(&self, step: &Step) -> Result<(SimPort<Time>, Witness<Time>), Failure> {
        self.launch(step.residual)?;
        let port = self.point();
        let witness = port.witness();
        Ok((port, witness))
    }

    fn truth(&self, witness: &Witness<Time>) -> Result<Truth, Failure> {
        let truth = witness.truth();
        let ended = truth.ended_at.ok_or(Failure::TooEarly)?;
        let store_late = truth.landed_at.zip(truth.stored_at).map(|(landed, stored)| stored.since(landed));
        Ok(Truth { ended, store_late })
    }
}
