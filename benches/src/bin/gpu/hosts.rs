//! Suite `hosts`: from the end of a kernel to the task that awaits it, on tokio and by a watcher.

use std::cell::Cell;
use std::io::Write;
use std::sync::Arc;
use std::time::Instant as Wall;

use tokio::runtime::{Builder, Runtime};
use wakeline_benches::Alarm;
use wakeline_benches::gpu::{Failure, learned};
use wakeline_core::{Clock, CompletionPort, Error, ErrorCode, Instant, Nanos, Wait, WaitPlan, Wake, drive};
use wakeline_cuda::kernels::TimedSteps;
use wakeline_cuda::{CudaLine, CudaPort};
use wakeline_std::usage::process_cpu_time;
use wakeline_std::{ParkPolicy, Point, StdClock, StdIdle, Watcher, WatcherHandle, WatcherWait};
use wakeline_tokio::{TokioLocal, TokioWatcher};

use crate::args::Budget;
use crate::bench::{Bench, since};
use crate::output::{HEAD, Output, Told};
use crate::samples::{Sample, Samples};

/// How long kernels are.
const LENGTH: Nanos = Nanos::from_millis(5);

/// What a wait takes beside the kernel, roughly, microseconds.
const OVERHEAD_US: u64 = 150;

/// How many workers the runtime with several threads has.
const WORKERS: usize = 4;

/// How many waits an arm does before those that count: what wake-ups take is learned.
const WARM_UPS: u32 = 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// This thread, which looks at the word all the time.
    Spin,
    /// This thread, which knows when the kernel ends, sleeps until so many microseconds before that, and looks at the word from then on: what a sleep costs by
    /// itself, and so a bound for all that sleep.
    Bare(u64),
    /// A task of a tokio runtime with several threads, which a thread that knows the end notifies so many microseconds before it, and which looks at the word from
    /// then on: a bound for all that have a worker woken.
    Alarmed(u64),
    /// The thread of a tokio runtime, by [`TokioLocal`].
    Local,
    /// A task of a tokio runtime with several threads, woken early.
    Workers,
    /// The same, stirred before.
    Stirred,
    /// This thread, which sleeps until a watcher tells.
    Thread,
}

struct Arm {
    name: &'static str,
    place: Place,
    plan: &'static str,
}

/// All of them. The first is what the others are compared with.
const ARMS: [Arm; 13] = [
    Arm { name: "spin", place: Place::Spin, plan: "flag:park_us=1000,backstop_us=100000+trust" },
    Arm { name: "bare-60", place: Place::Bare(60), plan: "flag:park_us=1000,backstop_us=100000+trust" },
    Arm { name: "bare-140", place: Place::Bare(140), plan: "flag:park_us=1000,backstop_us=100000+trust" },
    Arm {
        name: "bare-workers-60",
        place: Place::Alarmed(60),
        plan: "flag:park_us=1000,backstop_us=100000+trust",
    },
    Arm {
        name: "bare-workers-150",
        place: Place::Alarmed(150),
        plan: "flag:park_us=1000,backstop_us=100000+trust",
    },
    Arm {
        name: "bare-workers-250",
        place: Place::Alarmed(250),
        plan: "flag:park_us=1000,backstop_us=100000+trust",
    },
    Arm {
        name: "tokio-local",
        place: Place::Local,
        plan: "flag:park_us=1000,backstop_us=100000+predict:margin_us=90,min_sleep_us=50,max_sleep_us=20000,window=8+trust",
    },
    Arm {
        name: "tokio-local-strict",
        place: Place::Local,
        plan: "flag:park_us=10,backstop_us=10+predict:margin_us=40,min_sleep_us=50,max_sleep_us=20000,window=8",
    },
    Arm {
        name: "tokio-workers",
        place: Place::Workers,
        plan: "flag:park_us=1000,backstop_us=100000+predict:margin_us=12,min_sleep_us=50,max_sleep_us=20000,window=8+trust",
    },
    Arm {
        name: "tokio-workers-stirred",
        place: Place::Stirred,
        plan: "flag:park_us=1000,backstop_us=100000+predict:margin_us=12,min_sleep_us=50,max_sleep_us=20000,window=8+trust",
    },
    Arm {
        name: "tokio-workers-strict",
        place: Place::Workers,
        plan: "flag:park_us=1000,backstop_us=100000+predict:margin_us=60,min_sleep_us=50,max_sleep_us=20000,window=8",
    },
    Arm {
        name: "watcher",
        place: Place::Thread,
        plan: "flag:park_us=1000,backstop_us=100000+predict:margin_us=40,min_sleep_us=50,max_sleep_us=20000,window=8+trust",
    },
    Arm {
        name: "watcher-strict",
        place: Place::Thread,
        plan: "flag:park_us=1000,backstop_us=100000+predict:margin_us=60,min_sleep_us=50,max_sleep_us=20000,window=8",
    },
];

/// The runtimes and the watcher.
pub(crate) struct Hosts {
    local: TokioLocal<CudaLine>,
    runtime: Runtime,
    workers: Runtime,
    thread: WatcherHandle,
    alarm: Arc<Alarm>,
    idle: StdIdle,
    watcher: Watcher,
}

/// What an arm's task needs.
#[derive(Clone)]
struct Task {
    steps: TimedSteps<StdClock>,
    clock: StdClock,
    plan: WaitPlan,
    learned: Point,
    /// One for each arm: a task that is stirred is woken faster, and what is learned of it counts for no other.
    tokio: TokioWatcher,
    waits: u32,
}

impl Hosts {
    pub(crate) fn new() -> Result<Self, Error> {
        let runtime = built(Builder::new_current_thread().enable_all().build())?;
        let workers = built(Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build())?;
        let watcher = Watcher::new()?;
        let clock = StdClock::new();
        let local = runtime.block_on(async { TokioLocal::new(clock, ParkPolicy::default()) })?;
        let thread = watcher.handle();
        let alarm = Arc::new(Alarm::spawn(clock, false)?);
        Ok(Self { local, runtime, workers, thread, alarm, idle: StdIdle::new(clock), watcher })
    }

    pub(crate) fn measure(
        &self,
        output: &mut Output<impl Write>,
        bench: &Bench,
        budget: &Budget,
    ) -> Result<(), Failure> {
        let task = |arm: &Arm, waits: u32, (learned, tokio): &(Point, TokioWatcher)| {
            let (steps, clock, plan) = (bench.steps.clone(), bench.clock, arm.plan.parse()?);
            let (learned, tokio) = (learned.clone(), tokio.clone());
            Ok::<_, Error>(Task { steps, clock, plan, learned, tokio, waits })
        };
        let mut points = Vec::new();
        for arm in &ARMS {
            let point = (learned(&arm.plan.parse()?, LENGTH), TokioWatcher::new(&self.watcher));
            self.run(bench, arm.place, task(arm, WARM_UPS, &point)?)?;
            points.push(point);
        }
        let spent = [const { Cell::new((Nanos::ZERO, Nanos::ZERO)) }; ARMS.len()];
        let mut samples = Samples::new(ARMS.len());
        let round_us = (LENGTH.as_micros() + OVERHEAD_US) * u64::from(budget.waits()) * ARMS.len() as u64;
        let rounds = budget.rounds(100, round_us);
        for _ in 0..rounds {
            samples.round(|arm| {
                let task = task(&ARMS[arm], budget.waits(), &points[arm])?;
                let (wall, cpu) = (Wall::now(), process_cpu_time().unwrap_or(Nanos::ZERO));
                let late = self.run(bench, ARMS[arm].place, task)?;
                let cpu = process_cpu_time().unwrap_or(Nanos::ZERO) - cpu;
                let wall = Nanos::from_nanos(wall.elapsed().as_nanos().try_into().unwrap_or(u64::MAX));
                let (cpus, walls) = spent[arm].get();
                spent[arm].set((cpus + cpu, walls + wall));
                let cpu_ns = cpu.as_nanos() / u64::from(budget.waits());
                Ok::<_, Error>(late.into_iter().map(|late_ns| Sample { late_ns, cpu_ns }).collect())
            })?;
        }
        output.line(HEAD)?;
        output.line(&format!("hosts: kernels of {} us, {rounds} rounds", LENGTH.as_micros()))?;
        for (index, arm) in ARMS.iter().enumerate() {
            let told = Told {
                bench,
                case: format!("hosts {} us", LENGTH.as_micros()),
                length: LENGTH,
                arm: arm.name,
                base: ARMS[0].name,
                plan: (!matches!(arm.place, Place::Spin | Place::Bare(_) | Place::Alarmed(_)))
                    .then_some(arm.plan),
                beside: samples.beside(index, 0),
                driver: None,
                cpu_percent: percent(spent[index].get()),
                confirmations: None,
            };
            output.arm(told)?;
        }
        Ok(())
    }

    /// Some waits, one after the other: how late each was.
    fn run(&self, bench: &Bench, place: Place, task: Task) -> Result<Vec<i64>, Error> {
        match place {
            Place::Spin | Place::Bare(_) => {
                let spin = || {
                    let launched = bench.steps.launch(LENGTH, false)?;
                    let armed = bench.armed()?;
                    if let Place::Bare(lead_us) = place {
                        bench.clock.sleep_until(launched + (LENGTH - Nanos::from_micros(lead_us)));
                    }
                    let known = bench.spin(&armed);
                    bench.late_ns(launched, known)
                };
                (0..task.waits).map(|_| spin()).collect()
            }
            Place::Local => self.runtime.block_on(task.locally(&self.local)),
            Place::Alarmed(lead_us) => self.on_workers(task.alarmed(Arc::clone(&self.alarm), lead_us)),
            Place::Workers | Place::Stirred => {
                let (tokio, stir) = (task.tokio.clone(), place == Place::Stirred);
                let waits = task.watched(move |port, plan, point| tokio.wait(port, plan, point).stir(stir));
                self.on_workers(waits)
            }
            Place::Thread => {
                self.idle.block_on(task.watched(|port, plan, point| self.thread.wait(port, plan, point)))
            }
        }
    }
}

impl Hosts {
    /// On a task of the runtime with several threads.
    fn on_workers(
        &self,
        waits: impl Future<Output = Result<Vec<i64>, Error>> + Send + 'static,
    ) -> Result<Vec<i64>, Error> {
        let task = self.workers.spawn(waits);
        self.workers.block_on(task).unwrap_or_else(|error| {
            let coded = Error::new(ErrorCode::Backend, [&"gpu", &"running a task", &error]);
            Err(coded.with_source(error))
        })
    }
}

impl Task {
    async fn alarmed(self, alarm: Arc<Alarm>, lead_us: u64) -> Result<Vec<i64>, Error> {
        let mut late = Vec::new();
        for _ in 0..self.waits {
            let launched = self.steps.launch(LENGTH, false)?;
            let armed = self.steps.stream().armed_port()?;
            alarm.until(launched + (LENGTH - Nanos::from_micros(lead_us))).await;
            while armed.poll() != Wake::Reached {
                core::hint::spin_loop();
            }
            late.push(self.known(launched)?);
        }
        Ok(late)
    }

    async fn locally(self, local: &TokioLocal<CudaLine>) -> Result<Vec<i64>, Error> {
        let mut late = Vec::new();
        for _ in 0..self.waits {
            let launched = self.steps.launch(LENGTH, false)?;
            let mut port = self.steps.stream().port()?;
            let wait = Wait::new(&self.plan).predicted(self.learned.predict(&self.plan));
            let result = drive(wait, &mut port, local, None).await;
            late.push(self.known(launched)?);
            self.learned.observe(&result);
            result?;
        }
        Ok(late)
    }

    async fn watched(
        self,
        wait: impl Fn(CudaPort, &WaitPlan, &Point) -> WatcherWait<CudaPort>,
    ) -> Result<Vec<i64>, Error> {
        let mut late = Vec::new();
        for _ in 0..self.waits {
            let launched = self.steps.launch(LENGTH, false)?;
            let port = self.steps.stream().port()?;
            wait(port, &self.plan, &self.learned).early_wake(true).await?;
            late.push(self.known(launched)?);
        }
        Ok(late)
    }

    /// That it is known now.
    fn known(&self, launched: Instant) -> Result<i64, Error> {
        let known = self.clock.now();
        Ok(since(known, self.steps.ended(launched)?))
    }
}

fn built(runtime: std::io::Result<Runtime>) -> Result<Runtime, Error> {
    runtime.map_err(|error| {
        Error::new(ErrorCode::Backend, [&"gpu", &"building the runtime", &error]).with_source(error)
    })
}

#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
fn percent((cpu, wall): (Nanos, Nanos)) -> Option<f64> {
    (wall > Nanos::ZERO).then(|| 100.0 * cpu.as_nanos() as f64 / wall.as_nanos() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_has_a_name_of_its_own_and_a_plan_that_is_one() {
        let mut names: Vec<_> = ARMS.iter().map(|arm| arm.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ARMS.len());
        for arm in &ARMS {
            assert!(arm.plan.parse::<WaitPlan>().is_ok(), "{}", arm.name);
            assert_eq!(arm.plan.ends_with("+trust"), !arm.name.ends_with("strict"), "{}", arm.name);
        }
    }
}
