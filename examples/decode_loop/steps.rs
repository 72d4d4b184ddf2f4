//! Which recorded steps are replayed.
//!
//! The trace is read twice, a row at a time: once to check and summarise all of it, so that a bad row is found before anything is
//! measured, and once to pick the steps. Kept are the picked steps alone.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use wakeline::{Nanos, PointTable, Predict, WaitPlan};
use wakeline_examples::stretches;
use wakeline_measure::trace::{Row, TraceError, TraceReader};
use wakeline_measure::{Quantiles, Tail};

use crate::Failure;
use crate::cli::{Cli, Key};
use crate::meter::REST;
use crate::plans::{Arm, POINTS_MAX, WINDOW};

/// How many steps each arm waits for in a round. Several, so that a round of steps of mixed lengths has some of each.
pub(crate) const STEPS_A_ROUND: usize = 8;

/// Where only some steps are replayed: how many in a row. Four windows, so that predictions are as good as in the whole.
const STRETCH: u64 = 4 * WINDOW as u64;

/// The most workloads that a trace may have.
const WORKLOADS_MAX: usize = 64;

/// What a wait costs beside the step itself, for estimates: launching and looking.
const OVERHEAD_NS: u64 = 30_000;

/// The workloads that are replayed without `--workload`, of the trace that comes with the example.
const DEFAULT: [&str; 4] = ["decode-graph", "decode-eager", "mixed-prefill", "train-step"];

/// What the names of workloads end in whose steps were launched as graphs.
const GRAPHED: &str = "-graph";

/// The trace that comes with the example.
const BUILT_IN: &[u8] = include_bytes!("../data/h200-a.csv");

/// Where the steps come from.
#[derive(Debug)]
pub(crate) enum Source {
    BuiltIn,
    File(PathBuf),
}

impl Source {
    pub(crate) fn new(path: Option<&Path>) -> Self {
        path.map_or(Self::BuiltIn, |path| Self::File(path.to_owned()))
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::BuiltIn => "h200-a.csv".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }

    /// Hands every row to `each`.
    fn read(&self, mut each: impl FnMut(Row<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        fn rows<R: std::io::BufRead>(
            trace: Result<TraceReader<R>, TraceError>,
            each: &mut impl FnMut(Row<'_>) -> Result<(), Failure>,
        ) -> Result<(), Failure> {
            let mut trace = trace?;
            while let Some(row) = trace.next_row()? {
                each(row)?;
            }
            Ok(())
        }
        match self {
            Self::BuiltIn => rows(TraceReader::new(self.name(), BUILT_IN), &mut each),
            Self::File(path) => rows::<BufReader<File>>(TraceReader::open(path), &mut each),
        }
    }
}

/// A step to replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// What its duration is learned by.
    pub(crate) key: PointKey,
    pub(crate) rows: u64,
    pub(crate) residual: Nanos,
    /// Whether it was launched as a graph, as its workload's name says.
    pub(crate) graphed: bool,
}

/// The number of a point, and its batch rows where these count.
pub(crate) type PointKey = (usize, u64);

/// What is replayed of a workload.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) name: String,
    /// How many steps were recorded.
    pub(crate) recorded: u64,
    /// Of all recorded steps.
    pub(crate) residual: Quantiles,
    /// By how much 99 % of the recorded steps at most fell short of their prediction: what the margin has to cover besides
    /// the host's lateness.
    pub(crate) shortfall: Nanos,
    pub(crate) steps: Vec<Step>,
    /// The names of its points, by their numbers.
    pub(crate) points: Vec<String>,
}

/// What the first reading keeps of a workload.
struct Summary {
    recorded: u64,
    total: Nanos,
    residual: Tail,
    shortfall: Tail,
    points: PointTable<(String, u64)>,
}

/// The key of a row.
fn key<P>(key: Key, point: P, rows: u64) -> (P, u64) {
    (point, if key == Key::Rows { rows } else { 0 })
}

/// Reads the trace and picks what these arms can wait for in the time.
pub(crate) fn load(source: &Source, cli: &Cli, arms: &[Arm]) -> Result<Vec<Workload>, Failure> {
    let mut summaries = summarise(source, cli.key)?;
    let names: Vec<&String> = summaries.keys().collect();
    if let Some(unknown) = cli.workloads.iter().find(|name| !summaries.contains_key(*name)) {
        let known = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("unknown workload `{unknown}`: {} has {known}", source.name())));
    }
    let wanted = |name: &String| match (&*cli.workloads, source) {
        ([], Source::BuiltIn) => DEFAULT.contains(&name.as_str()),
        ([], Source::File(_)) => true,
        (chosen, _) => chosen.contains(name),
    };
    summaries.retain(|name, _| wanted(name));
    let steps = share_out(&summaries, cli, arms);
    let mut workloads: BTreeMap<String, (Workload, Picked)> = BTreeMap::new();
    for (name, summary) in summaries {
        let picked = Picked { of: summary.recorded, count: steps[&name], next: 0, points: BTreeMap::new() };
        let workload = Workload {
            name: name.clone(),
            recorded: summary.recorded,
            residual: summary.residual.quantiles(),
            shortfall: Nanos::from_nanos(summary.shortfall.quantiles().p99_ns),
            steps: Vec::new(),
            points: Vec::new(),
        };
        workloads.insert(name, (workload, picked));
    }
    source.read(|row| {
        if let Some((workload, picked)) = workloads.get_mut(row.workload)
            && picked.picks()
        {
            let point = picked.point(row.point);
            if point == workload.points.len() {
                workload.points.push(row.point.to_owned());
            }
            let residual = Nanos::from_nanos(row.residual_ns);
            let graphed = row.workload.ends_with(GRAPHED);
            workload.steps.push(Step {
                key: key(cli.key, point, row.rows),
                rows: row.rows,
                residual,
                graphed,
            });
        }
        Ok(())
    })?;
    let mut workloads: Vec<_> = workloads.into_values().map(|(workload, _)| workload).collect();
    // In the order asked for, else with the longest first.
    let place = |workload: &Workload| cli.workloads.iter().position(|name| *name == workload.name);
    workloads.sort_by_key(|workload| (place(workload), std::cmp::Reverse(workload.residual.p50_ns)));
    Ok(workloads)
}

fn summarise(source: &Source, by: Key) -> Result<BTreeMap<String, Summary>, Failure> {
    // Only the window of this plan counts here.
    let plan = WaitPlan::poll().with_predict(Predict::new(0, 1, 1, WINDOW)?)?;
    let mut summaries: BTreeMap<String, Summary> = BTreeMap::new();
    source.read(|row| {
        if !summaries.contains_key(row.workload) {
            if summaries.len() == WORKLOADS_MAX {
                let name = source.name();
                return Err(Failure::Usage(format!("{name}: more than {WORKLOADS_MAX} workloads")));
            }
            summaries.insert(row.workload.to_owned(), Summary::new()?);
        }
        if let Some(summary) = summaries.get_mut(row.workload) {
            summary.add(row, by, &plan);
        }
        Ok(())
    })?;
    Ok(summaries)
}

impl Summary {
    fn new() -> Result<Self, Failure> {
        Ok(Self {
            recorded: 0,
            total: Nanos::ZERO,
            residual: Tail::new(),
            shortfall: Tail::new(),
            points: PointTable::new(POINTS_MAX)?,
        })
    }

    fn add(&mut self, row: Row<'_>, by: Key, plan: &WaitPlan) {
        let residual = Nanos::from_nanos(row.residual_ns);
        self.recorded += 1;
        self.total = self.total + residual;
        self.residual.record(row.residual_ns);
        let key = key(by, row.point.to_owned(), row.rows);
        if let Some(predicted) = self.points.predict(&key, plan) {
            self.shortfall.record((predicted - residual).as_nanos());
        }
        self.points.record(key, plan, residual);
    }

    /// About how long it takes to wait for `steps` of its steps under each of these arms.
    fn cost(&self, steps: u64, arms: &[Arm]) -> u64 {
        let mean = self.total.as_nanos() / self.recorded.max(1) + OVERHEAD_NS;
        let waits = mean.saturating_mul(steps).saturating_mul(arms.len() as u64);
        let resting = arms.iter().filter(|arm| arm.host.has_threads()).count() as u64;
        // Before and after each round.
        let rests = 2 * REST.as_nanos() * resting * steps / STEPS_A_ROUND as u64;
        waits.saturating_add(rests)
    }
}

/// How many steps of each workload fit into the time: what short ones leave over goes to the long ones.
fn share_out(summaries: &BTreeMap<String, Summary>, cli: &Cli, arms: &[Arm]) -> BTreeMap<String, u64> {
    let mut left = u64::from(cli.seconds) * 1_000_000_000;
    let most = |summary: &Summary| summary.recorded.min(cli.steps.into());
    let mut order: Vec<_> = summaries.iter().collect();
    order.sort_by_key(|(_, summary)| summary.cost(most(summary), arms));
    let mut sharers = order.len() as u64;
    let mut steps = BTreeMap::new();
    for (name, summary) in order {
        let affordable = left / sharers / summary.cost(1, arms).max(1);
        // At least a round, however long it takes.
        let count = most(summary).min(affordable.max(STEPS_A_ROUND as u64));
        left = left.saturating_sub(summary.cost(count, arms));
        sharers -= 1;
        steps.insert(name.clone(), count);
    }
    steps
}

/// Picks steps in stretches that are spread evenly over a workload, as its rows come in.
struct Picked {
    of: u64,
    count: u64,
    next: u64,
    points: BTreeMap<String, usize>,
}

impl Picked {
    /// Whether the next row is picked.
    fn picks(&mut self) -> bool {
        let index = self.next;
        self.next += 1;
        stretches::picks(index, self.of, self.count, STRETCH)
    }

    fn point(&mut self, name: &str) -> usize {
        if let Some(&number) = self.points.get(name) {
            return number;
        }
        let number = self.points.len();
        self.points.insert(name.to_owned(), number);
        number
    }
}
