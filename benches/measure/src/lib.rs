//! How wakeline is measured: arms that take turns within one run, ratios paired by round, records as JSON lines.
//!
//! | here | what |
//! |---|---|
//! | [`Paired`] | has the arms take turns in balanced orders, and pairs what they cost by round |
//! | [`draws`] | random numbers of a seed, for loads and orders |
//! | [`Interval`], [`Tail`] | a mean with its 99 % Student-t interval; the quantiles of a latency |
//! | [`Apart`] | keeps the measuring thread and the simulated device on processors of their own |
//! | [`Usage`] | CPU clocks and context switches of a stretch of code |
//! | [`plain()`] | foreign text as text |
//! | [`Signed`] | the quantiles of times that may be below zero |
//! | [`trace`] | recorded steps of GPU work, read a row at a time |
//! | [`Record`], [`Environment`], [`JsonLines`] | one line of data for each case and arm |
//!
//! Machines drift: a run's first arm meets another machine than its last. So no arm is measured by itself: each round
//! runs every arm on the same input, in an order in which no arm always comes behind the same other one, and only what one round
//! cost under two arms is ever divided.
//!
//! ```
//! use wakeline_measure::Paired;
//! let mut paired = Paired::new(2);
//! for drift in [100, 140, 220] {
//!     // The second arm costs a quarter of the first, whatever the machine does meanwhile.
//!     paired.round(|arm| Ok::<_, ()>(if arm == 0 { drift } else { drift / 4 })).unwrap();
//! }
//! let ratio = paired.ratio(1, 0).unwrap();
//! assert!((ratio.mean - 0.25).abs() < 1e-9 && ratio.half_width.unwrap() < 1e-9);
//! ```
//!
//! The examples measure themselves with this, so it stays small: what needs a GPU, a runtime or a report is in `wakeline-benches`.

#![forbid(unsafe_code)]

extern crate alloc;

mod apart;
pub mod draws;
mod order;
mod paired;
mod plain;
mod record;
mod signed;
mod stats;
pub mod trace;
mod usage;

pub use apart::Apart;
pub use paired::Paired;
pub use plain::plain;
pub use record::{Environment, JsonLines, Record, clock_source, read_json_lines};
pub use signed::Signed;
pub use stats::{CONFIDENCE, Interval, Quantiles, Tail};
pub use usage::Usage;
