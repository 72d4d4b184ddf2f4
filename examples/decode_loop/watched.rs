//! Waits that a watcher's threads watch: for a task of the measuring thread, and for one of tokio's `multi_thread` runtime.

use wakeline::{Clock as _, Nanos, WaitPlan};
use wakeline_std::{Point, StdClock, WatcherWait};

use crate::Failure;
use crate::device::{Device, Stream};
use crate::meter::REST;
use crate::plans::Arm;
use crate::replay::{Learned, Sample, Stage, cpu, sample, sleep};
use crate::steps::Step;

/// What a wait for a step needs, so that a task can take it along.
struct Wanted {
    step: Step,
    plan: WaitPlan,
    point: Point,
}

/// What came of a round: its samples, and what the thread of the task used beside the waits.
struct Round {
    samples: Vec<Sample>,
    beside: Nanos,
}

fn wanted(arm: &Arm, steps: &[Step], learned: &Learned) -> Vec<Wanted> {
    let wanted = |step: &Step| Wanted {
        step: *step,
        plan: *arm.bands.choose(step.rows),
        point: learned.point(step.key),
    };
    steps.iter().map(wanted).collect()
}

/// Launches and awaits one step after the other.
async fn wait_for_all<S: Stream>(
    clock: StdClock,
    stream: S,
    wanted: Vec<Wanted>,
    wait: impl Fn(S::Port, &WaitPlan, &Point) -> WatcherWait<S::Port>,
) -> Result<Round, Failure> {
    let mut round = Round { samples: Vec::with_capacity(wanted.len()), beside: Nanos::ZERO };
    for Wanted { step, plan, point } in wanted {
        // No await lies between two readings: they are of one thread, whichever it is.
        let start = cpu();
        let (port, witness) = stream.launch(&step)?;
        let launched = cpu();
        let report = wait(port, &plan, &point).await?;
        let returned = clock.now();
        let ended = cpu();
        round.samples.push(sample(stream.truth(&witness)?, report, returned, Nanos::ZERO, Nanos::ZERO));
        round.beside = round.beside + (launched - start) + (cpu() - ended);
    }
    Ok(round)
}

impl<D: Device> Stage<D> {
    /// As a task of this thread, which sleeps meanwhile.
    pub(crate) fn watched(
        &self,
        arm: &Arm,
        steps: &[Step],
        learned: &Learned,
        each: impl FnMut(Sample),
    ) -> Result<(), Failure> {
        let watcher = self.waiters.watcher.as_ref().ok_or(Failure::NoHost)?;
        let wanted = wanted(arm, steps, learned);
        let wait = |port, plan: &WaitPlan, point: &Point| watcher.wait(port, plan, point);
        let run = || self.idle.block_on(wait_for_all(self.clock, self.device.stream().clone(), wanted, wait));
        self.metered(run, each)
    }

    /// As a task of a runtime with threads of its own.
    pub(crate) fn spawned(
        &self,
        arm: &Arm,
        steps: &[Step],
        learned: &Learned,
        each: impl FnMut(Sample),
    ) -> Result<(), Failure> {
        let (runtime, host) = self.waiters.tokio.as_ref().ok_or(Failure::NoHost)?;
        let (wanted, host) = (wanted(arm, steps, learned), host.clone());
        let wait = move |port, plan: &WaitPlan, point: &Point| host.wait(port, plan, point);
        let run = || {
            // This thread only hands the task over and waits for its end.
            let start = cpu();
            let task = runtime.spawn(wait_for_all(self.clock, self.device.stream().clone(), wanted, wait));
            let mut round = runtime.block_on(task)??;
            round.beside = round.beside + (cpu() - start);
            Ok(round)
        };
        self.metered(run, each)
    }

    /// Runs a round and shares out among its samples what all threads used for it.
    fn metered(
        &self,
        run: impl FnOnce() -> Result<Round, Failure>,
        mut each: impl FnMut(Sample),
    ) -> Result<(), Failure> {
        sleep(REST);
        let before = self.device.meter().others();
        let Round { samples, beside } = run()?;
        let resting = cpu();
        sleep(REST);
        let beside = beside + (cpu() - resting);
        let used = self.device.meter().others() - before - beside;
        let share = Nanos::from_nanos(used.as_nanos() / samples.len().max(1) as u64);
        for sample in samples {
            each(Sample { cpu: share, ..sample });
        }
        Ok(())
    }
}
