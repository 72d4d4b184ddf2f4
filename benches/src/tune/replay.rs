//! Replaying a trace through a plan: the wait that ships, on a clock that is a number.

use serde::Serialize;
use wakeline_core::{
    Action, Instant, Mode, Nanos, Observation, Outcome, PointTable, Report, Status, Wait, WaitPlan,
};

use super::host::{HostModel, Rng, float};

/// The key of a point in a replay: its number in the trace, and a bucket of its batch rows.
pub type Key = (u32, u64);

/// One wait to replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// What its duration is learned by.
    pub key: Key,
    /// From the start of the wait to the end of the work.
    pub residual: Nanos,
}

/// What one replayed wait cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waited {
    /// CPU time of the waiting thread.
    pub cpu: Nanos,
    /// From the end of the work to the return of the wait.
    pub latency: Nanos,
    /// The longest that it asked to sleep for at once.
    pub longest: Nanos,
    /// What it reports.
    pub report: Report,
}

/// A wait of a plan for work that takes so long, learned from and fed back to the table.
///
/// `flag` parks by spinning: what a nap between two looks would save is the host's, not the plan's. `block` is taken for a sleep that
/// ends when the work does, and late as a sleep of that length is.
pub fn wait(
    plan: &WaitPlan,
    step: Step,
    table: &mut PointTable<Key>,
    host: &HostModel,
    rng: &mut Rng,
) -> Waited {
    let done = Instant::ORIGIN + step.residual;
    let costs = host.costs;
    let mut now = Instant::ORIGIN;
    let (mut cpu, mut longest) = (Nanos::ZERO, Nanos::ZERO);
    let wait = Wait::new(plan).expecting(table.forecast(&step.key, plan));
    let (mut wait, mut action) = wait.start(now);
    loop {
        let mut spend = |now: &mut Instant, time: Nanos| {
            *now = *now + time;
            cpu = cpu + time;
        };
        let observation = match action {
            Action::Query => {
                spend(&mut now, costs.query);
                Observation::Status(if now >= done { Status::Done } else { Status::Pending })
            }
            Action::Arm => {
                spend(&mut now, costs.arm);
                Observation::Armed
            }
            Action::Park { until } => {
                let seen = done <= until.max(now);
                let end = if seen { done.max(now) } else { until };
                let watched = end.since(now);
                spend(&mut now, watched + costs.look);
                if seen { Observation::Reached } else { Observation::Woke }
            }
            Action::SleepUntil(until) => {
                let length = until.since(now);
                longest = longest.max(length);
                now = now.max(until) + host.oversleep(length, rng);
                cpu = cpu + costs.sleep(length);
                Observation::Woke
            }
            Action::Warm => {
                spend(&mut now, costs.warm);
                Observation::Woke
            }
            Action::Block { .. } => {
                let length = done.since(now);
                let late = host.oversleep(length, rng);
                now = now.max(done) + late;
                cpu = cpu + costs.sleep(length);
                Observation::Status(Status::Done)
            }
            Action::Finish(report) => {
                table.observe(step.key, &report);
                return Waited { cpu, latency: now.since(done), longest, report };
            }
        };
        action = wait.step(now, observation);
    }
}

/// What a replay cost in all.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Cost {
    /// How many waits.
    pub waits: usize,
    /// The mean of the residuals, in nanoseconds.
    pub residual_ns: f64,
    /// CPU time, as a part of that of the same plan without a sleep.
    pub cpu: f64,
    /// The mean of the latency that sleeping added, in nanoseconds.
    pub added_ns: f64,
    /// Its 99 % quantile.
    pub added_p99_ns: f64,
    /// The share of the waits whose work was done when a sleep ended.
    pub late: f64,
    /// The share of the waits to which sleeping added more than `late_pct` of their residual (and more than 1 us): a hundredth, where the plan
    /// names none.
    pub over: f64,
    /// How often a wait slept, on average.
    pub sleeps: f64,
}

/// The plan without what makes it sleep.
pub fn awake(plan: &WaitPlan) -> WaitPlan {
    match plan.mode() {
        Mode::Flag { park, backstop } => {
            WaitPlan::flag(park.as_micros(), backstop.as_micros()).unwrap_or(WaitPlan::poll())
        }
        Mode::Block | Mode::Poll => WaitPlan::poll(),
    }
}

/// Replays the steps in their order through the plan, and through the same plan without sleeps; `points_max` bounds what is learned.
///
/// # Errors
///
/// [`ErrorCode::InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit) for a bad `points_max`.
pub fn replay(
    plan: &WaitPlan,
    steps: &[Step],
    host: &HostModel,
    seed: u64,
    points_max: usize,
) -> Result<Cost, wakeline_core::Error> {
    let mut table = PointTable::new(points_max)?;
    let mut idle = PointTable::new(1)?;
    let mut rng = Rng::new(seed);
    let awake = awake(plan);
    let share = plan.adapt().map_or(1, |adapt| u64::from(adapt.late_pct()));
    let mut added = Vec::with_capacity(steps.len());
    let (mut cpu, mut spun, mut residual, mut late, mut over, mut sleeps) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    for step in steps {
        let waited = wait(plan, *step, &mut table, host, &mut rng);
        let spinning = wait(&awake, *step, &mut idle, host, &mut rng);
        let more = float(waited.latency) - float(spinning.latency);
        cpu += float(waited.cpu);
        spun += float(spinning.cpu);
        residual += float(step.residual);
        late += f64::from(u8::from(waited.report.outcome() == Some(Outcome::Late)));
        let allowed = float(step.residual) * float(Nanos::from_nanos(share)) / 100.0;
        over += f64::from(u8::from(more > allowed.max(1_000.0)));
        sleeps += f64::from(waited.report.sleeps);
        added.push(more);
    }
    let count = float(Nanos::from_nanos(steps.len().max(1) as u64));
    let sum: f64 = added.iter().sum();
    added.sort_unstable_by(f64::total_cmp);
    let p99 = added.get((added.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0.0);
    Ok(Cost {
        waits: steps.len(),
        residual_ns: residual / count,
        cpu: if spun > 0.0 { cpu / spun } else { 1.0 },
        added_ns: sum / count,
        added_p99_ns: p99,
        late: late / count,
        over: over / count,
        sleeps: sleeps / count,
    })
}
