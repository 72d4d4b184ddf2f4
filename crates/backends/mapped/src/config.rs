//! What a context is made with.

use wakeline_core::{Error, Strictness, within};

use crate::path::CompletionPath;
use crate::pool::PAGE_BYTES;

/// The longest that the start-up probe may wait for its store.
pub const PROBE_MS_MAX: u64 = 10_000;

/// The most words that a context may have.
pub const SLOTS_MAX: u64 = 1 << 20;

/// What a [`Context`](crate::Context) is made with.
///
/// ```
/// use wakeline_mapped::{CompletionPath, ContextConfig};
/// let config = ContextConfig { completion: CompletionPath::Callback, ..ContextConfig::default() };
/// assert!(config.check().is_ok());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextConfig {
    /// Who stores the words. What cannot be had is replaced by the next lower one, with a warning in [`Context::warnings`](crate::Context::warnings).
    pub completion: CompletionPath,
    /// Whether that may be replaced at all.
    pub strictness: Strictness,
    /// How long the start-up probe waits for its store, in milliseconds: 1 to [`PROBE_MS_MAX`].
    pub probe_ms_max: u64,
    /// How many words, thus streams at a time, there may be: from one page of them (512) to [`SLOTS_MAX`]. They are allocated by the page, when needed.
    pub slots_max: u64,
    /// How many bytes of pinned memory of the host there may be for copies, those that wait in its pool included.
    pub pinned_bytes_max: usize,
}

/// How many bytes of pinned memory a context may have, where nothing else is said: 1 GiB.
pub const PINNED_BYTES: usize = 1 << 30;

impl Default for ContextConfig {
    /// Words, fallbacks allowed, a tenth of a second for the probe, 65,536 streams, [`PINNED_BYTES`].
    fn default() -> Self {
        Self {
            completion: CompletionPath::Word,
            strictness: Strictness::Fallback,
            probe_ms_max: 100,
            slots_max: 65_536,
            pinned_bytes_max: PINNED_BYTES,
        }
    }
}

impl ContextConfig {
    /// Whether every limit is in range.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit) names the first that is not.
    pub fn check(&self) -> Result<(), Error> {
        within("probe_ms_max", self.probe_ms_max, 1, PROBE_MS_MAX)?;
        within("slots_max", self.slots_max, (PAGE_BYTES / size_of::<u64>()) as u64, SLOTS_MAX)?;
        Ok(())
    }
}
