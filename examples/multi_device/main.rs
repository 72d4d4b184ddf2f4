//! A batch of work spread over several devices, on tokio: what each of them got and did, and what becomes of the others where one faults.
//!
//! ```text
//! cargo run --release --example multi_device                                  # four simulated devices
//! cargo run --release --example multi_device -- --devices 8 --fault           # one of eight faults half way: its work is done by the others
//! cargo run --release --example multi_device -- --mixed --placement least     # half of them take thrice as long
//! cargo run --release --example multi_device -- --device cuda                 # all NVIDIA GPUs
//! ```
//!
//! Without a driver `--device cuda` says so and ends with code 3. On NVIDIA's GPUs a fault of one ends all that the process has on any.

mod device;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use device::Rig;
use wakeline::ops::port::{Launch, Peers};
use wakeline::ops::{ByKey, DeviceOp, InTurn, LeastBusy, Machine};
use wakeline::tensor::Tensor;
use wakeline::{Error, ErrorCode};

/// How many items each device has in flight, so that it always has something to do.
const AHEAD: usize = 4;

/// Numbers of an item.
const LEN: usize = 1_024;

/// How often an item may be made.
const TRIES: u32 = 3;

/// What became of the items, by the device that has done them.
struct Done {
    begun: Instant,
    /// When each was done.
    ends: Mutex<Vec<Vec<Duration>>>,
    /// When a device was made to fault.
    fault: Mutex<Option<Duration>>,
    next: AtomicU64,
    all_right: AtomicBool,
}

/// Does items until there are no more.
async fn work<D: Launch + Peers>(
    rig: Arc<Rig<D>>,
    machine: Machine<D>,
    done: Arc<Done>,
    args: Args,
) -> Result<(), Error> {
    loop {
        let item = done.next.fetch_add(1, Ordering::Relaxed);
        if item >= args.items {
            return Ok(());
        }
        if args.fault && item == args.items / 2 {
            *lock(&done.fault) = Some(done.begun.elapsed());
            rig.break_device(rig.machine.len() / 2);
        }
        let number = u32::try_from(item).unwrap_or(u32::MAX);
        let (mut on, maker) = (0, Arc::clone(&rig));
        // Made on whichever device it is placed on, and again where that one faults: an item brings all that it needs.
        let numbers = machine
            .retrying(TRIES, |site| {
                on = site.number();
                let kernels = maker.kernels(on);
                Tensor::full(LEN, number)
                    .then(move |tensor| kernels.scale(tensor))
                    .then(|tensor| tensor.to_host())
            })?
            .keyed(item % 64)
            .await?;
        if numbers != [number.wrapping_mul(3).wrapping_add(1); LEN] {
            done.all_right.store(false, Ordering::Relaxed);
        }
        if let Some(ends) = lock(&done.ends).get_mut(on) {
            ends.push(done.begun.elapsed());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// How many a second there were of these, from the one moment to the other.
fn rate(ends: &[Duration], from: Duration, to: Duration) -> f64 {
    let count = ends.iter().filter(|end| (from..to).contains(end)).count();
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    f64::from(count) / to.saturating_sub(from).as_secs_f64().max(1e-9)
}

fn multi_device<D: Launch + Peers>(rig: Rig<D>, args: &Args) -> Result<String, Error> {
    let machine = match args.placement {
        By::Turn => rig.machine.placed_by(InTurn::new()),
        By::Least => rig.machine.placed_by(LeastBusy::new()),
        By::Key => rig.machine.placed_by(ByKey),
    };
    let (devices, rig) = (machine.len(), Arc::new(rig));
    let done = Arc::new(Done {
        begun: Instant::now(),
        ends: Mutex::new(vec![Vec::new(); devices]),
        fault: Mutex::new(None),
        next: AtomicU64::new(0),
        all_right: AtomicBool::new(true),
    });
    let tokio = tokio::runtime::Builder::new_current_thread().build();
    let tokio = tokio.map_err(|error| system("starting", &error))?;
    let ran = tokio.block_on(async {
        let worker =
            |_| tokio::spawn(work(Arc::clone(&rig), machine.clone(), Arc::clone(&done), args.clone()));
        let workers: Vec<_> = (0..devices * AHEAD).map(worker).collect();
        for worker in workers {
            worker.await.map_err(|error| system("a task", &error))??;
        }
        Ok::<(), Error>(())
    });
    let took = done.begun.elapsed();
    let text = report(&machine, &rig, &done, took, args);
    drop(machine);
    if let Ok(rig) = Arc::try_unwrap(rig) {
        rig.close()?;
    }
    ran?;
    Ok(text)
}

/// What each device got and did.
fn report<D: Launch + Peers>(
    machine: &Machine<D>,
    rig: &Rig<D>,
    done: &Done,
    took: Duration,
    args: &Args,
) -> String {
    let is = if done.all_right.load(Ordering::Relaxed) { "all as they should be" } else { "some WRONG" };
    let ends = lock(&done.ends);
    let count = |ends: &Vec<Duration>| u32::try_from(ends.len()).unwrap_or(u32::MAX);
    let all: u32 = ends.iter().map(count).sum();
    let (devices, placed) = (machine.len(), args.placement.text());
    let mut lines = vec![format!("{all} items on {devices} {}, placed {placed}, {is}", rig.name)];
    for (site, ends) in machine.sites().iter().zip(&*ends) {
        let (number, items, rate) = (site.number(), ends.len(), rate(ends, Duration::ZERO, took));
        let share = 100.0 * f64::from(count(ends)) / f64::from(all.max(1));
        let fault =
            site.health().err().map_or_else(String::new, |error| format!(", until it faulted: {error}"));
        lines
            .push(format!("device {number:>2}: {items:>5} items, {share:5.1} %, {rate:7.0} a second{fault}"));
    }
    if let Some(fault) = *lock(&done.fault) {
        let others = machine.sites().iter().zip(&*ends).filter(|(site, _)| site.is_in());
        let others: Vec<Duration> = others.flat_map(|(_, ends)| ends.iter().copied()).collect();
        let (before, after) = (rate(&others, Duration::ZERO, fault), rate(&others, fault, took));
        lines.push(format!("the others: {before:.0} a second before the fault, {after:.0} after it"));
    }
    lines.join("\n") + "\n"
}

fn system(what: &str, error: &dyn core::fmt::Display) -> Error {
    Error::new(ErrorCode::Backend, [&"tokio", &what, error])
}

/// Spreads a batch of work over several devices
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Where it runs
    #[arg(long, value_enum, default_value_t = On::Sim)]
    device: On,
    /// How many devices; all that there are on CUDA, four simulated ones, where nothing is said
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    devices: Option<u32>,
    /// How many items
    #[arg(long, default_value_t = 800, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    items: u64,
    /// On which device an item runs
    #[arg(long, value_enum, default_value_t = By::Turn)]
    placement: By,
    /// The second half of the simulated devices takes thrice as long
    #[arg(long)]
    mixed: bool,
    /// Has one device fault half way
    #[arg(long)]
    fault: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum On {
    /// Simulated devices
    Sim,
    /// NVIDIA GPUs
    Cuda,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum By {
    /// On each in turn
    Turn,
    /// Where it is expected to end first
    Least,
    /// By its key, of which there are 64
    Key,
}

impl By {
    const fn text(self) -> &'static str {
        match self {
            Self::Turn => "in turn",
            Self::Least => "where they end first",
            Self::Key => "by key",
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let ran = match args.device {
        On::Sim => {
            device::simulated(args.devices.unwrap_or(4), args.mixed).and_then(|rig| multi_device(rig, &args))
        }
        On::Cuda => device::cuda(args.devices).and_then(|rig| multi_device(rig, &args)),
    };
    match ran {
        // A reader that is gone needs no panic.
        Ok(text) if io::stdout().write_all(text.as_bytes()).is_ok() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "multi_device: {error}");
            ExitCode::from(if error.code().is_no_device() { 3 } else { 1 })
        }
    }
}
