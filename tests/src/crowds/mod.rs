//! Crowds of waits in real time, drawn from a seed and judged against what really happened, on any host.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | what a crowd does: the draws and each wait's life |
//! | `host.rs` | who waits |
//! | `judge.rs` | whether a wait ended as it may |
//!
//! Tasks wait for work of random lengths on several devices, one healthy, one whose stores and queries are late, one that loses
//! stores; under every kind of plan, with deadlines, tokens, allowed lateness, spurious polls, and futures that are dropped. Each
//! wait is judged when it ends:
//!
//! 1. none is early: under the driver's authority no `Ok` before the work is done, under the word's none before the word;
//! 2. none is lost: each ends, once, within its plan's bound and [`LATE_MAX`] of the end of its work; time-outs come at their
//!    deadlines or after them, but not by more than [`LATE_MAX`];
//! 3. each error has its cause;
//! 4. nothing is left: no pending wait, and every port let go.
//!
//! The draws come from the seed; what the threads of a machine make of them does not.

mod host;
mod judge;

pub use host::Host;

use core::pin::pin;
use core::task::Poll;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant as Wall};

use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use wakeline_core::{Clock, Error, Nanos, WaitPlan};
use wakeline_sim::{Chance, Faults, SimConfig};
use wakeline_std::Point;

use crate::watching::{Call, Calls, HookPort, RealStream, Stage, eventually};
use host::Waits;
use judge::End;

/// How late a wait may end beyond its plan's own bounds, on a machine where many threads share few processors.
pub const LATE_MAX: Nanos = Nanos::from_millis(500);

/// How long after the end of a run's time something hangs.
const HANGS: Duration = Duration::from_secs(30);

const PLANS: [&str; 9] = [
    "block",
    "poll",
    "poll+predict:margin_us=30,min_sleep_us=50,max_sleep_us=5000,window=4",
    "flag:park_us=20,backstop_us=300",
    "flag:park_us=100,backstop_us=2000",
    "flag:park_us=50,backstop_us=500+predict:margin_us=40,min_sleep_us=100,max_sleep_us=20000,window=8",
    "flag:park_us=50,backstop_us=500+trust",
    "flag:park_us=50,backstop_us=500+predict:margin_us=20,min_sleep_us=30,max_sleep_us=2000,window=1+trust",
    "flag:park_us=50,backstop_us=500+adapt:late_pct=2,guard_us=5,min_sleep_us=20,max_sleep_us=5000,window=16",
];

/// What a run is to do.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// What everything is drawn from.
    pub seed: u64,
    /// How many waits.
    pub waits: u64,
    /// When it stops, however many there were.
    pub within: Duration,
    /// Who waits.
    pub host: Host,
}

/// What came of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Waits begun.
    pub waits: u64,
    /// Those that ended well.
    pub done: u64,
    /// Those that ended at their deadline.
    pub timed_out: u64,
    /// Those that a token ended.
    pub cancelled: u64,
    /// Those whose store was lost under a plan that trusts it.
    pub lost_stores: u64,
    /// Those with a plan that blocks and a bound, on a device whose block has none, where no helper blocks instead.
    pub refused: u64,
    /// Those whose future was dropped.
    pub dropped: u64,
    /// How late the latest was, beyond its bounds.
    pub latest: Nanos,
    /// Tasks that were woken before their word landed.
    pub early_wakes: u64,
}

impl core::ops::AddAssign for Summary {
    fn add_assign(&mut self, other: Self) {
        self.waits += other.waits;
        self.done += other.done;
        self.timed_out += other.timed_out;
        self.cancelled += other.cancelled;
        self.lost_stores += other.lost_stores;
        self.refused += other.refused;
        self.dropped += other.dropped;
        self.early_wakes += other.early_wakes;
        self.latest = self.latest.max(other.latest);
    }
}

/// A run that is under way.
struct Crowd {
    run: Run,
    start: Wall,
    stages: [Stage; 3],
    begun: AtomicU64,
    broken: AtomicBool,
    calls: Arc<Calls>,
    outcome: Mutex<Outcome>,
}

#[derive(Clone, Default)]
struct Outcome {
    summary: Summary,
    /// The first promise that was broken.
    broken: Option<String>,
}

/// Makes the waits of a run.
///
/// # Errors
///
/// What broke a promise, in words.
pub fn run(run: Run) -> Result<Summary, String> {
    let crowd = Arc::new(Crowd::new(run).map_err(|error| error.to_string())?);
    let ended = run.host.run(&crowd);
    let Outcome { summary, broken } = crowd.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone();
    broken.map_or(ended, Err)?;
    let Summary { waits, done, timed_out, cancelled, lost_stores, refused, dropped, .. } = summary;
    if done + timed_out + cancelled + lost_stores + refused + dropped != waits {
        return Err(format!("not each has ended once: {summary:?}"));
    }
    if refused > 0 && matches!(run.host, Host::Watcher { .. }) {
        return Err(format!("a watcher refused to block: {summary:?}"));
    }
    let gone = || crowd.calls.count(Call::Drop) as u64 == waits;
    if !eventually(Duration::from_secs(5), gone) {
        return Err(format!("{} ports of {waits} are gone", crowd.calls.count(Call::Drop)));
    }
    Ok(summary)
}

struct Draw(Pcg32);

impl Draw {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.0.next_u32() as usize % all.len()]
    }

    fn below(&mut self, bound: u32) -> u64 {
        // The bias of a remainder does not matter here.
        u64::from(self.0.next_u32() % bound)
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// With a chance of one in `n`.
    fn maybe<T>(&mut self, n: u32, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.one_in(n) { Some(value(self)) } else { None }
    }
}

/// One wait, as drawn.
#[derive(Debug)]
struct Drawn {
    plan: WaitPlan,
    device: usize,
    length: Nanos,
    deadline: Option<Nanos>,
    late: Option<u64>,
    early_wake: Option<bool>,
    /// Cancelled at its first poll that pends.
    cancelled: bool,
    /// Dropped after this many polls that pended.
    drop_after: Option<u64>,
    /// How often it is polled for no reason.
    spurious: u64,
}

impl Crowd {
    fn new(run: Run) -> Result<Self, Error> {
        let late = Faults {
            late_store: Chance { ppm: 300_000, ns_min: 1_000, ns_max: 200_000 },
            slow_query: Chance { ppm: 100_000, ns_min: 1_000, ns_max: 50_000 },
            ..Faults::none()
        };
        let losing = Faults { lost_store_ppm: 50_000, deferred_store_ppm: 50_000, ..Faults::none() };
        let stage = |faults, bounded_block| {
            let config = SimConfig { seed: run.seed, faults, bounded_block, ..SimConfig::default() };
            Stage::spinning(config, 20)
        };
        Ok(Self {
            run,
            start: Wall::now(),
            stages: [stage(Faults::none(), true)?, stage(late, false)?, stage(losing, true)?],
            begun: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            calls: Calls::counted(),
            outcome: Mutex::default(),
        })
    }

    /// What the task of this number does: one wait after the other, until there are enough.
    async fn works(&self, host: &impl Waits, number: u64) {
        let mut draw = Draw(Pcg32::seed_from_u64(self.run.seed ^ (number << 32)));
        let mut summary = Summary::default();
        let result = self.waits(host, number, &mut draw, &mut summary).await;
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.summary += summary;
        if let Err(broken) = result {
            self.broken.store(true, Ordering::Relaxed);
            outcome.broken.get_or_insert(broken);
        }
    }

    fn goes_on(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
            && self.start.elapsed() < self.run.within
            && self.begun.fetch_add(1, Ordering::Relaxed) < self.run.waits
    }

    async fn waits(
        &self,
        host: &impl Waits,
        number: u64,
        draw: &mut Draw,
        summary: &mut Summary,
    ) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let streams: Vec<RealStream> =
            self.stages.iter().map(|stage| stage.device.stream()).collect::<Result<_, _>>().map_err(text)?;
        let plans: Vec<WaitPlan> =
            PLANS.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(text)?;
        let point = Point::new("crowd");
        let mut place = 0;
        while self.goes_on() {
            let drawn = Drawn {
                plan: draw.one_of(&plans),
                device: usize::try_from(draw.below(3)).unwrap_or(0),
                length: Nanos::from_nanos(draw.below(300_000)),
                deadline: draw.maybe(4, |draw| Nanos::from_nanos(draw.below(400_000))),
                late: draw.maybe(8, |draw| draw.below(1_000)),
                early_wake: draw.maybe(4, |draw| draw.one_in(2)),
                cancelled: draw.one_in(16),
                drop_after: draw.maybe(6, |draw| draw.below(4)),
                spurious: draw.maybe(4, |draw| draw.below(4)).unwrap_or(0),
            };
            self.wait(host, &streams[drawn.device], &point, &drawn, summary)
                .await
                .map_err(|broken| format!("of {number}, wait {place}: {broken}; {drawn:?}"))?;
            place += 1;
        }
        Ok(())
    }

    async fn wait(
        &self,
        host: &impl Waits,
        stream: &RealStream,
        point: &Point,
        drawn: &Drawn,
        summary: &mut Summary,
    ) -> Result<(), String> {
        stream.launch(drawn.length).map_err(|error| error.to_string())?;
        let clock = self.stages[drawn.device].clock;
        let port = stream.point();
        let witness = port.witness();
        let start = clock.now();
        let deadline = drawn.deadline.map(|length| start + length);
        let token = host.token(drawn);
        let cancel = drawn.cancelled.then_some(&token);
        let wait = host.wait(HookPort::new(port, &self.calls), drawn, point, deadline, cancel);
        summary.waits += 1;
        let result = {
            let mut wait = pin!(wait);
            let (mut drop_after, mut spurious) = (drawn.drop_after, drawn.spurious);
            core::future::poll_fn(|context| match wait.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending if drop_after == Some(0) => Poll::Ready(None),
                Poll::Pending => {
                    drop_after = drop_after.map(|left| left - 1);
                    if spurious > 0 {
                        spurious -= 1;
                        context.waker().wake_by_ref();
                    }
                    if drawn.cancelled {
                        token.cancel();
                    }
                    Poll::Pending
                }
            })
            .await
        };
        let end = End { start, now: clock.now(), deadline, truth: witness.truth() };
        match result {
            None => summary.dropped += 1,
            Some(Ok(report)) => {
                summary.done += 1;
                summary.latest = summary.latest.max(judge::done(drawn, &report, &end)?);
            }
            Some(Err(error)) => judge::failed(drawn, &error, &end, summary)?,
        }
        Ok(())
    }
}
