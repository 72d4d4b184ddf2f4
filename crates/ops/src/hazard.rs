//! Hazards: two operations on one buffer, one of them a write, are ordered on the device.
//!
//! A buffer remembers who wrote it last and who has read it since, each as a stream and an event recorded behind the work. Whoever comes
//! next in another stream has that stream wait for the event; the host waits for nothing, and nothing is refused.
//!
//! The record of a buffer is locked from the look at it until the event behind the new work is recorded. So there is never a use that is
//! known of and not submitted, every device-side wait is for an event that was recorded before, and streams cannot wait for each other in
//! a circle. Several buffers of one call are locked in the order of their numbers. Only calls that enqueue are made under these locks.

// A promise to the port, which the records here keep.
#![allow(unsafe_code)]

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wakeline_core::{Error, ErrorCode};

use crate::counts::Counters;
use crate::port::{Memory, Promise};
use crate::stream::Stream;
use crate::submission::Submission;
use crate::sync::{Lock, MutexGuard};

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

struct Use<D: Memory> {
    stream: u64,
    event: Arc<D::Event>,
}

impl<D: Memory> Clone for Use<D> {
    fn clone(&self) -> Self {
        Self { stream: self.stream, event: Arc::clone(&self.event) }
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
        let stream = submission.stream().clone();
        let event = Arc::new(stream.device().event()?);
        let buffer = stream.device().alloc(stream.raw(), len)?;
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let uses = Uses { written: None, read: Vec::new(), lost: None };
        let storage = Arc::new(Self { buffer, stream, number, uses: Lock::new(uses) });
        submission.retain_shared(&storage);
        // The allocation is a use as any: other streams come after it.
        let stream = &storage.stream;
        stream.device().record(stream.raw(), &event)?;
        storage.uses.lock().written = Some(Use { stream: stream.id(), event });
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
            Counters::add(&stream.core().counters.frees_failed, 1);
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
        self.written.iter().chain(read).filter(move |before| before.stream != stream)
    }

    fn note(&mut self, now: Use<D>, writes: bool) {
        if writes {
            self.read.clear();
            self.written = Some(now);
        } else {
            self.read.retain(|before| before.stream != now.stream);
            self.read.push(now);
        }
    }
}

impl<D: Memory> Submission<D> {
    /// Makes one call that enqueues work on these buffers, behind all that it conflicts with. A buffer may be named several times.
    ///
    /// Costs an event, and a wait for each use in another stream that it comes after.
    pub(crate) fn touch(
        &mut self,
        touches: &[Touch<'_, D>],
        enqueue: impl FnOnce(&D, &D::Stream) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let stream = self.stream().clone();
        for touch in touches {
            if !Arc::ptr_eq(touch.storage.stream.core(), stream.core()) {
                return Err(Error::new(ErrorCode::ForeignMemory, []));
            }
            // First of all: whatever happens from here on, the buffers stay until this submission's work is done.
            self.retain_shared(touch.storage);
        }
        let (device, raw) = (stream.device(), stream.raw());
        let event = Arc::new(device.event()?);
        // Each once, for its lock; a write among its uses makes it one.
        let mut order: Vec<&Touch<'_, D>> = touches.iter().collect();
        order.sort_unstable_by_key(|touch| (touch.storage.number, !touch.writes));
        order.dedup_by_key(|touch| touch.storage.number);
        let mut locked: Vec<(MutexGuard<'_, Uses<D>>, bool)> =
            order.iter().map(|touch| (touch.storage.uses.lock(), touch.writes)).collect();
        for (uses, writes) in &locked {
            if let Some(error) = &uses.lost {
                return Err(error.clone());
            }
            for before in uses.before(stream.id(), *writes) {
                device.wait(raw, &before.event)?;
            }
        }
        enqueue(device, raw)?;
        let recorded = device.record(raw, &event);
        for (uses, writes) in &mut locked {
            match &recorded {
                Ok(()) => uses.note(Use { stream: stream.id(), event: Arc::clone(&event) }, *writes),
                // The work is under way and nothing can be made to wait for it.
                Err(error) => uses.lost = Some(error.clone()),
            }
        }
        recorded
    }
}
