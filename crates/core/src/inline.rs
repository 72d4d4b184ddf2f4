//! Waiting on the calling thread, without an executor.

use core::pin::pin;
use core::task::{Context, Poll, Waker};

use crate::error::{Error, ErrorCode};
use crate::port::{Clock, CompletionPort, Idle, Park, Timer, Wake, Watch};
use crate::time::Instant;

/// A host whose timer and watch wait on the calling thread: no future of it ever pends.
///
/// With it, [`drive`](crate::drive) runs to its end within one poll; see [`run_inline`].
///
/// ```
/// use wakeline_core::{Clock, Inline, Nanos, Timer, run_inline};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let host = VirtualHost::new(&device);
/// let inline = Inline::new(&host, &host, &host); // its clock, its idle, its park
/// let until = inline.now() + Nanos::from_millis(1);
/// run_inline(inline.sleep_until(until))?; // this thread sleeps
/// assert_eq!(inline.now(), until);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Inline<C, I, P> {
    clock: C,
    idle: I,
    park: P,
}

impl<C: Clock, I: Idle, P: Park> Inline<C, I, P> {
    /// Sleeps by `idle` and watches by `park`, on the time line of `clock`.
    pub const fn new(clock: C, idle: I, park: P) -> Self {
        Self { clock, idle, park }
    }
}

impl<C: Clock, I, P> Clock for Inline<C, I, P> {
    fn now(&self) -> Instant {
        self.clock.now()
    }
}

impl<C: Clock, I: Idle, P> Timer for Inline<C, I, P> {
    async fn sleep_until(&self, at: Instant) {
        // An early wake is the caller's to see: it asks for the rest again.
        self.idle.idle(Some(at));
    }

    async fn yield_now(&self) {}
}

impl<Port: CompletionPort, C: Clock, I, P: Park> Watch<Port> for Inline<C, I, P> {
    async fn watch(&self, port: &Port, until: Instant) -> Wake {
        port.park(&self.park, until)
    }
}

/// Runs a future on the calling thread by one poll.
///
/// For futures over hosts that wait on the calling thread, [`Inline`] above all. Costs the poll and nothing else: no
/// allocation, no lock, no system call of its own.
///
/// # Errors
///
/// [`ErrorCode::PendedInline`] when the future pends: nothing here could wake it. It is dropped then.
///
/// ```
/// use wakeline_core::{ErrorCode, run_inline};
/// assert_eq!(run_inline(async { 7 })?, 7);
/// let error = run_inline(std::future::pending::<()>()).unwrap_err();
/// assert_eq!(error.code(), ErrorCode::PendedInline);
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub fn run_inline<F: Future>(future: F) -> Result<F::Output, Error> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => Err(Error::new(ErrorCode::PendedInline, [])),
    }
}
