//! Tasks that are to be woken at a moment or when a token is cancelled, whether or not their work has ended by then.
//!
//! ```text
//!   poll that pends ──register──► slot ──deadline──► heap ──earliest──► one alarm of who tends ─┐
//!        ▲                          │ token                                                     ├─► look: wakes whose time has come
//!        └────────── woken ◄────────┴──────────────────── the tokens' bell ─────────────────────┘
//! ```
//!
//! There is one alarm at a time, for the earliest deadline; those of operations that have ended are passed by when their time comes, so
//! that thousands of operations with a time-out each cost an alarm or two in that time. No allocation once as many were there at a time.

use core::cmp::Reverse;
use core::fmt;
use core::task::{Context, Waker};
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};
use std::task::Wake;

use smallvec::SmallVec;
use wakeline_core::{CANCEL_NS_MAX, CancelToken, Instant, Nanos};

use crate::lock;
use crate::panics::survive;
use crate::port::Device;
use crate::runtime::Core;
use crate::sync::Lock;

/// How many entries the heap may have beyond twice those that count before the others are thrown out.
const STALE_MAX: usize = 64;

pub(crate) struct Interests<D: Device> {
    core: Weak<Core<D>>,
    inner: Lock<Inner>,
}

#[derive(Default)]
struct Inner {
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Deadlines, and whose they are.
    heap: BinaryHeap<Reverse<(Instant, usize, u64)>>,
    /// When the alarm comes.
    alarm: Option<Instant>,
    generation: u64,
}

#[derive(Default)]
struct Slot {
    waker: Option<Waker>,
    cancel: Option<CancelToken>,
    /// What stands in the heap, where that counts.
    queued: Option<(Instant, u64)>,
}

/// A slot. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place<D: Device> {
    interests: Arc<Interests<D>>,
    number: usize,
}

impl<D: Device> Drop for Place<D> {
    fn drop(&mut self) {
        let slot = {
            let mut inner = self.interests.inner.lock();
            inner.free.push(self.number);
            inner.slots.get_mut(self.number).map(core::mem::take)
        };
        if let Some(Slot { waker, cancel, .. }) = slot {
            // Of others.
            survive(|| drop((waker, cancel)));
        }
    }
}

impl<D: Device> Interests<D> {
    pub(crate) fn new(core: Weak<Core<D>>) -> Arc<Self> {
        Arc::new(Self { core, inner: Lock::new(Inner::default()) })
    }

    /// A token that is looked at at once.
    pub(crate) fn token(self: &Arc<Self>) -> CancelToken {
        CancelToken::ringing(self.bell())
    }

    fn bell(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// Has the task woken at `at` and when the token is cancelled; one that rings somebody else is looked at each
    /// [`CANCEL_NS_MAX`]. The caller looks again at both afterwards.
    pub(crate) fn register(
        self: &Arc<Self>,
        core: &Core<D>,
        place: &mut Option<Place<D>>,
        context: &Context<'_>,
        at: Instant,
        cancel: Option<&CancelToken>,
    ) {
        // Cloned and dropped without the lock: a waker is somebody else's code.
        let waker = context.waker().clone();
        let bell = self.bell();
        let rung = cancel.is_none_or(|token| token.bell().is_some_and(|its| its.will_wake(&bell)));
        let at = if rung { at } else { at.min(core.tender.now() + Nanos::from_nanos(CANCEL_NS_MAX)) };
        let (number, old, alarm) = {
            let mut inner = self.inner.lock();
            let number = match place {
                Some(place) => place.number,
                None => inner.free.pop().unwrap_or_else(|| {
                    inner.slots.push(Slot::default());
                    inner.slots.len() - 1
                }),
            };
            inner.generation += 1;
            let generation = inner.generation;
            let slot = &mut inner.slots[number];
            let old = (slot.waker.replace(waker), core::mem::replace(&mut slot.cancel, cancel.cloned()));
            let mut alarm = None;
            if at < Instant::MAX && slot.queued.is_none_or(|(queued, _)| queued != at) {
                slot.queued = Some((at, generation));
                inner.heap.push(Reverse((at, number, generation)));
                inner.throw_out();
                if inner.alarm.is_none_or(|alarm| at < alarm) {
                    inner.alarm = Some(at);
                    alarm = Some(at);
                }
            }
            (number, old, alarm)
        };
        place.get_or_insert_with(|| Place { interests: Arc::clone(self), number });
        drop(old);
        if let Some(at) = alarm {
            core.tender.alarm(at, &bell);
        }
    }

    /// Wakes those whose time has come or whose token was cancelled, and sets the next alarm.
    fn look(self: &Arc<Self>) {
        let Some(core) = self.core.upgrade() else { return };
        let now = core.tender.now();
        let mut due = SmallVec::<[Waker; 8]>::new();
        let next = {
            let mut inner = self.inner.lock();
            let cancelled = |slot: &&mut Slot| slot.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
            due.extend(inner.slots.iter_mut().filter(cancelled).filter_map(|slot| slot.waker.take()));
            while let Some(&Reverse((at, number, generation))) = inner.heap.peek() {
                let slot = &mut inner.slots[number];
                let counts = slot.queued == Some((at, generation));
                if counts && at > now {
                    break;
                }
                if counts {
                    slot.queued = None;
                    due.extend(slot.waker.take());
                }
                inner.heap.pop();
            }
            let next = inner.heap.peek().map(|&Reverse((at, ..))| at);
            // An alarm that is on its way stays, unless it has come.
            let stays = inner.alarm.filter(|&alarm| alarm > now && next.is_some_and(|next| alarm <= next));
            inner.alarm = stays.or(next);
            if stays.is_some() { None } else { next }
        };
        for waker in due {
            lock::wake(waker);
        }
        if let Some(at) = next {
            core.tender.alarm(at, &self.bell());
        }
    }
}

impl Inner {
    /// Throws out what does not count, where that is more than half.
    fn throw_out(&mut self) {
        let counts = self.slots.len() - self.free.len();
        if self.heap.len() > 2 * counts + STALE_MAX {
            let slots = &self.slots;
            self.heap.retain(|&Reverse((at, number, generation))| {
                slots.get(number).is_some_and(|slot| slot.queued == Some((at, generation)))
            });
        }
    }
}

impl<D: Device> Wake for Interests<D> {
    fn wake(self: Arc<Self>) {
        self.look();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.look();
    }
}

impl<D: Device> fmt::Debug for Interests<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interests").finish_non_exhaustive()
    }
}
