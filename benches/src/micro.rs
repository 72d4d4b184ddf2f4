//! The hot path, a case each: for counting instructions (`micro`, `cargo xtask instructions`) and for timing (`cargo bench`).

use core::hint::black_box;
use core::task::Waker;

use wakeline_core::{
    Action, CompletionLine, End, Error, Executor, HostLine, Idle, Instant, ManualClock, MemoryDescriptor,
    Nanos, Observation, Outcome, Park, PointTable, Reactor, Report, Residual, Seq, Slot, Status, Timer,
    WORDS, Wait, WaitPlan, Wake,
};
use wakeline_std::{Point, WordSet};

use crate::operation;

const PLAN: &str =
    "flag:park_us=50,backstop_us=1000+predict:margin_us=40,min_sleep_us=100,max_sleep_us=20000,window=8";

const ADAPT: &str = "flag:park_us=50,backstop_us=100000+adapt:late_pct=1,guard_us=5,min_sleep_us=10,max_sleep_us=20000,window=256";

/// Runs a case a number of times.
pub type Case = fn(u64) -> Result<(), Error>;

/// The loop alone, which `xtask` takes off each other case; then the cases.
pub const CASES: [(&str, Case); 19] = [
    ("empty", empty),
    ("descriptor_check", descriptor_check),
    ("machine_step", machine_step),
    ("machine_wait", machine_wait),
    ("wake_to_poll", wake_to_poll),
    ("table_observe_predict", table_observe_predict),
    ("point_observe_predict", point_observe_predict),
    ("adapt_undecided", adapt_undecided),
    ("adapt_decide", adapt_decide),
    ("adapt_observe", adapt_observe),
    ("scan_64_words_of_8_lines", scan_full_lines),
    ("scan_64_words_of_64_lines", scan_single_words),
    ("scan_64_words_of_32_lines", scan_pairs),
    ("scan_63_words_of_21_lines", scan_triples),
    ("operation_port_calls", operation::raw),
    ("operation_awaited", operation::awaited),
    ("operation_chained", operation::chained),
    ("operation_begun", operation::in_two_polls),
    ("operation_ended", operation::in_two_polls),
];

/// What of a case is counted.
#[derive(Clone, Copy, Debug)]
pub enum Counted {
    /// All but another case, which is part of it.
    Less(&'static str),
    /// One function and what it calls, by what callgrind knows it by.
    Only(&'static str),
}

/// Where that is not all but the loop.
pub const COUNTED: [(&str, Counted); 3] = [
    ("adapt_decide", Counted::Less("adapt_undecided")),
    ("operation_begun", Counted::Only("*::operation::begin*")),
    ("operation_ended", Counted::Only("*::operation::end*")),
];

#[expect(clippy::unnecessary_wraps, reason = "one type for all cases")]
fn empty(n: u64) -> Result<(), Error> {
    for i in 0..n {
        black_box(i);
    }
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "one type for all cases")]
fn descriptor_check(n: u64) -> Result<(), Error> {
    let line = HostLine::new();
    let point = MemoryDescriptor::new(&line, Slot::ALL[3], Seq::new(1));
    for i in 0..n {
        black_box(i);
        black_box(black_box(&point).reached());
    }
    Ok(())
}

/// A step of a wait that watches its word: a park has ended and the next begins.
fn machine_step(n: u64) -> Result<(), Error> {
    let plan: WaitPlan = PLAN.parse()?;
    let (mut wait, _) = Wait::new(&plan).start(Instant::ORIGIN);
    wait.step(Instant::ORIGIN, Observation::Status(Status::Pending));
    wait.step(Instant::ORIGIN, Observation::Armed);
    for i in 0..n {
        black_box(i);
        // By reference: a caller reads the action where it was written.
        black_box(&black_box(&mut wait).step(Instant::from_nanos(500), Observation::Woke));
    }
    Ok(())
}

/// A whole wait of a start and six steps: query, arm, sleep, look, park, confirm, report.
fn machine_wait(n: u64) -> Result<(), Error> {
    let plan: WaitPlan = PLAN.parse()?;
    for i in 0..n {
        black_box(i);
        let (mut wait, mut action) =
            Wait::new(black_box(&plan)).predicted(Some(Nanos::from_micros(5_000))).start(Instant::ORIGIN);
        let script = [
            (300, Observation::Status(Status::Pending)),
            (1_500, Observation::Armed),
            (4_960_000, Observation::Woke),
            (4_960_000, Observation::Woke),
            (5_000_000, Observation::Reached),
            (5_001_000, Observation::Status(Status::Done)),
        ];
        for (at, observation) in script {
            action = wait.step(Instant::from_nanos(at), observation);
        }
        debug_assert!(matches!(action, Action::Finish(_)));
        black_box(&action);
    }
    Ok(())
}

/// Nothing to sleep on: the task is always ready.
struct Awake;

impl Idle for Awake {
    fn idle(&self, _: Option<Instant>) {}
    fn bell(&self) -> Waker {
        Waker::noop().clone()
    }
}

impl Park for Awake {
    fn park(&self, _: Option<&CompletionLine>, _: Instant, _: impl FnMut() -> bool) -> Wake {
        Wake::Woke
    }
}

/// From a task's wake to its next poll, with all the executor does between.
fn wake_to_poll(n: u64) -> Result<(), Error> {
    let clock = ManualClock::new();
    let reactor = Reactor::<_, &CompletionLine>::new(&clock);
    let mut executor = Executor::new(&reactor, Awake, Awake, 4_096)?;
    executor.spawn(async {
        for i in 0..n {
            black_box(i);
            reactor.yield_now().await;
        }
    })?;
    executor.run(|_, ()| ())?;
    Ok(())
}

/// As many points as a program with several readback points has; each wait is of another than the last.
const POINTS: usize = 16;

fn table_observe_predict(n: u64) -> Result<(), Error> {
    let plan: WaitPlan = PLAN.parse()?;
    let mut table = PointTable::new(POINTS)?;
    let mut expected = None;
    for key in 0..POINTS as u64 {
        table.record(key, &plan, Nanos::from_micros(1_000));
    }
    for i in 0..n {
        black_box(i);
        // Goes round the points, with residuals that rise and fall.
        let (key, residual) = (i % POINTS as u64, Nanos::from_nanos(i ^ (i << 3)));
        expected = expected.max(table.predict(black_box(&key), &plan));
        table.record(key, &plan, residual);
    }
    black_box(expected);
    Ok(())
}

/// All that a wait adds at a shared point: the prediction before it; after it the residual, the counts and the two histograms.
fn point_observe_predict(n: u64) -> Result<(), Error> {
    let plan: WaitPlan = PLAN.parse()?;
    let point = Point::new("bench");
    // Of a wait that slept.
    let mut report = Report {
        end: End::Done(Outcome::Parked),
        plan,
        authority: plan.authority(),
        elapsed: Nanos::ZERO,
        residual: None,
        overshoot: Nanos::ZERO,
        queries: 3,
        parks: 1,
        sleeps: 1,
        warmed: false,
    };
    for i in 0..n {
        black_box(i);
        black_box(point.predict(&plan));
        report.elapsed = Nanos::from_nanos(5_000_000 + (i ^ (i << 3)) % 100_000);
        report.residual = Some(Residual::Exact(report.elapsed));
        report.overshoot = Nanos::from_nanos(40_000 + (i & 4_095));
        point.observe(black_box(&Ok(report)));
    }
    Ok(())
}

/// A residual of two speeds, each of them spread.
fn mixed(i: u64) -> Nanos {
    let spread = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44;
    Nanos::from_nanos(if i.is_multiple_of(4) { 10_000 + spread % 30_000 } else { 5_000_000 + spread })
}

/// A wait that watches, of a point with a full window.
fn adaptive() -> Result<Wait, Error> {
    let plan: WaitPlan = ADAPT.parse()?;
    let mut table = PointTable::of_one();
    for i in 0..256 {
        table.record((), &plan, mixed(i));
    }
    let (mut wait, _) = Wait::new(&plan).expecting(table.forecast(&(), &plan)).start(Instant::ORIGIN);
    wait.step(Instant::ORIGIN, Observation::Status(Status::Pending));
    wait.step(Instant::ORIGIN, Observation::Armed);
    Ok(wait)
}

/// A copy of the wait and a step of it, before it is to decide.
fn adapt_undecided(n: u64) -> Result<(), Error> {
    let wait = adaptive()?;
    for i in 0..n {
        black_box(i);
        black_box(&black_box(&wait).clone().step(Instant::from_nanos(500), Observation::Woke));
    }
    Ok(())
}

/// The same with a decision and what comes of it, at any moment of the wait.
fn adapt_decide(n: u64) -> Result<(), Error> {
    let wait = adaptive()?;
    for i in 0..n {
        black_box(i);
        let now = Instant::from_nanos(50_000 + i % 64 * 100_000);
        black_box(&black_box(&wait).clone().step(now, Observation::Woke));
    }
    Ok(())
}

/// Learning a residual, with 16 points and full windows.
fn adapt_observe(n: u64) -> Result<(), Error> {
    let plan: WaitPlan = ADAPT.parse()?;
    let mut table = PointTable::new(POINTS)?;
    for i in 0..256 * POINTS as u64 {
        table.record(i % POINTS as u64, &plan, mixed(i / POINTS as u64));
    }
    for i in 0..n {
        black_box(i);
        table.record(black_box(i % POINTS as u64), &plan, mixed(i.wrapping_mul(7)));
    }
    black_box(table.len());
    Ok(())
}

fn scan_full_lines(n: u64) -> Result<(), Error> {
    scan(n, 8, WORDS)
}

fn scan_single_words(n: u64) -> Result<(), Error> {
    scan(n, 64, 1)
}

fn scan_pairs(n: u64) -> Result<(), Error> {
    scan(n, 32, 2)
}

/// From three on a line costs the same whatever the number of words.
fn scan_triples(n: u64) -> Result<(), Error> {
    scan(n, 21, 3)
}

/// Looks at armed words, none of which is reached: so many in each of so many lines.
fn scan(n: u64, lines: usize, armed: usize) -> Result<(), Error> {
    let lines: Vec<HostLine> = (0..lines).map(|_| HostLine::new()).collect();
    let mut words = WordSet::new();
    for line in &lines {
        for slot in 0..armed {
            words.add(&MemoryDescriptor::new(line, Slot::new(slot)?, Seq::new(1)), 0);
        }
    }
    let mut reached = Vec::new();
    for i in 0..n {
        black_box(i);
        black_box(&mut words).scan(&mut reached);
    }
    black_box(reached);
    Ok(())
}
