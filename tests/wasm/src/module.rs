//! What a module without an operating system supplies by itself: memory, an end for panics, and what is called from outside.
#![allow(unsafe_code, reason = "an allocator, and names that are called from outside")]

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicUsize, Ordering};

/// How much memory there is, bytes: each run of the waits takes some kilobytes, and none is given back.
const BYTES: usize = 1 << 20;

#[repr(align(64))]
struct Arena(core::cell::UnsafeCell<[u8; BYTES]>);

// SAFETY: only the allocator looks into it, which hands out each byte once.
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena(core::cell::UnsafeCell::new([0; BYTES]));
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

#[panic_handler]
fn panicked(_: &PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}

/// Runs all waits; how many ended as they should. Traps where one does not.
// SAFETY: no other function of the module has the name.
#[unsafe(no_mangle)]
extern "C" fn waits() -> u32 {
    crate::run_all()
}

/// How many waits there are.
// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn waits_expected() -> u32 {
    crate::WAITS
}

/// What a wait that ends otherwise does.
// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn fails() {
    assert!(crate::run_all() > crate::WAITS, "it traps");
}
