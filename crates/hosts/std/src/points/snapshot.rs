//! What points did, as plain data.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use wakeline_core::Nanos;

use super::prometheus;

/// What the points of a program did until a moment, and what else it counts.
///
/// Plain data: build it, filter it, add to it. Displays as text for people, a line a point; [`prometheus`](Self::prometheus) is the
/// text for that system.
///
/// ```
/// use wakeline_std::{Metric, Points};
/// let points = Points::new(8)?;
/// points.point("decode")?.abandoned();
/// let mut snapshot = points.snapshot();
/// snapshot.metrics.push(Metric::counter("watcher_registrations", "Waits handed to the watcher.", 3));
/// assert!(snapshot.to_string().starts_with("decode: 1 wait (1 abandoned)"));
/// let text = snapshot.prometheus();
/// assert!(text.contains("wakeline_waits_total{point=\"decode\",end=\"abandoned\"} 1\n"));
/// assert!(text.contains("wakeline_watcher_registrations_total 3\n"));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// Each point, in the order of the names. Names are to be different: as they are in one registry.
    pub points: Vec<PointSnapshot>,
    /// Counts that belong to no point; empty from [`Points::snapshot`](crate::Points::snapshot).
    pub metrics: Vec<Metric>,
}

impl Snapshot {
    /// The text exposition format of Prometheus, version 0.0.4, for a `Content-Type` of `text/plain; version=0.0.4`.
    ///
    /// | family | type | labels besides `point` |
    /// |---|---|---|
    /// | `wakeline_waits_total` | counter | `end`: each name of [`Counts::ends`] |
    /// | `wakeline_sleeps_total`, `wakeline_parks_total`, `wakeline_queries_total` | counter | |
    /// | `wakeline_wait_seconds`, `wakeline_overshoot_seconds` | histogram | `le`: [`WAIT_BOUNDS_NS`] in seconds, `+Inf` |
    /// | `wakeline_..`, one for each of `metrics` | as it is | none, nor `point` |
    ///
    /// Families stand in this order and points in theirs: equal snapshots give equal text. Any text is a point's name.
    ///
    /// Cost: about 25 us and 4 KiB a point.
    pub fn prometheus(&self) -> String {
        prometheus::text(self)
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.points.iter().try_for_each(|point| writeln!(f, "{point}"))?;
        self.metrics.iter().try_for_each(|metric| writeln!(f, "{}: {}", metric.name, metric.value))
    }
}

/// What a [`Point`](crate::Point) did until a moment.
///
/// ```
/// let point = wakeline_std::Point::new("decode");
/// point.abandoned();
/// point.abandoned();
/// assert_eq!(point.snapshot().to_string(), "decode: 2 waits (2 abandoned)");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PointSnapshot {
    /// What the point is called.
    pub name: String,
    /// How many of what.
    pub counts: Counts,
    /// How long the waits took that ended well.
    pub waited: Spread,
    /// How far past their moment predicted sleeps ended, of the waits that slept and ended well.
    pub overshoot: Spread,
}

impl fmt::Display for PointSnapshot {
    /// `decode: 3 waits (3 parked); waited 2.001 ms (p50), 2.003 ms (p99); 2 sleeps, overshoot ..`, in one line whatever the name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, counts, waited, overshoot } = self;
        let waits = counts.waits();
        write!(f, "{}: {waits} wait{}", name.escape_debug(), if waits == 1 { "" } else { "s" })?;
        let mut before = " (";
        for (end, count) in counts.ends().into_iter().filter(|(_, count)| *count > 0) {
            write!(f, "{before}{count} {}", end.replace('_', " "))?;
            before = ", ";
        }
        f.write_str(if waits > 0 { ")" } else { "" })?;
        if waited.count > 0 {
            write!(f, "; waited {waited}; {} parks, {} queries", counts.parks, counts.queries)?;
        }
        if overshoot.count > 0 {
            write!(f, "; {} sleeps, overshot by {overshoot}", counts.sleeps)?;
        }
        Ok(())
    }
}

/// How many waits ended in which way, and what the waits that ended well did.
///
/// ```
/// use wakeline_core::{Error, ErrorCode};
/// let point = wakeline_std::Point::new("decode");
/// point.observe(&Err(Error::new(ErrorCode::StoreLost, [&7, &6])));
/// let counts = point.snapshot().counts;
/// assert_eq!((counts.store_lost, counts.waits()), (1, 1));
/// assert!(counts.ends().contains(&("store_lost", 1)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Ended by the driver's blocking wait: [`Outcome::Blocked`](wakeline_core::Outcome::Blocked), and so on.
    pub blocked: u64,
    /// Done at the first query.
    pub immediate: u64,
    /// Done when the predicted sleep ended.
    pub late: u64,
    /// Seen while the word was watched or the status polled.
    pub parked: u64,
    /// Seen on a trusted word.
    pub trusted: u64,
    /// The deadline came first.
    pub timed_out: u64,
    /// The token was cancelled first.
    pub cancelled: u64,
    /// A trusted word was not stored though the driver says done.
    pub store_lost: u64,
    /// Any other error.
    pub failed: u64,
    /// Dropped before the end.
    pub abandoned: u64,
    /// Predicted sleeps.
    pub sleeps: u64,
    /// Parks on the word.
    pub parks: u64,
    /// Status queries.
    pub queries: u64,
}

impl Counts {
    /// How many waits ended in any way, or were dropped.
    pub fn waits(&self) -> u64 {
        self.ends().iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// The ways to end, by name: well first, each wait in exactly one.
    pub const fn ends(&self) -> [(&'static str, u64); 10] {
        [
            ("blocked", self.blocked),
            ("immediate", self.immediate),
            ("late", self.late),
            ("parked", self.parked),
            ("trusted", self.trusted),
            ("timed_out", self.timed_out),
            ("cancelled", self.cancelled),
            ("store_lost", self.store_lost),
            ("failed", self.failed),
            ("abandoned", self.abandoned),
        ]
    }
}

/// The bounds of a [`Spread`]'s buckets in nanoseconds: 1, 2.5 and 5 in every decade from 1 us to 10 s.
///
/// ```
/// use wakeline_std::WAIT_BOUNDS_NS;
/// assert_eq!(WAIT_BOUNDS_NS[..4], [1_000, 2_500, 5_000, 10_000]);
/// assert_eq!(WAIT_BOUNDS_NS.last(), Some(&10_000_000_000));
/// ```
pub const WAIT_BOUNDS_NS: [u64; 22] = {
    let mut bounds = [0; 22];
    let (mut decade, mut place) = (1_000, 0);
    while place < bounds.len() {
        bounds[place] = match place % 3 {
            0 => decade,
            1 => decade * 5 / 2,
            _ => decade * 5,
        };
        if place % 3 == 2 {
            decade *= 10;
        }
        place += 1;
    }
    bounds
};

/// How times are spread. Quantiles and buckets are within 1 % from 1 us to 100 s, where times beyond count as these; the sum and
/// the highest are exact.
///
/// ```
/// use wakeline_std::{Point, Spread};
/// let waited = Point::new("decode").snapshot().waited;
/// assert_eq!(waited, Spread::default()); // no waits, and no time
/// assert_eq!(waited.to_string(), "0 ns (p50), 0 ns (p99)");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Spread {
    /// How many times there were. Without any all of the others are 0.
    pub count: u64,
    /// What they add up to; saturates.
    pub sum_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// What 90 % stay within.
    pub p90_ns: u64,
    /// What 99 % stay within: of fewer than 100 times, the highest.
    pub p99_ns: u64,
    /// The highest.
    pub max_ns: u64,
    /// How many are within each of [`WAIT_BOUNDS_NS`], those within the bounds before included.
    pub within: [u64; WAIT_BOUNDS_NS.len()],
}

impl Spread {
    /// Counts into the buckets.
    pub(super) fn add(&mut self, ns: u64, count: u64) {
        let first = WAIT_BOUNDS_NS.partition_point(|bound| *bound < ns);
        self.within.iter_mut().skip(first).for_each(|within| *within = within.saturating_add(count));
    }
}

impl fmt::Display for Spread {
    /// `2.001 ms (p50), 2.003 ms (p99)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99] = [self.p50_ns, self.p99_ns].map(Nanos::from_nanos);
        write!(f, "{p50} (p50), {p99} (p99)")
    }
}

/// A count that belongs to no point, of a watcher say.
///
/// ```
/// use wakeline_std::{Metric, Snapshot};
/// let metrics = vec![Metric::gauge("watcher_flights", "Waits that are pending now.", 2)];
/// let text = Snapshot { metrics, ..Snapshot::default() }.prometheus();
/// assert!(text.ends_with("# TYPE wakeline_watcher_flights gauge\nwakeline_watcher_flights 2\n"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// Lower-case letters, digits and `_`, the unit last. The text for Prometheus puts `wakeline_` before it and, of a counter,
    /// `_total` after it.
    pub name: &'static str,
    /// What it counts, in a sentence.
    pub help: &'static str,
    /// Whether it only rises.
    pub kind: MetricKind,
    /// How many.
    pub value: u64,
}

/// Whether a [`Metric`] only rises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// It only rises.
    Counter,
    /// It rises and falls.
    Gauge,
}

impl Metric {
    /// What only rises: how many there were in all.
    pub const fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, kind: MetricKind::Counter, value }
    }

    /// What rises and falls: how many there are now.
    pub const fn gauge(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, kind: MetricKind::Gauge, value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_point_is_told_in_one_line_whatever_its_name() {
        let counts = Counts {
            late: 1,
            parked: 2,
            store_lost: 1,
            sleeps: 3,
            parks: 5,
            queries: 9,
            ..Counts::default()
        };
        let waited = Spread { count: 3, p50_ns: 2_001_000, p99_ns: 5_250_000, ..Spread::default() };
        let overshoot = Spread { count: 3, p50_ns: 61_000, p99_ns: 99_000, ..Spread::default() };
        let points = alloc::vec![
            PointSnapshot { name: "a\nb: \"\\".into(), counts, waited, overshoot },
            PointSnapshot { name: String::new(), ..PointSnapshot::default() },
        ];
        let metrics = alloc::vec![Metric::counter("watcher_completions", "Waits that ended.", 4)];
        assert_eq!(
            Snapshot { points, metrics }.to_string(),
            "a\\nb: \\\"\\\\: 4 waits (1 late, 2 parked, 1 store lost); waited 2.001 ms (p50), 5.250 ms (p99); 5 parks, 9 \
             queries; 3 sleeps, overshot by 61.000 us (p50), 99.000 us (p99)\n: 0 waits\nwatcher_completions: 4\n"
        );
    }

    #[test]
    fn bounds_rise() {
        assert!(WAIT_BOUNDS_NS.windows(2).all(|pair| pair[0] < pair[1]), "{WAIT_BOUNDS_NS:?}");
    }
}
