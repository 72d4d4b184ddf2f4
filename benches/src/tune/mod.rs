//! Choosing a plan from a recorded trace, without a GPU: replays, and a bound that no plan can beat.
//!
//! | here | what |
//! |---|---|
//! | [`HostModel`], [`Rng`] | how late a host wakes and what looking costs, drawn from a seed |
//! | [`replay()`], [`wait`] | a trace through any plan, by the wait and the table that ship, on a clock that is a number |
//! | [`oracle()`] | the least CPU that a wait can do with which knows the distribution of its residuals |
//! | [`advise`], [`candidates`] | which plan to take at each point |
//! | [`Trace`], [`Series`] | recorded steps, by workload and point |
//!
//! ```
//! use wakeline_benches::tune::{HostModel, Step, replay};
//! use wakeline_core::{Nanos, WaitPlan};
//! // Nine steps in ten take 10 us, the others 9 ms: what the minimum of a window never sleeps through.
//! let residual = |step: u64| if step % 10 == 9 { Nanos::from_micros(9_000 + step % 70) } else { Nanos::from_micros(10) };
//! let steps: Vec<_> = (0..400).map(|step| Step { key: (0, 0), residual: residual(step) }).collect();
//! let cost = |suffix: &str| {
//!     let plan: WaitPlan = format!("flag:park_us=50,backstop_us=1000{suffix}").parse()?;
//!     replay(&plan, &steps, &HostModel::h200(), 1, 16)
//! };
//! let predict = cost("+predict:margin_us=150,min_sleep_us=100,max_sleep_us=20000,window=8")?;
//! let adapt = cost("+adapt:late_pct=1,guard_us=5,min_sleep_us=10,max_sleep_us=20000,window=256")?;
//! assert!(predict.cpu > 0.9 && adapt.cpu < 0.15, "{predict:?} {adapt:?}");
//! # Ok::<(), wakeline_core::Error>(())
//! ```

mod advice;
mod host;
#[cfg(test)]
mod hostile_tests;
mod oracle;
mod replay;
mod series;
#[cfg(test)]
mod tests;

pub use advice::{Advice, Tried, advise, candidates};
pub use host::{Anchor, Costs, HostModel, Rng};
pub use oracle::{Bound, Oracle, Price, oracle};
pub use replay::{Cost, Key, Step, Waited, awake, replay, wait};
pub use series::{Keying, Series, Trace};
