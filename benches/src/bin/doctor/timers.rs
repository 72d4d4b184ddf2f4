//! How exact this machine's timers are: resolution, slack, how late sleeps end, and the margin that follows.

use serde::Serialize;
use wakeline::{Clock, Error, Nanos};
use wakeline_std::{Oversleep, StdClock, TimerSlack};

/// The lengths of sleeps, in microseconds, and how many are measured in full and when quick.
const LENGTHS: [(u64, u32, u32); 4] = [(100, 300, 60), (1_000, 300, 40), (5_000, 120, 16), (10_000, 100, 10)];

/// What the sleeps of one length may take together: more are not begun than fit, judged by the first few.
const BUDGET: Nanos = Nanos::from_millis(1_050);
const BUDGET_QUICK: Nanos = Nanos::from_millis(130);

/// How many sleeps tell what one takes.
const TRIAL: u32 = 3;

/// The margin is rounded up to this, as `decode_loop` does it.
const MARGIN_STEP_US: u64 = 10;

/// The timers.
#[derive(Debug, Serialize)]
pub(crate) struct Timers {
    pub(crate) resolution_ns: Option<u64>,
    /// What a thread is given here.
    pub(crate) slack_ns: Option<u64>,
    pub(crate) slack_can_be_set: bool,
    /// One for each length of sleep.
    pub(crate) oversleep: Vec<Lengths>,
}

/// How late sleeps of one length end.
#[derive(Debug, Serialize)]
pub(crate) struct Lengths {
    pub(crate) length_us: u64,
    /// With the least slack; `None` where it cannot be set.
    pub(crate) slack_1_ns: Option<Late>,
    /// With the slack that the thread was given.
    pub(crate) slack_as_given: Late,
    /// The least `margin_us` for steps about as long, with the better slack; the steps' own spread comes on top.
    pub(crate) margin_us_min: u64,
}

/// Quantiles of a lateness.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Late {
    pub(crate) samples: usize,
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) max_ns: u64,
}

impl Timers {
    /// Sleeps for a second or two a slack, a third of a second when `quick`.
    pub(crate) fn measure(quick: bool) -> Result<Self, Error> {
        let clock = StdClock::new();
        let slack_ns = TimerSlack::of_this_thread().map(Nanos::as_nanos);
        let slack_can_be_set = TimerSlack::set(TimerSlack::LEAST).is_ok();
        let mut oversleep = Vec::new();
        for (length_us, samples, samples_quick) in LENGTHS {
            let (samples, budget) = if quick { (samples_quick, BUDGET_QUICK) } else { (samples, BUDGET) };
            let late = || late(clock, Nanos::from_micros(length_us), samples, budget);
            let slack_as_given = late()?;
            let slack_1_ns = match TimerSlack::set(TimerSlack::LEAST) {
                Ok(_slack) => Some(late()?),
                Err(_) => None,
            };
            let margin_us_min = margin_us(slack_1_ns.unwrap_or(slack_as_given).p99_ns);
            oversleep.push(Lengths { length_us, slack_1_ns, slack_as_given, margin_us_min });
        }
        Ok(Self { resolution_ns: resolution_ns(), slack_ns, slack_can_be_set, oversleep })
    }
}

fn late(clock: StdClock, length: Nanos, samples: u32, budget: Nanos) -> Result<Late, Error> {
    let start = clock.now();
    Oversleep::measure(clock, length, TRIAL)?;
    let each = (clock.now().since(start).as_nanos() / u64::from(TRIAL)).max(1);
    let fitting = u32::try_from(budget.as_nanos() / each).unwrap_or(u32::MAX);
    let measured = Oversleep::measure(clock, length, samples.min(fitting.max(TRIAL)))?;
    let at = |q| measured.quantile(q).as_nanos();
    let samples = measured.samples().len();
    Ok(Late { samples, p50_ns: at(0.5), p90_ns: at(0.9), p99_ns: at(0.99), max_ns: at(1.0) })
}

fn margin_us(p99_ns: u64) -> u64 {
    p99_ns.div_ceil(1_000).next_multiple_of(MARGIN_STEP_US)
}

#[cfg(target_os = "linux")]
fn resolution_ns() -> Option<u64> {
    let resolution = rustix::time::clock_getres(rustix::time::ClockId::Monotonic);
    let ns = u64::try_from(resolution.tv_sec).ok()?.checked_mul(1_000_000_000)?;
    ns.checked_add(u64::try_from(resolution.tv_nsec).ok()?).filter(|ns| *ns > 0)
}

#[cfg(not(target_os = "linux"))]
fn resolution_ns() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_margin_is_rounded_up() {
        for (p99_ns, us) in [(0, 0), (1, 10), (10_000, 10), (10_001, 20), (133_337, 140)] {
            assert_eq!(margin_us(p99_ns), us, "{p99_ns}");
        }
    }

    #[test]
    fn samples_keep_to_their_budget() {
        let few = late(StdClock::new(), Nanos::from_millis(1), 1_000, Nanos::from_millis(10)).unwrap();
        assert!((3..=10).contains(&few.samples), "{few:?}");
        assert!(few.p50_ns <= few.p90_ns && few.p90_ns <= few.p99_ns && few.p99_ns <= few.max_ns);
    }
}
