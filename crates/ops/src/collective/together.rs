//! One operation of each rank of a process, submitted in one go.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode};

use super::Shared;
use crate::future::{DeviceFuture, Submitted, submit_on};
use crate::op::DeviceOp;
use crate::port::Collectives;

/// An operation of each rank of this process: a future of their outputs, in the order of the ranks. The first poll submits all of them, so that none waits for one that its own
/// thread is still to submit.
///
/// Each is a flight of its own device, in a stream that the policy of its runtime chooses. Ends with the first error; where one cannot be submitted and others were, the communicator
/// has failed with that, for the others would wait for it. Dropped, it is awaited no longer: what was submitted goes on. Costs two allocations.
#[must_use = "it does nothing until it is awaited"]
pub struct Together<O: DeviceOp<Device: Collectives>> {
    shared: Arc<Shared<O::Device>>,
    state: State<O>,
}

enum State<O: DeviceOp> {
    Bound(Result<Vec<O>, Error>),
    Flying(Vec<Flying<O>>),
    Over,
}

enum Flying<O: DeviceOp> {
    Pends(Box<DeviceFuture<O>>),
    Ended(<O as DeviceOp>::Output),
}

impl<O: DeviceOp<Device: Collectives>> Together<O> {
    pub(super) fn new(shared: &Arc<Shared<O::Device>>, ops: Result<Vec<O>, Error>) -> Self {
        Self { shared: Arc::clone(shared), state: State::Bound(ops) }
    }

    /// Submits all, and waits on the spot until they have ended: blocks this thread for as long as that takes, by the deadlines of the ranks at most. In virtual time, where
    /// nothing moves the other devices meanwhile, await it instead.
    ///
    /// # Errors
    ///
    /// As the future.
    pub fn sync(mut self) -> Result<Vec<<O as DeviceOp>::Output>, Error> {
        let State::Bound(ops) = core::mem::replace(&mut self.state, State::Over) else { return Err(over()) };
        let (mut submitted, mut first) = (Vec::new(), Ok(()));
        for (op, (_, runtime)) in ops?.into_iter().zip(&self.shared.seats) {
            let one =
                runtime.next_stream(None).and_then(|stream| submit_on(op, &stream, Some(runtime.clone())));
            match one {
                Ok(one) => submitted.push(one),
                Err(error) => {
                    if !submitted.is_empty() {
                        self.shared.fail(&error);
                    }
                    first = Err(error);
                    break;
                }
            }
        }
        let outputs: Vec<_> = submitted.into_iter().map(Submitted::wait).collect();
        first?;
        outputs.into_iter().collect()
    }

    fn advance(&mut self, context: &mut Context<'_>) -> Result<bool, Error> {
        if let State::Bound(ops) = &mut self.state {
            let ops = core::mem::replace(ops, Ok(Vec::new()))?;
            let ops = ops.into_iter().zip(&self.shared.seats);
            let flying = ops.map(|(op, (_, runtime))| Flying::Pends(Box::new(DeviceFuture::on(op, runtime))));
            self.state = State::Flying(flying.collect());
        }
        let State::Flying(flying) = &mut self.state else { return Err(over()) };
        let (mut pends, mut submitted) = (false, 0);
        for one in flying {
            let Flying::Pends(future) = one else { continue };
            match Pin::new(&mut **future).poll(context) {
                Poll::Pending => pends = true,
                Poll::Ready(Ok(output)) => *one = Flying::Ended(output),
                Poll::Ready(Err(error)) => {
                    if pends || submitted > 0 {
                        self.shared.fail(&error);
                    }
                    return Err(error);
                }
            }
            submitted += 1;
        }
        Ok(!pends)
    }
}

fn over() -> Error {
    Error::new(ErrorCode::PolledAfterEnd, [])
}

/// Nothing of it is pinned.
impl<O: DeviceOp<Device: Collectives>> Unpin for Together<O> {}

impl<O: DeviceOp<Device: Collectives>> Future for Together<O> {
    type Output = Result<Vec<<O as DeviceOp>::Output>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match this.advance(context) {
            Ok(false) => Poll::Pending,
            Ok(true) => {
                let State::Flying(flying) = core::mem::replace(&mut this.state, State::Over) else {
                    return Poll::Ready(Err(over()));
                };
                let output = |one| match one {
                    Flying::Ended(output) => Ok(output),
                    // Never: all have ended.
                    Flying::Pends(_) => Err(over()),
                };
                Poll::Ready(flying.into_iter().map(output).collect())
            }
            Err(error) => {
                this.state = State::Over;
                Poll::Ready(Err(error))
            }
        }
    }
}

impl<O: DeviceOp<Device: Collectives>> fmt::Debug for Together<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Bound(_) => "bound",
            State::Flying(_) => "in flight",
            State::Over => "over",
        };
        f.debug_struct("Together").field("ranks", &self.shared.seats.len()).field("state", &state).finish()
    }
}
