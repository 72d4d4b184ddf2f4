//! Awaits work of a CUDA stream, and prints what the wait did.
//!
//! ```text
//! cargo run --release --example cuda_wait -- [PLAN] [MICROSECONDS]
//! ```
//!
//! Needs an NVIDIA GPU and its driver, which is loaded at run time; no toolkit. Without one it says so and ends with code 3.

#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::process::ExitCode;

use wakeline::cuda::Cuda;
use wakeline::cuda::kernels::Kernels;
use wakeline::{Error, Nanos, WaitPlan};
use wakeline_std::{Point, Watcher, block_on};

/// Watch the word for up to 50 us at a time, ask the driver every millisecond, and end on the driver's word alone.
const PLAN: &str = "flag:park_us=50,backstop_us=1000";
const MICROSECONDS: u64 = 5_000;
/// The longest that a kernel may take here: ten seconds.
const MICROSECONDS_MAX: u64 = 10_000_000;

fn main() -> ExitCode {
    let (code, text) = match run() {
        Ok(text) => (0, text),
        Err(Failure::Usage(text)) => (2, text),
        Err(Failure::Wait(error)) if error.code().is_no_device() => (3, format!("no CUDA device: {error}")),
        Err(Failure::Wait(error)) => (1, error.to_string()),
    };
    // Where even that cannot be written, the exit code tells.
    let _ =
        if code == 0 { write!(io::stdout(), "{text}") } else { writeln!(io::stderr(), "cuda_wait: {text}") };
    ExitCode::from(code)
}

enum Failure {
    Usage(String),
    Wait(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Wait(error)
    }
}

fn run() -> Result<String, Failure> {
    let mut arguments = std::env::args().skip(1);
    let plan = arguments.next().unwrap_or_else(|| PLAN.to_owned());
    let plan: WaitPlan = plan.parse().map_err(|error: Error| Failure::Usage(error.to_string()))?;
    let length = arguments.next().map_or(Ok(MICROSECONDS), |text| match text.parse() {
        Ok(us) if us <= MICROSECONDS_MAX => Ok(us),
        _ => {
            Err(Failure::Usage(format!("`{text}` is no number of microseconds from 0 to {MICROSECONDS_MAX}")))
        }
    })?;
    if let Some(more) = arguments.next() {
        return Err(Failure::Usage(format!("what is `{more}`? Usage: cuda_wait [PLAN] [MICROSECONDS]")));
    }

    let cuda = Cuda::load()?;
    let context = cuda.context(0)?;
    let stream = context.stream()?;
    Kernels::load(&context)?.occupy(&stream, Nanos::from_micros(length))?;

    // What a program with a stream of its own does: a watcher for all of its waits, a point that learns, and an await.
    let watcher = Watcher::new()?;
    let point = Point::new("kernel");
    let report = block_on(watcher.wait(stream.port()?, &plan, &point))?;

    let device = cuda.devices().next().transpose()?;
    let name = device.map_or_else(|| Ok(String::new()), |device| device.name())?;
    watcher.close(Watcher::CLOSE)?;
    Ok(format!(
        "{name}, CUDA {}, completion by {}\n{plan}\n{report:#?}\n",
        cuda.version(),
        context.completion()
    ))
}
