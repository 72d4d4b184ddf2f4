//! `tensors`: what copies, typed launches and kernels from CUDA C cost on a GPU, beside the driver's own calls. JSON lines.
//!
//! Arms of a case take turns; ratios and differences are paired by round.
//!
//! | case | what is compared |
//! |---|---|
//! | `copy` | a pinned buffer of 256 MiB to the device and back, awaited: by the raw call and a spin on the word behind it |
//! | `launch` | 64 typed launches on tensors within one submission: by as many raw ones with the same arguments, and by these with their uses of memory ordered |
//! | `load` | a process that compiles a kernel, and one that finds it in the folder of the first |

// A kernel is bound to its signature, and raw calls are made.
#![allow(unsafe_code)]

use std::hint::spin_loop;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use serde::Serialize;
use wakeline::CudaTensor;
use wakeline_benches::gpu::{Failure, Gpu, finish};
use wakeline_benches::ops::quantile;
use wakeline_benches::{Interval, Paired};
use wakeline_core::{Clock, CompletionPort, Error, Nanos, Wake};
use wakeline_cuda::kernels::{SAXPY, SAXPY_PTX};
use wakeline_cuda::{CompileOptions, Compiler, CuStream, CudaDevice, CudaRuntime, Function, KernelCache};
use wakeline_ops::port::{At, Device, Memory, Priority, Promise};
use wakeline_ops::{DeviceOp, SingleStream, Storage, Submission, device_op};
use wakeline_std::{Point, StdClock, TimerSlack, Watcher, block_on};
use wakeline_tensor::{PinnedBuffer, kernel};

const USAGE: &str = "usage: tensors [--driver FILE] [--nvrtc FILE] [--rounds N] [CASE..]
  --driver     load this library in place of the system's driver
  --nvrtc      load this library in place of the system's run-time compiler
  --rounds N   rounds of each case (default: 20)
  CASE         copy, launch, load (default: all)
Without a GPU it says so and ends with code 3.";

/// How many bytes are copied.
const COPY_BYTES: usize = 256 << 20;

/// How many launches a submission has, and how many numbers each is of: the kernel is over before the next is enqueued.
const LAUNCHES: u32 = 64;
const NUMBERS: usize = 256;

/// How many processes load a kernel that is there.
const LOADS: usize = 5;

const SOURCE: &str = r#"
extern "C" __global__ void saxpy(float *z, float a, const float *x, const float *y, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        z[i] = a * x[i] + y[i];
    }
}
"#;

kernel! {
    /// `z = a * x + y`, of `n` numbers.
    struct Saxpy(out z: [f32], a: f32, in x: [f32], in y: [f32], n: u32)
    where n as usize <= z.len(), n as usize <= x.len(), n as usize <= y.len();
}

#[derive(Default)]
struct Args {
    rounds: usize,
    driver: Option<PathBuf>,
    nvrtc: Option<PathBuf>,
    /// Only load a kernel, with what is in this folder, and say how long it took.
    loads: Option<PathBuf>,
    cases: Vec<String>,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, Failure> {
    let mut args = Args { rounds: 20, ..Args::default() };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| usage(&format!("`{word}` wants a value")));
        match word.as_str() {
            "--driver" => args.driver = Some(value()?.into()),
            "--nvrtc" => args.nvrtc = Some(value()?.into()),
            "--load" => args.loads = Some(value()?.into()),
            "--rounds" => {
                let rounds = value()?.parse().ok().filter(|rounds| (2..=10_000).contains(rounds));
                args.rounds = rounds.ok_or_else(|| usage("`--rounds` wants a number from 2 to 10000"))?;
            }
            "copy" | "launch" | "load" => args.cases.push(word),
            _ => return Err(usage(&format!("unknown argument `{word}`"))),
        }
    }
    Ok(args)
}

fn usage(what: &str) -> Failure {
    Failure::Usage(format!("{what}\n{USAGE}"))
}

/// What an arm took.
#[derive(Serialize)]
struct Took {
    case: &'static str,
    gpu: String,
    arm: &'static str,
    rounds: usize,
    p50_ns: u64,
    p99_ns: u64,
    /// By the raw arm's, paired by round.
    ratio: Option<Interval>,
    /// For a copy, by the median.
    gb_per_s: Option<f64>,
}

/// What a process took to load a kernel.
#[derive(Serialize)]
struct Loaded {
    case: &'static str,
    gpu: String,
    /// Whether the folder had it.
    kept: bool,
    /// From the compiler's making to the kernel's name, the context being there.
    took_ns: u64,
}

fn print(line: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(line).map_err(std::io::Error::from)?;
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

struct Bench {
    gpu: String,
    device: CudaDevice,
    runtime: CudaRuntime,
    clock: StdClock,
    rounds: usize,
}

impl Bench {
    /// Runs arms in turns, and prints what each took by the first.
    fn arms<const N: usize>(
        &self,
        case: &'static str,
        bytes: Option<usize>,
        names: [&'static str; N],
        mut run: impl FnMut(usize) -> Result<Nanos, Error>,
    ) -> Result<(), Failure> {
        for arm in 0..N {
            run(arm)?;
        }
        let mut paired = Paired::new(N);
        for _ in 0..self.rounds {
            paired.round(|arm| Ok::<_, Error>(run(arm)?.as_nanos()))?;
        }
        for (arm, name) in names.into_iter().enumerate() {
            let mut costs: Vec<u64> = paired.costs(arm).collect();
            costs.sort_unstable();
            let at = |percent| quantile(&costs, percent);
            // Bytes a nanosecond are billions a second.
            #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
            let gb_per_s = bytes.map(|bytes| bytes as f64 / at(50) as f64);
            let (ratio, gpu) = (paired.ratio(arm, 0), self.gpu.clone());
            let (rounds, p50_ns, p99_ns) = (paired.rounds(), at(50), at(99));
            print(&Took { case, gpu, arm: name, rounds, p50_ns, p99_ns, ratio, gb_per_s })?;
        }
        Ok(())
    }

    fn copies(&self) -> Result<(), Failure> {
        let (device, clock) = (&self.device, &self.clock);
        let numbers = COPY_BYTES / size_of::<f32>();
        let stream = device.stream(Priority::Normal)?;
        let (pinned, buffer) = (device.pinned(COPY_BYTES)?, device.alloc(&stream, COPY_BYTES)?);
        let raw = |back: bool| {
            let start = clock.now();
            // SAFETY: all are of this device and as long as this; what is enqueued is waited for below, and nobody else has them.
            let promise = unsafe { Promise::new() };
            if back {
                device.download(&stream, At::from(&buffer), At::from(&pinned), COPY_BYTES, promise)?;
            } else {
                device.upload(&stream, At::from(&pinned), At::from(&buffer), COPY_BYTES, promise)?;
            }
            let point = device.armed_point(&stream)?;
            while point.poll() != Wake::Reached {
                spin_loop();
            }
            Ok(clock.now().since(start))
        };
        let mut ours: Option<(CudaTensor<f32>, PinnedBuffer<f32, CudaDevice>)> = Some((
            block_on(CudaTensor::<f32>::zeros(numbers).on(&self.runtime))?,
            PinnedBuffer::new(device, numbers)?,
        ));
        let mut awaited = |back: bool| {
            let Some((tensor, buffer)) = ours.take() else { return Err(gone()) };
            let start = clock.now();
            let used = if back {
                let buffer = block_on(tensor.fetch_into(buffer).on(&self.runtime))?;
                (tensor, buffer)
            } else {
                block_on(tensor.overwrite_from(buffer).on(&self.runtime))?
            };
            let took = clock.now().since(start);
            ours = Some(used);
            Ok(took)
        };
        let mut run = |arm: usize, back: bool| if arm == 0 { raw(back) } else { awaited(back) };
        let names = ["raw", "await"];
        self.arms("copy to the device", Some(COPY_BYTES), names, |arm| run(arm, false))?;
        self.arms("copy to the host", Some(COPY_BYTES), names, |arm| run(arm, true))?;
        // SAFETY: all that used it has been waited for.
        let promise = unsafe { Promise::new() };
        Ok(device.free(&stream, &buffer, promise)?)
    }

    fn launches(&self) -> Result<(), Failure> {
        let module = self.device.ptx(SAXPY_PTX)?;
        let function = module.function(SAXPY)?;
        // SAFETY: the kernel is of this device, takes these arguments, and writes no more than the first `n` numbers of `z`.
        let saxpy = unsafe { Saxpy::bind(&self.device, function.clone()) }?;
        let saxpy = Arc::new(saxpy);
        let made = |number: f32| block_on(CudaTensor::full(NUMBERS, number).on(&self.runtime));
        let (x, y) = (Arc::new(made(1.0)?), Arc::new(made(0.5)?));
        let mut z = Some(made(0.0)?);
        self.arms("launch", None, ["raw", "typed", "touched"], |arm| {
            let Some(tensor) = z.take() else { return Err(gone()) };
            let clock = self.clock;
            let (tensor, took) = if arm == 1 {
                let (saxpy, x, y) = (Arc::clone(&saxpy), Arc::clone(&x), Arc::clone(&y));
                block_on(TypedLaunches { saxpy, z: tensor, x, y, clock }.on(&self.runtime))?
            } else {
                let blocks = [&tensor, &*x, &*y].map(|it| Arc::clone(it.span().storage));
                let op = RawLaunches { function: function.clone(), blocks, ordered: arm == 2, clock };
                (tensor, block_on(op.on(&self.runtime))?)
            };
            z = Some(tensor);
            Ok(Nanos::from_nanos(took.as_nanos() / u64::from(LAUNCHES)))
        })
    }

    fn loads(args: &Args) -> Result<(), Failure> {
        let folder = std::env::temp_dir().join(format!("wakeline-tensors-{}", std::process::id()));
        let program = std::env::current_exe()?;
        let child = || {
            let mut child = Command::new(&program);
            child.arg("--load").arg(&folder);
            for (name, path) in [("--driver", &args.driver), ("--nvrtc", &args.nvrtc)] {
                if let Some(path) = path {
                    child.arg(name).arg(path);
                }
            }
            child.status()
        };
        let ended: std::io::Result<Vec<_>> = (0..=LOADS).map(|_| child()).collect();
        // What is left there harms nobody.
        let _ = std::fs::remove_dir_all(&folder);
        match ended?.into_iter().find(|status| !status.success()) {
            Some(status) => Err(Failure::Broken(format!("a process that loads a kernel ended so: {status}"))),
            None => Ok(()),
        }
    }

    fn load(&self, folder: &Path, nvrtc: Option<&Path>) -> Result<(), Failure> {
        let start = self.clock.now();
        let cache = KernelCache::at(folder)?;
        let compiler = nvrtc.map_or_else(Compiler::new, Compiler::at).cached(&cache);
        let module = self.device.compile(&compiler, SOURCE, &CompileOptions::new().name("saxpy.cu"))?;
        module.function("saxpy")?;
        let took_ns = self.clock.now().since(start).as_nanos();
        let kept = cache.stats().misses == 0;
        print(&Loaded { case: "load", gpu: self.gpu.clone(), kept, took_ns })
    }
}

/// Never: a round gives back what it takes, unless it fails, which ends all.
fn gone() -> Error {
    Error::new(
        wakeline_core::ErrorCode::Backend,
        [&"tensors", &"a round", &"it did not give back what it took"],
    )
}

/// Launches by the driver's own call.
struct RawLaunches {
    function: Function,
    blocks: [Arc<Storage<CudaDevice>>; 3],
    /// Whether uses of the memory are ordered, as those of the typed launcher are.
    ordered: bool,
    clock: StdClock,
}

impl DeviceOp for RawLaunches {
    type Device = CudaDevice;
    type Pending = Nanos;
    type Output = Nanos;

    fn execute(self, submission: &mut Submission<CudaDevice>) -> Result<Nanos, Error> {
        let Self { function, blocks, ordered, clock } = self;
        let [z, x, y] = [0, 1, 2].map(|at: usize| blocks[at].buffer().address());
        let numbers = u32::try_from(NUMBERS).unwrap_or(0);
        submission.room(LAUNCHES + 1)?;
        let launch = |stream: &CuStream| {
            // SAFETY: the stream is of the kernel's device; the kernel takes these arguments; the tensors live on, and nothing else uses them.
            unsafe { function.launch(stream.raw(), 1, 256, 0, [&z, &2.0_f32, &x, &y, &numbers]) }
        };
        let start = clock.now();
        if ordered {
            let [z, x, y] = &blocks;
            for _ in 0..LAUNCHES {
                submission.touch(&[z.write(), x.read(), y.read()], |_, stream| launch(stream))?;
            }
        } else {
            for _ in 0..LAUNCHES {
                launch(submission.stream().raw())?;
            }
        }
        Ok(clock.now().since(start))
    }

    fn finish(took: Nanos) -> Result<Nanos, Error> {
        Ok(took)
    }
}

device_op!([] RawLaunches where);

/// The same by the typed launcher.
struct TypedLaunches {
    saxpy: Arc<Saxpy<CudaDevice>>,
    z: CudaTensor<f32>,
    x: Arc<CudaTensor<f32>>,
    y: Arc<CudaTensor<f32>>,
    clock: StdClock,
}

impl DeviceOp for TypedLaunches {
    type Device = CudaDevice;
    type Pending = (CudaTensor<f32>, Nanos);
    type Output = (CudaTensor<f32>, Nanos);

    fn execute(self, submission: &mut Submission<CudaDevice>) -> Result<(CudaTensor<f32>, Nanos), Error> {
        let Self { saxpy, mut z, mut x, mut y, clock } = self;
        let numbers = u32::try_from(NUMBERS).unwrap_or(0);
        submission.room(LAUNCHES + 1)?;
        let start = clock.now();
        for _ in 0..LAUNCHES {
            (z, _, x, y, _) = saxpy.call(z, 2.0, x, y, numbers).execute(submission)?;
        }
        Ok((z, clock.now().since(start)))
    }

    fn finish(done: (CudaTensor<f32>, Nanos)) -> Result<(CudaTensor<f32>, Nanos), Error> {
        Ok(done)
    }
}

device_op!([] TypedLaunches where);

fn run(args: &Args) -> Result<(), Failure> {
    let gpu = Gpu::open(args.driver.as_deref())?;
    let device = CudaDevice::in_context(gpu.context()?, wakeline_cuda::DEVICE_BYTES_KEPT)?;
    let watcher = Watcher::new()?;
    let tender = watcher.handle().tender(&Point::new("tensors"));
    let runtime = CudaRuntime::new(device.clone(), &SingleStream, tender)?;
    let bench =
        Bench { gpu: gpu.name().to_owned(), device, runtime, clock: StdClock::new(), rounds: args.rounds };
    if let Some(folder) = &args.loads {
        return bench.load(folder, args.nvrtc.as_deref());
    }
    let wants = |case: &str| args.cases.is_empty() || args.cases.iter().any(|wanted| wanted == case);
    if wants("copy") {
        bench.copies()?;
    }
    if wants("launch") {
        bench.launches()?;
    }
    if wants("load") {
        Bench::loads(args)?;
    }
    drop(bench);
    Ok(watcher.close(Watcher::CLOSE)?)
}

fn main() -> ExitCode {
    // This thread's sleeps end in time.
    let _slack = TimerSlack::set(TimerSlack::LEAST);
    finish("tensors", parse(std::env::args().skip(1)).and_then(|args| run(&args)))
}
