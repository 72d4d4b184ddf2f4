//! Flights that their tasks have ended by themselves: let go of, with their seats and ports, though nobody has to be woken for it.
//!
//! A task that sees its end sets one flag, for all of them. A leader that is awake looks through its flights then, some in each turn; one that
//! sleeps is only woken where it would sleep for longer than [`STALE_NS_MAX`], which is where the end had come far sooner than expected.
//! Each flight that arrives has some looked at as well, so that however fast they come a third of those in flight is stale at most.

use wakeline_core::{Clock, Instant, Nanos};

use super::super::sync::Ordering;
use super::{Core, Shard};

/// How long after its end was seen a flight is still there at most, where the leader sleeps; and besides, [`SWEEP_NS_A_FLIGHT`] for each that is there.
const STALE_NS_MAX: u64 = 10_000_000;

/// How far apart two looks through all flights are at least: so long, and so long for each flight, so that they take a percent of the leader's time.
const SWEEP_NS_MIN: u64 = 1_000_000;
const SWEEP_NS_A_FLIGHT: u64 = 1_000;

/// How many flights are looked at in one turn, and how many for each arrival.
const SWEPT_PER_TURN: usize = 64;
const SWEPT_PER_ARRIVAL: usize = 4;

/// How far the looking has come.
#[derive(Debug)]
pub(super) struct Sweep {
    /// Whose turn it is.
    cursor: usize,
    /// How many are still to be looked at.
    left: usize,
    /// When the next look through all of them may begin.
    next_at: Instant,
    /// Some are to be looked for then.
    waits: bool,
}

impl Sweep {
    pub(super) const fn new() -> Self {
        Self { cursor: 0, left: 0, next_at: Instant::ORIGIN, waits: false }
    }

    /// When it goes on: at once, at a moment, or never.
    pub(super) const fn due(&self) -> Instant {
        match (self.left, self.waits) {
            (0, false) => Instant::MAX,
            (0, true) => self.next_at,
            _ => Instant::ORIGIN,
        }
    }
}

impl Shard {
    /// A task has ended its flight by itself; its awaiter says so by now.
    pub(in super::super) fn let_go(&self, clock: &impl Clock) {
        // A read-modify-write, so that whoever takes it back finds all ends of which it was told.
        if !self.stale.swap(true, Ordering::AcqRel) {
            self.door.ring(clock.now() + Nanos::from_nanos(STALE_NS_MAX));
        }
    }

    /// Whether some may have been ended by their tasks of which the leader has not heard: part of its last look before it sleeps.
    pub(in super::super) fn is_stale(&self, core: &Core) -> bool {
        !core.sweep.waits && self.stale.load(Ordering::Relaxed)
    }
}

impl Core {
    /// Looks at some flights, where there may be some to let go of.
    pub(super) fn sweep(&mut self, shard: &Shard, now: Instant) {
        if self.sweep.left == 0 {
            self.sweep.waits = shard.stale.load(Ordering::Relaxed);
            if !self.sweep.waits || now < self.sweep.next_at {
                return;
            }
            shard.stale.swap(false, Ordering::AcqRel);
            let count = self.entries.len();
            let apart = SWEEP_NS_MIN.max(SWEEP_NS_A_FLIGHT.saturating_mul(count as u64));
            let next_at = now + Nanos::from_nanos(apart);
            self.sweep = Sweep { left: count, next_at, waits: false, ..self.sweep };
        }
        let count = self.sweep.left.min(SWEPT_PER_TURN);
        self.sweep.left -= count;
        self.look_at(shard, count);
    }

    /// One more has arrived.
    pub(super) fn sweep_for_arrival(&mut self, shard: &Shard) {
        if shard.stale.load(Ordering::Relaxed) {
            self.look_at(shard, SWEPT_PER_ARRIVAL);
        }
    }

    fn look_at(&mut self, shard: &Shard, count: usize) {
        for _ in 0..count.min(self.entries.len()) {
            self.sweep.cursor =
                if self.sweep.cursor + 1 < self.entries.len() { self.sweep.cursor + 1 } else { 0 };
            let ended = self.entries[self.sweep.cursor].as_ref().is_some_and(|entry| entry.fly.ended());
            if let (true, Ok(number)) = (ended, u32::try_from(self.sweep.cursor)) {
                self.leave(shard, number);
            }
        }
    }
}
