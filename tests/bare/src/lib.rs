//! The parks of x86-64, executed: a program without an operating system for two processors, which an emulator runs that has the instructions
//! (`cargo xtask parks`).
//!
//! The machines that this is developed on hide `umwait` and `mwaitx`. What is executed here is the code of `wakeline-wordwait` itself: its capability from the
//! crate, and its files once more as part of this one, for what the crate keeps to itself, the instructions one by one. Ticks of the counter stand for
//! nanoseconds. It prints a line of JSON for each thing that it tries.
//!
//! | file | what |
//! |---|---|
//! | `boot.rs` | from the BIOS to 64 bits, on both processors |
//! | `machine.rs` | the serial line, the counter, the second processor |
//! | `parks.rs` | what is tried |
#![no_std]
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "the files of another crate are modules of this one, and not all of each is used"
)]

#[cfg(target_os = "none")]
#[path = "../../wasm/src/arena.rs"]
mod arena;
#[cfg(target_os = "none")]
mod boot;
#[cfg(target_os = "none")]
mod machine;
#[cfg(target_os = "none")]
mod parks;

#[cfg(all(target_arch = "x86_64", not(test)))]
#[path = "../../../crates/backends/wordwait/src/arch/mod.rs"]
mod arch;
#[cfg(all(target_arch = "x86_64", not(test)))]
#[path = "../../../crates/backends/wordwait/src/features.rs"]
mod features;
#[cfg(all(target_arch = "x86_64", not(test)))]
#[path = "../../../crates/backends/wordwait/src/park.rs"]
mod park;
#[cfg(all(target_arch = "x86_64", not(test)))]
#[path = "../../../crates/backends/wordwait/src/ticks.rs"]
mod ticks;
