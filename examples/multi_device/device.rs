//! The devices, and their kernel as an operation that is safe to use.

#![allow(unsafe_code, reason = "what a kernel does with its arguments is a promise")]

use std::time::Duration;

use wakeline::ops::port::{Launch, Peers, Shape};
use wakeline::ops::{DeviceOp, Machine, StreamPoolRoundRobin, empty};
use wakeline::sim::{RealTime, SimConfig, SimDevice, SimKernel};
use wakeline::tensor::{KernelArg, Tensor, launch};
use wakeline::{Error, Nanos, cuda};
use wakeline_std::{DeviceThread, Point, StdClock, Watcher};

/// How long a kernel takes.
const SCALE: Nanos = Nanos::from_millis(2);

/// How much longer on a slow device.
const SLOWER: u64 = 3;

/// How long a copy takes on a simulated device.
const COPY_NS: u64 = 50_000;

/// Each device has as many items in flight.
const STREAMS: usize = 4;

const ONE: Shape = Shape::new([1; 3], [1; 3]);
const MANY: Shape = Shape::new([8, 1, 1], [128, 1, 1]);

/// What breaks a device, by its number.
type Breaks = Box<dyn Fn(usize) + Send + Sync>;

/// Devices with their kernels and their watcher.
pub(crate) struct Rig<D: Launch> {
    pub(crate) name: &'static str,
    pub(crate) machine: Machine<D>,
    kernels: Vec<Kernels<D>>,
    breaks: Breaks,
    close: Box<dyn FnOnce() -> Result<(), Error> + Send + Sync>,
}

impl<D: Launch> Rig<D> {
    /// Those of a device.
    pub(crate) fn kernels(&self, device: usize) -> Kernels<D> {
        self.kernels[device].clone()
    }

    /// Has a device fault, for good.
    pub(crate) fn break_device(&self, device: usize) {
        (self.breaks)(device);
    }

    /// Ends its threads, once nothing needs them any more.
    pub(crate) fn close(self) -> Result<(), Error> {
        drop((self.machine, self.kernels, self.breaks));
        (self.close)()
    }
}

/// The kernels of a device.
#[derive(Clone)]
pub(crate) struct Kernels<D: Launch> {
    /// Takes its time, where scaling takes none.
    occupy: Option<D::Kernel>,
    affine: D::Kernel,
}

impl<D: Launch> Kernels<D> {
    /// Each number becomes three times itself, plus one.
    pub(crate) fn scale(
        &self,
        tensor: Tensor<u32, D>,
    ) -> impl DeviceOp<Device = D, Pending = Tensor<u32, D>, Output = Tensor<u32, D>> + use<D> {
        let words = [tensor.len() as u64, 3, 1].map(KernelArg::word);
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

/// A kernel of a simulated device.
fn affine(length: Nanos) -> SimKernel {
    SimKernel::new(length, |args| {
        let low = |word: u64| (word & u64::from(u32::MAX)).try_into().unwrap_or(0_u32);
        let (factor, addend) = (low(args.word(2)), low(args.word(3)));
        for number in args.bytes_mut(0).chunks_exact_mut(4) {
            let before = u32::from_ne_bytes([number[0], number[1], number[2], number[3]]);
            number.copy_from_slice(&before.wrapping_mul(factor).wrapping_add(addend).to_ne_bytes());
        }
    })
}

fn machine<D: Peers>(devices: Vec<D>, watcher: &Watcher) -> Result<Machine<D>, Error>
where
    D::Point: 'static,
{
    // One watcher for all of them.
    let tender = watcher.handle().tender(&Point::new("multi_device"));
    Machine::new(devices, &StreamPoolRoundRobin::new(STREAMS)?, tender)
}

type Simulated = SimDevice<RealTime<StdClock, fn(Nanos)>>;

/// Simulated devices beside each other, in real time.
pub(crate) fn simulated(count: u32, mixed: bool) -> Result<Rig<Simulated>, Error> {
    let clock = StdClock::new();
    let sleep: fn(Nanos) = |length| std::thread::sleep(Duration::from_nanos(length.as_nanos()));
    let config = SimConfig { copy_ns: COPY_NS, ..SimConfig::default() };
    let first = SimDevice::new(RealTime::new(clock, sleep), config)?;
    // Who drives one of them drives all.
    let thread = DeviceThread::spawn(clock, first.clone())?;
    let mut devices = vec![first.clone()];
    for _ in 1..count {
        devices.push(first.beside(config)?);
    }
    let kernels = (0..count).map(|device| {
        let slower = if mixed && device >= count.div_ceil(2) { SLOWER } else { 1 };
        Kernels { occupy: None, affine: affine(Nanos::from_nanos(SCALE.as_nanos() * slower)) }
    });
    let watcher = Watcher::new()?;
    Ok(Rig {
        name: "simulated device(s)",
        machine: machine(devices.clone(), &watcher)?,
        kernels: kernels.collect(),
        breaks: Box::new(move |device| devices[device].inject_fault()),
        close: Box::new(move || {
            watcher.close(Watcher::CLOSE)?;
            drop(first);
            thread.stop().map(drop)
        }),
    })
}

/// So many NVIDIA GPUs, from the first on; all of them where nothing is said.
pub(crate) fn cuda(count: Option<u32>) -> Result<Rig<cuda::CudaDevice>, Error> {
    let driver = cuda::Cuda::load()?;
    let count = count.unwrap_or_else(|| driver.device_count());
    let ordinals: Vec<_> = (0..count).map(cuda::Ordinal).collect();
    let devices = cuda::CudaDevice::those(&driver, &ordinals, &cuda::CudaDeviceConfig::default())?;
    let (mut kernels, mut traps) = (Vec::new(), Vec::new());
    for device in &devices {
        let module = device.ptx(cuda::kernels::PTX)?;
        let occupy = Some(module.function(cuda::kernels::OCCUPY)?);
        kernels.push(Kernels { occupy, affine: module.function(cuda::kernels::AFFINE)? });
        traps.push((device.context().stream()?, module.function(cuda::kernels::TRAP)?));
    }
    let watcher = Watcher::new()?;
    Ok(Rig {
        name: "GPU(s)",
        machine: machine(devices, &watcher)?,
        kernels,
        breaks: Box::new(move |device| {
            let (stream, trap) = &traps[device];
            // SAFETY: the stream is alive and of the kernel's context; it takes nothing and writes nowhere that anything is.
            if let Err(error) = unsafe { trap.launch(stream.raw(), 1, 1, 0, []) } {
                eprintln!("multi_device: device {device} is not made to fault: {error}");
            }
        }),
        close: Box::new(move || watcher.close(Watcher::CLOSE).map(drop)),
    })
}
