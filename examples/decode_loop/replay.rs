//! Replaying steps: a work item of the recorded length is launched and waited for, and the wait is measured.

use std::cell::{Cell, RefCell};

use wakeline::sim::{RealTime, SimConfig, SimDevice, SimStream};
use wakeline::wordwait::WordWait;
use wakeline::{
    Clock, Executor, Inline, Nanos, PointTable, Reactor, Report, Timer, Wait, drive_at, run_inline,
};
use wakeline_examples::tokens::{TEXT, Tokenizer};
use wakeline_std::usage::thread_cpu_time;
use wakeline_std::{DeviceThread, ParkPolicy, StdClock, StdIdle, StdPark, TscRate};

use crate::Failure;
use crate::plans::Arm;
use crate::steps::{PointKey, Step};

/// How long the work runs before it lets others run.
const CHUNK: Nanos = Nanos::from_micros(20);

type Time = RealTime<StdClock, fn(Nanos)>;

/// The simulated device in real time, and a thread of this process that drives it.
pub(crate) struct Stage {
    clock: StdClock,
    stream: SimStream<Time>,
    thread: DeviceThread<SimDevice<Time>>,
    idle: StdIdle,
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
    /// CPU time of the thread from the start of the wait to its return, without the work's.
    pub(crate) cpu: Nanos,
    /// CPU time of the work meanwhile.
    pub(crate) worked: Nanos,
    /// By how much the device's thread stored the word late, where it did.
    pub(crate) store_late: Option<Nanos>,
}

/// How long the device's thread watches the clock before something is due: its sleeps must not make the device late, for a real one
/// is not. The table tells how late it was all the same.
const DEVICE_SPIN_US: u32 = 1_000;

fn sleep(length: Nanos) {
    std::thread::sleep(std::time::Duration::from_nanos(length.as_nanos()));
}

fn cpu() -> Nanos {
    thread_cpu_time().unwrap_or(Nanos::ZERO)
}

impl Stage {
    pub(crate) fn new(clock: StdClock, policy: ParkPolicy, seed: u64) -> Result<Self, Failure> {
        let config = SimConfig { seed, ..SimConfig::default() };
        let device = SimDevice::new(RealTime::new(clock, sleep as fn(Nanos)), config)?;
        let stream = device.stream()?;
        let thread = DeviceThread::spawn_spinning(clock, device, DEVICE_SPIN_US)?;
        let tsc_rate = || TscRate::measure(clock, TscRate::LENGTH).map(TscRate::ticks_per_2_32_ns);
        let word_wait = WordWait::probe(clock, tsc_rate);
        let (idle, tokenizer) = (StdIdle::new(clock), Tokenizer::of(TEXT));
        Ok(Self { clock, stream, thread, idle, policy, word_wait, tokenizer })
    }

    /// Why there is no park in hardware.
    pub(crate) fn park_warning(&self) -> Option<wakeline::Error> {
        self.park().warning().cloned()
    }

    fn park(&self) -> StdPark<&StdIdle, WordWait<StdClock>> {
        StdPark::new(&self.idle, self.policy).with_word_wait(self.word_wait.clone())
    }

    /// Ends the device's thread, and tells of its panic.
    pub(crate) fn close(self) -> Result<(), Failure> {
        self.thread.stop()?;
        Ok(())
    }

    /// Waits for each step as the arm does, and hands every sample to `each`.
    pub(crate) fn round(
        &self,
        arm: &Arm,
        steps: &[Step],
        table: &RefCell<PointTable<PointKey>>,
        each: impl FnMut(Sample),
    ) -> Result<(), Failure> {
        if arm.works { self.working(arm, steps, table, each) } else { self.inline(arm, steps, table, each) }
    }

    /// On this thread, which does nothing else.
    fn inline(
        &self,
        arm: &Arm,
        steps: &[Step],
        table: &RefCell<PointTable<PointKey>>,
        mut each: impl FnMut(Sample),
    ) -> Result<(), Failure> {
        let host = Inline::new(self.clock, &self.idle, self.park());
        for step in steps {
            each(run_inline(self.wait(arm, step, table, &host, &Cell::new(Nanos::ZERO)))??);
        }
        Ok(())
    }

    /// As a task of an executor, beside another that tokenises text.
    fn working(
        &self,
        arm: &Arm,
        steps: &[Step],
        table: &RefCell<PointTable<PointKey>>,
        each: impl FnMut(Sample),
    ) -> Result<(), Failure> {
        let reactor = Reactor::new(self.clock);
        let park = self.park();
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
        let mut executor = Executor::new(&reactor, &self.idle, &park, 2)?;
        executor.spawn(task(true))?;
        executor.spawn(task(false))?;
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
        H: Clock + Timer + wakeline::Watch<wakeline::sim::SimPort<Time>>,
    {
        self.stream.launch(step.residual)?;
        let mut port = self.stream.point();
        let witness = port.witness();
        let wait = Wait::new(arm.bands.choose(step.rows));
        let worked_before = worked.get();
        let cpu_before = cpu();
        let report = drive_at(table, step.key, wait, &mut port, host, None).await?;
        let returned = self.clock.now();
        let used = cpu() - cpu_before;
        let worked = worked.get() - worked_before;
        let truth = witness.truth();
        let ended = truth.ended_at.ok_or(Failure::TooEarly)?;
        let store_late = truth.landed_at.zip(truth.stored_at).map(|(landed, stored)| stored.since(landed));
        Ok(Sample { report, latency: returned.since(ended), cpu: used - worked, worked, store_late })
    }
}
