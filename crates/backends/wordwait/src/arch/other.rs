//! A processor without an instruction to park with.

use wakeline_core::CompletionLine;

use crate::features::{Features, Kind};

pub(crate) const WHY_NOT: &str = "this processor architecture has no instruction for it";

pub(super) struct Facts;

impl Facts {
    pub(super) fn ask() -> Self {
        Self
    }
}

pub(super) fn features(_facts: Facts) -> Features {
    Features::empty()
}

pub(crate) fn rate(_measure: impl FnOnce() -> Option<u64>) -> Option<u64> {
    None
}

/// # Safety
///
/// None: it is never called, since no kind is ever chosen.
pub(super) unsafe fn ticks(_kind: Kind) -> u64 {
    0
}

/// # Safety
///
/// As [`ticks`].
pub(super) unsafe fn arm(_kind: Kind, _line: &CompletionLine) {}

/// # Safety
///
/// As [`ticks`].
pub(super) unsafe fn wait(_kind: Kind, _until_ticks: u64) {}
