//! Check `soak`: for minutes, all hosts wait for one device at once, under all plans and in every way of letting go, while other processes' contexts are broken.
//!
//! | file | what |
//! |---|---|
//! | `hosts.rs` | every host with its tasks |
//! | `waits.rs` | tasks that wait for points of streams |
//! | `operations.rs` | tasks that await operations, tensors and graphs |
//! | `load.rs` | what they share, and what they came to |
//! | `raw.rs` | streams of others, kernels on tensors |
//! | `mod.rs` | how long it takes, the other processes, and the verdict |
//!
//! Each wait is judged by what its work has written. Beside it, one after another, run processes that meet a fault with a wait under each plan (`meets.rs`), that
//! end with waits in flight (`exits.rs`), and that run all of the above until their context is broken: each task of theirs must end with the fault's own error.

mod hosts;
mod load;
mod operations;
mod raw;
mod waits;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant as Wall};

use serde::{Deserialize, Serialize};
use wakeline_benches::draws::Draws;
use wakeline_benches::gpu::{Failure, Gpu, Host, PLANS};
use wakeline_core::Nanos;
use wakeline_cuda::kernels::Fault;
use wakeline_std::Watcher;

use self::hosts::Worker;
use self::load::{LATE_MAX, Load, Tally};
use crate::args::{Check, fault_name};
use crate::child::{Child, NAP};
use crate::exits::Leaving;
use crate::faults;
use crate::meets::Row;
use crate::output::{Output, Verdict};
use crate::own::LOST;

/// How long tasks may take to end, once they are told to, or their context is broken: what they wait for may count as lost meanwhile.
const ENDS: Duration = Duration::from_secs(30);

/// How many waits a process makes before its context is broken, and how long it may take for that.
const BEFORE: u64 = 300;

/// Between two other processes.
const RESTS: Duration = Duration::from_millis(500);

/// How often it is said how far it is.
const SAYS: Duration = Duration::from_secs(60);

/// What was seen.
#[derive(Clone, Debug, Serialize)]
struct Seen {
    seed: u64,
    seconds: f64,
    waits_per_second: f64,
    hosts: usize,
    #[serde(flatten)]
    tally: Tally,
    children: BTreeMap<String, u64>,
    longest_child_ms: u64,
    drop_failures: u64,
}

/// What a process says whose context was broken.
#[derive(Debug, Serialize, Deserialize)]
struct Ruined {
    fault: String,
    tally: Tally,
    ended_ms: u64,
}

/// The children, and what was wrong with them.
#[derive(Default)]
struct Children {
    by_name: BTreeMap<String, u64>,
    longest: Duration,
    problems: Vec<String>,
}

pub(crate) fn soak(
    output: &mut Output<impl Write>,
    gpu: &Gpu,
    driver: Option<&Path>,
    (length, seed): (Duration, u64),
    slack: Nanos,
) -> Result<(), Failure> {
    let before = gpu.cuda().census().counts();
    let (load, watcher) = (Arc::new(Load::new(gpu, seed, None)?), hosts::watcher()?);
    let start = Wall::now();
    let workers = hosts::start(&load, &watcher)?;
    let hosts = Host::here().len();
    let mut children = Children::default();
    let mut draws = Draws::new(seed, 0);
    let mut said = start;
    while start.elapsed() < length {
        let left = length.saturating_sub(start.elapsed());
        children.one(&mut draws, driver, slack)?;
        std::thread::sleep(RESTS.min(left));
        if said.elapsed() >= SAYS {
            said = Wall::now();
            let (seconds, waits) = (start.elapsed().as_secs(), load.waits());
            writeln!(io::stderr(), "soak: {waits} waits in {seconds} s")?;
        }
    }
    load.stop();
    let seconds = start.elapsed().as_secs_f64();
    let closes = all_end(&load, workers).then(|| watcher.close(Watcher::CLOSE));
    if let Some(Err(error)) = closes {
        load.problem(format!("the watcher does not close: {error}"));
    }
    let mut tally = load.tally();
    children.problems.into_iter().for_each(|problem| tally.problem(problem));
    let drop_failures = gpu.cuda().census().counts().drop_failures - before.drop_failures;
    let waits = tally.waits();
    let saw = Seen {
        seed,
        seconds,
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        waits_per_second: waits as f64 / seconds,
        hosts,
        children: children.by_name,
        longest_child_ms: u64::try_from(children.longest.as_millis()).unwrap_or(u64::MAX),
        tally,
        drop_failures,
    };
    output.tell(Verdict {
        check: Check::Soak,
        name: format!("all hosts and plans, seed {seed}"),
        count: waits,
        broken: saw.broken(),
        detail: saw,
    })?;
    Ok(())
}

impl Seen {
    fn broken(&self) -> Option<String> {
        let Tally { problems, told, .. } = &self.tally;
        if let Some(first) = told.first() {
            return Some(format!("{problems} problems, the first: {first}"));
        }
        if self.drop_failures > 0 {
            return Some(format!("{} calls failed in drops", self.drop_failures));
        }
        // Whoever is not heard of has waited for nothing.
        (self.tally.waits_by_host.len() < self.hosts)
            .then(|| format!("of {} hosts {} have waited", self.hosts, self.tally.waits_by_host.len()))
    }
}

/// Whether all tasks end in time; those that do not are told of.
fn all_end(load: &Load, mut workers: Vec<Worker>) -> bool {
    let end = Wall::now() + ENDS;
    while !workers.is_empty() && Wall::now() < end {
        let (ended, still): (Vec<_>, Vec<_>) = workers.into_iter().partition(Worker::has_ended);
        for worker in ended {
            worker.join(load);
        }
        workers = still;
        std::thread::sleep(NAP);
    }
    let hang: Vec<_> = workers.iter().map(|worker| worker.name.as_str()).collect();
    if !hang.is_empty() {
        load.problem(format!("after {} s these still wait: {}", ENDS.as_secs(), hang.join(", ")));
    }
    hang.is_empty()
}

impl Children {
    /// Runs one more, and judges it.
    fn one(&mut self, draws: &mut Draws, driver: Option<&Path>, slack: Nanos) -> Result<(), Failure> {
        let mut below =
            |count: usize| usize::try_from(draws.between(0, count as u64 - 1)).unwrap_or_default();
        let fault = Fault::ALL[below(Fault::ALL.len())];
        let start = Wall::now();
        let (name, problem) = match below(4) {
            0 => {
                let leaving = Leaving::ALL[below(Leaving::ALL.len())];
                let ended = Child::start(&["--leave", leaving.name()], driver)?.end()?;
                (format!("leaves by {}", leaving.name()), ended.said.err())
            }
            1 => {
                let hosts = Host::here();
                let host = hosts[below(hosts.len())];
                let row = Row { fault, host, plans: PLANS.to_vec() };
                let problem = faults::judged(&row, driver, slack + LATE_MAX)?;
                (format!("{}, a wait under each plan", fault_name(fault)), problem)
            }
            _ => {
                let seed = below(1 << 32).to_string();
                let args = ["--ruin", fault_name(fault), "--seed", &seed];
                let ended = Child::start(&args, driver)?.end()?;
                let problem = ended.said.and_then(|said| ruined(&said)).err();
                (format!("{}, everything under way", fault_name(fault)), problem)
            }
        };
        self.longest = self.longest.max(start.elapsed());
        self.problems.extend(problem.map(|problem| format!("a process ({name}): {problem}")));
        *self.by_name.entry(name).or_default() += 1;
        Ok(())
    }
}

/// Whether a process whose context was broken ended as it has to.
fn ruined(said: &str) -> Result<(), String> {
    let Ok(Ruined { tally, ended_ms, .. }) = serde_json::from_str(said) else {
        return Err(format!("it said: {said}"));
    };
    let Tally { tasks, faulted, problems, told, .. } = tally;
    if let Some(first) = told.first() {
        return Err(format!("{problems} problems, the first: {first}"));
    }
    if faulted != tasks || tasks == 0 {
        return Err(format!("of {tasks} tasks {faulted} ended with the fault"));
    }
    let most = ENDS.as_millis();
    if u128::from(ended_ms) > most { Err(format!("its tasks took {ended_ms} ms to end")) } else { Ok(()) }
}

/// The child's part: waits for everything at once, breaks its own context, and says how its tasks ended.
pub(crate) fn ruin(gpu: &Gpu, fault: Fault, seed: u64) -> Result<(), Failure> {
    let (load, watcher) = (Arc::new(Load::new(gpu, seed, Some(fault))?), hosts::watcher()?);
    let workers = hosts::start(&load, &watcher)?;
    let until = Wall::now() + Duration::from_micros(LOST.as_micros());
    while load.waits() < BEFORE && Wall::now() < until {
        std::thread::sleep(NAP);
    }
    let start = Wall::now();
    load.own.kernels.fault(&load.own.context.stream()?, fault)?;
    all_end(&load, workers);
    let ended_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    let ruined = Ruined { fault: fault_name(fault).to_owned(), tally: load.tally(), ended_ms };
    writeln!(io::stdout(), "{}", serde_json::to_string(&ruined).map_err(io::Error::from)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(tally: Tally, ended_ms: u64) -> String {
        serde_json::to_string(&Ruined { fault: "trap".to_owned(), tally, ended_ms }).unwrap()
    }

    #[test]
    fn a_broken_process_holds_where_each_task_ends_with_the_fault() {
        let good = Tally { tasks: 3, faulted: 3, ..Tally::default() };
        ruined(&said(good.clone(), 400)).unwrap();
        assert!(ruined(&said(good.clone(), 30_001)).is_err());
        assert!(ruined(&said(Tally { faulted: 2, ..good.clone() }, 1)).is_err());
        assert!(ruined(&said(Tally::default(), 1)).is_err(), "none had begun");
        assert!(ruined("nothing").is_err());
        let mut told = good;
        told.problem("lost".to_owned());
        assert!(ruined(&said(told, 1)).unwrap_err().contains("lost"));
    }

    #[test]
    fn problems_failed_drops_and_hosts_that_are_not_heard_of_do_not_hold() {
        let tally = Tally { waits_by_host: [("inline".to_owned(), 4)].into(), ..Tally::default() };
        let good = Seen {
            seed: 1,
            seconds: 1.0,
            waits_per_second: 4.0,
            hosts: 1,
            tally,
            children: BTreeMap::new(),
            longest_child_ms: 0,
            drop_failures: 0,
        };
        assert_eq!(good.broken(), None);
        assert!(Seen { hosts: 2, ..good.clone() }.broken().unwrap().contains("of 2 hosts 1"));
        assert!(Seen { drop_failures: 1, ..good.clone() }.broken().is_some());
        let mut bad = good;
        bad.tally.problem("lost".to_owned());
        assert!(bad.broken().unwrap().contains("lost"));
    }
}
