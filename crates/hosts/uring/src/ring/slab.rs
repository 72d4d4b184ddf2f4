//! The operations whose futures or buffers are waited for: a bounded table, and what the kernel may still use.
//!
//! ```text
//!            start               the last completion            take
//!   free ───────────► in flight ─────────────────────► ended ─────────► free
//!                      │     ▲                                           ▲
//!                      │     └── an earlier one of several               │
//!                      │ the future is dropped        the last           │
//!                      └───────────────────► orphan ─────────────────────┘
//! ```
//!
//! What an operation keeps leaves the table only behind its last completion: until then the kernel may write to it.

use alloc::sync::Arc;
use core::any::Any;
use core::task::Waker;
use std::os::fd::OwnedFd;

use super::tag::Key;

/// What the kernel may use until the last completion has come.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// So that the descriptor means the same file when the entry is submitted.
    #[expect(dead_code, reason = "it is kept for its drop")]
    pub(super) fd: Option<Arc<OwnedFd>>,
    pub(super) memory: Memory,
}

#[derive(Debug, Default)]
pub enum Memory {
    #[default]
    None,
    Buffer(Vec<u8>),
    Other(Box<dyn Any + Send>),
}

/// What the result of an operation means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A new descriptor, which is owned by nobody yet.
    Accept,
    /// So many bytes behind the length of the buffer have been written.
    Receive,
    /// Closes a descriptor: is not to be cancelled.
    Close,
    Other,
}

/// An operation of which nothing is in flight any more.
#[derive(Debug)]
pub struct Ended {
    pub(super) kind: Kind,
    /// The result, an error as its negative number.
    pub(super) result: i32,
    pub(super) memory: Memory,
}

#[derive(Debug)]
enum Phase {
    Free,
    Flying {
        kind: Kind,
        kept: Kept,
        waker: Option<Waker>,
        /// Of an operation that completes several times, as a zero-copy send does, the first result counts.
        result: Option<i32>,
        orphan: bool,
    },
    Ended(Ended),
}

#[derive(Debug)]
struct Slot {
    key: Key,
    phase: Phase,
}

/// What a completion changed.
#[derive(Debug)]
pub(super) enum Completed {
    /// Nothing that anybody waits for.
    Nothing,
    /// An operation has ended; its waker, if one was left.
    Ended(Option<Waker>),
    /// One that nobody wants has ended; what it leaves.
    Orphan(Ended),
}

/// What a future finds.
#[derive(Debug)]
pub(super) enum Polled {
    Ended(Ended),
    /// Not yet; the waker of the last poll is another one.
    Pending,
    /// Not yet, and the waker stands.
    Waits,
}

#[derive(Debug)]
pub(super) struct Slab {
    slots: Vec<Slot>,
    free: Vec<u32>,
    flying: usize,
}

impl Slab {
    /// Room for `most` operations, allocated here.
    pub(super) fn new(most: u32) -> Self {
        Self {
            slots: (0..most).map(|index| Slot { key: Key::new(index), phase: Phase::Free }).collect(),
            free: (0..most).rev().collect(),
            flying: 0,
        }
    }

    /// Takes a place; gives what was to be kept back where all are taken.
    pub(super) fn start(&mut self, kind: Kind, kept: Kept) -> Result<Key, Kept> {
        let Some(slot) = self.free.pop().and_then(|index| self.slots.get_mut(index as usize)) else {
            return Err(kept);
        };
        slot.key = slot.key.next();
        slot.phase = Phase::Flying { kind, kept, waker: None, result: None, orphan: false };
        self.flying += 1;
        Ok(slot.key)
    }

    /// Takes a start back that never reached the kernel.
    pub(super) fn unstart(&mut self, key: Key) -> Option<Kept> {
        let slot = self.slot(key)?;
        match core::mem::replace(&mut slot.phase, Phase::Free) {
            Phase::Flying { kept, .. } => {
                self.flying -= 1;
                self.free.push(key.index);
                Some(kept)
            }
            other => {
                slot.phase = other;
                None
            }
        }
    }

    /// What is kept for an operation in flight.
    pub(super) fn kept(&mut self, key: Key) -> Option<&mut Kept> {
        match &mut self.slot(key)?.phase {
            Phase::Flying { kept, .. } => Some(kept),
            _ => None,
        }
    }

    /// A completion came, the last one unless there are `more`.
    pub(super) fn complete(&mut self, key: Key, result: i32, more: bool) -> Completed {
        let Some(slot) = self.slot(key) else { return Completed::Nothing };
        if more {
            if let Phase::Flying { result: first, .. } = &mut slot.phase {
                first.get_or_insert(result);
            }
            return Completed::Nothing;
        }
        match core::mem::replace(&mut slot.phase, Phase::Free) {
            Phase::Flying { kind, kept, waker, result: first, orphan } => {
                let ended = Ended { kind, result: first.unwrap_or(result), memory: kept.memory };
                let completed = if orphan {
                    self.free.push(key.index);
                    Completed::Orphan(ended)
                } else {
                    slot.phase = Phase::Ended(ended);
                    Completed::Ended(waker)
                };
                self.flying -= 1;
                completed
            }
            other => {
                slot.phase = other;
                Completed::Nothing
            }
        }
    }

    pub(super) fn poll(&mut self, key: Key, waker: &Waker) -> Polled {
        if let Some(ended) = self.take(key) {
            return Polled::Ended(ended);
        }
        match self.slot(key).map(|slot| &slot.phase) {
            Some(Phase::Flying { waker: Some(last), .. }) if last.will_wake(waker) => Polled::Waits,
            _ => Polled::Pending,
        }
    }

    /// Leaves a waker; returns the one that stood there, or the new one where nothing is in flight, to be dropped.
    pub(super) fn leave(&mut self, key: Key, new: Waker) -> Option<Waker> {
        match self.slot(key).map(|slot| &mut slot.phase) {
            Some(Phase::Flying { waker, .. }) => waker.replace(new),
            _ => Some(new),
        }
    }

    /// Takes an operation that has ended.
    pub(super) fn take(&mut self, key: Key) -> Option<Ended> {
        let slot = self.slot(key)?;
        match core::mem::replace(&mut slot.phase, Phase::Free) {
            Phase::Ended(ended) => {
                self.free.push(key.index);
                Some(ended)
            }
            other => {
                slot.phase = other;
                None
            }
        }
    }

    /// Its future is gone. Returns its waker, to be dropped, and whether it should be cancelled.
    pub(super) fn orphan(&mut self, key: Key) -> (Option<Waker>, bool) {
        match self.slot(key).map(|slot| &mut slot.phase) {
            Some(Phase::Flying { waker, orphan, kind, .. }) => {
                *orphan = true;
                (waker.take(), *kind != Kind::Close)
            }
            _ => (None, false),
        }
    }

    /// How many are in flight.
    pub(super) fn flying(&self) -> usize {
        self.flying
    }

    /// The first one in flight from place `index` on that may be cancelled, of `orphans` only or all.
    pub(super) fn cancellable(&self, index: u32, orphans: bool) -> Option<Key> {
        let may = |slot: &&Slot| match slot.phase {
            Phase::Flying { orphan, kind, .. } => kind != Kind::Close && (orphan || !orphans),
            _ => false,
        };
        self.slots.get(index as usize..)?.iter().find(may).map(|slot| slot.key)
    }

    /// Gives up what is still in flight: its memory, which the kernel may use, is never freed. Returns how many.
    pub(super) fn leak(&mut self) -> usize {
        let mut leaked = 0;
        for slot in &mut self.slots {
            if let Phase::Flying { kept, .. } = &mut slot.phase {
                core::mem::forget(core::mem::take(&mut kept.memory));
                leaked += 1;
            }
        }
        leaked
    }

    fn slot(&mut self, key: Key) -> Option<&mut Slot> {
        self.slots.get_mut(key.index as usize).filter(|slot| slot.key == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(byte: u8) -> Kept {
        Kept { fd: None, memory: Memory::Buffer(vec![byte]) }
    }

    struct Nobody;

    impl alloc::task::Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn what_is_kept_leaves_behind_the_last_completion_alone() {
        let mut slab = Slab::new(1);
        let key = slab.start(Kind::Other, kept(1)).unwrap();
        assert!(slab.start(Kind::Other, kept(2)).is_err(), "it is full");
        assert!(matches!(slab.poll(key, Waker::noop()), Polled::Pending));
        assert!(slab.take(key).is_none());
        assert!(matches!(slab.complete(key, 5, true), Completed::Nothing), "there are more");
        let waker = Waker::from(Arc::new(Nobody));
        assert!(slab.leave(key, waker.clone()).is_none());
        assert!(matches!(slab.poll(key, &waker), Polled::Waits));
        assert!(matches!(slab.complete(key, 0, false), Completed::Ended(Some(_))));
        assert_eq!(slab.flying(), 0);
        let Polled::Ended(ended) = slab.poll(key, Waker::noop()) else { panic!("it has not ended") };
        assert_eq!(ended.result, 5, "the first result counts");
        assert!(matches!(slab.complete(key, 9, false), Completed::Nothing), "a completion came twice");
        assert_eq!(slab.leak(), 0);
    }

    #[test]
    fn an_old_key_meets_nothing_of_the_next_use() {
        let mut slab = Slab::new(1);
        let old = slab.start(Kind::Other, kept(1)).unwrap();
        assert!(matches!(slab.orphan(old), (None, true)));
        assert_eq!((slab.cancellable(0, true), slab.cancellable(1, true)), (Some(old), None));
        let Completed::Orphan(ended) = slab.complete(old, -125, false) else { panic!("it was no orphan") };
        assert!(matches!(ended.memory, Memory::Buffer(_)));
        let new = slab.start(Kind::Close, kept(2)).unwrap();
        assert_ne!(old, new);
        assert!(matches!(slab.complete(old, 0, false), Completed::Nothing));
        assert!(slab.kept(old).is_none() && slab.kept(new).is_some());
        assert!(matches!(slab.orphan(new), (None, false)), "a close is not cancelled");
        assert_eq!((slab.flying(), slab.leak()), (1, 1));
    }

    #[test]
    fn a_start_that_is_taken_back_frees_its_place() {
        let mut slab = Slab::new(1);
        let key = slab.start(Kind::Other, kept(7)).unwrap();
        assert!(matches!(slab.unstart(key).unwrap().memory, Memory::Buffer(bytes) if bytes == [7]));
        assert_eq!(slab.flying(), 0);
        assert!(slab.start(Kind::Other, kept(1)).is_ok());
    }
}
