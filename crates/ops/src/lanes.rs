//! The streams of a runtime as policies see them, and places in several of them at a time.

use core::cell::Cell;
use core::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use wakeline_core::{Instant, Nanos};

use crate::lane::Lane;
use crate::policy::STREAMS_MAX;
use crate::port::Priority;

/// What is known of a runtime's streams, by their numbers.
pub(crate) type Lanes = Arc<[(Arc<Lane>, Priority)]>;

/// Places of one flight in streams besides its own. Given back when it is dropped.
pub(crate) struct Places {
    lanes: Lanes,
    /// One bit a stream.
    taken: u64,
}

const _: () = assert!(STREAMS_MAX <= u64::BITS as usize, "one bit a stream");

impl Places {
    pub(crate) fn new(lanes: &Lanes) -> Self {
        Self { lanes: Arc::clone(lanes), taken: 0 }
    }

    /// In which streams there is one, one bit each.
    pub(crate) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether there is one in the stream of this number.
    pub(crate) const fn has(&self, number: usize) -> bool {
        self.taken >> number & 1 == 1
    }

    /// Takes one in the stream of this number, where there is room.
    pub(crate) fn take(&mut self, number: usize) -> bool {
        let has = self.has(number) || self.lanes.get(number).is_some_and(|(lane, _)| lane.take_one());
        self.taken |= u64::from(has) << number;
        has
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        let taken = self.lanes.iter().enumerate().filter(|(number, _)| self.has(*number));
        taken.map(|(_, (lane, _))| &**lane)
    }

    /// All of the flight is expected to have ended then.
    pub(crate) fn expect_until(&self, at: Instant) {
        self.lanes().for_each(|lane| lane.expect_until(at));
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.lanes().for_each(Lane::give_one);
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("taken", &format_args!("{:#b}", self.taken)).finish_non_exhaustive()
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
