//! A pipeline of device operations: batches are loaded, changed and stored over several streams at a time, on tokio, until they are done or ctrl-c.
//!
//! ```text
//! cargo run --release --example pipeline                       # on the simulated device
//! cargo run --release --example pipeline -- --device cuda      # on the first NVIDIA GPU
//! ```
//!
//! It draws what ran when, one row a stream, and tells where: open the file in a browser. Without a driver `--device cuda` says so and ends with code 3.

mod device;
mod timeline;

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Parser, ValueEnum};
use device::Machine;
use timeline::Timeline;
use wakeline::ops::port::{Gates, Launch};
use wakeline::ops::{DeviceOp, GateOp, Shared, gate, zip};
use wakeline::tensor::{FromHost, Tensor};
use wakeline::{Error, ErrorCode, Nanos};

/// How many batches are enqueued ahead of the one whose result the host writes.
const AHEAD: usize = 2;

/// How long the device may wait for the host.
const HOST_MS_MAX: u64 = 2_000;

/// Numbers of a batch, and of the table that all batches share.
const LEN: u32 = 1_024;

type Numbers = Vec<u32>;
type Table<D> = Shared<FromHost<u32, D>>;

/// One batch: its numbers are loaded beside a copy of the table, both are scaled at a time, and both are stored once the host has room for them.
fn batch<D: Launch + Gates>(
    (machine, timeline): (&Machine<D>, &Timeline),
    (table, room): (&Table<D>, GateOp<D>),
    number: u32,
) -> impl DeviceOp<Device = D, Output = (Numbers, Numbers)> + use<D> {
    let load = Tensor::from_host((number..number + LEN).collect());
    let copy = table.clone().then(|table| Tensor::full(LEN as usize, 0).then(move |to| table.copy_to(to)));
    let (kernels, spans, stores) = (machine.kernels.clone(), timeline.clone(), timeline.clone());
    let scale = move |tensor| spans.span("scale", number, kernels.scale(tensor, number + 1));
    let store = move |tensor: Tensor<u32, D>| stores.span("store", number, tensor.to_host());
    zip!(timeline.span("load", number, load), timeline.span("copy", number, copy))
        .then(move |(batch, copy)| zip!(scale(batch), scale(copy)))
        .then(move |scaled| room.map(move |()| scaled))
        .then(move |(batch, copy)| zip!(store(batch), store(copy)))
}

/// Runs so many batches, [`AHEAD`] of them enqueued ahead; how many came back, and whether all were right.
async fn run<D: Launch + Gates>(
    machine: &Machine<D>,
    timeline: &Timeline,
    batches: u32,
    stop: Arc<AtomicBool>,
) -> Result<(u32, bool), Error> {
    let table = Tensor::from_host((0..LEN).collect()).shared(); // loaded by the first batch that is submitted
    let (mut next, mut done, mut right) = (0..batches, 0, true);
    let mut ahead = VecDeque::new();
    loop {
        while ahead.len() <= AHEAD
            && !stop.load(Ordering::Relaxed)
            && let Some(number) = next.next()
        {
            let (room, opened) = gate(Nanos::from_millis(HOST_MS_MAX))?;
            let op = batch((machine, timeline), (&table, opened), number);
            ahead.push_back((number, room, tokio::spawn(op.on(&machine.runtime))));
        }
        let Some((number, room, task)) = ahead.pop_front() else { return Ok((done, right)) };
        room.open()?; // a store, and the device copies: it has nothing to be told that it does not know
        let (numbers, table) = task.await.map_err(|error| system("a task", &error))??;
        right &= timeline.on_host("write", number, || is_right(number, &numbers, &table));
        done += 1;
    }
}

fn is_right(number: u32, numbers: &[u32], table: &[u32]) -> bool {
    let scaled =
        |first: u32| (first..first + LEN).map(|before| before.wrapping_mul(number + 1).wrapping_add(1));
    numbers.iter().copied().eq(scaled(number)) && table.iter().copied().eq(scaled(0))
}

fn pipeline<D: Launch + Gates>(machine: Machine<D>, args: &Args) -> Result<String, Error> {
    let (timeline, stop) = (Timeline::new(), Arc::new(AtomicBool::new(false)));
    // One thread: it submits batches in their order, and so none waits behind the gate of a later one.
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let tokio = tokio.map_err(|error| system("starting", &error))?;
    let stopped = Arc::clone(&stop);
    tokio.spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stopped.store(true, Ordering::Relaxed);
        }
    });
    let ran = tokio.block_on(run(&machine, &timeline, args.batches, Arc::clone(&stop)));
    let (name, counts) = (machine.name, machine.runtime.counts());
    machine.close()?;
    let (done, right) = ran?;
    std::fs::write(&args.svg, timeline.svg()).map_err(|error| system("writing the timeline", &error))?;
    let how = if stop.load(Ordering::Relaxed) { " until it was stopped" } else { "" };
    let is = if right { "as they should be" } else { "WRONG" };
    let (overlap, svg) = (timeline.overlap(), args.svg.display());
    Ok(format!("{done} batches on {name}{how}, {is}\n{overlap}\n{counts:?}\ntimeline: {svg}\n"))
}

fn system(what: &str, error: &dyn core::fmt::Display) -> Error {
    Error::new(ErrorCode::Backend, [&"tokio", &what, error])
}

/// Loads, changes and stores batches over several streams
#[derive(Debug, Parser)]
struct Args {
    /// Where it runs
    #[arg(long, value_enum, default_value_t = On::Sim)]
    device: On,
    /// How many batches
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batches: u32,
    /// Where the timeline is drawn
    #[arg(long, default_value_os_t = std::env::temp_dir().join("pipeline.svg"))]
    svg: PathBuf,
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
        On::Sim => device::simulated().and_then(|machine| pipeline(machine, &args)),
        On::Cuda => device::cuda().and_then(|machine| pipeline(machine, &args)),
    };
    match ran {
        // A reader that is gone needs no panic.
        Ok(text) if io::stdout().write_all(text.as_bytes()).is_ok() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "pipeline: {error}");
            ExitCode::from(if error.code().is_no_device() { 3 } else { 1 })
        }
    }
}
