//! The output: plain text, aligned, as wide as a terminal of 110 columns.

#![allow(clippy::cast_precision_loss, reason = "shares and means, for people to read")]

use std::fmt;
use std::io::{self, Write};

use wakeline::{Error, ErrorCode, Nanos};
use wakeline_measure::{Apart, Environment, Interval};
use wakeline_std::{Oversleep, ParkPolicy, TimerSlack};

use crate::Run;
use crate::hosts::Host;
use crate::steps::{Source, Workload};
use crate::tally::Tally;

/// Writes the output, or nothing.
pub(crate) struct Table<W> {
    to: W,
    quiet: bool,
}

/// The width of the column of ratios, which starts flush.
const RATIO: usize = 14;

/// The other columns, ends flush: in groups, each with a title, and the names and widths of its columns.
const GROUPS: [(&str, &[(&str, usize)]); 4] = [
    ("added latency, us", &[("p50", 7), ("p99", 9), ("max", 9)]),
    ("late", &[("wakes", 8)]),
    ("in a wait", &[("parks", 9), ("queries", 10)]),
    ("wait", &[("filled", 9)]),
];

/// How many columns the groups have.
const COLUMNS: usize = 7;

/// Where this thread alone waits, and else.
const CPU: [&str; 2] = [
    "
CPU of a spin    CPU time of the waiting thread by that of `poll`, all steps together, with the 99 % interval of the rounds
",
    "
CPU of a spin    CPU time of all threads that wait (of `watcher` and `tokio` all of the process but the simulated device's), \
without that of launching, by that of `poll@std`, all steps together, with the 99 % interval of the rounds
",
];

const LEGEND: &str = "\
added latency    from the true end of a step to the return of its wait
late wakes       how many waits slept past the end of their step
parks, queries   how often a wait watched its word, and how often it asked the driver
wait filled      how much of the waiting the executor spent tokenising text; not counted as CPU time of the wait
";

/// How wide the output is at most, in characters.
const WIDTH: usize = 100;
/// Where the rest of a folded line begins.
const INDENT: &str = "                 ";

impl<W: Write> Table<W> {
    pub(crate) const fn new(to: W, quiet: bool) -> Self {
        Self { to, quiet }
    }

    fn line(&mut self, line: fmt::Arguments<'_>) -> io::Result<()> {
        if self.quiet {
            return Ok(());
        }
        for line in line.to_string().split('\n') {
            self.folded(line)?;
        }
        Ok(())
    }

    /// One line, folded at spaces where it is longer than [`WIDTH`]; what is folded stands under the text of the first part.
    fn folded(&mut self, line: &str) -> io::Result<()> {
        let (mut indent, mut rest) = ("", line);
        while rest.chars().count() > WIDTH - indent.len() {
            let end = rest.char_indices().nth(WIDTH - indent.len()).map_or(rest.len(), |(end, _)| end);
            let Some(space) = rest[..end].rfind(' ').filter(|space| *space > INDENT.len()) else { break };
            // A word that fits into no line stays where it is.
            if rest[space + 1..].split(' ').next().is_some_and(|word| word.len() > WIDTH - INDENT.len()) {
                break;
            }
            writeln!(self.to, "{indent}{}", &rest[..space])?;
            (indent, rest) = (INDENT, &rest[space + 1..]);
        }
        writeln!(self.to, "{indent}{rest}")
    }

    pub(crate) fn title(
        &mut self,
        source: &Source,
        gpu: Option<&str>,
        environment: &Environment,
    ) -> io::Result<()> {
        let on = if gpu.is_some() { "a GPU" } else { "a simulated device" };
        self.line(format_args!("What waiting for GPU work costs: recorded steps on {on}\n"))?;
        match source {
            Source::BuiltIn => self.line(format_args!(
                "steps      recorded on an NVIDIA H200 ({}, comes with the example), replayed in real time",
                source.name()
            ))?,
            Source::File(path) => self.line(format_args!("steps      {}", path.display()))?,
        }
        if let Some(gpu) = gpu {
            self.line(format_args!(
                "device     {gpu}; a step is a kernel of one thread that is busy for as long"
            ))?;
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

    /// Who waits, where it is not this thread alone.
    pub(crate) fn hosts(&mut self, hosts: &[Host]) -> io::Result<()> {
        if hosts == [Host::Std] {
            return Ok(());
        }
        let width = hosts.iter().map(|host| host.name().len()).max().unwrap_or(0);
        let mut title = "hosts";
        for host in hosts {
            self.line(format_args!("{title:11}{:width$}   {}", host.name(), host.what()))?;
            title = "";
        }
        Ok(())
    }

    pub(crate) fn threads(&mut self, apart: Option<&Apart>, gpu: bool, hosts: &[Host]) -> io::Result<()> {
        match apart {
            Some(apart) if gpu => {
                self.line(format_args!("threads    the waiting one on CPU {}", apart.cpu()))
            }
            None if gpu => self.line(format_args!("threads    the waiting one on any CPU")),
            Some(apart) => self.line(format_args!(
                "threads    the waiting one on CPU {}, the simulated device's on the others",
                apart.cpu()
            )),
            None => self.line(format_args!(
                "threads    the simulated device's may get in the way of the waiting one"
            )),
        }?;
        if hosts.iter().any(|host| host.has_threads()) {
            self.line(format_args!("           those of the watcher and of `multi_thread` on any"))?;
        }
        Ok(())
    }

    /// How waits park, where they cannot in hardware, and why not.
    pub(crate) fn parking(&mut self, policy: ParkPolicy, no_hardware: Option<&Error>) -> io::Result<()> {
        let Some(warning) = no_hardware else {
            return self.line(format_args!("parking    on the word in hardware"));
        };
        self.line(format_args!("parking    {policy}"))?;
        match (warning.code(), warning.args()) {
            (ErrorCode::ParkFallback, [why, ..]) => {
                self.line(format_args!("           no word wait in hardware: {why}"))
            }
            _ => self.line(format_args!("           {warning}")),
        }
    }

    pub(crate) fn plans(&mut self, texts: &[(String, String)]) -> io::Result<()> {
        let width = texts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut title = "plans";
        for (name, text) in texts {
            self.line(format_args!("{title:11}{name:width$}   {text}"))?;
            title = "";
        }
        Ok(())
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
        if run.on.is_none() {
            self.line(format_args!(
                "  the simulated device itself stored late by {} us (p50), {} us (p99)",
                Us(Nanos::from_nanos(device.p50_ns)),
                Us(Nanos::from_nanos(device.p99_ns))
            ))?;
        }
        self.columns("", "CPU", name_width, |(title, columns)| {
            let width = columns.iter().map(|(_, width)| width).sum();
            format!("{title:>width$}")
        })?;
        self.columns("plan", "of a spin", name_width, |(_, columns)| {
            columns.iter().map(|(name, width)| format!("{name:>width$}")).collect::<Vec<_>>().concat()
        })?;
        for (number, tally) in run.tallies.iter().enumerate() {
            let mut cells = cells(tally).into_iter();
            let ratio = ratio(run.paired.ratio_of_totals(number, 0), number == 0);
            self.columns(&tally.arm.name, &ratio, name_width, |(_, columns)| {
                let cell =
                    |(_, width): &(&str, usize)| format!("{:>width$}", cells.next().unwrap_or_default());
                columns.iter().map(cell).collect::<Vec<_>>().concat()
            })?;
        }
        Ok(())
    }

    /// What the waits of each plan did, a paragraph each.
    pub(crate) fn statistics(&mut self, run: &Run) -> io::Result<()> {
        self.line(format_args!("\n  what the waits did, by workload and plan"))?;
        run.tallies.iter().try_for_each(|tally| self.line(format_args!("  {}", tally.point.snapshot())))
    }

    /// A line of the table: the plan's name, the ratio, and what `group` makes of each group of columns.
    fn columns(
        &mut self,
        name: &str,
        ratio: &str,
        name_width: usize,
        group: impl FnMut((&str, &[(&str, usize)])) -> String,
    ) -> io::Result<()> {
        let groups: String = GROUPS.into_iter().map(group).collect();
        if self.quiet {
            return Ok(());
        }
        // Not folded: with the longest names it is 104 characters wide.
        writeln!(self.to, "  {name:name_width$}   {ratio:RATIO$}{groups}")
    }

    pub(crate) fn legend(&mut self, hosts: &[Host]) -> io::Result<()> {
        let cpu = CPU[usize::from(hosts != [Host::Std])];
        self.line(format_args!("{cpu}{}", LEGEND.trim_end()))
    }
}

fn ratio(ratio: Option<Interval>, base: bool) -> String {
    match ratio {
        Some(Interval { mean, half_width: Some(half), .. }) if !base => format!("{mean:.3} ±{half:.3}"),
        Some(Interval { mean, .. }) => format!("{mean:.3}"),
        None => "-".to_owned(),
    }
}

fn cells(tally: &Tally) -> [String; COLUMNS] {
    let latency = tally.latency.quantiles();
    let counts = tally.counts;
    let waits = counts.waits.max(1) as f64;
    let filled = 100.0 * counts.worked_ns as f64 / counts.waited_ns.max(1) as f64;
    [
        Us(Nanos::from_nanos(latency.p50_ns)).to_string(),
        Us(Nanos::from_nanos(latency.p99_ns)).to_string(),
        Us(Nanos::from_nanos(latency.max_ns)).to_string(),
        counts.late_wakes.to_string(),
        format!("{:.1}", counts.parks as f64 / waits),
        format!("{:.1}", counts.queries as f64 / waits),
        if tally.arm.works { format!("{filled:.0} %") } else { "-".to_owned() },
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
