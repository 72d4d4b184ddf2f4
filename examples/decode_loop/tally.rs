//! What the waits of one plan add up to.

use serde::Serialize;
use wakeline::{Nanos, Outcome, Residual};
use wakeline_measure::{Environment, Quantiles, Record, Tail, Usage};
use wakeline_std::Point;

use crate::device::Device;
use crate::plans::Arm;
use crate::replay::{Learned, Stage};
use crate::steps::{Source, Step, Workload};
use crate::{Failure, Run};

/// What the waits of one plan add up to.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) arm: Arm,
    pub(crate) latency: Tail,
    pub(crate) counts: Counts,
    /// Counts the same waits as a program of yours would, for `--stats` and `--prometheus`.
    pub(crate) point: Point,
    usage: Usage,
    /// Each step and its residual as it was seen, for `--record`.
    pub(crate) seen: Option<Vec<(Step, Nanos)>>,
}

/// Sums over all waits of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(crate) struct Counts {
    pub(crate) waits: u64,
    pub(crate) late_wakes: u64,
    pub(crate) parks: u64,
    pub(crate) queries: u64,
    pub(crate) sleeps: u64,
    /// How long the waits took.
    pub(crate) waited_ns: u64,
    /// CPU time of the waiting threads meanwhile, without that of other work.
    pub(crate) cpu_ns: u64,
    /// CPU time of other work meanwhile.
    pub(crate) worked_ns: u64,
}

/// What stands in a record besides what all records have.
#[derive(Debug, Serialize)]
pub(crate) struct Detail {
    trace: String,
    /// What played the steps.
    device: String,
    host: &'static str,
    plan: String,
    works: bool,
    steps_recorded: u64,
    #[serde(flatten)]
    counts: Counts,
    latency: Quantiles,
    /// By how much the device's thread stored words late, over all plans of the workload.
    device_late: Quantiles,
    oversleep_p99_ns: u64,
    /// `None` where the plans were given, and their margins in them.
    margin_ns: Option<u64>,
    cut_short: bool,
}

impl Tally {
    pub(crate) fn new(arm: Arm, point: Point) -> Self {
        let (latency, counts) = (Tail::new(), Counts::default());
        Self { arm, latency, counts, point, usage: Usage::default(), seen: None }
    }

    /// Waits for these steps; says what CPU time that took.
    pub(crate) fn round<D: Device>(
        &mut self,
        stage: &Stage<D>,
        steps: &[Step],
        learned: &Learned,
        device: &mut Tail,
    ) -> Result<u64, Failure> {
        let Self { arm, latency, counts, point, usage, seen } = self;
        let mut steps_left = steps.iter();
        let (before, cpu_before) = (Usage::now(), counts.cpu_ns);
        stage.round(arm, steps, learned, |sample| {
            latency.record(sample.latency.as_nanos());
            if let Some(late) = sample.store_late {
                device.record(late.as_nanos());
            }
            point.observe(&Ok(sample.report));
            if let (Some(seen), Some(step)) = (&mut *seen, steps_left.next())
                && let Some(Residual::Exact(residual)) = sample.report.residual
            {
                seen.push((*step, residual));
            }
            counts.waits += 1;
            counts.late_wakes += u64::from(sample.report.outcome() == Some(Outcome::Late));
            counts.parks += sample.report.parks;
            counts.queries += sample.report.queries;
            counts.sleeps += u64::from(sample.report.sleeps);
            counts.waited_ns += sample.report.elapsed.as_nanos();
            counts.cpu_ns += sample.cpu.as_nanos();
            counts.worked_ns += sample.worked.as_nanos();
        })?;
        *usage += Usage::now().since(before);
        Ok(counts.cpu_ns - cpu_before)
    }

    /// The record of this plan, which is number `number`.
    pub(crate) fn record(
        &self,
        workload: &Workload,
        run: &Run,
        number: usize,
        source: &Source,
        environment: &Environment,
    ) -> Record<Detail> {
        Record {
            bench: "decode_loop".to_owned(),
            case: workload.name.clone(),
            arm: self.arm.name.clone(),
            base: run.tallies[0].arm.name.clone(),
            rounds: run.paired.rounds(),
            cost_ratio: run.paired.ratio_of_totals(number, 0),
            usage: self.usage,
            detail: Detail {
                trace: source.name(),
                device: run.on.clone().unwrap_or_else(|| "simulated".to_owned()),
                host: self.arm.host.name(),
                plan: self.arm.bands.to_string(),
                works: self.arm.works,
                steps_recorded: workload.recorded,
                counts: self.counts,
                latency: self.latency.quantiles(),
                device_late: run.device.quantiles(),
                oversleep_p99_ns: run.oversleep_p99.as_nanos(),
                margin_ns: run.margin.map(|margin| margin.total.as_nanos()),
                cut_short: run.cut_short,
            },
            environment: environment.clone(),
        }
    }
}
