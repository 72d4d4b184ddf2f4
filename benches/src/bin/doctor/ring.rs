//! `io_uring`: whether the kernel lets this process make a ring, as the host on it finds.

use serde::Serialize;
use wakeline_uring::Probe;

/// What became of the attempt.
#[derive(Debug, Serialize)]
pub(crate) struct Ring {
    /// `None` where it was not tried.
    pub(crate) works: Option<bool>,
    /// Why not.
    pub(crate) why_not: Option<String>,
    /// `/proc/sys/kernel/io_uring_disabled`: 0 for all, 1 for privileged processes only, 2 for nobody.
    pub(crate) sysctl_disabled: Option<u32>,
}

impl From<&Probe> for Ring {
    fn from(probe: &Probe) -> Self {
        Self {
            works: probe.works(),
            why_not: probe.why_not().map(str::to_owned),
            sysctl_disabled: probe.sysctl_disabled(),
        }
    }
}
