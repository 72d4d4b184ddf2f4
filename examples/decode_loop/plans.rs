//! The arms: plans, and how they wait.

use std::fmt;

use wakeline::{Nanos, Predict, WaitBands, WaitPlan};
use wakeline_std::{Oversleep, StdClock};

use crate::Failure;
use crate::cli::Cli;
use crate::hosts::Host;
use crate::table::Us;

/// Of how many steps the plan predicts the next.
pub(crate) const WINDOW: u16 = 8;
/// Of how many points durations are kept.
pub(crate) const POINTS_MAX: usize = 1_024;

/// The longest park of the default plans, and how often they ask the driver besides.
const PARK_US: u64 = 50;
const BACKSTOP_US: u64 = 1_000;
/// The shortest and the longest sleep of the default plan.
const MIN_SLEEP_US: u64 = 200;
const MAX_SLEEP_US: u64 = 20_000;
/// The margin is rounded up to this.
const MARGIN_STEP_US: u64 = 10;
/// The shortest margin by default: how late a virtual processor wakes changes from second to second, by the load of others and by how
/// deep it slept (p99 of 20 us and of 100 us were seen a minute apart). Watched through, it is 2 % of a step of 5 ms.
const MARGIN_US_LEAST: u64 = 100;
/// The longest margin by default: 4 % of such a step. A machine that wakes later is late now and then.
const MARGIN_US_MAX: u64 = 200;

/// How long the sleeps are whose lateness the margin covers, and how many are measured: a second.
const OVERSLEEP_LENGTH: Nanos = Nanos::from_millis(5);
const OVERSLEEP_SAMPLES: u32 = 200;

/// How late this machine wakes a thread that slept for about a step.
pub(crate) fn oversleep(clock: StdClock) -> Result<Oversleep, Failure> {
    Ok(Oversleep::measure(clock, OVERSLEEP_LENGTH, OVERSLEEP_SAMPLES)?)
}

/// A way of waiting.
#[derive(Clone, Debug)]
pub(crate) struct Arm {
    /// Of the plan, and of the host where there are others than `std`.
    pub(crate) name: String,
    pub(crate) plan: String,
    pub(crate) host: Host,
    pub(crate) bands: WaitBands,
    /// On an executor that works meanwhile.
    pub(crate) works: bool,
}

/// What the arms will be, before there is a workload to choose a margin for.
pub(crate) fn sketch(cli: &Cli, plans: &[WaitBands], hosts: &[Host]) -> Result<Vec<Arm>, Failure> {
    arms(cli, plans, hosts, Nanos::from_micros(MARGIN_US_LEAST))
}

/// What the plans of these arms are called, and their texts.
pub(crate) fn texts(sketch: &[Arm], plans: &[WaitBands]) -> Vec<(String, String)> {
    let mut texts: Vec<(String, String)> = Vec::new();
    for arm in sketch.iter().filter(|arm| !arm.works) {
        let text = arm.bands.to_string();
        let text = if plans.is_empty() {
            text.replace(&format!("margin_us={MARGIN_US_LEAST},"), "margin_us=..,")
        } else {
            text
        };
        if texts.iter().all(|(name, _)| *name != arm.plan) {
            texts.push((arm.plan.clone(), text));
        }
    }
    texts
}

/// The arms for a workload: `poll` on this thread first, then each plan on each host, then the last plan with work.
pub(crate) fn arms(
    cli: &Cli,
    plans: &[WaitBands],
    hosts: &[Host],
    margin: Nanos,
) -> Result<Vec<Arm>, Failure> {
    let base = (WaitBands::from(WaitPlan::poll()), Host::Std);
    let mut pairs = vec![base];
    let chosen = if plans.is_empty() {
        let flag = WaitPlan::flag(PARK_US, BACKSTOP_US)?;
        let predict = Predict::new(margin.as_micros(), MIN_SLEEP_US, MAX_SLEEP_US, WINDOW)?;
        vec![flag.into(), flag.with_predict(predict)?.into()]
    } else {
        plans.to_vec()
    };
    pairs.extend(chosen.iter().flat_map(|bands| hosts.iter().map(|host| (bands.clone(), *host))));
    let mut arms: Vec<Arm> = Vec::new();
    for (bands, host) in pairs {
        let short = short_name(&bands);
        let same = arms.iter().filter(|arm| arm.host == host && short_name(&arm.bands) == short).count();
        let plan = if same == 0 { short } else { format!("{short} #{}", same + 1) };
        arms.push(Arm { name: String::new(), plan, host, bands, works: false });
    }
    // Work fills the waits of this thread only.
    let last = arms.iter().skip(1).rfind(|arm| arm.host == Host::Std);
    if let Some(last) = last.filter(|_| !cli.no_work) {
        arms.push(Arm { plan: format!("{} & work", last.plan), works: true, ..last.clone() });
    }
    for arm in &mut arms {
        arm.name =
            if hosts == [Host::Std] { arm.plan.clone() } else { format!("{}@{}", arm.plan, arm.host.name()) };
    }
    Ok(arms)
}

/// How long before the predicted end a sleep ends, by default, and why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Margin {
    pub(crate) total: Nanos,
    /// How late this machine wakes at p99.
    pub(crate) oversleep: Nanos,
    /// How far below their prediction the steps fall at p99.
    pub(crate) shortfall: Nanos,
}

impl Margin {
    /// What covers this machine's lateness and the steps' own spread, within the limits.
    pub(crate) fn new(oversleep: &Oversleep, shortfall: Nanos) -> Self {
        let oversleep = oversleep.quantile(0.99);
        let us = (oversleep + shortfall).as_nanos().div_ceil(1_000);
        let total =
            Nanos::from_micros(us.next_multiple_of(MARGIN_STEP_US).clamp(MARGIN_US_LEAST, MARGIN_US_MAX));
        Self { total, oversleep, shortfall }
    }

    /// Which limit it was set to, if any.
    fn limit(&self) -> &'static str {
        match self.total.as_micros() {
            MARGIN_US_LEAST => ", the least",
            MARGIN_US_MAX => ", the most",
            _ => "",
        }
    }
}

impl fmt::Display for Margin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { total, oversleep, shortfall } = self;
        let (oversleep, shortfall) = (Us(*oversleep), Us(*shortfall));
        write!(f, "{} us{}, for {oversleep} us that sleeps end late", total.as_micros(), self.limit())?;
        write!(f, " and {shortfall} us that steps end early (p99)")
    }
}

/// The plan without its numbers.
fn short_name(bands: &WaitBands) -> String {
    let text = bands.to_string();
    if text.contains(';') {
        return "bands".to_owned();
    }
    let parts = text.split('+').map(|part| part.split(':').next().unwrap_or(part));
    parts.collect::<Vec<_>>().join("+")
}
