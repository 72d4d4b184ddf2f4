//! Operations being awaited.

use core::fmt;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::task::{Context, Poll};

use wakeline_core::{CancelToken, Error, ErrorCode, Instant, Nanos};

use crate::config::LATE_US_MAX;
use crate::flight::Handle;
use crate::interest::Place;
use crate::known::Kind;
use crate::ladder::{Departed, Looked, Wish, Word, wait_for};
use crate::lane::Turn;
use crate::lock::{self, Submits};
use crate::op::DeviceOp;
use crate::policy::SchedulingPolicy;
use crate::port::Device;
use crate::runtime::{Core, Runtime};
use crate::stream::{ENTRIES_MAX, Stream};
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
/// # Cost
///
/// Of the host's time, beside the device's own calls, no allocation once as many have been in flight at a time: about 580 instructions where its first poll sees the
/// end. Else about 1,000 for building it, submitting it and handing it over, in which two locks are taken that nobody else wants by then, and 600 for
/// its end, four locks, a third of that on the thread of whoever tends where the task does not see it by itself. `cargo xtask instructions` counts them. Besides, each
/// [`retained`](Submission::retain) owner costs some 50, and a [limit](Self::deadline) an allocation.
///
/// # Errors
///
/// What it resolves to:
/// - what made the submission fail; [`ErrorCode::NoRuntime`] where no runtime is bound.
/// - [`ErrorCode::StreamCapturing`] where somebody captures its stream by the device's own calls: nothing of it was submitted, and nothing recorded.
/// - the device's fault, or what else ended the wait, [`ErrorCode::WatcherClosed`] say. What the operation keeps is leaked then, and
///   counted in [`Runtime::counts`]: the device may be at work on it.
/// - [`ErrorCode::Unwatched`] where who tends was closed before, or what it had no room for fills the stream's queue: nothing was submitted. [`sync`](Self::sync) still works.
/// - [`ErrorCode::PolledAfterEnd`] when it is polled again after it was ready.
/// - [`ErrorCode::Timeout`] and [`ErrorCode::Cancelled`] where it [was to end](Self::timeout) so.
#[must_use = "it does nothing until it is awaited"]
pub struct DeviceFuture<O: DeviceOp> {
    /// This and the limits are dropped by hand, so that a future that is over calls nothing for them.
    state: ManuallyDrop<State<O>>,
    key: u64,
    late_us: u32,
    /// It has not been woken before its end yet.
    warms: bool,
    /// Its last poll looked at the word until it returned.
    watched: bool,
    /// Where it waits for a place, if it does.
    turn: Option<Turn>,
    verdicts: Verdicts,
    limits: ManuallyDrop<Option<Box<Limits<O::Device>>>>,
}

enum State<O: DeviceOp> {
    /// The number is that of its stream, where that was chosen.
    Bound(O, Result<Runtime<O::Device>, Error>, Option<usize>),
    /// The runtime is there where branches may go to its other streams.
    Waits(O, Stream<O::Device>, Option<Runtime<O::Device>>),
    /// The word is there where it alone says that the work is done.
    Flying(Handle, Option<Word<O::Device>>, Stream<O::Device>, O::Pending),
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
        let state = ManuallyDrop::new(State::Bound(op, runtime, None));
        let limits = ManuallyDrop::new(None);
        Self { state, key: 0, late_us: 0, warms: true, watched: false, turn: None, verdicts: None, limits }
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
        if let State::Bound(_, Ok(runtime), number) = &mut *self.state {
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
    /// use wakeline_ops::{DeviceOp, Runtime, SingleStream};
    /// use wakeline_tensor::Tensor;
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
        self.drop_limits();
        lock::check()?;
        match self.take_state() {
            State::Bound(op, runtime, number) => {
                let runtime = runtime?;
                let stream = runtime.next_stream(number)?;
                sync_on(op, &stream, number.is_none().then_some(runtime))
            }
            State::Waits(op, stream, runtime) => {
                stream.lane().leave(&mut self.turn);
                sync_on(op, &stream, runtime)
            }
            State::Flying(flight, _, stream, pending) => {
                flight.abandon();
                let waited = wait_for(&stream);
                flight.land_and_wait(waited.clone());
                stream.core().tender.let_go();
                waited?;
                judge(&self.verdicts)?;
                O::finish(pending)
            }
            State::Over => Err(over()),
        }
    }

    /// Submits where there is room, else has the task woken when there is.
    #[expect(
        clippy::inline_always,
        reason = "measured: it is called once, and a call costs more than it does"
    )]
    #[inline(always)]
    fn submit(
        &mut self,
        op: O,
        stream: Stream<O::Device>,
        runtime: Option<Runtime<O::Device>>,
        context: &mut Context<'_>,
    ) -> Poll<Result<<O as DeviceOp>::Output, Error>> {
        let submits = Submits::lock()?;
        if stream.core().fleet.is_closed() {
            return self.refused(&stream);
        }
        // One is for the store behind it; each has one more, so that no more are in flight than half as many.
        let entries = op.entries().clamp(1, ENTRIES_MAX - 1) + 1;
        let admitted = if op.poll_ready(context).is_ready() {
            stream.lane().admit(entries, &mut self.turn, context)
        } else {
            Poll::Pending
        };
        let Poll::Ready(permit) = admitted else {
            if stream.core().fleet.is_closed() || stream.lane().is_full_of_unseen(entries) {
                return self.refused(&stream);
            }
            *self.state = State::Waits(op, stream, runtime);
            return Poll::Pending;
        };
        let key = if self.key == 0 { op.kind_key() } else { self.key };
        let wish = Wish { kind: Kind::of::<O>(key), late_us: self.late_us };
        let mut submission = Submission::new(stream.clone(), permit);
        submission.elsewhere = runtime;
        // Written where it stays, and not handed through: it is large.
        let mut armed = None;
        let pending = stream.device().together(|| {
            let pending = submission.run(op)?;
            submission.close();
            armed = Some(stream.core().arm(&stream));
            Ok::<_, Error>(pending)
        })?;
        drop(submits);
        if submission.verdicts.is_some() {
            self.verdicts = submission.verdicts.take();
        }
        match submission.depart(&mut armed, wish, context)? {
            Departed::Landed => Poll::Ready(judge(&self.verdicts).and_then(|()| O::finish(pending))),
            Departed::Flying(flight, word, watches) => {
                let over = flight.is_over();
                // Who ends it from now on has the waker.
                if watches && !over {
                    stream.core().tender.again(context);
                }
                *self.state = State::Flying(flight, word, stream, pending);
                self.warms &= !watches;
                self.watched = watches;
                // Whoever tends has ended it on the spot, or meanwhile.
                if over { self.watch_on(context) } else { Poll::Pending }
            }
        }
    }

    /// Nobody would see it to its end, nor wake it when there is room.
    #[cold]
    fn refused(&mut self, stream: &Stream<O::Device>) -> Poll<Result<<O as DeviceOp>::Output, Error>> {
        stream.lane().leave(&mut self.turn);
        let why = if stream.core().fleet.is_closed() {
            "the watcher that was to see it to its end was closed"
        } else {
            "the queue of its stream is full of work whose ends the watcher had no room to see"
        };
        Poll::Ready(Err(Error::new(ErrorCode::Unwatched, [&why])))
    }

    #[inline]
    fn advance(&mut self, context: &mut Context<'_>) -> Poll<Result<<O as DeviceOp>::Output, Error>> {
        if matches!(*self.state, State::Flying(..)) {
            return self.watch_on(context);
        }
        let (op, stream, runtime) = match self.take_state() {
            State::Bound(op, runtime, number) => {
                let runtime = runtime?;
                let stream = runtime.next_stream(number)?;
                (op, stream, number.is_none().then_some(runtime))
            }
            State::Waits(op, stream, runtime) => (op, stream, runtime),
            State::Flying(..) | State::Over => return Poll::Ready(Err(over())),
        };
        if let Some(limits) = &mut *self.limits
            && let Some(error) = limits.exceeded(stream.core(), None)
        {
            stream.lane().leave(&mut self.turn);
            return Poll::Ready(Err(error));
        }
        self.submit(op, stream, runtime, context)
    }

    /// A later poll.
    fn watch_on(&mut self, context: &mut Context<'_>) -> Poll<Result<<O as DeviceOp>::Output, Error>> {
        let State::Flying(flight, word, stream, _) = &*self.state else { return Poll::Pending };
        let core = stream.core();
        let looked = if self.warms && core.warm(flight, word.as_ref()) {
            // It watches from the next poll on: others of its thread run in between.
            self.warms = false;
            Looked::Again
        } else {
            let looked = core.watch_on(flight, word.as_ref(), self.watched);
            self.watched = looked == Looked::Again;
            looked
        };
        if looked == Looked::Ended {
            return self.finish(Ok(()));
        }
        let Poll::Ready(outcome) = flight.poll(context) else {
            if looked == Looked::Again {
                core.tender.again(context);
            }
            return Poll::Pending;
        };
        self.finish(outcome)
    }

    /// It has ended so.
    fn finish(&mut self, outcome: Result<(), Error>) -> Poll<Result<<O as DeviceOp>::Output, Error>> {
        let State::Flying(.., pending) = self.take_state() else { return Poll::Ready(Err(over())) };
        let outcome = outcome.and_then(|()| judge(&self.verdicts));
        Poll::Ready(outcome.and_then(|()| O::finish(pending)))
    }
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
    submit_on(op, stream, runtime)?.wait()
}

/// An operation that was submitted and is not waited for yet.
pub(crate) struct Submitted<O: DeviceOp> {
    submission: Submission<O::Device>,
    pending: O::Pending,
}

/// Submits an operation in this stream.
pub(crate) fn submit_on<O: DeviceOp>(
    op: O,
    stream: &Stream<O::Device>,
    runtime: Option<Runtime<O::Device>>,
) -> Result<Submitted<O>, Error> {
    let _submits = Submits::lock()?;
    let mut submission = Submission::new(stream.clone(), stream.lane().admit_anyway(1));
    submission.elsewhere = runtime;
    let pending = submission.run_anyway(op)?;
    Ok(Submitted { submission, pending })
}

impl<O: DeviceOp> Submitted<O> {
    /// Waits on the spot.
    pub(crate) fn wait(self) -> Result<<O as DeviceOp>::Output, Error> {
        let Self { mut submission, pending } = self;
        let verdicts = submission.verdicts.take();
        submission.wait()?;
        judge(&verdicts)?;
        O::finish(pending)
    }
}

/// Nothing of it is pinned.
impl<O: DeviceOp> Unpin for DeviceFuture<O> {}

impl<O: DeviceOp> Future for DeviceFuture<O> {
    type Output = Result<<O as DeviceOp>::Output, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.limits.is_some() { this.poll_limited(context) } else { this.advance(context) }
    }
}

impl<O: DeviceOp> DeviceFuture<O> {
    /// A poll of one that may end before its work.
    #[cold]
    fn poll_limited(&mut self, context: &mut Context<'_>) -> Poll<Result<<O as DeviceOp>::Output, Error>> {
        let polled = self.advance(context);
        let Some(limits) = &mut *self.limits else { return polled };
        let (core, word) = match &*self.state {
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
        match limits.exceeded(core, word.as_ref()) {
            None => Poll::Pending,
            Some(error) => {
                self.give_up();
                Poll::Ready(Err(error))
            }
        }
    }

    /// What it was until now; it is over from now on.
    #[inline]
    fn take_state(&mut self) -> State<O> {
        ManuallyDrop::into_inner(core::mem::replace(&mut self.state, ManuallyDrop::new(State::Over)))
    }

    fn drop_limits(&mut self) {
        drop(ManuallyDrop::into_inner(core::mem::take(&mut self.limits)));
    }

    /// Nobody awaits it any more.
    #[cold]
    fn give_up(&mut self) {
        self.drop_limits();
        if let State::Flying(flight, _, stream, _) = &*self.state {
            flight.abandon();
            stream.core().unwatch(flight);
        }
        if let State::Waits(_, stream, _) = &*self.state {
            stream.lane().leave(&mut self.turn);
        }
        drop(self.take_state());
    }
}

impl<O: DeviceOp> Drop for DeviceFuture<O> {
    #[inline]
    fn drop(&mut self) {
        if !matches!(*self.state, State::Over) || self.limits.is_some() {
            self.give_up();
        }
    }
}

impl<O: DeviceOp> fmt::Debug for DeviceFuture<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &*self.state {
            State::Bound(..) => "bound",
            State::Waits(..) => "waits for room",
            State::Flying(..) => "in flight",
            State::Over => "over",
        };
        f.debug_struct("DeviceFuture").field("state", &state).finish_non_exhaustive()
    }
}
