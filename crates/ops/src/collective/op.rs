//! What one rank does, as an operation of its device.

// A promise to the port, which the records of the memory keep.
#![allow(unsafe_code)]

use core::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use wakeline_core::{Error, ErrorCode};

use super::{CollectiveMemory, Rank, Region, Ticket};
use crate::device_op;
use crate::hazard::Storage;
use crate::op::DeviceOp;
use crate::port::{Collectives, Kept, Kind, Part, Promise, Reduce, Work};
use crate::submission::{Submission, Verdict};

/// How many exchanges of one operation cost no allocation.
const PARTS_INLINE: usize = 4;

/// What is read and written of one part.
struct Ends<'a, D: Collectives> {
    kind: Kind,
    count: usize,
    from: Option<Region<'a, D>>,
    to: Option<Region<'a, D>>,
}

impl<'a, D: Collectives> Ends<'a, D> {
    fn part(&self) -> Option<Part<'a, D::Buffer>> {
        let number = self.from.or(self.to)?.number;
        let (from, to) = (self.from.map(|from| from.at()), self.to.map(|to| to.at()));
        Some(Part { kind: self.kind, number, count: self.count, from, to })
    }
}

fn invalid(kind: Kind, wrong: &str) -> Error {
    Error::new(ErrorCode::InvalidCollective, [&kind.name(), &wrong])
}

impl<D: Collectives> Rank<D> {
    /// Each number becomes the reduction of all ranks' at its place, in place. All have as many.
    pub fn all_reduce<B: CollectiveMemory<D>>(&self, memory: B, reduce: Reduce) -> InPlace<D, B> {
        self.in_place(Kind::AllReduce(reduce), memory)
    }

    /// The same, which leaves what it reduces, and writes to other memory of as many numbers.
    pub fn all_reduce_into<F, T>(&self, from: F, to: T, reduce: Reduce) -> Between<D, F, T>
    where
        F: CollectiveMemory<D>,
        T: CollectiveMemory<D>,
    {
        Between { rank: self.clone(), kind: Kind::AllReduce(reduce), from, to }
    }

    /// Each rank gets the numbers of all in `to`, in the order of ranks: as often as many as in `from`.
    pub fn all_gather<F, T>(&self, from: F, to: T) -> Between<D, F, T>
    where
        F: CollectiveMemory<D>,
        T: CollectiveMemory<D>,
    {
        Between { rank: self.clone(), kind: Kind::AllGather, from, to }
    }

    /// The same in place: what this rank gives lies where it belongs among those of all.
    pub fn all_gather_in_place<B: CollectiveMemory<D>>(&self, memory: B) -> InPlace<D, B> {
        self.in_place(Kind::AllGather, memory)
    }

    /// Each rank gets its part of the reduction of all: of as many parts as there are ranks the one of its number.
    pub fn reduce_scatter<F, T>(&self, from: F, to: T, reduce: Reduce) -> Between<D, F, T>
    where
        F: CollectiveMemory<D>,
        T: CollectiveMemory<D>,
    {
        Between { rank: self.clone(), kind: Kind::ReduceScatter(reduce), from, to }
    }

    /// The same in place: this rank's part of it is written where it was read. What is in the others then is anything.
    pub fn reduce_scatter_in_place<B: CollectiveMemory<D>>(
        &self,
        memory: B,
        reduce: Reduce,
    ) -> InPlace<D, B> {
        self.in_place(Kind::ReduceScatter(reduce), memory)
    }

    /// All ranks get the numbers of rank `root`, in place.
    pub fn broadcast<B: CollectiveMemory<D>>(&self, memory: B, root: usize) -> InPlace<D, B> {
        self.in_place(Kind::Broadcast(root), memory)
    }

    /// Rank `root` gets the reduction of all, in place. What the others have then is anything.
    pub fn reduce<B: CollectiveMemory<D>>(&self, memory: B, reduce: Reduce, root: usize) -> InPlace<D, B> {
        self.in_place(Kind::Reduce(reduce, root), memory)
    }

    /// Gives numbers to another rank, which [receives](Self::receive) as many. What goes both ways at a time is an [`exchange`](Self::exchange).
    pub fn send<B: CollectiveMemory<D>>(&self, memory: B, to: usize) -> InPlace<D, B> {
        self.in_place(Kind::Send(to), memory)
    }

    /// Gets numbers of another rank, which [sends](Self::send) as many.
    pub fn receive<B: CollectiveMemory<D>>(&self, memory: B, from: usize) -> InPlace<D, B> {
        self.in_place(Kind::Receive(from), memory)
    }

    /// Sends and receives at a time, each to and from the rank beside it: none of them waits for another.
    pub fn exchange<B: CollectiveMemory<D>>(
        &self,
        sends: Vec<(B, usize)>,
        receives: Vec<(B, usize)>,
    ) -> Exchange<D, B> {
        Exchange { rank: self.clone(), sends, receives }
    }

    fn in_place<B: CollectiveMemory<D>>(&self, kind: Kind, memory: B) -> InPlace<D, B> {
        InPlace { rank: self.clone(), kind, memory }
    }

    /// That a part can be done at all.
    fn check(&self, ends: &Ends<'_, D>) -> Result<(), Error> {
        let Ends { kind, from, to, .. } = ends;
        let (own, world) = (self.number(), self.world());
        let other = match *kind {
            Kind::Broadcast(root) | Kind::Reduce(_, root) => Some(root),
            kind => kind.peer(),
        };
        if let Some(other) = other.filter(|other| *other >= world) {
            return Err(invalid(
                *kind,
                &format!("rank {other} is beyond the last of {world}, which is {}", world - 1),
            ));
        }
        if kind.peer() == Some(own) {
            return Err(invalid(*kind, &format!("rank {own} is the own one: copy instead")));
        }
        for region in from.iter().chain(to) {
            region.check(kind.name())?;
        }
        if let (Some(from), Some(to)) = (from, to) {
            if from.number != to.number {
                let wrong = format!("what it reads are {:?} and what it writes {:?}", from.number, to.number);
                return Err(invalid(*kind, &wrong));
            }
            let own_of =
                |whole: usize, part: usize, count: usize| whole + own * count * from.number.bytes() == part;
            let in_place = match kind {
                Kind::AllGather => own_of(to.offset_bytes, from.offset_bytes, from.count),
                Kind::ReduceScatter(_) => own_of(from.offset_bytes, to.offset_bytes, to.count),
                _ => from.offset_bytes == to.offset_bytes,
            };
            if from.overlaps(to) && !in_place {
                return Err(invalid(
                    *kind,
                    "what it writes overlaps what it reads: in place it lies at the same place",
                ));
            }
        }
        Ok(())
    }

    /// Enqueues what it does at one time.
    fn submit(&self, submission: &mut Submission<D>, all: &[Ends<'_, D>]) -> Result<(), Error> {
        let Some(kind) = all.first().map(|ends| ends.kind) else { return Ok(()) };
        submission.not_recorded(
            &"a collective, which other ranks take part in,",
            &"do it between launches of the graph: `graph.launch().then(|()| rank.all_reduce(..))`",
        )?;
        let is_own = self.runtime().is_some_and(|own| Arc::ptr_eq(own.core(), submission.stream.core()));
        if !is_own {
            return Err(invalid(
                kind,
                "it runs in another runtime than its rank's: run it on `rank.runtime()`",
            ));
        }
        let (mut touches, mut parts) =
            (SmallVec::<[_; 2 * PARTS_INLINE]>::new(), SmallVec::<[_; PARTS_INLINE]>::new());
        let mut kept: Vec<Arc<Storage<D>>> = Vec::new();
        for ends in all {
            self.check(ends)?;
            touches.extend(ends.from.map(|from| from.storage.read()));
            touches.extend(ends.to.map(|to| to.storage.write()));
            kept.extend([ends.from, ends.to].into_iter().flatten().map(|region| Arc::clone(region.storage)));
            parts.extend(ends.part());
        }
        D::well(&self.shared.member)?;
        submission.room(D::ENTRIES)?;
        let held = D::prepare(&self.shared.member, self.seat, submission.stream.raw())?;
        let ticket = Arc::new(Ticket::default());
        let mut reached = false;
        let kept: Kept = Arc::new(kept);
        let enqueued = submission.touch(&touches, |_, stream| {
            reached = true;
            // SAFETY: the submission keeps the memory until its work is done, `touch` orders what else uses it; regions were looked at, and those that are read and written
            // overlap in place only.
            let promise = unsafe { Promise::new() };
            let work = Work { held: &held, ticket: &ticket, kept };
            D::enqueue(&self.shared.member, self.seat, stream, &parts, work, promise)
        });
        // Whatever comes, what it needs stays, and who tells of deadlines is there, until the work is done.
        submission.retain((held, Arc::clone(&self.shared)));
        if let Err(error) = enqueued {
            ticket.end(Err(error.clone()));
            if reached {
                // The others may have come to it, and this one never will.
                self.shared.fail(&error);
            }
            return Err(error);
        }
        submission.enter(D::ENTRIES.saturating_sub(1));
        let core = submission.stream.core();
        ticket.holds(&core.gates, submission.stream.lane());
        submission.hear(Arc::clone(&ticket) as Arc<dyn Verdict>);
        self.shared.ends_within(self.within, kind.name(), Some(self.number()), &ticket);
        Ok(())
    }
}

/// A collective in place, or one end of an exchange. Gives its memory back.
#[must_use = "an operation does nothing until it is awaited or run"]
pub struct InPlace<D: Collectives, B> {
    rank: Rank<D>,
    kind: Kind,
    memory: B,
}

impl<D: Collectives, B: CollectiveMemory<D>> InPlace<D, B> {
    fn ends(&self) -> Result<Ends<'_, D>, Error> {
        let (kind, world) = (self.kind, self.rank.world());
        let all = if matches!(kind, Kind::Send(_)) {
            self.memory.region()?
        } else {
            self.memory.region_to_write()?
        };
        // Before places within it are counted.
        all.check(kind.name())?;
        // In place ranks have numbers one behind the other.
        let part = || {
            if !all.count.is_multiple_of(world) {
                return Err(invalid(
                    kind,
                    &format!("{} numbers are not so many for each of {world} ranks", all.count),
                ));
            }
            let count = all.count / world;
            Ok(all.part(self.rank.number() * count, count))
        };
        let (count, from, to) = match kind {
            Kind::Send(_) => (all.count, Some(all), None),
            Kind::Receive(_) => (all.count, None, Some(all)),
            Kind::AllGather => (part()?.count, Some(part()?), Some(all)),
            Kind::ReduceScatter(_) => (part()?.count, Some(all), Some(part()?)),
            Kind::AllReduce(_) | Kind::Broadcast(_) | Kind::Reduce(..) => (all.count, Some(all), Some(all)),
        };
        Ok(Ends { kind, count, from, to })
    }
}

impl<D: Collectives, B: CollectiveMemory<D>> DeviceOp for InPlace<D, B> {
    type Device = D;
    type Pending = B;
    type Output = B;

    fn execute(self, submission: &mut Submission<D>) -> Result<B, Error> {
        self.rank.submit(submission, &[self.ends()?])?;
        Ok(self.memory)
    }

    fn finish(memory: B) -> Result<B, Error> {
        Ok(memory)
    }

    fn entries(&self) -> u32 {
        D::ENTRIES
    }
}

device_op!([D, B] InPlace<D, B> where D: Collectives, B: CollectiveMemory<D>);

/// A collective that reads one memory and writes another. Gives both back.
#[must_use = "an operation does nothing until it is awaited or run"]
pub struct Between<D: Collectives, F, T> {
    rank: Rank<D>,
    kind: Kind,
    from: F,
    to: T,
}

impl<D: Collectives, F: CollectiveMemory<D>, T: CollectiveMemory<D>> Between<D, F, T> {
    fn ends(&self) -> Result<Ends<'_, D>, Error> {
        let (from, to, kind) = (self.from.region()?, self.to.region_to_write()?, self.kind);
        let (count, many, what) = match kind {
            Kind::ReduceScatter(_) => (to.count, from.count, "read"),
            _ => (from.count, to.count, "written"),
        };
        let times = if matches!(kind, Kind::AllReduce(_)) { 1 } else { self.rank.world() };
        if count.checked_mul(times) != Some(many) {
            let wrong = format!(
                "{many} numbers are {what}, but with {count} of each rank it takes {count} x {times}"
            );
            return Err(invalid(kind, &wrong));
        }
        Ok(Ends { kind, count, from: Some(from), to: Some(to) })
    }
}

impl<D: Collectives, F: CollectiveMemory<D>, T: CollectiveMemory<D>> DeviceOp for Between<D, F, T> {
    type Device = D;
    type Pending = (F, T);
    type Output = (F, T);

    fn execute(self, submission: &mut Submission<D>) -> Result<(F, T), Error> {
        self.rank.submit(submission, &[self.ends()?])?;
        Ok((self.from, self.to))
    }

    fn finish(memory: (F, T)) -> Result<(F, T), Error> {
        Ok(memory)
    }

    fn entries(&self) -> u32 {
        D::ENTRIES
    }
}

device_op!([D, F, T] Between<D, F, T> where D: Collectives, F: CollectiveMemory<D>, T: CollectiveMemory<D>);

/// Sends and receives at a time; see [`Rank::exchange`]. Gives the memory back, of what was sent and of what was received.
#[must_use = "an operation does nothing until it is awaited or run"]
pub struct Exchange<D: Collectives, B> {
    rank: Rank<D>,
    sends: Vec<(B, usize)>,
    receives: Vec<(B, usize)>,
}

impl<D: Collectives, B: CollectiveMemory<D>> Exchange<D, B> {
    fn ends(&self) -> Result<Vec<Ends<'_, D>>, Error> {
        let mut all: Vec<Ends<'_, D>> = Vec::with_capacity(self.sends.len() + self.receives.len());
        for (memory, to) in &self.sends {
            let from = memory.region()?;
            all.push(Ends { kind: Kind::Send(*to), count: from.count, from: Some(from), to: None });
        }
        for (memory, from) in &self.receives {
            let to = memory.region_to_write()?;
            all.push(Ends { kind: Kind::Receive(*from), count: to.count, from: None, to: Some(to) });
        }
        for (at, ends) in all.iter().enumerate() {
            let Some(to) = ends.to else { continue };
            let others = all.iter().enumerate().filter(|(other, _)| *other != at);
            let mut regions = others.filter_map(|(_, other)| other.from.or(other.to));
            if regions.any(|region| region.overlaps(&to)) {
                return Err(invalid(ends.kind, "what it writes overlaps what else is exchanged at the time"));
            }
        }
        Ok(all)
    }
}

impl<D: Collectives, B: CollectiveMemory<D>> DeviceOp for Exchange<D, B> {
    type Device = D;
    type Pending = (Vec<B>, Vec<B>);
    type Output = (Vec<B>, Vec<B>);

    fn execute(self, submission: &mut Submission<D>) -> Result<Self::Pending, Error> {
        self.rank.submit(submission, &self.ends()?)?;
        let memory = |ends: Vec<(B, usize)>| ends.into_iter().map(|(memory, _)| memory).collect();
        Ok((memory(self.sends), memory(self.receives)))
    }

    fn finish(memory: Self::Pending) -> Result<<Self as DeviceOp>::Output, Error> {
        Ok(memory)
    }

    fn entries(&self) -> u32 {
        D::ENTRIES
    }
}

device_op!([D, B] Exchange<D, B> where D: Collectives, B: CollectiveMemory<D>);

impl<D: Collectives, B> fmt::Debug for InPlace<D, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InPlace").field("rank", &self.rank).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<D: Collectives, F, T> fmt::Debug for Between<D, F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Between").field("rank", &self.rank).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<D: Collectives, B> fmt::Debug for Exchange<D, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("rank", &self.rank).finish_non_exhaustive()
    }
}
