//! Flights: what owns everything that submitted work may touch, once its poll is over.
//!
//! ```text
//!   depart ──► (1) in flight ──Tend: done, or its task saw the word─► (2) landed: owners let go ──► future woken
//!                   │   │
//!                   │   └──Tend: fault, closed, refused─────────────► (3) leaked: owners forgotten, counted ──► future woken
//!                   └──dropped untold (who tended is gone) ──► (3)
//!   (2), (3) ──last handle gone──► (4) blank, in the fleet ──depart──► (1)
//! ```
//!
//! A flight is held by whoever tends its point. Its future, where there is one, holds interest in it and nothing more: that may be
//! dropped or forgotten at any moment. Nothing is let go before [`Flight::land`] was told that the point is done. What ends in the poll
//! that submits it never becomes a flight.
//!
//! Flights are kept for those to come, so that one costs no allocation: what counts is not the `Arc`'s count but the handles'.

use core::ops::Deref;
use core::task::{Context, Poll, Waker};
use std::sync::{Arc, PoisonError};

use wakeline_core::{Awaiter, Error, ErrorCode, Instant, Lookout, Nanos, Report, Residual};

use crate::counts::Counters;
use crate::drain::Drains;
use crate::known::{Kind, Known};
use crate::lane::{Permit, Ticket};
use crate::lock;
use crate::owner::Owners;
use crate::panics::survive;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Condvar, Lock, Ordering};

/// How many flights that are over are kept for those to come; about 400 bytes each.
const KEPT_MAX: usize = 1_024;

/// What all flights of a device share.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) counters: Counters,
    pub(crate) known: Known,
    pub(crate) drains: Drains,
    /// Who tends has closed: nobody would see another flight to its end.
    closed: AtomicBool,
    /// How many graphs were made.
    graphs: AtomicU64,
    blank: Lock<Vec<Arc<Flight>>>,
}

impl Fleet {
    pub(crate) fn new() -> Arc<Self> {
        let (counters, known, drains) = (Counters::default(), Known::new(), Drains::new());
        let (closed, graphs, blank) = (AtomicBool::new(false), AtomicU64::new(0), Lock::new(Vec::new()));
        Arc::new(Self { counters, known, drains, closed, graphs, blank })
    }

    /// A number for another graph, which tells its launches apart from those of others in what is known of them; 0 is for what has none. Of these runtimes alone, so that what is
    /// known does not depend on who else makes graphs in this process.
    pub(crate) fn number_graph(&self) -> u64 {
        self.graphs.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Runs what others wrote where there is nobody to be told of its panic.
    fn guard(&self, f: impl FnOnce()) {
        if !survive(f) {
            Counters::add(&self.counters.panics, 1);
        }
    }

    /// Wakes a task, in whose waker nobody is to be told of a panic.
    fn wake(&self, waker: Waker) {
        if !lock::wake(waker) {
            Counters::add(&self.counters.panics, 1);
        }
    }

    /// Whether who tends has closed, as a flight was told.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Lets go what a flight keeps where the work is done, else leaks it.
    pub(crate) fn settle(&self, owners: &mut Owners, permit: &mut Option<Permit>, ended: Ended) {
        if ended == Ended::Done {
            self.let_go(owners);
            Counters::add(&self.counters.landed, 1);
        } else {
            if ended == Ended::Closed {
                // Before its place is given back: who waits for one is woken by that, or finds this.
                self.closed.store(true, Ordering::SeqCst);
            }
            match permit {
                Some(permit) if ended == Ended::Failed => permit.lost(),
                Some(permit) => permit.unseen(),
                None => {}
            }
            self.leak(owners);
        }
        // Whoever waits for room finds it, or the fault. No waker's panic comes from here.
        drop(permit.take());
        self.drains.ended(&self.counters);
    }

    /// Lets go what was kept for work that is done.
    #[inline]
    pub(crate) fn let_go(&self, owners: &mut Owners) {
        // Each, whatever becomes of those before it.
        while !survive(|| owners.let_go()) {
            Counters::add(&self.counters.panics, 1);
        }
    }

    #[cold]
    fn leak(&self, owners: &mut Owners) {
        Counters::add(&self.counters.owners_leaked, owners.len() as u64);
        owners.for_each(core::mem::forget);
        Counters::add(&self.counters.leaked, 1);
    }

    /// Learns from the end of a flight.
    #[inline]
    pub(crate) fn learn(&self, course: &Course, permit: Option<&Permit>, seen: Option<Seen>) {
        let Some(permit) = permit else { return };
        let Some(seen) = seen else { return };
        if let Some(lesson) = permit.lane().arrive(&course.ticket, seen.at, seen.exact) {
            let Ticket { service, .. } = course.ticket;
            self.known.learn(course.kind, lesson.took, course.late, lesson.exact, service);
        }
    }
}

/// What is known of the work of a flight that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// It is done.
    Done,
    /// Its device has failed: nothing is in a queue any more.
    Failed,
    /// Nobody sees it to its end, though the device goes on.
    Unseen,
    /// The same, as it is of all others, since who tends has closed.
    Closed,
}

impl Ended {
    fn of(outcome: &Result<(), Error>) -> Self {
        match outcome.as_ref().map_err(Error::code) {
            Ok(()) => Self::Done,
            Err(ErrorCode::WatcherClosed) => Self::Closed,
            Err(ErrorCode::WatcherFull | ErrorCode::HelpersBusy) => Self::Unseen,
            Err(_) => Self::Failed,
        }
    }
}

/// What a flight was expected to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    pub(crate) kind: Kind,
    pub(crate) ticket: Ticket,
    /// When it was handed to whoever tends: the wait counts from then.
    pub(crate) handed: Instant,
    /// By how much its end may be told late.
    pub(crate) late: Nanos,
}

/// When work was seen to have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    /// It ended then; else before.
    pub(crate) exact: bool,
}

impl Seen {
    /// As a report tells of a wait that began then.
    fn of(report: &Report, begun: Instant) -> Option<Self> {
        let (took, exact) = match report.residual? {
            Residual::Exact(took) => (took, true),
            Residual::AtMost { .. } => (report.elapsed, false),
            // Of a wait that was not watched closely.
            _ => return Some(Self { at: begun + report.elapsed, exact: true }),
        };
        Some(Self { at: begun + took, exact })
    }
}

pub(crate) struct Flight {
    state: Lock<State>,
    /// There is an outcome.
    landed: Condvar,
    /// How many hold it.
    handles: AtomicUsize,
    /// Somebody ends it, or has.
    over: AtomicBool,
    /// Its task may be woken before the end, to watch.
    watches: AtomicBool,
    lookout: Lookout,
    /// What its task is called where it watches.
    who: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// Whose it is; `None` while it is blank.
    fleet: Option<Arc<Fleet>>,
    owners: Owners,
    permit: Option<Permit>,
    course: Option<Course>,
    outcome: Option<Result<(), Error>>,
    waker: Option<Waker>,
    /// Somebody waits for the outcome on the spot.
    waited_for: bool,
}

impl core::fmt::Debug for Flight {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Flight").finish_non_exhaustive()
    }
}

/// One who holds a flight. The last of them makes it blank.
#[derive(Debug)]
pub(crate) struct Handle(Arc<Flight>);

/// What is known of a flight that somebody awaits, when it is handed over.
#[derive(Debug)]
pub(crate) struct Awaited {
    pub(crate) course: Course,
    pub(crate) waker: Waker,
    /// What its task is called where it watches.
    pub(crate) who: usize,
    /// Whether its task may be woken before the end, to watch.
    pub(crate) watches: bool,
    /// Where it watches by now: until when.
    pub(crate) until: Option<Instant>,
}

impl Handle {
    /// A flight that keeps all this, and is counted by now. Takes the owners out.
    pub(crate) fn new(
        fleet: &Arc<Fleet>,
        owners: &mut Owners,
        permit: Option<Permit>,
        awaited: Option<Awaited>,
    ) -> Self {
        let kept = fleet.blank.lock().pop();
        let flight = kept.unwrap_or_else(|| {
            Arc::new(Flight {
                state: Lock::new(State::default()),
                landed: Condvar::new(),
                handles: AtomicUsize::new(0),
                over: AtomicBool::new(false),
                watches: AtomicBool::new(false),
                lookout: Lookout::new(),
                who: AtomicUsize::new(0),
            })
        });
        flight.handles.store(1, Ordering::Relaxed);
        {
            let mut state = flight.state.lock();
            state.fleet = Some(Arc::clone(fleet));
            state.owners.take_from(owners);
            state.permit = permit;
            if let Some(Awaited { course, waker, who, watches, until }) = awaited {
                state.course = Some(course);
                state.waker = Some(waker);
                flight.who.store(who, Ordering::Relaxed);
                flight.watches.store(watches, Ordering::Relaxed);
                if let Some(until) = until {
                    flight.lookout.watch_until(until);
                }
            }
        }
        Self(flight)
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        self.0.handles.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl Deref for Handle {
    type Target = Flight;

    fn deref(&self) -> &Flight {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // All that others did with it comes before it is made blank.
        if self.0.handles.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // Where nothing was told, whoever tended it is gone: the device may still be at work.
        if !self.0.is_over() {
            self.0.land(Err(Error::new(ErrorCode::WatcherClosed, [])));
        }
        self.0.over.store(false, Ordering::Relaxed);
        self.0.watches.store(false, Ordering::Relaxed);
        self.0.lookout.stop();
        self.0.lookout.take_woken();
        // Its end has taken everything else.
        let (fleet, waker) = {
            let mut state = self.0.state.lock();
            state.outcome = None;
            state.waited_for = false;
            (state.fleet.take(), state.waker.take())
        };
        let Some(fleet) = fleet else { return };
        {
            let mut blank = fleet.blank.lock();
            if blank.len() < KEPT_MAX {
                blank.push(Arc::clone(&self.0));
            }
        }
        if let Some(waker) = waker {
            // Somebody else's.
            fleet.guard(|| drop(waker));
        }
    }
}

impl Awaiter for Handle {
    fn lookout(&self) -> Option<&Lookout> {
        self.watches.load(Ordering::Relaxed).then_some(&self.lookout)
    }

    fn wake(&self) {
        // Taken, and not cloned: the poll that it leads to brings another.
        let (waker, fleet) = {
            let mut state = self.state.lock();
            (state.waker.take(), state.fleet.clone())
        };
        if let (Some(waker), Some(fleet)) = (waker, fleet) {
            fleet.wake(waker);
        }
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

impl Flight {
    /// What a wait for the point says of it.
    ///
    /// A lost store ends a wait by the word with an error, but by then the driver has said that the work is done.
    fn meaning(waited: Result<Report, Error>) -> (Result<(), Error>, Option<Report>) {
        match waited {
            Err(error) if error.code() != ErrorCode::StoreLost => (Err(error), None),
            waited => (Ok(()), waited.ok()),
        }
    }

    /// Ends the flight as a wait for its point did.
    pub(crate) fn land_told(&self, waited: Result<Report, Error>) {
        let (outcome, report) = Self::meaning(waited);
        self.end(outcome, |course| report.and_then(|report| Seen::of(&report, course.handed)));
    }

    /// Ends the flight, whose word its own task has seen: under one lock, and nobody is woken. False where somebody else ends it: then its task is
    /// told as any.
    pub(crate) fn see(&self, seen: Seen) -> bool {
        let Some((fleet, waker)) = self.settle(Ended::Done, |_| Some(seen), |state| state.waker.take())
        else {
            return false;
        };
        Counters::add(&fleet.counters.watched, 1);
        if let Some(waker) = waker {
            fleet.guard(|| drop(waker));
        }
        true
    }

    /// Ends the flight; nothing is known of when.
    pub(crate) fn land(&self, outcome: Result<(), Error>) {
        self.end(outcome, |_| None);
    }

    /// Ends the flight, then wakes whoever awaits it.
    fn end(&self, outcome: Result<(), Error>, seen: impl FnOnce(&Course) -> Option<Seen>) {
        let Some((fleet, ())) = self.settle(Ended::of(&outcome), seen, |_| ()) else { return };
        // Only now: who has been told finds nothing kept any more.
        let (waker, waited_for) = {
            let mut state = self.state.lock();
            state.outcome = Some(outcome);
            (state.waker.take(), state.waited_for)
        };
        if waited_for {
            // A system call, whether or not somebody waits.
            self.landed.notify_all();
        }
        if let Some(waker) = waker {
            fleet.wake(waker);
        }
    }

    /// The first time that it is called: lets go what it keeps where the work is done, else leaks it. Whose it is, and what was `also` taken
    /// out at the same time.
    fn settle<T>(
        &self,
        ended: Ended,
        seen: impl FnOnce(&Course) -> Option<Seen>,
        also: impl FnOnce(&mut State) -> T,
    ) -> Option<(Arc<Fleet>, T)> {
        // `AcqRel`: whoever finds it over finds all that came before.
        if self.over.swap(true, Ordering::AcqRel) {
            return None;
        }
        let mut owners = Owners::new();
        let (fleet, mut permit, course, also) = {
            let mut state = self.state.lock();
            owners.take_from(&mut state.owners);
            (state.fleet.clone()?, state.permit.take(), state.course.take(), also(&mut state))
        };
        if let Some(course) = &course {
            let seen = if ended == Ended::Done { seen(course) } else { None };
            fleet.learn(course, permit.as_ref(), seen);
        }
        fleet.settle(&mut owners, &mut permit, ended);
        Some((fleet, also))
    }

    /// Whether somebody ends it, or has.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn lookout(&self) -> (&Lookout, usize) {
        (&self.lookout, self.who.load(Ordering::Relaxed))
    }

    /// What has become of it. Makes no driver call.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<(), Error>> {
        {
            let state = self.state.lock();
            if let Some(outcome) = state.outcome.clone() {
                return Poll::Ready(outcome);
            }
            if state.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                return Poll::Pending;
            }
        }
        // Cloned and dropped without the lock: a waker is somebody else's code.
        let waker = context.waker().clone();
        let (outcome, old) = {
            let mut state = self.state.lock();
            match state.outcome.clone() {
                Some(outcome) => (Poll::Ready(outcome), Some(waker)),
                None => (Poll::Pending, state.waker.replace(waker)),
            }
        };
        drop(old);
        outcome
    }

    /// Nobody awaits it any more.
    pub(crate) fn abandon(&self) {
        self.watches.store(false, Ordering::Relaxed);
        let (waker, fleet) = {
            let mut state = self.state.lock();
            (state.waker.take(), state.fleet.clone())
        };
        if let (Some(waker), Some(fleet)) = (waker, fleet) {
            fleet.guard(|| drop(waker));
        }
    }

    /// The same as [`land`](Self::land), and waits for whoever else ends it at the same time.
    pub(crate) fn land_and_wait(&self, outcome: Result<(), Error>) {
        self.land(outcome);
        let mut state = self.state.lock();
        while state.outcome.is_none() {
            // Letting go what others wrote panics at most, which is counted: an outcome comes.
            state.waited_for = true;
            state = self.landed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
