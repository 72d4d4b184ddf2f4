//! The streams of a runtime as policies see them, and places in several of them at a time.

use core::cell::Cell;
use core::fmt;
use core::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;
use wakeline_core::{Instant, Nanos};

use crate::lane::{FLIGHT, Lane};
use crate::policy::STREAMS_MAX;
use crate::port::Priority;
use crate::sync::Lock;

/// What is known of a runtime's streams, by their numbers.
pub(crate) struct Streams {
    lanes: Box<[(Arc<Lane>, Priority)]>,
    /// Kept for the branches to come, so that those cost no allocation.
    #[expect(clippy::vec_box, reason = "the boxes are what is kept")]
    spare: Lock<Vec<Box<Shares>>>,
}

pub(crate) type Lanes = Arc<Streams>;

impl Streams {
    pub(crate) fn new(lanes: impl Iterator<Item = (Arc<Lane>, Priority)>) -> Lanes {
        Arc::new(Self { lanes: lanes.collect(), spare: Lock::new(Vec::new()) })
    }
}

impl Deref for Streams {
    type Target = [(Arc<Lane>, Priority)];

    fn deref(&self) -> &Self::Target {
        &self.lanes
    }
}

/// How many of what branches had are kept for those to come.
const SPARE_MAX: usize = 64;

/// Places of one flight in streams besides its own. Given back when it is dropped.
pub(crate) struct Places {
    lanes: Lanes,
    /// There until it is dropped.
    shares: Option<Box<Shares>>,
}

/// What it has in each of them.
#[derive(Default)]
struct Shares {
    /// One bit a stream.
    taken: u64,
    each: SmallVec<[Share; 8]>,
}

/// What it has in one of them.
pub(crate) struct Share {
    number: usize,
    /// A [`FLIGHT`], and entries of the queue.
    pub(crate) taken: u64,
    /// Those of them that no branch has asked for yet.
    pub(crate) spare: u32,
    /// The last place that was recorded there, by its number; 0 for none, and where the flight is not behind all that it has there.
    pub(crate) mark: u64,
}

/// How many entries a branch begins with: what it enqueues, the wait for where it begins, and the event behind it.
const BRANCH_ENTRIES: u32 = 3;

const _: () = assert!(STREAMS_MAX <= u64::BITS as usize, "one bit a stream");

impl Places {
    pub(crate) fn new(lanes: &Lanes) -> Self {
        let spare = lanes.spare.lock().pop();
        Self { lanes: Arc::clone(lanes), shares: Some(spare.unwrap_or_default()) }
    }

    /// In which streams there is one, one bit each.
    pub(crate) fn taken(&self) -> u64 {
        self.shares.as_ref().map_or(0, |shares| shares.taken)
    }

    /// Takes one in the stream of this number, where there is room.
    pub(crate) fn take(&mut self, number: usize) -> bool {
        let Some(shares) = &mut self.shares else { return false };
        if shares.taken >> number & 1 == 1 {
            return true;
        }
        let entries = BRANCH_ENTRIES;
        let has = self.lanes.get(number).is_some_and(|(lane, _)| lane.take(entries));
        if has {
            shares.taken |= 1 << number;
            shares.each.push(Share {
                number,
                taken: FLIGHT + u64::from(entries),
                spare: entries - 1,
                mark: 0,
            });
        }
        has
    }

    /// What it has in this stream.
    pub(crate) fn share(&mut self, lane: &Lane) -> Option<&mut Share> {
        let lanes = &self.lanes;
        let is = |share: &&mut Share| {
            lanes.get(share.number).is_some_and(|(its, _)| core::ptr::eq(&raw const **its, lane))
        };
        self.shares.as_mut()?.each.iter_mut().find(is)
    }

    fn each(&self) -> impl Iterator<Item = (&Lane, &Share)> {
        let shares = self.shares.iter().flat_map(|shares| &shares.each);
        shares.filter_map(|share| Some((&*self.lanes.get(share.number)?.0, share)))
    }

    /// All of the flight is done.
    #[cold]
    pub(crate) fn landed(&self) {
        self.each().filter(|(_, share)| share.mark != 0).for_each(|(lane, share)| lane.landed(share.mark));
    }

    /// Nobody knows whether it is.
    pub(crate) fn lost(&mut self) {
        if let Some(shares) = &mut self.shares {
            shares.each.iter_mut().for_each(|share| share.mark = 0);
        }
    }

    /// It is still enqueued, as far as is known.
    #[cold]
    pub(crate) fn unseen(&mut self) {
        let lanes = &self.lanes;
        for share in self.shares.iter_mut().flat_map(|shares| &mut shares.each) {
            if let Some((lane, _)) = lanes.get(share.number) {
                lane.leave_unseen(&mut share.taken);
            }
        }
    }

    /// All of the flight is expected to have ended then.
    pub(crate) fn expect_until(&self, at: Instant) {
        self.each().for_each(|(lane, _)| lane.expect_until(at));
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.each().for_each(|(lane, share)| lane.give(share.taken));
        let Some(mut shares) = self.shares.take() else { return };
        shares.taken = 0;
        shares.each.clear();
        let mut spare = self.lanes.spare.lock();
        if spare.len() < SPARE_MAX {
            spare.push(shares);
        }
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("taken", &format_args!("{:#b}", self.taken())).finish_non_exhaustive()
    }
}

/// How many branches of an operation each stream has.
pub(crate) type Branched = SmallVec<[u32; 8]>;

/// What is in flight in each stream of a runtime, for a policy that goes by that: see
/// [`SchedulingPolicy::choose`](crate::SchedulingPolicy::choose). What is told may have changed by the time that it is used.
pub struct Loads<'a> {
    lanes: &'a [(Arc<Lane>, Priority)],
    branched: &'a [u32],
    /// Streams in which the operation itself has a place, one bit each.
    own: u64,
    clock: &'a dyn Fn() -> Instant,
    /// What it read, once it was asked.
    now: Cell<Option<Instant>>,
}

impl<'a> Loads<'a> {
    pub(crate) const fn new(
        lanes: &'a [(Arc<Lane>, Priority)],
        branched: &'a [u32],
        own: u64,
        clock: &'a dyn Fn() -> Instant,
    ) -> Self {
        Self { lanes, branched, own, clock, now: Cell::new(None) }
    }

    /// How many streams there are. Those are numbered from 0; of a number too large all that is told is nothing.
    pub fn streams(&self) -> usize {
        self.lanes.len()
    }

    /// Whether it is a branch that a stream is chosen for, and not a whole operation.
    pub const fn is_branch(&self) -> bool {
        !self.branched.is_empty()
    }

    /// How many other operations are in flight in a stream, or have a branch there.
    pub fn in_flight(&self, stream: usize) -> usize {
        let own = usize::from(stream < STREAMS_MAX && self.own >> stream & 1 == 1);
        self.lanes.get(stream).map_or(0, |(lane, _)| lane.in_flight().saturating_sub(own))
    }

    /// How long until all in flight there has ended, by what is known of how long its kinds take: zero where nothing is.
    ///
    /// The first of these looks reads the clock of whoever tends the runtime.
    pub fn residual(&self, stream: usize) -> Nanos {
        let now = self.now.get().unwrap_or_else(|| (self.clock)());
        self.now.set(Some(now));
        self.lanes.get(stream).map_or(Nanos::ZERO, |(lane, _)| lane.residual(now))
    }

    /// How many branches of the operation that is being submitted are in that stream at a time with this one.
    pub fn branches(&self, stream: usize) -> usize {
        self.branched.get(stream).map_or(0, |&count| usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// The priority of a stream.
    pub fn priority(&self, stream: usize) -> Priority {
        self.lanes.get(stream).map_or(Priority::Normal, |&(_, priority)| priority)
    }
}

impl fmt::Debug for Loads<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = (0..self.streams()).map(|stream| (self.in_flight(stream), self.residual(stream)));
        f.debug_list().entries(each).finish()
    }
}
