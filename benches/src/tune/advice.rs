//! Which plan to take: the front of CPU against latency, and one plan of it for each point.

use serde::Serialize;
use wakeline_core::{Error, WaitPlan};

use super::host::HostModel;
use super::oracle::oracle;
use super::replay::{Cost, Step, replay};
use super::series::Trace;

/// What any plan of a point is replayed with.
const SEED: u64 = 1;

/// The mean latency that an advised plan may add, in parts of the mean residual.
const ADDED_MAX: f64 = 0.01;

/// What latency weighs in a choice: adding a hundredth of the residual weighs as much as 30 hundredths of a spin's CPU.
const LATENCY_WEIGHT: f64 = 30.0;

/// What it has to save of a spin's CPU to be advised in place of one that never sleeps.
const SAVES_MIN: f64 = 0.03;

/// The most points that one workload may have: keys with their buckets of rows.
const POINTS_MAX: usize = 1 << 12;

/// What one plan costs at a point.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Tried {
    /// Its text.
    pub plan: String,
    /// What it costs.
    pub cost: Cost,
    /// Whether no other plan takes less CPU and adds less latency.
    pub on_front: bool,
}

/// What is advised for a point of a workload.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// The workload.
    pub workload: String,
    /// The point.
    pub point: String,
    /// How many waits were replayed.
    pub waits: usize,
    /// The mean residual, in nanoseconds.
    pub residual_ns: f64,
    /// The plan to take: of those that add at most 1 % of the mean residual the one that takes the least CPU and latency together, of which 1 % of the
    /// residual weighs as much as 30 % of a spin; the first where none saves enough.
    pub advised: Tried,
    /// CPU time that it saves, in parts of a spin's.
    pub saves: f64,
    /// The least CPU, in parts of a spin's, that any way of waiting needs which adds as little and is as seldom late, if that was asked for.
    pub least_cpu: Option<f64>,
    /// All plans, in the order in which they were given.
    pub tried: Vec<Tried>,
}

/// The plans that are tried without others: the first never sleeps.
pub fn candidates() -> Vec<String> {
    let flag = "flag:park_us=50,backstop_us=1000";
    let mut plans = vec![flag.to_owned()];
    for margin in [50, 100, 150, 250] {
        plans.push(format!("{flag}+predict:margin_us={margin},min_sleep_us=100,max_sleep_us=20000,window=8"));
    }
    for late_pct in [1, 2, 5] {
        for window in [64, 256] {
            plans.push(format!(
                "{flag}+adapt:late_pct={late_pct},guard_us=5,min_sleep_us=10,max_sleep_us=20000,window={window}"
            ));
        }
    }
    plans
}

/// Replays each point of the trace through all of the plans, the first of which is to be one that never sleeps.
///
/// # Errors
///
/// A plan that cannot be read.
///
/// ```
/// use wakeline_benches::tune::{HostModel, Series, Step, Trace, advise, candidates};
/// use wakeline_core::Nanos;
/// let steps = |us: u64| (0..300).map(|i| Step { key: (0, 0), residual: Nanos::from_micros(us + i % 3) }).collect();
/// let mut trace = Trace::default();
/// for (name, us) in [("long", 5_000), ("short", 10)] {
///     trace.workloads.insert(name.into(), Series { points: vec!["sample".into()], steps: steps(us) });
/// }
/// let advice = advise(&trace, &candidates(), &HostModel::h200(), false)?;
/// assert!(advice[0].advised.plan.contains("+adapt:") && advice[0].saves > 0.9);
/// assert_eq!(advice[1].advised.plan, "flag:park_us=50,backstop_us=1000"); // nothing to save
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub fn advise(trace: &Trace, plans: &[String], host: &HostModel, bound: bool) -> Result<Vec<Advice>, Error> {
    let mut advice = Vec::new();
    let parsed = plans.iter().map(|plan| plan.parse()).collect::<Result<Vec<WaitPlan>, _>>()?;
    for (workload, series) in &trace.workloads {
        for (point, number) in series.points.iter().zip(0..) {
            let steps = series.of_point(number);
            let mut tried = Vec::new();
            for plan in &parsed {
                let cost = replay(plan, &steps, host, SEED, POINTS_MAX)?;
                tried.push(Tried { plan: plan.to_string(), cost, on_front: false });
            }
            mark_front(&mut tried);
            if let Some(advised) = choose(&tried).cloned() {
                let Cost { waits, residual_ns, .. } = advised.cost;
                let least_cpu = bound.then(|| least_cpu(&steps, host, &advised.cost));
                let (workload, point) = (workload.clone(), point.clone());
                let saves = tried[0].cost.cpu - advised.cost.cpu;
                advice.push(Advice { workload, point, waits, residual_ns, advised, saves, least_cpu, tried });
            }
        }
    }
    Ok(advice)
}

fn least_cpu(steps: &[Step], host: &HostModel, cost: &Cost) -> f64 {
    oracle(steps, host).least_cpu(cost.added_ns.max(0.0), cost.late)
}

fn mark_front(tried: &mut [Tried]) {
    let costs: Vec<Cost> = tried.iter().map(|tried| tried.cost).collect();
    for one in tried {
        let (cpu, added) = (one.cost.cpu, one.cost.added_ns);
        let beaten = |other: &Cost| {
            other.cpu <= cpu && other.added_ns <= added && (other.cpu < cpu || other.added_ns < added)
        };
        one.on_front = !costs.iter().any(beaten);
    }
}

fn choose(tried: &[Tried]) -> Option<&Tried> {
    let awake = tried.first()?;
    let close = tried.iter().filter(|tried| tried.cost.added_ns <= ADDED_MAX * tried.cost.residual_ns);
    let weight = |tried: &Tried| {
        tried.cost.cpu + LATENCY_WEIGHT * tried.cost.added_ns.max(0.0) / tried.cost.residual_ns.max(1.0)
    };
    let least = close.min_by(|a, b| weight(a).total_cmp(&weight(b))).unwrap_or(awake);
    Some(if awake.cost.cpu - least.cost.cpu >= SAVES_MIN { least } else { awake })
}
