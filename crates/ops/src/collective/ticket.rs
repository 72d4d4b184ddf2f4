//! How something ends that ranks do together: told once, by whoever sees it first.

use core::fmt;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use wakeline_core::Error;

use crate::lane::Lane;
use crate::lock;
use crate::room::ClosedGates;
use crate::submission::Verdict;
use crate::sync::Lock;

/// Told how a part of a collective, or the joining of a communicator, has ended.
pub struct Ticket(Lock<State>);

#[derive(Default)]
struct State {
    outcome: Option<Result<(), Error>>,
    waker: Option<Waker>,
    /// The stream waits for it as for a gate: it may be that of a thread which is to submit what it waits for.
    closed: Option<(Arc<ClosedGates>, u64)>,
    /// The library is in the call that begins it.
    begins: Option<Beginning>,
}

/// A library's call that begins a part, for whoever tells that it has not come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beginning {
    /// What the library is called.
    pub library: &'static str,
    /// How its kernels are loaded before their first use.
    pub loads_early: &'static str,
}

impl Default for Ticket {
    fn default() -> Self {
        Self(Lock::new(State::default()))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ticket").field(&self.outcome()).finish()
    }
}

impl Ticket {
    /// It has ended so, unless it had ended before. Wakes who waits, under no lock.
    pub fn end(&self, outcome: Result<(), Error>) {
        let (waker, closed) = {
            let mut state = self.0.lock();
            if state.outcome.is_some() {
                return;
            }
            state.outcome = Some(outcome);
            (state.waker.take(), state.closed.take())
        };
        if let Some((gates, number)) = closed {
            gates.open(number);
        }
        if let Some(waker) = waker {
            lock::wake(waker);
        }
    }

    /// The ranks of this process have all come to it, and the library is called now to begin it; `None` once that has come back.
    pub fn begins(&self, by: Option<Beginning>) {
        self.0.lock().begins = by;
    }

    /// The library's call that it is in.
    pub(crate) fn beginning(&self) -> Option<Beginning> {
        self.0.lock().begins
    }

    /// How it has ended, if it has.
    pub fn outcome(&self) -> Option<Result<(), Error>> {
        self.0.lock().outcome.clone()
    }

    /// Has this stream be one that waits for others until it has ended.
    pub(crate) fn holds(&self, gates: &Arc<ClosedGates>, lane: &Lane) {
        let number = gates.close(lane);
        let mut state = self.0.lock();
        if state.outcome.is_none() {
            state.closed = Some((Arc::clone(gates), number));
        } else {
            drop(state);
            gates.open(number);
        }
    }

    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // Cloned and dropped outside of the lock.
        let waker = context.waker().clone();
        let before;
        {
            let mut state = self.0.lock();
            if let Some(outcome) = state.outcome.clone() {
                return Poll::Ready(outcome);
            }
            before = state.waker.replace(waker);
        }
        drop(before);
        Poll::Pending
    }
}

impl Verdict for Ticket {
    fn verdict(&self) -> Result<(), Error> {
        self.outcome().unwrap_or(Ok(()))
    }
}
