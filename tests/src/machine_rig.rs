//! Several devices to test on: simulated ones, CUDA's and HIP's on the stand-in for their drivers, CUDA's on a machine with two GPUs.
//!
//! Tests are generic, in real time, with one watcher for all devices.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "for tests")]
#![allow(unsafe_code, reason = "it launches kernels")]

use std::time::Duration;

use libtest_mimic::Trial;
use wakeline_core::Nanos;
use wakeline_cuda::Cuda;
use wakeline_fake_driver::{Fake, FaultEnds, Live, Options};
use wakeline_hip::Hip;
use wakeline_mapped::work::{AFFINE, OCCUPY, TRAP};
use wakeline_mapped::{Function, OpDevice, OpDeviceConfig, Ordinal, PeerDriver};
use wakeline_ops::port::{self, Peers};
use wakeline_ops::{Machine, Runtime, RuntimeConfig, StreamPoolRoundRobin};
use wakeline_sim::{MemoryUse, SimConfig, SimKernel};
use wakeline_std::{Point, Watcher};
use wakeline_tensor::{KernelArg, Launch, Tensor, launch};

use crate::ops_rig::{LIMIT, ONE, PLAN, STREAMS, affine, until};
use crate::rig::FAKE_FAULT;
use crate::suite::{Devices, Suite};
use crate::vendor::Vendor;
use crate::watching::{RealDevice, Stage};

/// How many devices a rig has, where it can choose.
pub const DEVICES: usize = 2;

/// How many operations a stream of the stand-in takes.
const QUEUE_DEPTH: usize = 8_192;

/// A driver of which tests know what they have to, with several devices.
pub trait Several: Vendor + PeerDriver {}

impl<D: Vendor + PeerDriver> Several for D {}

/// Devices of operations, a watcher and a machine.
pub trait MachineRig {
    /// A device.
    type Device: port::Launch + port::Gates + port::Pools + Peers;

    /// The machine, of [`DEVICES`] devices with [`STREAMS`] streams in turn each.
    fn machine(&self) -> &Machine<Self::Device>;

    /// A kernel of a device that takes so long. Its argument is that length.
    fn occupies(&self, device: usize, length: Nanos) -> <Self::Device as port::Launch>::Kernel;

    /// A kernel of a device that multiplies numbers and adds to them: the numbers, how many, the factor, the addend.
    fn affines(&self, device: usize) -> <Self::Device as port::Launch>::Kernel;

    /// Has a device fault.
    fn break_device(&self, device: usize);

    /// How many buffers of all devices are in use; `None` where nobody counts.
    fn in_use(&self) -> Option<u64>;

    /// The runtime of a device.
    fn on(&self, device: usize) -> &Runtime<Self::Device> {
        self.machine().site(device).unwrap().runtime()
    }

    /// An operation that occupies its stream for so long.
    fn occupy(&self, device: usize, length: Nanos) -> Launch<Self::Device> {
        let args = vec![KernelArg::word(length.as_nanos())];
        // SAFETY: the kernel takes a number and touches no memory.
        unsafe { launch(self.occupies(device, length), ONE, args) }
    }

    /// An operation that changes the numbers of a tensor, on its device.
    fn affine(
        &self,
        device: usize,
        tensor: &Tensor<u32, Self::Device>,
        factor: u32,
        addend: u32,
    ) -> Launch<Self::Device> {
        affine(self.affines(device), tensor, factor, addend)
    }

    /// Waits until nothing is in flight.
    fn settle(&self) {
        for site in self.machine().sites() {
            until("flights end", || site.runtime().counts().in_flight() == 0);
        }
    }

    /// Waits until nothing is in flight and nothing in use.
    fn settle_clean(&self) {
        self.settle();
        until("all is given back", || self.in_use().is_none_or(|used| used == 0));
        for site in self.machine().sites() {
            assert_eq!(site.runtime().counts().leaked, 0, "{:?}", site.runtime().counts());
        }
    }
}

fn machine<D: Peers>(devices: Vec<D>, watcher: &Watcher) -> Machine<D>
where
    D::Point: 'static,
{
    let tender = watcher.handle().tender(&Point::new("machine"));
    let policy = StreamPoolRoundRobin::new(STREAMS).unwrap();
    let config = RuntimeConfig::default().plan(PLAN.parse().unwrap());
    Machine::with_config(devices, &policy, tender, config).unwrap()
}

/// Simulated devices in real time.
#[derive(Debug)]
pub struct SimMachine {
    stage: Stage,
    devices: Vec<RealDevice>,
    machine: Machine<RealDevice>,
    watcher: Watcher,
}

impl SimMachine {
    fn new() -> Self {
        let config = SimConfig { copy_ns: 10_000, ..SimConfig::default() };
        let stage = Stage::new(config).unwrap();
        let others = (1..DEVICES).map(|_| stage.device.beside(config).unwrap());
        let devices: Vec<_> = [stage.device.clone()].into_iter().chain(others).collect();
        let watcher = Watcher::new().unwrap();
        let machine = machine(devices.clone(), &watcher);
        Self { stage, devices, machine, watcher }
    }

    fn end(self, leaves: bool) {
        self.settle();
        assert_eq!(self.stage.device.misuses(), []);
        if !leaves {
            self.settle_clean();
            let used = || self.devices.iter().all(|device| device.memory_use() == MemoryUse::default());
            until("all is given back", used);
        }
        self.watcher.close(Watcher::CLOSE).unwrap();
    }
}

impl MachineRig for SimMachine {
    type Device = RealDevice;

    fn machine(&self) -> &Machine<RealDevice> {
        &self.machine
    }

    fn occupies(&self, _: usize, length: Nanos) -> SimKernel {
        SimKernel::new(length, |_| {})
    }

    fn affines(&self, _: usize) -> SimKernel {
        crate::ops_rig::sim_affine()
    }

    fn break_device(&self, device: usize) {
        self.devices[device].inject_fault();
    }

    fn in_use(&self) -> Option<u64> {
        Some(self.devices.iter().map(|device| device.memory_use().buffers as u64).sum())
    }
}

/// The kernels of one device.
#[derive(Debug)]
struct Kernels<D: Several> {
    occupy: Function<D>,
    affine: Function<D>,
    trap: Function<D>,
}

/// A vendor's devices, on the stand-in or on a machine with GPUs.
#[derive(Debug)]
pub struct VendorMachine<D: Several> {
    machine: Machine<OpDevice<D>>,
    watcher: Watcher,
    kernels: Vec<Kernels<D>>,
    driver: D,
    fake: Option<Fake>,
}

/// CUDA devices.
pub type CudaMachine = VendorMachine<Cuda>;

impl<D: Several> VendorMachine<D> {
    /// On the stand-in, as `change` has it behave.
    pub fn fake(change: impl FnOnce(&mut Options)) -> Self {
        let fake = Fake::new().unwrap();
        fake.configure(|options| {
            options.fault_delay_us = u64::try_from(FAKE_FAULT.as_micros()).unwrap();
            options.queue_depth = QUEUE_DEPTH;
            options.fault_ends = FaultEnds::Context;
            D::prepare(options);
            options.devices = i32::try_from(DEVICES).unwrap();
            change(options);
        });
        let driver = D::load_from(fake.path()).unwrap();
        let ordinals: Vec<_> = (0..driver.devices()).map(Ordinal).collect();
        Self::on(driver, &ordinals, Some(fake))
    }

    /// These devices of a driver.
    pub fn on(driver: D, ordinals: &[Ordinal], fake: Option<Fake>) -> Self {
        let devices = OpDevice::those(&driver, ordinals, &OpDeviceConfig::default()).unwrap();
        let kernels = |device: &OpDevice<D>| {
            let module = D::kernels(device.context()).unwrap();
            let function = |name| module.function(name).unwrap();
            Kernels { occupy: function(OCCUPY), affine: function(AFFINE), trap: function(TRAP) }
        };
        let kernels = devices.iter().map(kernels).collect();
        let watcher = Watcher::new().unwrap();
        let machine = machine(devices, &watcher);
        Self { machine, watcher, kernels, driver, fake }
    }

    /// The driver.
    pub const fn driver(&self) -> &D {
        &self.driver
    }

    /// The stand-in, where it is that.
    pub const fn stand_in(&self) -> Option<&Fake> {
        self.fake.as_ref()
    }

    /// Lets go of everything, and looks what is left in the stand-in.
    ///
    /// # Errors
    ///
    /// The driver was misused, or something was left behind.
    pub fn end(self, leaves: bool) -> Result<(), String> {
        self.settle();
        if !leaves {
            self.settle_clean();
        }
        let Self { machine, watcher, kernels, driver, fake } = self;
        drop((machine, kernels));
        watcher.close(Watcher::CLOSE).map_err(|error| error.to_string())?;
        drop(driver);
        let Some(fake) = fake else { return Ok(()) };
        let violations = fake.violations();
        if !violations.is_empty() {
            return Err(format!("the driver was misused: {violations:#?}"));
        }
        let left = || {
            let live = fake.live();
            if D::MODULES_STAY { Live { modules: 0, ..live } } else { live }
        };
        let start = std::time::Instant::now();
        while !leaves && left() != Live::default() {
            if start.elapsed() > LIMIT {
                return Err(format!("left behind: {:?}", left()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl<D: Several> MachineRig for VendorMachine<D> {
    type Device = OpDevice<D>;

    fn machine(&self) -> &Machine<OpDevice<D>> {
        &self.machine
    }

    fn occupies(&self, device: usize, _: Nanos) -> Function<D> {
        self.kernels[device].occupy.clone()
    }

    fn affines(&self, device: usize) -> Function<D> {
        self.kernels[device].affine.clone()
    }

    fn break_device(&self, device: usize) {
        let context = self.machine.site(device).unwrap().device().context();
        let stream = context.stream_with_priority(-5).unwrap();
        // SAFETY: the stream is of the module's context; the kernel takes nothing and writes nowhere that anything is.
        unsafe { self.kernels[device].trap.launch(stream.raw(), 1, 1, 0, []) }.unwrap();
    }

    fn in_use(&self) -> Option<u64> {
        Some(self.fake.as_ref()?.live().device_allocations)
    }
}

/// A test.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// Its function's name.
    pub name: &'static str,
    /// On simulated devices, where it runs there.
    pub sim: Option<fn(&SimMachine)>,
    /// On CUDA.
    pub cuda: fn(&CudaMachine),
    /// On HIP.
    pub hip: fn(&VendorMachine<Hip>),
    /// Whether it runs on GPUs too, and not on the stand-in alone.
    pub gpu: bool,
    /// Whether it may leave something behind; on GPUs in a process of its own.
    pub leaves: bool,
    /// Whether it takes so long that it is run where it is asked for.
    pub long: bool,
}

/// Lists functions as tests: `machine_tests![Everywhere: one, two; Fakes: three]`.
///
/// | | runs on |
/// |---|---|
/// | `Everywhere` | simulated devices, the stand-in for both vendors, two GPUs; generic over [`MachineRig`] |
/// | `EverywhereFakesLeaving` | simulated devices and the stand-in for both vendors, and it may leave something behind: a fault of one GPU is that of the whole process |
/// | `Vendors` | the stand-in for both vendors, two GPUs; generic over [`Several`] |
/// | `Fakes` | the stand-in for both vendors alone |
/// | `FakesLeaving` | the same, and it may leave something behind |
/// | `FakesLong` | the same, where they are asked for: `--ignored` |
#[macro_export]
macro_rules! machine_tests {
    ($($on:ident: $($name:ident),+ $(,)?);+ $(;)?) => {
        pub(crate) const TESTS: &[$crate::machine_rig::Test] = &[$($($crate::machine_tests!(@ $on $name),)+)+];
    };
    (@ Everywhere $name:ident) => { $crate::machine_tests!(@test $name, Some($name), true, false) };
    (@ EverywhereFakesLeaving $name:ident) => { $crate::machine_tests!(@test $name, Some($name), false, true) };
    (@ Vendors $name:ident) => { $crate::machine_tests!(@test $name, None, true, false) };
    (@ Fakes $name:ident) => { $crate::machine_tests!(@test $name, None, false, false) };
    (@ FakesLeaving $name:ident) => { $crate::machine_tests!(@test $name, None, false, true) };
    (@ FakesLong $name:ident) => { $crate::machine_tests!(@test $name, None, false, false, true) };
    (@test $name:ident, $sim:expr, $gpu:literal, $leaves:literal) => {
        $crate::machine_tests!(@test $name, $sim, $gpu, $leaves, false)
    };
    (@test $name:ident, $sim:expr, $gpu:literal, $leaves:literal, $long:literal) => {
        $crate::machine_rig::Test {
            name: stringify!($name),
            sim: $sim,
            cuda: $name,
            hip: $name,
            gpu: $gpu,
            leaves: $leaves,
            long: $long,
        }
    };
}

/// Why there are no two GPUs.
fn no_gpus() -> Option<String> {
    match Cuda::load() {
        Ok(cuda) if cuda.device_count() >= 2 => None,
        Ok(cuda) => Some(format!("there is {} device", cuda.device_count())),
        Err(error) => Some(error.to_string()),
    }
}

/// Runs the tests of these groups as the arguments say; does not return.
pub fn run(groups: &[(&'static str, &'static [Test])]) -> ! {
    let mut suite = Suite::from_args();
    let mut devices = Devices::new("two CUDA devices", no_gpus());
    for (group, tests) in groups {
        for test in *tests {
            let Test { name, sim, cuda, hip, gpu, leaves, long } = *test;
            if let Some(sim) = sim {
                let trial = Trial::test(format!("sim::{group}::{name}"), move || {
                    let rig = SimMachine::new();
                    sim(&rig);
                    rig.end(leaves);
                    Ok(())
                });
                suite.add(trial, leaves);
            }
            suite.add(on_stand_in(group, name, cuda, leaves).with_ignored_flag(long), leaves);
            suite.add(on_stand_in(group, name, hip, leaves).with_ignored_flag(long), leaves);
            if gpu {
                suite.add_on(&mut devices, format!("gpu::{group}::{name}"), leaves, move || {
                    let driver = Cuda::load().map_err(|error| error.to_string())?;
                    let ordinals: Vec<_> = (0..2).map(Ordinal).collect();
                    let rig = CudaMachine::on(driver, &ordinals, None);
                    cuda(&rig);
                    Ok(rig.end(leaves)?)
                });
            }
        }
    }
    suite.run([devices])
}

fn on_stand_in<D: Several>(group: &str, name: &str, run: fn(&VendorMachine<D>), leaves: bool) -> Trial {
    Trial::test(format!("{}::{group}::{name}", D::ON.0), move || {
        let rig = VendorMachine::fake(|_| {});
        run(&rig);
        Ok(rig.end(leaves)?)
    })
}
