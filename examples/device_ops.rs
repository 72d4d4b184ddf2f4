//! A chain of device operations, awaited on tokio: numbers from the host, two kernels, the numbers back, and a sum on the host.
//!
//! ```text
//! cargo run --release --example device_ops                       # on the simulated device
//! cargo run --release --example device_ops -- --device cuda      # on the first NVIDIA GPU
//! ```
//!
//! One generic function says what is to be done; the devices differ in their kernels alone: a closure here, a function of a text in PTX there. With
//! `--device cuda` it runs on the facade's default runtime. Without a driver it says so and ends with code 3.

#![allow(unsafe_code, reason = "what a kernel does with its arguments is a promise")]

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use wakeline::ops::port::{Launch, Shape};
use wakeline::ops::{DeviceOp, Runtime, StreamPoolRoundRobin};
use wakeline::sim::{RealTime, SimConfig, SimDevice, SimKernel};
use wakeline::tensor::{KernelArg, Tensor, launch};
use wakeline::{Error, Nanos, cuda};
use wakeline_std::{DeviceThread, Point, StdClock, Watcher};

/// A chain of device operations, awaited on tokio
#[derive(Debug, Parser)]
struct Args {
    /// Where it runs
    #[arg(long, value_enum, default_value_t = On::Sim)]
    device: On,
    /// How many numbers
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    numbers: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum On {
    /// The simulated device
    Sim,
    /// The first NVIDIA GPU
    Cuda,
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
            let _ = writeln!(io::stderr(), "device_ops: {error}");
            ExitCode::from(if error.code().is_no_device() { 3 } else { 1 })
        }
    }
}

/// Each number becomes three times itself plus one, then twice that plus five. For any device: its kernel multiplies and adds.
fn chain<D: Launch>(
    kernel: D::Kernel,
    numbers: Vec<u32>,
) -> impl DeviceOp<Device = D, Output = u64> + IntoFuture<Output = Result<u64, Error>, IntoFuture: Send> {
    let step = |kernel: D::Kernel, tensor: &Tensor<u32, D>, factor, addend| {
        let words = [tensor.len() as u64, factor, addend].map(KernelArg::word);
        let args: Vec<_> = [KernelArg::write(tensor)].into_iter().chain(words).collect();
        let shape = Shape::new([8, 1, 1], [128, 1, 1]);
        // SAFETY: the kernel takes numbers, how many there are, a factor and an addend, and writes those numbers only.
        unsafe { launch::<D>(kernel, shape, args) }
    };
    Tensor::from_host(numbers)
        // At submission, over names of what the device is still to make: all of this is enqueued at once.
        .then(move |tensor| {
            let first = step(kernel.clone(), &tensor, 3, 1);
            first.then(move |()| step(kernel, &tensor, 2, 5).map(move |()| tensor))
        })
        .then(|tensor| tensor.to_host())
        // On the host, when the numbers are there.
        .map_host(|numbers| numbers.into_iter().map(u64::from).sum())
}

fn wanted(numbers: u32) -> u64 {
    (0..numbers).map(|number| u64::from((number * 3 + 1) * 2 + 5)).sum()
}

/// Awaits the chain on tokio with one thread, and in eight tasks on tokio with two.
fn on_tokio<D: Launch>(
    device: &str,
    runtime: &Runtime<D>,
    kernel: &D::Kernel,
    numbers: u32,
) -> Result<String, Error> {
    let op = || chain::<D>(kernel.clone(), (0..numbers).collect());
    let one = tokio::runtime::Builder::new_current_thread().build().map_err(|error| system(&error))?;
    let start = Instant::now();
    // Bound for the time of the future: what is awaited in it runs there.
    let sum = one.block_on(runtime.scope(async { op().await }))?;
    let alone = start.elapsed();

    let several = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .map_err(|error| system(&error))?;
    let start = Instant::now();
    let tasks: Vec<_> = (0..8).map(|_| several.spawn(op().on(runtime))).collect();
    let mut same = true;
    for task in tasks {
        same &= several.block_on(task).map_err(|error| system(&error))?? == sum;
    }
    let together = start.elapsed();
    let is_right = if same && sum == wanted(numbers) { "as it should be" } else { "WRONG" };
    Ok(format!(
        "{device}: the sum over {numbers} numbers is {sum}, {is_right}\n\
         on one thread: {} us; eight tasks on two threads: {} us\n{:?}\n",
        alone.as_micros(),
        together.as_micros(),
        runtime.counts()
    ))
}

fn system(error: &dyn core::fmt::Display) -> Error {
    Error::new(wakeline::ErrorCode::Backend, [&"tokio", &"running", error])
}

fn on_sim(numbers: u32) -> Result<String, Error> {
    let clock = StdClock::new();
    let sleep: fn(Nanos) = |length| std::thread::sleep(Duration::from_nanos(length.as_nanos()));
    let device = SimDevice::new(RealTime::new(clock, sleep), SimConfig::default())?;
    let thread = DeviceThread::spawn(clock, device.clone())?;
    let watcher = Watcher::new()?;
    let tender = watcher.handle().tender(&Point::new("ops"));
    let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), tender)?;
    let kernel = SimKernel::new(Nanos::from_micros(20), |args| {
        let low = |word: u64| (word & u64::from(u32::MAX)).try_into().unwrap_or(0_u32);
        let (factor, addend) = (low(args.word(2)), low(args.word(3)));
        for number in args.bytes_mut(0).chunks_exact_mut(4) {
            let before = u32::from_ne_bytes([number[0], number[1], number[2], number[3]]);
            number.copy_from_slice(&before.wrapping_mul(factor).wrapping_add(addend).to_ne_bytes());
        }
    });
    let text = on_tokio("the simulated device", &runtime, &kernel, numbers)?;
    watcher.close(Watcher::CLOSE)?;
    drop(runtime);
    thread.stop()?;
    Ok(text)
}

fn on_cuda(numbers: u32) -> Result<String, Error> {
    // From here on operations that are awaited without a runtime run there.
    let runtime = wakeline::use_default_runtime()?;
    let module = runtime.device().ptx(cuda::kernels::PTX)?;
    let kernel = module.function(cuda::kernels::AFFINE)?;
    let sum = chain::<cuda::CudaDevice>(kernel.clone(), vec![1]).sync()?;
    let text = on_tokio("a GPU", &runtime, &kernel, numbers)?;
    Ok(format!("{text}without a runtime bound: {sum}\n"))
}
