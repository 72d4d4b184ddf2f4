//! What is known of the residuals of each readback point.
//!
//! A point is named by a key of the user's: a readback point, or a point with its batch rows. Of each point the
//! table keeps a window of the last residuals and predicts their minimum. The number of points is bounded: the one that was
//! used longest ago makes room for a new one.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::error::{Error, ErrorCode};
use crate::plan::WaitPlan;
use crate::time::Nanos;
use crate::wait::{Report, Residual};

/// The most points a table may be made for.
pub const POINTS_MAX: usize = 1 << 20;

/// No point: the end of a list.
const NONE: u32 = u32::MAX;

/// The residuals of up to a fixed number of points, by key.
///
/// Invariants: a cold point predicts nothing, so its wait never sleeps; the prediction is the minimum of the
/// last `window` residuals that were measured exactly; a wait that slept too long (a censored residual) counts as half of
/// `min(wake, prediction)`, so it lowers the prediction, never raises it, and a prediction that is too long by any factor
/// is undone in a number of waits that grows with the factor's logarithm.
///
/// Cost: observing and predicting together take at most 200 instructions with up to 64 points; no allocation but for the
/// first residual of a point (and one whose plan changes its window). Memory: 12 bytes for each residual of a window.
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
    places: BTreeMap<K, u32>,
    points: Vec<Point<K>>,
    points_max: usize,
    /// The point used last, and the one used longest ago.
    newest: u32,
    oldest: u32,
}

#[derive(Clone, Debug)]
struct Point<K> {
    key: K,
    history: Window,
    newer: u32,
    older: u32,
}

impl<K: Ord + Clone> PointTable<K> {
    /// A table for up to `points_max` points.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidLimit`] unless `points_max` is from 1 to [`POINTS_MAX`].
    pub fn new(points_max: usize) -> Result<Self, Error> {
        if !(1..=POINTS_MAX).contains(&points_max) {
            return Err(Error::new(ErrorCode::InvalidLimit, [&"points_max", &points_max, &1, &POINTS_MAX]));
        }
        Ok(Self { places: BTreeMap::new(), points: Vec::new(), points_max, newest: NONE, oldest: NONE })
    }

    /// The residual to expect at this point under this plan: `None` for a plan that does not predict and for a point
    /// without residuals. Does not count as a use.
    pub fn predict(&self, key: &K, plan: &WaitPlan) -> Option<Nanos> {
        let window = plan.predict()?.window();
        let place = *self.places.get(key)?;
        self.points[place as usize].history.min(window)
    }

    /// Learns from a wait of this point; a wait that did not end well or that was not watched teaches nothing.
    pub fn observe(&mut self, key: K, report: &Report) {
        let residual = match report.residual {
            None => return,
            Some(Residual::Exact(residual) | Residual::AtLeast(residual)) => residual,
            Some(Residual::AtMost { wake, prediction }) => {
                Nanos::from_nanos(wake.min(prediction).as_nanos() / 2)
            }
        };
        self.record(key, &report.plan, residual);
    }

    /// Adds one residual to the window of a point. A plan that does not predict keeps none.
    pub fn record(&mut self, key: K, plan: &WaitPlan, residual: Nanos) {
        let Some(predict) = plan.predict() else { return };
        let place = self.touch(key);
        self.points[place as usize].history.push(predict.window(), residual);
    }

    /// How many points have residuals.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Whether no point has any.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The place of the point, which becomes the newest; made where there is none, from the oldest where the table is full.
    fn touch(&mut self, key: K) -> u32 {
        if let Some(&place) = self.places.get(&key) {
            if place != self.newest {
                self.unlink(place);
                self.link_newest(place);
            }
            return place;
        }
        let place = if self.points.len() < self.points_max {
            self.points.push(Point {
                key: key.clone(),
                history: Window::default(),
                newer: NONE,
                older: NONE,
            });
            // At most POINTS_MAX, so it fits.
            u32::try_from(self.points.len() - 1).unwrap_or(NONE)
        } else {
            let place = self.oldest;
            self.unlink(place);
            let point = &mut self.points[place as usize];
            let left = core::mem::replace(&mut point.key, key.clone());
            point.history.clear();
            self.places.remove(&left);
            place
        };
        self.places.insert(key, place);
        self.link_newest(place);
        place
    }

    fn unlink(&mut self, place: u32) {
        let Point { newer, older, .. } = self.points[place as usize];
        match self.points.get_mut(newer as usize) {
            Some(point) => point.older = older,
            None => self.newest = older,
        }
        match self.points.get_mut(older as usize) {
            Some(point) => point.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, place: u32) {
        let older = self.newest;
        let point = &mut self.points[place as usize];
        (point.newer, point.older) = (NONE, older);
        match self.points.get_mut(older as usize) {
            Some(point) => point.newer = place,
            None => self.oldest = place,
        }
        self.newest = place;
    }
}

/// The minimum of a sliding window: residuals that can still become the minimum, rising from front to back, in a ring.
///
/// A residual leaves at the back when a smaller or equal one comes, at the front when it falls out of the window: each enters and
/// leaves once, so adding is constant on average, and the minimum stands at the front.
#[derive(Clone, Debug, Default)]
struct Window {
    ring: Box<[(u32, Nanos)]>,
    head: usize,
    len: usize,
    /// The number of the next residual; wraps.
    next: u32,
}

impl Window {
    fn clear(&mut self) {
        (self.head, self.len) = (0, 0);
    }

    fn at(&self, index: usize) -> usize {
        let place = self.head + index;
        if place >= self.ring.len() { place - self.ring.len() } else { place }
    }

    fn push(&mut self, window: u16, residual: Nanos) {
        if self.ring.len() != usize::from(window) {
            self.resize(window);
        }
        if self.len > 0 && self.next.wrapping_sub(self.ring[self.head].0) >= u32::from(window) {
            self.head = self.at(1);
            self.len -= 1;
        }
        while self.len > 0 && self.ring[self.at(self.len - 1)].1 >= residual {
            self.len -= 1;
        }
        let place = self.at(self.len);
        self.ring[place] = (self.next, residual);
        self.len += 1;
        self.next = self.next.wrapping_add(1);
    }

    fn min(&self, window: u16) -> Option<Nanos> {
        // A window shorter than the one kept sees only the later residuals.
        (0..self.len)
            .map(|index| self.ring[self.at(index)])
            .find(|(number, _)| self.next.wrapping_sub(*number) <= u32::from(window))
            .map(|(_, residual)| residual)
    }

    /// Another window: keeps what fits into it.
    fn resize(&mut self, window: u16) {
        let kept: Vec<_> = (0..self.len)
            .map(|index| self.ring[self.at(index)])
            .filter(|(number, _)| self.next.wrapping_sub(*number) <= u32::from(window))
            .collect();
        (self.head, self.len) = (0, kept.len());
        let mut ring = kept;
        ring.resize(usize::from(window).max(1), (0, Nanos::ZERO));
        self.ring = ring.into_boxed_slice();
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
                Action::Block { .. } => panic!("not this plan"),
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
                    prop_assert_eq!(table.predict(&other, &plan(2)).is_some(), model.contains(&other));
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
