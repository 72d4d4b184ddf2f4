//! What AMD's HIP library says, and whether a store of a word lands.

use serde::Serialize;
use wakeline::Error;
use wakeline::hip::{Caps, Context, ContextConfig, Device, Hip as Loaded};

use crate::ask::within_limit;
use crate::report::Coded;

/// What there is.
#[derive(Debug, Serialize)]
pub(crate) struct Hip {
    /// The HIP version that the library is of; `None` where it cannot be loaded.
    pub(crate) version: Option<String>,
    /// The name by which it was found.
    pub(crate) library: Option<String>,
    /// What it lacks of what is used.
    pub(crate) lacks: Vec<String>,
    pub(crate) devices: Vec<Gpu>,
    /// Why it cannot be loaded, or did not answer.
    pub(crate) error: Option<Coded>,
}

/// One device.
#[derive(Debug, Serialize)]
pub(crate) struct Gpu {
    pub(crate) name: Option<String>,
    pub(crate) arch: Option<String>,
    pub(crate) memory_bytes: Option<u64>,
    /// Who stores words, as tried out; `None` where it was not.
    pub(crate) completion: Option<String>,
    /// Why not as asked for, or why the trial failed.
    pub(crate) warnings: Vec<Coded>,
}

impl Hip {
    /// Asks the library. Where `tries`, the store of a word is tried out on each device.
    pub(crate) fn ask(tries: bool) -> Self {
        within_limit("the library", move || Self::asked(tries), Self::failed)
    }

    fn asked(tries: bool) -> Self {
        let hip = match Loaded::load() {
            Ok(hip) => hip,
            Err(error) => return Self::failed(Coded::from(&error)),
        };
        let lacks = lacks(hip.caps());
        let devices = hip
            .devices()
            .map(|device| device.map_or_else(|error| Gpu::unknown(&error), |device| Gpu::of(&device, tries)));
        Self {
            version: Some(hip.version().to_string()),
            library: Some(hip.library().to_owned()),
            lacks,
            devices: devices.collect(),
            error: None,
        }
    }

    /// No library, and why.
    fn failed(error: Coded) -> Self {
        Self { version: None, library: None, lacks: Vec::new(), devices: Vec::new(), error: Some(error) }
    }
}

fn lacks(caps: Caps) -> Vec<String> {
    caps.complement().iter_names().map(|(name, _)| name.to_lowercase()).collect()
}

impl Gpu {
    fn of(device: &Device, tries: bool) -> Self {
        let (completion, warnings) = if tries { tried(device) } else { (None, Vec::new()) };
        Self {
            name: device.name().ok(),
            arch: device.arch().ok().map(|arch| arch.to_string()),
            memory_bytes: device.total_memory().ok(),
            completion,
            warnings,
        }
    }

    fn unknown(error: &Error) -> Self {
        let warnings = vec![Coded::from(error)];
        Self { name: None, arch: None, memory_bytes: None, completion: None, warnings }
    }
}

/// Who stores words in a context of the device's, which is closed again.
fn tried(device: &Device) -> (Option<String>, Vec<Coded>) {
    match Context::primary(device.hip(), device.ordinal(), &ContextConfig::default()) {
        Ok(context) => {
            let warnings = context.warnings().iter().map(Coded::from).collect();
            (Some(context.completion().to_string()), warnings)
        }
        Err(error) => (None, vec![Coded::from(&error)]),
    }
}
