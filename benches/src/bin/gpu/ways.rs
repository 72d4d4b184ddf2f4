//! The ways of waiting on this thread.

use core::cell::RefCell;

use wakeline_benches::{Quantiles, Tail};
use wakeline_core::{
    Arming, Clock, CompletionPort, ContextKey, Error, Instant, MemoryDescriptor, Nanos, Seq, Status, Wait,
    WaitPlan,
};
use wakeline_cuda::{Answer, CudaLine, CudaPort, synchronize};
use wakeline_std::usage::thread_cpu_time;
use wakeline_std::{Point, StdClock};

use crate::bench::Bench;
use crate::samples::Sample;

/// How a wait comes to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// By looking at the word, and by nothing else.
    Spin,
    /// By looking at the word, then by asking the driver of the event or of the stream until it says done: the least that a strict wait can take.
    Asked(Answer),
    /// By a plan, of which this is the text.
    Plan(&'static str),
    /// The same, with each confirmation timed.
    Confirmed(&'static str),
    /// By a word that the kernel itself stores, under a plan.
    InKernel(&'static str),
    /// By the driver's own wait.
    Synchronize,
}

/// A way with its name in records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arm {
    pub(crate) name: &'static str,
    pub(crate) way: Way,
    /// The shortest kernel that it is for.
    pub(crate) least_us: u64,
}

const fn arm(name: &'static str, way: Way) -> Arm {
    Arm { name, way, least_us: 0 }
}

/// For kernels that are worth a sleep.
const fn sleeping(name: &'static str, way: Way) -> Arm {
    Arm { name, way, least_us: 1_000 }
}

const STRICT: &str = "flag:park_us=7000,backstop_us=100000";

/// All of them. The first is what the others are compared with.
pub(crate) const ARMS: &[Arm] = &[
    arm("spin", Way::Spin),
    arm("trusted", Way::Plan("flag:park_us=7000,backstop_us=100000+trust")),
    // Its steps between the parks keep what it does at the end in the caches.
    arm("trusted-parks", Way::Plan("flag:park_us=20,backstop_us=100000+trust")),
    arm("strict", Way::Plan(STRICT)),
    arm("strict-timed", Way::Confirmed(STRICT)),
    arm("strict-close", Way::Plan("flag:park_us=10,backstop_us=10")),
    arm("spin-event", Way::Asked(Answer::Event)),
    arm("spin-stream", Way::Asked(Answer::Stream)),
    arm("poll", Way::Plan("poll")),
    arm("block", Way::Plan("block")),
    arm("in-kernel", Way::InKernel(STRICT)),
    arm("synchronize", Way::Synchronize),
    sleeping(
        "predict-20-trusted",
        Way::Plan(
            "flag:park_us=7000,backstop_us=100000+predict:margin_us=20,min_sleep_us=50,max_sleep_us=20000,window=8+trust",
        ),
    ),
    sleeping(
        "predict-40-trusted",
        Way::Plan(
            "flag:park_us=7000,backstop_us=100000+predict:margin_us=40,min_sleep_us=50,max_sleep_us=20000,window=8+trust",
        ),
    ),
    sleeping(
        "predict-60-trusted",
        Way::Plan(
            "flag:park_us=7000,backstop_us=100000+predict:margin_us=60,min_sleep_us=50,max_sleep_us=20000,window=8+trust",
        ),
    ),
    sleeping(
        "predict-100-trusted",
        Way::Plan(
            "flag:park_us=7000,backstop_us=100000+predict:margin_us=100,min_sleep_us=50,max_sleep_us=20000,window=8+trust",
        ),
    ),
    sleeping(
        "predict-60-strict",
        Way::Plan(
            "flag:park_us=7000,backstop_us=100000+predict:margin_us=60,min_sleep_us=50,max_sleep_us=20000,window=8",
        ),
    ),
    sleeping(
        "predict-60-strict-close",
        Way::Plan(
            "flag:park_us=10,backstop_us=10+predict:margin_us=60,min_sleep_us=50,max_sleep_us=20000,window=8",
        ),
    ),
    sleeping(
        "predict-60-poll",
        Way::Plan("poll+predict:margin_us=60,min_sleep_us=50,max_sleep_us=20000,window=8"),
    ),
];

impl Way {
    /// The text of its plan.
    pub(crate) const fn plan(self) -> Option<&'static str> {
        match self {
            Self::Plan(text) | Self::Confirmed(text) | Self::InKernel(text) => Some(text),
            Self::Spin | Self::Asked(_) | Self::Synchronize => None,
        }
    }
}

/// An arm that waits for kernels of one length: with what it has learned of them.
pub(crate) struct Waiter {
    way: Way,
    plan: Option<WaitPlan>,
    learned: Point,
    confirmed: RefCell<Confirmed>,
}

impl Waiter {
    pub(crate) fn new(arm: &Arm) -> Result<Self, Error> {
        let plan = arm.way.plan().map(str::parse).transpose()?;
        let confirmed = RefCell::new(Confirmed::new());
        Ok(Self { way: arm.way, plan, learned: Point::new(arm.name), confirmed })
    }

    /// Launches a kernel of `length` and waits for its end.
    pub(crate) fn wait(&self, bench: &Bench, length: Nanos) -> Result<Sample, Error> {
        let number = bench.word.reads().next();
        let launched = match self.way {
            Way::InKernel(_) => bench.steps.launch_storing(length, &bench.word, number)?,
            _ => bench.steps.launch(length, false)?,
        };
        let before = cpu();
        let known = self.know(bench, number)?;
        let cpu_ns = (cpu() - before).as_nanos();
        Ok(Sample { late_ns: bench.late_ns(launched, known)?, cpu_ns })
    }

    /// Waits for what was launched; when it was known.
    fn know(&self, bench: &Bench, number: Seq) -> Result<Instant, Error> {
        let Some(plan) = &self.plan else {
            return match self.way {
                Way::Synchronize => synchronize(bench.stream()).map(|()| bench.clock.now()),
                Way::Asked(whom) => bench.ask(whom),
                _ => Ok(bench.spin(&bench.armed()?)),
            };
        };
        let wait = Wait::new(plan).predicted(self.learned.predict(plan));
        let (known, result) = match self.way {
            Way::InKernel(_) => {
                let mut port = bench.word.port(bench.stream(), number)?;
                bench.wait(wait.kernel_point(), &mut port)
            }
            Way::Confirmed(_) => {
                let mut confirmed = self.confirmed.borrow_mut();
                let port = bench.stream().port()?;
                bench.wait(wait, &mut Timed { port, clock: bench.clock, confirmed: &mut confirmed })
            }
            _ => {
                let mut port = bench.stream().port()?;
                bench.wait(wait, &mut port)
            }
        };
        self.learned.observe(&result);
        result.map(|_| known)
    }

    /// What confirmations took, of an arm that times them.
    pub(crate) fn confirmations(&self) -> Option<Confirmations> {
        matches!(self.way, Way::Confirmed(_)).then(|| self.confirmed.borrow().told())
    }

    /// Forgets what it has timed so far, but not what it has learned.
    pub(crate) fn begin(&self) {
        *self.confirmed.borrow_mut() = Confirmed::new();
    }
}

fn cpu() -> Nanos {
    thread_cpu_time().unwrap_or(Nanos::ZERO)
}

/// What queries took that were made when the word had been seen.
struct Confirmed {
    by_stream: Tail,
    by_event: Tail,
    pending: Tail,
}

/// The same, for records.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Confirmations {
    /// Those to which the stream said done, so that the event was not asked.
    by_stream: Quantiles,
    /// Those to which it did not, and the event did.
    by_event: Quantiles,
    /// Those to which neither did: one more had to be made.
    pending: Quantiles,
}

impl core::fmt::Display for Confirmations {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "confirmed")?;
        let parts = [
            ("by the stream", &self.by_stream),
            ("by the event", &self.by_event),
            ("not yet", &self.pending),
        ];
        for (number, (what, took)) in parts.into_iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(
                f,
                "{comma} {what} {} times (p50 {} ns, p99 {} ns)",
                took.count, took.p50_ns, took.p99_ns
            )?;
        }
        Ok(())
    }
}

impl Confirmed {
    fn new() -> Self {
        Self { by_stream: Tail::new(), by_event: Tail::new(), pending: Tail::new() }
    }

    fn told(&self) -> Confirmations {
        Confirmations {
            by_stream: self.by_stream.quantiles(),
            by_event: self.by_event.quantiles(),
            pending: self.pending.quantiles(),
        }
    }
}

/// A port whose queries are timed once its word is there.
struct Timed<'c> {
    port: CudaPort,
    clock: StdClock,
    confirmed: &'c mut Confirmed,
}

impl CompletionPort for Timed<'_> {
    type Line = CudaLine;

    fn query(&mut self) -> Result<Status, Error> {
        if !self.port.descriptor().is_some_and(MemoryDescriptor::reached) {
            return self.port.query();
        }
        let start = self.clock.now();
        let status = self.port.query()?;
        let took = self.clock.now().since(start).as_nanos();
        match self.port.answer() {
            Some(Answer::Stream) => self.confirmed.by_stream.record(took),
            Some(Answer::Event) => self.confirmed.by_event.record(took),
            None => self.confirmed.pending.record(took),
        }
        Ok(status)
    }

    fn block(&mut self, until: Option<Instant>) -> Result<Status, Error> {
        self.port.block(until)
    }

    fn arm(&mut self) -> Result<Arming, Error> {
        self.port.arm()
    }

    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
        self.port.descriptor()
    }

    fn context(&self) -> Option<ContextKey> {
        self.port.context()
    }
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
        for arm in ARMS {
            assert!(Waiter::new(arm).is_ok(), "{}", arm.name);
            assert_eq!(arm.name.starts_with("predict"), arm.least_us > 0, "{}", arm.name);
        }
        assert_eq!(ARMS[0].way, Way::Spin);
    }
}
