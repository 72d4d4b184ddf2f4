//! Devices that compute together: simulated ones in virtual time, CUDA's and HIP's on the stand-in for their drivers and libraries of collectives, CUDA's GPUs.

use std::time::{Duration, Instant as Wall};

use wakeline_core::{Error, ErrorCode, Nanos};
use wakeline_cuda::Cuda;
use wakeline_fake_driver::{Fake, Live, Options};
use wakeline_mapped::work::{AFFINE, OCCUPY};
use wakeline_mapped::{CollectiveLibrary, CollectiveVendor, Function, OpDevice, Ordinal};
use wakeline_ops::port::{Collectives, Device as _, Gates, Launch as Launches};
use wakeline_ops::{CollectiveConfig, DeviceOp, Ranks, Runtime, StreamPoolRoundRobin};
use wakeline_sim::{MemoryUse, SimConfig, SimDevice, SimFabric, SimKernel, VirtualTime, VirtualWatcher};
use wakeline_std::{Point, Watcher, block_on, on_a_thread};
use wakeline_tensor::{KernelArg, Launch, Tensor, launch};
use wakeline_tests::ops_rig::{ONE, PLAN, STREAMS, affine, until};
use wakeline_tests::vendor::Vendor;

/// The deadlines of a test that is to meet none.
pub(crate) const PATIENT: CollectiveConfig =
    CollectiveConfig { join_within: Nanos::from_millis(20_000), within: Nanos::from_millis(20_000) };

/// Those of one that is to meet that of a collective.
pub(crate) const HASTY: CollectiveConfig = CollectiveConfig { within: Nanos::from_millis(100), ..PATIENT };

/// Those of one that is to meet that of joining.
pub(crate) const HASTY_TO_JOIN: CollectiveConfig =
    CollectiveConfig { join_within: Nanos::from_millis(100), ..PATIENT };

/// How many operations a stream of the stand-in takes.
const QUEUE_DEPTH: usize = 8_192;

/// Several devices of one kind.
pub(crate) trait RanksRig {
    /// Theirs.
    type Device: Collectives + Launches + Gates;

    /// A runtime of each, of [`STREAMS`] streams in turn.
    fn runtimes(&self) -> &[Runtime<Self::Device>];

    /// What connects them.
    fn library(&self) -> &<Self::Device as Collectives>::Library;

    /// Runs a future to its end.
    fn run<F: Future>(&self, future: F) -> F::Output;

    /// A kernel of this rank's device that takes so long, with its argument.
    fn occupies(&self, rank: usize, length: Nanos) -> <Self::Device as Launches>::Kernel;

    /// A kernel of this rank's device that multiplies numbers and adds to them.
    fn affines(&self, rank: usize) -> <Self::Device as Launches>::Kernel;

    /// Waits until nothing is in flight, and all memory is given back.
    fn settle(&self);

    /// All of the devices as ranks.
    fn ranks(&self, config: CollectiveConfig) -> Ranks<Self::Device> {
        self.run(Ranks::of(self.library(), self.runtimes(), config)).unwrap()
    }

    /// How many there are.
    fn world(&self) -> usize {
        self.runtimes().len()
    }

    /// Numbers on the device of each rank.
    fn tensors<T: wakeline_tensor::Element>(
        &self,
        numbers: impl Fn(usize) -> Vec<T>,
    ) -> Vec<Tensor<T, Self::Device>> {
        let made = self.runtimes().iter().enumerate();
        made.map(|(rank, runtime)| self.run(Tensor::from_host(numbers(rank)).on(runtime)).unwrap()).collect()
    }

    /// The numbers of a tensor of this rank's device.
    fn read<T: wakeline_tensor::Element>(&self, rank: usize, tensor: &Tensor<T, Self::Device>) -> Vec<T> {
        self.run(tensor.to_host().on(&self.runtimes()[rank])).unwrap()
    }

    /// Occupies a stream of this rank's device.
    fn occupy(&self, rank: usize, length: Nanos) -> Launch<Self::Device> {
        let args = vec![KernelArg::word(length.as_nanos())];
        // SAFETY: the kernel takes a number and touches no memory.
        unsafe { launch(self.occupies(rank, length), ONE, args) }
    }

    /// Changes the numbers of a tensor.
    fn affine(
        &self,
        rank: usize,
        tensor: &Tensor<u32, Self::Device>,
        factor: u32,
        addend: u32,
    ) -> Launch<Self::Device> {
        affine(self.affines(rank), tensor, factor, addend)
    }
}

/// Simulated devices on one time line.
pub(crate) struct SimRanks {
    devices: Vec<SimDevice>,
    fabric: SimFabric,
    watcher: VirtualWatcher,
    runtimes: Vec<Runtime<SimDevice>>,
}

impl SimRanks {
    pub(crate) fn new(world: usize) -> Self {
        let time = VirtualTime::new();
        let config = SimConfig { copy_ns: 10_000, ..SimConfig::exact() };
        let devices: Vec<_> = (0..world).map(|_| SimDevice::new(time.clone(), config).unwrap()).collect();
        let watcher = VirtualWatcher::of(&devices[0], &devices[1..]);
        let policy = StreamPoolRoundRobin::new(STREAMS).unwrap();
        let runtime = |device: &SimDevice| {
            Runtime::with_plan(device.clone(), &policy, watcher.clone(), PLAN.parse().unwrap()).unwrap()
        };
        let runtimes = devices.iter().map(runtime).collect();
        Self { devices, fabric: SimFabric::new(), watcher, runtimes }
    }

    pub(crate) fn devices(&self) -> &[SimDevice] {
        &self.devices
    }

    pub(crate) fn end(self) {
        self.settle();
        for device in &self.devices {
            assert_eq!(device.misuses(), []);
        }
    }
}

impl RanksRig for SimRanks {
    type Device = SimDevice;

    fn runtimes(&self) -> &[Runtime<SimDevice>] {
        &self.runtimes
    }

    fn library(&self) -> &SimFabric {
        &self.fabric
    }

    fn run<F: Future>(&self, future: F) -> F::Output {
        self.watcher.run(future).unwrap()
    }

    fn occupies(&self, _: usize, length: Nanos) -> SimKernel {
        SimKernel::new(length, |_| {})
    }

    fn affines(&self, _: usize) -> SimKernel {
        SimKernel::new(Nanos::from_micros(5), |args| {
            let low = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap();
            let (factor, addend) = (low(args.word(2)), low(args.word(3)));
            for number in args.bytes_mut(0).chunks_exact_mut(4) {
                let before = u32::from_ne_bytes((&*number).try_into().unwrap());
                number.copy_from_slice(&before.wrapping_mul(factor).wrapping_add(addend).to_ne_bytes());
            }
        })
    }

    fn settle(&self) {
        while self.watcher.turn() {}
        for (device, runtime) in self.devices.iter().zip(&self.runtimes) {
            assert_eq!((runtime.counts().in_flight(), runtime.counts().leaked), (0, 0));
            if device.health().is_none() {
                assert_eq!((device.memory_use(), device.gates()), (MemoryUse::default(), 0));
            }
        }
    }
}

/// A vendor's devices.
pub(crate) struct VendorRanks<V: Vendor + CollectiveVendor> {
    runtimes: Vec<Runtime<OpDevice<V>>>,
    kernels: Vec<(Function<V>, Function<V>)>,
    library: CollectiveLibrary<V>,
    watcher: Watcher,
    driver: V,
    fake: Option<Fake>,
}

impl<V: Vendor + CollectiveVendor> VendorRanks<V> {
    /// On the stand-in.
    pub(crate) fn fake(world: usize) -> Self {
        Self::on_fake(world, Fake::new().unwrap())
    }

    /// On this one.
    pub(crate) fn on_fake(world: usize, fake: Fake) -> Self {
        fake.configure(|options| {
            V::prepare(options);
            options.devices = i32::try_from(world).unwrap();
            options.queue_depth = QUEUE_DEPTH;
        });
        let driver = V::load_from(fake.path()).unwrap();
        let library = CollectiveLibrary::load_from(fake.path(), on_a_thread).unwrap();
        Self::on(driver, library, world, Some(fake))
    }

    fn on(driver: V, library: CollectiveLibrary<V>, world: usize, fake: Option<Fake>) -> Self {
        let watcher = Watcher::new().unwrap();
        let policy = StreamPoolRoundRobin::new(STREAMS).unwrap();
        let (mut runtimes, mut kernels) = (Vec::new(), Vec::new());
        for ordinal in 0..u32::try_from(world).unwrap() {
            let device = OpDevice::new(&driver, Ordinal(ordinal)).unwrap();
            let module = V::kernels(device.context()).unwrap();
            kernels.push((module.function(OCCUPY).unwrap(), module.function(AFFINE).unwrap()));
            let tender = watcher.handle().tender(&Point::new("ranks"));
            runtimes.push(Runtime::with_plan(device, &policy, tender, PLAN.parse().unwrap()).unwrap());
        }
        Self { runtimes, kernels, library, watcher, driver, fake }
    }

    /// The stand-in.
    pub(crate) fn stand_in(&self) -> &Fake {
        self.fake.as_ref().unwrap()
    }

    pub(crate) fn configure(&self, change: impl FnOnce(&mut Options)) {
        self.stand_in().configure(change);
    }

    pub(crate) fn end(self, leaves: bool) -> Result<(), String> {
        if !leaves {
            self.settle();
        }
        let Self { runtimes, kernels, library, watcher, driver, fake } = self;
        drop((runtimes, kernels, library));
        watcher.close(Watcher::CLOSE).map_err(|error| error.to_string())?;
        drop(driver);
        let Some(fake) = fake else { return Ok(()) };
        fake.clear_rules();
        fake.release();
        let start = Wall::now();
        let left = || {
            let live = fake.live();
            if V::MODULES_STAY { Live { modules: 0, ..live } } else { live }
        };
        while !leaves && left() != Live::default() {
            if start.elapsed() > Duration::from_secs(8) {
                return Err(format!("left behind: {:?}", left()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let violations = fake.violations();
        if violations.is_empty() { Ok(()) } else { Err(format!("misused: {violations:#?}")) }
    }
}

impl VendorRanks<Cuda> {
    /// The machine's own GPUs.
    ///
    /// # Errors
    ///
    /// There are not so many, or no library.
    pub(crate) fn gpus(world: usize) -> Result<Self, Error> {
        let driver = Cuda::load()?;
        let library = CollectiveLibrary::load(on_a_thread)?;
        let found = driver.devices().count();
        if found < world {
            return Err(Error::new(ErrorCode::NoDevice, [&"cuda", &format!("{found} of {world}")]));
        }
        Ok(Self::on(driver, library, world, None))
    }
}

impl<V: Vendor + CollectiveVendor> RanksRig for VendorRanks<V> {
    type Device = OpDevice<V>;

    fn runtimes(&self) -> &[Runtime<OpDevice<V>>] {
        &self.runtimes
    }

    fn library(&self) -> &CollectiveLibrary<V> {
        &self.library
    }

    fn run<F: Future>(&self, future: F) -> F::Output {
        block_on(future)
    }

    fn occupies(&self, rank: usize, _: Nanos) -> Function<V> {
        self.kernels[rank].0.clone()
    }

    fn affines(&self, rank: usize) -> Function<V> {
        self.kernels[rank].1.clone()
    }

    fn settle(&self) {
        for runtime in &self.runtimes {
            until("flights end", || runtime.counts().in_flight() == 0);
            assert_eq!(runtime.counts().leaked, 0, "{:?}", runtime.counts());
            runtime.device().health().unwrap();
        }
        if let Some(fake) = &self.fake {
            until("memory is given back", || fake.live().device_allocations == 0);
        }
    }
}
