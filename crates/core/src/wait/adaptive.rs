//! What a wait does by what is known of its point: deciding anew, and learning how late its sleeps end.
//!
//! Waits by other plans come here for nothing. What these have more is behind [`Ahead`], and what is done with it stands at the ends of their
//! steps, so that a step of any other wait has nothing to keep for afterwards.

use alloc::sync::Arc;

use super::{Action, Residual, State, Wait};
use crate::adapt::{Course, Known};
use crate::table::Forecast;
use crate::time::{Instant, Nanos};

/// What a wait may sleep by.
#[derive(Clone, Debug)]
pub(super) enum Ahead {
    Nothing,
    /// The residual that is expected, for a plan with `+predict`.
    Predicted(Nanos),
    /// For a plan with `+adapt`, and for no other.
    Known(Adaptive),
}

/// What a plan with `+adapt` decides by, and when.
#[derive(Clone, Debug)]
pub(super) struct Adaptive {
    known: Arc<Known>,
    /// When to decide anew whether to sleep, not before.
    review: Instant,
    /// When the driver is asked next while the word is watched.
    ask: Instant,
    /// When the last sleep began.
    slept: Instant,
    /// The length of sleeps whose lateness it was made by.
    wanted: Nanos,
}

impl Adaptive {
    /// What is known of a residual that was over at that wake from the last sleep.
    pub(super) fn between(&self, started: Instant, wake: Nanos) -> Residual {
        Residual::Between { pending: self.slept.since(started), wake }
    }
}

impl Ahead {
    #[inline]
    pub(super) const fn adapts(&self) -> bool {
        matches!(self, Self::Known(_))
    }
}

impl From<Option<Nanos>> for Ahead {
    #[inline]
    fn from(residual: Option<Nanos>) -> Self {
        residual.map_or(Self::Nothing, Self::Predicted)
    }
}

impl Wait {
    /// With what is known of its point, from [`PointTable::forecast`](crate::PointTable::forecast): what a plan with `+predict` or `+adapt`
    /// sleeps by. What was asked for another kind of plan tells nothing.
    #[must_use]
    #[inline]
    pub fn expecting(mut self, forecast: Forecast) -> Self {
        self.ahead = match forecast.known {
            Some(known) if self.report.plan.adapt().is_some() => {
                let [review, slept] = [Instant::ORIGIN; 2];
                Ahead::Known(Adaptive { known, review, ask: Instant::MAX, slept, wanted: Nanos::ZERO })
            }
            _ => forecast.prediction.into(),
        };
        self
    }

    /// How long after its landing the work may be expected: the margin of a `+predict` plan, by `+adapt` the way to the next residual that is
    /// known. `None` where it is in no sleep, and where nothing is known.
    pub fn margin(&self) -> Option<Nanos> {
        let landing = self.landing()?;
        match &self.ahead {
            Ahead::Known(adaptive) => adaptive.known.next(landing.since(self.started)),
            Ahead::Nothing | Ahead::Predicted(_) => {
                self.report.plan.predict().map(|predict| predict.margin())
            }
        }
    }

    /// A watch is over: asks the driver, or where that is not due yet, decides anew.
    #[inline(never)]
    pub(super) fn watched_enough(&mut self, now: Instant) -> Action {
        match &self.ahead {
            Ahead::Known(adaptive) if now < adaptive.ask => self.decide(now),
            _ => self.ask(State::Backstop),
        }
    }

    /// Sleeps or watches as what is known of the point says.
    ///
    /// Each decision makes progress, so no wait can decide on and on at one moment: it sleeps for at least the plan's `min_sleep_us`, looks once, and
    /// decides again; or it watches for half a microsecond at least before it does (see [`Course`]); and by `poll`, which does not wait
    /// for time to pass while it watches, the driver is asked between any two decisions.
    #[inline(never)]
    pub(super) fn decide(&mut self, now: Instant) -> Action {
        if let (Ahead::Known(adaptive), Some(adapt)) = (&mut self.ahead, self.report.plan.adapt()) {
            let elapsed = now.since(self.started);
            match adaptive.known.course(&adapt, elapsed, self.report.sleeps == 0) {
                Course::Sleep { until, wanted } => {
                    self.report.sleeps += 1;
                    (adaptive.slept, adaptive.wanted) = (now, wanted);
                    self.wake = self.started + until;
                    return self.sleep(now);
                }
                Course::Watch(until) => self.review_at(self.started + until),
            }
        }
        self.watch(now)
    }

    /// By `+adapt`: decides anew at that moment.
    pub(super) fn review_at(&mut self, at: Instant) {
        if let Ahead::Known(adaptive) = &mut self.ahead {
            adaptive.review = at;
            self.due = at.min(adaptive.ask);
        }
    }

    /// By `+adapt`: asks the driver at that moment.
    pub(super) fn set_ask(&mut self, at: Instant) {
        if let Ahead::Known(adaptive) = &mut self.ahead {
            adaptive.ask = at;
            self.due = at.min(adaptive.review);
        }
    }

    /// The sleep has ended: learns how late, then looks whether it was too long.
    #[inline(never)]
    pub(super) fn learn(&mut self, now: Instant) -> Action {
        // A sleep that somebody or the deadline ended early says nothing of the timer. (Until the end of the former nothing is decided.)
        if let Ahead::Known(adaptive) = &self.ahead
            && now >= adaptive.review.max(self.wake)
        {
            // With a token to look at it slept in pieces.
            let length = self.wake.since(adaptive.slept).min(self.look_every);
            let [length, wanted, late] =
                [length, adaptive.wanted, self.report.overshoot].map(Nanos::as_nanos);
            let late_pct = self.report.plan.adapt().map_or(1, |adapt| u64::from(adapt.late_pct()));
            adaptive.known.oversleep.at(late_pct).learn(length, wanted, late);
        }
        self.look(now)
    }

    /// Over: lets go of what it knows before the table learns, which then need not keep it apart.
    #[inline(never)]
    pub(super) fn forget(&mut self) -> Action {
        self.ahead = Ahead::Nothing;
        Action::Finish(self.report)
    }
}
