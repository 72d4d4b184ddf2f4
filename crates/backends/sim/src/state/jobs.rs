//! The part of the engine that touches memory and calls code of others.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use wakeline_core::{Error, ErrorCode, Instant, Nanos};

use super::{State, What};
use crate::error::{BACKEND, failed};
use crate::job::{Effect, Job, SimArgs, SimKernel};
use crate::memory::{Buffer, Misuse};
use crate::order::{Order, Place};
use crate::queue::Work;
use crate::table::Key;

/// Code of others that the engine has come to.
#[derive(Debug)]
pub(super) enum Calling {
    Nothing,
    /// It waits for somebody to call it.
    Due(Call),
    /// Somebody calls it.
    Now,
}

/// What it is that ends with a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose {
    /// The work in front of a stream.
    Stream(Key),
    /// A node of a run.
    Node(Key, usize),
}

/// One call of a kernel or a host function.
pub(crate) struct Call {
    device: usize,
    whose: Whose,
    at: Instant,
    code: Code,
}

enum Code {
    Kernel(SimKernel, SimArgs),
    Host(Box<dyn FnOnce() + Send>),
}

impl core::fmt::Debug for Call {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Call").field("at", &self.at).finish_non_exhaustive()
    }
}

/// What has become of a call.
pub(crate) struct Called {
    device: usize,
    whose: Whose,
    at: Instant,
    buffers: Vec<(Key, Vec<u8>)>,
    /// Who panicked, and with what message.
    panicked: Option<String>,
}

impl Call {
    /// Calls it. The caller holds no lock.
    pub(crate) fn run(self) -> Called {
        let Self { device, whose, at, code } = self;
        let (kernel, buffers, result) = match code {
            Code::Host(function) => {
                let result = catch_unwind(AssertUnwindSafe(function));
                (None, Vec::new(), result)
            }
            Code::Kernel(kernel, mut args) => {
                let result = catch_unwind(AssertUnwindSafe(|| (kernel.code)(&mut args)));
                (Some(kernel), args.buffers, result)
            }
        };
        let panicked = result.err().map(|payload| {
            let who = kernel.map_or_else(|| String::from("a host function"), |kernel| kernel.who());
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            let told = alloc::format!("{who} panicked: {}", text.unwrap_or("without a message"));
            // It may panic as it is dropped.
            core::mem::forget(payload);
            told
        });
        Called { device, whose, at, buffers, panicked }
    }
}

/// How an operation touches a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Touch {
    Read,
    Write,
    Free,
}

impl State {
    // Waits of streams for streams.

    pub(crate) fn enqueue_wait(&mut self, stream: Key, place: &Place, order: &Order) -> Result<(), Error> {
        self.forbid_outside(stream)?;
        self.check_room(stream, super::Call::Other("wait"))?;
        // What is waited for must be on its way: nobody may ever ask in that stream.
        self.on(self.device_of(place.stream), |state| state.submit(place.stream));
        let faulted = self.fault.is_some();
        let Some(queue) = self.streams.get_mut(stream) else { return Ok(()) };
        queue.order.join(order);
        queue.order.add(place.number, place.works);
        if faulted {
            queue.push_in_vain();
            return Ok(());
        }
        queue.push_wait(place.stream, place.works);
        self.step(stream, self.now);
        self.turn(self.now);
        Ok(())
    }

    /// Where an event stands that is recorded now, and what comes before it.
    pub(crate) fn record(&self, stream: Key) -> Option<(Place, Order)> {
        let queue = self.streams.get(stream)?;
        let place = Place { stream, number: queue.number, works: queue.progress().0 };
        Some((place, queue.order.clone()))
    }

    pub(super) fn wait_for(&mut self, stream: Key, other: Key, works: u64, at: Instant) {
        match self.streams.get_mut(other) {
            Some(queue) if queue.progress().1 < works => {
                queue.add_waiter(works, stream);
                // Of another device that has faulted nothing comes.
                if let Some(known_at) = self.stopped_at(other)
                    && let Some(queue) = self.streams.get_mut(other)
                {
                    let waiters: Vec<Key> = queue.take_waiters().collect();
                    for waiter in waiters {
                        self.schedule_end(at.max(known_at), waiter);
                    }
                }
            }
            // A stream that is gone has done all its work.
            _ => self.schedule(at, What::WorkEnds(stream)),
        }
    }

    pub(super) fn end_waits(&mut self, stream: Key, at: Instant) {
        while let Some(waiter) = self.streams.get_mut(stream).and_then(super::Queue::pop_waiter) {
            self.schedule_end(at, waiter);
        }
    }

    // Memory.

    /// Whether the work at this place has ended.
    fn has_ended(&self, place: &Place) -> bool {
        self.streams.get(place.stream).is_none_or(|queue| queue.progress().1 >= place.works)
    }

    /// The number that a stream has for good.
    pub(crate) fn number(&self, stream: Key) -> u64 {
        self.streams.get(stream).map_or(u64::MAX, |queue| queue.number)
    }

    /// New memory, where the limit allows it.
    pub(crate) fn allocate(&mut self, len: usize, pinned: bool) -> Result<Key, Error> {
        let sort = if pinned { "pinned" } else { "device" };
        self.buffers.try_add(len, pinned).map_err(|tally| {
            let why =
                alloc::format!("the limit is {} bytes, of which {} are in use", tally.limit, tally.in_use);
            Error::new(ErrorCode::OutOfMemory, [&BACKEND, &sort, &len, &why])
        })
    }

    pub(crate) fn misused(&mut self, call: &'static str, misuse: Misuse) -> Error {
        failed(call, &self.buffers.misuse(misuse))
    }

    /// Enqueues work that touches buffers, after a look at whether it may.
    pub(crate) fn enqueue_job(
        &mut self,
        call: &'static str,
        stream: Key,
        length: Nanos,
        job: Job,
        touches: &[(Key, usize, Touch)],
    ) -> Result<(), Error> {
        if self.is_capturing(stream) {
            return self.capture_work(call, stream, length, Some(job), touches);
        }
        self.check_room(stream, super::Call::Other(call))?;
        for &(key, bytes, touch) in touches {
            if let Err(misuse) = self.check(stream, key, bytes, touch) {
                return Err(self.misused(call, misuse));
            }
        }
        let Some((place, _)) = self.record(stream) else { return Ok(()) };
        let place = Place { works: place.works + 1, ..place };
        for &(key, _, touch) in touches {
            self.note(key, place, touch);
        }
        self.enqueue_work(stream, Work::For(length), Some(Box::new(job)))
    }

    /// That there are so many bytes of a buffer.
    pub(super) fn check_bytes(&self, key: Key, bytes: usize) -> Result<(), Misuse> {
        let Some(buffer) = self.buffers.get(key).filter(|buffer| !buffer.freed) else {
            let buffer = self.buffers.get(key).map_or(u64::MAX, |buffer| buffer.number);
            return Err(Misuse::UseAfterFree { buffer });
        };
        if bytes > buffer.len {
            return Err(Misuse::Beyond { buffer: buffer.number, len: buffer.len, wanted: bytes });
        }
        Ok(())
    }

    /// Whether what is enqueued in the stream comes behind that place, or its work has ended.
    pub(super) fn is_ordered(&self, stream: Key, place: &Place) -> bool {
        let behind = |queue: &super::Queue| queue.order.is_behind(place);
        place.stream == stream || self.streams.get(stream).is_none_or(behind) || self.has_ended(place)
    }

    pub(super) fn check(&self, stream: Key, key: Key, bytes: usize, touch: Touch) -> Result<(), Misuse> {
        // A buffer that is gone was freed, and a key never comes back.
        let Some(buffer) = self.buffers.get(key) else {
            let buffer = u64::MAX;
            return Err(if touch == Touch::Free {
                Misuse::DoubleFree { buffer }
            } else {
                Misuse::UseAfterFree { buffer }
            });
        };
        let &Buffer { number, len, freed, .. } = buffer;
        if freed && touch == Touch::Free {
            return Err(Misuse::DoubleFree { buffer: number });
        }
        if freed {
            return Err(Misuse::UseAfterFree { buffer: number });
        }
        if bytes > len {
            return Err(Misuse::Beyond { buffer: number, len, wanted: bytes });
        }
        let Some(queue) = self.streams.get(stream) else { return Ok(()) };
        let ordered = |place: &&Place| self.is_ordered(stream, place);
        let reads = buffer.read.iter().filter(|_| touch != Touch::Read);
        match buffer.written.iter().chain(reads).find(|place| !ordered(place)) {
            Some(place) => {
                Err(Misuse::Unordered { buffer: number, stream: queue.number, other: place.number })
            }
            None => Ok(()),
        }
    }

    pub(super) fn note(&mut self, key: Key, place: Place, touch: Touch) {
        if touch == Touch::Read {
            let Some(buffer) = self.buffers.get(key) else { return };
            // Of one stream the last read stands for all.
            let mut read: Vec<Place> =
                buffer.read.iter().filter(|old| old.stream != place.stream).copied().collect();
            read.retain(|old| !self.has_ended(old));
            read.push(place);
            if let Some(buffer) = self.buffers.get_mut(key) {
                buffer.read = read;
            }
            return;
        }
        if touch == Touch::Free {
            self.buffers.retire(key);
        }
        if let Some(buffer) = self.buffers.get_mut(key) {
            buffer.written = Some(place);
            buffer.read.clear();
            buffer.freed |= touch == Touch::Free;
        }
    }

    /// Whether the host may read or write pinned memory, or let it go.
    pub(crate) fn check_host(&self, key: Key, bytes: usize, writes: bool) -> Result<(), Misuse> {
        let Some(buffer) = self.buffers.get(key) else { return Ok(()) };
        if bytes > buffer.len {
            return Err(Misuse::Beyond { buffer: buffer.number, len: buffer.len, wanted: bytes });
        }
        let reads = buffer.read.iter().filter(|_| writes);
        match buffer.written.iter().chain(reads).find(|place| !self.has_ended(place)) {
            Some(place) => Err(Misuse::ByHost { buffer: buffer.number, stream: place.number }),
            None => Ok(()),
        }
    }

    // Effects.

    /// Does what the work in front does as it ends; whether it has ended with that.
    pub(super) fn begin_job(&mut self, stream: Key, at: Instant) -> bool {
        match self.streams.get_mut(stream).and_then(super::Queue::take_job) {
            Some(job) => match *job {
                Job::Effect(effect) => self.effect(effect, Whose::Stream(stream), at),
                Job::Free(key) => {
                    self.buffers.remove(key);
                    true
                }
                Job::Host(function) => {
                    let (whose, code) = (Whose::Stream(stream), Code::Host(function));
                    self.calling = Calling::Due(Call { device: self.device, whose, at, code });
                    false
                }
            },
            None => true,
        }
    }

    /// Does what work does as it ends; whether it has ended with that.
    pub(super) fn effect(&mut self, effect: Effect, whose: Whose, at: Instant) -> bool {
        let code = match effect {
            Effect::Fill(key, range, pattern) => {
                let bytes = self.buffers.get_mut(key).and_then(|buffer| buffer.bytes.get_mut(range));
                bytes
                    .unwrap_or_default()
                    .iter_mut()
                    .zip(pattern.iter().cycle())
                    .for_each(|(to, from)| *to = *from);
                return true;
            }
            Effect::Copy { from: (from, start), to: (to, offset), rows } => {
                for row in 0..rows.count {
                    let (start, offset) = (start + row * rows.from_pitch, offset + row * rows.to_pitch);
                    let source =
                        self.buffers.get(from).and_then(|from| from.bytes.get(start..start + rows.len));
                    let source = source.map(Vec::from).unwrap_or_default();
                    let target =
                        self.buffers.get_mut(to).and_then(|to| to.bytes.get_mut(offset..offset + rows.len));
                    if let Some(target) = target.filter(|target| target.len() == source.len()) {
                        target.copy_from_slice(&source);
                    }
                }
                return true;
            }
            Effect::Kernel(kernel, args, keys) => {
                let mut take = |key| {
                    let bytes = self.buffers.get_mut(key).map(|buffer| core::mem::take(&mut buffer.bytes));
                    (key, bytes.unwrap_or_default())
                };
                let buffers = keys.into_iter().map(&mut take).collect();
                Code::Kernel(kernel, SimArgs { args, buffers })
            }
        };
        self.calling = Calling::Due(Call { device: self.device, whose, at, code });
        false
    }

    /// The call that is to be made now, once the lock is free.
    #[must_use]
    pub(crate) fn take_call(&mut self) -> Option<Call> {
        if !matches!(self.calling, Calling::Due(_)) {
            return None;
        }
        match core::mem::replace(&mut self.calling, Calling::Now) {
            Calling::Due(call) => Some(call),
            Calling::Nothing | Calling::Now => None,
        }
    }

    /// A call has been made: the device goes on.
    pub(crate) fn end_call(&mut self, called: Called) {
        self.select(called.device);
        self.calling = Calling::Nothing;
        for (key, bytes) in called.buffers {
            if let Some(buffer) = self.buffers.get_mut(key) {
                buffer.bytes = bytes;
            }
        }
        if let Some(told) = &called.panicked {
            self.stop_by(called.at, told);
        }
        if self.fault.is_none() {
            match called.whose {
                Whose::Stream(stream) => self.finish_work(stream, called.at),
                Whose::Node(run, node) => self.finish_node(run, node, called.at),
            }
        }
        self.turn(self.now);
    }
}
