//! The benchmarks of wakeline, and what they share. How anything is measured is in [`wakeline_measure`], whose items are here too.
//!
//! | here | what |
//! |---|---|
//! | [`Threads`] | CPU clocks and context switches of the threads of watchers |
//! | [`micro`] | the hot path, a case each, for instruction counts and for divan |
//! | [`gpu`] | what the programs share that need a GPU |
//! | [`ab`] | A/B runs: `cargo xtask bench` |
//! | [`ops`] | device operations being awaited: the suite `ops` of these, and the program `ops` |
//! | [`compose`] | branches, gates and chains of operations beside the device's own calls: the case `compose` of the program `ops` |
//! | [`graphs`] | captured chains, launched and awaited, beside the device's own calls: the case `graphs` of the program `ops` |
//! | [`sim`] | the simulated device that both of them run on |
//! | [`tune`] | replays of a trace through any plan, and what no plan can beat |

#![forbid(unsafe_code)]

extern crate alloc;

pub mod ab;
mod alarm;
pub mod compose;
pub mod gpu;
pub mod graphs;
pub mod micro;
mod operation;
pub mod ops;
pub mod ranks;
pub mod sim;
mod threads;
pub mod tune;

pub use alarm::Alarm;
pub use threads::Threads;
pub use wakeline_measure::{
    Apart, CONFIDENCE, Environment, Interval, JsonLines, Paired, Quantiles, Record, Signed, Tail, Usage,
    draws, plain, read_json_lines, trace,
};
