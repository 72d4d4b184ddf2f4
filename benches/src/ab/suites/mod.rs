//! The suites: what is measured, case by case.
//!
//! | file | suite | measures |
//! |---|---|---|
//! | `waits.rs` | `wake` | from the true end of work to the code behind the wait, by the work's length |
//! | `waits.rs` | `burn` | CPU and energy while waiting for long work |
//! | `serve.rs`, `server.rs` | `serve` | a decode server: tokens a second, CPU and energy a token |
//! | `fan_in.rs` | `fan-in` | many flights at once |
//! | `ops.rs` | `ops` | device operations submitted and awaited |

mod fan_in;
mod ops;
mod serve;
mod server;
mod timeline;
mod waits;

use std::time::Duration;

use wakeline_core::Nanos;

use super::device::Device;
use super::rounds::Label;
use super::session::{Named, Output, Setup};
use crate::gpu::Failure;
use ops::Ops;
use server::Load;

/// A suite.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suite {
    /// See the module.
    Wake,
    /// See the module.
    Burn,
    /// See the module.
    Serve,
    /// See the module.
    FanIn,
    /// See the module.
    Ops,
}

impl Suite {
    /// All of them, in the order in which they are run.
    pub const ALL: [Self; 5] = [Self::Wake, Self::Burn, Self::Serve, Self::FanIn, Self::Ops];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wake => "wake",
            Self::Burn => "burn",
            Self::Serve => "serve",
            Self::FanIn => "fan-in",
            Self::Ops => "ops",
        }
    }

    /// What it measures, for people.
    pub const fn what(self) -> &'static str {
        match self {
            Self::Wake => "from the true end of work to the code behind the wait, by the work's length",
            Self::Burn => "CPU and energy while waiting for long work",
            Self::Serve => "a decode server under load: tokens a second, CPU and energy a token",
            Self::FanIn => "many flights at once: CPU a flight, and how late each is known",
            Self::Ops => "device operations submitted and awaited, one at a time and by crowds of tasks",
        }
    }

    /// How long it takes, seconds, where nothing is asked for.
    const fn seconds(self, quick: bool) -> u64 {
        match (self, quick) {
            (Self::Wake | Self::Burn | Self::FanIn, true) => 16,
            (Self::Serve, true) => 32,
            (Self::Ops, true) => 14,
            (Self::Wake | Self::Burn | Self::FanIn, false) => 60,
            (Self::Ops, false) => 120,
            (Self::Serve, false) => 180,
        }
    }

    /// Its cases.
    fn works(self, quick: bool) -> Vec<Work> {
        let us = |lengths: &[u64]| {
            lengths.iter().map(|us| Work::Waits(Nanos::from_micros(*us))).collect::<Vec<_>>()
        };
        match (self, quick) {
            (Self::Wake, true) => us(&[12, 100, 1_000, 5_000]),
            (Self::Wake, false) => us(&[12, 50, 200, 1_000, 5_000, 20_000]),
            (Self::Burn, true) => us(&[20_000]),
            (Self::Burn, false) => us(&[20_000, 100_000]),
            (Self::Serve, true) => vec![Load::closed(4), Load::closed(64), Load::poisson(16)]
                .into_iter()
                .map(Work::Serve)
                .collect(),
            (Self::Serve, false) => [4, 8, 16, 32, 64]
                .map(Load::closed)
                .into_iter()
                .chain([4, 16, 48].map(Load::poisson))
                .map(Work::Serve)
                .collect(),
            (Self::FanIn, true) => [1, 64, 4_096].map(Work::FanIn).into(),
            (Self::FanIn, false) => [1, 4, 16, 64, 256, 1_024, 4_096].map(Work::FanIn).into(),
            (Self::Ops, quick) => {
                let lengths: &[u64] = if quick { &[20, 1_000] } else { &[5, 20, 100, 1_000, 5_000, 10_000] };
                let awaits = lengths.iter().map(|us| Ops::Await(Nanos::from_micros(*us)));
                awaits.chain([Ops::Loop(512), Ops::Idle(64)]).map(Work::Ops).collect()
            }
        }
    }
}

/// What a case is made of.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Work {
    /// Work of one length at a time.
    Waits(Nanos),
    /// A server under a load.
    Serve(Load),
    /// So many flights at once.
    FanIn(usize),
    /// Operations.
    Ops(Ops),
}

/// One case of a suite.
#[derive(Clone, Debug)]
pub struct Case {
    /// Of which suite.
    pub suite: Suite,
    /// What it is called in records: `200 us`.
    pub name: String,
    work: Work,
    /// Its part of the suite's time.
    share: f64,
}

impl Case {
    /// What a filter looks for its text in: `wake/200 us`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.suite.name(), self.name)
    }

    /// Measures it.
    ///
    /// # Errors
    ///
    /// What the device says, or the cells cannot be written.
    pub fn measure<D: Device>(&self, setup: &Setup<'_, D>, output: &mut Output) -> Result<(), Failure> {
        let seconds = setup.extent.seconds.unwrap_or(self.suite.seconds(setup.extent.quick));
        let named = Named {
            label: Label { suite: self.suite.name(), case: self.name.clone() },
            budget: Duration::from_secs(seconds).mul_f64(self.share),
        };
        match self.work {
            Work::Waits(length) => waits::measure(setup, output, &named, self.suite, length),
            Work::Serve(load) => serve::measure(setup, output, &named, load),
            Work::FanIn(flights) => fan_in::measure(setup, output, &named, flights),
            Work::Ops(what) => ops::measure(setup, output, &named, what),
        }
    }
}

/// All cases, in the order in which they are run.
pub fn cases(quick: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for suite in Suite::ALL {
        let works = suite.works(quick);
        let all: f64 = works.iter().map(weight).sum();
        cases.extend(works.into_iter().map(|work| {
            let name = match work {
                Work::Waits(length) => format!("{} us", length.as_micros()),
                Work::Serve(load) => load.to_string(),
                Work::FanIn(1) => "1 flight".to_owned(),
                Work::FanIn(flights) => format!("{flights} flights"),
                Work::Ops(what) => what.to_string(),
            };
            Case { suite, name, work, share: weight(&work) / all }
        }));
    }
    cases
}

/// Shares out the time of a suite among those of its cases that are here.
pub fn share_out(cases: &mut [Case]) {
    for suite in Suite::ALL {
        let of_it = |case: &Case| case.suite == suite;
        let all: f64 = cases.iter().filter(|case| of_it(case)).map(|case| case.share).sum();
        cases.iter_mut().filter(|case| of_it(case)).for_each(|case| case.share /= all);
    }
}

/// Long work needs longer for as many waits.
fn weight(work: &Work) -> f64 {
    match work {
        Work::Waits(length) | Work::Ops(Ops::Await(length)) if *length < Nanos::from_micros(500) => 1.0,
        Work::Waits(length) | Work::Ops(Ops::Await(length)) if *length < Nanos::from_millis(3) => 2.0,
        Work::Waits(_) | Work::Ops(_) => 4.0,
        Work::Serve(_) | Work::FanIn(_) => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_path_of_its_own_and_shares_are_whole() {
        for quick in [false, true] {
            let cases = cases(quick);
            let mut paths: Vec<_> = cases.iter().map(Case::path).collect();
            paths.sort_unstable();
            paths.dedup();
            assert_eq!(paths.len(), cases.len());
            for suite in Suite::ALL {
                let share: f64 = cases.iter().filter(|case| case.suite == suite).map(|case| case.share).sum();
                assert!((share - 1.0).abs() < 1e-9, "{suite:?}");
            }
        }
    }

    #[test]
    fn the_time_of_a_suite_is_for_those_of_its_cases_that_are_run() {
        let mut chosen = cases(true);
        chosen.retain(|case| case.suite != Suite::Wake || case.name == "100 us");
        share_out(&mut chosen);
        for suite in Suite::ALL {
            let share: f64 = chosen.iter().filter(|case| case.suite == suite).map(|case| case.share).sum();
            assert!((share - 1.0).abs() < 1e-9, "{suite:?}");
        }
    }

    #[test]
    fn a_quick_run_is_under_two_minutes_of_measuring() {
        let seconds: u64 = Suite::ALL.iter().map(|suite| suite.seconds(true)).sum();
        assert!(seconds <= 120, "{seconds}");
        assert!(Suite::ALL.iter().all(|suite| suite.seconds(true) < suite.seconds(false)));
    }
}
