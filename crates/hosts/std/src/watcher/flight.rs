//! Flights: what a watcher watches for a future.
//!
//! ```text
//!   future (any thread)                    shard (its leading thread)
//!   ───────────────────                    ──────────────────────────
//!   makes the flight, arms, starts ──────► follows what is to come next: watch, sleep, ask, block
//!   polled: is there an outcome? ◄──────── sets the outcome, then takes and wakes the waker
//!   dropped: gives up interest ──────────► lets it go
//! ```
//!
//! A flight is one allocation, shared by its future and its shard. Its state machine and its port stand behind a lock of its own that
//! is held for a step at a time: never during a driver call, for which the port is taken out, and never while a waker is called.

use std::sync::Arc;

use wakeline_core::{
    Action, Authority, CancelToken, Clock, CompletionPort, ContextKey, Error, ErrorCode, Instant, Lookout,
    MemoryDescriptor, Nanos, Observation, Report, Wait, WaitPlan,
};

use super::home::Home;
use super::lines::Lines;
use super::panics;
use super::sync::{AtomicBool, AtomicU32, AtomicWaker, Lock, Once, Ordering};
use super::wake_time::Lead;
use crate::points::Point;

/// How long after a landing the end may be expected for the task to be woken early.
const MARGIN_NS_MAX: u64 = 200_000;

/// The number of a flight that its shard has not seen yet.
pub(super) const NOWHERE: u32 = u32::MAX;

/// What has happened to a flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// Its word has reached its number.
    Reached,
    /// The time that it named has come, or somebody looks for another reason.
    Due,
    /// The watcher closes.
    Closed,
}

/// What a flight needs next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Its word is to be watched until then.
    Watch { until: Instant },
    /// Its task watches its word until then.
    Watched { until: Instant },
    /// It sleeps until then.
    Sleep { until: Instant },
    /// It sleeps until then, and its word is to be watched from then on.
    Land { at: Instant },
    /// The driver is to be asked.
    Ask,
    /// The driver is being asked, and nothing is to be done before it has answered or this moment has come.
    Asked { until: Instant },
    /// The driver's own wait is to be made on a thread of its own; it is to be looked at then.
    Block { until: Instant },
    /// It has an outcome, and wants nothing any more.
    Over,
}

impl Next {
    /// When it has to be looked at by.
    pub(super) fn due(self) -> Instant {
        match self {
            Self::Sleep { until } | Self::Land { at: until } | Self::Watched { until } => until,
            _ => Instant::ORIGIN,
        }
    }
}

/// What a shard knows of its flights.
pub(super) trait Fly: Send + Sync {
    fn tag(&self) -> &Tag;

    /// Tells its task, which is woken at about `wake_at` for that, to watch.
    fn rouse(&self, _wake_at: Instant, _lead: Lead) {}

    /// Where there is no waker but somebody to be told: tells of the end, once, or before that wakes the task for nothing. False where
    /// there is nobody. Runs code of others: the caller holds no lock.
    fn tell(&self) -> bool {
        false
    }

    /// The shard is done with it. Runs code of others: the caller holds no lock.
    fn retire(self: Arc<Self>) {
        panics::let_go(self);
    }

    /// Takes what was seen, and says what comes next. Calls no driver and no waker.
    fn see(&self, now: Instant, seen: Seen) -> Next;

    /// Ends a predicted sleep before its time, since somebody looks at the word from now on.
    fn land(&self, now: Instant) -> Next;

    /// Does what is done at the end by its word, for nothing: what that needs has gone from the caches in a long sleep, and is fetched at a moment at which
    /// its word would only be watched.
    fn rehearse(&self, _now: Instant) {}

    /// Asks the driver and takes its answer; whether it failed. The caller holds no lock.
    fn ask(&self, clock: &dyn Clock) -> (Next, Option<Error>);

    /// Makes the driver's own wait, and ends the flight. The caller holds no lock.
    fn block(&self, clock: &dyn Clock);

    /// Lets its port go, once it is over.
    fn let_go(&self);

    /// Ends it with an error that is not the wait's own.
    fn fail(&self, error: Error);

    /// The moment at which it ends, done or not.
    fn deadline(&self) -> Instant;

    /// How late it may be told, in the interest of fewer wake-ups.
    fn late(&self) -> Nanos;

    /// Whether it has a token that has to be looked at.
    fn looks(&self) -> bool;

    /// Whether its token has been cancelled.
    fn cancelled(&self) -> bool;

    /// Whether its task is to be stirred before it is woken early.
    fn stirs(&self) -> bool {
        false
    }

    /// Whether the word alone ends it.
    fn trusted(&self) -> bool;

    /// How its task is to be woken before the word is watched, if it is.
    fn early(&self, landing: Instant) -> Option<Lead>;

    fn context(&self) -> Option<ContextKey>;

    /// Whether it has ended, its task having seen to that perhaps.
    fn ended(&self) -> bool;

    /// Has its point learn from its outcome, once, whoever comes first. Runs code of the user's: the caller holds no lock.
    fn observe(&self);

    fn watch(&self, lines: &mut Lines, flight: u32);
    fn unwatch(&self, lines: &mut Lines, flight: u32);
}

/// What every flight has. Kept small: words that are awaited by the million have nothing else.
#[derive(Debug)]
pub(super) struct Tag {
    /// Whose seat it takes, if it does.
    home: Option<Arc<Home>>,
    pub(super) waker: AtomicWaker,
    /// Where it stands in its shard.
    pub(super) number: AtomicU32,
    /// Nobody awaits it any more.
    abandoned: AtomicBool,
    /// Whether it counts against the limit.
    seated: AtomicBool,
}

impl Tag {
    /// Takes a seat.
    pub(super) fn seated(home: &Arc<Home>) -> Result<Self, Error> {
        home.hub.take_seat()?;
        let mut tag = Self::new();
        tag.home = Some(Arc::clone(home));
        tag.seated.store(true, Ordering::Relaxed);
        Ok(tag)
    }

    /// Needs no seat.
    pub(super) fn new() -> Self {
        Self {
            home: None,
            waker: AtomicWaker::new(),
            number: AtomicU32::new(NOWHERE),
            abandoned: AtomicBool::new(false),
            seated: AtomicBool::new(false),
        }
    }

    /// Whether there is something to be learned from its end.
    pub(super) fn learns(&self) -> bool {
        self.home.is_some()
    }

    pub(super) fn abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Its future is gone.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        self.leave_seat();
        // Outside of everything: whatever it holds is let go here.
        drop(self.waker.take());
    }

    pub(super) fn leave_seat(&self) {
        if let Some(home) = &self.home
            && self.seated.swap(false, Ordering::AcqRel)
        {
            home.hub.leave_seat();
        }
    }
}

impl Drop for Tag {
    fn drop(&mut self) {
        self.leave_seat();
    }
}

/// A wait: the state machine and its port.
#[derive(Debug)]
pub(super) struct Flight<P: CompletionPort> {
    pub(super) tag: Tag,
    /// Where its task is told until when to watch.
    pub(super) lookout: Lookout,
    /// When its wait began.
    begun: Instant,
    pub(super) options: Options,
    point: Point,
    observed: AtomicBool,
    word: Option<MemoryDescriptor<P::Line>>,
    context: Option<ContextKey>,
    trusted: bool,
    inner: Lock<Inner<P>>,
    outcome: Once<Result<Report, Error>>,
}

/// What the user asked for beside the plan.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) deadline: Instant,
    pub(super) cancel: Option<CancelToken>,
    pub(super) late: Nanos,
    pub(super) early_wake: bool,
    pub(super) stir: bool,
    /// The device's own code stores the word: nothing is to be armed.
    pub(super) kernel: bool,
}

#[derive(Debug)]
struct Inner<P> {
    wait: Wait,
    /// Out while the driver is called, and for good once nobody awaits it.
    port: Option<P>,
    fault: Option<Error>,
}

impl<P: CompletionPort> Flight<P> {
    /// One that stands for nothing, for its memory.
    pub(super) fn blank(point: &Point) -> Self {
        let options = Options {
            deadline: Instant::MAX,
            cancel: None,
            late: Nanos::ZERO,
            early_wake: false,
            stir: false,
            kernel: false,
        };
        Self {
            tag: Tag::new(),
            lookout: Lookout::new(),
            begun: Instant::ORIGIN,
            options,
            point: point.clone(),
            observed: AtomicBool::new(false),
            word: None,
            context: None,
            trusted: false,
            inner: Lock::new(Inner { wait: Wait::new(&WaitPlan::poll()), port: None, fault: None }),
            outcome: Once::new(),
        }
    }

    /// The flight of a wait that has been started.
    pub(super) fn new(tag: Tag, options: Options, point: Point, wait: Wait, port: P) -> Self {
        Self {
            tag,
            lookout: Lookout::new(),
            begun: wait.started(),
            options,
            point,
            observed: AtomicBool::new(false),
            word: port.descriptor().cloned(),
            context: port.context(),
            trusted: wait.plan().authority() != Authority::Driver && port.descriptor().is_some(),
            inner: Lock::new(Inner { wait, port: Some(port), fault: None }),
            outcome: Once::new(),
        }
    }

    /// Has the task that is told by this lookout watch.
    pub(super) fn rouse_by(&self, lookout: &Lookout, wake_at: Instant, lead: Lead) {
        // By how much the shard's thread is late is part of what a wake-up takes.
        lookout.woken(wake_at, wake_at.since(self.begun));
        lookout.expect(lead.due);
        lookout.watch_until(lead.until);
        lookout.land(lead.landing);
    }

    pub(super) fn point(&self) -> &Point {
        &self.point
    }

    pub(super) fn outcome(&self) -> Option<Result<Report, Error>> {
        self.outcome.get()
    }

    /// Has its point learn from its outcome, unless that was done.
    pub(super) fn learn(&self) {
        if !self.observed.load(Ordering::Relaxed)
            && let Some(outcome) = self.outcome.get()
            && !self.observed.swap(true, Ordering::AcqRel)
        {
            self.point.observe(&outcome);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.outcome.is_set()
    }

    pub(super) fn word_reached(&self) -> bool {
        self.word.as_ref().is_some_and(MemoryDescriptor::reached)
    }

    /// Carries out what the machine asks for, as far as that needs no driver and no time.
    pub(super) fn carry(&self, now: Instant, action: Action) -> Next {
        self.carried(&mut self.inner.lock(), now, action)
    }

    fn carried(&self, inner: &mut Inner<P>, now: Instant, mut action: Action) -> Next {
        loop {
            // A plan that asks all the time comes by here alone.
            if self.cancelled() && !matches!(action, Action::Finish(_)) {
                action = inner.wait.step(now, Observation::Cancelled);
            }
            action = match action {
                Action::Query if inner.port.is_some() => return Next::Ask,
                // Its port is in a call: what that says is taken when it comes, but the end does not wait for it.
                Action::Query if now >= self.options.deadline => inner.wait.step(now, Observation::Woke),
                Action::Query => return Next::Asked { until: self.options.deadline },
                // Armed before it started, where it can be.
                Action::Arm => inner.wait.step(now, Observation::Unsupported),
                // Another thread submits what is next.
                Action::Warm => inner.wait.step(now, Observation::Woke),
                // Else it is to be looked at before it lands, or does not land at all.
                Action::SleepUntil(at) if inner.wait.landing() == Some(at) => return Next::Land { at },
                Action::SleepUntil(until) => return Next::Sleep { until },
                Action::Park { .. } if self.word_reached() => inner.wait.step(now, Observation::Reached),
                Action::Park { until } if until <= now => inner.wait.step(now, Observation::Woke),
                Action::Park { until } => return Next::Watch { until },
                Action::Block { until } => return Next::Block { until: until.unwrap_or(Instant::MAX) },
                Action::Finish(report) => {
                    let port = inner.port.as_ref().filter(|_| report.outcome().is_some());
                    // A backend that panics here has told of the end all the same.
                    let ended = panics::caught("ended", || Ok(port.and_then(CompletionPort::ended)));
                    let report = report.ended_at(inner.wait.started(), ended.unwrap_or_default());
                    self.end(report.into_result(self.word.as_ref(), inner.fault.take()));
                    return Next::Over;
                }
            }
        }
    }

    /// Sets the outcome, unless there is one.
    fn end(&self, outcome: Result<Report, Error>) {
        if self.outcome.set(outcome) {
            self.tag.leave_seat();
        }
    }

    /// Nobody awaits it any more: its port is let go here, unless it is in a call, which then does that.
    pub(super) fn abandon(&self) {
        self.tag.abandon();
        let port = self.inner.lock().port.take();
        drop(port);
    }

    /// Goes through its end by its word on another that is let go here, so that what that needs is in the processor's caches: a sleep of milliseconds
    /// leaves some forty of their lines to fetch, 2.5 us on an H200's host, of which nothing is to be fetched once the word is there. That other.
    pub(super) fn rehearsed(&self, now: Instant) -> Self {
        let other = Self::blank(&self.point);
        {
            let inner = self.inner.lock();
            let ended = panics::caught("ended", || Ok(inner.port.as_ref().and_then(CompletionPort::ended)));
            core::hint::black_box(&ended);
            other.inner.lock().wait.clone_from(&inner.wait);
        }
        let action = other.inner.lock().wait.step(now, Observation::Reached);
        // Nothing but an end by the word: what else it may want next is not for that other.
        if matches!(action, Action::Finish(_)) {
            other.carry(now, action);
        }
        if let Some(Ok(report)) = other.outcome() {
            self.point.rehearse(&report);
        }
        other
    }

    fn cancelled(&self) -> bool {
        self.options.cancel.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    fn take_port(&self) -> Option<P> {
        self.inner.lock().port.take()
    }

    /// Takes the port back and the driver's answer.
    fn answered(&self, now: Instant, port: P, answer: Result<Observation, Error>) -> Next {
        let mut inner = self.inner.lock();
        // Under the lock: whoever abandons sets the mark before it looks for the port.
        if self.tag.abandoned() {
            drop(inner);
            panics::let_go(port);
            return Next::Over;
        }
        inner.port = Some(port);
        let observation = match answer {
            Ok(observation) => observation,
            Err(error) => {
                inner.fault = Some(error);
                Observation::Failed
            }
        };
        let action = inner.wait.step(now, observation);
        self.carried(&mut inner, now, action)
    }
}

impl<P> Fly for Flight<P>
where
    P: CompletionPort + Send + 'static,
    P::Line: Send + Sync + 'static,
{
    fn tag(&self) -> &Tag {
        &self.tag
    }

    fn rouse(&self, wake_at: Instant, lead: Lead) {
        self.rouse_by(&self.lookout, wake_at, lead);
    }

    fn see(&self, now: Instant, seen: Seen) -> Next {
        if self.is_over() {
            return Next::Over;
        }
        let observation = match seen {
            Seen::Closed => {
                self.end(Err(Error::new(ErrorCode::WatcherClosed, [])));
                return Next::Over;
            }
            _ if self.cancelled() => Observation::Cancelled,
            Seen::Due if !self.word_reached() => Observation::Woke,
            Seen::Reached | Seen::Due => Observation::Reached,
        };
        let mut inner = self.inner.lock();
        let action = inner.wait.step(now, observation);
        self.carried(&mut inner, now, action)
    }

    fn rehearse(&self, now: Instant) {
        self.rehearsed(now);
    }

    fn land(&self, now: Instant) -> Next {
        if self.is_over() {
            return Next::Over;
        }
        if self.cancelled() {
            return self.see(now, Seen::Due);
        }
        let mut inner = self.inner.lock();
        let action = inner.wait.land_now(now);
        self.carried(&mut inner, now, action)
    }

    fn ask(&self, clock: &dyn Clock) -> (Next, Option<Error>) {
        let Some(mut port) = self.take_port() else {
            return (
                if self.tag.abandoned() { Next::Over } else { Next::Asked { until: self.options.deadline } },
                None,
            );
        };
        let answer = panics::caught("query", || port.query());
        let failure = answer.as_ref().err().cloned();
        let next = self.answered(clock.now(), port, answer.map(Observation::Status));
        (next, failure)
    }

    fn block(&self, clock: &dyn Clock) {
        if self.is_over() {
            // While no helper had come to it.
            return;
        }
        let Some(mut port) = self.take_port() else { return };
        let mut until = Some(self.options.deadline).filter(|deadline| *deadline < Instant::MAX);
        loop {
            let answer = panics::caught("block", || match port.block(until) {
                // Then the shard ends the wait in time, and this thread is stuck for as long as the driver likes.
                Err(error) if error.code() == ErrorCode::BlockUnbounded => port.block(None),
                answer => answer,
            });
            match self.answered(clock.now(), port, answer.map(Observation::Status)) {
                Next::Block { until: bound } => until = Some(bound).filter(|bound| *bound < Instant::MAX),
                _ => return,
            }
            match self.take_port() {
                Some(taken) => port = taken,
                None => return,
            }
        }
    }

    fn let_go(&self) {
        panics::let_go(self.take_port());
    }

    fn fail(&self, error: Error) {
        self.end(Err(error));
    }

    fn deadline(&self) -> Instant {
        self.options.deadline
    }

    fn late(&self) -> Nanos {
        self.options.late
    }

    fn looks(&self) -> bool {
        self.options.cancel.as_ref().is_some_and(|token| token.bell().is_none())
    }

    fn cancelled(&self) -> bool {
        Self::cancelled(self)
    }

    fn stirs(&self) -> bool {
        self.options.stir
    }

    fn trusted(&self) -> bool {
        self.trusted
    }

    fn early(&self, landing: Instant) -> Option<Lead> {
        if !self.options.early_wake || self.word.is_none() {
            return None;
        }
        // A landing far ahead of the end is followed by another: its task would be woken to no end.
        let margin = self.inner.lock().wait.margin().filter(|margin| margin.as_nanos() <= MARGIN_NS_MAX)?;
        let lead = self.tag.home.as_ref()?.wake_time.early(self.begun, landing, margin);
        Some(Lead { until: lead.until.min(self.options.deadline), ..lead })
    }

    fn ended(&self) -> bool {
        self.is_over()
    }

    fn context(&self) -> Option<ContextKey> {
        self.context
    }

    fn observe(&self) {
        self.learn();
    }

    fn watch(&self, lines: &mut Lines, flight: u32) {
        if let Some(word) = &self.word {
            lines.add(word, flight);
        }
    }

    fn unwatch(&self, lines: &mut Lines, flight: u32) {
        if let Some(word) = &self.word {
            lines.remove(word, flight);
        }
    }
}
