//! What a wait may come to, and by when.
//!
//! A wait by `+predict` ends later than its work by what it has slept through where the prediction was wrong: by no more than [`max_sleep_us`](wakeline_core::Predict::max_sleep),
//! which is the promise. An operation is held to less, since its prediction comes of what was seen: by the time when it is *submitted*, which may be long after it was made or
//! first polled, where it waits for room.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wakeline_core::{CANCEL_NS_MAX, Clock, Error, ErrorCode, Instant, Mode, Nanos, WaitPlan};
use wakeline_sim::{SimDevice, VirtualTime};

use super::world::{Balance, Broken, Place, World};

/// Work of a device: when it really ended, and how long it may have been expected to take.
#[derive(Clone)]
pub(crate) struct Work {
    time: VirtualTime,
    ended: Arc<AtomicU64>,
    expected: Arc<AtomicU64>,
}

/// What is true of the work of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Truth {
    pub(crate) ended: Option<Instant>,
    /// No prediction was longer.
    pub(crate) expected: Nanos,
}

/// No such moment yet.
const NEVER: u64 = u64::MAX;

impl Work {
    /// Of a kind that nothing is known of, until it is [`submitted`](Self::submitted) as one of another.
    pub(crate) fn new(time: VirtualTime) -> Self {
        Self { time, ended: Arc::new(NEVER.into()), expected: Arc::default() }
    }

    /// It is submitted now, of a kind that may be known, as one of so many in flight. None is expected to take longer than all that was seen by now, and all may be in
    /// front of it. (The rate that a stream learns could make it more: in 6,000 programs, of 547,000 flights, it never did.)
    pub(crate) fn submitted(&self, in_flight: u64) {
        let seen = self.time.now().since(Instant::ORIGIN).as_nanos();
        self.expected.store(seen.saturating_mul(in_flight), Ordering::Relaxed);
    }

    /// The device has done it.
    pub(crate) fn end(&self) {
        self.ended.store(self.time.now().as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn truth(&self) -> Truth {
        let ended =
            Some(self.ended.load(Ordering::Relaxed)).filter(|at| *at != NEVER).map(Instant::from_nanos);
        Truth { ended, expected: Nanos::from_nanos(self.expected.load(Ordering::Relaxed)) }
    }
}

/// Kept by the flight of a work. Dropped too early, it says so.
pub(crate) struct Owner {
    work: Work,
    device: SimDevice,
    owners: Balance,
    broken: Broken,
}

impl Owner {
    pub(crate) fn of(work: &Work, device: SimDevice, owners: Balance, broken: Broken) -> Self {
        owners.begin();
        Self { work: work.clone(), device, owners, broken }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.owners.end();
        if self.work.truth().ended.is_none() && self.device.health().is_none() {
            self.broken.note(|| "what a flight keeps was let go before its work was done".to_owned());
        }
    }
}

/// A wait, as far as it is judged.
pub(crate) struct Judged {
    pub(crate) what: &'static str,
    pub(crate) begun: Instant,
    pub(crate) injected: Nanos,
    pub(crate) deadline: Option<Instant>,
    /// When its token was cancelled, and whether that rings whoever looks.
    pub(crate) cancelled: Option<(Instant, bool)>,
    /// How much later than its work it may end well, besides what it has slept through.
    pub(crate) slack: Nanos,
    /// The longest sleep of its plan.
    sleep_max: Nanos,
}

impl Judged {
    /// A wait that begins now, with no limits.
    pub(crate) fn now(what: &'static str, world: &World<'_>) -> Self {
        let (begun, injected) = (world.now(), world.injected());
        let (slack, sleep_max) = (Nanos::MAX, Nanos::ZERO);
        Self { what, begun, injected, deadline: None, cancelled: None, slack, sleep_max }
    }

    /// The same by this plan. A trusted store that is lost is found by two questions, and the third is asked by then.
    pub(crate) fn by(mut self, plan: &WaitPlan) -> Self {
        let backstop = match plan.mode() {
            Mode::Flag { backstop, .. } => backstop,
            Mode::Block | Mode::Poll => Nanos::ZERO,
        };
        self.slack = backstop + backstop + backstop;
        self.sleep_max = plan.predict().map_or(Nanos::ZERO, |predict| predict.max_sleep());
        self
    }

    /// By how much later than such work it may end well.
    fn late_max(&self, truth: Truth) -> Nanos {
        self.slack + self.sleep_max.min(truth.expected)
    }

    /// Judges how it ended, just now.
    pub(crate) fn judge<T>(&self, world: &World<'_>, place: &Place, result: &Result<T, Error>, truth: Truth) {
        let mut summary = world.summary.get();
        summary.judged += 1;
        summary.done += u64::from(result.is_ok());
        world.summary.set(summary);
        if let Err(broken) = self.verdict(world, place, result.as_ref().map(|_| ()), truth) {
            let Self { what, begun, deadline, cancelled, .. } = self;
            let (now, Truth { ended, expected }) = (world.now(), truth);
            world.broken.note(|| {
                format!(
                    "{what} on {:?} {broken}: begun at {begun:?}, now {now:?}, work ended at {ended:?}, \
                     expected to take {expected:?} at most, deadline {deadline:?}, cancelled {cancelled:?}",
                    place.how
                )
            });
        }
    }

    fn verdict(
        &self,
        world: &World<'_>,
        place: &Place,
        result: Result<(), &Error>,
        truth: Truth,
    ) -> Result<(), String> {
        let now = world.now();
        let by = |bound: Instant, what: &str| {
            // What calls took meanwhile, and for how long nobody had time to poll it.
            let injected = world.injected().as_nanos() - self.injected.as_nanos();
            let bound = bound.max(self.begun) + Nanos::from_nanos(injected) + world.delay.get();
            if now > bound { Err(format!("{what} {:?} after its bound", now.since(bound))) } else { Ok(()) }
        };
        if let Some(deadline) = self.deadline {
            by(deadline, "ended")?;
        }
        let error = match result {
            Ok(()) => {
                let Some(ended) = truth.ended.filter(|at| *at <= now) else {
                    return Err("was done before its work".to_owned());
                };
                return by(ended + self.late_max(truth), "was done");
            }
            Err(error) => error,
        };
        let failed = place.device.health().is_some();
        match error.code() {
            ErrorCode::Timeout => match self.deadline {
                Some(deadline) if now >= deadline => Ok(()),
                _ => Err("timed out before its deadline".to_owned()),
            },
            ErrorCode::Cancelled => match self.cancelled {
                Some((at, true)) => by(at, "was cancelled"),
                Some((at, false)) => by(at + Nanos::from_nanos(CANCEL_NS_MAX), "was cancelled"),
                None => Err("was cancelled by nobody".to_owned()),
            },
            ErrorCode::WatcherClosed | ErrorCode::Unwatched if world.closed.get() => Ok(()),
            ErrorCode::StoreLost => {
                let faults = place.device.config().faults;
                let astray = faults.lost_store_ppm > 0
                    || faults.late_store.ppm > 0
                    || faults.fault_at.is_some()
                    || faults.fault_at_call.is_some();
                if astray || failed {
                    Ok(())
                } else {
                    Err("a store was called lost for no reason".to_owned())
                }
            }
            _ if failed => Ok(()),
            _ => Err(format!("ended by an error without its cause: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use wakeline_ops::{Runtime, RuntimeConfig, SingleStream};
    use wakeline_sim::{SimConfig, VirtualWatcher};

    use super::super::steps::{operation, plan_of};
    use super::*;
    use crate::script::Script;
    use crate::swarm::WATCHING_STRICT;

    /// Polls it whenever something has happened, until it is ready.
    fn run<F: Future + Unpin>(world: &World<'_>, mut future: F) -> F::Output {
        loop {
            world.settle().unwrap();
            let polled = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
            if let Poll::Ready(output) = polled {
                return output;
            }
            world.pass(world.next().unwrap());
        }
    }

    /// One that was made, and had to wait for room, before anything was known of its kind is slept for by what is known when there is room.
    #[test]
    fn what_is_expected_of_an_operation_is_what_is_known_when_it_is_submitted() {
        let (script, time, plan) = (Script::all(), VirtualTime::new(), plan_of(WATCHING_STRICT));
        let device = SimDevice::new(time.clone(), SimConfig::exact()).unwrap();
        let watcher = VirtualWatcher::new(&device);
        let config = RuntimeConfig::default().plan(plan);
        let runtime = Runtime::with_config(device.clone(), &SingleStream, watcher.clone(), config).unwrap();
        let place = Place::new(WATCHING_STRICT, device, watcher.clone(), vec![runtime], vec![], 1);
        let world = World::new(0, &script, time, vec![place], vec![watcher]);
        let place = &world.places[0];
        let (short, long) = (Nanos::from_micros(1), Nanos::from_millis(20));

        let judged = Judged::now("an operation", &world).by(&plan);
        let (early, work) = operation(&world, place, place.runtime(), short, true);
        let (first, _) = operation(&world, place, place.runtime(), long, true);
        run(&world, first).unwrap();
        let result = run(&world, early);

        let truth = work.truth();
        let late = world.now().since(truth.ended.unwrap());
        assert!(late > judged.slack && late < long, "slept through its end: {late}");
        judged.judge(&world, place, &result, truth);
        assert_eq!(world.broken.take(), None);
        // It is the prediction alone that may make it as late.
        judged.judge(&world, place, &result, Truth { expected: Nanos::ZERO, ..truth });
        assert!(world.broken.take().unwrap().contains("after its bound"));
    }
}
