//! What the tests over several crates share.
//!
//! | here | what |
//! |---|---|
//! | `waits.rs` | one simulated program of waits, drawn from a seed and judged against the truth |
//! | `probe.rs` | ports and hosts that count the time which calls and late wakes take |
//! | `conform.rs` | the script of waits that every pair of backend and host passes |
//! | `metal.rs` | a Metal device to test on: the fake |
//! | `crowds/` | crowds of waits in real time on any host, drawn from a seed and judged against the truth |
//! | `watching.rs` | devices in real time, ports that tell of their calls, for the tests of the watcher |
//! | `rig.rs` | a driver to test on: the stand-in, or the machine's own |
//! | `vendor.rs` | what tests have to know of whose driver it is |
//! | `ops_rig.rs` | a device of operations to test on: the simulated one, CUDA on the stand-in, CUDA on a GPU |
//! | `kernels.rs` | typed kernels that every device has |
//! | `bin/soak.rs` | runs many seeds |
//! | `tests/cases.rs` | failures from the field, each kept away by a test of its name |
//! | `tests/conformance.rs` | the same scripted waits on every pair of backend and host |
//! | `tests/TABLE.md` | which test keeps which promise |

pub mod conform;
pub mod crowds;
pub mod kernels;
pub mod metal;
pub mod ops_rig;
pub mod probe;
pub mod rig;
pub mod vendor;
pub mod waits;
pub mod watching;

/// The README's programs are tests as well.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
