//! What lives until the device is done, of any type.
//!
//! Invariant: what is in an [`Owner`] is dropped exactly once, by its drop, or never, where the owner is forgotten.

// Values of any type in a few words, without an allocation: what a box does, where there is room.
#![allow(unsafe_code)]

use core::mem::{ManuallyDrop, MaybeUninit};
use std::collections::VecDeque;

/// How many words a value may have to be kept without an allocation.
const WORDS: usize = 4;

type Room = MaybeUninit<[usize; WORDS]>;

/// A value of any type, kept to be dropped. Small ones cost no allocation.
pub(crate) struct Owner {
    room: Room,
    /// Drops what is in the room. Called once, with a room that holds what it was made for.
    let_go: unsafe fn(*mut Room),
}

// SAFETY: whatever is in it was `Send` as `new` took it, and it is touched by nothing but the drop, of whoever has the owner.
unsafe impl Send for Owner {}

impl Owner {
    /// Keeps `value`. Costs an allocation where it has more than four words, or is aligned to more than a word.
    pub(crate) fn new<T: Send + 'static>(value: T) -> Self {
        if size_of::<T>() <= size_of::<Room>() && align_of::<T>() <= align_of::<Room>() {
            Self::inline(value)
        } else {
            Self::inline(Box::new(value))
        }
    }

    fn inline<T: Send + 'static>(value: T) -> Self {
        debug_assert!(size_of::<T>() <= size_of::<Room>() && align_of::<T>() <= align_of::<Room>());
        let mut room = Room::uninit();
        // SAFETY: both callers have seen that the value fits, in size and in alignment: a box is one word. Nothing is in the room yet.
        unsafe { room.as_mut_ptr().cast::<T>().write(value) };
        Self { room, let_go: let_go::<T> }
    }
}

/// Drops the `T` in a room.
///
/// # Safety
///
/// There is one, and nobody uses it any more.
unsafe fn let_go<T>(room: *mut Room) {
    // SAFETY: as the caller promises; the room is valid for writes, and it is aligned as when the value was put there.
    unsafe { room.cast::<T>().drop_in_place() };
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: the function was made together with what is in the room, which was put there by `inline` and which nothing but this has
        // touched; a drop runs once.
        unsafe { (self.let_go)(&raw mut self.room) };
    }
}

/// What a submission keeps, in the order in which it is let go. The first few cost no allocation.
pub(crate) struct Owners {
    /// Of the first few, those from `begun` to `len` are there.
    few: [MaybeUninit<Owner>; FEW],
    begun: usize,
    len: usize,
    /// What comes behind them. Dropped by hand, so that where there is none nothing is called.
    more: ManuallyDrop<Option<Box<More>>>,
}

/// Behind one pointer, for there seldom are any.
#[derive(Default)]
struct More(VecDeque<Owner>);

/// How many owners are kept without an allocation.
const FEW: usize = 4;

impl Owners {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self { few: [const { MaybeUninit::uninit() }; FEW], begun: 0, len: 0, more: ManuallyDrop::new(None) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len - self.begun + self.more.as_ref().map_or(0, |more| more.0.len())
    }

    #[inline]
    pub(crate) fn push(&mut self, owner: Owner) {
        match self.few.get_mut(self.len) {
            Some(room) => {
                room.write(owner);
                self.len += 1;
            }
            None => self.more.get_or_insert_default().0.push_back(owner),
        }
    }

    #[cold]
    fn drop_all(&mut self) {
        // Should one panic, the others are leaked, as by whoever is told that nobody knows of their end.
        self.let_go();
        drop(ManuallyDrop::into_inner(core::mem::take(&mut self.more)));
    }

    #[cold]
    fn pop_more(&mut self) -> Option<Owner> {
        self.more.as_mut()?.0.pop_front()
    }
}

impl Owners {
    /// Takes all of another's, which is empty then and may be filled again.
    #[inline]
    pub(crate) fn take_from(&mut self, other: &mut Self) {
        for owner in other.by_ref() {
            self.push(owner);
        }
        // All of the first few are taken.
        (other.begun, other.len) = (0, 0);
    }

    /// Drops them where they are, the first one first. Each counts as gone by the time it is dropped, so that this may be called again after a panic.
    #[inline]
    pub(crate) fn let_go(&mut self) {
        while self.begun < self.len {
            let room = self.begun;
            self.begun += 1;
            // SAFETY: as in `next`.
            unsafe { self.few[room].assume_init_drop() };
        }
        if self.more.is_some() {
            self.for_each(drop);
        }
    }
}

/// Takes them out, the first one first.
impl Iterator for Owners {
    type Item = Owner;

    #[inline]
    fn next(&mut self) -> Option<Owner> {
        if self.begun < self.len {
            let room = self.begun;
            self.begun += 1;
            // SAFETY: `push` has put an owner in each place below `len`, and each is taken once: it counts as taken by now. A place is only
            // filled again once all are taken.
            return Some(unsafe { self.few[room].assume_init_read() });
        }
        if self.more.is_some() { self.pop_more() } else { None }
    }
}

impl Drop for Owners {
    #[inline]
    fn drop(&mut self) {
        if self.begun < self.len || self.more.is_some() {
            self.drop_all();
        }
    }
}

impl Default for Owners {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn owners_are_let_go_in_order_and_each_once_however_many_there_are() {
        for count in [0, 1, 3, 4, 5, 9] {
            let kept = Arc::new(());
            let mut owners = Owners::new();
            for _ in 0..count {
                owners.push(Owner::new(Arc::clone(&kept)));
            }
            assert_eq!((owners.len(), Arc::strong_count(&kept)), (count, count + 1));
            // Moved, and with some of them gone before it is dropped.
            let mut owners = Box::new(owners);
            drop(owners.next());
            assert_eq!(owners.len(), count.saturating_sub(1));
            let mut others = Owners::new();
            others.take_from(&mut owners);
            assert_eq!((owners.len(), others.len()), (0, count.saturating_sub(1)));
            owners.push(Owner::new(Arc::clone(&kept)));
            assert_eq!((owners.len(), Arc::strong_count(&kept)), (1, count.saturating_sub(1) + 2));
            others.let_go();
            assert_eq!((others.len(), Arc::strong_count(&kept)), (0, 2));
            drop((owners, others));
            assert_eq!(Arc::strong_count(&kept), 1);
        }
    }

    #[repr(align(64))]
    struct Wide(#[expect(dead_code, reason = "it is dropped")] Arc<()>);

    #[test]
    fn each_value_is_dropped_once_wherever_it_is_kept_and_never_where_it_is_forgotten() {
        let count = Arc::new(());
        let owners = || {
            let one = || Arc::clone(&count);
            [
                Owner::new(one()),
                Owner::new([one(), one(), one(), one()]),
                Owner::new([one(), one(), one(), one(), one()]),
                Owner::new(Wide(one())),
                Owner::new(()),
                Owner::new(one() as Arc<dyn Send + Sync>),
            ]
        };
        let all = owners();
        assert_eq!(Arc::strong_count(&count), 13);
        // They move with the array.
        let moved = Box::new(all);
        drop(moved);
        assert_eq!(Arc::strong_count(&count), 1);
        owners().into_iter().for_each(core::mem::forget);
        assert_eq!(Arc::strong_count(&count), 13);
    }
}
