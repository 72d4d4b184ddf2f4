//! What a wait does by what is known of its point: deciding anew, and learning how late its sleeps end.

use super::{Action, Wait};
use crate::adapt::Course;
use crate::table::Forecast;
use crate::time::{Instant, Nanos};

impl Wait {
    /// With what is known of its point, from [`PointTable::forecast`](crate::PointTable::forecast): what a plan with `+predict` or `+adapt`
    /// sleeps by.
    #[must_use]
    #[inline]
    pub fn expecting(mut self, forecast: Forecast) -> Self {
        let Forecast { prediction, known } = forecast;
        self.prediction = prediction;
        self.review = if known.is_some() { Instant::ORIGIN } else { Instant::MAX };
        self.known = known;
        self
    }

    /// How long after its landing the work may be expected: the margin of a `+predict` plan, by `+adapt` the way to the next residual that is
    /// known. `None` where it is in no sleep, and where nothing is known.
    pub fn margin(&self) -> Option<Nanos> {
        let landing = self.landing()?;
        match (&self.known, self.report.plan.predict()) {
            (Some(known), _) => known.next(landing.since(self.started)),
            (None, predict) => predict.map(|predict| predict.margin()),
        }
    }

    /// It is known to be pending: by `+adapt` decide anew, where it is time to, else watch.
    #[inline]
    pub(super) fn review(&mut self, now: Instant) -> Action {
        if now >= self.review { self.decide(now) } else { self.watch(now) }
    }

    /// Sleeps or watches as what is known of the point says.
    #[inline(never)]
    pub(super) fn decide(&mut self, now: Instant) -> Action {
        if let (Some(known), Some(adapt)) = (&self.known, self.report.plan.adapt()) {
            let elapsed = now.since(self.started);
            match known.course(&adapt, elapsed) {
                Course::Sleep(until) => {
                    self.report.sleeps += 1;
                    self.report.pending = elapsed;
                    self.wake = self.started + until;
                    return self.sleep(now);
                }
                Course::Watch(until) => self.review = self.started + until,
            }
        }
        self.watch(now)
    }

    /// Learns how late its sleep ended.
    #[inline(never)]
    pub(super) fn learn(&self, now: Instant) {
        // A sleep that somebody ended early says nothing of the timer: until its end nothing is decided.
        if let Some(known) = &self.known
            && now >= self.review
        {
            // With a token to look at it slept in pieces.
            let length = self.wake.since(self.started + self.report.pending).min(self.look_every);
            known.oversleep.learn(length.as_nanos(), self.report.overshoot.as_nanos());
        }
    }

    /// Lets go of what it knows before the table learns, which then need not keep it apart.
    #[inline(never)]
    pub(super) fn forget(&mut self) {
        self.known = None;
    }
}
