//! What all tasks of a soak share, and what they came to.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use wakeline_benches::gpu::Gpu;
use wakeline_core::{Error, ErrorCode, Nanos};
use wakeline_cuda::kernels::Fault;
use wakeline_cuda::{CudaDevice, DEVICE_BYTES_KEPT, Function};

use super::raw::affines;
use crate::faults::status;
use crate::own::Own;

/// How many problems are told of in words; all are counted.
const PROBLEMS_MAX: usize = 8;

/// How late an end may be beyond its bound, on a machine that has more threads than processors; less than that is for a benchmark to judge.
pub(super) const LATE_MAX: Nanos = Nanos::from_millis(2_000);

/// One device, and who waits for it.
pub(super) struct Load {
    pub(super) own: Own,
    pub(super) device: CudaDevice,
    pub(super) affine: Function,
    pub(super) seed: u64,
    /// The fault that the context is to meet, where it is.
    fault: Option<Fault>,
    stops: AtomicBool,
    waits: AtomicU64,
    tally: Mutex<Tally>,
}

/// What tasks came to.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Those that ended, by whoever ran them, and by their plans.
    pub(super) waits_by_host: BTreeMap<String, u64>,
    pub(super) waits_by_plan: BTreeMap<String, u64>,
    /// How they ended; those that were let go are not among the waits.
    pub(super) ends: BTreeMap<String, u64>,
    /// The longest of each host, from its begin to its end.
    pub(super) longest_us: BTreeMap<String, u64>,
    /// The latest end beyond a deadline.
    pub(super) beyond_deadline_us: u64,
    /// The latest good end of a wait that began when its work was over.
    pub(super) beyond_work_us: u64,
    /// Tasks, and those that ended with the fault of their context.
    pub(super) tasks: u64,
    pub(super) faulted: u64,
    pub(super) problems: u64,
    pub(super) told: Vec<String>,
}

impl Tally {
    pub(super) fn waits(&self) -> u64 {
        self.waits_by_host.values().sum()
    }

    /// A wait of this host and plan has ended, after so long.
    pub(super) fn count(&mut self, host: &str, plan: &str, took: Nanos) {
        *self.waits_by_host.entry(host.to_owned()).or_default() += 1;
        *self.waits_by_plan.entry(plan.to_owned()).or_default() += 1;
        let longest = self.longest_us.entry(host.to_owned()).or_default();
        *longest = (*longest).max(took.as_micros());
    }

    pub(super) fn ended(&mut self, how: &str) {
        *self.ends.entry(how.to_owned()).or_default() += 1;
    }

    pub(super) fn problem(&mut self, what: String) {
        self.problems += 1;
        if self.told.len() < PROBLEMS_MAX {
            self.told.push(what);
        }
    }

    fn add(&mut self, other: Self) {
        let maps = [
            (&mut self.waits_by_host, other.waits_by_host),
            (&mut self.waits_by_plan, other.waits_by_plan),
            (&mut self.ends, other.ends),
        ];
        for (sum, map) in maps {
            for (name, count) in map {
                *sum.entry(name).or_default() += count;
            }
        }
        for (host, us) in other.longest_us {
            let longest = self.longest_us.entry(host).or_default();
            *longest = us.max(*longest);
        }
        self.beyond_deadline_us = self.beyond_deadline_us.max(other.beyond_deadline_us);
        self.beyond_work_us = self.beyond_work_us.max(other.beyond_work_us);
        self.tasks += other.tasks;
        self.faulted += other.faulted;
        self.problems += other.problems;
        let room = PROBLEMS_MAX - self.told.len().min(PROBLEMS_MAX);
        self.told.extend(other.told.into_iter().take(room));
    }
}

/// Why a task ends before it is told to.
#[derive(Debug)]
pub(super) enum Stop {
    /// By an error: of the fault of its context, or a problem.
    Error(Error),
    /// By a promise that is broken.
    Broken(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Load {
    pub(super) fn new(gpu: &Gpu, seed: u64, fault: Option<Fault>) -> Result<Self, Error> {
        let own = Own::new(gpu)?;
        let device = CudaDevice::in_context(own.context.clone(), DEVICE_BYTES_KEPT)?;
        let affine = affines(&device)?;
        let (stops, waits, tally) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::default());
        Ok(Self { own, device, affine, seed, fault, stops, waits, tally })
    }

    /// Whether there is to be another wait.
    pub(super) fn goes_on(&self) -> bool {
        !self.stops.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
    }

    /// One more wait has ended.
    pub(super) fn count(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// A task has ended.
    pub(super) fn ended(&self, who: &str, mut tally: Tally, result: Result<(), Stop>) {
        tally.tasks += 1;
        match result {
            Ok(()) => {}
            Err(Stop::Error(error)) if self.is_of_the_fault(&error) => tally.faulted += 1,
            Err(Stop::Error(error)) => tally.problem(format!("{who}: an error without its cause: {error}")),
            Err(Stop::Broken(what)) => tally.problem(format!("{who}: {what}")),
        }
        self.add(tally);
    }

    /// A part of the whole has failed that is no task.
    pub(super) fn problem(&self, what: String) {
        let mut tally = Tally::default();
        tally.problem(what);
        self.add(tally);
    }

    fn add(&self, tally: Tally) {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).add(tally);
    }

    pub(super) fn tally(&self) -> Tally {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether an error is what the context's fault has to be told as.
    pub(super) fn is_of_the_fault(&self, error: &Error) -> bool {
        let told = |fault| error.to_string().contains(&format!("({})", status(fault)));
        error.code() == ErrorCode::Backend && self.fault.is_some_and(told)
    }

    pub(super) fn is_to_fault(&self) -> bool {
        self.fault.is_some()
    }
}
