//! Replaying steps: a work item of the recorded length is launched and waited for, and the wait is measured.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use wakeline::wordwait::WordWait;
use wakeline::{
    Clock, Executor, Inline, Instant, Nanos, PointTable, Reactor, Report, Timer, Wait, Watch, drive_at,
    run_inline,
};
use wakeline_examples::tokens::{TEXT, Tokenizer};
use wakeline_std::usage::thread_cpu_time;
use wakeline_std::{ParkIdle, ParkPolicy, Point, StdClock, StdIdle, StdPark, TscRate};

use crate::Failure;
use crate::device::{Device, Line, Stream, Truth};
use crate::hosts::{Host, Waiters};
use crate::plans::{Arm, POINTS_MAX};
use crate::steps::{PointKey, Step};

/// How long the work runs before it lets others run.
const CHUNK: Nanos = Nanos::from_micros(20);

/// The device, and all that waits for it.
pub(crate) struct Stage<D: Device> {
    pub(crate) clock: StdClock,
    pub(crate) device: D,
    pub(crate) waiters: Waiters<Line<D>>,
    pub(crate) idle: StdIdle,
    policy: ParkPolicy,
    /// The park in hardware, or why there is none.
    word_wait: Result<WordWait<StdClock>, wakeline::Error>,
    tokenizer: Tokenizer<'static>,
}

/// One measured wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) report: Report,
    /// From the true end of the work to the return of the wait.
    pub(crate) latency: Nanos,
    /// CPU time of the thread from the start of the wait to its return, without the work's. Where several threads wait, an
    /// equal share of what they all took for the round.
    pub(crate) cpu: Nanos,
    /// CPU time of the work meanwhile.
    pub(crate) worked: Nanos,
    /// By how much the device's thread stored the word late, where it did.
    pub(crate) store_late: Option<Nanos>,
}

pub(crate) fn sleep(length: Nanos) {
    std::thread::sleep(std::time::Duration::from_nanos(length.as_nanos()));
}

pub(crate) fn cpu() -> Nanos {
    thread_cpu_time().unwrap_or(Nanos::ZERO)
}

/// What an arm has learned of the durations: in a table by itself, or in points that its host shares.
pub(crate) struct Learned {
    table: RefCell<PointTable<PointKey>>,
    points: RefCell<BTreeMap<PointKey, Point>>,
}

impl Learned {
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self { table: RefCell::new(PointTable::new(POINTS_MAX)?), points: RefCell::default() })
    }

    /// The point of this key.
    pub(crate) fn point(&self, key: PointKey) -> Point {
        let mut points = self.points.borrow_mut();
        if points.len() >= POINTS_MAX && !points.contains_key(&key) {
            points.pop_first();
        }
        points.entry(key).or_insert_with(|| Point::new("decode_loop")).clone()
    }
}

/// What a wait that has returned was like.
pub(crate) fn sample(truth: Truth, report: Report, returned: Instant, cpu: Nanos, worked: Nanos) -> Sample {
    let Truth { ended, store_late } = truth;
    Sample { report, latency: returned.since(ended), cpu, worked, store_late }
}

impl<D: Device> Stage<D> {
    pub(crate) fn new(clock: StdClock, policy: ParkPolicy, device: D, waiters: Waiters<Line<D>>) -> Self {
        let tsc_rate = || TscRate::measure(clock, TscRate::LENGTH).map(TscRate::ticks_per_2_32_ns);
        let word_wait = WordWait::probe(clock, tsc_rate);
        let (idle, tokenizer) = (StdIdle::new(clock), Tokenizer::of(TEXT));
        Self { clock, device, waiters, idle, policy, word_wait, tokenizer }
    }

    /// Why there is no park in hardware.
    pub(crate) fn park_warning(&self) -> Option<wakeline::Error> {
        self.park(&self.idle).warning().cloned()
    }

    fn park<I: ParkIdle>(&self, idle: I) -> StdPark<I, WordWait<StdClock>> {
        StdPark::new(idle, self.policy).with_word_wait(self.word_wait.clone())
    }

    /// Ends the threads, and tells of a panic of the device's.
    pub(crate) fn close(self) -> Result<(), Failure> {
        self.waiters.close()?;
        self.device.close()
    }

    /// Waits for each step as the arm does, and hands every sample to `each`.
    pub(crate) fn round(
        &self,
        arm: &Arm,
        steps: &[Step],
        learned: &Learned,
        each: impl FnMut(Sample),
    ) -> Result<(), Failure> {
        let table = &learned.table;
        match arm.host {
            Host::Std if arm.works => self.executed(&self.idle, arm, steps, table, each),
            Host::Std => self.inline(arm, steps, table, each),
            Host::Watcher => self.watched(arm, steps, learned, each),
            Host::Tokio => self.spawned(arm, steps, learned, each),
            Host::TokioLocal => self.local(arm, steps, table, each),
            Host::Uring => {
                let ring = self.waiters.ring.as_ref().ok_or(Failure::NoHost)?;
                self.executed(ring, arm, steps, table, each)
            }
        }
    }

    /// On this thread, which does nothing else.
    fn inline(
        &self,
        arm: &Arm,
        steps: &[Step],
        table: &RefCell<PointTable<PointKey>>,
        mut each: impl FnMut(Sample),
    ) -> Result<(), Failure> {
        let host = Inline::new(self.clock, &self.idle, self.park(&self.idle));
        for step in steps {
            each(run_inline(self.wait(arm, step, table, &host, &Cell::new(Nanos::ZERO)))??);
        }
        Ok(())
    }

    /// As the task of a tokio runtime of this thread alone.
    fn local(
        &self,
        arm: &Arm,
        steps: &[Step],
        table: &RefCell<PointTable<PointKey>>,
        mut each: impl FnMut(Sample),
    ) -> Result<(), Failure> {
        let (local, runtime) = self.waiters.local.as_ref().ok_or(Failure::NoHost)?;
        runtime.block_on(async {
            for step in steps {
                each(self.wait(arm, step, table, local, &Cell::new(Nanos::ZERO)).await?);
            }
            Ok(())
        })
    }

    /// As a task of an executor, beside another that tokenises text where the arm works.
    fn executed<I: ParkIdle>(
        &self,
        idle: &I,
        arm: &Arm,
        steps: &[Step],
        table: &RefCell<PointTable<PointKey>>,
        each: impl FnMut(Sample),
    ) -> Result<(), Failure> {
        let reactor = Reactor::new(self.clock);
        let park = self.park(idle);
        let worked = Cell::new(Nanos::ZERO);
        let over = Cell::new(false);
        let each = RefCell::new(each);
        let task = async |waits: bool| -> Result<(), Failure> {
            if waits {
                for step in steps {
                    let sample = self.wait(arm, step, table, &reactor, &worked).await;
                    over.set(sample.is_err());
                    (each.borrow_mut())(sample?);
                }
                over.set(true);
                return Ok(());
            }
            let mut lines = TEXT.lines().cycle();
            let mut tokens = 0;
            while !over.get() {
                let start = cpu();
                let end = self.clock.now() + CHUNK;
                while self.clock.now() < end {
                    tokens += lines.next().map_or(0, |line| self.tokenizer.count(line));
                }
                worked.set(worked.get() + (cpu() - start));
                reactor.yield_now().await;
            }
            std::hint::black_box(tokens);
            Ok(())
        };
        let mut executor = Executor::new(&reactor, idle, &park, 2)?;
        executor.spawn(task(true))?;
        if arm.works {
            executor.spawn(task(false))?;
        }
        let mut failed = Ok(());
        executor.run(|_, end| {
            if failed.is_ok() {
                failed = end;
            }
        })?;
        failed
    }

    async fn wait<H>(
        &self,
        arm: &Arm,
        step: &Step,
        table: &RefCell<PointTable<PointKey>>,
        host: &H,
        worked: &Cell<Nanos>,
    ) -> Result<Sample, Failure>
    where
        H: Clock + Timer + Watch<<D::Stream as Stream>::Port>,
    {
        let stream = self.device.stream();
        let (mut port, witness) = stream.launch(step)?;
        let wait = Wait::new(arm.bands.choose(step.rows));
        let worked_before = worked.get();
        let cpu_before = cpu();
        let report = drive_at(table, step.key, wait, &mut port, host, None).await?;
        let returned = self.clock.now();
        let used = cpu() - cpu_before;
        let worked = worked.get() - worked_before;
        Ok(sample(stream.truth(&witness)?, report, returned, used - worked, worked))
    }
}
