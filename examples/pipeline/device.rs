//! The devices of the pipeline, and its kernel as an operation that is safe to use.

#![allow(unsafe_code, reason = "what a kernel does with its arguments is a promise")]

use std::time::Duration;

use wakeline::ops::port::{Launch, Shape};
use wakeline::ops::{DeviceOp, LeastLoaded, Runtime, empty};
use wakeline::sim::{RealTime, SimConfig, SimDevice, SimKernel};
use wakeline::tensor::{KernelArg, Tensor, launch};
use wakeline::{Error, Nanos, cuda};
use wakeline_std::{DeviceThread, Point, StdClock, Watcher};

/// How long a kernel takes: long enough to be seen in a drawing of all.
const SCALE: Nanos = Nanos::from_millis(4);

/// How long a copy takes on the simulated device.
const COPY_NS: u64 = 500_000;

/// Each batch in flight has two.
const STREAMS: usize = 6;

const ONE: Shape = Shape::new([1; 3], [1; 3]);
const MANY: Shape = Shape::new([8, 1, 1], [128, 1, 1]);

/// A device with its kernels, its streams and its watcher.
pub(crate) struct Machine<D: Launch> {
    pub(crate) name: &'static str,
    pub(crate) runtime: Runtime<D>,
    pub(crate) kernels: Kernels<D>,
    close: Box<dyn FnOnce() -> Result<(), Error>>,
}

impl<D: Launch> Machine<D> {
    /// Ends its threads, once nothing needs them any more.
    pub(crate) fn close(self) -> Result<(), Error> {
        drop((self.runtime, self.kernels));
        (self.close)()
    }
}

/// The kernels.
#[derive(Clone)]
pub(crate) struct Kernels<D: Launch> {
    /// Takes its time, where scaling takes none.
    occupy: Option<D::Kernel>,
    affine: D::Kernel,
}

impl<D: Launch> Kernels<D> {
    /// Each number becomes itself times `factor`, plus one.
    pub(crate) fn scale(
        &self,
        tensor: Tensor<u32, D>,
        factor: u32,
    ) -> impl DeviceOp<Device = D, Pending = Tensor<u32, D>, Output = Tensor<u32, D>> + use<D> {
        let words = [tensor.len() as u64, factor.into(), 1].map(KernelArg::word);
        let args: Vec<_> = [KernelArg::write(&tensor)].into_iter().chain(words).collect();
        // SAFETY: the kernel takes numbers, how many there are, a factor and an addend, and writes those numbers only.
        let scaled = unsafe { launch(self.affine.clone(), MANY, args) };
        let first = match &self.occupy {
            None => empty().boxed(),
            Some(kernel) => {
                // SAFETY: the kernel takes a number, and touches no memory.
                unsafe { launch(kernel.clone(), ONE, [KernelArg::word(SCALE.as_nanos())]) }.boxed()
            }
        };
        first.then(|()| scaled).map(move |()| tensor)
    }
}

type Simulated = SimDevice<RealTime<StdClock, fn(Nanos)>>;

/// The simulated device, in real time.
pub(crate) fn simulated() -> Result<Machine<Simulated>, Error> {
    let clock = StdClock::new();
    let sleep: fn(Nanos) = |length| std::thread::sleep(Duration::from_nanos(length.as_nanos()));
    let config = SimConfig { copy_ns: COPY_NS, ..SimConfig::default() };
    let device = SimDevice::new(RealTime::new(clock, sleep), config)?;
    let thread = DeviceThread::spawn(clock, device.clone())?;
    let watcher = Watcher::new()?;
    let tender = watcher.handle().tender(&Point::new("pipeline"));
    let affine = SimKernel::new(SCALE, |args| {
        let low = |word: u64| (word & u64::from(u32::MAX)).try_into().unwrap_or(0_u32);
        let (factor, addend) = (low(args.word(2)), low(args.word(3)));
        for number in args.bytes_mut(0).chunks_exact_mut(4) {
            let before = u32::from_ne_bytes([number[0], number[1], number[2], number[3]]);
            number.copy_from_slice(&before.wrapping_mul(factor).wrapping_add(addend).to_ne_bytes());
        }
    });
    Ok(Machine {
        name: "the simulated device",
        runtime: Runtime::new(device, &LeastLoaded::new(STREAMS)?, tender)?,
        kernels: Kernels { occupy: None, affine },
        close: Box::new(move || {
            watcher.close(Watcher::CLOSE)?;
            thread.stop().map(drop)
        }),
    })
}

/// The first NVIDIA GPU.
pub(crate) fn cuda() -> Result<Machine<cuda::CudaDevice>, Error> {
    let device = cuda::CudaDevice::new(&cuda::Cuda::load()?, cuda::Ordinal(0))?;
    let module = device.ptx(cuda::kernels::PTX)?;
    let watcher = Watcher::new()?;
    let tender = watcher.handle().tender(&Point::new("pipeline"));
    let kernels = Kernels {
        occupy: Some(module.function(cuda::kernels::OCCUPY)?),
        affine: module.function(cuda::kernels::AFFINE)?,
    };
    Ok(Machine {
        name: "a GPU",
        runtime: Runtime::new(device, &LeastLoaded::new(STREAMS)?, tender)?,
        kernels,
        close: Box::new(move || watcher.close(Watcher::CLOSE).map(drop)),
    })
}
