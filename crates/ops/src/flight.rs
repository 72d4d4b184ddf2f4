//! Flights: what owns everything that submitted work may touch.
//!
//! ```text
//!   Submission::fly ──► (1) in flight ──Tend: done──────────────► (2) landed: owners let go ──► future woken
//!                           │   │
//!                           │   └──Tend: fault, closed, refused─► (3) leaked: owners forgotten, counted ──► future woken
//!                           └──dropped untold (who tended is gone) ──► (3)
//! ```
//!
//! A flight is held by whoever tends its point. Its future, where there is one, holds interest in it and nothing more: that may be
//! dropped or forgotten at any moment. Nothing is let go before [`Flight::land`] was told that the point is done.

use core::any::Any;
use core::task::{Context, Poll, Waker};
use std::sync::{Arc, PoisonError};

use wakeline_core::{Error, ErrorCode};

use crate::counts::Counters;
use crate::panics::survive;
use crate::stream::Permit;
use crate::sync::{Condvar, Lock};

/// Something that lives until the device is done.
#[expect(dead_code, reason = "it is held, and never looked at")]
pub(crate) enum Owner {
    Shared(Arc<dyn Any + Send + Sync>),
    Own(Box<dyn Any + Send>),
}

pub(crate) struct Flight {
    state: Lock<State>,
    /// There is an outcome.
    landed: Condvar,
    counters: Arc<Counters>,
}

struct State {
    owners: Vec<Owner>,
    permit: Option<Permit>,
    /// Somebody ends it, or has.
    landing: bool,
    outcome: Option<Result<(), Error>>,
    waker: Option<Waker>,
}

impl Flight {
    pub(crate) fn new(owners: Vec<Owner>, permit: Option<Permit>, counters: &Arc<Counters>) -> Arc<Self> {
        Counters::add(&counters.begun, 1);
        let state = State { owners, permit, landing: false, outcome: None, waker: None };
        Arc::new(Self { state: Lock::new(state), landed: Condvar::new(), counters: Arc::clone(counters) })
    }

    /// What a wait for the point says of it.
    ///
    /// A lost store ends a wait by the word with an error, but by then the driver has said that the work is done.
    pub(crate) fn meaning<T>(waited: Result<T, Error>) -> Result<(), Error> {
        match waited {
            Err(error) if error.code() != ErrorCode::StoreLost => Err(error),
            _ => Ok(()),
        }
    }

    /// Ends the flight, the first time that it is called: lets go what it keeps where the work is done, else leaks it. Then wakes
    /// whoever awaits it.
    pub(crate) fn land(&self, outcome: Result<(), Error>) {
        let done = outcome.is_ok();
        let (owners, permit) = {
            let mut state = self.state.lock();
            if core::mem::replace(&mut state.landing, true) {
                return;
            }
            (core::mem::take(&mut state.owners), state.permit.take())
        };
        if done {
            for owner in owners {
                self.guard(|| drop(owner));
            }
            Counters::add(&self.counters.landed, 1);
        } else {
            Counters::add(&self.counters.owners_leaked, owners.len() as u64);
            owners.into_iter().for_each(core::mem::forget);
            Counters::add(&self.counters.leaked, 1);
        }
        // Whoever waits for room finds it, or the fault.
        self.guard(|| drop(permit));
        // Only now: who has been told finds nothing kept any more.
        let waker = {
            let mut state = self.state.lock();
            state.outcome = Some(outcome);
            state.waker.take()
        };
        self.landed.notify_all();
        if let Some(waker) = waker {
            self.guard(|| waker.wake());
        }
    }

    /// What has become of it. Makes no driver call.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<(), Error>> {
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
        let waker = self.state.lock().waker.take();
        self.guard(|| drop(waker));
    }

    /// The same, and waits for whoever else ends it at the same time.
    pub(crate) fn land_and_wait(&self, outcome: Result<(), Error>) {
        self.land(outcome);
        let mut state = self.state.lock();
        while state.outcome.is_none() {
            // Letting go what others wrote panics at most, which is counted: an outcome comes.
            state = self.landed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Runs what others wrote where there is nobody to be told of its panic.
    fn guard(&self, f: impl FnOnce()) {
        if !survive(f) {
            Counters::add(&self.counters.panics, 1);
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // Whoever tended it is gone without a word: the device may still be at work.
        self.land(Err(Error::new(ErrorCode::WatcherClosed, [])));
    }
}
