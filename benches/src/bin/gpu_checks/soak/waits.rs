//! Tasks that wait for points of streams, each wait judged by what its work has written.
//!
//! A kernel stores a number, or a copy brings bytes, where the host can see them; a wait that ends well before they are there ended too soon. One that is
//! not told for [`LOST`] is lost.

use core::future::poll_fn;
use core::task::Poll;

use wakeline_benches::draws::Draws;
use wakeline_benches::gpu::PLANS;
use wakeline_core::{Authority, Clock, Error, ErrorCode, Instant, Mode, Nanos, Report, Seq, WaitPlan};
use wakeline_cuda::{CuStream, CudaKernelWord, CudaPort, Readback};
use wakeline_std::{Point, StdClock};

use super::hosts::Waits;
use super::load::{LATE_MAX, Load, Stop, Tally};
use super::raw::foreign;
use crate::own::LOST;

/// Beside those that all checks have: plans that learn when to look.
const ADAPTIVE: [&str; 2] = [
    "flag:park_us=100,backstop_us=2000+adapt:late_pct=2,guard_us=5,min_sleep_us=20,max_sleep_us=5000,window=16",
    "flag:park_us=100,backstop_us=2000+adapt:late_pct=2,guard_us=5,min_sleep_us=20,max_sleep_us=5000,window=16+trust",
];

/// How many points of a stream are outstanding at a time, at most.
const BATCH_MAX: u64 = 6;

/// How long kernels take at most: most of them, and one in [`LONG_ONE_IN`].
const LENGTH_NS_MAX: u64 = 30_000;
const LONG_NS_MAX: u64 = 3_000_000;
const LONG_ONE_IN: u64 = 64;

/// After how many batches a task takes another stream; every other time it lets go of one that is busy.
const BATCHES_A_STREAM: u64 = 400;

/// How much a copy brings.
const COPY_BYTES: usize = 4 << 10;

/// Bytes come again after so many copies: a prime.
const BYTES: u64 = 251;

/// How many futures a task forgets: each keeps a stream for ever.
const FORGOTTEN_MAX: u32 = 4;

/// What a wait is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    /// The point behind a kernel that stores a number.
    Point,
    /// The same, without an event, for who trusts the word.
    Word,
    /// The number itself, under way.
    Kernel,
    /// The point behind a copy to the host.
    Copy,
}

/// One wait, as drawn.
#[derive(Debug)]
pub(super) struct Drawn {
    pub(super) plan: WaitPlan,
    /// Of the plans.
    number: usize,
    by: By,
    length: Nanos,
    deadline: Option<Nanos>,
    pub(super) late_us: Option<u64>,
    pub(super) early_wake: Option<bool>,
    cancelled: bool,
    /// Let go of after so many polls that pended.
    drop_after: Option<u64>,
    forgets: bool,
    spurious: u64,
    /// It begins when its work is over.
    begins_late: bool,
}

impl Drawn {
    pub(super) fn is_kernel_point(&self) -> bool {
        self.by == By::Kernel
    }

    fn new(draws: &mut Draws, plans: &[WaitPlan]) -> Self {
        let one_in = |draws: &mut Draws, n: u64| draws.between(1, n) == 1;
        let number = draws.between(0, plans.len() as u64 - 1);
        let number = usize::try_from(number).unwrap_or_default();
        let plan = plans[number];
        let by = match (plan.mode(), draws.between(0, 9)) {
            (_, 0) => By::Copy,
            (Mode::Flag { .. }, 1 | 2) => By::Kernel,
            (Mode::Flag { .. }, 3..=5) if plan.authority() == Authority::Word => By::Word,
            _ => By::Point,
        };
        let most = if one_in(draws, LONG_ONE_IN) { LONG_NS_MAX } else { LENGTH_NS_MAX };
        let mut maybe = |n, most| (draws.between(1, n) == 1).then(|| draws.between(0, most));
        let deadline = maybe(16, 400_000).map(Nanos::from_nanos);
        let (late_us, drop_after, spurious) = (maybe(8, 500), maybe(16, 3), maybe(8, 3).unwrap_or(0));
        let early_wake = maybe(4, 1).map(|yes| yes == 1);
        let (cancelled, begins_late) = (one_in(draws, 24), one_in(draws, 8));
        let (forgets, length) = (one_in(draws, 16), Nanos::from_nanos(draws.between(0, most)));
        Self {
            plan,
            number,
            by,
            length,
            deadline,
            late_us,
            early_wake,
            cancelled,
            drop_after,
            forgets,
            spurious,
            begins_late,
        }
    }
}

/// A stream with what its work writes.
struct Place {
    stream: CuStream,
    mark: CudaKernelWord,
    number: Seq,
    readback: Readback,
    byte: u8,
}

impl Place {
    fn new(load: &Load, draws: &mut Draws) -> Result<Self, Error> {
        let context = &load.own.context;
        let stream = match draws.between(0, 3) {
            0 => foreign(context)?,
            1 => context.stream_with_priority(-1)?,
            _ => context.stream()?,
        };
        let mark = context.kernel_word()?;
        let number = mark.reads();
        Ok(Self { readback: Readback::new(&stream, COPY_BYTES)?, stream, mark, number, byte: 0 })
    }

    /// Enqueues the work of a wait, and gives its point and the mark that its work leaves.
    fn launch(&mut self, load: &Load, drawn: &Drawn) -> Result<(CudaPort, Mark), Error> {
        let mark = if drawn.by == By::Copy {
            self.byte = u8::try_from(u64::from(self.byte) % BYTES + 1).unwrap_or(1);
            load.own.kernels.occupy(&self.stream, drawn.length)?;
            self.readback.launch(self.byte)?;
            Mark::Byte(self.byte)
        } else {
            self.number = self.number.next();
            load.own.kernels.store_word(&self.stream, &self.mark, self.number.get(), drawn.length)?;
            Mark::Number(self.number)
        };
        let flag = matches!(drawn.plan.mode(), Mode::Flag { .. });
        let port = match drawn.by {
            By::Kernel => self.mark.port(&self.stream, self.number)?,
            By::Word => self.stream.word_port()?,
            // One in eight is armed by the wait.
            By::Point | By::Copy if flag && drawn.spurious != 1 => self.stream.armed_port()?,
            By::Point | By::Copy => self.stream.port()?,
        };
        Ok((port, mark))
    }

    fn shows(&self, mark: Mark) -> bool {
        match mark {
            Mark::Number(number) => self.mark.reads().reached(number),
            Mark::Byte(byte) => self.readback.stale_bytes(byte) == 0,
        }
    }
}

/// What work leaves where the host sees it.
#[derive(Clone, Copy, Debug)]
enum Mark {
    Number(Seq),
    Byte(u8),
}

/// One task: one batch of waits after another, until it is told to stop.
pub(super) async fn waits(load: &Load, host: &impl Waits, name: &str, task: u64) {
    let mut tally = Tally::default();
    let result = Task::new(load, host, name, task).map_err(Stop::from);
    let result = match result {
        Ok(mut task) => task.works(&mut tally).await,
        Err(stop) => Err(stop),
    };
    load.ended(&format!("{name}, task {task}"), tally, result);
}

struct Task<'l, H> {
    load: &'l Load,
    host: &'l H,
    name: &'l str,
    draws: Draws,
    plans: Vec<WaitPlan>,
    /// What is learned of each plan's waits.
    points: Vec<Point>,
    names: Vec<String>,
    forgotten: u32,
}

impl<'l, H: Waits> Task<'l, H> {
    fn new(load: &'l Load, host: &'l H, name: &'l str, task: u64) -> Result<Self, Error> {
        let plans: Vec<WaitPlan> =
            PLANS.iter().chain(&ADAPTIVE).map(|text| text.parse()).collect::<Result<_, _>>()?;
        let points = plans.iter().map(|_| Point::new("soak")).collect();
        let names = plans.iter().map(WaitPlan::to_string).collect();
        Ok(Self { load, host, name, draws: Draws::new(load.seed, task), plans, points, names, forgotten: 0 })
    }

    async fn works(&mut self, tally: &mut Tally) -> Result<(), Stop> {
        while self.load.goes_on() {
            let mut place = Place::new(self.load, &mut self.draws)?;
            for _ in 0..BATCHES_A_STREAM {
                if !self.load.goes_on() {
                    break;
                }
                self.batch(&mut place, tally).await?;
            }
            if self.draws.between(0, 1) == 0 {
                // What is let go of has work left.
                self.load.own.kernels.occupy(&place.stream, Nanos::from_micros(200))?;
                drop(place.stream.armed_port()?);
            }
        }
        Ok(())
    }

    async fn batch(&mut self, place: &mut Place, tally: &mut Tally) -> Result<(), Stop> {
        let size = self.draws.between(1, BATCH_MAX);
        let mut batch = Vec::new();
        let mut copied = false;
        for _ in 0..size {
            let mut drawn = Drawn::new(&mut self.draws, &self.plans);
            // A copy's bytes are those of the last.
            if copied && drawn.by == By::Copy {
                drawn.by = By::Point;
            }
            copied |= drawn.by == By::Copy;
            let (port, mark) = place.launch(self.load, &drawn)?;
            batch.push(Some((port, mark, drawn)));
        }
        for number in self.draws.shuffled(batch.len()) {
            if let Some((port, mark, drawn)) = batch[number].take() {
                self.one(place, port, mark, &drawn, tally).await?;
            }
        }
        Ok(())
    }

    async fn one(
        &mut self,
        place: &Place,
        port: CudaPort,
        mark: Mark,
        drawn: &Drawn,
        tally: &mut Tally,
    ) -> Result<(), Stop> {
        let clock = StdClock::new();
        if drawn.begins_late {
            let until = clock.now() + LOST;
            while !place.shows(mark) {
                // In a context that fails it never comes.
                place.stream.ready()?;
                if clock.now() > until {
                    return Err(Stop::Broken(format!("its work is not over after {LOST}: {drawn:?}")));
                }
                std::thread::yield_now();
            }
        }
        let begun = clock.now();
        let deadline = begun + drawn.deadline.unwrap_or(LOST);
        let token = self.host.token(drawn.length.as_nanos().is_multiple_of(2));
        let cancel = drawn.cancelled.then_some(&token);
        let point = &self.points[drawn.number];
        let mut wait = Box::pin(self.host.wait(port, drawn, point, deadline, cancel));
        let (mut drop_after, mut spurious) = (drawn.drop_after, drawn.spurious);
        let ended = poll_fn(|context| {
            if drop_after == Some(0) {
                return Poll::Ready(None);
            }
            match wait.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending => {
                    drop_after = drop_after.map(|left| left - 1);
                    if spurious > 0 || drop_after == Some(0) {
                        spurious = spurious.saturating_sub(1);
                        context.waker().wake_by_ref();
                    }
                    if drawn.cancelled {
                        token.cancel();
                    }
                    Poll::Pending
                }
            }
        })
        .await;
        let (now, shown) = (clock.now(), place.shows(mark));
        let Some(result) = ended else {
            let forgets = drawn.forgets && H::FORGETS && self.forgotten < FORGOTTEN_MAX;
            if forgets {
                self.forgotten += 1;
                core::mem::forget(wait);
            }
            tally.ended(if forgets { "forgotten" } else { "dropped" });
            return Ok(());
        };
        drop(wait);
        self.load.count();
        tally.count(self.name, &self.names[drawn.number], now.since(begun));
        match result {
            // The driver may tell of a fault long after the stores behind it are lost.
            Err(error) if self.load.is_to_fault() && shown && error.code() == ErrorCode::StoreLost => {
                tally.ended("store lost by a fault");
                Ok(())
            }
            result => judge(drawn, result, shown, (begun, deadline, now), tally),
        }
    }
}

/// Whether a wait may end so; its mark was looked at afterwards.
fn judge(
    drawn: &Drawn,
    result: Result<Report, Error>,
    shown: bool,
    (begun, deadline, now): (Instant, Instant, Instant),
    tally: &mut Tally,
) -> Result<(), Stop> {
    let error = match result {
        Ok(_) if !shown => return Err(Stop::Broken(format!("Ok before its work: {drawn:?}"))),
        Ok(_) => {
            tally.ended("done");
            if drawn.begins_late {
                return beyond(&mut tally.beyond_work_us, now.since(begun), "its work", drawn);
            }
            return Ok(());
        }
        Err(error) => error,
    };
    match error.code() {
        ErrorCode::Timeout if now < deadline => {
            Err(Stop::Broken(format!("a time-out before its deadline: {drawn:?}")))
        }
        ErrorCode::Timeout if drawn.deadline.is_some() => {
            tally.ended("timed out");
            let past = now.since(deadline.max(begun));
            beyond(&mut tally.beyond_deadline_us, past, "its deadline", drawn)
        }
        ErrorCode::Timeout | ErrorCode::StoreLost => {
            Err(Stop::Broken(format!("lost, its work is over: {shown}: {error}: {drawn:?}")))
        }
        ErrorCode::Cancelled if drawn.cancelled => {
            tally.ended("cancelled");
            Ok(())
        }
        _ => Err(Stop::Error(error)),
    }
}

fn beyond(most_us: &mut u64, past: Nanos, what: &str, drawn: &Drawn) -> Result<(), Stop> {
    *most_us = (*most_us).max(past.as_micros());
    if past <= LATE_MAX {
        return Ok(());
    }
    Err(Stop::Broken(format!("it ended {past} after {what}: {drawn:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wakeline_benches::gpu::TRUSTED;
    use wakeline_core::{End, Outcome};

    fn drawn(deadline: Option<Nanos>) -> Drawn {
        Drawn {
            plan: TRUSTED.parse().unwrap(),
            number: 0,
            by: By::Point,
            length: Nanos::ZERO,
            deadline,
            late_us: None,
            early_wake: None,
            cancelled: false,
            drop_after: None,
            forgets: false,
            spurious: 0,
            begins_late: true,
        }
    }

    #[test]
    fn what_is_too_early_lost_late_or_without_a_cause_does_not_hold() {
        let plan: WaitPlan = TRUSTED.parse().unwrap();
        let report = Report {
            end: End::Done(Outcome::Trusted),
            plan,
            authority: plan.authority(),
            elapsed: Nanos::ZERO,
            residual: None,
            overshoot: Nanos::ZERO,
            queries: 0,
            parks: 0,
            sleeps: 0,
            warmed: false,
        };
        let at = |ms: u64| Instant::ORIGIN + Nanos::from_millis(ms);
        let judged = |drawn: &Drawn, result, shown, now| {
            judge(drawn, result, shown, (at(0), at(10), now), &mut Tally::default())
        };
        let (free, bounded) = (drawn(None), drawn(Some(Nanos::from_millis(10))));
        let error = |code| match code {
            ErrorCode::Timeout | ErrorCode::Cancelled => Err(Error::new(code, [&1, &0, &2])),
            _ => Err(Error::new(code, [&1, &0])),
        };
        judged(&free, Ok(report), true, at(1)).unwrap();
        judged(&bounded, error(ErrorCode::Timeout), false, at(10)).unwrap();
        for (drawn, result, shown, now) in [
            (&free, Ok(report), false, at(1)),
            (&free, Ok(report), true, at(2_001)),
            (&free, error(ErrorCode::Timeout), true, at(11)),
            (&free, error(ErrorCode::StoreLost), false, at(1)),
            (&bounded, error(ErrorCode::Timeout), false, at(9)),
            (&bounded, error(ErrorCode::Timeout), false, at(2_011)),
        ] {
            assert!(matches!(judged(drawn, result, shown, now), Err(Stop::Broken(_))));
        }
        let other = judged(&free, error(ErrorCode::Cancelled), true, at(1));
        assert!(matches!(other, Err(Stop::Error(_))), "nobody cancelled it");
    }
}
