//! Operations being awaited.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use wakeline_core::{CompletionPort, Error, ErrorCode, Status};

use crate::flight::Flight;
use crate::op::DeviceOp;
use crate::port::Device;
use crate::runtime::Runtime;
use crate::stream::Stream;
use crate::submission::Submission;

/// An operation bound to a runtime, as a future.
///
/// ```text
///   (1) bound ──poll──► (2) waits for room in its stream ──poll──► (3) in flight ──poll──► (4) over
///        └──sync──► submitted, waited for on the spot ─────────────────────────────────────►┘
/// ```
///
/// The first poll submits, which makes driver calls that enqueue; later ones make none, and wait for nothing. Dropping it before it was
/// polled has nothing happen; dropping or forgetting it later gives up interest: the work goes on, and what it keeps lives until the
/// device is done. That never waits for the device.
///
/// # Errors
///
/// What it resolves to:
/// - what made the submission fail; [`ErrorCode::NoRuntime`] where no runtime is bound.
/// - the device's fault, or what else ended the wait, [`ErrorCode::WatcherClosed`] say. What the operation keeps is leaked then, and
///   counted in [`Runtime::counts`]: the device may be at work on it.
/// - [`ErrorCode::PolledAfterEnd`] when it is polled again after it was ready.
#[must_use = "it does nothing until it is awaited"]
pub struct DeviceFuture<O: DeviceOp> {
    state: State<O>,
}

enum State<O: DeviceOp> {
    Bound(O, Result<Runtime<O::Device>, Error>),
    Waits(O, Stream<O::Device>),
    Flying(Arc<Flight>, Stream<O::Device>, Option<O::Pending>),
    Over,
}

impl<O: DeviceOp> DeviceFuture<O> {
    pub(crate) fn on(op: O, runtime: &Runtime<O::Device>) -> Self {
        Self { state: State::Bound(op, Ok(runtime.clone())) }
    }

    /// Binds an operation to the runtime that is bound where this is called, as awaiting the operation does.
    pub fn ambient(op: O) -> Self {
        let runtime = crate::ambient::current().ok_or_else(|| Error::new(ErrorCode::NoRuntime, []));
        Self { state: State::Bound(op, runtime) }
    }

    /// Submits it, and waits on the spot instead: blocks this thread for as long as the device takes, without a bound. Where it was
    /// polled before, for as long as all takes that was enqueued in its stream by now.
    ///
    /// # Errors
    ///
    /// As the future.
    pub fn sync(mut self) -> Result<<O as DeviceOp>::Output, Error> {
        match core::mem::replace(&mut self.state, State::Over) {
            State::Bound(op, runtime) => sync_on(op, &runtime?.next_stream()?),
            State::Waits(op, stream) => sync_on(op, &stream),
            State::Flying(flight, stream, pending) => {
                wait_on_the_spot(&flight, &stream)?;
                O::finish(pending.ok_or_else(|| Error::new(ErrorCode::PolledAfterEnd, []))?)
            }
            State::Over => Err(Error::new(ErrorCode::PolledAfterEnd, [])),
        }
    }

    /// Submits where there is room, else has the task woken when there is.
    fn submit(&mut self, op: O, stream: Stream<O::Device>, context: &Context<'_>) -> Result<(), Error> {
        let Poll::Ready(permit) = stream.admit(context) else {
            self.state = State::Waits(op, stream);
            return Ok(());
        };
        let mut submission = Submission::new(stream, permit);
        let pending = op.execute(&mut submission)?;
        let stream = submission.stream().clone();
        self.state = State::Flying(submission.fly(), stream, Some(pending));
        Ok(())
    }
}

/// Submits an operation in this stream, and waits on the spot.
pub(crate) fn sync_on<O: DeviceOp>(
    op: O,
    stream: &Stream<O::Device>,
) -> Result<<O as DeviceOp>::Output, Error> {
    let mut submission = Submission::new(stream.clone(), stream.admit_anyway());
    let pending = op.execute(&mut submission)?;
    let (flight, stream) = submission.fly_untended();
    wait_on_the_spot(&flight, &stream)?;
    O::finish(pending)
}

/// Waits until all that is enqueued in the stream is done, and ends the flight.
fn wait_on_the_spot<D: Device>(flight: &Flight, stream: &Stream<D>) -> Result<(), Error> {
    let waited = stream.device().point(stream.raw()).and_then(|mut point| {
        while point.block(None)? == Status::Pending {}
        Ok(())
    });
    flight.land_and_wait(waited.clone());
    waited
}

/// Nothing of it is pinned.
impl<O: DeviceOp> Unpin for DeviceFuture<O> {}

impl<O: DeviceOp> Future for DeviceFuture<O> {
    type Output = Result<<O as DeviceOp>::Output, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match core::mem::replace(&mut this.state, State::Over) {
            State::Bound(op, runtime) => {
                let stream = runtime.and_then(|runtime| runtime.next_stream())?;
                this.submit(op, stream, context)?;
            }
            State::Waits(op, stream) => this.submit(op, stream, context)?,
            flying @ State::Flying(..) => this.state = flying,
            State::Over => return Poll::Ready(Err(Error::new(ErrorCode::PolledAfterEnd, []))),
        }
        let State::Flying(flight, _, pending) = &mut this.state else { return Poll::Pending };
        let Poll::Ready(outcome) = flight.poll(context) else { return Poll::Pending };
        let pending = pending.take();
        this.state = State::Over;
        let over = || Error::new(ErrorCode::PolledAfterEnd, []);
        Poll::Ready(outcome.and_then(|()| O::finish(pending.ok_or_else(over)?)))
    }
}

impl<O: DeviceOp> Drop for DeviceFuture<O> {
    fn drop(&mut self) {
        if let State::Flying(flight, ..) = &self.state {
            flight.abandon();
        }
    }
}

impl<O: DeviceOp> fmt::Debug for DeviceFuture<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Bound(..) => "bound",
            State::Waits(..) => "waits for room",
            State::Flying(..) => "in flight",
            State::Over => "over",
        };
        f.debug_struct("DeviceFuture").field("state", &state).finish()
    }
}
