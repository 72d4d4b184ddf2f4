//! Suite `burn`: what the watcher's threads use while nothing is in flight, and while 64 flights are.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Wall};

use serde::Serialize;
use wakeline::sim::{RealTime, SimConfig, SimDevice};
use wakeline::{Clock, Error, Nanos, WaitPlan};
use wakeline_benches::{Threads, Usage};
use wakeline_std::{DeviceThread, ParkPolicy, Point, StdClock, Watcher, WatcherConfig, WatcherStats};

use crate::args::Suite;
use crate::output::{Failure, Output, real};
use crate::tasks::{Begin, Device, Late, Tasks};

/// How long a new watcher has until it is at rest.
const RESTS: Duration = Duration::from_millis(300);

/// How long the tasks run before the threads are looked at: lengths are learned by then.
const LEARNS: Duration = Duration::from_millis(600);

/// How long after its start the first flight of those that are spread begins.
const FIRST: Nanos = Nanos::from_millis(50);

/// Words are watched by spinning for up to 300 us; by naps alone with [`naps`].
const SPINS: Parks = Parks { spin_us: 300, nap_us: 50 };

/// Flights that are spread, exact and with lateness allowed.
const SPREAD: Begin = Begin::Spread { late_us: 0 };
const SPREAD_LATE: Begin = Begin::Spread { late_us: 500 };

/// A [`ParkPolicy`].
#[derive(Clone, Copy)]
struct Parks {
    spin_us: u32,
    nap_us: u32,
}

const fn naps(nap_us: u32) -> Parks {
    Parks { spin_us: 0, nap_us }
}

/// One way of having the flights, and of waiting for them.
struct Case {
    name: &'static str,
    begin: Begin,
    parks: Parks,
    margin_us: u64,
    trust: bool,
}

impl Case {
    const fn new(name: &'static str, begin: Begin, parks: Parks, margin_us: u64) -> Self {
        Self { name, begin, parks, margin_us, trust: false }
    }

    const fn trusted(name: &'static str, begin: Begin, parks: Parks, margin_us: u64) -> Self {
        Self { name, begin, parks, margin_us, trust: true }
    }

    fn plan(&self) -> String {
        let (margin_us, trust) = (self.margin_us, if self.trust { "+trust" } else { "" });
        format!(
            "flag:park_us=50,backstop_us=20000+predict:margin_us={margin_us},min_sleep_us=100,max_sleep_us=30000,window=8{trust}"
        )
    }
}

/// All of them.
const CASES: [Case; 9] = [
    Case::new("at once, spins", Begin::AtOnce, SPINS, 100),
    Case::trusted("at once, spins, trusted", Begin::AtOnce, SPINS, 100),
    Case::new("at once, naps", Begin::AtOnce, naps(60), 200),
    Case::trusted("at once, naps, trusted", Begin::AtOnce, naps(60), 200),
    Case::new("spread, spins", SPREAD, SPINS, 60),
    Case::new("spread, naps", SPREAD, naps(100), 150),
    Case::trusted("spread, naps, trusted", SPREAD, naps(100), 150),
    Case::new("spread, late_us=500", SPREAD_LATE, SPINS, 60),
    Case::trusted("spread, late_us=500, trusted", SPREAD_LATE, SPINS, 60),
];

/// What a record has beside what all have.
#[derive(Debug, Serialize)]
struct Detail {
    /// The plan of the waits; `None` while nothing is in flight, as the next ones.
    plan: Option<String>,
    length_s: f64,
    /// Of the watcher's threads, in percent of a core; `None` where the system does not tell, as the next one.
    cpu_percent: Option<f64>,
    wake_ups: Option<u64>,
    flights_per_s: f64,
    queries_per_s: f64,
    /// How many waits slept too long, in percent; from the first one on, as the next.
    overslept_percent: Option<f64>,
    told_late: Option<Late>,
}

const HEAD: &str =
    "                                     CPU,  wake-ups,  flights,  queries,  slept too    told late by, us
  64 flights of 20 ms           % of a core        /s        /s        /s    long, %       mean       p99";

impl Detail {
    fn row(&self, case: &str) -> String {
        let late_us = |ns: fn(&Late) -> f64| text(self.told_late.as_ref().map(ns).map(|ns| ns / 1e3), 1);
        format!(
            "  {case:<30} {:>10} {:>9} {:>9.0} {:>9.0} {:>10} {:>10} {:>9}",
            text(self.cpu_percent, 2),
            text(self.wake_ups.map(|wake_ups| real(wake_ups) / self.length_s), 0),
            self.flights_per_s,
            self.queries_per_s,
            text(self.overslept_percent, 2),
            late_us(|late| late.mean_ns),
            late_us(|late| real(late.quantiles.p99_ns)),
        )
    }
}

/// A dash for what is not known.
fn text(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

pub(crate) fn burn(output: &mut Output<impl Write>, length: Duration) -> Result<(), Failure> {
    output.line(&format!("burn: {} s each", length.as_secs()))?;
    idle(output, length)?;
    output.line(HEAD)?;
    for case in &CASES {
        let (used, detail) = measure(case, length)?;
        let row = detail.row(case.name);
        output.case((Suite::Burn, case.name), used, detail, &row)?;
    }
    Ok(())
}

/// Nothing is in flight.
fn idle(output: &mut Output<impl Write>, length: Duration) -> Result<(), Failure> {
    let watcher = Watcher::new()?;
    std::thread::sleep(RESTS);
    let span = Span::over(&watcher, length);
    watcher.close(Watcher::CLOSE)?;
    let (used, detail) = span.detail();
    let row = format!(
        "  nothing in flight: {} wake-ups, {} % of a core",
        text(detail.wake_ups.map(real), 0),
        text(detail.cpu_percent, 3)
    );
    output.case((Suite::Burn, "nothing in flight"), used, detail, &row)?;
    Ok(())
}

/// What happened in a stretch of time.
struct Span {
    took: Duration,
    /// `None` where the system does not tell.
    threads: Option<Threads>,
    stats: [WatcherStats; 2],
    used: Usage,
}

impl Span {
    /// Sleeps for `length` and looks at what `watcher` has done meanwhile.
    fn over(watcher: &Watcher, length: Duration) -> Self {
        let (used, threads, stats) = (Usage::now(), Threads::now(), watcher.stats());
        let start = Wall::now();
        std::thread::sleep(length);
        let after = Threads::now();
        Self {
            took: start.elapsed(),
            threads: after.zip(threads).map(|(after, before)| after.since(before)),
            stats: [stats, watcher.stats()],
            used: Usage::now().since(used),
        }
    }

    fn detail(&self) -> (Usage, Detail) {
        let length_s = self.took.as_secs_f64();
        let [before, after] = self.stats;
        let detail = Detail {
            plan: None,
            length_s,
            cpu_percent: self.threads.map(|threads| 100.0 * real(threads.cpu_ns) / 1e9 / length_s),
            wake_ups: self.threads.map(|threads| threads.wake_ups),
            flights_per_s: real(after.ends - before.ends) / length_s,
            queries_per_s: real(after.queries - before.queries) / length_s,
            overslept_percent: None,
            told_late: None,
        };
        (self.used, detail)
    }
}

fn measure(case: &Case, length: Duration) -> Result<(Usage, Detail), Error> {
    let plan: WaitPlan = case.plan().parse()?;
    let clock = StdClock::new();
    let sleep: fn(Nanos) = |length| std::thread::sleep(Duration::from_nanos(length.as_nanos()));
    let device: Device = SimDevice::new(RealTime::new(clock, sleep), SimConfig::default())?;
    let thread = DeviceThread::spawn(clock, device.clone())?;
    let park = ParkPolicy::new(case.parks.spin_us, case.parks.nap_us)?;
    let watcher = Watcher::with(WatcherConfig::default().early_wake(false).park(park))?;
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = Tasks {
        clock,
        device,
        handle: watcher.handle(),
        point: Point::new("spread"),
        plan,
        begin: case.begin,
        start: clock.now() + FIRST,
        stop: Arc::clone(&stop),
    };
    let worker = std::thread::spawn(move || tasks.run());
    std::thread::sleep(LEARNS);
    let span = Span::over(&watcher, length);
    stop.store(true, Ordering::Relaxed);
    let told = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    watcher.close(Watcher::CLOSE)?;
    thread.stop()?;
    let (used, detail) = span.detail();
    let detail = Detail {
        plan: Some(plan.to_string()),
        overslept_percent: Some(told.overslept_percent()),
        told_late: Some(told.late()),
        ..detail
    };
    Ok((used, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own_and_a_plan_that_is_one() {
        let mut names: Vec<_> = CASES.iter().map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CASES.len());
        for case in &CASES {
            assert!(case.plan().parse::<WaitPlan>().is_ok(), "{}", case.name);
        }
    }
}
