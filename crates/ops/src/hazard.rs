//! Hazards: two operations on one buffer, one of them a write, are ordered on the device.
//!
//! A buffer remembers who wrote it last and who has read it since, each as a stream and a place in it, behind the work. Whoever comes
//! next in another stream has that stream wait for the place; the host waits for nothing, and nothing is refused.
//!
//! The record of a buffer is locked from the look at it until the event behind the new work is recorded. So there is never a use that is
//! known of and not submitted, every device-side wait is for an event that was recorded before, and streams cannot wait for each other in
//! a circle. Several buffers of one call are locked in the order of their numbers. Only calls that enqueue are made under these locks.
//!
//! Why not tickets, taken for all of an operation's buffers under one short lock and served later? Whoever holds a ticket is not submitted
//! yet, so that others would have to wait for it as futures, would be woken for it, and could be made to wait for good by one who was
//! forgotten between the two. Here the time under the locks is that of the calls: a few microseconds for a launch, a record and a wait for
//! each other stream, and only those wait who use the same buffer at the same moment from another thread, whose work has to come after
//! that in any case. What it costs: a thread that loses its processor under the locks holds up those.

// A promise to the port, which the records here keep.
#![allow(unsafe_code)]

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use wakeline_core::{Error, ErrorCode};

use crate::counts::Counters;
use crate::events::Place;
use crate::port::{Memory, Promise};
use crate::stream::Stream;
use crate::submission::Submission;
use crate::sync::{Lock, MutexGuard};

/// What there is for each buffer of a call.
type Few<T> = SmallVec<[T; 8]>;

/// A buffer of the device with the record of its uses. Freed when nobody holds it any more; every flight that uses it holds it.
pub(crate) struct Storage<D: Memory> {
    buffer: D::Buffer,
    /// The stream in which it was allocated, and is freed.
    stream: Stream<D>,
    number: u64,
    uses: Lock<Uses<D>>,
}

struct Uses<D: Memory> {
    written: Option<Use<D>>,
    /// Since it was written: the last of each stream.
    read: Vec<Use<D>>,
    /// Why nobody can know any more what has to be waited for.
    lost: Option<Error>,
}

/// Keeps its stream until another use has taken its place.
struct Use<D: Memory> {
    stream: Stream<D>,
    place: Place,
}

impl<D: Memory> Use<D> {
    fn has_landed(&self) -> bool {
        self.stream.has_landed(self.place)
    }
}

/// A call's use of a buffer.
pub(crate) struct Touch<'a, D: Memory> {
    storage: &'a Arc<Storage<D>>,
    writes: bool,
}

impl<D: Memory> Storage<D> {
    /// Allocates in the stream of the submission.
    pub(crate) fn alloc(submission: &mut Submission<D>, len: usize) -> Result<Arc<Self>, Error> {
        // Numbers say nothing but which is locked first.
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        submission.room(2)?;
        let stream = submission.stream().clone();
        let tick = stream.next_place()?;
        let buffer = stream.device().alloc(stream.raw(), len)?;
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let uses = Uses { written: None, read: Vec::new(), lost: None };
        let storage = Arc::new(Self { buffer, stream, number, uses: Lock::new(uses) });
        submission.retain_shared(&storage);
        // The allocation is a use as any: other streams come after it.
        let stream = &storage.stream;
        let place = stream.record(tick)?;
        submission.note(place);
        storage.uses.lock().written = Some(Use { stream: stream.clone(), place });
        Ok(storage)
    }

    /// The device's name for it.
    pub(crate) const fn buffer(&self) -> &D::Buffer {
        &self.buffer
    }

    pub(crate) const fn read(self: &Arc<Self>) -> Touch<'_, D> {
        Touch { storage: self, writes: false }
    }

    pub(crate) const fn write(self: &Arc<Self>) -> Touch<'_, D> {
        Touch { storage: self, writes: true }
    }
}

impl<D: Memory> Drop for Storage<D> {
    fn drop(&mut self) {
        let stream = &self.stream;
        // SAFETY: each flight that uses the buffer holds this storage until its work is done, and leaks it where that cannot be known.
        // So nothing uses it any more, and with the last handle gone nothing will.
        let promise = unsafe { Promise::new() };
        if stream.device().free(stream.raw(), &self.buffer, promise).is_err() {
            Counters::add(&stream.core().fleet.counters.frees_failed, 1);
        }
    }
}

impl<D: Memory> fmt::Debug for Storage<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage").field("number", &self.number).finish_non_exhaustive()
    }
}

impl<D: Memory> Uses<D> {
    /// What the use has to wait for in this stream.
    fn before(&self, stream: u64, writes: bool) -> impl Iterator<Item = &Use<D>> {
        let read = self.read.iter().filter(move |_| writes);
        self.written.iter().chain(read).filter(move |before| before.stream.id() != stream)
    }

    fn note(&mut self, now: Use<D>, writes: bool) {
        if writes {
            self.read.clear();
            self.written = Some(now);
        } else {
            self.read.retain(|before| before.stream.id() != now.stream.id());
            self.read.push(now);
        }
    }

    /// Takes out what is known to have landed: nobody has to wait for that, nor to keep its stream.
    fn take_landed(&mut self, landed: &mut Few<Use<D>>) {
        landed.extend(self.written.take_if(|written| written.has_landed()));
        let mut at = 0;
        while let Some(read) = self.read.get(at) {
            if read.has_landed() {
                landed.push(self.read.swap_remove(at));
            } else {
                at += 1;
            }
        }
    }
}

impl<D: Memory> Submission<D> {
    /// Makes one call that enqueues work on these buffers, behind all that it conflicts with. A buffer may be named several times.
    ///
    /// Costs the recording of an event, a wait for each use in another stream that it comes after, and no allocation for up to
    /// eight buffers.
    pub(crate) fn touch(
        &mut self,
        touches: &[Touch<'_, D>],
        enqueue: impl FnOnce(&D, &D::Stream) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let stream = self.stream.clone();
        self.touched.set(true);
        for touch in touches {
            if !Arc::ptr_eq(touch.storage.stream.core(), stream.core()) {
                return Err(Error::new(ErrorCode::ForeignMemory, []));
            }
            // First of all: whatever happens from here on, the buffers stay until this submission's work is done.
            self.retain_shared(touch.storage);
        }
        let (device, raw) = (stream.device(), stream.raw());
        if touches.is_empty() {
            // Nobody can conflict with it.
            self.room(1)?;
            self.enter(1);
            return enqueue(device, raw);
        }
        // Asked for without the locks: it may have to be waited for.
        self.room(2)?;
        let tick = stream.next_place()?;
        // Each once, for its lock; a write among its uses makes it one.
        let mut order: Few<&Touch<'_, D>> = touches.iter().collect();
        order.sort_unstable_by_key(|touch| (touch.storage.number, !touch.writes));
        order.dedup_by_key(|touch| touch.storage.number);
        // Streams that nobody may have any more: dropped without the locks.
        let mut landed = Few::new();
        let mut locked: Few<(MutexGuard<'_, Uses<D>>, bool)>;
        let mut asked = 0;
        loop {
            locked = order.iter().map(|touch| (touch.storage.uses.lock(), touch.writes)).collect();
            locked.iter_mut().for_each(|(uses, _)| uses.take_landed(&mut landed));
            let before = locked.iter().map(|(uses, writes)| uses.before(stream.id(), *writes).count());
            let entries = u32::try_from(before.sum::<usize>()).unwrap_or(u32::MAX).saturating_add(2);
            // Each time it is for more: for other streams that have come meanwhile.
            if self.has_room(entries) || entries <= asked {
                break;
            }
            locked.clear();
            self.room(entries)?;
            asked = entries;
        }
        for (uses, writes) in &locked {
            if let Some(error) = &uses.lost {
                return Err(error.clone());
            }
            for before in uses.before(stream.id(), *writes) {
                self.wait_behind(&before.stream, before.place)?;
            }
        }
        self.enter(1);
        enqueue(device, raw)?;
        let recorded = stream.record(tick);
        for (uses, writes) in &mut locked {
            match &recorded {
                Ok(place) => uses.note(Use { stream: stream.clone(), place: *place }, *writes),
                // The work is under way and nothing can be made to wait for it.
                Err(error) => uses.lost = Some(error.clone()),
            }
        }
        self.note(recorded?);
        Ok(())
    }
}
