//! The devices: how each is opened, and what has to be closed behind it.

#![allow(unsafe_code, reason = "that foreign code keeps to a signature is a promise")]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use wakeline::cuda::{CompileOptions, Cuda, CudaDevice, Ordinal};
use wakeline::ops::port::Device;
use wakeline::ops::{Runtime, RuntimeConfig, StreamPoolRoundRobin};
use wakeline::sim::{RealTime, SimConfig, SimDevice};
use wakeline::{Error, Nanos, Settings};
use wakeline_std::{DeviceThread, Points, StdClock, Watcher};
use wakeline_tokio::TokioWatcher;

use crate::args::Args;
use crate::cpu::Meter;
use crate::metrics::About;
use crate::model::{self, Asleep, Matmul, OnDevice};

/// The simulated device, in real time.
pub type Sim = SimDevice<RealTime<StdClock, fn(Nanos)>>;

/// How many points may have statistics: there is one.
const POINTS_MAX: usize = 1;

/// What batches and windows are watched by.
#[derive(Debug)]
pub struct Watch {
    /// The way to the watcher for the tasks of this runtime of tokio's.
    pub tokio: TokioWatcher,
    /// What the waits did.
    pub points: Points,
    /// What tasks spent on them.
    pub meter: Arc<Meter>,
}

impl Watch {
    fn new(watcher: &Watcher) -> Result<Arc<Self>, Error> {
        let (tokio, points) = (TokioWatcher::new(watcher), Points::new(POINTS_MAX)?);
        Ok(Arc::new(Self { tokio, points, meter: Arc::default() }))
    }

    /// A runtime of this device, with a stream for each batch that may be in flight.
    fn runtime<D: Device>(&self, device: D, args: &Args) -> Result<Runtime<D>, Error> {
        let streams = StreamPoolRoundRobin::new(args.in_flight as usize)?;
        let tender = self.tokio.tender(&self.points.point("batch")?);
        Runtime::with_config(device, &streams, tender, RuntimeConfig::default().plan(args.plan()?))
    }
}

/// A model on a device that was opened.
pub struct Opened<M> {
    /// What computes.
    pub model: Arc<M>,
    /// What it is, for people.
    pub about: About,
    pub(crate) watch: Arc<Watch>,
    /// Stops its threads.
    pub(crate) close: Box<dyn FnOnce() -> Result<(), Error> + Send>,
}

impl<M> Opened<M> {
    fn new(
        (model, device): (M, String),
        plan: String,
        watch: Arc<Watch>,
        args: &Args,
        close: impl FnOnce() -> Result<(), Error> + Send + 'static,
    ) -> Self {
        let (batch_max, window_us) = (args.batch_max, args.window_us);
        let (queue_max, in_flight_max) = (args.queue_max, args.in_flight);
        let about = About { device, plan, batch_max, window_us, queue_max, in_flight_max };
        Self { model: Arc::new(model), about, watch, close: Box::new(close) }
    }
}

impl<M> fmt::Debug for Opened<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("about", &self.about).finish_non_exhaustive()
    }
}

/// The simulated device: its kernel is a closure, its time passes in a thread.
///
/// # Errors
///
/// The system refuses a thread, or the environment cannot be read.
pub async fn sim(args: &Args) -> Result<Opened<OnDevice<Sim>>, Error> {
    let clock = StdClock::new();
    let sleep: fn(Nanos) = |length| std::thread::sleep(Duration::from_nanos(length.as_nanos()));
    let device: Sim = SimDevice::new(RealTime::new(clock, sleep), SimConfig::default())?;
    let thread = DeviceThread::spawn(clock, device.clone())?;
    let matmul = Matmul::on_host(&device, args.step(), |c, a, b, m, k, n| {
        model::matmul(c, a, b, [m, k, n].map(|size| size as usize));
    })?;
    let watcher = Watcher::new()?;
    let watch = Watch::new(&watcher)?;
    let runtime = watch.runtime(device, args)?;
    let model = OnDevice::new(runtime, matmul, args.hung(), Arc::clone(&watch.meter)).await?;
    let name = format!("simulated device, {} \u{b5}s a batch", args.step_us);
    Ok(Opened::new((model, name), args.plan()?.to_string(), watch, args, move || {
        watcher.close(Watcher::CLOSE)?;
        thread.stop().map(drop)
    }))
}

/// The first NVIDIA GPU: its kernel is CUDA C, compiled by NVRTC, and kept on disk for the next start.
///
/// # Errors
///
/// There is no driver, no GPU or no compiler, or the environment cannot be read.
pub async fn cuda(args: &Args) -> Result<Opened<OnDevice<CudaDevice>>, Error> {
    let driver = Cuda::load()?;
    let name = driver.device(Ordinal(0))?.name()?;
    let device = CudaDevice::new(&driver, Ordinal(0))?;
    let compiler = wakeline::compiler(&Settings::from_env()?);
    let module = device.compile(&compiler, model::SOURCE, &CompileOptions::new().name("http_serve.cu"))?;
    // SAFETY: the kernel is of this device, takes these arguments, and touches no more than the `m`, `k` and `n` numbers that they are asked to have, on any number of
    // blocks and threads.
    let matmul = unsafe { Matmul::bind(&device, module.function("matmul")?) }?;
    let watcher = Watcher::new()?;
    let watch = Watch::new(&watcher)?;
    let runtime = watch.runtime(device, args)?;
    let model = OnDevice::new(runtime, matmul, args.hung(), Arc::clone(&watch.meter)).await?;
    let close = move || watcher.close(Watcher::CLOSE);
    Ok(Opened::new((model, name), args.plan()?.to_string(), watch, args, close))
}

/// No device; the watcher is there for the windows alone.
///
/// # Errors
///
/// The system refuses a thread.
pub fn sleep(args: &Args) -> Result<Opened<Asleep>, Error> {
    let watcher = Watcher::new()?;
    let watch = Watch::new(&watcher)?;
    let name = format!("no device: a thread sleeps {} \u{b5}s a batch", args.step_us);
    let close = move || watcher.close(Watcher::CLOSE);
    Ok(Opened::new((Asleep::new(args.step()), name), "thread::sleep".to_owned(), watch, args, close))
}
