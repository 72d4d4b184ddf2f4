//! Waits over a scripted port, on a clock that is turned by hand: every kind of plan, on a target without an operating system.
//!
//! As a WebAssembly module it has `waits`, which runs them all and traps where one does not end as it should; node calls it (`cargo xtask targets`). Elsewhere
//! the same waits are a test.
#![cfg_attr(target_family = "wasm", no_std)]

extern crate alloc;

#[cfg(target_family = "wasm")]
mod arena;
#[cfg(target_family = "wasm")]
mod module;
mod script;

pub use script::{WAITS, run_all};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_ends_as_it_should() {
        assert_eq!(run_all(), WAITS);
    }
}
