//! Suite `after`: what the driver calls behind a wait take, and so what a loop of steps loses beside its waits.
//!
//! A thread that has slept finds its processor's caches, and what the driver had in them, gone. Each arm runs the same steps one behind the other,
//! and waits for each until shortly before its end in its own way, then looks at the word; some make a call on the way that touches what the next
//! launch needs.

use std::io::Write;

use serde::Serialize;
use wakeline_benches::gpu::Failure;
use wakeline_benches::{Interval, Paired, Quantiles, Tail};
use wakeline_core::{Clock, Error, Instant, Nanos};
use wakeline_cuda::kernels::Kernels;
use wakeline_cuda::{Calls, CuStream};
use wakeline_std::approach;

use crate::args::Budget;
use crate::bench::Bench;
use crate::output::Output;

/// How long steps are.
const LENGTH: Nanos = Nanos::from_millis(5);

/// How many of them an arm runs in a round.
const STEPS: u32 = 20;

/// How long before the end it wakes.
const MARGIN: Nanos = Nanos::from_micros(100);

/// What an arm does while a step runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arm {
    Spin,
    Sleep(Nanos, Warming),
}

/// What it calls when it has woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Warming {
    Nothing,
    /// The status of the stream.
    Query,
    /// A store in another stream.
    Store,
    /// An empty kernel and a store in another stream.
    Launch,
}

const ARMS: [(&str, Arm); 7] = [
    ("spin", Arm::Spin),
    ("sleep", Arm::Sleep(MARGIN, Warming::Nothing)),
    ("sleep, spin 250 us", Arm::Sleep(Nanos::from_micros(250), Warming::Nothing)),
    ("sleep, query", Arm::Sleep(MARGIN, Warming::Query)),
    ("sleep, store elsewhere", Arm::Sleep(MARGIN, Warming::Store)),
    ("sleep, launch elsewhere", Arm::Sleep(MARGIN, Warming::Launch)),
    ("sleep to the end", Arm::Sleep(Nanos::from_micros(15), Warming::Nothing)),
];

/// What a record has beside what all have.
#[derive(Debug, Serialize)]
struct Detail {
    steps: u64,
    length_ns: u64,
    /// What a step took over its length, by round, over the base's of the round.
    added_ns: Option<Interval>,
    /// What launching the step and arming a point behind it took on the host.
    launch: Quantiles,
}

/// What it takes to run one.
struct Runner<'b> {
    bench: &'b Bench,
    kernels: Kernels,
    calls: Calls<'b>,
    elsewhere: CuStream,
}

pub(crate) fn after(output: &mut Output<impl Write>, bench: &Bench, budget: &Budget) -> Result<(), Failure> {
    let kernels = Kernels::load(&bench.context)?;
    let calls = Calls::new(&bench.context, bench.stream())?;
    let runner = Runner { bench, kernels, calls, elsewhere: bench.context.stream()? };
    let mut launches: Vec<Tail> = ARMS.iter().map(|_| Tail::new()).collect();
    let mut paired = Paired::new(ARMS.len());
    for (_, arm) in ARMS {
        runner.run(arm, &mut Tail::new())?;
    }
    let round_us = LENGTH.as_nanos() / 1_000 * u64::from(STEPS) * ARMS.len() as u64;
    for _ in 0..budget.rounds(100, round_us) {
        paired.round(|arm| runner.run(ARMS[arm].1, &mut launches[arm]))?;
    }
    output.line("after: what a step of 5 ms takes over its length, and launching it, us\n  arm                          step   over spin ±99 %     launch p50      p90      p99")?;
    for (index, ((name, _), launch)) in ARMS.iter().zip(&launches).enumerate() {
        let over = |costs: Vec<u64>| {
            costs.into_iter().map(|ns| real(ns) / f64::from(STEPS) - real(LENGTH.as_nanos()))
        };
        let all: Vec<f64> = over(paired.costs(index).collect()).collect();
        let base: Vec<f64> = over(paired.costs(0).collect()).collect();
        let added: Vec<f64> = all.iter().zip(&base).map(|(arm, base)| arm - base).collect();
        let added = Interval::of(&added);
        let launch = launch.quantiles();
        let shown = added.map_or_else(String::new, |added| {
            format!("{:.2} ±{:.2}", added.mean / 1e3, added.half_width.unwrap_or_default() / 1e3)
        });
        let us = |ns: u64| real(ns) / 1e3;
        let row = format!(
            "  {name:<26} {:>6.2} {shown:>17} {:>14.2} {:>8.2} {:>8.2}",
            all.iter().sum::<f64>() / real(all.len() as u64) / 1e3,
            us(launch.p50_ns),
            us(launch.p90_ns),
            us(launch.p99_ns)
        );
        let steps = all.len() as u64 * u64::from(STEPS);
        let detail = Detail { steps, length_ns: LENGTH.as_nanos(), added_ns: added, launch };
        output.other("after", name, detail, &row)?;
    }
    Ok(())
}

impl Runner<'_> {
    /// Runs an arm's steps, one behind the other; how long all took.
    fn run(&self, arm: Arm, launches: &mut Tail) -> Result<u64, Error> {
        let clock = self.bench.clock;
        let began = clock.now();
        let mut seen = began;
        for _ in 0..STEPS {
            self.kernels.occupy(self.bench.stream(), LENGTH)?;
            let port = self.bench.armed()?;
            launches.record(clock.now().since(seen).as_nanos());
            if let Arm::Sleep(margin, warming) = arm {
                self.sleep(seen + (LENGTH - margin));
                self.warm(warming)?;
            }
            seen = self.bench.spin(&port);
        }
        Ok(seen.since(began).as_nanos())
    }

    fn sleep(&self, until: Instant) {
        let clock = self.bench.clock;
        clock.sleep_until(approach(clock.now(), until));
        clock.sleep_until(until);
    }

    fn warm(&self, warming: Warming) -> Result<(), Error> {
        match warming {
            Warming::Nothing => {}
            Warming::Query => drop(self.calls.query_stream()?),
            Warming::Store => drop(self.elsewhere.armed_port()?),
            Warming::Launch => {
                self.kernels.occupy(&self.elsewhere, Nanos::ZERO)?;
                drop(self.elsewhere.armed_port()?);
            }
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
const fn real(number: u64) -> f64 {
    number as f64
}
