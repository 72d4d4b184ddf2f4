//! Cancelling waits.

use alloc::sync::Arc;
use core::task::Waker;

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
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    cancelled: AtomicBool,
    /// Who looks at once.
    bell: Option<Waker>,
}

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::of(None)
    }

    /// A token that wakes `bell` when it is cancelled, for a host that looks at its waits' tokens then: its waits end at once, and
    /// need not look in between.
    pub fn ringing(bell: Waker) -> Self {
        Self::of(Some(bell))
    }

    fn of(bell: Option<Waker>) -> Self {
        Self { inner: Arc::new(Inner { cancelled: AtomicBool::new(false), bell }) }
    }

    /// The bell that it wakes, of a [`ringing`](Self::ringing) one.
    pub fn bell(&self) -> Option<&Waker> {
        self.inner.bell.as_ref()
    }

    /// Cancels; there is no way back. Wakes the bell of a [`ringing`](Self::ringing) token, at each call.
    pub fn cancel(&self) {
        self.inner.cancelled.store(true, Ordering::Release);
        if let Some(bell) = self.bell() {
            bell.wake_by_ref();
        }
    }

    /// Whether somebody has.
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancelled.load(Ordering::Acquire)
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}
