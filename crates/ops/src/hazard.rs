//! Hazards: two operations on one buffer, one of them a write, are ordered on the device.
//!
//! A buffer remembers who wrote it last and who has read it since, each as a stream and a place in it, behind the work. Whoever comes
//! next in another stream has that stream wait for the place; the host waits for nothing, and nothing is refused.
//!
//! The record of a buffer is locked from the look at it until the new work is enqueued. So there is never a use that is known of and not submitted. The event behind a use
//! is recorded when its submission is through, one for all of its uses in a stream, or by whoever has to come behind one of them before that. So every device-side
//! wait is for an event that was recorded behind work that was enqueued, and streams cannot wait for each other in a circle. Several buffers of one call are
//! locked in the order of their numbers. Only calls that enqueue are made under these locks.
//!
//! Why not tickets, taken for all of an operation's buffers under one short lock and served later? Whoever holds a ticket is not submitted
//! yet, so that others would have to wait for it as futures, would be woken for it, and could be made to wait for good by one who was
//! forgotten between the two. Here the time under the locks is that of the calls: a few microseconds for a launch, a record and a wait for
//! each other stream, and only those wait who use the same buffer at the same moment from another thread, whose work has to come after
//! that in any case. What it costs: a thread that loses its processor under the locks holds up those.

// A promise to the port, which the records here keep.
#![allow(unsafe_code)]

use core::any::Any;
use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::{Array, SmallVec};
use wakeline_core::{Error, ErrorCode};

use crate::counts::Counters;
use crate::events::Place;
use crate::machine::Doubts;
use crate::port::{Device, Memory, Promise};
use crate::runtime::Core;
use crate::stream::Stream;
use crate::submission::Submission;
use crate::sync::{Lock, MutexGuard};

/// What there is for each buffer of a call.
type Few<T> = SmallVec<[T; 8]>;

/// A buffer of the device with the record of its uses: what a library of tensors builds on.
///
/// It is used by [`Submission::touch`], which orders the uses, whichever streams they are in. Freed when nobody holds it any more, in the order of
/// the stream in which it was allocated; every flight that uses it holds it, so dropping a handle waits for nothing and frees nothing that the
/// device may still touch.
///
/// ```
/// use wakeline_core::Error;
/// use wakeline_ops::port::{At, Memory, Pattern, Promise};
/// use wakeline_ops::{DeviceOp, Runtime, SingleStream, Storage, Submission, value, with_context};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let runtime = Runtime::new(device.clone(), &SingleStream, VirtualWatcher::new(&device))?;
/// let zeros = with_context(|submission: &mut Submission<SimDevice>| {
///     let storage = Storage::alloc(submission, 64)?;
///     submission.touch(&[storage.write()], |device, stream| {
///         // SAFETY: the storage stays until this is done, and `touch` orders what else uses it.
///         let promise = unsafe { Promise::new() };
///         device.fill(stream, At::from(storage.buffer()), Pattern::One(0), 64, promise)
///     })?;
///     Ok(value(storage))
/// });
/// assert_eq!(zeros.on(&runtime).sync()?.len_bytes(), 64);
/// # Ok::<(), Error>(())
/// ```
pub struct Storage<D: Memory> {
    buffer: D::Buffer,
    len_bytes: usize,
    origin: Origin,
    /// The stream in which it was allocated, and is freed.
    stream: Stream<D>,
    number: u64,
    uses: Lock<Uses<D>>,
}

/// Whose memory it is.
enum Origin {
    /// The device's, to be freed.
    Allocated,
    /// Somebody else's, who is kept until it was given back.
    Foreign(Option<Owner>),
}

/// The number of no submission.
const NOBODY: u64 = u64::MAX;

/// What owns memory that was not allocated here.
type Owner = Box<dyn Any + Send + Sync>;

pub(crate) struct Uses<D: Device> {
    written: Option<Use<D>>,
    /// Since it was written: the last of each stream.
    read: Vec<Use<D>>,
    /// The number of the last submission that keeps the buffer: it need not do so twice.
    kept_by: u64,
    /// Devices that what is in it came from, where those may not have been well.
    doubts: Doubts,
}

/// Keeps its stream until another use has taken its place.
pub(crate) struct Use<D: Device> {
    stream: Stream<D>,
    place: Place,
}

impl<D: Device> Use<D> {
    pub(crate) const fn at(&self) -> (&Stream<D>, Place) {
        (&self.stream, self.place)
    }

    fn has_landed(&self) -> bool {
        self.stream.has_landed(self.place)
    }
}

/// What a call's use of a buffer asks of its record.
#[derive(Clone, Copy)]
pub(crate) enum Wants {
    /// It is known of by its submission's uses before.
    Nothing,
    Use {
        writes: bool,
    },
}

/// A call's use of a buffer; see [`Submission::touch`].
pub struct Touch<'a, D: Memory> {
    storage: &'a Arc<Storage<D>>,
    writes: bool,
}

impl<D: Memory> Storage<D> {
    /// Allocates in the stream of the submission. What is in it is anything.
    ///
    /// Costs an allocation of the device and, once for all uses of memory in a submission, the recording of an event.
    ///
    /// # Errors
    ///
    /// What the device says: its fault, or [`OutOfMemory`](ErrorCode::OutOfMemory).
    pub fn alloc(submission: &mut Submission<D>, len_bytes: usize) -> Result<Arc<Self>, Error> {
        Self::begin(submission, len_bytes, Origin::Allocated, |device, stream| {
            device.alloc(stream, len_bytes)
        })
    }

    /// Memory that somebody else has allocated. `owner` is kept until the last use is done, and dropped then by whoever sees that, or given back by
    /// [`into_owner`](Self::into_owner); the memory is never freed here.
    ///
    /// Uses in other streams come behind what is enqueued in the submission's stream by now. To have them come behind work that others have enqueued
    /// elsewhere, have that stream wait for an event of theirs first.
    ///
    /// # Errors
    ///
    /// What the device says; `owner` is dropped then.
    ///
    /// # Safety
    ///
    /// - `buffer` names `len_bytes` bytes of memory of the submission's device, aligned as what is put into them has to be. They stay until `owner` is dropped.
    /// - Until `owner` is dropped or given back nobody else uses them, but for work that is done, or in front of what is enqueued in the submission's stream by now.
    pub unsafe fn foreign<O: Send + Sync + 'static>(
        submission: &mut Submission<D>,
        buffer: D::Buffer,
        len_bytes: usize,
        owner: O,
    ) -> Result<Foreign<D>, Error> {
        let origin = Origin::Foreign(Some(Box::new(owner)));
        Self::begin(submission, len_bytes, origin, |_, _| Ok(buffer)).map(Foreign)
    }

    /// What owns memory that was not allocated here, of the type that it was handed in as: once nobody else has the storage any more and nothing of it is in
    /// flight. Else it stays as it is.
    ///
    /// # Errors
    ///
    /// The storage.
    pub fn into_owner<O: Send + Sync + 'static>(self: Arc<Self>) -> Result<O, Arc<Self>> {
        if !matches!(&self.origin, Origin::Foreign(Some(owner)) if owner.is::<O>()) {
            return Err(self);
        }
        let mut storage = Arc::try_unwrap(self)?;
        let owner = match &mut storage.origin {
            Origin::Foreign(owner) => owner.take(),
            Origin::Allocated => None,
        };
        let owner = owner.and_then(|owner| owner.downcast::<O>().ok()).map(|owner| *owner);
        // Never an error: it was there, and of that type.
        owner.ok_or_else(|| Arc::new(storage))
    }

    /// A first use, which others come behind: that of a buffer which is made here.
    fn begin(
        submission: &mut Submission<D>,
        len_bytes: usize,
        origin: Origin,
        make: impl FnOnce(&D, &D::Stream) -> Result<D::Buffer, Error>,
    ) -> Result<Arc<Self>, Error> {
        // Numbers say nothing but which is locked first.
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        if submission.records() {
            let (what, instead) = match origin {
                Origin::Allocated => ("an allocation", "allocate before the capture, and hand the memory in"),
                Origin::Foreign(_) => {
                    ("memory of somebody else that is brought in", "bring it in before the capture")
                }
            };
            submission.not_recorded(&what, &instead)?;
        }
        submission.room(2)?;
        let stream = submission.stream().clone();
        let place = submission.open()?;
        let buffer = make(stream.device(), stream.raw())?;
        // The allocation is a use as any: other streams come after it.
        stream.enqueued(place);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let written = Some(Use { stream: stream.clone(), place });
        let uses = Uses { written, read: Vec::new(), kept_by: submission.number, doubts: None };
        let storage = Arc::new(Self { buffer, len_bytes, origin, stream, number, uses: Lock::new(uses) });
        submission.retain_shared(&storage);
        Ok(storage)
    }

    /// The device's name for it: for the closure of [`Submission::touch`]. Whatever touches memory by it asks for a [`Promise`].
    pub const fn buffer(&self) -> &D::Buffer {
        &self.buffer
    }

    /// How many bytes it has.
    pub const fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// A use that only reads it.
    #[inline]
    pub const fn read(self: &Arc<Self>) -> Touch<'_, D> {
        Touch { storage: self, writes: false }
    }

    /// A use that writes it, and may read it.
    #[inline]
    pub const fn write(self: &Arc<Self>) -> Touch<'_, D> {
        Touch { storage: self, writes: true }
    }
}

/// Memory that somebody else has allocated, and that nobody uses here yet: what a library of tensors makes one of. See [`Storage::foreign`].
pub struct Foreign<D: Memory>(Arc<Storage<D>>);

impl<D: Memory> Foreign<D> {
    /// The storage. Whoever takes it out is the one who names it.
    pub fn into_storage(self) -> Arc<Storage<D>> {
        self.0
    }
}

impl<D: Memory> fmt::Debug for Foreign<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Foreign").field(&self.0).finish()
    }
}

impl<D: Memory> Drop for Storage<D> {
    fn drop(&mut self) {
        if matches!(self.origin, Origin::Foreign(_)) {
            return;
        }
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
        f.debug_struct("Storage")
            .field("number", &self.number)
            .field("len_bytes", &self.len_bytes)
            .finish_non_exhaustive()
    }
}

impl<D: Memory> fmt::Debug for Touch<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Touch").field("storage", self.storage).field("writes", &self.writes).finish()
    }
}

impl<D: Device> Uses<D> {
    pub(crate) const fn new() -> Self {
        Self { written: None, read: Vec::new(), kept_by: NOBODY, doubts: None }
    }

    /// What the use has to wait for in this stream.
    pub(crate) fn before(&self, stream: u64, writes: bool) -> impl Iterator<Item = &Use<D>> {
        let read = self.read.iter().filter(move |_| writes);
        self.written.iter().chain(read).filter(move |before| before.stream.id() != stream)
    }

    /// A place that comes behind all of `before`. One of the same stream gives its place to it, and so no stream is counted once more.
    pub(crate) fn note(&mut self, stream: &Stream<D>, place: Place, writes: bool) {
        let before = if writes {
            self.read.clear();
            self.written.as_mut().filter(|before| before.stream.id() == stream.id())
        } else {
            self.read.iter_mut().find(|before| before.stream.id() == stream.id())
        };
        if let Some(before) = before {
            before.place = place;
            return;
        }
        let now = Use { stream: stream.clone(), place };
        if writes {
            self.written = Some(now);
        } else {
            self.read.push(now);
        }
    }

    /// Whether the last use is at this very place, and as much of one: then another comes behind nothing else, and is known of by now.
    #[inline]
    fn is_at(&self, stream: u64, place: Place, writes: bool) -> bool {
        let last = match (writes, &*self.read) {
            (true, []) => &self.written,
            // What was written before that read was waited for then, or is in the same stream.
            (false, [read]) => return read.stream.id() == stream && read.place == place,
            _ => return false,
        };
        last.as_ref().is_some_and(|written| written.stream.id() == stream && written.place == place)
    }

    /// How many uses in other streams than this it has to wait for. Takes out those that are known to have landed: nobody has to wait for them, nor to keep their streams.
    #[inline]
    fn settle(&mut self, stream: u64, writes: bool, landed: &mut SmallVec<impl Array<Item = Use<D>>>) -> u32 {
        let mut before = 0;
        if let Some(written) = &self.written
            && written.stream.id() != stream
        {
            if written.has_landed() {
                landed.extend(self.written.take());
            } else {
                before += 1;
            }
        }
        let mut at = 0;
        while let Some(read) = self.read.get(at) {
            let elsewhere = read.stream.id() != stream;
            if elsewhere && read.has_landed() {
                landed.push(self.read.swap_remove(at));
                continue;
            }
            before += u32::from(elsewhere && writes);
            at += 1;
        }
        before
    }
}

impl<D: Memory> Submission<D> {
    /// Makes one call that enqueues work on these buffers, behind all that it conflicts with; later uses come behind it. A buffer may be named several
    /// times. The buffers live until the work of this submission is done.
    ///
    /// `enqueue` is called once, with the records of the buffers locked: it MUST only enqueue, in that stream, and what it enqueues MUST touch no
    /// other buffers, and write none but those named by [`Storage::write`]. That is also what the [`Promise`]s that it makes are for. Where it fails it MUST have
    /// enqueued nothing: so of several calls make each by itself.
    ///
    /// Costs the recording of an event once for all that a submission does in a stream, a wait for each use in another stream that it comes after, and no allocation
    /// for up to eight buffers.
    ///
    /// # Errors
    ///
    /// [`ForeignMemory`](ErrorCode::ForeignMemory) where a buffer is another runtime's; what `enqueue` says; what the device says, also of an event that it could not record
    /// behind a use that this one comes after.
    #[inline]
    pub fn touch(
        &mut self,
        touches: &[Touch<'_, D>],
        enqueue: impl FnOnce(&D, &D::Stream) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.touched.set(true);
        // Each once, for its lock, by their numbers; a write among its uses makes it one.
        let mut order: Few<(&Arc<Storage<D>>, bool)> = Few::new();
        for &Touch { storage, writes } in touches {
            if !Arc::ptr_eq(storage.stream.core(), self.stream.core()) {
                return Err(Error::new(ErrorCode::ForeignMemory, []));
            }
            // There are few, most often in their order.
            if order.last().is_none_or(|(last, _)| last.number < storage.number) {
                order.push((storage, writes));
                continue;
            }
            let at = order.iter().rposition(|(before, _)| before.number <= storage.number);
            match at.and_then(|at| order.get_mut(at)).filter(|(before, _)| before.number == storage.number) {
                Some((_, before)) => *before |= writes,
                None => order.insert(at.map_or(0, |at| at + 1), (storage, writes)),
            }
        }
        if order.is_empty() {
            // Nobody can conflict with it.
            self.room(1)?;
            self.enter(1);
            return enqueue(self.stream.device(), self.stream.raw());
        }
        if self.records() {
            return self.touch_recorded(&order, enqueue);
        }
        let items =
            order.iter().map(|&(storage, writes)| Item { uses: &storage.uses, writes, keeps: Some(storage) });
        self.in_order::<[(MutexGuard<'_, Uses<D>>, Wants); 8], [Use<D>; 8]>(items, || true, enqueue).map(drop)
    }

    /// Makes one call that enqueues work, with these records locked, behind all that it conflicts with; later uses come behind it. False, and nothing was enqueued, where it was not `current`
    /// any more once they were locked.
    #[inline]
    pub(crate) fn in_order<'u, L, U>(
        &mut self,
        items: impl Iterator<Item = Item<'u, D>> + Clone,
        current: impl Fn() -> bool,
        enqueue: impl FnOnce(&D, &D::Stream) -> Result<(), Error>,
    ) -> Result<bool, Error>
    where
        L: Array<Item = (MutexGuard<'u, Uses<D>>, Wants)>,
        U: Array<Item = Use<D>>,
    {
        let stream = self.stream.id();
        // Streams that nobody may have any more: dropped without the locks.
        let mut landed: SmallVec<U> = SmallVec::new();
        let mut locked: SmallVec<L>;
        let (mut before, mut asked) = (0_u32, 0);
        let place = loop {
            // Without the locks: room may have to be waited for, and an event be made.
            self.room(before.saturating_add(1 + u32::from(self.open.is_none())))?;
            let place = self.open()?;
            locked = SmallVec::new();
            before = 0;
            for Item { uses, writes, keeps } in items.clone() {
                let mut uses = uses.lock();
                let is_kept = keeps.is_none() || uses.kept_by == self.number;
                let wants = if is_kept && uses.is_at(stream, place, writes) {
                    Wants::Nothing
                } else {
                    before = before.saturating_add(uses.settle(stream, writes, &mut landed));
                    Wants::Use { writes }
                };
                locked.push((uses, wants));
            }
            if !current() {
                return Ok(false);
            }
            let entries = before.saturating_add(1);
            // Each time it is for more: for other streams that have come meanwhile.
            if self.has_room(entries) || entries <= asked {
                break place;
            }
            drop(locked);
            asked = entries;
        };
        // What it waits for by now. Of two places of one stream the higher may end before the other: it was opened later, by another thread or in a branch.
        let mut waited: Few<(u64, u64)> = Few::new();
        for ((uses, wants), Item { keeps, .. }) in locked.iter_mut().zip(items.clone()) {
            if uses.doubts.is_some() {
                self.shares(&mut uses.doubts)?;
            }
            let Wants::Use { writes } = *wants else { continue };
            // Before anything is enqueued: whatever happens from here on, the buffers stay until this submission's work is done.
            if let Some(storage) = keeps
                && uses.kept_by != self.number
            {
                self.retain_shared(storage);
                uses.kept_by = self.number;
            }
            if before > 0 {
                for before in uses.before(stream, writes) {
                    let (id, number) = (before.stream.id(), before.place.number);
                    if waited.contains(&(id, number)) {
                        continue;
                    }
                    waited.push((id, number));
                    self.wait_behind(&before.stream, before.place)?;
                }
            }
        }
        self.enter(1);
        enqueue(self.stream.device(), self.stream.raw())?;
        self.stream.enqueued(place);
        for (uses, wants) in &mut locked {
            if let Wants::Use { writes } = *wants {
                uses.note(&self.stream, place, writes);
            }
        }
        if self.verdicts.is_some() {
            let written = locked.iter_mut().zip(items).filter(|(_, item)| item.writes);
            self.hands_on(written.map(|((uses, _), _)| &mut uses.doubts));
        }
        Ok(true)
    }

    /// As [`touch`](Self::touch) of two, of which the one that is read may be memory of another device of the same machine.
    pub(crate) fn touch_from(
        &mut self,
        from: &Arc<Storage<D>>,
        to: &Arc<Storage<D>>,
        enqueue: impl FnOnce(&D, &D::Stream) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.touched.set(true);
        // By which number it is kept only its own device's submissions know.
        self.retain_shared(from);
        let mut items = [
            Item { uses: &from.uses, writes: false, keeps: None },
            Item { uses: &to.uses, writes: true, keeps: Some(to) },
        ];
        if from.number > to.number {
            items.reverse();
        }
        let items = items.into_iter();
        self.in_order::<[(MutexGuard<'_, Uses<D>>, Wants); 2], [Use<D>; 8]>(items, || true, enqueue).map(drop)
    }
}

/// A record that a call is ordered by.
pub(crate) struct Item<'u, D: Memory> {
    pub(crate) uses: &'u Lock<Uses<D>>,
    pub(crate) writes: bool,
    /// Whose it is, where the submission is to keep that.
    pub(crate) keeps: Option<&'u Arc<Storage<D>>>,
}

impl<D: Memory> Clone for Item<'_, D> {
    fn clone(&self) -> Self {
        Self { uses: self.uses, writes: self.writes, keeps: self.keeps }
    }
}

impl<D: Memory> Storage<D> {
    pub(crate) const fn uses(&self) -> &Lock<Uses<D>> {
        &self.uses
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Whose memory it is.
    pub(crate) fn core(&self) -> &Arc<Core<D>> {
        self.stream.core()
    }

    /// Whether it is memory of these runtimes.
    pub(crate) fn is_of(&self, core: &Arc<Core<D>>) -> bool {
        Arc::ptr_eq(self.stream.core(), core)
    }
}
