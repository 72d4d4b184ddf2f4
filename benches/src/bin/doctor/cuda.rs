//! What NVIDIA's driver says, and whether a store of a word lands.

use serde::Serialize;
use wakeline::Error;
use wakeline::cuda::{Context, ContextConfig, Cuda, CudaRuntime, Device};

use crate::ask::within_limit;
use crate::report::Coded;

/// What there is.
#[derive(Debug, Serialize)]
pub(crate) struct Driver {
    /// The CUDA version that it speaks; `None` where it cannot be loaded.
    pub(crate) version: Option<String>,
    /// What it lacks of what is used.
    pub(crate) lacks: Vec<String>,
    pub(crate) devices: Vec<Gpu>,
    /// Why it cannot be loaded, or did not answer.
    pub(crate) error: Option<Coded>,
    /// What `wakeline::default_runtime()` gives; `None` where that was not tried, or fails.
    pub(crate) default_runtime: Option<String>,
    /// Why it fails.
    pub(crate) default_runtime_error: Option<Coded>,
}

/// One device.
#[derive(Debug, Serialize)]
pub(crate) struct Gpu {
    pub(crate) name: Option<String>,
    pub(crate) compute_capability: Option<String>,
    pub(crate) memory_bytes: Option<u64>,
    /// Whether driver and device say that streams can store words.
    pub(crate) stores_words: Option<bool>,
    /// Who stores them, as tried out; `None` where it was not.
    pub(crate) completion: Option<String>,
    /// Why not as asked for, or why the trial failed.
    pub(crate) warnings: Vec<Coded>,
}

impl Driver {
    /// Asks the driver. Where `tries`, a context is made on each device and the store of a word tried out.
    pub(crate) fn ask(tries: bool) -> Self {
        within_limit("the driver", move || Self::asked(tries), Self::failed)
    }

    fn asked(tries: bool) -> Self {
        let cuda = match Cuda::load() {
            Ok(cuda) => cuda,
            Err(error) => return Self::failed(Coded::from(&error)),
        };
        let lacks = cuda.caps().complement().iter_names().map(|(name, _)| name.to_lowercase()).collect();
        let devices = cuda
            .devices()
            .map(|device| device.map_or_else(|error| Gpu::unknown(&error), |device| Gpu::of(&device, tries)));
        let devices = devices.collect();
        let made = tries.then(wakeline::default_runtime).transpose();
        let (default_runtime, default_runtime_error) = match &made {
            Ok(made) => (made.as_ref().map(described), None),
            Err(error) => (None, Some(Coded::from(error))),
        };
        let version = Some(cuda.version().to_string());
        Self { version, lacks, devices, error: None, default_runtime, default_runtime_error }
    }

    /// No driver, and why.
    fn failed(error: Coded) -> Self {
        Self {
            version: None,
            lacks: Vec::new(),
            devices: Vec::new(),
            error: Some(error),
            default_runtime: None,
            default_runtime_error: None,
        }
    }
}

/// What a runtime runs on.
fn described(runtime: &CudaRuntime) -> String {
    let context = runtime.device().context();
    let (path, pools) = (context.completion(), "memory in the order of streams");
    format!("device 0, its primary context; completion by {path}; {pools}; a watcher of its own")
}

impl Gpu {
    fn of(device: &Device, tries: bool) -> Self {
        let (completion, warnings) = if tries { tried(device) } else { (None, Vec::new()) };
        let capability = device.compute_capability().ok();
        Self {
            name: device.name().ok(),
            compute_capability: capability.map(|(major, minor)| format!("{major}.{minor}")),
            memory_bytes: device.total_memory().ok(),
            stores_words: device.stores_words().ok(),
            completion,
            warnings,
        }
    }

    fn unknown(error: &Error) -> Self {
        Self {
            name: None,
            compute_capability: None,
            memory_bytes: None,
            stores_words: None,
            completion: None,
            warnings: vec![Coded::from(error)],
        }
    }
}

/// Who stores words in a context of the device's, which is closed again.
fn tried(device: &Device) -> (Option<String>, Vec<Coded>) {
    match Context::primary(device.cuda(), device.ordinal(), &ContextConfig::default()) {
        Ok(context) => {
            let warnings = context.warnings().iter().map(Coded::from).collect();
            (Some(context.completion().to_string()), warnings)
        }
        Err(error) => (None, vec![Coded::from(&error)]),
    }
}
