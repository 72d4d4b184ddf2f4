//! One point: it learns, and it counts.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hdrhistogram::Histogram;
use wakeline_core::{End, Error, ErrorCode, Forecast, Nanos, Outcome, PointTable, Report, WaitPlan};

use super::snapshot::{Counts, PointSnapshot, Spread};
use crate::trace;

/// A place in a program that waits again and again: what is known of how long its waits take, and what they did.
///
/// A clone is another handle to the same point. Ask it before a wait, and tell it the result after.
///
/// Cost: at most 520 instructions for a prediction and its observation together, of which two locks that nobody else holds; 20 and 35 ns on an AMD
/// EPYC. They allocate nothing, but for the residuals of a plan whose window is not the last one's. With the feature `tracing`
/// on and nobody listening a load and a branch more.
///
/// Memory: about 57 KiB, nearly all of them two histograms of 28 KiB that are allocated when the point is made; besides 16 bytes for
/// each residual of the plan's window.
///
/// ```
/// use wakeline_core::{Inline, Nanos, Wait, WaitPlan, drive, run_inline};
/// use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime};
/// use wakeline_std::Point;
///
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let host = VirtualHost::new(&device);
/// let inline = Inline::new(&host, &host, &host);
/// let plan: WaitPlan =
///     "flag:park_us=50,backstop_us=1000+predict:margin_us=40,min_sleep_us=100,max_sleep_us=20000,window=8".parse()?;
/// let point = Point::new("decode");
/// let stream = device.stream()?;
/// for _ in 0..3 {
///     stream.launch(Nanos::from_millis(2))?;
///     let wait = Wait::new(&plan).predicted(point.predict(&plan));
///     let result = run_inline(drive(wait, &mut stream.point(), &inline, None))?;
///     point.observe(&result);
/// }
/// let counts = point.snapshot().counts;
/// assert_eq!((counts.parked, counts.sleeps), (3, 2)); // a cold point never sleeps
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Point {
    shared: Arc<Shared>,
}

struct Shared {
    name: Arc<str>,
    state: Mutex<State>,
}

/// What the lock guards.
struct State {
    /// The wait that ended last, until somebody asks or the next one ends: who has just been woken has better to do than to wait for what is
    /// no longer in its processor's cache, two histograms above all.
    ended: Option<Report>,
    table: PointTable<()>,
    counts: Counts,
    waited: Recorder,
    overshoot: Recorder,
}

impl Point {
    /// A point of its own, in no registry.
    pub fn new(name: &str) -> Self {
        let state = State {
            ended: None,
            table: PointTable::of_one(),
            counts: Counts::default(),
            waited: Recorder::new(),
            overshoot: Recorder::new(),
        };
        Self { shared: Arc::new(Shared { name: name.into(), state: Mutex::new(state) }) }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The residual that a wait under this plan may sleep by, for [`Wait::predicted`](wakeline_core::Wait::predicted): `None` for a
    /// plan that does not predict, and for a point that has seen none, so that a cold point never sleeps.
    pub fn predict(&self, plan: &WaitPlan) -> Option<Nanos> {
        self.lock().table.predict(&(), plan)
    }

    /// What a wait under this plan may sleep by, for [`Wait::expecting`](wakeline_core::Wait::expecting): as [`predict`](Self::predict) for a
    /// plan with `+predict`; for one with `+adapt` what is known of the point, which is shared, not copied.
    pub fn forecast(&self, plan: &WaitPlan) -> Forecast {
        self.lock().table.forecast(&(), plan)
    }

    /// What it knows as a trace, as [`PointTable::write_trace`] writes it: of this point alone, which is for `rows` batch rows.
    ///
    /// Takes the lock for as long as the text takes to write, about 50 us with a window of 256.
    ///
    /// ```
    /// use wakeline_std::Point;
    /// let trace = Point::new("decode").trace("server", 8);
    /// assert_eq!(trace, "workload,point,rows,step,enqueue_ns,residual_ns,gpu_ns\n"); // it has seen nothing yet
    /// ```
    pub fn trace(&self, workload: &str, rows: u64) -> String {
        let mut trace = String::new();
        // Writing to a string does not fail.
        let _ = self.lock().table.write_trace(workload, |()| (self.name(), rows), &mut trace);
        trace
    }

    /// Learns from a wait that ended, as [`PointTable::observe`] does, and counts it. A wait that failed teaches nothing and adds to
    /// its count only, since its error has no report.
    ///
    /// Keeps the report, and learns from it when the point is next asked or told: the code behind a wait that has just ended runs sooner so.
    /// With the feature `tracing`, emits an event after the lock is released.
    pub fn observe(&self, result: &Result<Report, Error>) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(report) => {
                state.settle();
                state.ended = Some(*report);
            }
            Err(_) => *state.counts.of(result) += 1,
        }
        drop(state);
        trace::ended(&self.shared.name, result);
    }

    /// Does what is done to keep a report, for nothing: so that it is done sooner in a moment.
    pub(crate) fn rehearse(&self, report: &Report) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.ended.is_none() {
            core::hint::black_box(&mut state).ended = Some(*report);
            core::hint::black_box(&mut state).ended = None;
        }
    }

    /// Counts a wait that was dropped before its end.
    pub fn abandoned(&self) {
        self.lock().counts.abandoned += 1;
    }

    /// What it did until now.
    ///
    /// Cost: about 25 us, 2 of them under the lock.
    pub fn snapshot(&self) -> PointSnapshot {
        let state = self.lock();
        let (counts, waited, overshoot) = (state.counts, state.waited.clone(), state.overshoot.clone());
        drop(state);
        PointSnapshot {
            name: self.name().into(),
            counts,
            waited: waited.spread(),
            overshoot: overshoot.spread(),
        }
    }

    pub(super) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.shared.name)
    }

    /// All that has ended is learned. Nothing under the lock panics; were it to, a count would be off by one, which is better than a wait
    /// that panics.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.settle();
        state
    }
}

impl fmt::Debug for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Point").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl State {
    /// Learns from the wait that ended last.
    fn settle(&mut self) {
        if let Some(report) = self.ended.take() {
            self.learn(&report);
        }
    }

    fn learn(&mut self, report: &Report) {
        let Self { table, counts, waited, overshoot, .. } = self;
        *counts.of_end(report.end) += 1;
        table.observe((), report);
        counts.sleeps += u64::from(report.sleeps);
        counts.parks += report.parks;
        counts.queries += report.queries;
        waited.record(report.elapsed);
        // A wait that did not sleep did not oversleep either, and would hide those that did.
        if report.sleeps > 0 {
            overshoot.record(report.overshoot);
        }
    }
}

impl Counts {
    /// The count that a wait with this result belongs to.
    fn of(&mut self, result: &Result<Report, Error>) -> &mut u64 {
        match result {
            Ok(report) => self.of_end(report.end),
            Err(error) => match error.code() {
                ErrorCode::Timeout => &mut self.timed_out,
                ErrorCode::Cancelled => &mut self.cancelled,
                ErrorCode::StoreLost => &mut self.store_lost,
                _ => &mut self.failed,
            },
        }
    }

    /// The count that a wait with this end belongs to.
    fn of_end(&mut self, end: End) -> &mut u64 {
        match end {
            End::Done(Outcome::Blocked) => &mut self.blocked,
            End::Done(Outcome::Immediate) => &mut self.immediate,
            End::Done(Outcome::Late) => &mut self.late,
            End::Done(Outcome::Parked) => &mut self.parked,
            End::Done(Outcome::Trusted) => &mut self.trusted,
            End::TimedOut => &mut self.timed_out,
            End::Cancelled => &mut self.cancelled,
            End::Failed => &mut self.failed,
            End::StoreLost => &mut self.store_lost,
        }
    }
}

/// What the count is called that a wait with this result belongs to.
#[cfg(any(feature = "tracing", test))]
pub(crate) fn end_name(result: &Result<Report, Error>) -> &'static str {
    let mut counts = Counts::default();
    *counts.of(result) = 1;
    counts.ends().into_iter().find(|(_, count)| *count == 1).map_or("", |(name, _)| name)
}

/// The shortest and the longest time that are told apart: shorter and longer ones count as these.
const BOUNDS_NS: (u64, u64) = (1_000, 100_000_000_000);
/// The unit of the histogram, so that two digits are told apart from a microsecond on.
const UNIT_NS: u64 = 8;
/// Values are within 1 %.
const DIGITS: u8 = 2;

/// A distribution of times in fixed memory.
#[derive(Clone)]
struct Recorder {
    /// There always is one: its bounds are constants, and a test makes it.
    histogram: Option<Histogram<u64>>,
    /// Exact, saturating.
    sum_ns: u64,
    /// Exact.
    max_ns: u64,
}

impl Recorder {
    fn new() -> Self {
        Self {
            histogram: Histogram::new_with_bounds(UNIT_NS, BOUNDS_NS.1, DIGITS).ok(),
            sum_ns: 0,
            max_ns: 0,
        }
    }

    fn record(&mut self, time: Nanos) {
        let ns = time.as_nanos();
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(ns.clamp(BOUNDS_NS.0, BOUNDS_NS.1));
        }
    }

    fn spread(&self) -> Spread {
        let Some(histogram) = self.histogram.as_ref().filter(|histogram| !histogram.is_empty()) else {
            return Spread::default();
        };
        let mut spread = Spread {
            count: histogram.len(),
            sum_ns: self.sum_ns,
            // A histogram's values are the highest of those it does not tell apart.
            p50_ns: histogram.value_at_quantile(0.5).min(self.max_ns),
            p90_ns: histogram.value_at_quantile(0.9).min(self.max_ns),
            p99_ns: histogram.value_at_quantile(0.99).min(self.max_ns),
            max_ns: self.max_ns,
            ..Spread::default()
        };
        for step in histogram.iter_recorded() {
            // The lowest of those not told apart, so that a value on a bound is within it.
            spread.add(histogram.lowest_equivalent(step.value_iterated_to()), step.count_at_value());
        }
        spread
    }
}

#[cfg(test)]
mod tests {
    use super::super::WAIT_BOUNDS_NS;
    use super::*;
    use proptest::prelude::*;
    use wakeline_core::{Action, Instant, Observation, Predict, Residual, Status, Wait};

    /// The report of a wait whose driver said done at once; tests fill in what they are about.
    fn report() -> Report {
        let plan = WaitPlan::poll().with_predict(Predict::new(40, 100, 20_000, 4).unwrap()).unwrap();
        let (mut wait, action) = Wait::new(&plan).start(Instant::ORIGIN);
        assert!(matches!(action, Action::Query));
        match wait.step(Instant::ORIGIN, Observation::Status(Status::Done)) {
            Action::Finish(report) => report,
            action => panic!("{action:?}"),
        }
    }

    #[test]
    fn each_result_is_counted_once_and_named_by_its_count() {
        let ends = [
            (End::Done(Outcome::Blocked), "blocked"),
            (End::Done(Outcome::Immediate), "immediate"),
            (End::Done(Outcome::Late), "late"),
            (End::Done(Outcome::Parked), "parked"),
            (End::Done(Outcome::Trusted), "trusted"),
            (End::TimedOut, "timed_out"),
            (End::Cancelled, "cancelled"),
            (End::StoreLost, "store_lost"),
            (End::Failed, "failed"),
        ];
        let errors = [
            (Error::new(ErrorCode::Timeout, [&1, &0, &2]), "timed_out"),
            (Error::new(ErrorCode::Cancelled, [&1, &0, &2]), "cancelled"),
            (Error::new(ErrorCode::StoreLost, [&1, &0]), "store_lost"),
            (Error::new(ErrorCode::Backend, [&"sim", &"query", &"device lost"]), "failed"),
            (Error::new(ErrorCode::WatcherClosed, []), "failed"),
        ];
        let results = ends.into_iter().map(|(end, name)| (Ok(Report { end, ..report() }), name));
        for (result, name) in results.chain(errors.map(|(error, name)| (Err(error), name))) {
            let point = Point::new("x");
            point.observe(&result);
            let counts = point.snapshot().counts;
            assert_eq!(counts.ends().iter().find(|(_, count)| *count == 1), Some(&(name, 1)), "{result:?}");
            assert_eq!((counts.waits(), end_name(&result)), (1, name));
        }
    }

    #[test]
    fn it_learns_as_the_table_does_and_adds_up_what_waits_did() {
        let (point, mut table) = (Point::new("x"), PointTable::of_one());
        let plan = report().plan;
        assert_eq!(point.predict(&plan), None);
        for us in [900, 700, 800, 850, 900, 950] {
            let elapsed = Nanos::from_micros(us);
            let residual = Some(Residual::Exact(elapsed));
            let report = Report { elapsed, residual, parks: 3, queries: 2, sleeps: 1, ..report() };
            point.observe(&Ok(report));
            table.observe((), &report);
            assert_eq!(point.predict(&plan), table.predict(&(), &plan));
        }
        assert_eq!(point.predict(&plan), Some(Nanos::from_micros(800)));
        assert_eq!(point.predict(&WaitPlan::poll()), None);
        let PointSnapshot { counts, waited, .. } = point.snapshot();
        assert_eq!((counts.parks, counts.queries, counts.sleeps), (18, 12, 6));
        assert_eq!((waited.count, waited.sum_ns, waited.max_ns), (6, 5_100_000, 950_000));
    }

    #[test]
    fn a_wait_that_did_not_sleep_does_not_hide_overshoots() {
        let point = Point::new("x");
        point.observe(&Ok(report()));
        point.observe(&Ok(Report { sleeps: 1, overshoot: Nanos::from_micros(60), ..report() }));
        let overshoot = point.snapshot().overshoot;
        assert_eq!((overshoot.count, overshoot.p50_ns, overshoot.max_ns), (1, 60_000, 60_000));
    }

    #[test]
    fn a_thread_that_panicked_leaves_the_point_usable() {
        let point = Point::new("x");
        let held = point.clone();
        std::thread::spawn(move || {
            let _lock = held.shared.state.lock().unwrap();
            panic!("on purpose");
        })
        .join()
        .unwrap_err();
        point.abandoned();
        point.observe(&Ok(report()));
        assert_eq!(point.snapshot().counts.waits(), 2);
    }

    #[test]
    fn threads_lose_no_count() {
        let point = Point::new("x");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1_000).for_each(|_| point.observe(&Ok(report()))));
            }
        });
        let snapshot = point.snapshot();
        assert_eq!((snapshot.counts.immediate, snapshot.waited.count), (4_000, 4_000));
    }

    #[test]
    fn what_is_too_short_or_too_long_counts_as_the_bound() {
        let mut recorder = Recorder::new();
        assert_eq!(recorder.spread(), Spread::default());
        for ns in [0, u64::MAX, 1] {
            recorder.record(Nanos::from_nanos(ns));
        }
        let spread = recorder.spread();
        assert_eq!((spread.count, spread.sum_ns, spread.max_ns), (3, u64::MAX, u64::MAX));
        assert_eq!((spread.within[0], spread.within[WAIT_BOUNDS_NS.len() - 1]), (2, 2));
        assert!(spread.p50_ns <= 1_008 && spread.p99_ns >= BOUNDS_NS.1, "{spread:?}");
    }

    proptest! {
        /// Against the sorted list.
        #[test]
        fn quantiles_and_buckets_are_within_a_hundredth(
            times in prop::collection::vec((1_000_u64..100_000, 0_u32..7).prop_map(|(ns, zeros)| ns * 10_u64.pow(zeros)), 1..200),
        ) {
            let mut recorder = Recorder::new();
            for ns in &times {
                recorder.record(Nanos::from_nanos(*ns));
            }
            let spread = recorder.spread();
            let mut sorted: Vec<_> = times.iter().map(|ns| (*ns).min(BOUNDS_NS.1)).collect();
            sorted.sort_unstable();
            for (percent, told) in [(50, spread.p50_ns), (90, spread.p90_ns), (99, spread.p99_ns)] {
                let exact = sorted[(sorted.len() * percent).div_ceil(100) - 1];
                prop_assert!(told.abs_diff(exact) <= exact / 100, "p{percent} {told}, exactly {exact}");
            }
            for (bound, within) in WAIT_BOUNDS_NS.into_iter().zip(spread.within) {
                let count = |bound| sorted.iter().filter(|ns| **ns <= bound).count() as u64;
                prop_assert!((count(bound)..=count(bound + bound / 100)).contains(&within), "{within} within {bound}");
            }
        }
    }
}
