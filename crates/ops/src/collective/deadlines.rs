//! Until when what ranks do together must have ended: one alarm of who tends, for all that is under way.

use core::mem;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use wakeline_core::{Error, ErrorCode, Instant, Nanos};

use super::{Beginning, GIVE_UP_MS, Shared, Ticket};
use crate::port::Collectives;
use crate::sync::Lock;

/// How often it is looked, while something is under way, whether the communicator has failed by itself: what an abort does not end then is given up long before its deadline.
const LOOK_EVERY: Nanos = Nanos::from_millis(GIVE_UP_MS);

#[derive(Debug)]
pub(crate) struct Deadlines(Lock<State>);

#[derive(Debug)]
struct State {
    /// In the order in which they came, which is that of their ends where their limits are alike.
    due: VecDeque<Due>,
    /// For when an alarm is set, and its number: one that is woken early sets another for the same moment, and is none any more.
    alarm_at: Instant,
    alarm: u64,
    /// It has failed, and is given up then.
    given_up_at: Option<Instant>,
}

#[derive(Debug)]
struct Due {
    at: Instant,
    limit: Nanos,
    what: &'static str,
    /// The rank, where it is one's alone.
    rank: Option<usize>,
    ticket: Arc<Ticket>,
}

impl Due {
    fn is_over(&self) -> bool {
        self.ticket.outcome().is_some()
    }

    fn missed(&self) -> Error {
        let what = match self.rank {
            Some(rank) => format!("{} of rank {rank}", self.what),
            None => self.what.to_owned(),
        };
        match self.ticket.beginning() {
            Some(Beginning { library, loads_early }) => {
                Error::new(ErrorCode::LibraryStuck, [&what, &self.limit, &library, &loads_early])
            }
            None => Error::new(ErrorCode::RankMissing, [&what, &self.limit]),
        }
    }
}

impl State {
    /// The number of the alarm for this moment, with which all before it are none any more.
    fn next_alarm(&mut self, at: Instant) -> u64 {
        self.alarm_at = at;
        self.alarm += 1;
        self.alarm
    }
}

impl Deadlines {
    pub(crate) fn new() -> Self {
        Self(Lock::new(State { due: VecDeque::new(), alarm_at: Instant::MAX, alarm: 0, given_up_at: None }))
    }
}

impl<D: Collectives> Shared<D> {
    /// This must have ended so long from now on.
    pub(crate) fn ends_within(
        self: &Arc<Self>,
        limit: Nanos,
        what: &'static str,
        rank: Option<usize>,
        ticket: &Arc<Ticket>,
    ) {
        let now = self.now();
        let at = now + limit;
        let (mut over, mut alarm) = (Vec::new(), None);
        {
            let mut state = self.deadlines.0.lock();
            while state.due.front().is_some_and(Due::is_over) {
                over.extend(state.due.pop_front());
            }
            state.due.push_back(Due { at, limit, what, rank, ticket: Arc::clone(ticket) });
            let look = at.min(now + LOOK_EVERY);
            if look < state.alarm_at {
                alarm = Some((look, state.next_alarm(look)));
            }
        }
        drop(over);
        if let Some((look, number)) = alarm {
            self.set_alarm(look, number);
        }
    }

    fn set_alarm(self: &Arc<Self>, at: Instant, number: u64) {
        let alarm = Arc::new(Alarm { shared: Arc::downgrade(self), number });
        if let Some((_, runtime)) = self.seats.first() {
            runtime.core().tender.alarm(at, &Waker::from(alarm));
        }
    }

    /// The alarm of this number has come, or never will: by then nobody is there any more who would tell of that.
    fn look(self: &Arc<Self>, number: u64, is_gone: bool) {
        let now = self.now();
        let well = D::well(&self.member);
        let (mut over, mut missed, mut next) = (VecDeque::new(), None, Instant::MAX);
        let (alarm, gives_up, failed_before);
        {
            let mut state = self.deadlines.0.lock();
            // Another was set in its place, or it has come before.
            if state.alarm != number {
                return;
            }
            for due in mem::take(&mut state.due) {
                if due.is_over() {
                    over.push_back(due);
                    continue;
                }
                if is_gone {
                    missed.get_or_insert_with(|| Error::new(ErrorCode::WatcherClosed, []));
                } else if due.at <= now {
                    missed.get_or_insert_with(|| due.missed());
                } else {
                    next = next.min(due.at);
                }
                state.due.push_back(due);
            }
            gives_up = well.is_err() && is_gone || state.given_up_at.is_some_and(|at| at <= now);
            failed_before = state.given_up_at.is_some();
            if next < Instant::MAX {
                next = next.min(now + LOOK_EVERY);
            }
            // An alarm that is early comes again.
            next = state.given_up_at.unwrap_or(next);
            alarm = state.next_alarm(if is_gone || gives_up { Instant::MAX } else { next });
        }
        drop(over);
        if gives_up {
            D::give_up(&self.member);
        } else if let Some(cause) = missed.or(well.err()).filter(|_| !failed_before) {
            self.fail(&cause);
            if is_gone {
                // Nobody is there who would later.
                D::give_up(&self.member);
            }
        } else if next < Instant::MAX {
            self.set_alarm(next, alarm);
        }
    }

    /// All that is under way ends with this cause, unless the communicator has failed before. What has not ended a while later is given up.
    pub(crate) fn fail(self: &Arc<Self>, cause: &Error) {
        D::abort(&self.member, cause);
        let at = self.now() + Nanos::from_millis(GIVE_UP_MS);
        let number;
        {
            let mut state = self.deadlines.0.lock();
            if state.given_up_at.is_some() {
                return;
            }
            state.given_up_at = Some(at);
            number = state.next_alarm(at);
        }
        self.set_alarm(at, number);
    }

    fn now(&self) -> Instant {
        self.seats.first().map_or(Instant::ORIGIN, |(_, runtime)| runtime.core().tender.now())
    }
}

struct Alarm<D: Collectives> {
    shared: Weak<Shared<D>>,
    number: u64,
}

impl<D: Collectives> Wake for Alarm<D> {
    fn wake(self: Arc<Self>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.look(self.number, false);
        }
    }
}

impl<D: Collectives> Drop for Alarm<D> {
    /// Where it was woken, another was set or none is needed, and this finds nothing to do.
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.look(self.number, true);
        }
    }
}
