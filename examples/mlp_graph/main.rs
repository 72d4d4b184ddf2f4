//! The forward pass of a perceptron with two layers, recorded once as a graph and launched with changing inputs, beside the same pass operation by operation; awaited on tokio, and checked
//! on the host.
//!
//! ```text
//! cargo run --release --example mlp_graph                       # on the simulated device, where kernels are closures
//! cargo run --release --example mlp_graph -- --device cuda      # on the first NVIDIA GPU
//! cargo run --release --example mlp_graph -- --svg graph.svg    # and a drawing of the graph
//! ```
//!
//! | file | what |
//! |---|---|
//! | `main.rs` | the devices, the two forms, what they took |
//! | `mlp.rs` | the layers: kernels, weights, the pass, the pass on the host |
//! | `cublas.rs` | matrix products by cuBLAS, which is loaded by its name |
//!
//! On a GPU the kernels are CUDA C, compiled by NVRTC, which is loaded by its name (or by `WAKELINE_NVRTC`); and the pass is run once more with the products of cuBLAS, where that is found. Without a
//! driver it says so and ends with code 3.

#![allow(
    unsafe_code,
    reason = "that foreign code keeps to a signature is a promise, and so is a call of another library"
)]

mod cublas;
mod mlp;

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use wakeline::cuda::{CompileOptions, CudaDevice};
use wakeline::ops::port::{Graphs, Priority};
use wakeline::ops::{DeviceOp, Runtime, StreamPoolRoundRobin};
use wakeline::sim::{RealTime, SimConfig, SimDevice};
use wakeline::tensor::LaunchConfig;
use wakeline::{Error, Nanos, Settings};
use wakeline_std::{DeviceThread, Point, StdClock, Watcher};
use wakeline_tokio::TokioWatcher;

use cublas::Cublas;
use mlp::{Bias, Layers, Matmul, Products, SOURCE, Sizes, TILE, Tiled};

/// A forward pass as a graph, beside operation by operation
#[derive(Debug, Parser)]
struct Args {
    /// Where it runs
    #[arg(long, value_enum, default_value_t = On::Sim)]
    device: On,
    /// How many passes of each form
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    passes: u32,
    /// How large the layers are; small on the simulated device and large on a GPU, where it is not said
    #[arg(long, value_enum)]
    size: Option<Size>,
    /// Draw the graph into this file
    #[arg(long)]
    svg: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum On {
    /// The simulated device
    Sim,
    /// The first NVIDIA GPU
    Cuda,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Size {
    /// 16 rows of 32, 48 and 16 numbers
    Small,
    /// 64 rows of 1024, 2048 and 512 numbers
    Large,
}

impl Size {
    const fn sizes(self) -> Sizes {
        match self {
            Self::Small => Sizes { rows: 16, inputs: 32, hidden: 48, outputs: 16 },
            Self::Large => Sizes { rows: 64, inputs: 1_024, hidden: 2_048, outputs: 512 },
        }
    }
}

/// As `f32` sums of so many products differ by their order.
const TOLERANCE: f32 = 1e-3;

/// Runs both forms on any device, with these products; what there is to tell.
async fn run<D: Graphs, P: Products<D>>(
    runtime: &Runtime<D>,
    (products, bias): (P, &Bias<D>),
    sizes: Sizes,
    args: &Args,
) -> Result<String, Error> {
    let name = products.name();
    let mut layers = Layers::new(sizes, products, bias.clone()).await?;
    let mut state = layers.state().await?;
    let (mut eager, mut launched) = (Duration::ZERO, Duration::ZERO);
    // The first of each kind learns how long it takes, and loads what it needs.
    state = layers.forward(state).await?;
    for pass in 0..args.passes {
        state.input = state.input.overwrite(sizes.batch(pass)).await?;
        let start = Instant::now();
        state = layers.forward(state).await?;
        eager += start.elapsed();
        layers.check(pass, &state.output.to_host().await?, TOLERANCE)?;
    }
    let mut graph = layers.forward(state).graph_on(&runtime.stream(Priority::Normal)?)?;
    // What the pass gives are the names of what the launches read and write.
    let Some(mut state) = graph.take_output() else { return Ok(String::new()) };
    graph.launch().await?;
    for pass in 0..args.passes {
        state.input = state.input.overwrite(sizes.batch(pass)).await?;
        let start = Instant::now();
        graph.launch().await?;
        launched += start.elapsed();
        layers.check(pass, &state.output.to_host().await?, TOLERANCE)?;
    }
    if let Some(file) = &args.svg
        && let Err(error) = fs::write(file, graph.svg())
    {
        let _ = writeln!(io::stderr(), "mlp_graph: {} cannot be written: {error}", file.display());
    }
    let each = |all: Duration| all.as_micros() / u128::from(args.passes);
    Ok(format!(
        "products by {name}: {} passes as they should be; {} nodes; operation by operation {} us each, as a graph {} us\n",
        args.passes * 2,
        graph.nodes().len(),
        each(eager),
        each(launched),
    ))
}

fn main() -> ExitCode {
    let args = Args::parse();
    let ran = match args.device {
        On::Sim => on_sim(&args),
        On::Cuda => on_cuda(&args),
    };
    match ran {
        Ok(text) => {
            // A reader that is gone needs no panic.
            let written = io::stdout().write_all(text.as_bytes());
            if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "mlp_graph: {error}");
            ExitCode::from(if error.code().is_no_device() { 3 } else { 1 })
        }
    }
}

fn tokio() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_current_thread().build().map_err(|error| {
        Error::new(wakeline::ErrorCode::Backend, [&"tokio", &"a runtime", &error]).with_source(error)
    })
}

fn on_sim(args: &Args) -> Result<String, Error> {
    let clock = StdClock::new();
    let sleep: fn(Nanos) = |length| std::thread::sleep(Duration::from_nanos(length.as_nanos()));
    let device = SimDevice::new(RealTime::new(clock, sleep), SimConfig::default())?;
    let thread = DeviceThread::spawn(clock, device.clone())?;
    let watcher = Watcher::new()?;
    let tender = TokioWatcher::new(&watcher).tender(&Point::new("mlp_graph"));
    let runtime = Runtime::new(device.clone(), &StreamPoolRoundRobin::default(), tender)?;
    let sizes = args.size.unwrap_or(Size::Small).sizes();
    let matmul = Matmul::on_host(&device, Nanos::from_micros(40), |c, a, b, m, k, n| {
        mlp::matmul(c, a, b, [m, k, n].map(|size| size as usize));
    })?;
    let bias = Bias::on_host(&device, Nanos::from_micros(10), |y, bias, rows, columns, relu| {
        mlp::add_bias(y, bias, [rows, columns].map(|size| size as usize), relu != 0);
    })?;
    let text = tokio()?.block_on(runtime.scope(run(&runtime, (Tiled(matmul), &bias), sizes, args)))?;
    watcher.close(Watcher::CLOSE)?;
    drop((bias, runtime));
    thread.stop()?;
    Ok(format!("the simulated device: {text}"))
}

fn on_cuda(args: &Args) -> Result<String, Error> {
    let runtime = wakeline::default_runtime()?;
    let device = runtime.device();
    let sizes = args.size.unwrap_or(Size::Large).sizes();
    let compiler = wakeline::compiler(&Settings::from_env()?);
    let module = device.compile(&compiler, SOURCE, &CompileOptions::new().name("mlp_graph.cu"))?;
    // SAFETY: the kernel is of this device, takes these arguments, and writes no more than the rows and columns of the first, on any number of blocks of up to as many threads.
    let matmul = unsafe { Matmul::bind(device, module.function("matmul")?) }?;
    // SAFETY: as above.
    let bias = unsafe { Bias::bind(device, module.function("add_bias")?) }?;
    // SAFETY: as above; and one block computes a tile by as many threads as that has numbers.
    let tiled = Tiled(unsafe { matmul.with(LaunchConfig::new().threads([TILE * TILE, 1, 1])) });
    let tokio = tokio()?;
    let ours = tokio.block_on(runtime.scope(run(&runtime, (tiled, &bias), sizes, args)))?;
    let theirs = match Cublas::load(device) {
        Ok(cublas) => tokio.block_on(runtime.scope(run(&runtime, (cublas, &bias), sizes, args)))?,
        Err(why) => format!("no products by cuBLAS: {why}\n"),
    };
    Ok(format!("a GPU: {ours}a GPU: {theirs}"))
}

/// The device that cuBLAS is for.
type Gpu = CudaDevice;
