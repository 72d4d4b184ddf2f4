//! A GPU whose operations are awaited: kernels of a given length.

use wakeline_core::{Clock, Error, Nanos, Seq};
use wakeline_cuda::kernels::Kernels;
use wakeline_cuda::{Calls, CuStream, CudaContext, CudaDevice, CudaKernelWord};
use wakeline_std::StdClock;

use crate::graphs::{Chain, GraphMachine, Replays};
use crate::ops::{Begun, Machine};

/// How much freed memory of the device stays its own; none is allocated.
const BYTES_KEPT: u64 = 0;

/// A GPU, with kernels of one thread that are busy for as long as is asked for.
#[derive(Debug)]
pub struct CudaMachine {
    device: CudaDevice,
    kernels: Kernels,
    /// Into which kernels say that they have begun.
    began: CudaKernelWord,
}

impl CudaMachine {
    /// Of this context.
    ///
    /// # Errors
    ///
    /// The device has no memory in the order of streams, or what the driver says.
    pub fn new(context: &CudaContext) -> Result<Self, Error> {
        let kernels = Kernels::load(context)?;
        let (device, began) = (CudaDevice::in_context(context.clone(), BYTES_KEPT)?, context.kernel_word()?);
        Ok(Self { device, kernels, began })
    }
}

impl Machine for CudaMachine {
    type Device = CudaDevice;

    const NAME: &'static str = "cuda";

    fn device(&self) -> &CudaDevice {
        &self.device
    }

    fn launch(&self, stream: &CuStream, length: Nanos) -> Result<(), Error> {
        self.kernels.occupy(stream, length)
    }

    fn begins(&self, stream: &CuStream) -> Result<Option<Begun>, Error> {
        let next = self.began.word(Seq::new(self.began.reads().get().wrapping_add(1)));
        self.kernels.stamp_word(stream, &self.began)?;
        Ok(Some(Box::new(move || next.reached())))
    }

    fn raw_submits(
        &self,
        stream: &CuStream,
        length: Nanos,
        times: usize,
        clock: &StdClock,
    ) -> Result<Nanos, Error> {
        let mut calls = Calls::new(self.device.context(), stream)?;
        calls.store(0)?;
        let before = clock.now();
        for value in 1..=times as u64 {
            self.launch(stream, length)?;
            calls.store(value)?;
        }
        Ok(clock.now().since(before))
        // Where it is dropped, the stream is done.
    }

    fn own_cpu(&self) -> Nanos {
        Nanos::ZERO
    }
}

impl GraphMachine for CudaMachine {
    fn raw_replays(&self, stream: &CuStream, chain: Chain, clock: &StdClock) -> Result<Replays, Error> {
        let Chain { kernels, length, times, awaits } = chain;
        let mut calls = Calls::new(self.device.context(), stream)?;
        calls.store(0)?;
        calls.capture(|stream| (0..kernels).try_for_each(|_| self.launch(stream, length)))?;
        // The first of a graph brings it to the device.
        calls.launch_graph()?;
        calls.synchronize_stream()?;
        let mut replays = Replays::new(times);
        for value in 1..=times as u64 {
            let before = clock.now();
            calls.launch_graph()?;
            calls.store(value)?;
            let submitted = clock.now();
            while awaits && calls.stored() != value {
                core::hint::spin_loop();
            }
            replays.push(before, submitted, clock.now());
        }
        calls.synchronize_stream()?;
        Ok(replays)
    }
}
