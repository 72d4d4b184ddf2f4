//! Several devices in one program, on every driver that there is: simulated devices, CUDA's and HIP's on the stand-in and, where there are two GPUs, on those.
//!
//! | file | what |
//! |---|---|
//! | `across.rs` | copies between devices, and conflicting uses of one tensor on several |
//! | `bound.rs` | whose context each call is made in, and who has one at all |
//! | `faults.rs` | one device faults, and the others go on |
//! | `matrix.rs` | a program over two devices each of whose driver calls fails once, in each way |

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod across;
mod bound;
mod faults;
mod matrix;

use wakeline_core::Nanos;

pub(crate) const fn ms(length: u64) -> Nanos {
    Nanos::from_millis(length)
}

fn main() {
    wakeline_tests::machine_rig::run(&[
        ("across", across::TESTS),
        ("bound", bound::TESTS),
        ("faults", faults::TESTS),
        ("matrix", matrix::TESTS),
    ])
}
