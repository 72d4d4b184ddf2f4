//! Numbers that were seen: counted for Prometheus since the start, and the last of them for quantiles.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How far back quantiles look, seconds.
pub const RECENT_S: u64 = 5;
/// How many numbers they look at, at most: those of the last 5 seconds at 13,000 a second.
const RECENT_MAX: usize = 1 << 16;

/// Counts by upper bounds, each of which counts itself.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One more than bounds: the last is of what is above all of them.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// With these bounds, in rising order.
    pub fn new(bounds: &'static [u64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    /// Counts one.
    pub fn observe(&self, number: u64) {
        let place = self.bounds.partition_point(|bound| *bound < number);
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(number, Ordering::Relaxed);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// All of them together.
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    /// As Prometheus reads it, in a unit that has so many of these.
    pub fn write(&self, text: &mut String, name: &str, help: &str, per_unit: f64) {
        let mut below = 0;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            below += count.load(Ordering::Relaxed);
            let _ = writeln!(text, "{name}_bucket{{le=\"{}\"}} {below}", scaled(*bound, per_unit));
        }
        below += self.counts.last().map_or(0, |count| count.load(Ordering::Relaxed));
        let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {below}");
        let _ = writeln!(text, "{name}_sum {}\n{name}_count {below}", scaled(self.sum(), per_unit));
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "for people, and sums of microseconds stay below 2^53 for 285 years"
)]
fn scaled(number: u64, per_unit: f64) -> f64 {
    number as f64 / per_unit
}

/// The numbers of the last seconds.
#[derive(Debug, Default)]
pub struct Recent {
    seen: Mutex<VecDeque<(Instant, u32)>>,
}

/// Some of their quantiles; 0 where there are none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Quantiles {
    /// Of how many.
    pub count: usize,
    /// The median.
    pub p50: u32,
    /// One in a hundred is larger.
    pub p99: u32,
    /// The largest.
    pub max: u32,
}

impl Recent {
    /// Keeps one that was seen at this moment.
    pub fn observe(&self, now: Instant, number: u64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() == RECENT_MAX {
            seen.pop_front();
        }
        seen.push_back((now, u32::try_from(number).unwrap_or(u32::MAX)));
    }

    /// Those of the last seconds before this moment.
    pub fn quantiles(&self, now: Instant) -> Quantiles {
        let is_old = |at: &Instant| now.saturating_duration_since(*at) > Duration::from_secs(RECENT_S);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        while seen.front().is_some_and(|(at, _)| is_old(at)) {
            seen.pop_front();
        }
        let mut numbers: Vec<u32> = seen.iter().map(|(_, number)| *number).collect();
        drop(seen);
        numbers.sort_unstable();
        // The smallest number that so many of a hundred do not exceed.
        let at = |percent: usize| {
            let place = (numbers.len() * percent).div_ceil(100).saturating_sub(1);
            numbers.get(place).copied().unwrap_or_default()
        };
        Quantiles { count: numbers.len(), p50: at(50), p99: at(99), max: at(100) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_count_themselves_and_what_is_above_all_is_infinite() {
        let histogram = Histogram::new(&[10, 20]);
        for number in [5, 10, 11, 20, 21, 1_000] {
            histogram.observe(number);
        }
        let mut text = String::new();
        histogram.write(&mut text, "x_seconds", "What.", 10.0);
        assert_eq!(
            text,
            "# HELP x_seconds What.\n# TYPE x_seconds histogram\nx_seconds_bucket{le=\"1\"} 2\nx_seconds_bucket{le=\"2\"} 4\n\
             x_seconds_bucket{le=\"+Inf\"} 6\nx_seconds_sum 106.7\nx_seconds_count 6\n"
        );
    }

    #[test]
    fn quantiles_are_of_the_last_seconds() {
        let (recent, start) = (Recent::default(), Instant::now());
        assert_eq!(recent.quantiles(start), Quantiles::default());
        recent.observe(start, 9_999);
        let later = start + Duration::from_secs(RECENT_S);
        (1..=200).for_each(|number| recent.observe(later, number));
        assert_eq!(recent.quantiles(later).max, 9_999);
        let now = later + Duration::from_secs(1);
        assert_eq!(recent.quantiles(now), Quantiles { count: 200, p50: 100, p99: 198, max: 200 });
        (0..RECENT_MAX).for_each(|_| recent.observe(now, 7));
        assert_eq!(recent.quantiles(now), Quantiles { count: RECENT_MAX, p50: 7, p99: 7, max: 7 });
    }
}
