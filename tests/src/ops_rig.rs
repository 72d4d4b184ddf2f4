//! A device of operations to test on: the simulated one, CUDA and HIP on the stand-in for their drivers, CUDA on a GPU.
//!
//! Tests are generic: one function runs on all of them, in real time, with a watcher that sees flights to their ends.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "for tests")]
#![allow(unsafe_code, reason = "it launches kernels")]

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant as Wall};

use libtest_mimic::Trial;
use wakeline_core::{Error, Nanos};
use wakeline_cuda::Cuda;
use wakeline_fake_driver::{Fake, thread_id};
use wakeline_hip::Hip;
use wakeline_mapped::work::{AFFINE, OCCUPY, TRAP};
use wakeline_mapped::{DEVICE_BYTES_KEPT, Function, OpDevice};
use wakeline_ops::port::{self, Shape};
use wakeline_ops::{DeviceOp, Runtime, StreamPoolRoundRobin, Submission, device_op};
use wakeline_sim::{MemoryUse, SimConfig, SimKernel};
use wakeline_std::{Point, Watcher, block_on};
use wakeline_tensor::{KernelArg, Launch, Tensor, launch};

use crate::kernels::{Affine, Saxpy};
use crate::rig::Rig;
use crate::suite::{Devices, Suite};
use crate::vendor::Vendor;
use crate::watching::{RealDevice, Stage};

/// How points are waited for: a question to the driver every 2 ms.
pub const PLAN: &str = "flag:park_us=50,backstop_us=2000+trust";

/// How many streams the rig's runtime has.
pub const STREAMS: usize = 3;

/// How long anything may take that ends.
pub const LIMIT: Duration = Duration::from_secs(20);

/// How many operations a stream of the stand-in takes: an entry is several of them (its work, waits for others, events, the store of the word), and
/// `ENTRIES_MAX` entries are to fit.
const QUEUE_DEPTH: usize = 8_192;

/// One thread.
pub const ONE: Shape = Shape::new([1; 3], [1; 3]);

/// A device of operations, a watcher and a runtime.
pub trait OpsRig {
    /// The device.
    type Device: port::Launch + port::Gates + port::Pools;

    /// The runtime, of [`STREAMS`] streams in turn.
    fn runtime(&self) -> &Runtime<Self::Device>;

    /// A kernel that takes so long. Its argument is that length.
    fn occupies(&self, length: Nanos) -> <Self::Device as port::Launch>::Kernel;

    /// A kernel that multiplies numbers and adds to them: the numbers, how many, the factor, the addend.
    fn affines(&self) -> <Self::Device as port::Launch>::Kernel;

    /// A typed kernel for `z = a * x + y`.
    fn saxpy(&self) -> Saxpy<Self::Device>;

    /// A typed kernel that multiplies and adds.
    fn typed_affine(&self) -> Affine<Self::Device>;

    /// Has the device fault.
    fn break_device(&self);

    /// How long until the driver tells of a fault, at most.
    fn fault_delay(&self) -> Duration;

    /// Whether it does so while a stream waits for a word.
    fn tells_of_faults_behind_gates(&self) -> bool {
        true
    }

    /// How many buffers of the device are in use, and whether pinned memory is (1) or none is (0); `None` where nobody counts.
    fn in_use(&self) -> Option<(u64, u64)>;

    /// How many driver calls this thread has made; `None` where nobody counts.
    fn calls_here(&self) -> Option<usize>;

    /// An operation that occupies its stream for so long.
    fn occupy(&self, length: Nanos) -> Launch<Self::Device> {
        let args = vec![KernelArg::word(length.as_nanos())];
        // SAFETY: the kernel takes a number and touches no memory.
        unsafe { launch(self.occupies(length), ONE, args) }
    }

    /// The same, and it keeps an owner meanwhile.
    fn busy<T: Send + 'static>(&self, length: Nanos, owner: T) -> Busy<Self::Device, T> {
        Busy(self.occupy(length), owner)
    }

    /// An operation that changes the numbers of a tensor.
    fn affine(&self, tensor: &Tensor<u32, Self::Device>, factor: u32, addend: u32) -> Launch<Self::Device> {
        affine(self.affines(), tensor, factor, addend)
    }

    /// Waits until nothing is in flight.
    fn settle(&self) {
        until("flights end", || self.runtime().counts().in_flight() == 0);
    }

    /// Waits until nothing is in flight and nothing in use.
    fn settle_clean(&self) {
        self.settle();
        until("all is given back", || self.in_use().is_none_or(|used| used == (0, 0)));
        assert_eq!(self.runtime().counts().leaked, 0, "{:?}", self.runtime().counts());
    }
}

/// Changes the numbers of a tensor, by a kernel that does that.
pub fn affine<D: port::Launch>(
    kernel: D::Kernel,
    tensor: &Tensor<u32, D>,
    factor: u32,
    addend: u32,
) -> Launch<D> {
    let words = [tensor.len() as u64, factor.into(), addend.into()].map(KernelArg::word);
    let args: Vec<_> = [KernelArg::write(tensor)].into_iter().chain(words).collect();
    let shape = Shape::new([4, 1, 1], [64, 1, 1]);
    // SAFETY: the kernel takes an address, a count and two numbers, and writes so many numbers there.
    unsafe { launch(kernel, shape, args) }
}

/// Waits until something holds, for at most [`LIMIT`].
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Wall::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Polls once, waking nobody.
pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls once, which submits it, and then waits on this thread; on a busy machine it may have ended by the poll.
pub fn poll_then_wait<F: Future + Unpin>(mut future: F) -> F::Output {
    match poll_once(&mut future) {
        Poll::Ready(output) => output,
        Poll::Pending => block_on(future),
    }
}

/// Work that keeps an owner; see [`OpsRig::busy`].
pub struct Busy<D: port::Launch, T>(Launch<D>, T);

impl<D: port::Launch, T: Send + 'static> DeviceOp for Busy<D, T> {
    type Device = D;
    type Pending = ();
    type Output = ();

    fn execute(self, submission: &mut Submission<D>) -> Result<(), Error> {
        submission.retain(self.1);
        self.0.execute(submission)
    }

    fn finish((): ()) -> Result<(), Error> {
        Ok(())
    }
}

device_op!([D, T] Busy<D, T> where D: port::Launch, T: Send + 'static);

impl<D: port::Launch, T> std::fmt::Debug for Busy<D, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Busy").field(&self.0).finish_non_exhaustive()
    }
}

/// A kernel of the simulated device that multiplies numbers and adds to them.
pub(crate) fn sim_affine() -> SimKernel {
    SimKernel::new(Nanos::from_micros(5), |args| {
        let low = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap();
        let (count, factor, addend) = (args.word(1), low(args.word(2)), low(args.word(3)));
        let bytes = args.bytes_mut(0);
        assert_eq!(bytes.len() as u64, count * 4);
        for number in bytes.chunks_exact_mut(4) {
            let before = u32::from_ne_bytes((&*number).try_into().unwrap());
            number.copy_from_slice(&before.wrapping_mul(factor).wrapping_add(addend).to_ne_bytes());
        }
    })
}

/// The simulated device in real time.
#[derive(Debug)]
pub struct SimRig {
    stage: Stage,
    runtime: Runtime<RealDevice>,
    watcher: Watcher,
}

impl SimRig {
    fn new() -> Self {
        let stage = Stage::new(SimConfig { copy_ns: 10_000, ..SimConfig::default() }).unwrap();
        let watcher = Watcher::new().unwrap();
        let runtime = runtime(stage.device.clone(), &watcher).unwrap();
        Self { stage, runtime, watcher }
    }

    fn end(self, leaves: bool) {
        self.settle();
        assert_eq!(self.stage.device.misuses(), []);
        if !leaves {
            assert_eq!(self.runtime.counts().leaked, 0, "{:?}", self.runtime.counts());
            until("all is given back", || self.stage.device.memory_use() == MemoryUse::default());
        }
        self.watcher.close(Watcher::CLOSE).unwrap();
    }
}

fn runtime<D: port::Device>(device: D, watcher: &Watcher) -> Result<Runtime<D>, Error>
where
    D::Point: 'static,
{
    let tender = watcher.handle().tender(&Point::new("ops"));
    Runtime::with_plan(device, &StreamPoolRoundRobin::new(STREAMS)?, tender, PLAN.parse()?)
}

impl OpsRig for SimRig {
    type Device = RealDevice;

    fn runtime(&self) -> &Runtime<RealDevice> {
        &self.runtime
    }

    fn occupies(&self, length: Nanos) -> SimKernel {
        SimKernel::new(length, |_| {})
    }

    fn affines(&self) -> SimKernel {
        sim_affine()
    }

    fn saxpy(&self) -> Saxpy<RealDevice> {
        let code = |z: &mut [f32], a: f32, x: &[f32], y: &[f32], n: u32| {
            let numbers = z.iter_mut().zip(x.iter().zip(y)).take(n as usize);
            numbers.for_each(|(z, (x, y))| *z = a.mul_add(*x, *y));
        };
        Saxpy::on_host(&self.stage.device, Nanos::from_micros(5), code).unwrap()
    }

    fn typed_affine(&self) -> Affine<RealDevice> {
        let low = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap();
        let code = move |numbers: &mut [u32], count: u64, factor: u64, addend: u64| {
            let numbers = numbers.iter_mut().take(usize::try_from(count).unwrap());
            numbers.for_each(|number| *number = number.wrapping_mul(low(factor)).wrapping_add(low(addend)));
        };
        Affine::on_host(&self.stage.device, Nanos::from_micros(5), code).unwrap()
    }

    fn break_device(&self) {
        self.stage.device.inject_fault();
    }

    fn fault_delay(&self) -> Duration {
        Duration::ZERO
    }

    fn in_use(&self) -> Option<(u64, u64)> {
        let used = self.stage.device.memory_use();
        Some((used.buffers as u64, u64::from(used.pinned > 0)))
    }

    fn calls_here(&self) -> Option<usize> {
        None
    }
}

/// A CUDA device.
pub type CudaRig = VendorRig<Cuda>;

/// A vendor's device, on the stand-in or on a GPU.
#[derive(Debug)]
pub struct VendorRig<D: Vendor> {
    runtime: Runtime<OpDevice<D>>,
    watcher: Watcher,
    occupy: Function<D>,
    affine: Function<D>,
    trap: Function<D>,
    device: OpDevice<D>,
    rig: Rig<D>,
}

impl<D: Vendor> VendorRig<D> {
    fn new(rig: Rig<D>) -> Self {
        let device = OpDevice::in_context(rig.context().clone(), DEVICE_BYTES_KEPT).unwrap();
        let module = D::kernels(device.context()).unwrap();
        let function = |name| module.function(name).unwrap();
        let watcher = Watcher::new().unwrap();
        let runtime = runtime(device.clone(), &watcher).unwrap();
        Self {
            runtime,
            watcher,
            occupy: function(OCCUPY),
            affine: function(AFFINE),
            trap: function(TRAP),
            device,
            rig,
        }
    }

    /// The device.
    pub const fn device(&self) -> &OpDevice<D> {
        &self.device
    }

    /// The driver that it is on, and more.
    pub const fn rig(&self) -> &Rig<D> {
        &self.rig
    }

    /// The stand-in, in a test that runs on it alone.
    pub fn fake(&self) -> &Fake {
        self.rig.stand_in()
    }

    /// Another runtime of the same device, with the same watcher, on so many streams.
    pub fn another(&self, streams: usize) -> Runtime<OpDevice<D>> {
        self.runtime_of(self.device.clone(), streams, PLAN)
    }

    /// A runtime of this device, with the rig's watcher, on so many streams, whose points are waited for by this plan.
    pub fn runtime_of(&self, device: OpDevice<D>, streams: usize, plan: &str) -> Runtime<OpDevice<D>> {
        let tender = self.watcher.handle().tender(&Point::new("another"));
        let policy = StreamPoolRoundRobin::new(streams).unwrap();
        Runtime::with_plan(device, &policy, tender, plan.parse().unwrap()).unwrap()
    }

    fn end(self, leaves: bool) -> Result<(), String> {
        self.settle();
        if !leaves {
            assert_eq!(self.runtime.counts().leaked, 0, "{:?}", self.runtime.counts());
        }
        let Self { runtime, watcher, occupy, affine, trap, device, rig } = self;
        drop((runtime, occupy, affine, trap, device));
        watcher.close(Watcher::CLOSE).map_err(|error| error.to_string())?;
        rig.end(leaves)
    }
}

impl<D: Vendor> OpsRig for VendorRig<D> {
    type Device = OpDevice<D>;

    fn runtime(&self) -> &Runtime<OpDevice<D>> {
        &self.runtime
    }

    fn occupies(&self, _: Nanos) -> Function<D> {
        self.occupy.clone()
    }

    fn affines(&self) -> Function<D> {
        self.affine.clone()
    }

    fn saxpy(&self) -> Saxpy<OpDevice<D>> {
        let kernel = D::saxpy(self.device.context(), self.rig.is_fake().then(|| self.fake().path()));
        // SAFETY: the kernel is of the device, takes these, and writes the first `n` numbers of `z` only, on any grid and block.
        unsafe { Saxpy::bind(&self.device, kernel) }.unwrap()
    }

    fn typed_affine(&self) -> Affine<OpDevice<D>> {
        // SAFETY: the kernel is of the device, takes these, and writes the first `count` numbers only, on any grid and block.
        unsafe { Affine::bind(&self.device, self.affine.clone()) }.unwrap()
    }

    fn break_device(&self) {
        // Of another priority than those that tests keep busy, so that it is not behind one of them in a queue of the device.
        let stream = self.device.context().stream_with_priority(-5).unwrap();
        // SAFETY: the stream is of the module's context; the kernel takes nothing and writes nowhere that anything is.
        unsafe { self.trap.launch(stream.raw(), 1, 1, 0, []) }.unwrap();
    }

    fn fault_delay(&self) -> Duration {
        self.rig.fault_delay()
    }

    fn tells_of_faults_behind_gates(&self) -> bool {
        self.rig.is_fake()
    }

    fn in_use(&self) -> Option<(u64, u64)> {
        let live = self.rig.is_fake().then(|| self.fake().live())?;
        let pinned = self.device.context().pinned();
        Some((live.device_allocations, u64::from(pinned.bytes > pinned.kept_bytes)))
    }

    fn calls_here(&self) -> Option<usize> {
        let log = self.rig.is_fake().then(|| self.fake().log())?;
        Some(log.iter().filter(|call| call.thread == thread_id()).count())
    }
}

/// A test.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// Its function's name.
    pub name: &'static str,
    /// On the simulated device, where it runs there.
    pub sim: Option<fn(&SimRig)>,
    /// On CUDA.
    pub cuda: fn(&CudaRig),
    /// On HIP, where it runs there.
    pub hip: Option<fn(&VendorRig<Hip>)>,
    /// Whether it runs on a GPU too, and not on the stand-in alone.
    pub gpu: bool,
    /// Whether it may leave something behind; on a GPU in a process of its own.
    pub leaves: bool,
    /// Whether it takes so long that it is run where it is asked for.
    pub long: bool,
}

/// A rig whose device has graphs.
pub trait GraphRig: OpsRig<Device: port::Graphs> {}

impl<R: OpsRig<Device: port::Graphs>> GraphRig for R {}

/// Lists functions as tests: `device_tests![Everywhere: one, two; Fake: three]`.
///
/// | | runs on |
/// |---|---|
/// | `Everywhere` | the simulated device, the stand-in for both vendors, a GPU; generic over [`OpsRig`] |
/// | `EverywhereLeaving` | the same, and it may leave something behind |
/// | `Graphs`, `GraphsLeaving` | the same two, of a device with graphs; generic over [`GraphRig`] |
/// | `Vendors`, `VendorsLeaving` | the stand-in for both vendors, a GPU; generic over [`Vendor`] |
/// | `Fakes`, `FakesLeaving` | the stand-in for both vendors alone: it makes the driver fail, or looks into it |
/// | `FakesLong` | the same, leaving something behind, where they are asked for: `--ignored` |
/// | `Cuda`, `CudaLeaving` | CUDA on the stand-in, a GPU |
/// | `Fake`, `FakeLeaving` | CUDA on the stand-in alone |
#[macro_export]
macro_rules! device_tests {
    ($($on:ident: $($name:ident),+ $(,)?);+ $(;)?) => {
        pub(crate) const TESTS: &[$crate::ops_rig::Test] = &[$($($crate::device_tests!(@ $on $name),)+)+];
    };
    (@ Everywhere $name:ident) => { $crate::device_tests!(@test $name, Some($name), Some($name), true, false) };
    (@ EverywhereLeaving $name:ident) => { $crate::device_tests!(@test $name, Some($name), Some($name), true, true) };
    (@ Graphs $name:ident) => { $crate::device_tests!(@test $name, Some($name), Some($name), true, false) };
    (@ GraphsLeaving $name:ident) => { $crate::device_tests!(@test $name, Some($name), Some($name), true, true) };
    (@ Vendors $name:ident) => { $crate::device_tests!(@test $name, None, Some($name), true, false) };
    (@ VendorsLeaving $name:ident) => { $crate::device_tests!(@test $name, None, Some($name), true, true) };
    (@ Fakes $name:ident) => { $crate::device_tests!(@test $name, None, Some($name), false, false) };
    (@ FakesLeaving $name:ident) => { $crate::device_tests!(@test $name, None, Some($name), false, true) };
    (@ FakesLong $name:ident) => { $crate::device_tests!(@test $name, None, Some($name), false, true, true) };
    (@ Cuda $name:ident) => { $crate::device_tests!(@test $name, None, None, true, false) };
    (@ CudaLeaving $name:ident) => { $crate::device_tests!(@test $name, None, None, true, true) };
    (@ Fake $name:ident) => { $crate::device_tests!(@test $name, None, None, false, false) };
    (@ FakeLeaving $name:ident) => { $crate::device_tests!(@test $name, None, None, false, true) };
    (@test $name:ident, $sim:expr, $hip:expr, $gpu:literal, $leaves:literal) => {
        $crate::device_tests!(@test $name, $sim, $hip, $gpu, $leaves, false)
    };
    (@test $name:ident, $sim:expr, $hip:expr, $gpu:literal, $leaves:literal, $long:literal) => {
        $crate::ops_rig::Test {
            name: stringify!($name),
            sim: $sim,
            cuda: $name,
            hip: $hip,
            gpu: $gpu,
            leaves: $leaves,
            long: $long,
        }
    };
}

/// Runs the tests of these groups as the arguments say; does not return.
pub fn run(groups: &[(&'static str, &'static [Test])]) -> ! {
    let mut suite = Suite::from_args();
    let mut devices = Devices::new("CUDA device", Cuda::load().err().map(|error| error.to_string()));
    for (group, tests) in groups {
        for test in *tests {
            let Test { name, sim, cuda, hip, gpu, leaves, long } = *test;
            if let Some(sim) = sim {
                let trial = Trial::test(format!("sim::{group}::{name}"), move || {
                    let rig = SimRig::new();
                    sim(&rig);
                    rig.end(leaves);
                    Ok(())
                });
                suite.add(trial, leaves);
            }
            suite.add(on_stand_in(group, name, cuda, leaves).with_ignored_flag(long), leaves);
            if let Some(hip) = hip {
                suite.add(on_stand_in(group, name, hip, leaves).with_ignored_flag(long), leaves);
            }
            if gpu {
                suite.add_on(&mut devices, format!("gpu::{group}::{name}"), leaves, move || {
                    let rig = CudaRig::new(Rig::gpu().map_err(|error| error.to_string())?);
                    cuda(&rig);
                    Ok(rig.end(leaves)?)
                });
            }
        }
    }
    suite.run([devices])
}

fn on_stand_in<D: Vendor>(group: &str, name: &str, run: fn(&VendorRig<D>), leaves: bool) -> Trial {
    Trial::test(format!("{}::{group}::{name}", D::ON.0), move || {
        let rig = VendorRig::new(Rig::fake(|options| options.queue_depth = QUEUE_DEPTH));
        run(&rig);
        Ok(rig.end(leaves)?)
    })
}
