//! Cancelling waits.

use alloc::sync::Arc;

use crate::sync::{AtomicBool, Ordering};

/// Ends every wait that it was handed to, from any thread.
///
/// The work goes on and nothing in flight is freed; only the waiting ends, with
/// [`ErrorCode::Cancelled`](crate::ErrorCode::Cancelled), within [`CANCEL_NS_MAX`](crate::CANCEL_NS_MAX) or the driver call
/// that the wait is in. Clones are the same token.
///
/// ```
/// use wakeline_core::CancelToken;
/// let token = CancelToken::new();
/// let clone = token.clone();
/// clone.cancel();
/// assert!(token.is_cancelled());
/// ```
#[derive(Clone, Debug)]
pub struct CancelToken {
    cancelled: Arc<AtomicBool>,
}

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self { cancelled: Arc::new(AtomicBool::new(false)) }
    }

    /// Cancels; there is no way back.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Whether somebody has.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}
