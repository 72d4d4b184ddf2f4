//! The CUDA backend and the HIP backend, on the stand-in for their drivers and, where there is a GPU, on the real one. `fake::` and `gpu::` are CUDA's, `hip::` and
//! `amd::` HIP's.
//!
//! | file | what |
//! |---|---|
//! | `points.rs` | a point is what was enqueued before it; words, orders, kernels' own words |
//! | `hosts.rs` | every plan on every host |
//! | `faults.rs` | kernels that fault: an error with the right cause, never a hang |
//! | `lives.rs` | who keeps what alive, drops at any moment, closing |
//! | `bound.rs` | contexts of threads, foreign streams, captures by others |
//! | `captures.rs` | stores in streams that are captured |
//! | `paths.rs` | stores that do not land, and what is done instead |
//! | `times.rs` | points that know when they ended |
//! | `orders.rs` | what was written before a point is seen after its wait |
//! | `ends.rs` | processes that end with waits in flight, and a fork's child |
//! | `warm.rs` | what a wait does for the launch behind it |
//! | `matrix.rs` | every call that is made, as each of its failures |

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![allow(unsafe_code, reason = "it launches kernels, and hands in raw streams")]

mod bound;
mod captures;
mod ends;
mod faults;
mod hosts;
mod lives;
mod matrix;
mod orders;
mod paths;
mod points;
mod times;
mod waiting;
mod warm;

fn main() {
    if let Some(code) = ends::child() {
        std::process::exit(code);
    }
    wakeline_tests::rig::run(&[
        ("points", points::TESTS),
        ("hosts", hosts::TESTS),
        ("faults", faults::TESTS),
        ("lives", lives::TESTS),
        ("bound", bound::TESTS),
        ("captures", captures::TESTS),
        ("paths", paths::TESTS),
        ("times", times::TESTS),
        ("orders", orders::TESTS),
        ("ends", ends::TESTS),
        ("warm", warm::TESTS),
        ("matrix", matrix::TESTS),
    ])
}
