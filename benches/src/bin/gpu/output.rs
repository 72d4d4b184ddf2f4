//! Where the figures go: a row each for people, a record each as a JSON line.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use wakeline_benches::gpu::Gpu;
use wakeline_benches::{Environment, Interval, JsonLines, Record, Signed, Usage};
use wakeline_core::Nanos;

use crate::bench::Bench;
use crate::samples::Beside;
use crate::ways::Confirmations;

/// What one arm of one case came to.
pub(crate) struct Told<'b> {
    pub(crate) bench: &'b Bench,
    pub(crate) case: String,
    pub(crate) length: Nanos,
    pub(crate) arm: &'static str,
    pub(crate) base: &'static str,
    pub(crate) plan: Option<&'static str>,
    pub(crate) beside: Beside,
    /// The same arm beside the driver's own wait, where that was an arm.
    pub(crate) driver: Option<Beside>,
    /// Of one core, over launches and all, where that was looked at.
    pub(crate) cpu_percent: Option<f64>,
    pub(crate) confirmations: Option<Confirmations>,
}

/// What a record of waits has beside what all have.
#[derive(Debug, Serialize)]
struct Detail<'a> {
    gpu: &'a str,
    plan: Option<&'static str>,
    length_ns: u64,
    waits: u64,
    /// From the end of the kernel to who waited for it.
    latency: Signed,
    /// Each quantile over the base's.
    added: Signed,
    /// Medians of rounds over the base's of the same round.
    added_mean_ns: Option<Interval>,
    /// From the launch to the end of the wait; in `hosts` of the process, from the launch on.
    cpu_per_wait_ns: u64,
    cpu_ratio: Option<Interval>,
    cpu_percent: Option<f64>,
    /// Beside the driver's own wait.
    by_synchronize: Option<Other>,
    confirmations: Option<Confirmations>,
    /// How far off the ends of kernels may be, the same for all arms.
    clock_uncertainty_ns: u64,
}

/// An arm beside another one than its base.
#[derive(Debug, Serialize)]
struct Other {
    added: Signed,
    added_mean_ns: Option<Interval>,
    cpu_ratio: Option<Interval>,
}

/// What stands above the rows of waits.
pub(crate) const HEAD: &str =
    "                            after the end, us           over the base's, us                   CPU of a   by the    of a
  arm                     p50      p99      max      p50      p99      max   mean ±99 %    wait, us    base's   core, %";

/// Both places.
pub(crate) struct Output<W> {
    rows: W,
    json: Option<JsonLines<File>>,
    gpu: String,
    environment: Environment,
}

impl<W: Write> Output<W> {
    /// Rows go to `rows`, records into a new file at `json`.
    pub(crate) fn new(
        mut rows: W,
        json: Option<&Path>,
        gpu: &Gpu,
        bench: &Bench,
        environment: Environment,
    ) -> io::Result<Self> {
        let json = json.map(|path| File::create(path).map(JsonLines::new)).transpose()?;
        let Environment { cpu, cpus, os, kernel, release, .. } = &environment;
        let gpu = format!("{}, completion by {}", gpu.name(), bench.context.completion());
        writeln!(rows, "{gpu}\n{cpu}, {cpus} CPUs, {os} {kernel}")?;
        if !release {
            writeln!(rows, "built without optimisation: the figures are no measure of a release build")?;
        }
        Ok(Self { rows, json, gpu, environment })
    }

    /// A line that is no record.
    pub(crate) fn line(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.rows, "{line}")
    }

    /// What one arm came to.
    pub(crate) fn arm(&mut self, told: Told<'_>) -> io::Result<()> {
        let Told { bench, case, length, arm, base, plan, beside, driver, cpu_percent, confirmations } = told;
        self.line(&row(arm, &beside, cpu_percent))?;
        if let Some(confirmations) = &confirmations {
            self.line(&format!("    {confirmations}"))?;
        }
        let detail = Detail {
            gpu: &self.gpu,
            plan,
            length_ns: length.as_nanos(),
            waits: beside.waits,
            latency: beside.late,
            added: beside.added,
            added_mean_ns: beside.added_mean_ns,
            cpu_per_wait_ns: beside.cpu_per_wait_ns,
            cpu_ratio: beside.cpu_ratio,
            cpu_percent,
            by_synchronize: driver.map(|beside| Other {
                added: beside.added,
                added_mean_ns: beside.added_mean_ns,
                cpu_ratio: beside.cpu_ratio,
            }),
            confirmations,
            clock_uncertainty_ns: bench.steps.uncertainty().as_nanos(),
        };
        let record = Record {
            bench: "gpu".to_owned(),
            case,
            arm: arm.to_owned(),
            base: base.to_owned(),
            rounds: beside.rounds,
            cost_ratio: beside.late_ratio,
            usage: beside.usage,
            detail,
            environment: self.environment.clone(),
        };
        self.json.as_mut().map_or(Ok(()), |json| json.write(&record))
    }

    /// What one call took, or one way came to; `row` is how it is shown.
    pub(crate) fn other<T: Serialize>(
        &mut self,
        case: &str,
        arm: &str,
        detail: T,
        row: &str,
    ) -> io::Result<()> {
        #[derive(Serialize)]
        struct Detail<'a, T> {
            gpu: &'a str,
            #[serde(flatten)]
            detail: T,
        }
        self.line(row)?;
        let record = Record {
            bench: "gpu".to_owned(),
            case: case.to_owned(),
            arm: arm.to_owned(),
            base: arm.to_owned(),
            rounds: 1,
            cost_ratio: None,
            usage: Usage::default(),
            detail: Detail { gpu: &self.gpu, detail },
            environment: self.environment.clone(),
        };
        self.json.as_mut().map_or(Ok(()), |json| json.write(&record))
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
fn row(arm: &str, beside: &Beside, cpu_percent: Option<f64>) -> String {
    let us = |ns: i64| ns as f64 / 1e3;
    let (late, added) = (beside.late, beside.added);
    let mean = match beside.added_mean_ns {
        Some(Interval { mean, half_width: Some(half), .. }) => {
            format!("{:.2} ±{:.2}", mean / 1e3, half / 1e3)
        }
        _ => "-".to_owned(),
    };
    let dash =
        |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    format!(
        "  {arm:<20} {:>6.2} {:>8.2} {:>8.1} {:>8.2} {:>8.2} {:>8.1} {mean:>12} {:>11.2} {:>9} {:>9}",
        us(late.p50_ns),
        us(late.p99_ns),
        us(late.max_ns),
        us(added.p50_ns),
        us(added.p99_ns),
        us(added.max_ns),
        beside.cpu_per_wait_ns as f64 / 1e3,
        dash(beside.cpu_ratio.map(|ratio| ratio.mean), 4),
        dash(cpu_percent, 2),
    )
}
