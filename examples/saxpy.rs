//! A kernel of one's own on tensors: `z = a * x + y`, in tiles of `z`, checked on the host.
//!
//! ```text
//! cargo run --release --example saxpy                       # on the simulated device, where the kernel is a closure
//! cargo run --release --example saxpy -- --device cuda      # on the first NVIDIA GPU, where it is CUDA C
//! ```
//!
//! The signature is written once; each call is checked against it by the compiler. With `--device cuda` the source is compiled by NVRTC, which is loaded by its
//! name (or by `WAKELINE_NVRTC`), and what comes of that is kept for the next run; without NVRTC a text in PTX does. Without a driver it says so and ends
//! with code 3.

#![allow(unsafe_code, reason = "that foreign code keeps to a signature is a promise")]

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use wakeline::cuda::{CompileOptions, CudaDevice, Module, kernels};
use wakeline::ops::port::Launch;
use wakeline::ops::{DeviceOp, Runtime, StreamPoolRoundRobin};
use wakeline::sim::{RealTime, SimConfig, SimDevice};
use wakeline::tensor::{IntoPartition, Tensor, kernel};
use wakeline::{Error, ErrorCode, Nanos, Settings};
use wakeline_std::{DeviceThread, Point, StdClock, Watcher, block_on};

kernel! {
    /// `z = a * x + y`, of `n` numbers.
    struct Saxpy(out z: [f32], a: f32, in x: [f32], in y: [f32], n: u32)
    where n as usize <= z.len(), n as usize <= x.len(), n as usize <= y.len();
}

/// The same in CUDA C, for any number of blocks and threads.
const SOURCE: &str = r#"
extern "C" __global__ void saxpy(float *z, float a, const float *x, const float *y, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        z[i] = a * x[i] + y[i];
    }
}
"#;

/// How many numbers a tile has: a block of the kernel for each.
const TILE: usize = 256;

/// z = 2 * x + y, on a device
#[derive(Debug, Parser)]
struct Args {
    /// Where it runs
    #[arg(long, value_enum, default_value_t = On::Sim)]
    device: On,
    /// How many numbers
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    numbers: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum On {
    /// The simulated device
    Sim,
    /// The first NVIDIA GPU
    Cuda,
}

/// On any device: zeros, ones, a launch that writes `z` in place, and a look at the result.
async fn run<D: Launch>(saxpy: &Saxpy<D>, numbers: u32) -> Result<bool, Error> {
    let len = numbers as usize;
    let x = Tensor::<f32, D>::ones(len).await?;
    let y = Tensor::full(len, 0.5).await?;
    let mut z = Tensor::zeros(len).await?;
    saxpy.call((&mut z).partition([TILE])?, 2.0, &x, &y, numbers).await?;
    // Given away and shared it is an operation as any, which goes on with what it gives back.
    let twice = saxpy.call(z, 2.0, x, y, numbers).then(|(z, ..)| z.to_host()).await?;
    Ok(twice == vec![2.5; len])
}

fn main() -> ExitCode {
    let args = Args::parse();
    let ran = match args.device {
        On::Sim => on_sim(args.numbers),
        On::Cuda => on_cuda(args.numbers),
    };
    match ran {
        Ok(text) => {
            // A reader that is gone needs no panic.
            let written = io::stdout().write_all(text.as_bytes());
            if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "saxpy: {error}");
            ExitCode::from(if error.code().is_no_device() { 3 } else { 1 })
        }
    }
}

fn told(device: &str, numbers: u32, is_right: bool, took: Duration) -> String {
    let is_right = if is_right { "as they should be" } else { "WRONG" };
    format!("{device}: {numbers} numbers, {is_right}, in {} us\n", took.as_micros())
}

fn on_sim(numbers: u32) -> Result<String, Error> {
    let clock = StdClock::new();
    let sleep: fn(Nanos) = |length| std::thread::sleep(Duration::from_nanos(length.as_nanos()));
    let device = SimDevice::new(RealTime::new(clock, sleep), SimConfig::default())?;
    let thread = DeviceThread::spawn(clock, device.clone())?;
    let watcher = Watcher::new()?;
    let tender = watcher.handle().tender(&Point::new("saxpy"));
    let runtime = Runtime::new(device.clone(), &StreamPoolRoundRobin::default(), tender)?;
    // Safe code over slices, so that nothing has to be promised.
    let saxpy = Saxpy::on_host(&device, Nanos::from_micros(20), |z, a, x, y, n| {
        let numbers = z.iter_mut().zip(x.iter().zip(y)).take(n as usize);
        numbers.for_each(|(z, (x, y))| *z = a * x + y);
    })?;
    let start = Instant::now();
    let is_right = block_on(runtime.scope(run(&saxpy, numbers)))?;
    let text = told("the simulated device", numbers, is_right, start.elapsed());
    watcher.close(Watcher::CLOSE)?;
    drop((saxpy, runtime));
    thread.stop()?;
    Ok(text)
}

fn on_cuda(numbers: u32) -> Result<String, Error> {
    let runtime = wakeline::default_runtime()?;
    let device = runtime.device();
    let start = Instant::now();
    let (module, by) = module(device)?;
    let loaded = start.elapsed();
    // SAFETY: the kernel is of this device, takes these arguments, and writes no more than the first `n` numbers of `z`, on any number of blocks and threads.
    let saxpy = unsafe { Saxpy::bind(device, module.function(kernels::SAXPY)?) }?;
    let start = Instant::now();
    let is_right = block_on(runtime.scope(run(&saxpy, numbers)))?;
    let text = told("a GPU", numbers, is_right, start.elapsed());
    Ok(format!("{text}the kernel is {by}, loaded in {} us\n", loaded.as_micros()))
}

/// The kernel's module, and how it was come by.
fn module(device: &CudaDevice) -> Result<(Module, &'static str), Error> {
    let compiler = wakeline::compiler(&Settings::from_env()?);
    match device.compile(&compiler, SOURCE, &CompileOptions::new().name("saxpy.cu")) {
        Ok(module) => Ok((module, "from CUDA C")),
        // Compiled by hand, for where there is no compiler.
        Err(error) if error.code() == ErrorCode::CompilerMissing => {
            Ok((device.ptx(kernels::SAXPY_PTX)?, "from PTX, for there is no NVRTC"))
        }
        Err(error) => Err(error),
    }
}
