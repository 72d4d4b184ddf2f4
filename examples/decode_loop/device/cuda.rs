//! A real GPU: each step is a kernel that occupies it for that long, launched alone or as a graph.

use wakeline::cuda::kernels::TimedSteps;
use wakeline::cuda::{Cuda, CudaPort};
use wakeline::{Error, Instant};
use wakeline_std::StdClock;

use crate::Failure;
use crate::device::{Device, Stream, Truth};
use crate::meter::Meter;
use crate::steps::Step;

/// A GPU and its driver.
pub(crate) struct Gpu {
    steps: TimedSteps<StdClock>,
    meter: Meter,
    name: String,
}

impl Gpu {
    /// The first GPU of this machine.
    pub(crate) fn open(clock: StdClock) -> Result<Self, Error> {
        let cuda = Cuda::load()?;
        let device = cuda.devices().next().transpose()?;
        let name = device.map_or_else(|| Ok(String::new()), |device| device.name())?;
        let context = cuda.context(0)?;
        let steps = TimedSteps::new(&context.stream()?, clock)?;
        let name = format!("{name}, CUDA {}, completion by {}", cuda.version(), context.completion());
        Ok(Self { steps, meter: Meter::default(), name })
    }
}

impl Device for Gpu {
    type Stream = TimedSteps<StdClock>;

    fn stream(&self) -> &Self::Stream {
        &self.steps
    }

    fn name(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn close(self) -> Result<(), Failure> {
        self.steps.stream().context().health()?;
        Ok(())
    }
}

impl Stream for TimedSteps<StdClock> {
    type Port = CudaPort;
    /// When it was launched.
    type Witness = Instant;

    fn launch(&self, step: &Step) -> Result<(CudaPort, Instant), Failure> {
        let launched = self.launch(step.residual, step.graphed)?;
        Ok((self.stream().port()?, launched))
    }

    fn truth(&self, launched: &Instant) -> Result<Truth, Failure> {
        Ok(Truth { ended: self.ended(*launched)?, store_late: None })
    }
}
