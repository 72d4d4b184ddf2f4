//! What no plan can beat: the best that a wait can do which knows the distribution of its residuals, and of the host's timers.
//!
//! The oracle knows of each key how its residuals are distributed, exactly, but not which one comes next. At each moment it sleeps to the best of
//! all later moments or watches on, found backwards from the longest residual: a dynamic program over moments. CPU time, latency and late wakes
//! are weighed by prices; no way of waiting has a lower sum. From the sums of many prices follows the least CPU that any way of waiting needs which
//! keeps to given limits (the Lagrangian dual), so a target below is out of reach.
//!
//! What it does not know is the order: where a residual depends on those before it, as in a decode loop whose batch grows, a plan that learns as it goes
//! may be below it. Where residuals come as if drawn, none can be.
//!
//! Otherwise it is generous: it knows the trace that it is asked about beforehand, every gap between two recorded values included, and looks for free.

use std::collections::BTreeMap;

use wakeline_core::Nanos;

use super::host::{HostModel, float, nanos};
use super::replay::{Key, Step};

/// The quantiles of the oversleep that stand for all, in standard deviations: five of one fifth each.
const DEVIATIONS: [f64; 5] = [-1.281_6, -0.524_4, 0.0, 0.524_4, 1.281_6];

/// How many recorded values of a key become moments of their own, at most.
const VALUES_MAX: usize = 96;

/// How far before a recorded value a sleep may be to end, in nanoseconds.
const BEFORE_NS: [f64; 5] = [0.0, 5_000.0, 12_000.0, 30_000.0, 80_000.0];

/// The ratio of two moments between them.
const RATIO: f64 = 1.03;

/// What a nanosecond of latency and a late wake cost, in nanoseconds of CPU time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Price {
    /// Of each nanosecond from the end of the work to the wake.
    pub latency: f64,
    /// Of each wait whose work was done when a sleep ended.
    pub late: f64,
}

/// What a way of waiting costs, on average.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Bound {
    /// CPU time, as a part of a spin's.
    pub cpu: f64,
    /// Latency, in nanoseconds.
    pub added_ns: f64,
    /// The share of late waits.
    pub late: f64,
}

/// The oracle of some steps on a host.
#[derive(Clone, Debug)]
pub struct Oracle<'a> {
    host: &'a HostModel,
    /// The residuals of each key, sorted, in nanoseconds.
    keys: BTreeMap<Key, Vec<f64>>,
    waits: f64,
    spin_ns: f64,
}

/// The oracle of these steps.
///
/// ```
/// use wakeline_benches::tune::{HostModel, Price, Step, oracle};
/// use wakeline_core::Nanos;
/// let steps: Vec<_> = (0..100).map(|us| Step { key: (0, 0), residual: Nanos::from_micros(5_000 + us) }).collect();
/// let host = HostModel::h200();
/// let oracle = oracle(&steps, &host);
/// let best = oracle.best(Price { latency: 100.0, late: 0.0 });
/// assert!(best.cpu > 0.005 && best.cpu < 0.03, "{best:?}"); // the spread alone is 1 % at the mean
/// // No way of waiting is ever late and needs less than that.
/// assert!(oracle.least_cpu(0.0, 0.0) > best.cpu / 2.0);
/// ```
pub fn oracle<'a>(steps: &[Step], host: &'a HostModel) -> Oracle<'a> {
    let mut keys: BTreeMap<Key, Vec<f64>> = BTreeMap::new();
    for step in steps {
        keys.entry(step.key).or_default().push(float(step.residual));
    }
    for residuals in keys.values_mut() {
        residuals.sort_unstable_by(f64::total_cmp);
    }
    let spin_ns = steps.iter().map(|step| float(step.residual)).sum::<f64>().max(1.0);
    Oracle { host, keys, waits: float(Nanos::from_nanos(steps.len().max(1) as u64)), spin_ns }
}

impl Oracle<'_> {
    /// What the best way of waiting costs at this price.
    pub fn best(&self, price: Price) -> Bound {
        let mut sum = Sum::default();
        for residuals in self.keys.values() {
            sum = sum.and(best(residuals, self.host, price), 1.0);
        }
        Bound { cpu: sum.cpu / self.spin_ns, added_ns: sum.latency / self.waits, late: sum.late / self.waits }
    }

    /// The least CPU, as a part of a spin's, that any way of waiting needs whose mean latency and share of late waits stay within these limits.
    pub fn least_cpu(&self, added_ns: f64, late: f64) -> f64 {
        let mut least = 0.0_f64;
        for latency in [1.0, 3.0, 10.0, 30.0, 100.0, 300.0] {
            for late_price in [0.0, 3e3, 3e4, 3e5] {
                let Bound { cpu, added_ns: added, late: share } =
                    self.best(Price { latency, late: late_price });
                let over = latency * (added - added_ns) + late_price * (share - late);
                least = least.max(cpu + over * self.waits / self.spin_ns);
            }
        }
        least
    }
}

/// What the waits of a key cost that are still pending at a moment, in all.
#[derive(Clone, Copy, Default)]
struct Sum {
    cpu: f64,
    latency: f64,
    late: f64,
}

impl Sum {
    fn and(self, other: Self, share: f64) -> Self {
        Self {
            cpu: self.cpu + other.cpu * share,
            latency: self.latency + other.latency * share,
            late: self.late + other.late * share,
        }
    }

    fn at(self, price: Price) -> f64 {
        self.cpu + self.latency * price.latency + self.late * price.late
    }
}

/// Sorted residuals, and the sums of the first of them.
struct Known<'a> {
    residuals: &'a [f64],
    sums: Vec<f64>,
}

impl Known<'_> {
    /// How many end by then, and what these add up to.
    fn until(&self, at: f64) -> (f64, f64) {
        let count = self.residuals.partition_point(|residual| *residual <= at);
        (float(Nanos::from_nanos(count as u64)), self.sums[count])
    }
}

/// The moments at which a key's oracle may decide.
fn moments(residuals: &[f64]) -> Vec<f64> {
    let longest = residuals.last().copied().unwrap_or(0.0);
    let mut moments = vec![0.0];
    let mut at = 2_000.0;
    while at < longest {
        moments.push(at);
        at *= RATIO;
    }
    let stride = residuals.len().div_ceil(VALUES_MAX).max(1);
    for residual in residuals.iter().step_by(stride).chain(residuals.last()) {
        moments.extend(BEFORE_NS.map(|before| residual - before).into_iter().filter(|at| *at > 0.0));
    }
    moments.sort_unstable_by(f64::total_cmp);
    moments.dedup_by(|a, b| *a - *b < 500.0);
    // Behind the longest nothing is pending.
    moments.push(longest + 500.0);
    moments
}

fn best(residuals: &[f64], host: &HostModel, price: Price) -> Sum {
    let mut sums = vec![0.0];
    sums.extend(residuals.iter().scan(0.0, |sum, residual| {
        *sum += residual;
        Some(*sum)
    }));
    let known = Known { residuals, sums };
    let moments = moments(residuals);
    let ended: Vec<_> = moments.iter().map(|at| known.until(*at)).collect();
    let all = known.until(f64::MAX).0;
    let mut costs = vec![Sum::default(); moments.len()];
    for now in (0..moments.len() - 1).rev() {
        let (at, (gone, gone_sum)) = (moments[now], ended[now]);
        let pending = all - gone;
        if pending < 0.5 {
            continue;
        }
        // Watch to the next moment.
        let (next_gone, next_sum) = ended[now + 1];
        let watched =
            next_sum - gone_sum - (next_gone - gone) * at + (all - next_gone) * (moments[now + 1] - at);
        let mut least = Sum { cpu: watched, ..Sum::default() }.and(costs[now + 1], 1.0);
        for until in &moments[now + 1..] {
            let length = nanos(until - at);
            let lates = host.oversleeps_at(length, DEVIATIONS);
            let mut slept = Sum { cpu: pending * float(host.costs.sleep(length)), ..Sum::default() };
            for late in lates {
                let wake = until + late;
                let (late, late_sum) = known.until(wake);
                let (late, late_sum) = (late - gone, late_sum - gone_sum);
                let missed = Sum { cpu: 0.0, latency: late * wake - late_sum, late };
                // It goes on from the last moment before its wake: that is no later than it could.
                let then = moments.partition_point(|moment| *moment <= wake).saturating_sub(1);
                let rest = costs[then.max(now + 1)];
                let scale = if all - ended[then].0 > 0.5 {
                    (all - known.until(wake).0) / (all - ended[then].0)
                } else {
                    0.0
                };
                slept = slept.and(missed, 0.2).and(rest, 0.2 * scale);
            }
            if slept.at(price) < least.at(price) {
                least = slept;
            }
            // All of its sleeps end behind everything.
            if slept.latency * price.latency > least.at(price) * 4.0 + 1.0 {
                break;
            }
        }
        costs[now] = least;
    }
    costs[0]
}
