//! The output: plain text, aligned, as wide as a terminal of 110 columns.

#![allow(clippy::cast_precision_loss, reason = "shares and means, for people to read")]

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use wakeline::{Error, Nanos};
use wakeline_benches::{Apart, Environment, Interval};
use wakeline_std::{Oversleep, TimerSlack};

use crate::Run;
use crate::steps::{Source, Workload};
use crate::tally::Tally;

/// Writes the output, or nothing.
pub(crate) struct Table<W> {
    to: W,
    quiet: bool,
}

/// How the columns are laid out; the first, the plan's name, takes what it needs.
const COLUMNS: [(&str, &str, usize); 8] = [
    ("CPU", "of a spin    ", 14),
    ("added", "p50", 8),
    ("latency,", "p99", 9),
    ("us   ", "max", 9),
    ("late", "wakes", 8),
    ("a wait:", "parks", 9),
    ("", "queries", 10),
    ("wait", "filled", 9),
];

const LEGEND: &str = "
CPU of a spin    CPU time of the waiting thread by that of `poll`, paired by round: mean and 99 % interval
added latency    from the true end of a step to the return of its wait
late wakes       how many waits slept past the end of their step
parks, queries   how often a wait watched its word, and how often it asked the driver
wait filled      how much of the waiting the executor spent tokenising text; not counted as CPU time of the wait
";

impl<W: Write> Table<W> {
    pub(crate) const fn new(to: W, quiet: bool) -> Self {
        Self { to, quiet }
    }

    fn line(&mut self, line: fmt::Arguments<'_>) -> io::Result<()> {
        if self.quiet { Ok(()) } else { writeln!(self.to, "{line}") }
    }

    pub(crate) fn title(&mut self, source: &Source, environment: &Environment) -> io::Result<()> {
        self.line(format_args!("What waiting for GPU work costs: recorded steps on a simulated device\n"))?;
        match source {
            Source::BuiltIn => self.line(format_args!(
                "steps      recorded on an NVIDIA H200 ({}, comes with the example), replayed in real time",
                source.name()
            ))?,
            Source::File(path) => self.line(format_args!("steps      {}", path.display()))?,
        }
        let Environment { cpu, cpus, os, kernel, .. } = environment;
        self.line(format_args!("machine    {cpu}, {cpus} CPUs, {os} {kernel}"))?;
        if !environment.release {
            self.line(format_args!(
                "           built without optimisation: run with --release for true figures"
            ))?;
        }
        Ok(())
    }

    pub(crate) fn timers(
        &mut self,
        slack_before: Option<Nanos>,
        refused: Option<&Error>,
        oversleep: &Oversleep,
    ) -> io::Result<()> {
        match (slack_before, refused) {
            (_, Some(error)) => self.line(format_args!("timers     {error}"))?,
            (before, None) => self.line(format_args!(
                "timers     slack of the waiting thread set to {} ns, from {} us",
                TimerSlack::LEAST.as_nanos(),
                Us(before.unwrap_or(Nanos::ZERO))
            ))?,
        }
        self.line(format_args!(
            "           a sleep of {} ms ends late by {} us (p50), {} us (p90), {} us (p99)",
            oversleep.length().as_micros() / 1_000,
            Us(oversleep.quantile(0.5)),
            Us(oversleep.quantile(0.9)),
            Us(oversleep.quantile(0.99))
        ))
    }

    pub(crate) fn threads(&mut self, apart: Option<&Apart>, no_hardware: Option<&Error>) -> io::Result<()> {
        match apart {
            Some(apart) => self.line(format_args!(
                "threads    the waiting one on CPU {}, the simulated device's on the others",
                apart.cpu()
            ))?,
            None => self.line(format_args!(
                "threads    the simulated device's may get in the way of the waiting one"
            ))?,
        }
        match no_hardware {
            Some(warning) => self.line(format_args!("parking    {warning}")),
            None => Ok(()),
        }
    }

    pub(crate) fn workload(&mut self, workload: &Workload, run: &Run) -> io::Result<()> {
        let name_width = run.tallies.iter().map(|tally| tally.arm.name.len()).max().unwrap_or(0);
        let Workload { name, recorded, residual, .. } = workload;
        let waited = run.tallies.first().map_or(0, |tally| tally.counts.waits);
        let of = if waited == *recorded { "all".to_owned() } else { format!("{waited} of {recorded}") };
        let cut_short = if run.cut_short { ", cut short" } else { "" };
        self.line(format_args!(
            "\n{name}: {of} steps{cut_short}; a wait takes {} us (p50), {} us (p99)",
            Us(Nanos::from_nanos(residual.p50_ns)),
            Us(Nanos::from_nanos(residual.p99_ns))
        ))?;
        if let Some(margin) = &run.margin {
            self.line(format_args!("  margin of flag+predict: {margin}"))?;
        }
        let device = run.device.quantiles();
        self.line(format_args!(
            "  the simulated device itself stored late by {} us (p50), {} us (p99)",
            Us(Nanos::from_nanos(device.p50_ns)),
            Us(Nanos::from_nanos(device.p99_ns))
        ))?;
        let header = |part: fn(&(&str, &str, usize)) -> String| COLUMNS.iter().map(part).collect::<String>();
        let (top, bottom) = (
            header(|(top, _, width)| format!("{top:>width$}")),
            header(|(_, name, width)| format!("{name:>width$}")),
        );
        self.line(format_args!("  {:name_width$}{top}", ""))?;
        self.line(format_args!("  {:name_width$}{bottom}", "plan"))?;
        for (number, tally) in run.tallies.iter().enumerate() {
            let cells = cells(tally, run.paired.ratio(number, 0), number == 0);
            let mut line = String::new();
            for (cell, (_, _, width)) in cells.iter().zip(COLUMNS) {
                // Writing to a string does not fail.
                let _ = write!(line, "{cell:>width$}");
            }
            self.line(format_args!("  {:name_width$}{line}", tally.arm.name))?;
        }
        Ok(())
    }

    pub(crate) fn legend(&mut self) -> io::Result<()> {
        self.line(format_args!("{}", LEGEND.trim_end()))
    }
}

fn cells(tally: &Tally, ratio: Option<Interval>, base: bool) -> [String; COLUMNS.len()] {
    let latency = tally.latency.quantiles();
    let counts = tally.counts;
    let waits = counts.waits.max(1) as f64;
    let ratio = ratio.map_or_else(
        || "-".to_owned(),
        |ratio| match ratio.half_width {
            Some(half) if !base => format!("{:.3} ±{half:.3}", ratio.mean),
            _ => format!("{:.3}       ", ratio.mean),
        },
    );
    [
        ratio,
        Us(Nanos::from_nanos(latency.p50_ns)).to_string(),
        Us(Nanos::from_nanos(latency.p99_ns)).to_string(),
        Us(Nanos::from_nanos(latency.max_ns)).to_string(),
        counts.late_wakes.to_string(),
        format!("{:.1}", counts.parks as f64 / waits),
        format!("{:.1}", counts.queries as f64 / waits),
        if tally.arm.works {
            format!("{:.0} %", 100.0 * counts.worked_ns as f64 / counts.waited_ns.max(1) as f64)
        } else {
            "-".to_owned()
        },
    ]
}

/// Microseconds, with a decimal below a hundred.
pub(crate) struct Us(pub(crate) Nanos);

impl fmt::Display for Us {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0.as_nanos() + 50) / 100;
        if tenths < 1_000 {
            write!(f, "{}.{}", tenths / 10, tenths % 10)
        } else {
            write!(f, "{}", (tenths + 5) / 10)
        }
    }
}
