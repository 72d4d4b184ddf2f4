//! An all-reduce over several GPUs, one rank each: awaited, and by the library's own calls.
//!
//! | arm | what it does |
//! |---|---|
//! | `spin` | the library's calls in one group, a store of a word behind each, and a spin on those: a communicator, streams and memory of its own |
//! | `await` | `Ranks::all_reduce`, awaited |
//!
//! Both sum as many numbers in place. They take turns, and ratios are paired by round.

use serde::Serialize;
use wakeline_core::{Clock, Error, Nanos};
use wakeline_cuda::{BareRanks, Cuda, CudaDevice, CudaRuntime, Nccl};
use wakeline_ops::port::Reduce;
use wakeline_ops::{CollectiveConfig, DeviceOp, Ranks, SingleStream};
use wakeline_std::{Point, StdClock, Watcher, block_on};
use wakeline_tensor::Tensor;

use crate::ops::{quantile, real};
use crate::{Interval, Paired, Usage};

/// How many GPUs there are at least.
pub const GPUS_LEAST: usize = 2;

/// How long the spin may take.
const SPIN_MAX: Nanos = Nanos::from_millis(60_000);

const ARMS: [&str; 2] = ["spin", "await"];

/// What an arm did.
#[derive(Clone, Debug, Serialize)]
pub struct Summed {
    /// `ranks`.
    pub bench: &'static str,
    /// The device and the driver.
    pub gpu: String,
    /// The release of the library, as it numbers them.
    pub library: u32,
    /// How many ranks there were.
    pub ranks: usize,
    /// How much each had.
    pub bytes: usize,
    /// `spin` or `await`.
    pub arm: &'static str,
    /// How many there were.
    pub rounds: usize,
    /// From before the call until all ranks are known to have ended.
    pub p50_ns: u64,
    /// The same.
    pub p99_ns: u64,
    /// By the spin, paired by round.
    pub ratio: Option<Interval>,
    /// CPU time of the process for one.
    pub cpu_ns: u64,
    /// By how long one took.
    pub cpu_share: f64,
}

/// All of these as ranks, both ways.
struct Bench {
    clock: StdClock,
    bare: BareRanks<Cuda>,
    ranks: Ranks<CudaDevice>,
    tensors: Vec<Tensor<f32, CudaDevice>>,
}

impl Bench {
    fn run(&mut self, arm: usize) -> Result<u64, Error> {
        let start = self.clock.now();
        if arm == 0 {
            let clock = self.clock;
            self.bare.all_reduce(|| clock.now().since(start) < SPIN_MAX)?;
        } else {
            let tensors = std::mem::take(&mut self.tensors);
            self.tensors = block_on(self.ranks.all_reduce(tensors, Reduce::Sum))?;
        }
        Ok(self.clock.now().since(start).as_nanos())
    }
}

/// Runs both arms so many times, of so many bytes each rank. `gpu` is what records call the devices.
///
/// # Errors
///
/// What driver, library or watcher say.
pub fn sums(
    gpu: &str,
    nccl: &Nccl,
    devices: Vec<CudaDevice>,
    bytes: usize,
    rounds: usize,
) -> Result<Vec<Summed>, Error> {
    let (watcher, world, numbers) = (Watcher::new()?, devices.len(), bytes / size_of::<f32>());
    let bare = BareRanks::join(nccl, devices.iter().map(|device| device.context().clone()), numbers)?;
    let runtime =
        |device| CudaRuntime::new(device, &SingleStream, watcher.handle().tender(&Point::new("ranks")));
    let runtimes: Vec<_> = devices.into_iter().map(runtime).collect::<Result<_, _>>()?;
    let ranks = block_on(Ranks::of(nccl, &runtimes, CollectiveConfig::default()))?;
    let zeros = |runtime| block_on(Tensor::<f32, CudaDevice>::zeros(numbers).on(runtime));
    let tensors = runtimes.iter().map(zeros).collect::<Result<_, _>>()?;
    let mut bench = Bench { clock: StdClock::new(), bare, ranks, tensors };
    // What is slow the first time: connections, kernels that are loaded.
    for arm in 0..ARMS.len() {
        bench.run(arm)?;
    }
    let (mut paired, mut cpu) = (Paired::new(ARMS.len()), [0_u64; ARMS.len()]);
    for _ in 0..rounds {
        paired.round(|arm| {
            let before = Usage::now();
            let took = bench.run(arm)?;
            cpu[arm] += Usage::now().since(before).process_cpu_ns;
            Ok::<_, Error>(took)
        })?;
    }
    drop((bench, runtimes));
    watcher.close(Watcher::CLOSE)?;
    let told = |(index, arm): (usize, &'static str)| {
        let mut costs: Vec<u64> = paired.costs(index).collect();
        costs.sort_unstable();
        let all: u64 = costs.iter().sum();
        Summed {
            bench: "ranks",
            gpu: gpu.to_owned(),
            library: nccl.version(),
            ranks: world,
            bytes,
            arm,
            rounds: paired.rounds(),
            p50_ns: quantile(&costs, 50),
            p99_ns: quantile(&costs, 99),
            ratio: paired.ratio(index, 0),
            cpu_ns: cpu[index] / paired.rounds().max(1) as u64,
            cpu_share: real(cpu[index]) / real(all.max(1)),
        }
    };
    Ok(ARMS.into_iter().enumerate().map(told).collect())
}
