//! Device operations on every device there is: the simulated one, CUDA on the stand-in for its driver and, where there is a GPU, on it.
//!
//! | file | what |
//! |---|---|
//! | `operations.rs` | operations are lazy, compose, run where they were told to, on any device and runtime |
//! | `flights.rs` | what is in flight keeps what it needs, whatever becomes of its future |
//! | `hazards.rs` | conflicting uses of a tensor are ordered on the device |
//! | `compose.rs` | branches in several streams, shared operations, gates |
//! | `graphs.rs` | graphs: captured once, launched and awaited many times, changed, drawn |
//! | `faults.rs` | a fault ends every operation with its cause |
//! | `hosts.rs` | functions of the host behind work |
//! | `paths.rs` | who stores the words, and what ends operations then |
//! | `calls.rs` | which driver calls are made where, and what becomes of their failures |
//! | `memory.rs` | memory of device and host: none, too much, none left |
//! | `tensors.rs` | tensors: made, viewed, copied, cut up and bounded as the host says |
//! | `kernels.rs` | typed kernels: what they compute, what they are handed, what they give back |
//! | `seeds.rs` | random programs |
//! | `matrix.rs` | programs each of whose driver calls fails once, in each way |

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod calls;
mod compose;
mod faults;
mod flights;
mod graphs;
mod hazards;
mod hosts;
mod kernels;
mod matrix;
mod memory;
mod operations;
mod paths;
mod seeds;
mod tensors;

use wakeline_core::Nanos;

pub(crate) const fn ms(length: u64) -> Nanos {
    Nanos::from_millis(length)
}

fn main() {
    wakeline_tests::ops_rig::run(&[
        ("operations", operations::TESTS),
        ("flights", flights::TESTS),
        ("hazards", hazards::TESTS),
        ("compose", compose::TESTS),
        ("graphs", graphs::TESTS),
        ("faults", faults::TESTS),
        ("hosts", hosts::TESTS),
        ("paths", paths::TESTS),
        ("calls", calls::TESTS),
        ("memory", memory::TESTS),
        ("tensors", tensors::TESTS),
        ("kernels", kernels::TESTS),
        ("seeds", seeds::TESTS),
        ("matrix", matrix::TESTS),
    ])
}
