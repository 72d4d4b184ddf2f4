//! Deciding, by what is known of a point, whether to sleep or to watch.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | [`Known`], and the decision of a wait that is still pending |
//! | `window.rs` | [`Window`]: the last residuals of a point, sorted |
//! | `oversleep.rs` | [`Oversleep`]: how late sleeps end on this host, by their length and by how many of them may be later |
//!
//! A wait shares what its point knows with the point's table, so it starts without a copy.
//! What it knows is a hint: what came too late for it makes a worse decision, never a wrong answer.

mod oversleep;
#[cfg(test)]
mod tests;
mod window;

use alloc::sync::Arc;

use crate::plan::Adapt;
use crate::time::Nanos;

pub(crate) use oversleep::Oversleep;
pub(crate) use window::{Sorted, Window};
use window::{ns, units};

/// [`Known::growth`] in a wait that goes by what is known.
pub(crate) const GROWTH: u64 = 2;

/// The next residuals whose spacing tells how sparse they are.
const NEIGHBOURS: usize = 4;

/// How many residuals a watch may pass at once before it is decided anew.
const CLUSTER_MAX: usize = 4;

/// How long a watch goes on behind what it is for: behind a residual that is known, so that its like is seen, and behind the moment from which
/// a nap is worth it. No watch is shorter: see [`Course`].
const BEHIND_NS: u64 = 500;

/// What is known of a point and its host, shared with the waits of the point.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) residuals: Sorted,
    /// What the next one is most likely not below, where that is more than the least of them; else zero.
    pub(crate) floor: u32,
    /// How fast sleeps may grow with the distance from the residual before: by so many hundredths for each percent of lateness and each residual
    /// that is left, and one. [`GROWTH`], or zero where the last wait was late for no reason that is known: then a sleep is a nap.
    pub(crate) growth: u64,
    pub(crate) oversleep: Arc<Oversleep>,
}

/// What a wait that is still pending is to do.
///
/// Either makes progress, so that no wait decides again and again at one moment: a sleep takes at least the plan's `min_sleep_us`, a watch at
/// least [`BEHIND_NS`]. What a decision is made by, the lateness of sleeps above all, may be another at the next one, so each is argued
/// by its own numbers alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Course {
    /// Sleep.
    Sleep {
        /// Until so long after the start.
        until: Nanos,
        /// It ends early by what sleeps of this length are late by.
        wanted: Nanos,
    },
    /// Watch, and decide again so long after the start.
    Watch(Nanos),
}

/// Past that a wait sleeps as long as it may, so that no product below overflows: 18 minutes.
const LONGEST_NS: u64 = 1 << 40;

/// A plan's fields, in nanoseconds but for the first.
#[derive(Clone, Copy)]
struct Limits {
    late_pct: u64,
    min: u64,
    max: u64,
    guard: u64,
}

impl Limits {
    #[inline]
    fn of(adapt: &Adapt) -> Self {
        let [guard, min, max] = [adapt.guard(), adapt.min_sleep(), adapt.max_sleep()].map(Nanos::as_nanos);
        Self { late_pct: u64::from(adapt.late_pct()), min, max, guard }
    }
}

/// What lies before the next residual that is known, in units.
#[derive(Clone, Copy)]
enum Gap {
    /// Nothing.
    First,
    /// What was tried out: that none ends before this.
    Tried { floor: u32 },
    /// Another, which has passed.
    Behind { last: u32 },
}

impl Known {
    /// How long after a moment, counted from the start, the next residual ends that is known.
    pub(crate) fn next(&self, elapsed: Nanos) -> Option<Nanos> {
        let (all, at) = (self.residuals.all(), units(elapsed.as_nanos()));
        let next = all.get(self.residuals.passed(at))?;
        Some(Nanos::from_nanos(ns(*next)) - elapsed)
    }

    /// What to do so long after the start; `fresh` says that the wait has not slept yet.
    ///
    /// About 200 instructions, of which 40 are a search in the window; past the sleeps, close to a residual, as many again.
    #[inline]
    pub(crate) fn course(&self, adapt: &Adapt, elapsed: Nanos, fresh: bool) -> Course {
        let (now, limits) = (elapsed.as_nanos(), Limits::of(adapt));
        if now > LONGEST_NS {
            return sleep(now, limits.max, limits.max);
        }
        let at = units(now);
        // Before the floor those below it do not count.
        let floor = Some(self.floor).filter(|floor| at < *floor);
        let passed = self.residuals.passed(floor.map_or(at, |floor| floor - 1));
        let (known, ahead) = self.residuals.all().split_at(passed);
        let Some(first) = ahead.first() else {
            return self.past(now, limits.late_pct, limits.min, limits.max);
        };
        let gap = match (floor, known.last()) {
            (Some(floor), _) => Gap::Tried { floor },
            (None, Some(last)) => Gap::Behind { last: *last },
            (None, None) => Gap::First,
        };
        self.among(limits, now, gap, *first, ahead, fresh)
    }

    /// It has passed everything known: naps grow with the time spent, each so that its end, late as sleeps are, stays within `late_pct`.
    ///
    /// One number decides what to do and when to decide again: the nap from which the shortest sleep fits in. It says when, where the nap is
    /// shorter, which is then ahead. How late a sleep of the nap's own length would be must not decide: sleeps of another length may be later by
    /// more than they are longer.
    #[inline(never)]
    fn past(&self, now: u64, late_pct: u64, min: u64, max: u64) -> Course {
        let oversleep = self.oversleep.at(late_pct);
        let (nap, least) = (now * late_pct / 100, min + oversleep.usual(min));
        if nap < least {
            oversleep.fade(min);
            return watch(now, when_napping(least, late_pct));
        }
        let length = nap.saturating_sub(oversleep.usual(nap));
        sleep(now, length.clamp(min, max), nap.min(max))
    }

    /// Some residuals lie `ahead`, of which this is the first.
    ///
    /// The next wait's residual is as likely in any of the gaps between `n` known ones as in another, so a sleep through a gap ends too late
    /// at one time in `left + 1`. What it may then cost on average is held to `late_pct` of what it slept, and within a gap ends are taken to
    /// lie near to its edges: a sleep grows with the distance from the residual before, and ends a bit ahead of the next.
    #[inline]
    fn among(&self, limits: Limits, now: u64, gap: Gap, first: u32, ahead: &[u32], fresh: bool) -> Course {
        let Limits { late_pct, min, max, guard } = limits;
        // At most as many as a window has, and one at least.
        let left = u32::try_from(ahead.len()).unwrap_or(u32::MAX).max(1);
        let odds = late_pct * (u64::from(left) + 1);
        let end = ns(first);
        // So long may a sleep be wherever in the gap the work ends, and where it has to end: ahead of the next residual.
        let grown = |since| (now * late_pct).max(since * (odds * self.growth)) / 100;
        let (limit, mut goal) = match gap {
            Gap::Tried { floor } => (end, ns(floor)),
            Gap::Behind { last } => (grown(now - ns(last)), end - ns((first - last) / left) / 4),
            // Nothing tells where before it that might be.
            Gap::First => (grown(end), end - ns(first / left) / 4),
        };
        if odds >= 200
            && let Some(behind) = ahead.get(usize::try_from(odds / 100 - 1).unwrap_or(0))
        {
            // Where many are left, behind some of them.
            goal = goal.max(ns(*behind));
        }
        let room = goal.saturating_sub(now + guard);
        let wanted = room.min(limit).min(max);
        let oversleep = self.oversleep.at(late_pct);
        let margin = oversleep.margin(wanted);
        // A long sleep is late by long: where a short one is not, by more than that is worth, it ends early and a short one follows.
        let in_two = wanted < limit && wanted > 4 * margin && margin > oversleep.margin(margin) + min;
        let early = if in_two { 2 * margin } else { margin };
        let length = limit.saturating_sub(margin).min(room.saturating_sub(early)).min(max);
        if length >= min {
            return sleep(now, length, wanted);
        }
        self.close(Limits { late_pct, min, max, guard }, now, gap, ahead, wanted, fresh)
    }

    /// It is close to what lies ahead, or just past what lies before: too close for a sleep of `wanted` to end in time.
    #[inline(never)]
    fn close(&self, limits: Limits, now: u64, gap: Gap, ahead: &[u32], wanted: u64, fresh: bool) -> Course {
        let Limits { late_pct, min, max, guard } = limits;
        let oversleep = self.oversleep.at(late_pct);
        let (odds, margin) = (late_pct * (ahead.len() as u64 + 1), oversleep.margin(wanted));
        // Where residuals are sparse, naps among them cost less than watching each of them does.
        let neighbours = ahead.len().min(NEIGHBOURS);
        let width = ns(ahead[neighbours - 1]) - now;
        let sparse = width * (odds * 2) / (100 * neighbours as u64);
        let length = sparse.min(now * late_pct / 100).saturating_sub(margin).min(width / 2).min(max);
        if length >= min {
            return sleep(now, length, wanted);
        }
        // Else what keeps it awake would be learned of no more.
        if fresh && wanted >= min {
            oversleep.fade(wanted);
        }
        // Until the next gap that is worth a sleep, or until a nap is.
        let need = units(min + margin + guard);
        let cluster = ahead.windows(2).take(CLUSTER_MAX).take_while(|pair| pair[1] - pair[0] < need).count();
        // The next residual lies ahead. What is late already is decided by other numbers: soon again.
        let soon = now + min;
        let short = min + oversleep.margin(min + oversleep.margin(min));
        let before = match gap {
            Gap::Behind { last } => Some(ns(last)),
            Gap::Tried { .. } | Gap::First => None,
        };
        let grown = before.map_or(u64::MAX, |last| {
            (short * 100).checked_div(odds * self.growth).map_or(u64::MAX, |grown| last + grown)
        });
        let until = (ns(ahead[cluster]) + BEHIND_NS)
            .min(grown.max(soon))
            .min(when_napping(short, late_pct).max(soon));
        watch(now, until)
    }
}

/// When a nap in proportion to the time spent is as long as that, and [`BEHIND_NS`] later: that long after now at least, where it is shorter now.
fn when_napping(length: u64, late_pct: u64) -> u64 {
    length * 100 / late_pct + BEHIND_NS
}

fn sleep(now: u64, length: u64, wanted: u64) -> Course {
    Course::Sleep { until: Nanos::from_nanos(now.saturating_add(length)), wanted: Nanos::from_nanos(wanted) }
}

fn watch(now: u64, until: u64) -> Course {
    debug_assert!(until >= now + BEHIND_NS, "a watch that takes no time");
    Course::Watch(Nanos::from_nanos(until))
}
