//! What a module without an operating system supplies by itself: an end for panics, and what is called from outside.
#![allow(unsafe_code, reason = "names that are called from outside")]

use core::panic::PanicInfo;

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
