//! What is known of the residuals of each readback point.
//!
//! A point is named by a key of the user's: a readback point, or a point with its batch rows. Of each point the
//! table keeps a window of the last residuals and predicts their minimum. The number of points is bounded: the one that was
//! used longest ago makes room for a new one.

mod adaptive;
mod dump;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::adapt::Known;
use crate::error::{Error, ErrorCode};
use crate::plan::WaitPlan;
use crate::time::Nanos;
use crate::wait::{Report, Residual};

/// The most points a table may be made for.
pub const POINTS_MAX: usize = 1 << 16;

/// How many waits in a row may be late because the host's timer was before that counts as a sign of the point. (On a virtual host one sleep of
/// ten is late by half of a margin that is right otherwise; to take two of them for a sign costs half a spin in each wait of the window, once in a hundred waits.)
pub const EXCUSES_MAX: u8 = 2;

/// The residuals of up to a fixed number of points, by key.
///
/// Invariants: a cold point predicts nothing, so its wait never sleeps; the prediction is the minimum of the
/// last `window` residuals that were measured; a wait that slept too long (a censored residual) counts as half of
/// `min(wake, prediction)`, so it lowers the prediction, never raises it, and a prediction that is too long by any factor
/// is undone in a number of waits that grows with the factor's logarithm. (One that was late because its timer was is excused, [`EXCUSES_MAX`] times in
/// a row.)
///
/// Cost: predicting and then observing take at most 200 instructions together with 16 points and 30 more at 64 (a binary search, which the
/// second finds done), and allocate nothing. The first residual of a point, and one whose plan changes its window,
/// allocate the window; a new point moves the points behind it, and in a full table looks at all of them for
/// the one to leave. Memory: about 96 bytes a point and 16 for each residual of its window.
///
/// For plans with `+adapt` it keeps the last `window` residuals themselves, 16 bytes each; of a wait that slept past its end the residual is taken to
/// lie shortly before its wake, or, the more waits in a row were late, half way back to when it was last seen pending. Learning one takes at most
/// 800 instructions with a window of 256.
///
/// ```
/// use wakeline_core::{Nanos, PointTable, WaitPlan};
/// let plan: WaitPlan =
///     "flag:park_us=50,backstop_us=1000+predict:margin_us=40,min_sleep_us=100,max_sleep_us=20000,window=8".parse()?;
/// let mut table = PointTable::new(64)?;
/// assert_eq!(table.predict(&"sample", &plan), None); // cold
/// table.record("sample", &plan, Nanos::from_micros(5_000));
/// table.record("sample", &plan, Nanos::from_micros(4_700));
/// assert_eq!(table.predict(&"sample", &plan), Some(Nanos::from_micros(4_700)));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PointTable<K> {
    /// In the order of their keys.
    points: Vec<Point<K>>,
    points_max: usize,
    /// Where the point that was used last stands.
    last: usize,
    /// How many uses there were.
    uses: u64,
    /// What is known of a point before its first residual: how late this host's sleeps are, which all points share.
    cold: Option<Arc<Known>>,
}

#[derive(Clone, Debug)]
struct Point<K> {
    key: K,
    /// The number of its last use.
    used: u64,
    history: Window,
    /// For plans with `+adapt`, apart, so that other points are no larger by it.
    adaptive: Option<Box<adaptive::Adaptive>>,
}

/// What is known of a point before a wait, as far as the wait's plan asks for it: what it may sleep by.
///
/// A clone knows the same, and what its point learns meanwhile.
///
/// ```
/// use wakeline_core::{Forecast, Nanos, Wait, WaitPlan};
/// let plan: WaitPlan = "poll+predict:margin_us=40,min_sleep_us=100,max_sleep_us=20000,window=8".parse()?;
/// let _wait = Wait::new(&plan).expecting(Forecast::from(Some(Nanos::from_millis(5))));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Forecast {
    pub(crate) prediction: Option<Nanos>,
    pub(crate) known: Option<Arc<Known>>,
}

impl Forecast {
    /// For a wait whose ends are told late by so much, so that its residuals are too long by it. What `+adapt` knows stays as it is.
    #[must_use]
    pub fn late_by(mut self, late: Nanos) -> Self {
        self.prediction = self.prediction.map(|residual| residual - late);
        self
    }
}

impl From<Option<Nanos>> for Forecast {
    /// For a plan with `+predict`: the residual to expect.
    fn from(prediction: Option<Nanos>) -> Self {
        Self { prediction, known: None }
    }
}

impl<K: Ord> PointTable<K> {
    /// A table for up to `points_max` points.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidLimit`] unless `points_max` is from 1 to [`POINTS_MAX`].
    pub fn new(points_max: usize) -> Result<Self, Error> {
        if !(1..=POINTS_MAX).contains(&points_max) {
            return Err(Error::new(ErrorCode::InvalidLimit, [&"points_max", &points_max, &1, &POINTS_MAX]));
        }
        Ok(Self { points_max, ..Self::of_one() })
    }

    /// A table for one point, of the key `()` say: for who keeps one at each point and wants no error.
    ///
    /// ```
    /// use wakeline_core::{Nanos, PointTable, Predict, WaitPlan};
    /// let plan = WaitPlan::poll().with_predict(Predict::new(40, 100, 20_000, 8)?)?;
    /// let mut table = PointTable::of_one();
    /// table.record((), &plan, Nanos::from_millis(5));
    /// assert_eq!(table.predict(&(), &plan), Some(Nanos::from_millis(5)));
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    pub const fn of_one() -> Self {
        Self { points: Vec::new(), points_max: 1, last: 0, uses: 0, cold: None }
    }

    /// The residual to expect at this point under this plan: `None` for a plan that does not predict and for a point
    /// without residuals. Counts as a use.
    #[inline]
    pub fn predict(&mut self, key: &K, plan: &WaitPlan) -> Option<Nanos> {
        let window = plan.predict()?.window();
        let place = self.find(key).ok()?;
        self.use_at(place).min(window)
    }

    /// What a wait of this point under this plan may sleep by. Counts as a use.
    ///
    /// For a plan with `+adapt` that is shared with the wait, not copied; the first one allocates what all points of the table share.
    #[inline]
    pub fn forecast(&mut self, key: &K, plan: &WaitPlan) -> Forecast {
        match plan.adapt() {
            Some(adapt) => Forecast { prediction: None, known: Some(self.known(key, adapt.window())) },
            None => self.predict(key, plan).into(),
        }
    }

    /// Learns from a wait of this point. One that did not end well or was not watched teaches nothing, nor does one whose
    /// residual is known only to be at least so long, unless that is half of it.
    ///
    /// A late wake counts as half, except where it was late because its sleep overshot by more than half of the margin: that says something
    /// of the host's timers and nothing of the point, so it teaches nothing, unless the [`EXCUSES_MAX`] waits before were excused in the same way.
    pub fn observe(&mut self, key: K, report: &Report) {
        let residual = match report.residual {
            Some(Residual::Exact(residual)) => residual,
            // Too loose a bound, after a lost store say, would only keep the next waits from sleeping.
            Some(Residual::AtLeast(least)) if least + least >= report.elapsed => least,
            None | Some(Residual::AtLeast(_)) => return,
            Some(Residual::Between { pending, wake }) => {
                return self.adapt_late(key, &report.plan, pending, wake);
            }
            Some(Residual::AtMost { wake, prediction }) => {
                let margin = report.plan.predict().map_or(Nanos::ZERO, |predict| predict.margin());
                if report.overshoot + report.overshoot > margin && self.excuse(&key) {
                    return;
                }
                Nanos::from_nanos(wake.min(prediction).as_nanos() / 2)
            }
        };
        self.record(key, &report.plan, residual);
    }

    /// Adds one residual to the window of a point. A plan that does not predict keeps none.
    #[inline]
    pub fn record(&mut self, key: K, plan: &WaitPlan, residual: Nanos) {
        let Some(predict) = plan.predict() else { return self.adapt(key, plan, residual) };
        let place = self.find(&key).unwrap_or_else(|place| self.insert(place, key));
        self.use_at(place).push(predict.window(), residual);
    }

    /// How many points have residuals.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Whether no point has any.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Where the point stands, or where it would.
    #[inline]
    fn find(&self, key: &K) -> Result<usize, usize> {
        if self.points.get(self.last).is_some_and(|point| point.key == *key) {
            return Ok(self.last);
        }
        self.points.binary_search_by(|point| point.key.cmp(key))
    }

    #[inline]
    fn use_at(&mut self, place: usize) -> &mut Window {
        self.uses += 1;
        self.last = place;
        let point = &mut self.points[place];
        point.used = self.uses;
        &mut point.history
    }

    /// Whether a late wake of this point is excused: the first ones in a row are.
    #[cold]
    fn excuse(&mut self, key: &K) -> bool {
        let point = self.find(key).ok().and_then(|place| self.points.get_mut(place));
        point.is_some_and(|point| {
            let excused = &mut point.history.excused;
            let again = *excused < EXCUSES_MAX;
            *excused += u8::from(again);
            again
        })
    }

    #[cold]
    /// Makes a point, which would stand at `place`; in a full table the one used longest ago leaves. Returns where it is.
    fn insert(&mut self, mut place: usize, key: K) -> usize {
        if self.points.len() == self.points_max {
            let oldest = self.points.iter().enumerate().min_by_key(|(_, point)| point.used);
            let oldest = oldest.map_or(0, |(oldest, _)| oldest);
            self.points.remove(oldest);
            place -= usize::from(oldest < place);
        }
        self.points.insert(place, Point { key, used: 0, history: Window::default(), adaptive: None });
        place
    }
}

/// The minimum of a sliding window: residuals that can still become the minimum, rising from front to back, in a ring.
///
/// A residual leaves at the back when a smaller or equal one comes, at the front when it falls out of the window: each enters and
/// leaves once, so adding is constant on average, and the minimum stands at the front.
#[derive(Clone, Debug, Default)]
struct Window {
    /// Numbered residuals; as long as the next power of two, so that a mask finds places.
    ring: Box<[(u32, Nanos)]>,
    /// How many it is of.
    len_max: u16,
    /// How many of the last waits were late because the host's timer was, and taught nothing.
    excused: u8,
    /// Where it begins and ends; the difference is its length, the low bits are places. Both wrap.
    front: u32,
    back: u32,
    /// The number of the next residual; wraps.
    next: u32,
}

impl Window {
    #[expect(
        clippy::inline_always,
        reason = "its only caller is all but nothing else, and a call of it is a fifth of both"
    )]
    #[inline(always)]
    fn push(&mut self, window: u16, residual: Nanos) {
        if self.len_max != window {
            self.resize(window);
        }
        if self.front != self.back && !self.within(window, self.at(self.front).0.wrapping_sub(1)) {
            self.front = self.front.wrapping_add(1);
        }
        while self.front != self.back && self.at(self.back.wrapping_sub(1)).1 >= residual {
            self.back = self.back.wrapping_sub(1);
        }
        let place = self.place(self.back);
        self.ring[place] = (self.next, residual);
        self.back = self.back.wrapping_add(1);
        self.next = self.next.wrapping_add(1);
        self.excused = 0;
    }

    #[inline]
    fn min(&self, window: u16) -> Option<Nanos> {
        if window >= self.len_max {
            return (self.front != self.back).then(|| self.at(self.front).1);
        }
        // A window shorter than the one kept sees only the later residuals.
        self.kept(window).next().map(|(_, residual)| residual)
    }

    fn place(&self, count: u32) -> usize {
        count as usize & (self.ring.len() - 1)
    }

    fn at(&self, count: u32) -> (u32, Nanos) {
        self.ring[self.place(count)]
    }

    /// Whether the residual of this number is among the last `window`.
    fn within(&self, window: u16, number: u32) -> bool {
        self.next.wrapping_sub(number) <= u32::from(window)
    }

    /// What is kept of the last `window` residuals, from the smallest on.
    fn kept(&self, window: u16) -> impl Iterator<Item = (u32, Nanos)> {
        (0..self.back.wrapping_sub(self.front))
            .map(|index| self.at(self.front.wrapping_add(index)))
            .filter(move |(number, _)| self.within(window, *number))
    }

    /// Another window: keeps what fits into it.
    #[cold]
    fn resize(&mut self, window: u16) {
        let mut ring: Vec<_> = self.kept(window).collect();
        // No window is longer than 256, so it fits.
        (self.front, self.back) = (0, u32::try_from(ring.len()).unwrap_or(0));
        ring.resize(usize::from(window).next_power_of_two(), (0, Nanos::ZERO));
        self.ring = ring.into_boxed_slice();
        self.len_max = window;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::Status;
    use crate::time::Instant;
    use crate::wait::{Action, Observation, Wait};
    use alloc::collections::VecDeque;
    use alloc::format;
    use proptest::prelude::*;

    fn plan(window: u16) -> WaitPlan {
        format!("flag:park_us=50,backstop_us=400+predict:margin_us=50,min_sleep_us=100,max_sleep_us=20000,window={window}")
            .parse()
            .unwrap()
    }

    fn us(us: u64) -> Nanos {
        Nanos::from_micros(us)
    }

    /// A wait on a virtual clock for a point that takes `residual`; what it saw is fed back.
    fn wait(table: &mut PointTable<u8>, plan: &WaitPlan, residual: Nanos) -> Report {
        let done = Instant::ORIGIN + residual;
        let status = |now| Observation::Status(if now >= done { Status::Done } else { Status::Pending });
        let mut now = Instant::ORIGIN;
        let (mut wait, mut action) = Wait::new(plan).predicted(table.predict(&0, plan)).start(now);
        loop {
            let observation = match action {
                Action::Query => status(now),
                Action::Arm => Observation::Armed,
                Action::Park { until } if done <= until => {
                    now = now.max(done);
                    Observation::Reached
                }
                Action::SleepUntil(until) | Action::Park { until } => {
                    now = until;
                    Observation::Woke
                }
                Action::Block { .. } | Action::Warm => panic!("not this plan"),
                Action::Finish(report) => {
                    table.observe(0, &report);
                    return report;
                }
            };
            action = wait.step(now, observation);
        }
    }

    #[test]
    fn a_cold_point_never_sleeps_and_the_second_wait_does() {
        let mut table = PointTable::new(4).unwrap();
        assert_eq!(wait(&mut table, &plan(8), us(5_000)).sleeps, 0);
        assert_eq!(wait(&mut table, &plan(8), us(5_000)).sleeps, 1);
        assert_eq!(table.predict(&0, &plan(8)), Some(us(5_000)));
    }

    #[test]
    fn over_sleep_corrects_itself_geometrically() {
        let mut table = PointTable::new(4).unwrap();
        wait(&mut table, &plan(8), us(16_000));
        let mut late = 0;
        while table.predict(&0, &plan(8)).unwrap() > us(600) {
            wait(&mut table, &plan(8), us(500));
            late += 1;
        }
        assert_eq!(late, 5, "16 ms to under 0.6 ms by halves");
        assert!(wait(&mut table, &plan(8), us(500)).elapsed <= us(500));
    }

    /// The timer was late by more than the margin: now and then that says nothing of the point, thrice in a row it is taken for a sign.
    #[test]
    fn a_wake_that_was_late_by_its_timer_is_excused_twice() {
        let mut table = PointTable::new(4).unwrap();
        let mut late = wait(&mut table, &plan(8), us(5_000));
        late.overshoot = us(10_000);
        late.residual = Some(Residual::AtMost { wake: us(5_000), prediction: us(5_000) });
        for _ in 0..EXCUSES_MAX {
            table.observe(0, &late);
            assert_eq!(table.predict(&0, &plan(8)), Some(us(5_000)));
        }
        table.observe(0, &late);
        assert_eq!(table.predict(&0, &plan(8)), Some(us(2_500)), "the third in a row counts");
        table.observe(0, &late);
        assert_eq!(table.predict(&0, &plan(8)), Some(us(2_500)), "what was learned starts a new row");
        let mut close = late;
        close.overshoot = Nanos::ZERO;
        close.residual = Some(Residual::AtMost { wake: us(2_000), prediction: us(2_500) });
        table.observe(0, &close);
        assert_eq!(table.predict(&0, &plan(8)), Some(us(1_000)), "no excuse without a late timer");
    }

    /// A store was lost, and the wait ended on a backstop: all that is known is that the residual was over nothing much.
    #[test]
    fn a_loose_bound_teaches_nothing_and_a_close_one_does() {
        let mut table = PointTable::new(1).unwrap();
        for (least, learned) in [(1, None), (2_499, None), (4_900, Some(us(4_900)))] {
            let mut report = wait(&mut PointTable::new(1).unwrap(), &plan(8), us(5_000));
            report.residual = Some(Residual::AtLeast(us(least)));
            table.observe(0, &report);
            assert_eq!(table.predict(&0, &plan(8)), learned, "{least}");
        }
    }

    #[test]
    fn the_point_used_longest_ago_makes_room() {
        let mut table = PointTable::new(2).unwrap();
        for key in ["a", "b", "a", "c"] {
            table.record(key, &plan(4), us(1));
        }
        assert_eq!(table.len(), 2);
        assert!(table.predict(&"b", &plan(4)).is_none());
        assert!(table.predict(&"a", &plan(4)).is_some() && table.predict(&"c", &plan(4)).is_some());
    }

    #[test]
    fn a_point_that_takes_anothers_place_starts_cold() {
        let mut table = PointTable::new(1).unwrap();
        table.record("a", &plan(4), us(1));
        table.record("b", &plan(4), us(9));
        assert_eq!(table.predict(&"b", &plan(4)), Some(us(9)));
    }

    #[test]
    fn limits_are_checked() {
        for points_max in [0, POINTS_MAX + 1] {
            let error = PointTable::<u8>::new(points_max).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidLimit);
        }
    }

    proptest! {
        /// The ring against a plain list, also over a change of windows.
        #[test]
        fn it_predicts_the_minimum_of_the_window(
            steps in prop::collection::vec((1_u16..6, 0_u64..20), 1..80),
        ) {
            let mut table = PointTable::new(1).unwrap();
            let mut model = VecDeque::new();
            for (window, residual) in steps {
                // What a window dropped is gone; a wider one sees only what was kept.
                model.push_front(us(residual));
                model.truncate(usize::from(window));
                table.record((), &plan(window), us(residual));
                prop_assert_eq!(table.predict(&(), &plan(window)), model.iter().min().copied());
            }
        }

        #[test]
        fn it_keeps_the_points_used_last(keys in prop::collection::vec(0_u8..12, 1..100), points_max in 1_usize..8) {
            let mut table = PointTable::new(points_max).unwrap();
            let mut model: VecDeque<u8> = VecDeque::new();
            for key in keys {
                model.retain(|other| *other != key);
                model.push_front(key);
                model.truncate(points_max);
                table.record(key, &plan(2), us(1));
                prop_assert_eq!(table.len(), model.len());
                for other in 0..12 {
                    prop_assert_eq!(table.find(&other).is_ok(), model.contains(&other));
                }
            }
        }

        #[test]
        fn a_late_wake_never_raises_the_prediction(residuals in prop::collection::vec(0_u64..20_000, 1..60)) {
            let mut table = PointTable::new(1).unwrap();
            for residual in residuals {
                let before = table.predict(&0, &plan(3));
                let report = wait(&mut table, &plan(3), us(residual));
                if matches!(report.residual, Some(Residual::AtMost { .. })) {
                    prop_assert!(table.predict(&0, &plan(3)) <= before);
                }
            }
        }
    }
}
