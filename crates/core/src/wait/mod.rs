//! The wait: a state machine that holds every decision about waiting and touches no clock, thread or driver.
//!
//! Whoever drives it carries out the [`Action`] it asks for and feeds the [`Observation`] that came of it back,
//! as [`drive`](crate::drive) does for inline waits and for the tasks of an executor.
//! A plan is written once, here, and a test replays any wait from a list of observations.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the machine and its diagram |
//! | `adaptive.rs` | deciding anew by what is known of its point |
//! | `action.rs` | what it asks for, and what it is told |
//! | `report.rs` | what a wait did |

mod action;
#[cfg(test)]
mod adapt_tests;
mod adaptive;
mod report;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod warm_tests;

pub use action::{Action, Observation};
pub use report::{End, Outcome, Report, Residual};

use adaptive::Ahead;

use crate::plan::{Authority, Mode, WaitPlan};
use crate::port::{Arming, Status};
use crate::time::{Instant, Nanos};

/// How long a strict wait asks again and again after its word was seen and the driver still says pending, before
/// it takes the store for an early one and sleeps to the backstop. (On an H200 the status agrees 2.4 us after the
/// word at the median, 32 us in the worst 1 %.)
pub const CONFIRM_NS_MAX: u64 = 100_000;

/// How many queries that takes at most, should they take no time.
pub const CONFIRM_QUERIES_MAX: u16 = 1_000;

/// How long a wait that can be cancelled may go without a look at its token.
pub const CANCEL_NS_MAX: u64 = 1_000_000;

/// How many backstop queries in a row may say done before a trusted word is taken for lost. The word had a whole
/// backstop to land after the first.
pub const LOST_QUERIES: u8 = 2;

/// One wait for one point, as a state machine.
///
/// ```text
///              start()
///    block │ poll,flag │ +trust │ kernel's own word, or watched
///          │           │        └──────────┬────────────────────┐
///          ▼           ▼                   ▼                    │
///   (1) Blocking   (2) Asking ─Pending─► (3) Arming             │
///        │   ▲ │        │  │     flag     │        │            │
///        │   └─┘        │  │poll          │Armed   │Unsupported │
///        │ Pending      │  └──────┐       │        │(no word)   │
///        │              │         ▼       ▼        ▼            │
///        │              │      (4) Sleeping, where a prediction ◄
///        │              │       ▲ │ Woke   is worth it
///        │         adapt│       │ ▼
///        │              │      (5) Landing ─Reached, Done──► Late
///        │              │         │ Woke, Pending
///        │              │         ├──────poll─────► (6) Polling ─Done─► Parked
///        │              │         ├────no word────► (7) Napping ⇄ (8) Backstop ─Done─► Parked
///        │              │         ▼                                   ▲
///        │              │      (9) Watching ─Woke, backstop due───────┤
///        │              │         │ Reached                           │
///        │              │         ├─word trusted──► Trusted           │
///        │              │         ▼                                   │
///        │              │     (10) Confirming ─Done─► Parked          │
///        │              │         │ Pending for CONFIRM_NS_MAX        │
///        │              │         ▼                                   │
///        │              │     (11) Doubting ─Woke─────────────────────┘
///        ▼              ▼
///     Blocked       Immediate        any state: Failed, Cancelled, or TimedOut after a last query
/// ```
///
/// Not drawn: by `+adapt` a wait decides anew whether to sleep, after each sleep and whenever a watch has lasted for as long as it was to: from
/// (5), (6), (8) and (9) it goes back to (4), or on. By `+warm` it has its port warm up what comes next, once, between its last sleep and what it does
/// then. A trusted wait that finds that it cannot arm goes to (2), and from there past (3); one whose backstop queries
/// say done [`LOST_QUERIES`] times looks at the word once more and ends in [`End::StoreLost`].
///
/// Every arrow is an arm of [`Wait::step`]. Authorities: under [`Authority::Driver`] it ends well only on the driver's own
/// [`Status::Done`], whatever the word says; under [`Authority::Word`] and [`Authority::Kernel`] only on the word,
/// and backstop queries find faults and lost stores. Where a trusted word cannot be armed, the driver becomes the
/// authority, and the report says so.
///
/// Bounds: by `+predict` no sleep passes `max_sleep_us` from the start, by `+adapt` none is longer; no park passes `park_us`, the next backstop or
/// the deadline; with a deadline the wait ends at the first step at or after it, but for one last question. A wait without
/// deadline on a device that never answers goes on until it is cancelled.
///
/// Cost: at most 80 instructions a step, 242 more for a decision by `+adapt` and what comes of it, no allocation.
///
/// ```
/// use wakeline_core::{Action, End, Instant, Observation, Outcome, Status, Wait, WaitPlan};
/// let plan: WaitPlan = "flag:park_us=50,backstop_us=1000".parse()?;
/// let at = Instant::from_nanos;
/// let (mut wait, first) = Wait::new(&plan).start(at(0));
/// assert_eq!(first, Action::Query);
/// assert_eq!(wait.step(at(300), Observation::Status(Status::Pending)), Action::Arm);
/// assert_eq!(wait.step(at(1_500), Observation::Armed), Action::Park { until: at(51_500) });
/// assert_eq!(wait.step(at(40_000), Observation::Reached), Action::Query);
/// let Action::Finish(report) = wait.step(at(41_000), Observation::Status(Status::Done)) else { panic!() };
/// assert_eq!(report.end, End::Done(Outcome::Parked));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Wait {
    state: State,
    /// Whether there is a word to watch, and whether it is known that there will be none.
    word: bool,
    no_word: bool,
    done_unseen: u8,
    confirms: u16,
    /// The longest park; zero but for a `flag` plan.
    park: Nanos,
    /// The time between two queries while the word is watched; [`Nanos::MAX`] but for a `flag` plan.
    ask_every: Nanos,
    /// The longest park on the word: `park`, or to the next query for a watcher of many words.
    slice: Nanos,
    ahead: Ahead,
    /// [`Instant::MAX`] for none.
    deadline: Instant,
    /// The longest action; [`Nanos::MAX`] without a token to look at.
    look_every: Nanos,
    started: Instant,
    /// When the predicted sleep ends.
    wake: Instant,
    /// When a watch is over: when the driver is asked next, by `+adapt` also when to decide anew.
    due: Instant,
    /// When the word was first seen by a wait that the driver has to confirm.
    seen: Option<Instant>,
    /// When the driver last said pending.
    pending: Instant,
    /// What the next submission needs is to be warmed once it has slept.
    warms: bool,
    /// Grows as the wait goes on; its plan and its authority are the wait's.
    report: Report,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Blocking,
    Asking,
    Arming,
    Sleeping,
    Landing,
    Polling,
    Napping,
    /// Between its last sleep and its watch.
    Warming,
    Watching,
    Confirming,
    Doubting,
    Backstop,
    /// The deadline has come and the authority is asked once more.
    Last,
    /// The same where the deadline ended its sleep, or came before it had looked.
    LastLanding,
    /// The driver has said done often enough; the word is looked at once more.
    Lost,
    Finished,
}

impl Wait {
    /// A wait as the plan says, without prediction, deadline or token. Under the plan's own authority.
    #[inline]
    pub fn new(plan: &WaitPlan) -> Self {
        let (park, ask_every) = match plan.mode() {
            Mode::Flag { park, backstop } => (park, backstop),
            Mode::Block | Mode::Poll => (Nanos::ZERO, Nanos::MAX),
        };
        Self {
            state: State::Asking,
            word: false,
            no_word: false,
            done_unseen: 0,
            confirms: 0,
            park,
            ask_every,
            slice: park,
            ahead: Ahead::Nothing,
            deadline: Instant::MAX,
            look_every: Nanos::MAX,
            started: Instant::ORIGIN,
            wake: Instant::ORIGIN,
            due: Instant::MAX,
            seen: None,
            pending: Instant::ORIGIN,
            warms: plan.warms(),
            report: Report::new(plan),
        }
    }

    /// The plan it follows.
    #[inline]
    pub const fn plan(&self) -> &WaitPlan {
        &self.report.plan
    }

    /// With the residual to expect, from a [`PointTable`](crate::PointTable). Used only by a plan with `+predict`.
    #[must_use]
    #[inline]
    pub fn predicted(mut self, residual: Option<Nanos>) -> Self {
        self.ahead = residual.into();
        self
    }

    /// With a moment at which it ends, done or not, as in
    /// `Wait::new(&plan).deadline(Some(host.now() + Nanos::from_millis(500)))`. `None` and [`Instant::MAX`] are none: then
    /// it ends with the clock.
    #[must_use]
    #[inline]
    pub fn deadline(mut self, at: Option<Instant>) -> Self {
        self.deadline = at.unwrap_or(Instant::MAX);
        self
    }

    /// With a token that its driver looks at between actions: no action then lasts over [`CANCEL_NS_MAX`].
    #[must_use]
    #[inline]
    pub fn cancellable(mut self, yes: bool) -> Self {
        self.look_every = if yes { Nanos::from_nanos(CANCEL_NS_MAX) } else { Nanos::MAX };
        self
    }

    /// For a word that the device's own running code stores: nothing is armed, the word is the authority. Needs a
    /// `flag` plan; with another the plan's own authority stays.
    #[must_use]
    pub fn kernel_point(mut self) -> Self {
        if self.flag() {
            self.report.authority = Authority::Kernel;
        }
        self
    }

    /// For a watcher of many words at once, which had the point armed before [`start`](Self::start): what came of that.
    ///
    /// The driver is then not asked before the word is seen, neither at the start nor after a predicted sleep, and a park lasts to the next backstop query: how long a watcher
    /// spins and naps is its own policy, not the plan's `park_us`. Changes nothing but for a `flag` plan.
    ///
    /// ```
    /// use wakeline_core::{Action, Arming, Instant, Nanos, Wait, WaitPlan};
    /// let plan: WaitPlan = "flag:park_us=50,backstop_us=1000".parse()?;
    /// let (_, action) = Wait::new(&plan).watched(Arming::Armed).start(Instant::ORIGIN);
    /// assert_eq!(action, Action::Park { until: Instant::ORIGIN + Nanos::from_millis(1) });
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    #[must_use]
    pub fn watched(mut self, arming: Arming) -> Self {
        // It is another thread that submits.
        self.warms = false;
        if self.flag() {
            self.slice = self.ask_every;
            self.word = arming == Arming::Armed;
            self.no_word = arming == Arming::Unsupported;
            if self.no_word {
                self.report.authority = Authority::Driver;
            }
        }
        self
    }

    /// Begins the wait: residuals are measured from `now`. Returns the machine and the first action.
    #[must_use]
    pub fn start(mut self, now: Instant) -> (Self, Action) {
        self.started = now;
        self.pending = now;
        let action = match (self.report.plan.mode(), self.report.authority) {
            (Mode::Block, _) => self.block(now),
            (_, authority) if self.word || authority == Authority::Kernel => return self.start_armed(now),
            (_, Authority::Word) => self.go(State::Arming, Action::Arm),
            _ => self.ask(State::Asking),
        };
        (self, action)
    }

    /// Begins where the word is armed. (By itself, so that other waits are made where they are to be, and not moved there.)
    #[inline(never)]
    fn start_armed(mut self, now: Instant) -> (Self, Action) {
        self.word = true;
        self.set_backstop(now);
        let action = self.sleep_or_watch(now);
        (self, action)
    }

    /// When it began: residuals count from then.
    #[inline]
    pub const fn started(&self) -> Instant {
        self.started
    }

    /// When the predicted sleep that it is in ends, `None` where it is in none. What it is asked to sleep until may come before that, for
    /// a deadline or a look at its token.
    pub fn landing(&self) -> Option<Instant> {
        (self.state == State::Sleeping).then_some(self.wake)
    }

    /// Ends a predicted sleep now, as if its time had come: whoever drives the wait looks at the word from here on. What to do then.
    /// In any other state it is a wake for no reason.
    pub fn land_now(&mut self, now: Instant) -> Action {
        if self.state == State::Sleeping {
            self.review_at(self.wake);
            self.wake = self.wake.min(now);
        }
        self.step(now, Observation::Woke)
    }

    /// What to do after `observation` at `now`.
    ///
    /// An observation that does not answer the action asked for counts as a spurious wake, except that a failure, a
    /// cancellation and whatever the authority says always count. After the end the same report is given again.
    pub fn step(&mut self, now: Instant, observation: Observation) -> Action {
        use Observation as O;
        match (self.state, observation) {
            (State::Finished, _) => Action::Finish(self.report),
            (_, O::Failed) => self.finish(now, End::Failed, None),
            (_, O::Cancelled) => self.finish(now, End::Cancelled, None),
            (state, O::Status(Status::Done)) if self.report.authority == Authority::Driver => {
                self.done(now, state)
            }
            (state, O::Reached) if self.trusted() => self.seen_trusted(now, state),
            (State::Last | State::LastLanding, _) => self.finish(now, End::TimedOut, None),
            (State::Lost, _) => self.finish(now, End::StoreLost, None),
            (state, O::Status(status)) => self.answered(now, state, status),
            (state, observation) => {
                match (state, observation) {
                    (State::Arming, O::Armed) => self.word = true,
                    (State::Arming, O::Unsupported) => {
                        self.no_word = true;
                        if self.report.authority != Authority::Driver {
                            self.report.authority = Authority::Driver;
                            if !self.overdue(now) {
                                // It was not asked yet.
                                return self.ask(State::Asking);
                            }
                        }
                    }
                    _ => {}
                }
                if self.overdue(now) { self.last(now) } else { self.woken(now, state, observation) }
            }
        }
    }

    /// The driver has answered, and its answer does not end the wait well.
    fn answered(&mut self, now: Instant, state: State, status: Status) -> Action {
        match status {
            // Only what it asked for itself, each a backstop after the one before: a watcher also asks when another has failed.
            Status::Done => self.done_unseen += u8::from(self.trusted() && state == State::Backstop),
            Status::Pending => {
                self.done_unseen = 0;
                self.pending = now;
            }
        }
        if self.overdue(now) {
            return if self.trusted() { self.last(now) } else { self.finish(now, End::TimedOut, None) };
        }
        if self.done_unseen >= LOST_QUERIES {
            return self.go(State::Lost, Action::Park { until: now });
        }
        match state {
            State::Asking if self.flag() && !self.no_word => self.go(State::Arming, Action::Arm),
            State::Asking => self.sleep_or_watch(now),
            State::Confirming | State::Landing if self.confirming(now) => {
                self.confirms += 1;
                self.ask(state)
            }
            State::Confirming => self.doubt(now),
            State::Backstop | State::Landing if self.seen.is_some() => self.doubt(now),
            State::Landing | State::Backstop => {
                self.set_backstop(now);
                self.go_on(now)
            }
            State::Polling if now >= self.due => self.go_on(now),
            _ => self.woken(now, state, Observation::Woke),
        }
    }

    /// An action came back without an answer that ends the wait: it did what it was to do, its time is up, or it
    /// came back for no reason.
    fn woken(&mut self, now: Instant, state: State, observation: Observation) -> Action {
        match state {
            State::Watching if observation == Observation::Reached => {
                self.seen = Some(now);
                self.ask(State::Confirming)
            }
            State::Arming if matches!(observation, Observation::Armed | Observation::Unsupported) => {
                self.set_backstop(now);
                self.sleep_or_watch(now)
            }
            State::Blocking => self.block(now),
            State::Arming => self.go(State::Arming, Action::Arm),
            State::Sleeping if now < self.wake => self.sleep(now),
            State::Sleeping => self.land(now),
            State::Landing if self.word && self.seen.is_some() => self.ask(State::Landing),
            State::Landing if self.word && observation == Observation::Reached => {
                self.seen = Some(now);
                self.ask(State::Landing)
            }
            State::Landing if self.word => {
                if !self.ahead.adapts() {
                    self.set_backstop(now);
                }
                self.go_on(now)
            }
            State::Watching | State::Warming => self.go_on(now),
            State::Doubting if now < self.due => self.doubt(now),
            State::Doubting | State::Napping => self.ask(State::Backstop),
            State::Asking
            | State::Landing
            | State::Polling
            | State::Confirming
            | State::Backstop
            | State::Last
            | State::LastLanding
            | State::Lost
            | State::Finished => self.ask(state),
        }
    }

    /// The driver says done and is the authority.
    fn done(&mut self, now: Instant, state: State) -> Action {
        let elapsed = now.since(self.started);
        // The work was done when its word was there; the driver only said so later, where others were asked first say.
        let seen = self.seen.map_or(elapsed, |seen| seen.since(self.started));
        let (outcome, residual) = match state {
            State::Blocking => (Outcome::Blocked, None),
            State::Asking => (Outcome::Immediate, Some(Residual::Exact(Nanos::ZERO))),
            State::Sleeping | State::Landing | State::LastLanding => {
                (Outcome::Late, Some(self.censored(seen)))
            }
            State::Confirming => (Outcome::Parked, Some(Residual::Exact(seen))),
            State::Polling => (Outcome::Parked, Some(Residual::Exact(elapsed))),
            _ => (Outcome::Parked, Some(Residual::AtLeast(self.pending.since(self.started)))),
        };
        self.finish(now, End::Done(outcome), residual)
    }

    /// The word is seen and is the authority.
    fn seen_trusted(&mut self, now: Instant, state: State) -> Action {
        let elapsed = now.since(self.started);
        let (outcome, residual) = match state {
            State::Sleeping | State::Landing => (Outcome::Late, self.censored(elapsed)),
            _ => (Outcome::Trusted, Residual::Exact(elapsed)),
        };
        self.finish(now, End::Done(outcome), Some(residual))
    }

    fn censored(&self, wake: Nanos) -> Residual {
        match &self.ahead {
            Ahead::Predicted(prediction) => Residual::AtMost { wake, prediction: *prediction },
            Ahead::Nothing => Residual::AtMost { wake, prediction: wake },
            Ahead::Known(adaptive) => adaptive.between(self.started, wake),
        }
    }

    /// Whether the word is the authority and may be believed by now.
    fn trusted(&self) -> bool {
        self.word && self.report.authority != Authority::Driver
    }

    fn overdue(&self, now: Instant) -> bool {
        now >= self.deadline
    }

    /// Whether the plan watches a word. (No `flag` parks for no time.)
    fn flag(&self) -> bool {
        self.park > Nanos::ZERO
    }

    fn confirming(&self, now: Instant) -> bool {
        self.confirms < CONFIRM_QUERIES_MAX
            && self.seen.is_some_and(|seen| now.since(seen).as_nanos() < CONFIRM_NS_MAX)
    }

    /// The deadline has come: the authority is asked once more, then the wait is over.
    fn last(&mut self, now: Instant) -> Action {
        match self.state {
            State::Sleeping => self.land(now),
            State::Blocking => self.finish(now, End::TimedOut, None),
            // The last look was the last question.
            State::Landing if self.trusted() || !self.word => self.finish(now, End::TimedOut, None),
            State::Landing => self.ask(State::LastLanding),
            State::Arming if !self.word && self.report.authority != Authority::Driver => {
                self.finish(now, End::TimedOut, None)
            }
            _ if self.trusted() => self.go(State::Last, Action::Park { until: now }),
            _ => self.ask(State::Last),
        }
    }

    /// After the arming: sleep where the prediction is worth it, else watch.
    fn sleep_or_watch(&mut self, now: Instant) -> Action {
        if let (Ahead::Predicted(prediction), Some(predict)) = (&self.ahead, self.report.plan.predict()) {
            let length = (*prediction - predict.margin()).min(predict.max_sleep());
            self.wake = self.started + length;
            if self.wake.since(now) >= predict.min_sleep() {
                self.report.sleeps += 1;
                return self.sleep(now);
            }
        }
        if self.ahead.adapts() { self.decide(now) } else { self.watch(now) }
    }

    fn sleep(&mut self, now: Instant) -> Action {
        self.go(State::Sleeping, Action::SleepUntil(self.bounded(now, self.wake)))
    }

    /// The predicted sleep has ended: look whether it was too long.
    fn land(&mut self, now: Instant) -> Action {
        self.report.overshoot = now.since(self.wake);
        if self.ahead.adapts() { self.learn(now) } else { self.look(now) }
    }

    /// A look at the word takes no time, while a question may take microseconds in which the work ends, and the wait would count as late.
    fn look(&mut self, now: Instant) -> Action {
        if !self.trusted() && self.overdue(now) {
            self.ask(State::LastLanding)
        } else if self.word {
            self.go(State::Landing, Action::Park { until: now })
        } else {
            self.ask(State::Landing)
        }
    }

    /// It is known to be pending: watches on, or where that is over asks the driver, or by `+adapt` decides anew.
    fn go_on(&mut self, now: Instant) -> Action {
        if now < self.due { self.watch(now) } else { self.watched_enough(now) }
    }

    /// Waits for the word, or for the next query where there is none.
    fn watch(&mut self, now: Instant) -> Action {
        if self.warms && self.report.sleeps > 0 {
            (self.warms, self.report.warmed) = (false, true);
            return self.go(State::Warming, Action::Warm);
        }
        if !self.flag() {
            return self.ask(State::Polling);
        }
        if !self.word {
            let until = self.bounded(now, (now + self.park).min(self.due));
            return self.go(State::Napping, Action::SleepUntil(until));
        }
        self.report.parks += 1;
        let until = self.bounded(now, (now + self.slice).min(self.due));
        self.go(State::Watching, Action::Park { until })
    }

    /// The word came before the work was done: it says nothing more, so sleep to the next query.
    fn doubt(&mut self, now: Instant) -> Action {
        if self.state != State::Doubting {
            self.set_backstop(now);
            self.review_at(Instant::MAX);
        }
        self.go(State::Doubting, Action::SleepUntil(self.bounded(now, self.due)))
    }

    fn block(&mut self, now: Instant) -> Action {
        let until = Some(self.bounded(now, Instant::MAX)).filter(|until| *until < Instant::MAX);
        self.go(State::Blocking, Action::Block { until })
    }

    fn ask(&mut self, state: State) -> Action {
        self.report.queries += 1;
        self.go(state, Action::Query)
    }

    fn set_backstop(&mut self, now: Instant) {
        self.due = now + self.ask_every;
        if self.ahead.adapts() {
            self.set_ask(self.due);
        }
    }

    /// `until`, but not past the deadline, and not past the next look at the token.
    fn bounded(&self, now: Instant, until: Instant) -> Instant {
        until.min(self.deadline).min(now + self.look_every)
    }

    fn go(&mut self, state: State, action: Action) -> Action {
        self.state = state;
        action
    }

    fn finish(&mut self, now: Instant, end: End, residual: Option<Residual>) -> Action {
        self.state = State::Finished;
        self.report.end = end;
        self.report.residual = residual;
        self.report.elapsed = now.since(self.started);
        if self.ahead.adapts() { self.forget() } else { Action::Finish(self.report) }
    }
}
