//! The futures of a watcher.

use core::fmt;
use core::panic::AssertUnwindSafe;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;

use wakeline_core::{
    Arming, CancelToken, Clock, CompletionPort, Error, ErrorCode, Instant, LineRef, MemoryDescriptor, Mode,
    Nanos, Report, Wait, WaitPlan, Wake, Watched,
};

use super::flight::{Flight, Fly, Options, Seen, Tag};
use super::home::Home;
use super::look::Look;
use super::panics;
use super::wake_time;
use crate::points::Point;

/// The most that [`late_us`](WatcherWait::late_us) may allow: a second.
pub const LATE_US_MAX: u64 = 1_000_000;

/// A wait that a [`Watcher`](crate::Watcher) watches, as a future for any runtime.
///
/// Made by [`Watcher::wait`](crate::Watcher::wait). Does nothing before it is first polled; then it arms the point, on the thread
/// that polls, and hands it to the watcher, which makes every other driver call on threads of its own.
///
/// Dropping it at any moment ends the waiting only: what the device may still touch belongs to the port and its backend, and the port
/// is let go at once, unless a driver call with it is under way, which then does that. Forgetting it (`mem::forget`) leaves it to
/// end by itself.
///
/// Cost: one allocation; a poll that finds nothing new is a few atomic operations and makes no driver call.
///
/// # Errors
///
/// What it resolves to:
/// - [`ErrorCode::Timeout`], [`Cancelled`](ErrorCode::Cancelled), [`StoreLost`](ErrorCode::StoreLost), or what a driver call returned,
///   as [`drive`](wakeline_core::drive).
/// - [`ErrorCode::WatcherFull`], [`WatcherClosed`](ErrorCode::WatcherClosed); for a `block` plan [`HelpersBusy`](ErrorCode::HelpersBusy).
/// - [`ErrorCode::Backend`] also when a driver call panicked, or the system refuses a helper's thread.
/// - [`ErrorCode::PolledAfterEnd`] when it is polled again after it was ready.
#[must_use = "it waits when it is awaited"]
pub struct WatcherWait<P>
where
    P: CompletionPort + Send + 'static,
    P::Line: Send + Sync + 'static,
{
    home: Arc<Home>,
    point: Point,
    state: State<P>,
}

/// Why there is no flight after the first poll.
enum Begun {
    /// It has its outcome already.
    Over(Result<Report, Error>),
    /// It could not begin.
    Refused(Error),
}

#[expect(
    clippy::large_enum_variant,
    reason = "it begins as the large one, and a box would be an allocation more"
)]
enum State<P: CompletionPort> {
    New { port: P, wait: Wait, options: Options },
    Flying { flight: Arc<Flight<P>>, shard: usize },
    Over,
}

impl<P> WatcherWait<P>
where
    P: CompletionPort + Send + 'static,
    P::Line: Send + Sync + 'static,
{
    pub(super) fn new(home: &Arc<Home>, port: P, plan: &WaitPlan, point: &Point) -> Self {
        let options = Options {
            deadline: Instant::MAX,
            cancel: None,
            late: Nanos::ZERO,
            early_wake: home.hub.config.early_wake,
            stir: home.hub.config.stir,
            kernel: false,
        };
        let state = State::New { port, wait: Wait::new(plan), options };
        Self { home: Arc::clone(home), point: point.clone(), state }
    }

    fn with(mut self, change: impl FnOnce(&mut Options)) -> Self {
        if let State::New { options, .. } = &mut self.state {
            change(options);
        }
        self
    }

    /// Ends at this moment of [`StdClock`](crate::StdClock), done or not; [`Instant::MAX`], as without it, is no deadline. Changes
    /// nothing once it was polled, as all of these.
    ///
    /// A `block` plan ends by it too: the driver's own wait is on a helper thread, which may be held up for longer.
    pub fn deadline(self, at: Instant) -> Self {
        self.with(|options| options.deadline = at)
    }

    /// Ends when `token` is cancelled: at once for a token of this watcher's [`cancel_token`](crate::Watcher::cancel_token), which
    /// costs nothing meanwhile; within [`CANCEL_NS_MAX`](wakeline_core::CANCEL_NS_MAX) for any other, which has the watcher wake as
    /// often to look at it.
    pub fn cancelled_by(self, token: &CancelToken) -> Self {
        self.with(|options| options.cancel = Some(token.clone()))
    }

    /// May be told up to `us` microseconds late: its wake-up is then shared with those of others whose times overlap, its word is not
    /// watched closely, its driver is asked as late, and its task is not woken early. Thousands of completions a second cost the
    /// watcher at most one wake-up each `us` so. More than [`LATE_US_MAX`] counts as that. Without, it is told at once.
    pub fn late_us(self, us: u64) -> Self {
        self.with(|options| options.late = Nanos::from_micros(us.min(LATE_US_MAX)))
    }

    /// Whether its task may be woken before its word lands, to watch it itself for at most
    /// [`WATCH_NS_MAX`](crate::WATCH_NS_MAX) in slices of [`WATCH_SLICE_NS_MAX`](crate::WATCH_SLICE_NS_MAX). As the watcher was
    /// set up, by default.
    pub fn early_wake(self, yes: bool) -> Self {
        self.with(|options| options.early_wake = yes)
    }

    /// Whether the task is stirred before an early wake; as [`WatcherConfig::stir`](crate::WatcherConfig::stir) says otherwise.
    pub fn stir(self, yes: bool) -> Self {
        self.with(|options| options.stir = yes)
    }

    /// For a word that the device's own running code stores, as [`Wait::kernel_point`].
    pub fn kernel_point(mut self) -> Self {
        if let State::New { wait, options, .. } = &mut self.state {
            *wait = wait.clone().kernel_point();
            options.kernel = true;
        }
        self
    }

    /// The first poll. `Ok` with the flight, or the outcome where it has one already.
    fn start(
        home: &Arc<Home>,
        point: &Point,
        (mut port, wait, mut options): (P, Wait, Options),
        context: &Context<'_>,
    ) -> Result<(Arc<Flight<P>>, usize), Begun> {
        let hub = &home.hub;
        if hub.is_closing() {
            return Err(Begun::Refused(Error::new(ErrorCode::WatcherClosed, [])));
        }
        let tag = Tag::seated(home).map_err(Begun::Refused)?;
        let plan = *wait.plan();
        let arming = match plan.mode() {
            Mode::Flag { .. } if options.kernel => Arming::Armed,
            Mode::Flag { .. } => port.arm().map_err(Begun::Refused)?,
            Mode::Block | Mode::Poll => Arming::Unsupported,
        };
        // Who may be told late has no use for an early wake.
        options.early_wake &= options.late == Nanos::ZERO;
        let looks = options.cancel.as_ref().is_some_and(|token| !hub.is_rung_by(token));
        let wait = wait
            // What was learned of late wakes is late by so much.
            .expecting(point.forecast(&plan).late_by(options.late))
            .deadline(Some(options.deadline))
            .cancellable(looks)
            .watched(arming);
        let shard = hub.shard_of(&port);
        let now = hub.clock.now();
        let (wait, action) = wait.start(now);
        let flight = Flight::new(tag, options, point.clone(), wait, port);
        let next = flight.carry(now, action);
        if let Some(outcome) = flight.outcome() {
            flight.learn();
            return Err(Begun::Over(outcome));
        }
        flight.tag.waker.register(context.waker());
        let flight = Arc::new(flight);
        hub.posts[shard].shard.add(Arc::clone(&flight) as Arc<dyn Fly>, next);
        Ok((flight, shard))
    }

    /// Nobody awaits it any more.
    fn give_up(&self, flight: Arc<Flight<P>>, shard: usize) {
        wake_time::stop(&flight.lookout, core::ptr::from_ref(&*flight).addr());
        if !flight.is_over() {
            self.point.abandoned();
        }
        flight.abandon();
        self.home.hub.posts[shard].shard.gone(flight);
    }

    /// A later poll.
    fn look(home: &Home, flight: &Flight<P>, context: &mut Context<'_>) -> Poll<Result<Report, Error>> {
        let (tag, clock) = (&flight.tag, &home.hub.clock);
        wake_time::learn(&flight.lookout, &home.wake_time, clock);
        let who = core::ptr::from_ref(flight).addr();
        if let Some(outcome) = flight.outcome() {
            wake_time::stop(&flight.lookout, who);
            return Poll::Ready(outcome);
        }
        let trusted = flight.trusted();
        let ended = || flight.is_over() || trusted && flight.word_reached();
        // Woken early it does so when it is about to watch closely.
        let rehearse = || {
            if trusted {
                let other = flight.rehearsed(clock.now());
                other.tag.waker.register(context.waker());
                panics::let_go(other.tag.waker.take());
            }
        };
        let watched = wake_time::watch(&flight.lookout, who, clock, home.nap, rehearse, ended);
        if watched == Watched::Ended && !flight.is_over() {
            flight.see(clock.now(), Seen::Reached);
        }
        if let Some(outcome) = flight.outcome() {
            // Of an earlier slice: the watcher would call it for nothing when it lets the flight go.
            panics::let_go(tag.waker.take());
            return Poll::Ready(outcome);
        }
        tag.waker.register(context.waker());
        // It may have come between the look and the registration.
        if let Some(outcome) = flight.outcome() {
            return Poll::Ready(outcome);
        }
        if watched == Watched::Again {
            (home.again)(context);
        }
        Poll::Pending
    }
}

/// Nothing of it is pinned.
impl<P> Unpin for WatcherWait<P>
where
    P: CompletionPort + Send + 'static,
    P::Line: Send + Sync + 'static,
{
}

impl<P> Future for WatcherWait<P>
where
    P: CompletionPort + Send + 'static,
    P::Line: Send + Sync + 'static,
{
    type Output = Result<Report, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match core::mem::replace(&mut this.state, State::Over) {
            State::New { port, wait, options } => {
                match Self::start(&this.home, &this.point, (port, wait, options), context) {
                    Ok((flight, shard)) => {
                        this.state = State::Flying { flight, shard };
                        Poll::Pending
                    }
                    Err(Begun::Over(outcome)) => Poll::Ready(outcome),
                    Err(Begun::Refused(error)) => {
                        let outcome = Err(error);
                        this.point.observe(&outcome);
                        Poll::Ready(outcome)
                    }
                }
            }
            State::Flying { flight, shard } => {
                let look = AssertUnwindSafe(|| Self::look(&this.home, &flight, context));
                match catch_unwind(look) {
                    Ok(Poll::Ready(outcome)) => {
                        // The thread that woke this task has done so by now, most likely.
                        flight.learn();
                        Poll::Ready(outcome)
                    }
                    Ok(Poll::Pending) => {
                        this.state = State::Flying { flight, shard };
                        Poll::Pending
                    }
                    // A waker that was cloned or let go. Nobody would be woken from here on: this is over.
                    Err(panic) => {
                        this.give_up(flight, shard);
                        resume_unwind(panic)
                    }
                }
            }
            State::Over => Poll::Ready(Err(Error::new(ErrorCode::PolledAfterEnd, []))),
        }
    }
}

impl<P> Drop for WatcherWait<P>
where
    P: CompletionPort + Send + 'static,
    P::Line: Send + Sync + 'static,
{
    fn drop(&mut self) {
        if let State::Flying { flight, shard } = core::mem::replace(&mut self.state, State::Over) {
            self.give_up(flight, shard);
        }
    }
}

impl<P> fmt::Debug for WatcherWait<P>
where
    P: CompletionPort + Send + 'static,
    P::Line: Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::New { .. } => "new",
            State::Flying { .. } => "flying",
            State::Over => "over",
        };
        f.debug_struct("WatcherWait")
            .field("point", &self.point.name())
            .field("state", &state)
            .finish_non_exhaustive()
    }
}

/// A word or a moment that a task waits for: no port, no plan, no driver. Made by
/// [`WatcherHandle::word`](crate::WatcherHandle::word).
///
/// Resolves to [`Wake::Reached`] once the word has reached its number, to [`Wake::Woke`] once its time has come; polled again after
/// that it says the same. Needs no place among the watcher's flights. Once the watcher is closed it looks by itself at each poll and
/// lets others run in between. Cost: one allocation, none where the word is there at the first poll.
#[must_use = "it waits when it is awaited"]
pub struct WordWait<L>
where
    L: LineRef + Send + Sync + 'static,
{
    home: Arc<Home>,
    state: LookState<L>,
}

enum LookState<L: LineRef> {
    New(Option<MemoryDescriptor<L>>, Instant),
    Flying(Arc<Look<L>>, usize),
    Over(Wake),
}

impl<L: LineRef + Send + Sync + 'static> WordWait<L> {
    pub(super) fn new(home: &Arc<Home>, word: Option<MemoryDescriptor<L>>, until: Instant) -> Self {
        Self { home: Arc::clone(home), state: LookState::New(word, until) }
    }

    /// Nobody awaits it any more.
    fn give_up(home: &Home, look: Arc<Look<L>>, shard: usize) {
        look.tag.abandon();
        home.hub.posts[shard].shard.gone(look);
    }
}

impl<L: LineRef + Send + Sync + 'static> Unpin for WordWait<L> {}

impl<L: LineRef + Send + Sync + 'static> Future for WordWait<L> {
    type Output = Wake;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Wake> {
        let this = self.get_mut();
        let hub = &this.home.hub;
        match core::mem::replace(&mut this.state, LookState::Over(Wake::Woke)) {
            LookState::New(word, until) => {
                let look = Look::new(Tag::new(), word, until);
                let next = look.begin(|| hub.clock.now());
                if let Some(wake) = look.outcome() {
                    return Poll::Ready(wake);
                }
                if hub.is_closing() {
                    // Nobody watches any more: looks at each poll, and lets others run in between.
                    this.state = LookState::New(look.word.clone(), look.until);
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let address = look.word.as_ref().map_or(0, |word| core::ptr::from_ref(word.line()).addr());
                let shard = hub.shard_at(address);
                let register = AssertUnwindSafe(|| look.tag.waker.register(context.waker()));
                if let Err(panic) = catch_unwind(register) {
                    this.state = LookState::New(look.word.clone(), look.until);
                    resume_unwind(panic)
                }
                let look = Arc::new(look);
                hub.posts[shard].shard.add(Arc::clone(&look) as Arc<dyn Fly>, next);
                this.state = LookState::Flying(look, shard);
                Poll::Pending
            }
            LookState::Flying(look, shard) => {
                let register = AssertUnwindSafe(|| look.tag.waker.register(context.waker()));
                if look.outcome().is_none()
                    && let Err(panic) = catch_unwind(register)
                {
                    // Nobody would be woken from here on: begins anew, should it be polled again.
                    this.state = LookState::New(look.word.clone(), look.until);
                    Self::give_up(&this.home, look, shard);
                    resume_unwind(panic)
                }
                match look.outcome() {
                    // The watcher has closed in the middle of it.
                    Some(Wake::Woke) if hub.is_closing() => {
                        this.state = LookState::New(look.word.clone(), look.until);
                        context.waker().wake_by_ref();
                        Poll::Pending
                    }
                    Some(wake) => {
                        this.state = LookState::Over(wake);
                        Poll::Ready(wake)
                    }
                    None => {
                        this.state = LookState::Flying(look, shard);
                        Poll::Pending
                    }
                }
            }
            LookState::Over(wake) => {
                this.state = LookState::Over(wake);
                Poll::Ready(wake)
            }
        }
    }
}

impl<L: LineRef + Send + Sync + 'static> Drop for WordWait<L> {
    fn drop(&mut self) {
        if let LookState::Flying(look, shard) =
            core::mem::replace(&mut self.state, LookState::Over(Wake::Woke))
        {
            Self::give_up(&self.home, look, shard);
        }
    }
}

impl<L: LineRef + Send + Sync + 'static> fmt::Debug for WordWait<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            LookState::New(..) => "new",
            LookState::Flying(..) => "flying",
            LookState::Over(_) => "over",
        };
        f.debug_struct("WordWait").field("state", &state).finish_non_exhaustive()
    }
}
