//! What a wait may come to, and by when.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wakeline_core::{CANCEL_NS_MAX, Clock, Error, ErrorCode, Instant, Nanos};
use wakeline_sim::{SimDevice, VirtualTime};

use super::world::{Balance, Broken, Place, World};

/// Work of a device, and when it really ended.
#[derive(Clone)]
pub(crate) struct Work {
    time: VirtualTime,
    ended: Arc<AtomicU64>,
}

/// No such moment yet.
const NEVER: u64 = u64::MAX;

impl Work {
    pub(crate) fn new(world: &World<'_>) -> Self {
        Self { time: world.time.clone(), ended: Arc::new(NEVER.into()) }
    }

    /// The device has done it.
    pub(crate) fn end(&self) {
        self.ended.store(self.time.now().as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn ended_at(&self) -> Option<Instant> {
        Some(self.ended.load(Ordering::Relaxed)).filter(|at| *at != NEVER).map(Instant::from_nanos)
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
        if self.work.ended_at().is_none() && self.device.health().is_none() {
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
    /// How much later than its work it may end well.
    pub(crate) slack: Nanos,
}

impl Judged {
    /// A wait that begins now, with no limits.
    pub(crate) fn now(what: &'static str, world: &World<'_>, slack: Nanos) -> Self {
        let (begun, injected) = (world.now(), world.injected());
        Self { what, begun, injected, deadline: None, cancelled: None, slack }
    }

    /// Judges how it ended, just now, of work that ended at `ended` or did not.
    pub(crate) fn judge<T>(
        &self,
        world: &World<'_>,
        place: &Place,
        result: &Result<T, Error>,
        ended: Option<Instant>,
    ) {
        let mut summary = world.summary.get();
        summary.judged += 1;
        summary.done += u64::from(result.is_ok());
        world.summary.set(summary);
        if let Err(broken) = self.verdict(world, place, result.as_ref().map(|_| ()), ended) {
            let Self { what, begun, deadline, cancelled, .. } = self;
            let now = world.now();
            world.broken.note(|| {
                format!(
                    "{what} on {:?} {broken}: begun at {begun:?}, now {now:?}, work ended at {ended:?}, \
                     deadline {deadline:?}, cancelled {cancelled:?}",
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
        ended: Option<Instant>,
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
                let Some(ended) = ended.filter(|at| *at <= now) else {
                    return Err("was done before its work".to_owned());
                };
                return by(ended + self.slack, "was done");
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
