//! Memory for a program without an operating system: handed out once, never taken back.
#![allow(unsafe_code, reason = "an allocator")]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

/// How much memory there is, bytes: each run takes some kilobytes, and none is given back.
const BYTES: usize = 1 << 17;

#[repr(align(64))]
struct Arena(UnsafeCell<[u8; BYTES]>);

// SAFETY: only the allocator looks into it, which hands out each byte once.
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena(UnsafeCell::new([0; BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);

/// Hands out memory and takes none back.
struct Bump;

// SAFETY: every block lies within the arena, at its alignment (the arena's is 64, more is refused), and overlaps no other, since `USED` only grows.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > 64 {
            return core::ptr::null_mut();
        }
        let fit = |used: usize| {
            let start = used.next_multiple_of(layout.align());
            let end = start.checked_add(layout.size())?;
            (end <= BYTES).then_some((start, end))
        };
        let took =
            USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| fit(used).map(|(_, end)| end));
        match took.ok().and_then(fit) {
            // SAFETY: the start is within the arena.
            Some((start, _)) => unsafe { ARENA.0.get().cast::<u8>().add(start) },
            None => core::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: Bump = Bump;
