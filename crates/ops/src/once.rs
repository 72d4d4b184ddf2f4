//! An operation that is submitted once, by whoever comes first, and whose value many have.
//!
//! ```text
//!   idle ──first executor──► submitting ──► done: value, and the place behind its work ──► others: wait for the place on the device
//!                                 │    └──► failed: the error ──► others: the same
//!                                 ├─ polls of others: pend, woken by the end of the submission
//!                                 └─ its own thread: an error
//! ```
//!
//! A poll asks before it submits anything whether another thread is submitting the operation, and pends where one is. Who comes to it in the midst of a
//! submission cannot do so: it waits for that thread's calls, which enqueue and do not wait, for a bounded time.

use core::task::{Context, Poll, Waker};
use std::sync::{Arc, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use wakeline_core::{Error, ErrorCode};

use crate::events::Tick;
use crate::op::DeviceOp;
use crate::panics::survive;
use crate::stream::Stream;
use crate::submission::{Submission, Verdict};
use crate::sync::{Condvar, Lock};

/// How long an operation waits in the midst of its submission for another thread that submits what it shares.
pub(crate) const SHARED_WAIT_MS_MAX: u64 = 1_000;

pub(crate) struct Once<O: DeviceOp, V> {
    state: Lock<State<O, V>>,
    /// It is not being submitted any more.
    submitted: Condvar,
}

enum State<O: DeviceOp, V> {
    Idle(O),
    /// By that thread; who is to be woken when it is over.
    Submitting(ThreadId, Vec<Waker>),
    /// With who has a say in whether it went well.
    Done(V, Option<Place<O>>, Vec<Arc<dyn Verdict>>),
    Failed(Error),
}

/// Where its work ends.
struct Place<O: DeviceOp> {
    stream: Stream<O::Device>,
    tick: Tick,
}

impl<O: DeviceOp, V> Once<O, V> {
    pub(crate) fn new(op: O) -> Self {
        Self { state: Lock::new(State::Idle(op)), submitted: Condvar::new() }
    }

    /// Whether nobody else is submitting it.
    pub(crate) fn poll_ready(&self, context: &Context<'_>) -> Poll<()> {
        if !matches!(&*self.state.lock(), State::Submitting(..)) {
            return Poll::Ready(());
        }
        // Cloned and dropped without the lock: a waker is somebody else's code.
        let mut waker = Some(context.waker().clone());
        let polled = match &mut *self.state.lock() {
            State::Submitting(_, wakers) => {
                if !wakers.iter().any(|other| other.will_wake(context.waker())) {
                    wakers.extend(waker.take());
                }
                Poll::Pending
            }
            _ => Poll::Ready(()),
        };
        drop(waker);
        polled
    }

    /// Submits it, or comes behind whoever has. `make` makes what is kept of what it gives, `take` what the caller has of that.
    pub(crate) fn execute<R>(
        &self,
        submission: &mut Submission<O::Device>,
        make: impl FnOnce(O::Pending) -> V,
        take: impl FnOnce(&mut V) -> R,
    ) -> Result<R, Error> {
        let me = std::thread::current().id();
        let until = Instant::now() + Duration::from_millis(SHARED_WAIT_MS_MAX);
        let mut state = self.state.lock();
        while let State::Submitting(thread, _) = &*state {
            if *thread == me {
                return Err(Error::new(ErrorCode::SharedReentered, []));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new(ErrorCode::SharedBusy, [&SHARED_WAIT_MS_MAX]));
            }
            state = self.submitted.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        match &mut *state {
            State::Failed(error) => return Err(error.clone()),
            State::Done(value, place, heard) => {
                for by in heard.iter() {
                    submission.hear(Arc::clone(by));
                }
                let Some(place) = place else { return Ok(take(value)) };
                let (stream, tick) = (place.stream.clone(), place.tick);
                submission.come_behind(&stream, tick)?;
                return Ok(take(value));
            }
            State::Idle(_) | State::Submitting(..) => {}
        }
        let State::Idle(op) = core::mem::replace(&mut *state, State::Submitting(me, Vec::new())) else {
            // Never: the others are seen to above.
            return Err(Error::new(ErrorCode::SharedReentered, []));
        };
        drop(state);
        let mut ends = Ends(self, Some(State::Failed(Error::new(ErrorCode::SharedPanicked, []))));
        let (submitted, heard) = submission.heard_in(|submission| Self::submit(op, submission));
        let (state, given) = match submitted {
            Ok((pending, place)) => {
                let mut value = make(pending);
                let given = take(&mut value);
                (State::Done(value, place, heard), Ok(given))
            }
            Err(error) => (State::Failed(error.clone()), Err(error)),
        };
        ends.1 = Some(state);
        drop(ends);
        given
    }

    fn submit(
        op: O,
        submission: &mut Submission<O::Device>,
    ) -> Result<(O::Pending, Option<Place<O>>), Error> {
        let pending = op.execute(submission)?;
        if !submission.touched.get() {
            return Ok((pending, None));
        }
        let stream = submission.stream.clone();
        let tick = stream.events().next(stream.device())?;
        stream.events().record(stream.device(), stream.raw(), tick)?;
        Ok((pending, Some(Place { stream, tick })))
    }
}

/// Ends the submission, also where it panics.
struct Ends<'o, O: DeviceOp, V>(&'o Once<O, V>, Option<State<O, V>>);

impl<O: DeviceOp, V> Drop for Ends<'_, O, V> {
    fn drop(&mut self) {
        let Some(next) = self.1.take() else { return };
        let before = core::mem::replace(&mut *self.0.state.lock(), next);
        self.0.submitted.notify_all();
        if let State::Submitting(_, wakers) = before {
            for waker in wakers {
                survive(|| waker.wake());
            }
        }
    }
}

impl<D: crate::port::Device> Submission<D> {
    /// Has what is enqueued from now on come behind this place.
    fn come_behind(&mut self, stream: &Stream<D>, tick: Tick) -> Result<(), Error> {
        if !Arc::ptr_eq(stream.core(), self.stream.core()) {
            return Err(Error::new(ErrorCode::ForeignMemory, []));
        }
        if stream.id() == self.stream.id() {
            // What it gives was enqueued here.
            self.touched.set(true);
            return Ok(());
        }
        stream.events().wait(stream.device(), self.stream().raw(), tick)
    }
}
