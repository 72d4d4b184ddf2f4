//! Awaits the work of a cudarc stream on a tokio runtime, whose other tasks run meanwhile.
//!
//! Needs an NVIDIA GPU and its driver, which is loaded at run time. Without one it says so and ends with code 3.

#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cudarc_interop::Occupy;
use wakeline::WaitPlan;
use wakeline::cuda::{CuStream, Cuda, CudaContext, FromCudarc as _};
use wakeline_std::{Point, Watcher};
use wakeline_tokio::TokioWatcher;

/// Watch the word for up to 50 us at a time, ask the driver every millisecond; from the second round on sleep until shortly before the end.
const PLAN: &str =
    "flag:park_us=50,backstop_us=1000+predict:margin_us=150,min_sleep_us=200,max_sleep_us=20000,window=8";
const ROUNDS: u32 = 5;
/// How long each kernel takes.
const NANOS: u64 = 5_000_000;
/// How many numbers go to the device and back.
const NUMBERS: u32 = 1 << 16;

fn main() -> ExitCode {
    // First, since it says why there is no driver where cudarc would panic.
    let cuda = match Cuda::load() {
        Ok(cuda) => cuda,
        Err(error) if error.code().is_no_device() => {
            eprintln!("cudarc_interop: no CUDA device: {error}");
            return ExitCode::from(3);
        }
        Err(error) => return failed(&error),
    };
    match run(&cuda) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&*error),
    }
}

fn failed(error: &dyn Error) -> ExitCode {
    eprintln!("cudarc_interop: {error}");
    ExitCode::FAILURE
}

fn run(cuda: &Cuda) -> Result<(), Box<dyn Error>> {
    // What a program that uses cudarc has already.
    let device = cudarc::driver::CudaContext::new(0)?;
    let stream = device.new_stream()?;
    let kernel = Occupy::load(&device)?;
    let sent: Vec<u32> = (0..NUMBERS).collect();
    println!("{}, CUDA {}", device.name()?, cuda.version());

    // What makes its streams awaitable: two lines, kept for as long as the stream is.
    let context = CudaContext::from_cudarc(cuda, &stream)?;
    let awaitable = CuStream::from_cudarc(&context, &stream)?;
    println!("completion by {}", context.completion());

    let watcher = Watcher::new()?;
    let tokio = TokioWatcher::new(&watcher);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    let ticks = Arc::new(AtomicU64::new(0));
    let ticking = runtime.spawn(tick(Arc::clone(&ticks)));
    runtime.block_on(async {
        let (plan, point): (WaitPlan, _) = (PLAN.parse()?, Point::new("occupy"));
        for round in 1..=ROUNDS {
            let on_device = stream.clone_htod(&sent)?;
            kernel.launch(&stream, NANOS)?;
            let before = ticks.load(Ordering::Relaxed);
            let report = tokio.wait(awaitable.port()?, &plan, &point).await?;
            let meanwhile = ticks.load(Ordering::Relaxed) - before;
            // All of the stream's work is done: the copy back waits for nothing but itself.
            if stream.clone_dtoh(&on_device)? != sent {
                return Err("other numbers came back than were sent".into());
            }
            let (waited, asked) = (report.elapsed, report.queries);
            println!(
                "{round}: {waited} awaited, driver asked {asked} times; another task ran {meanwhile} times"
            );
        }
        Ok::<_, Box<dyn Error>>(())
    })?;
    ticking.abort();
    drop(runtime);
    watcher.close(Watcher::CLOSE)?;
    Ok(())
}

/// The rest of the program.
async fn tick(ticks: Arc<AtomicU64>) {
    loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        ticks.fetch_add(1, Ordering::Relaxed);
    }
}
