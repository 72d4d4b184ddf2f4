//! The command line.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Parser, ValueEnum};
use wakeline::{Error, ErrorCode, WaitBands};

use crate::Failure;
use crate::hosts::Named;

/// How long a wait watches its word before it naps, by default: a bit more than the longest margin, so that a wait that slept watches
/// until its step ends. That is at most 5 % of a step of 5 ms.
const SPIN_US: u32 = 250;

/// Replay recorded steps of GPU work in real time on a simulated device or a GPU, and measure what waiting for them costs.
///
/// Without arguments: some workloads of a trace that comes with the example, under three plans, the last also beside other work, in about 20 s. No
/// GPU.
#[derive(Debug, Parser)]
#[command(name = "decode_loop")]
pub(crate) struct Cli {
    /// Wait under this plan, or these bands of plans by batch rows, beside `poll`; may be given several times
    ///
    /// As in `flag:park_us=50,backstop_us=1000+trust` or `poll;rows>=32:block`. Without, `flag` and `flag+predict` are
    /// measured, with a margin for this machine.
    #[arg(long = "plan", value_name = "TEXT")]
    plans: Vec<String>,
    /// Wait on this host; may be given several times. Without, on `std`
    ///
    /// The plans are the same for each, but `poll` is of `std` alone unless `--plan` asks for it.
    #[arg(long = "host", value_name = "NAME", value_enum)]
    pub(crate) hosts: Vec<Named>,
    /// Play the steps on this device
    #[arg(long, value_enum, default_value_t = Where::Sim)]
    pub(crate) device: Where,
    /// Replay this trace, a CSV file like examples/data/h200-a.csv
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Replay this workload of the trace; may be given several times
    #[arg(long = "workload", value_name = "NAME")]
    pub(crate) workloads: Vec<String>,
    /// Replay at most so many steps of a workload, spread over its length
    #[arg(long, value_name = "N", default_value_t = u32::MAX, hide_default_value = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) steps: u32,
    /// Replay for about so long in all
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: u32,
    /// What the durations are learned by
    #[arg(long, value_enum, default_value_t = Key::Point)]
    pub(crate) key: Key,
    /// A wait watches its word for at most so many microseconds, then it naps
    #[arg(long, value_name = "US", default_value_t = SPIN_US)]
    pub(crate) spin_us: u32,
    /// A nap between two looks at the word takes so many microseconds
    #[arg(long, value_name = "US", default_value_t = 50)]
    pub(crate) nap_us: u32,
    /// Leave out the last plan with an executor (of `std`) that works while it waits
    #[arg(long)]
    pub(crate) no_work: bool,
    /// Write a record for each workload and plan, as JSON lines
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the steps as the first plan, `poll`, saw them, as a trace for `--trace` and for `cargo xtask tune`
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Tell below each table what the waits of each plan did: how they ended, how long they took, sleeps, parks and queries
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) stats: bool,
    /// Write the same as text for Prometheus
    #[arg(long, value_name = "FILE")]
    pub(crate) prometheus: Option<PathBuf>,
    /// Print no table and no progress
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// What plays the steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Where {
    /// A simulated device
    Sim,
    /// The first CUDA device: each step becomes a kernel that occupies it for as long
    Cuda,
    /// A CUDA device where there is one, else a simulated one
    Auto,
}

/// What the durations of steps are learned by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Key {
    /// The readback point
    Point,
    /// The readback point and the batch rows
    Rows,
}

impl Cli {
    /// Reads the arguments. Help is printed, and ends the program, by whoever gets [`Failure::Help`].
    pub(crate) fn read() -> Result<Self, Failure> {
        Self::try_parse().map_err(|error| {
            let text = error.to_string();
            if error.kind() == ErrorKind::DisplayHelp {
                return Failure::Help(text);
            }
            // The first paragraph says what is wrong; the others repeat the usage.
            let lines: Vec<_> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
            let line = lines.join(" ");
            let line = line.strip_prefix("error: ").unwrap_or(&line);
            Failure::Usage(format!("{line} (--help lists the arguments)"))
        })
    }

    /// The plans that were asked for.
    pub(crate) fn plans(&self) -> Result<Vec<WaitBands>, Failure> {
        let read = |text: &String| text.parse().map_err(|error| Failure::Usage(pointed(text, &error)));
        self.plans.iter().map(read).collect()
    }
}

/// The error of a plan's text, with a caret under the column.
fn pointed(text: &str, error: &Error) -> String {
    let mut message = error.to_string();
    // The text as the error shows it: where that is cut or escaped, its columns are not the text's.
    if let (ErrorCode::InvalidPlan, [shown, column, _]) = (error.code(), error.args())
        && shown == text
        && let Ok(column) = column.parse::<usize>()
    {
        // Writing to a string does not fail.
        let _ = write!(message, "\n  {text}\n  {:>column$}", '^');
    }
    message
}
