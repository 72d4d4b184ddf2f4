//! What those who submit and the crew share.
//!
//! ```text
//!   come ──► waits for the other ranks ──all have come, taken by the crew──► under way ──its gate reads as open──► over
//!                  │                                                             │
//!                  └─fail: told, its gate opened here                            └─fail: told; its gate is opened by the device, behind what was aborted,
//!                                                                                  or by `give_up`, which leaks what it uses
//! ```

use core::ffi::c_void;
use core::fmt;
use core::mem;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wakeline_core::Error;
use wakeline_ops::port::{Assembly, At, Kept, Kind, Number, Part, Reduce, Signature, Ticket};

use super::comm::Comm;
use super::library::{CollectiveLibrary, CollectiveVendor};
use crate::event::Event;
use crate::gate::Gate;
use crate::ops::DeviceMemory;
use crate::stream::Stream;

/// A part, by addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawPart {
    pub(super) kind: Kind,
    pub(super) number: Number,
    pub(super) count: usize,
    /// 0 for none.
    from: u64,
    to: u64,
}

impl RawPart {
    pub(super) fn of<V>(part: &Part<'_, DeviceMemory<V>>) -> Self {
        let address = |at: Option<At<'_, DeviceMemory<V>>>| {
            at.map_or(0, |at| at.memory.address().wrapping_add(at.offset_bytes as u64))
        };
        let Part { kind, number, count, from, to } = *part;
        Self { kind, number, count, from: address(from), to: address(to) }
    }

    /// A part in place, of memory that begins there.
    pub(super) const fn in_place(kind: Kind, number: Number, count: usize, address: u64) -> Self {
        Self { kind, number, count, from: address, to: address }
    }

    /// The same where there is no other rank: the mean of one number is its sum. For means of one rank the library has a kernel of its own, which it loads when it is
    /// first used, and loading one may wait for all that is on the device: for the very streams that wait for this part.
    pub(super) fn of_one(self) -> Self {
        let sum = |how| if how == Reduce::Avg { Reduce::Sum } else { how };
        let kind = match self.kind {
            Kind::AllReduce(how) => Kind::AllReduce(sum(how)),
            Kind::ReduceScatter(how) => Kind::ReduceScatter(sum(how)),
            Kind::Reduce(how, root) => Kind::Reduce(sum(how), root),
            other => other,
        };
        Self { kind, ..self }
    }

    pub(super) fn from(&self) -> *const c_void {
        pointer(self.from).cast_const()
    }

    pub(super) fn to(&self) -> *mut c_void {
        pointer(self.to)
    }
}

/// An address of the device's, as the library takes it.
fn pointer(address: u64) -> *mut c_void {
    core::ptr::without_provenance_mut(usize::try_from(address).unwrap_or_default())
}

/// What one rank does at one time.
#[derive(Debug)]
pub(super) struct Job<V: CollectiveVendor> {
    pub(super) seat: usize,
    pub(super) parts: Vec<RawPart>,
    /// What it comes behind.
    pub(super) event: Arc<Event<V>>,
    pub(super) gate: Arc<Gate<V>>,
    pub(super) ticket: Arc<Ticket>,
    pub(super) kept: Kept,
    /// The device opens its gate, as far as is known: it was told once, and is not told again.
    pub(super) opens: Arc<AtomicBool>,
}

impl<V: CollectiveVendor> Job<V> {
    /// Has the device open its gate behind what is enqueued in the rank's stream, unless it was told before: a second store could come when somebody else has the word.
    pub(super) fn open_behind(&self, stream: &Stream<V>) -> Result<(), Error> {
        if self.opens.swap(true, Ordering::AcqRel) { Ok(()) } else { self.gate.open_behind(stream) }
    }

    /// Nobody knows whether the device is done with it, or ever opens its gate: both stay for good.
    fn leak(&self) {
        mem::forget(Arc::clone(&self.gate));
        mem::forget(Arc::clone(&self.kept));
        self.gate.open();
    }
}

impl<V: CollectiveVendor> Clone for Job<V> {
    fn clone(&self) -> Self {
        Self {
            seat: self.seat,
            parts: self.parts.clone(),
            event: Arc::clone(&self.event),
            gate: Arc::clone(&self.gate),
            ticket: Arc::clone(&self.ticket),
            kept: Arc::clone(&self.kept),
            opens: Arc::clone(&self.opens),
        }
    }
}

/// The ranks of this process in one communicator.
pub(super) struct Club<V: CollectiveVendor> {
    pub(super) library: CollectiveLibrary<V>,
    state: Mutex<State<V>>,
    /// Something has come for the crew.
    changed: Condvar,
}

struct State<V: CollectiveVendor> {
    joined: Arc<Ticket>,
    assembly: Assembly<Job<V>>,
    under_way: Vec<Job<V>>,
    failed: Option<Error>,
    /// Nobody has a handle any more.
    leaves: bool,
    /// The crew is in calls that come back when they like: what there is to abort meanwhile.
    blocked: Vec<Comm>,
    /// Another thread aborts those, or has.
    aborts: bool,
    aborted: bool,
}

/// What the crew is to do.
pub(super) enum Errand<V: CollectiveVendor> {
    /// Hand these over.
    HandOver(Vec<Job<V>>),
    /// Nothing has come: look at what is under way.
    Watch,
    /// It has failed.
    Abort(Error),
    /// Nobody is there any more, and nothing is under way.
    Leave,
}

impl<V: CollectiveVendor> Club<V> {
    pub(super) fn new(library: &CollectiveLibrary<V>, ranks: Vec<usize>, joined: Arc<Ticket>) -> Arc<Self> {
        let state = State {
            joined,
            assembly: Assembly::new(ranks),
            under_way: Vec::new(),
            failed: None,
            leaves: false,
            blocked: Vec::new(),
            aborts: false,
            aborted: false,
        };
        Arc::new(Self { library: library.clone(), state: Mutex::new(state), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn well(&self) -> Result<(), Error> {
        self.lock().failed.clone().map_or(Ok(()), Err)
    }

    /// A rank has come to this.
    pub(super) fn come(&self, job: &Job<V>) -> Result<(), Error> {
        let signature =
            |part: &RawPart| Signature { kind: part.kind, number: part.number, count: part.count };
        let failed = {
            let mut state = self.lock();
            let failed = state.failed.clone();
            if failed.is_none() {
                let parts = job.parts.iter().map(signature).collect();
                state.assembly.push(job.seat, parts, job.clone());
            }
            failed
        };
        if let Some(failed) = failed {
            job.gate.open();
            return Err(failed);
        }
        self.changed.notify_all();
        Ok(())
    }

    /// All that is under way fails so, unless it has failed before. Waits for nothing.
    pub(super) fn fail(club: &Arc<Self>, cause: &Error) {
        let (joined, waiting, under_way, blocked);
        {
            let mut state = club.lock();
            if state.failed.is_some() {
                return;
            }
            state.failed = Some(cause.clone());
            joined = Arc::clone(&state.joined);
            waiting = state.assembly.drain();
            under_way = state.under_way.clone();
            blocked = mem::take(&mut state.blocked);
            state.aborts = !blocked.is_empty();
        }
        joined.end(Err(cause.clone()));
        for job in &waiting {
            job.ticket.end(Err(cause.clone()));
            job.gate.open();
        }
        // What was done by now was done.
        for job in under_way.iter().filter(|job| !job.gate.is_open()) {
            job.ticket.end(Err(cause.clone()));
        }
        if !blocked.is_empty() {
            let (its, comms) = (Arc::clone(club), blocked.clone());
            let aborts = move || {
                for comm in &comms {
                    comm.abort(&its.library);
                }
                {
                    let mut state = its.lock();
                    (state.aborts, state.aborted) = (false, true);
                }
                its.changed.notify_all();
            };
            if (club.library.loaded.spawn)(Box::new(aborts)).is_err() {
                // No thread is left to abort on: the crew does so itself, should its call ever come back. Who waits is told by `give_up`.
                let mut state = club.lock();
                (state.aborts, state.blocked) = (false, blocked);
            }
        }
        club.changed.notify_all();
    }

    /// Has all streams go on that wait still.
    pub(super) fn give_up(&self) {
        let left = {
            let mut state = self.lock();
            mem::take(&mut state.under_way)
        };
        left.iter().filter(|job| !job.gate.is_open()).for_each(Job::leak);
    }

    pub(super) fn leave(&self) {
        self.lock().leaves = true;
        self.changed.notify_all();
    }

    pub(super) fn leaves(&self) -> bool {
        self.lock().leaves
    }

    /// All ranks have joined.
    pub(super) fn join(&self) {
        let joined = Arc::clone(&self.lock().joined);
        joined.end(Ok(()));
    }

    /// What is next, for which the crew waits at most so long, or without an end where nothing is under way.
    pub(super) fn next(&self, nap: Duration) -> Errand<V> {
        let mut state = self.lock();
        let mut napped = false;
        loop {
            if let Some(failed) = &state.failed {
                return Errand::Abort(failed.clone());
            }
            match state.assembly.take_next() {
                Ok(Some(together)) => {
                    let jobs: Vec<_> = together.into_iter().map(|(_, job)| job).collect();
                    state.under_way.extend(jobs.iter().cloned());
                    return Errand::HandOver(jobs);
                }
                Ok(None) => {}
                Err(error) => return Errand::Abort(error),
            }
            if state.under_way.is_empty() {
                if state.leaves {
                    return Errand::Leave;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else if napped {
                return Errand::Watch;
            } else {
                napped = true;
                state = self.changed.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Waits so long, or until something comes; the failure, if there is one.
    pub(super) fn nap(&self, nap: Duration) -> Option<Error> {
        let state = self.lock();
        if state.failed.is_some() {
            return state.failed.clone();
        }
        let state = self.changed.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner).0;
        state.failed.clone()
    }

    /// Tells of what has ended; whether something is left.
    pub(super) fn settle(&self) -> bool {
        let (over, left) = {
            let mut state = self.lock();
            let (over, left): (Vec<_>, Vec<_>) =
                mem::take(&mut state.under_way).into_iter().partition(|job| job.gate.is_open());
            state.under_way = left;
            (over, !state.under_way.is_empty())
        };
        for job in &over {
            job.ticket.end(Ok(()));
        }
        left
    }

    /// What is under way, its gates still closed.
    pub(super) fn left(&self) -> Vec<Job<V>> {
        self.lock().under_way.iter().filter(|job| !job.gate.is_open()).cloned().collect()
    }

    /// From here on another thread aborts these, should it fail. The failure, if it has.
    pub(super) fn block(&self, comms: &[Comm]) -> Result<(), Error> {
        let mut state = self.lock();
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        state.blocked = comms.to_vec();
        Ok(())
    }

    /// Not any more: waits until another thread is through with that.
    pub(super) fn unblock(&self) {
        let mut state = self.lock();
        state.blocked.clear();
        while state.aborts {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether another thread has aborted the communicators: nobody uses them any more.
    pub(super) fn aborted(&self) -> bool {
        self.lock().aborted
    }
}

impl<V: CollectiveVendor> fmt::Debug for Club<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Club").field("library", &self.library).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_one_rank_is_its_sum() {
        let part = |kind| RawPart { kind, number: Number::F32, count: 3, from: 64, to: 128 };
        for (kind, of_one) in [
            (Kind::AllReduce(Reduce::Avg), Kind::AllReduce(Reduce::Sum)),
            (Kind::ReduceScatter(Reduce::Avg), Kind::ReduceScatter(Reduce::Sum)),
            (Kind::Reduce(Reduce::Avg, 0), Kind::Reduce(Reduce::Sum, 0)),
            (Kind::AllReduce(Reduce::Max), Kind::AllReduce(Reduce::Max)),
            (Kind::Broadcast(0), Kind::Broadcast(0)),
        ] {
            let RawPart { kind, number, count, from, to } = part(kind).of_one();
            assert_eq!((kind, number, count, from, to), (of_one, Number::F32, 3, 64, 128));
        }
    }
}
