//! Operations being awaited.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};

use wakeline_core::{CancelToken, Error, ErrorCode, Instant, Nanos};

use crate::config::LATE_US_MAX;
use crate::flight::Handle;
use crate::interest::Place;
use crate::known::Kind;
use crate::ladder::{Departed, Wish, Word, wait_for};
use crate::lock::{self, Submits};
use crate::op::DeviceOp;
use crate::policy::SchedulingPolicy;
use crate::port::Device;
use crate::runtime::{Core, Runtime};
use crate::stream::Stream;
use crate::submission::{Submission, Verdicts, judge};

/// An operation bound to a runtime, as a future.
///
/// ```text
///   (1) bound ──poll──► (2) waits for room in its stream ──poll──► (3) in flight ──poll──► (4) over
///        │                                        └──poll, seen to its end on the spot─────►┤
///        └──sync──► submitted, waited for on the spot ─────────────────────────────────────►┘
/// ```
///
/// The first poll submits, which makes driver calls that enqueue; later ones make none, and wait for nothing. Where the end is expected in a
/// moment a poll watches for it, for at most 20 us, and has itself polled again ([`RuntimeConfig::spin_us`](crate::RuntimeConfig::spin_us)). Dropping it before it was
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
/// - [`ErrorCode::Timeout`] and [`ErrorCode::Cancelled`] where it [was to end](Self::timeout) so.
#[must_use = "it does nothing until it is awaited"]
pub struct DeviceFuture<O: DeviceOp> {
    state: State<O>,
    key: u64,
    late_us: u32,
    /// It has not been woken before its end yet.
    warms: bool,
    verdicts: Verdicts,
    limits: Option<Box<Limits<O::Device>>>,
}

enum State<O: DeviceOp> {
    /// The number is that of its stream, where that was chosen.
    Bound(O, Result<Runtime<O::Device>, Error>, Option<usize>),
    /// The runtime is there where branches may go to its other streams.
    Waits(O, Stream<O::Device>, Option<Runtime<O::Device>>),
    /// The word is there where it alone says that the work is done.
    Flying(Handle, Option<Word<O::Device>>, Stream<O::Device>, Option<O::Pending>),
    Over,
}

/// When it ends though its work has not.
struct Limits<D: Device> {
    deadline: Instant,
    timeout: Option<Nanos>,
    cancel: Option<CancelToken>,
    /// When it was first polled.
    begun: Option<Instant>,
    place: Option<Place<D>>,
}

impl<O: DeviceOp> DeviceFuture<O> {
    fn new(op: O, runtime: Result<Runtime<O::Device>, Error>) -> Self {
        let state = State::Bound(op, runtime, None);
        Self { state, key: 0, late_us: 0, warms: true, verdicts: None, limits: None }
    }

    pub(crate) fn on(op: O, runtime: &Runtime<O::Device>) -> Self {
        Self::new(op, Ok(runtime.clone()))
    }

    /// Binds an operation to the runtime that is bound where this is called, as awaiting the operation does.
    pub fn ambient(op: O) -> Self {
        let runtime = crate::ambient::current().ok_or_else(|| Error::new(ErrorCode::NoRuntime, []));
        Self::new(op, runtime)
    }

    /// Has `policy` choose among the runtime's streams, now and once, instead of the runtime's own: all of the operation runs in that
    /// stream, its branches too. [`Runtime::scheduled`] has a policy choose for the branches as well.
    pub fn schedule(mut self, policy: &impl SchedulingPolicy) -> Self {
        if let State::Bound(_, Ok(runtime), number) = &mut self.state {
            *number = Some(runtime.choose(&[], 0, |loads| policy.choose(loads)));
        }
        self
    }

    /// Tells operations of one type apart that take different times, by batch rows say: what is learned of how long they take, and
    /// predicted by that, is kept for each number. 0 where none is given.
    pub fn keyed(mut self, key: u64) -> Self {
        self.key = key;
        self
    }

    /// May be told up to `us` microseconds late, [`LATE_US_MAX`] at most: its wake-up is shared with those of others, and its task neither
    /// watches by itself nor is it woken early. Hundreds of operations that are awaited at a time cost a fraction of the wake-ups so.
    pub fn late_us(mut self, us: u32) -> Self {
        self.late_us = us.min(LATE_US_MAX);
        self
    }

    fn limit(mut self, change: impl FnOnce(&mut Limits<O::Device>)) -> Self {
        let none =
            || Limits { deadline: Instant::MAX, timeout: None, cancel: None, begun: None, place: None };
        change(self.limits.get_or_insert_with(|| Box::new(none())));
        self
    }

    /// Ends with [`ErrorCode::Timeout`] at this moment of the clock of whoever tends the runtime's points, [`Clock`](wakeline_core::Clock)
    /// of the watcher that was handed in. What was not submitted by then never is; what was is awaited no longer, goes on, and keeps what it
    /// touches until the device is done. [`sync`](Self::sync) knows no end but that of the work.
    ///
    /// Costs an allocation, as all limits together, and a place in a queue of times.
    pub fn deadline(self, at: Instant) -> Self {
        self.limit(|limits| limits.deadline = at)
    }

    /// The same, so long after it is first polled.
    ///
    /// ```
    /// use wakeline_core::{ErrorCode, Nanos};
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream, Tensor};
    /// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
    /// let config = SimConfig { copy_ns: 5_000_000, ..SimConfig::default() };
    /// let device = SimDevice::new(VirtualTime::new(), config)?;
    /// let watcher = VirtualWatcher::new(&device);
    /// let runtime = Runtime::new(device, &SingleStream, watcher.clone())?;
    /// let late = Tensor::full(64, 1_u8).on(&runtime).timeout(Nanos::from_millis(1));
    /// assert_eq!(watcher.run(late)?.unwrap_err().code(), ErrorCode::Timeout);
    /// assert_eq!(runtime.counts().in_flight(), 1); // the work goes on
    /// # while watcher.turn() {}
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    pub fn timeout(self, length: Nanos) -> Self {
        self.limit(|limits| limits.timeout = Some(length))
    }

    /// Ends with [`ErrorCode::Cancelled`] when `token` is cancelled, as by a [`deadline`](Self::deadline): at once for a token of
    /// [`Runtime::cancel_token`], within [`CANCEL_NS_MAX`](wakeline_core::CANCEL_NS_MAX) for any other, for which the task is woken as often.
    pub fn cancelled_by(self, token: &CancelToken) -> Self {
        self.limit(|limits| limits.cancel = Some(token.clone()))
    }

    /// Submits it, and waits on the spot instead: blocks this thread for as long as the device takes, without a bound. Where it was
    /// polled before, for as long as all takes that was enqueued in its stream by now.
    ///
    /// # Errors
    ///
    /// As the future, but for its limits.
    pub fn sync(mut self) -> Result<<O as DeviceOp>::Output, Error> {
        self.limits = None;
        lock::check()?;
        match core::mem::replace(&mut self.state, State::Over) {
            State::Bound(op, runtime, number) => {
                let runtime = runtime?;
                let stream = runtime.next_stream(number)?;
                sync_on(op, &stream, number.is_none().then_some(runtime))
            }
            State::Waits(op, stream, runtime) => sync_on(op, &stream, runtime),
            State::Flying(flight, _, stream, pending) => {
                flight.abandon();
                let waited = wait_for(&stream);
                flight.land_and_wait(waited.clone());
                waited?;
                judge(&self.verdicts)?;
                O::finish(pending.ok_or_else(over)?)
            }
            State::Over => Err(over()),
        }
    }

    /// Submits where there is room, else has the task woken when there is.
    fn submit(
        &mut self,
        op: O,
        stream: Stream<O::Device>,
        runtime: Option<Runtime<O::Device>>,
        context: &mut Context<'_>,
    ) -> Result<Sent<O>, Error> {
        let submits = Submits::lock()?;
        let admitted =
            if op.poll_ready(context).is_ready() { stream.lane().admit(context) } else { Poll::Pending };
        let Poll::Ready(permit) = admitted else {
            self.state = State::Waits(op, stream, runtime);
            return Ok(Sent::NotYet);
        };
        let wish = Wish { kind: Kind::of::<O>(self.key), late_us: self.late_us };
        let mut submission = Submission::new(stream.clone(), permit);
        submission.elsewhere = runtime;
        let (pending, armed) = stream.device().together(|| {
            let pending = op.execute(&mut submission)?;
            Ok::<_, Error>((pending, stream.core().arm(&stream)))
        })?;
        drop(submits);
        if submission.verdicts.is_some() {
            self.verdicts = submission.verdicts.take();
        }
        Ok(match submission.depart(armed, wish, context)? {
            Departed::Landed => Sent::Landed(pending),
            Departed::Flying(flight, word, watches) => {
                let stream = submission.stream().clone();
                self.state = State::Flying(flight, word, stream, Some(pending));
                Sent::Flying(watches)
            }
        })
    }

    fn advance(&mut self, context: &mut Context<'_>) -> Poll<Result<<O as DeviceOp>::Output, Error>> {
        if let State::Flying(..) = &self.state {
            return self.settle(Sent::Flying(false), false, context);
        }
        let (op, stream, runtime) = match core::mem::replace(&mut self.state, State::Over) {
            State::Bound(op, runtime, number) => {
                let runtime = runtime?;
                let stream = runtime.next_stream(number)?;
                (op, stream, number.is_none().then_some(runtime))
            }
            State::Waits(op, stream, runtime) => (op, stream, runtime),
            State::Flying(..) | State::Over => return Poll::Ready(Err(over())),
        };
        if let Some(limits) = &mut self.limits
            && let Some(error) = limits.exceeded(stream.core(), None)
        {
            return Poll::Ready(Err(error));
        }
        let sent = self.submit(op, stream, runtime, context)?;
        self.settle(sent, true, context)
    }

    /// What there is after a submission, or in a later poll.
    fn settle(
        &mut self,
        sent: Sent<O>,
        fresh: bool,
        context: &mut Context<'_>,
    ) -> Poll<Result<<O as DeviceOp>::Output, Error>> {
        let again = match sent {
            Sent::Landed(pending) => {
                return Poll::Ready(judge(&self.verdicts).and_then(|()| O::finish(pending)));
            }
            Sent::NotYet => return Poll::Pending,
            Sent::Flying(again) => again,
        };
        let State::Flying(flight, word, stream, pending) = &mut self.state else { return Poll::Pending };
        let core = stream.core();
        let again = if fresh {
            self.warms &= !again;
            again
        } else if self.warms && core.warm(flight, word.as_ref()) {
            // It watches from the next poll on: others of its thread run in between.
            self.warms = false;
            true
        } else {
            core.watch_on(flight, word.as_ref())
        };
        let Poll::Ready(outcome) = flight.poll(context) else {
            if again {
                context.waker().wake_by_ref();
            }
            return Poll::Pending;
        };
        let pending = pending.take();
        self.state = State::Over;
        let outcome = outcome.and_then(|()| judge(&self.verdicts));
        Poll::Ready(outcome.and_then(|()| O::finish(pending.ok_or_else(over)?)))
    }
}

/// What a poll has sent on its way.
enum Sent<O: DeviceOp> {
    NotYet,
    Landed(O::Pending),
    /// Whether its task watches it.
    Flying(bool),
}

fn over() -> Error {
    Error::new(ErrorCode::PolledAfterEnd, [])
}

impl<D: Device> Limits<D> {
    /// Whether one of them is exceeded. `word` is that of what was submitted.
    fn exceeded(&mut self, core: &Core<D>, word: Option<&Flown<'_, D>>) -> Option<Error> {
        let now = core.tender.now();
        let begun = *self.begun.get_or_insert(now);
        if let Some(length) = self.timeout.take() {
            self.deadline = self.deadline.min(begun + length);
        }
        let cancelled = self.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
        if !cancelled && now < self.deadline {
            return None;
        }
        let why = if cancelled { ErrorCode::Cancelled } else { ErrorCode::Timeout };
        let elapsed = now.since(begun);
        Some(match word {
            None => Error::new(why, [&"(none: nothing was submitted)", &"(none)", &elapsed]),
            Some(Flown(None)) => Error::new(why, [&"(none: no word counts)", &"(none)", &elapsed]),
            Some(Flown(Some(word))) => Error::new(why, [&word.seq(), &word.word(), &elapsed]),
        })
    }
}

/// The word of what was submitted, where it counts.
struct Flown<'w, D: Device>(Option<&'w Word<D>>);

/// Submits an operation in this stream, and waits on the spot.
pub(crate) fn sync_on<O: DeviceOp>(
    op: O,
    stream: &Stream<O::Device>,
    runtime: Option<Runtime<O::Device>>,
) -> Result<<O as DeviceOp>::Output, Error> {
    let submits = Submits::lock()?;
    let mut submission = Submission::new(stream.clone(), stream.lane().admit_anyway());
    submission.elsewhere = runtime;
    let pending = op.execute(&mut submission)?;
    drop(submits);
    let verdicts = submission.verdicts.take();
    submission.wait()?;
    judge(&verdicts)?;
    O::finish(pending)
}

/// Nothing of it is pinned.
impl<O: DeviceOp> Unpin for DeviceFuture<O> {}

impl<O: DeviceOp> Future for DeviceFuture<O> {
    type Output = Result<<O as DeviceOp>::Output, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let polled = this.advance(context);
        let Some(limits) = &mut this.limits else { return polled };
        let (core, word) = match &this.state {
            State::Waits(_, stream, _) if polled.is_pending() => (stream.core(), None),
            State::Flying(_, word, stream, _) if polled.is_pending() => {
                (stream.core(), Some(Flown(word.as_ref())))
            }
            _ => {
                limits.place = None;
                return polled;
            }
        };
        core.interests.register(core, &mut limits.place, context, limits.deadline, limits.cancel.as_ref());
        // Only now: what comes from here on is told.
        let Some(error) = limits.exceeded(core, word.as_ref()) else { return Poll::Pending };
        this.give_up();
        Poll::Ready(Err(error))
    }
}

impl<O: DeviceOp> DeviceFuture<O> {
    /// Nobody awaits it any more.
    fn give_up(&mut self) {
        self.limits = None;
        if let State::Flying(flight, _, stream, _) = &self.state {
            flight.abandon();
            stream.core().unwatch(flight);
        }
        let state = core::mem::replace(&mut self.state, State::Over);
        drop(state);
    }
}

impl<O: DeviceOp> Drop for DeviceFuture<O> {
    fn drop(&mut self) {
        self.give_up();
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
        f.debug_struct("DeviceFuture").field("state", &state).finish_non_exhaustive()
    }
}
