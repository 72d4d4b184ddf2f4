//! What lives until the device is done, of any type.
//!
//! Invariant: what is in an [`Owner`] is dropped exactly once, by its drop, or never, where the owner is forgotten.

// Values of any type in a few words, without an allocation: what a box does, where there is room.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;

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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

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
