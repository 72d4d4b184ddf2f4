//! Whether a wait ended as it may.

use wakeline_core::{Authority, Error, ErrorCode, Instant, Mode, Nanos, Report};
use wakeline_sim::Truth;

use super::{Drawn, LATE_MAX, Summary};

/// How a wait ended.
#[derive(Debug)]
pub(super) struct End {
    pub(super) start: Instant,
    pub(super) now: Instant,
    pub(super) deadline: Option<Instant>,
    pub(super) truth: Truth,
}

impl End {
    /// How late it was, unless too late.
    fn within(&self, bound: Instant, what: &str) -> Result<Nanos, String> {
        let late = self.now.since(bound);
        if late <= LATE_MAX { Ok(late) } else { Err(format!("{what} {late} after its bound: {self:?}")) }
    }
}

pub(super) fn done(drawn: &Drawn, report: &Report, end: &End) -> Result<Nanos, String> {
    let Some(ended) = end.truth.ended_at.filter(|at| *at <= end.now) else {
        return Err(format!("Ok before the work was done: {end:?}"));
    };
    let by_word = report.authority == Authority::Word;
    if by_word && end.truth.stored_at.is_none() && end.truth.landed_at.is_none() {
        return Err(format!("Ok without the word: {end:?}"));
    }
    let known = if by_word { end.truth.landed_at.map_or(ended, |landed| ended.max(landed)) } else { ended };
    let slack = match report.plan.mode() {
        Mode::Flag { backstop, .. } => backstop + backstop + backstop,
        Mode::Block | Mode::Poll => Nanos::ZERO,
    };
    let longest = match (report.plan.predict(), report.plan.adapt()) {
        (Some(predict), _) => predict.max_sleep(),
        (None, adapt) => adapt.map_or(Nanos::ZERO, |adapt| adapt.max_sleep()),
    };
    let late = Nanos::from_micros(drawn.late.unwrap_or(0));
    end.within(known.max(end.start) + slack + longest + late, "a good end")
}

pub(super) fn failed(drawn: &Drawn, error: &Error, end: &End, summary: &mut Summary) -> Result<(), String> {
    match error.code() {
        ErrorCode::Timeout => match end.deadline {
            Some(deadline) if end.now >= deadline => {
                summary.timed_out += 1;
                summary.latest = summary.latest.max(end.within(deadline.max(end.start), "a time-out")?);
                Ok(())
            }
            _ => Err(format!("a time-out before its deadline: {end:?}")),
        },
        ErrorCode::Cancelled if drawn.cancelled => {
            summary.cancelled += 1;
            end.within(end.start, "a cancellation").map(|_| ())
        }
        ErrorCode::StoreLost if drawn.device == 2 && drawn.plan.authority() == Authority::Word => {
            summary.lost_stores += 1;
            Ok(())
        }
        ErrorCode::BlockUnbounded
            if drawn.device == 1
                && drawn.plan.mode() == Mode::Block
                && (drawn.deadline.is_some() || drawn.cancelled) =>
        {
            summary.refused += 1;
            Ok(())
        }
        _ => Err(format!("an error without its cause: {error}")),
    }
}
