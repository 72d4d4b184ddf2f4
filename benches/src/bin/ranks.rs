//! `ranks`: what awaiting an all-reduce adds to the library's own calls, over all GPUs of a machine, one rank each. JSON lines.
//!
//! See `wakeline_benches::ranks` for how it is measured.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use wakeline_benches::gpu::{Failure, Gpu, Words, finish};
use wakeline_benches::ranks::{GPUS_LEAST, sums};
use wakeline_core::{Error, ErrorCode};
use wakeline_cuda::{CudaDevice, Nccl};
use wakeline_std::{TimerSlack, on_a_thread};

const USAGE: &str = "usage: ranks [--driver FILE] [--library FILE] [--mib N] [--rounds N]
  --driver FILE   load this library in place of the system's driver
  --library FILE  load this library of collectives in place of the system's
  --mib N         how much memory each rank sums (default: 256)
  --rounds N      rounds (default: 50)
With fewer than two GPUs it says so and ends with code 3.";

const MIB_MAX: usize = 16 << 10;
const ROUNDS_MAX: usize = 100_000;

struct Args {
    driver: Option<PathBuf>,
    library: Option<PathBuf>,
    mib: usize,
    rounds: usize,
    help: bool,
}

fn parse(words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args { driver: None, library: None, mib: 256, rounds: 50, help: false };
    let mut words = Words::new(words);
    while let Some(word) = words.argument() {
        match word.as_str() {
            "--driver" => args.driver = Some(words.value()?.into()),
            "--library" => args.library = Some(words.value()?.into()),
            "--mib" => args.mib = words.number(&(1..=MIB_MAX))?,
            "--rounds" => args.rounds = words.number(&(1..=ROUNDS_MAX))?,
            "--help" | "-h" => args.help = true,
            _ => return Err(words.unknown()),
        }
    }
    Ok(args)
}

fn run(args: &Args) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    if args.help {
        return Ok(writeln!(out, "{USAGE}")?);
    }
    let gpu = Gpu::open(args.driver.as_deref())?;
    let found = gpu.cuda().devices().count();
    if found < GPUS_LEAST {
        let found = format!("{found} GPU, of {GPUS_LEAST} at least that make ranks");
        return Err(Failure::NoGpu(Error::new(ErrorCode::NoDevice, [&"cuda", &found])));
    }
    let nccl = match &args.library {
        Some(path) => Nccl::load_from(path, on_a_thread),
        None => Nccl::load(on_a_thread),
    }?;
    let devices = CudaDevice::all(gpu.cuda())?;
    for record in sums(gpu.name(), &nccl, devices, args.mib << 20, args.rounds)? {
        let line = serde_json::to_string(&record).map_err(std::io::Error::other)?;
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn main() -> ExitCode {
    // This thread's sleeps end in time.
    let _slack = TimerSlack::set(TimerSlack::LEAST);
    finish("ranks", parse(std::env::args().skip(1)).map_err(Failure::Usage).and_then(|args| run(&args)))
}
