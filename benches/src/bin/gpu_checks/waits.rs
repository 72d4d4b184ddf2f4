//! Check `waits`: no wait is lost, and none ends before its work.
//!
//! Each kernel stores a number where the host can see it; who awaits the point behind it finds that number there, or it ended too soon. A wait whose end is
//! not told for a long time is lost.

use std::io::Write;

use serde::Serialize;
use wakeline_benches::gpu::{Failure, Gpu, Host, PLANS, learned};
use wakeline_core::{Clock, Error, Mode, Nanos, Outcome, Report, WaitPlan};
use wakeline_cuda::CudaPort;
use wakeline_std::{Point, StdClock, StdIdle, Watcher, WatcherHandle};

use crate::args::Check;
use crate::output::{Output, Verdict};
use crate::own::{LOST, Own, is_lost, joined, share};

/// How many threads wait at once, each for points of a stream of its own; the last of them by a watcher.
const THREADS: u64 = 8;
const WATCHED: u64 = 2;

/// How many points are outstanding on a stream at a time.
const BATCH: usize = 4;

/// How long kernels take at most.
const LENGTH_NS_MAX: u64 = 30_000;

/// What plans that predict are told to expect: longer than it takes, so that some sleep for too long.
const EXPECTED: Nanos = Nanos::from_micros(160);

/// What was seen.
#[derive(Clone, Default, Debug, Serialize)]
struct Seen {
    waits: u64,
    lost: u64,
    wrong: u64,
    /// Those that were over when they were first looked at.
    immediate: u64,
    longest_us: u64,
    /// By the plans, in their order.
    by_plan: [u64; PLANS.len()],
}

impl Seen {
    fn add(mut self, other: &Self) -> Self {
        self.waits += other.waits;
        self.lost += other.lost;
        self.wrong += other.wrong;
        self.immediate += other.immediate;
        self.longest_us = self.longest_us.max(other.longest_us);
        self.by_plan.iter_mut().zip(other.by_plan).for_each(|(sum, one)| *sum += one);
        self
    }

    fn count(&mut self, plan: usize, result: Result<Report, Error>, is_done: bool) -> Result<(), Error> {
        self.waits += 1;
        self.by_plan[plan] += 1;
        match result {
            Ok(report) => {
                self.wrong += u64::from(!is_done);
                self.immediate += u64::from(report.outcome() == Some(Outcome::Immediate));
                self.longest_us = self.longest_us.max(report.elapsed.as_micros());
            }
            Err(error) if is_lost(&error) => self.lost += 1,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn broken(&self, asked: u64) -> Option<String> {
        let Self { waits, lost, wrong, .. } = *self;
        (lost > 0 || wrong > 0 || waits != asked)
            .then(|| format!("of {waits} waits {lost} were lost, {wrong} ended before their work"))
    }
}

pub(crate) fn waits(output: &mut Output<impl Write>, gpu: &Gpu, waits: u64) -> Result<(), Failure> {
    let (own, watcher) = (Own::new(gpu)?, Watcher::new()?);
    let threads = std::thread::scope(|scope| {
        let wait = |index| {
            let handle = (index >= THREADS - WATCHED).then(|| watcher.handle());
            let own = &own;
            scope.spawn(move || wait_often(own, handle.as_ref(), share(waits, index, THREADS)))
        };
        joined((0..THREADS).map(wait).collect())
    })?;
    watcher.close(Watcher::CLOSE)?;
    let seen = threads.iter().fold(Seen::default(), Seen::add);
    output.tell(Verdict {
        check: Check::Waits,
        name: "none lost, none too early".to_owned(),
        count: seen.waits,
        broken: seen.broken(waits),
        detail: seen,
    })?;
    Ok(())
}

fn wait_often(own: &Own, watcher: Option<&WatcherHandle>, waits: u64) -> Result<Seen, Error> {
    let plans = PLANS.map(str::parse::<WaitPlan>);
    let plans = plans.into_iter().collect::<Result<Vec<_>, _>>()?;
    let points: Vec<_> = plans.iter().map(|plan| learned(plan, EXPECTED)).collect();
    let (stream, mark) = (own.context.stream()?, own.context.kernel_word()?);
    let idle = StdIdle::new(StdClock::new());
    let mut seen = Seen::default();
    let mut batch = Vec::new();
    let mut number = mark.reads();
    for wait in 0..waits {
        let plan = usize::try_from(wait % PLANS.len() as u64).unwrap_or_default();
        number = number.next();
        let length = Nanos::from_nanos(wait * 7_919 % LENGTH_NS_MAX);
        own.kernels.store_word(&stream, &mark, number.get(), length)?;
        let flag = matches!(plans[plan].mode(), Mode::Flag { .. });
        batch.push((if flag { stream.armed_port()? } else { stream.port()? }, plan, number));
        if batch.len() < BATCH && wait + 1 < waits {
            continue;
        }
        for (port, plan, number) in batch.drain(..) {
            let result = one(watcher, &idle, &plans[plan], port, &points[plan]);
            seen.count(plan, result, mark.reads().reached(number))?;
        }
    }
    Ok(seen)
}

fn one(
    watcher: Option<&WatcherHandle>,
    idle: &StdIdle,
    plan: &WaitPlan,
    port: CudaPort,
    point: &Point,
) -> Result<Report, Error> {
    match watcher {
        Some(watcher) => idle.block_on(watcher.wait(port, plan, point).deadline(watcher.now() + LOST)),
        None => Host::Inline.wait(plan, port, point, LOST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wakeline_core::ErrorCode;

    #[test]
    fn what_is_lost_or_too_early_or_missing_does_not_hold() {
        let mut seen = Seen::default();
        let timeout = Error::new(ErrorCode::Timeout, [&1, &0, &2]);
        seen.count(3, Err(timeout), false).unwrap();
        assert_eq!((seen.waits, seen.lost, seen.by_plan[3]), (1, 1, 1));
        assert!(seen.broken(1).unwrap().contains("1 were lost"));
        let fault = Error::new(ErrorCode::Backend, [&"cuda", &"cuStreamQuery", &"719"]);
        assert!(seen.count(3, Err(fault), false).is_err());
        let good = Seen { waits: 5, ..Seen::default() };
        assert_eq!(good.broken(5), None);
        assert!(good.broken(6).is_some() && Seen { wrong: 1, ..good }.broken(5).is_some());
    }
}
