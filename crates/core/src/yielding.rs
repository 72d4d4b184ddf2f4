//! Letting others run.

use core::future::poll_fn;
use core::task::Poll;

/// Pends once, with its waker called: for a host's [`Timer::yield_now`](crate::Timer::yield_now) where the runtime polls what was woken
/// after whatever else is ready.
///
/// ```
/// use core::task::{Context, Waker};
/// let mut yields = std::pin::pin!(wakeline_core::yield_once());
/// let mut context = Context::from_waker(Waker::noop());
/// assert!(yields.as_mut().poll(&mut context).is_pending());
/// assert!(yields.as_mut().poll(&mut context).is_ready());
/// ```
pub fn yield_once() -> impl Future<Output = ()> {
    let mut yielded = false;
    poll_fn(move |context| {
        if core::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}
