//! An operation that is submitted once, by whoever comes first, and whose value many have.
//!
//! ```text
//!   idle ──first executor──► submitting ──► done: value, and the place behind its work ──► others: wait for the place on the device,
//!    ▲                         │  │  │                                                       and for nothing once it is known to have landed
//!    └──what it is made of is──┘  │  └────► failed: the error ──► others: the same
//!       not ready                 ├─ polls of others: pend, woken by the end of the submission
//!                                 └─ its own thread: an error
//! ```
//!
//! A poll asks before it submits anything whether another thread is submitting the operation, or one that it is made of, and pends where one is. So
//! who comes to it in the midst of a submission has come
//! - by the second half of a `then`, which its closure has made right now,
//! - by a thread that began between the question and the submission,
//! - by a wait on the spot, which asks nobody.
//!
//! By then something may have been enqueued and closures have run; neither can be taken back, and to go on later would make a task of each submission. So it waits on the
//! spot for the other thread's calls, which enqueue and do not wait: microseconds. It is more where a closure of the other waits for something, its stream's queue
//! is full, or its processor was taken away, and at most [`SHARED_WAIT_MS_MAX`]. Then the operation that came fails, and nothing else where what it shares is known before it is
//! submitted: a shared operation that is made of a busy one stays as it was, and is run by whoever comes next. One that has found that out by a closure of its
//! own has failed for good, for closures run once.

use core::task::{Context, Poll, Waker};
use std::sync::{Arc, PoisonError};
use std::task::Wake;
use std::thread::{Thread, ThreadId};
use std::time::{Duration, Instant};

use wakeline_core::{Error, ErrorCode};

use crate::events::Place;
use crate::lock;
use crate::op::DeviceOp;
use crate::stream::Stream;
use crate::submission::{Submission, Verdict};
use crate::sync::{Condvar, Lock};

/// How long an operation waits in the midst of its submission for another thread that submits what it shares.
pub(crate) const SHARED_WAIT_MS_MAX: u64 = 100;

/// Why one cannot be recorded: others would take it for done, and nothing of it would have run.
const SHARED_IDLE: &str = "a shared operation, or a part of one, that did not run yet,";
const SHARED_BEHIND_GATE: &str = "a shared operation that is behind a gate";
const RUN_IT_BEFORE: &str = "run it before the capture";

pub(crate) struct Once<O: DeviceOp, V> {
    state: Lock<State<O, V>>,
    /// It is not being submitted any more.
    submitted: Condvar,
}

enum State<O: DeviceOp, V> {
    Idle(O),
    Submitting(Submitting),
    Done(Done<O, V>),
    Failed(Error),
}

struct Submitting {
    thread: ThreadId,
    /// Who is to be woken when it is over.
    wakers: Vec<Waker>,
    /// Somebody waits for that on the spot.
    waited_for: bool,
}

struct Done<O: DeviceOp, V> {
    value: V,
    /// Where its work ends; `None` where there is none.
    place: Option<End<O>>,
    /// Who has a say in whether it went well.
    heard: Vec<Arc<dyn Verdict>>,
}

struct End<O: DeviceOp> {
    stream: Stream<O::Device>,
    place: Place,
}

impl<O: DeviceOp, V> State<O, V> {
    fn submitting() -> Self {
        let thread = std::thread::current().id();
        Self::Submitting(Submitting { thread, wakers: Vec::new(), waited_for: false })
    }
}

/// Has a thread that waits on the spot look again.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn busy() -> Error {
    Error::new(ErrorCode::SharedBusy, [&SHARED_WAIT_MS_MAX])
}

impl<O: DeviceOp, V> Once<O, V> {
    pub(crate) fn new(op: O) -> Self {
        Self { state: Lock::new(State::Idle(op)), submitted: Condvar::new() }
    }

    /// Whether nobody else is submitting it, or what it is made of.
    pub(crate) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        {
            let mut state = self.state.lock();
            match &*state {
                State::Done(_) | State::Failed(_) => return Poll::Ready(()),
                State::Submitting(_) => {}
                State::Idle(_) => {
                    let idle = core::mem::replace(&mut *state, State::submitting());
                    drop(state);
                    // Asked without the lock: somebody else's code.
                    let ends = Ends(self, Some(idle));
                    return ends.op().map_or(Poll::Ready(()), |op| op.poll_ready(context));
                }
            }
        }
        // Cloned and dropped without the lock: a waker is somebody else's code.
        let mut waker = Some(context.waker().clone());
        let polled = match &mut *self.state.lock() {
            State::Submitting(Submitting { wakers, .. }) => {
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
        let mut until = None;
        let mut state = self.state.lock();
        while let State::Submitting(submitting) = &mut *state {
            if submitting.thread == std::thread::current().id() {
                return Err(Error::new(ErrorCode::SharedReentered, []));
            }
            submitting.waited_for = true;
            let left = left(&mut until);
            if left.is_zero() {
                return Err(busy());
            }
            state = self.submitted.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        match &mut *state {
            State::Failed(error) => return Err(error.clone()),
            State::Done(done) => {
                if done
                    .place
                    .as_ref()
                    .is_some_and(|end| !Arc::ptr_eq(end.stream.core(), submission.stream.core()))
                {
                    return Err(Error::new(ErrorCode::ForeignMemory, []));
                }
                if submission.records() && !done.heard.is_empty() {
                    return Err(submission.refusal(&SHARED_BEHIND_GATE, &RUN_IT_BEFORE));
                }
                let value = take(&mut done.value);
                let end = done.place.as_ref().map(|end| (end.stream.clone(), end.place));
                let heard = done.heard.clone();
                drop(state);
                // Called without the lock.
                for by in heard {
                    submission.hear(by);
                }
                if let Some((stream, place)) = end {
                    submission.come_behind(&stream, place)?;
                }
                return Ok(value);
            }
            State::Idle(_) | State::Submitting(_) => {}
        }
        if submission.records() {
            drop(state);
            return Err(submission.refusal(&SHARED_IDLE, &RUN_IT_BEFORE));
        }
        let idle = core::mem::replace(&mut *state, State::submitting());
        drop(state);
        let mut ends = Ends(self, Some(idle));
        ends.wait_until_ready(&mut until)?;
        let panicked = State::Failed(Error::new(ErrorCode::SharedPanicked, []));
        let Some(State::Idle(op)) = ends.1.replace(panicked) else {
            // Never: the others are seen to above.
            return Err(Error::new(ErrorCode::SharedReentered, []));
        };
        let (submitted, heard) = submission.heard_in(|submission| Self::submit(op, submission));
        let (state, given) = match submitted {
            Ok((pending, place)) => {
                let mut value = make(pending);
                let given = take(&mut value);
                (State::Done(Done { value, place, heard }), Ok(given))
            }
            Err(error) => (State::Failed(error.clone()), Err(error)),
        };
        ends.1 = Some(state);
        drop(ends);
        given
    }

    fn submit(op: O, submission: &mut Submission<O::Device>) -> Result<(O::Pending, Option<End<O>>), Error> {
        let pending = op.execute(submission)?;
        if !submission.touched.get() {
            return Ok((pending, None));
        }
        let place = submission.record()?;
        Ok((pending, Some(End { stream: submission.stream.clone(), place })))
    }
}

/// How long is left of the time that somebody waits on the spot, which begins with the first question.
fn left(until: &mut Option<Instant>) -> Duration {
    let now = Instant::now();
    until.get_or_insert(now + Duration::from_millis(SHARED_WAIT_MS_MAX)).saturating_duration_since(now)
}

/// Ends the submission with this state, also where it panics.
struct Ends<'o, O: DeviceOp, V>(&'o Once<O, V>, Option<State<O, V>>);

impl<O: DeviceOp, V> Ends<'_, O, V> {
    /// The operation, where it was not executed yet.
    fn op(&self) -> Option<&O> {
        match &self.1 {
            Some(State::Idle(op)) => Some(op),
            _ => None,
        }
    }

    /// Waits for those who submit what it is made of, while it can still be left as it was.
    fn wait_until_ready(&self, until: &mut Option<Instant>) -> Result<(), Error> {
        let Some(op) = self.op() else { return Ok(()) };
        if op.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready() {
            return Ok(());
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        while op.poll_ready(&mut Context::from_waker(&waker)).is_pending() {
            let left = left(until);
            if left.is_zero() {
                return Err(busy());
            }
            std::thread::park_timeout(left);
        }
        Ok(())
    }
}

impl<O: DeviceOp, V> Drop for Ends<'_, O, V> {
    fn drop(&mut self) {
        let Some(next) = self.1.take() else { return };
        let before = core::mem::replace(&mut *self.0.state.lock(), next);
        if let State::Submitting(Submitting { wakers, waited_for, .. }) = before {
            if waited_for {
                // A system call, whether or not somebody waits.
                self.0.submitted.notify_all();
            }
            for waker in wakers {
                lock::wake(waker);
            }
        }
    }
}

impl<D: crate::port::Device> Submission<D> {
    /// Has what is enqueued from now on come behind this place.
    fn come_behind(&mut self, stream: &Stream<D>, place: Place) -> Result<(), Error> {
        if stream.id() == self.stream.id() {
            // What it gives was enqueued here.
            self.touched.set(true);
            return Ok(());
        }
        if let Some(recording) = &mut self.recording {
            recording.come_behind(stream, place);
            return Ok(());
        }
        self.wait_behind(stream, place)
    }
}
