//! Branches: parts of one operation that need nothing of each other, each in a stream of its own.
//!
//! ```text
//!   home    ──work──●───first branch───────◄──◄── what comes behind
//!                   │                      │  │
//!   another         └►──second branch──●───┘  │        ● an event is recorded, ► a stream waits for it
//!   another         └►──third branch───●──────┘
//! ```
//!
//! The place where the branches begin is recorded where something of the operation is in front of it; the place where one ends, where
//! something was enqueued in it. So the point of the operation, which is in its home, is behind all of them: there is one flight, and what any branch keeps lives until all are
//! done. A wait is only ever enqueued for a place that was recorded before.
//!
//! A branch has a place among what is in flight in its stream. Where no other stream has one it runs in the home of its operation.
//!
//! Where one fails or panics the others are joined all the same. Where a stream cannot be joined, what was enqueued there gets a flight of
//! its own, and what is kept by then is let go once both are done.

use std::sync::Arc;

use smallvec::SmallVec;
use wakeline_core::Error;

use crate::events::Place;
use crate::op::DeviceOp;
use crate::owner::Owner;
use crate::port::Device;
use crate::room::Account;
use crate::stream::Stream;
use crate::submission::Submission;
use crate::sync::Lock;

/// How many branches cost no allocation.
const BRANCHES_INLINE: usize = 8;

pub(crate) struct Branches<'s, D: Device> {
    submission: &'s mut Submission<D>,
    home: Stream<D>,
    /// Where the branches that are still to come run, the last first; `None` stands for home.
    streams: SmallVec<[Option<Stream<D>>; BRANCHES_INLINE]>,
    /// Which streams have branches around these.
    around: u64,
    /// The place that all branches come behind.
    behind: Option<Place>,
    /// Whether something of the operation, or that it is behind, was in front of the branches; and whether anything of them is in home.
    began_touched: bool,
    touched: bool,
    /// What was counted in home, while a branch enqueues in another stream.
    outer: Option<Account>,
    /// Where something was enqueued that home does not wait for yet, and the place behind it; `None` where a branch has not come to its end.
    away: SmallVec<[(Stream<D>, Option<Place>); BRANCHES_INLINE]>,
}

impl<'s, D: Device> Branches<'s, D> {
    /// Chooses the streams of so many branches, and records where they begin.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub(crate) fn new(submission: &'s mut Submission<D>, count: usize) -> Result<Self, Error> {
        let (home, touched) = (submission.stream.clone(), submission.touched.get());
        let (mut streams, around) = (SmallVec::new(), submission.at_work);
        if let Some(recording) = &mut submission.recording {
            streams.extend(recording.branches(home.core(), count.saturating_sub(1)));
        } else if let (Some(runtime), Some(permit)) = (&submission.elsewhere, &mut submission.permit) {
            let count = count.saturating_sub(1);
            streams.extend(runtime.branches((&home, permit), &mut submission.at_work, count));
            streams.reverse();
        }
        let mut behind = None;
        // A stream becomes part of a capture by waiting for something of it.
        let begins = touched || submission.records();
        if begins && streams.iter().any(Option::is_some) {
            behind = Some(submission.record()?);
        }
        // The first runs in home.
        streams.push(None);
        let away = SmallVec::new();
        let (began_touched, outer) = (touched, None);
        Ok(Self { submission, home, streams, around, behind, began_touched, touched, outer, away })
    }

    /// Submits the next branch.
    ///
    /// # Errors
    ///
    /// Its own, and what the device says.
    pub(crate) fn run<O>(&mut self, op: O) -> Result<O::Pending, Error>
    where
        O: DeviceOp<Device = D>,
    {
        let Some(stream) = self.streams.pop().flatten() else {
            self.submission.touched.set(self.touched);
            self.submission.room(op.entries())?;
            let pending = op.execute(self.submission);
            self.touched = self.submission.touched.get();
            return pending;
        };
        self.outer = Some(self.submission.enter_branch(&stream));
        if let Some(behind) = self.behind {
            self.submission.wait_behind(&self.home, behind)?;
        }
        self.submission.room(op.entries())?;
        self.submission.touched.set(self.began_touched);
        let begun = self.away.len();
        let at = self.away.iter().position(|(other, _)| other.id() == stream.id()).unwrap_or(begun);
        let before = if let Some((_, end)) = self.away.get_mut(at) {
            end.take()
        } else {
            self.away.push((stream, None));
            None
        };
        let pending = op.execute(self.submission);
        let end = if self.submission.touched.get() || self.submission.records() {
            // Where it cannot be recorded, joining tries again, and says so.
            self.submission.record().ok()
        } else {
            // Nothing was enqueued, and so nothing else is to be waited for.
            self.away.truncate(begun);
            before
        };
        if let Some((_, its)) = self.away.get_mut(at) {
            *its = end;
        }
        self.return_home();
        pending
    }

    /// Has home wait for all of them.
    ///
    /// # Errors
    ///
    /// What the device says. What was enqueued is accounted for all the same.
    pub(crate) fn join(mut self) -> Result<(), Error> {
        self.join_all()
    }

    fn return_home(&mut self) {
        if let Some(outer) = self.outer.take() {
            self.submission.leave_branch(&self.home, outer);
        }
    }

    fn join_all(&mut self) -> Result<(), Error> {
        self.return_home();
        self.submission.at_work = self.around;
        // Asked twice where all went well: what was found out first stays so.
        self.touched |= self.submission.touched.get() || !self.away.is_empty();
        self.submission.touched.set(self.touched);
        let mut joined = Ok(());
        for (stream, end) in core::mem::take(&mut self.away) {
            if let Err(error) = self.submission.join(&stream, end) {
                if !self.submission.records() {
                    self.submission.part_from(stream);
                }
                joined = joined.and(Err(error));
            } else if let Some(recording) = &mut self.submission.recording {
                recording.give_back(stream);
            }
        }
        joined
    }
}

/// Where a branch has failed or panicked.
impl<D: Device> Drop for Branches<'_, D> {
    fn drop(&mut self) {
        // Whoever is told of the failure is told of the first.
        let _ = self.join_all();
    }
}

impl<D: Device> Submission<D> {
    /// Has home wait for all that it has enqueued in `stream`, up to this place where it is known.
    fn join(&mut self, stream: &Stream<D>, end: Option<Place>) -> Result<(), Error> {
        let Some(end) = end else {
            let place = stream.open_place()?;
            let in_front = stream.in_front_of(place);
            stream.enqueued(place);
            let (_, recorded) = stream.close_place(place);
            self.note_in(stream.lane(), in_front);
            recorded?;
            return self.wait_behind(stream, place);
        };
        self.wait_behind(stream, end)
    }

    /// Has what is enqueued in `stream`, which the submission's own point is not behind, seen to its end by itself: what is kept so far is
    /// let go once both are done.
    #[cold]
    fn part_from(&mut self, stream: Stream<D>) {
        self.note_in(stream.lane(), 0);
        let permit = stream.lane().admit_anyway(2);
        let mut other = Self::new(stream, permit);
        for owner in core::mem::take(&mut self.owners) {
            let kept = Arc::new(Lock::new(owner));
            other.owners.push(Owner::new(Arc::clone(&kept)));
            self.owners.push(Owner::new(kept));
        }
        drop(other);
    }
}
