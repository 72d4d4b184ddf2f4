//! How wakeline is measured: arms that take turns within one run, ratios paired by round, records as JSON lines.
//!
//! | here | what |
//! |---|---|
//! | [`Paired`] | has the arms take turns in balanced orders, and pairs what they cost by round |
//! | [`draws`] | random numbers of a seed, for loads and orders |
//! | [`Interval`], [`Tail`] | a mean with its 99 % Student-t interval; the quantiles of a latency |
//! | [`Apart`] | keeps the measuring thread and the simulated device on processors of their own |
//! | [`Usage`], [`Threads`] | CPU clocks and context switches of a stretch of code; of the threads of watchers |
//! | [`micro`] | the hot path, a case each, for instruction counts and for divan |
//! | [`plain()`] | foreign text as text |
//! | [`Signed`] | the quantiles of times that may be below zero |
//! | [`gpu`] | what the programs share that need a GPU |
//! | [`ab`] | A/B runs: `cargo xtask bench` |
//! | [`ops`] | device operations being awaited: the suite `ops` of these, and the program `ops` |
//! | [`compose`] | branches, gates and chains of operations beside the device's own calls: the case `compose` of the program `ops` |
//! | [`graphs`] | captured chains, launched and awaited, beside the device's own calls: the case `graphs` of the program `ops` |
//! | [`sim`] | the simulated device that both of them run on |
//! | [`tune`] | replays of a trace through any plan, and what no plan can beat |
//! | [`trace`] | recorded steps of GPU work, read a row at a time |
//! | [`Record`], [`Environment`], [`JsonLines`] | one line of data for each case and arm |
//!
//! Machines drift: a run's first arm meets another machine than its last. So no arm is measured by itself: each round
//! runs every arm on the same input, in an order in which no arm always comes behind the same other one, and only what one round
//! cost under two arms is ever divided.
//!
//! ```
//! use wakeline_benches::Paired;
//! let mut paired = Paired::new(2);
//! for drift in [100, 140, 220] {
//!     // The second arm costs a quarter of the first, whatever the machine does meanwhile.
//!     paired.round(|arm| Ok::<_, ()>(if arm == 0 { drift } else { drift / 4 })).unwrap();
//! }
//! let ratio = paired.ratio(1, 0).unwrap();
//! assert!((ratio.mean - 0.25).abs() < 1e-9 && ratio.half_width.unwrap() < 1e-9);
//! ```

#![forbid(unsafe_code)]

extern crate alloc;

pub mod ab;
mod alarm;
mod apart;
pub mod compose;
pub mod draws;
pub mod gpu;
pub mod graphs;
pub mod micro;
mod operation;
pub mod ops;
mod order;
mod paired;
mod plain;
mod record;
mod signed;
pub mod sim;
mod stats;
mod threads;
pub mod trace;
pub mod tune;
mod usage;

pub use alarm::Alarm;
pub use apart::Apart;
pub use paired::Paired;
pub use plain::plain;
pub use record::{Environment, JsonLines, Record, read_json_lines};
pub use signed::Signed;
pub use stats::{CONFIDENCE, Interval, Quantiles, Tail};
pub use threads::Threads;
pub use usage::Usage;
