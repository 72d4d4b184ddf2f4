//! The lines of a run's file: one JSON object each, in this order: [`Line::Run`] once, then cells and timelines as they are measured.
//!
//! ```text
//!   run       where, with what, how; the checks made before and after
//!   cell      one arm in one case of one suite: every metric by round, its ratio to the base arm paired by round, the latencies
//!   timeline  what one wait did and when, for a picture
//!   end       the checks made after the last cell: whether the clocks moved, how much others took; how many lines of the others there are
//! ```
//!
//! A file is whole where it ends with its `end`, and that counts as many lines as there are. Lines are written as they are measured, so a run that was
//! ended early lacks its `end`. Files of programs before that counted them have an `end` without counts: what was cut off their end is seen, and what
//! somebody took out of their middle is not.
//!
//! A field that a machine cannot tell is absent, never zero.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::Environment;
use crate::{Interval, Quantiles};

/// The version of this schema, in [`Run::schema`]. It grows when a reader of the one before would misread a file.
pub const VERSION: u32 = 1;

/// One line of a run's file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// The first line.
    Run(Run),
    /// One arm in one case.
    Cell(Cell),
    /// One wait, for a picture.
    Timeline(Timeline),
    /// The last line; a file without it was cut off.
    End(End),
}

/// What was run, and where.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The version of this schema.
    pub schema: u32,
    /// The command line, as given.
    pub command: Vec<String>,
    /// Whether it was a quick run.
    pub quick: bool,
    /// `sim` or `cuda`.
    pub device: String,
    /// The suites that were run, in their order.
    pub suites: Vec<String>,
    /// Where it ran.
    pub environment: Environment,
    /// In which orders the arms took turns.
    #[serde(default)]
    pub order: Order,
    /// What was looked at before the first cell.
    pub checks: Vec<Check>,
}

/// In which orders the arms of a case took turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Each round began with the next arm, and each came behind the same other one in all of them: how it was before files told.
    #[default]
    Rotated,
    /// Each arm came behind each other one equally often, in orders drawn from the seed in [`Environment::seed`].
    Balanced,
}

/// The end of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct End {
    /// How long it took, in seconds.
    pub took_s: f64,
    /// How many lines of kind `cell` the file has; `None` where whoever wrote it did not count them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cells: Option<usize>,
    /// How many of kind `timeline`, likewise.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timelines: Option<usize>,
    /// What was looked at after the last cell.
    pub checks: Vec<Check>,
}

/// Something about the machine that a reader of the figures has to know.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// Whether it was as it should be.
    pub good: bool,
    /// What was found.
    pub found: String,
}

/// What one arm did in one case.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Which suite: `wake`, `burn`, `serve`, `fan-in`, ..
    pub suite: String,
    /// Which of its inputs: `200 us`, `batch 16, closed loop`, ..
    pub case: String,
    /// The way of doing it: a plan, a host, a library's call.
    pub arm: String,
    /// Whose way it is: `wakeline`, `raw`, or a peer's name with its version.
    pub family: String,
    /// The text of its plan, where it has one: the same name may stand for another margin on another machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub plan: Option<String>,
    /// The arm that the ratios are to.
    pub base: String,
    /// How many rounds were run.
    pub rounds: usize,
    /// What was measured, by name: see [`Metric`].
    pub metrics: BTreeMap<String, Metric>,
    /// The latencies of all rounds from the true end of the work to the code behind the wait, where that was measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency: Option<Quantiles>,
    /// The same as a curve: nanoseconds, and the share of waits that took at most so long; at most 64 points, rising in both.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub cdf: Vec<(u64, f64)>,
    /// Notes to whoever reads it: what it lacks, what was skipped.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

/// A measured quantity of an arm.
///
/// Names in use: `latency` (mean added latency of a wait, ns), `latency_p50` (the median of a round), `cpu` (CPU time of the waiting threads
/// for an operation, ns), `process_cpu` (of the whole process but for what plays a simulated device, ns), `switches` (voluntary context switches
/// for an operation), `energy` (J for an operation, of all that is known; `energy_gpu` and `energy_cpu` of it), `throughput`
/// (operations or tokens for a second), `request_latency` (from a request's arrival to its last token, ns), `host_work` (CPU time of the
/// declared work for an operation, ns), `late_wakes` (the share of waits that slept past the end, of plans that sleep).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Metric {
    /// `ns`, `J`, `1/s`, or empty for a plain number.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// The mean over the rounds.
    pub value: Interval,
    /// By what the base arm had in the same round; absent for the base arm's own lack of it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio: Option<Interval>,
    /// The value of every round, for comparing runs: in the order of the rounds.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub by_round: Vec<f64>,
}

/// Which way a metric is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Lower.
    Less,
    /// Higher.
    More,
}

/// One wait from its launch to the code behind it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Timeline {
    /// The suite, case and arm that it is of.
    pub suite: String,
    /// See [`Cell::case`].
    pub case: String,
    /// See [`Cell::arm`].
    pub arm: String,
    /// What happened, in the order of time.
    pub spans: Vec<Span>,
}

/// A stretch of a timeline, or a moment where both ends are the same.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Span {
    /// `launch`, `arm`, `sleep`, `other work`, `watch`, `query`, `block`, `wait` (of which nothing more is seen), and the moments `stored`, `ended`
    /// (the true end of the work) and `woken`, ..
    pub what: String,
    /// Nanoseconds after the launch.
    pub from_ns: u64,
    /// Nanoseconds after the launch.
    pub to_ns: u64,
}
