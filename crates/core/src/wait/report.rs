//! What a wait did.

use core::fmt::Display;

use crate::error::{Error, ErrorCode};
use crate::line::{LineRef, MemoryDescriptor};
use crate::plan::{Authority, WaitPlan};
use crate::time::{Instant, Nanos};

/// How a wait that ended well came to know.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The driver's blocking wait returned.
    Blocked,
    /// The first query said done.
    Immediate,
    /// Done when the predicted sleep ended: the residual is known only to lie below.
    Late,
    /// Seen while the word was watched, or the status polled, and confirmed by the driver.
    Parked,
    /// Seen on a word that is the authority.
    Trusted,
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    /// The point is done.
    Done(Outcome),
    /// The deadline came first.
    TimedOut,
    /// The token was cancelled first.
    Cancelled,
    /// A driver call failed.
    Failed,
    /// The driver says done again and again, but the trusted word never came.
    StoreLost,
}

/// What is known of a point's residual: the time from the start of its wait to its completion, for which a word that the driver then
/// confirms counts when it was seen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Residual {
    /// Watched as it happened.
    Exact(Nanos),
    /// Over when the predicted sleep ended: censored.
    AtMost {
        /// When the wait woke, from its start.
        wake: Nanos,
        /// The residual that the sleep was made for.
        prediction: Nanos,
    },
    /// Over when a sleep by `+adapt` ended.
    Between {
        /// When the sleep began, from the start of the wait: it was not over then, as far as was known.
        pending: Nanos,
        /// When the wait woke, from its start.
        wake: Nanos,
    },
    /// Found by a query some time after the one before: at least this long, which was the last answer "pending".
    AtLeast(Nanos),
}

/// What a wait did: how it ended and what that took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// How it ended.
    pub end: End,
    /// Under which plan.
    pub plan: WaitPlan,
    /// Whose word counted at the end: the plan's authority, or the driver where no word could be armed.
    pub authority: Authority,
    /// From the start to the end.
    pub elapsed: Nanos,
    /// The point's residual as far as it is known; `None` for a blocking wait and for one that did not end well.
    pub residual: Option<Residual>,
    /// How far past its moment the last sleep ended, of those ahead of the end.
    pub overshoot: Nanos,
    /// Status queries made.
    pub queries: u64,
    /// Parks on the word.
    pub parks: u64,
    /// Sleeps ahead of the end: 0 or 1 by `+predict`, any number by `+adapt`.
    pub sleeps: u32,
    /// Whether it had its port warm up what the next submission needs, by `+warm`.
    pub warmed: bool,
}

impl Report {
    pub(super) fn new(plan: &WaitPlan) -> Self {
        Self {
            end: End::Failed,
            plan: *plan,
            authority: plan.authority(),
            elapsed: Nanos::ZERO,
            residual: None,
            overshoot: Nanos::ZERO,
            queries: 0,
            parks: 0,
            sleeps: 0,
            warmed: false,
        }
    }

    /// How the wait came to know, `None` where it did not end well.
    pub fn outcome(&self) -> Option<Outcome> {
        match self.end {
            End::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// With the residual as the device told it, of a wait that began at `started` and ended well: its work ended at `at`.
    ///
    /// No later than the wait learned of it: where two clocks are known to be apart only to within something, `at` may say so.
    #[must_use]
    pub fn ended_at(mut self, started: Instant, at: Option<Instant>) -> Self {
        if let (End::Done(_), Some(at)) = (self.end, at) {
            self.residual = Some(Residual::Exact(at.since(started).min(self.elapsed)));
        }
        self
    }

    /// What whoever awaits gets: the report where the wait ended well, else its error.
    ///
    /// `fault` is what a failed driver call returned, `point` the word that was awaited, if any, for the error's text.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Timeout`], [`ErrorCode::Cancelled`], [`ErrorCode::StoreLost`], or `fault` for a wait that failed: a timeout
    /// where no `fault` is handed in.
    pub fn into_result<L: LineRef>(
        self,
        point: Option<&MemoryDescriptor<L>>,
        fault: Option<Error>,
    ) -> Result<Self, Error> {
        const NO_WORD: &dyn Display = &"(none: no word was armed)";
        // Not looked at where nobody is told: in a fork's child it is not there.
        let end = match (self.end, fault) {
            (End::Done(_), _) => return Ok(self),
            (End::Failed, Some(fault)) => return Err(fault),
            (end, _) => end,
        };
        let (seq, word) = match point {
            Some(point) => (&point.seq() as &dyn Display, &point.word() as &dyn Display),
            None => (NO_WORD, NO_WORD),
        };
        Err(match end {
            End::Cancelled => Error::new(ErrorCode::Cancelled, [seq, word, &self.elapsed]),
            End::StoreLost => Error::new(ErrorCode::StoreLost, [seq, word]),
            _ => Error::new(ErrorCode::Timeout, [seq, word, &self.elapsed]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device's stamp that was carried over to the host's clock was 1 us past the end of the wait that had seen it.
    #[test]
    fn an_end_is_no_later_than_the_wait_that_saw_it() {
        let at = |us: u64| Instant::from_nanos(us * 1_000);
        let plan: WaitPlan = "poll".parse().unwrap();
        let mut report = Report::new(&plan);
        report.end = End::Done(Outcome::Parked);
        report.elapsed = Nanos::from_micros(500);
        let residual = |ended| report.ended_at(at(100), Some(at(ended))).residual;
        assert_eq!(residual(400), Some(Residual::Exact(Nanos::from_micros(300))));
        assert_eq!(residual(601), Some(Residual::Exact(Nanos::from_micros(500))));
        assert_eq!(residual(20), Some(Residual::Exact(Nanos::ZERO)), "it was over before the wait began");
        report.end = End::TimedOut;
        assert_eq!(report.ended_at(at(100), Some(at(400))).residual, None);
    }
}
