//! The runtime of device 0 that a program need not make: made when it is first asked for, and kept until the process ends.
//!
//! This is the one place of wakeline with such a value of the whole process. Nothing uses it unasked: a program calls
//! [`default_runtime`] for it, or [`use_default_runtime`] to have operations find it where no other is bound.

use core::any::Any;
use std::sync::OnceLock;

use wakeline_core::{Error, WaitPlan};
use wakeline_cuda::{ContextConfig, Cuda, CudaDevice, CudaDeviceConfig, CudaRuntime, Ordinal};
use wakeline_ops::{PLAN, Runtime, StreamPoolRoundRobin};
use wakeline_std::{Point, Watcher};

use crate::settings::Settings;

/// The runtime, and what it needs to live.
struct Default {
    runtime: CudaRuntime,
    /// Sees flights to their ends. Its threads sleep while there are none, and end with the process.
    _watcher: Watcher,
}

/// The default runtime: of CUDA device 0 in its primary context, with the streams of [`StreamPoolRoundRobin::default`], whose points are seen to their ends
/// by a [`Watcher`] of its own.
///
/// The first call makes it: reads the environment by [`Settings::from_env`] (`WAKELINE_PLAN`, of bands the plan of one row, in place of
/// [`PLAN`]; `WAKELINE_STRICT` refuses words that are stored in another way than by the stream), loads the driver, starts two threads. That takes tenths
/// of a second; another thread that calls meanwhile waits for it. Later calls cost a clone of a handle. What came of the first call stands: a failure, too.
///
/// ```
/// use wakeline::ops::{DeviceOp, value};
/// let runtime = match wakeline::default_runtime() {
///     Ok(runtime) => runtime,
///     Err(error) => return Ok(println!("skipped: {error}")),
/// };
/// assert_eq!(value(20).map(|n| n + 1).on(&runtime).sync()?, 21);
/// # Ok::<(), wakeline::Error>(())
/// ```
///
/// # Errors
///
/// - [`InvalidSetting`](crate::ErrorCode::InvalidSetting): the environment cannot be read.
/// - As [`Cuda::load`], [`CudaDevice::with`] and [`Watcher::new`].
pub fn default_runtime() -> Result<CudaRuntime, Error> {
    static DEFAULT: OnceLock<Result<Default, Error>> = OnceLock::new();
    match DEFAULT.get_or_init(make) {
        Ok(default) => Ok(default.runtime.clone()),
        Err(error) => Err(error.clone()),
    }
}

/// The same; and from here on operations on a CUDA device that are awaited or run where no runtime is bound use it, on every thread.
///
/// For binaries: what a library awaits without a runtime is up to the program that it is in.
///
/// # Errors
///
/// As [`default_runtime`]; nothing has changed then.
pub fn use_default_runtime() -> Result<CudaRuntime, Error> {
    let runtime = default_runtime()?;
    wakeline_ops::fall_back_on(fill);
    Ok(runtime)
}

/// Gives the default runtime to whoever has room for one of its kind.
fn fill(slot: &mut dyn Any) {
    if let Some(slot) = slot.downcast_mut::<Option<CudaRuntime>>() {
        *slot = default_runtime().ok();
    }
}

fn make() -> Result<Default, Error> {
    let settings = Settings::from_env()?;
    let plan: WaitPlan =
        settings.bands.as_ref().map_or_else(|| PLAN.parse(), |bands| Ok(*bands.choose(1)))?;
    let context = ContextConfig { strictness: settings.strictness, ..ContextConfig::default() };
    let config = CudaDeviceConfig { context, ..CudaDeviceConfig::default() };
    let device = CudaDevice::with(&Cuda::load()?, Ordinal(0), &config)?;
    let watcher = Watcher::new()?;
    let tender = watcher.handle().tender(&Point::new("default runtime"));
    let runtime = Runtime::with_plan(device, &StreamPoolRoundRobin::default(), tender, plan)?;
    Ok(Default { runtime, _watcher: watcher })
}
