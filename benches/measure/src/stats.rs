//! Means with their intervals, and the quantiles of latencies.

use alloc::vec::Vec;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// How sure an [`Interval`] is: of a hundred such intervals, one does not hold the true mean.
pub const CONFIDENCE: f64 = 0.99;

/// The significant digits that a [`Tail`] keeps: its values are within 0.1 %.
const DIGITS: u8 = 3;

/// A mean and how far it may be off.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Interval {
    /// The mean of the values.
    pub mean: f64,
    /// The true mean lies within `mean` plus or minus this, with [`CONFIDENCE`], by Student's t distribution. `None`
    /// for a single value.
    pub half_width: Option<f64>,
    /// How many values there were.
    pub n: usize,
}

impl Interval {
    /// The mean of `values` and its interval; `None` without values.
    ///
    /// The values are taken for independent draws. Paired ratios of rounds are near enough: what drifts slowly hits both
    /// sides of a ratio.
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len();
        if n == 0 {
            return None;
        }
        let count = count(n);
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let half_width = t_quantile(n - 1).map(|t| t * (squares / (count - 1.0) / count).sqrt());
        Some(Self { mean, half_width, n })
    }
}

impl Interval {
    /// What all of the first of each pair are by all of the second, for pairs whose sizes differ: a mean of their ratios would count the smallest as much
    /// as the largest. `None` without pairs, and where the second ones are nothing.
    ///
    /// The ratio estimator of survey sampling, with its linearized variance (Cochran, Sampling Techniques, 3rd edition, section 6.4): exact for large samples only.
    pub fn of_totals(pairs: &[(f64, f64)]) -> Option<Self> {
        let n = pairs.len();
        let (part, of) = pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        if of <= 0.0 {
            return None;
        }
        let (mean, count) = (part / of, count(n));
        let squares: f64 = pairs.iter().map(|(part, of)| (part - mean * of).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt() / (of / count);
        Some(Self { mean, half_width: t_quantile(n - 1).map(|t| t * error), n })
    }

    /// Whether `value` lies outside of it: with [`CONFIDENCE`] the true mean is another then. A single value excludes none.
    pub fn excludes(&self, value: f64) -> bool {
        self.half_width.is_some_and(|half_width| (self.mean - value).abs() > half_width)
    }
}

/// What Student's t distribution with this many degrees of freedom stays within, with [`CONFIDENCE`]; `None` without
/// any.
fn t_quantile(degrees: usize) -> Option<f64> {
    let distribution = StudentsT::new(0.0, 1.0, count(degrees)).ok()?;
    Some(distribution.inverse_cdf(0.5 + CONFIDENCE / 2.0))
}

#[allow(clippy::cast_precision_loss, reason = "an f64 is exact to 2^53 values")]
fn count(n: usize) -> f64 {
    n as f64
}

/// The distribution of a latency in nanoseconds, in fixed memory.
#[derive(Clone, Debug)]
pub struct Tail {
    histogram: Histogram<u64>,
}

/// What a [`Tail`] tells, in nanoseconds; each value is within 0.1 %.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Quantiles {
    /// How many values there were. Without any all of the others are 0.
    pub count: u64,
    /// The median.
    pub p50_ns: u64,
    /// What 90 % stay within.
    pub p90_ns: u64,
    /// What 99 % stay within: of fewer than 100 values, the highest.
    pub p99_ns: u64,
    /// The highest.
    pub max_ns: u64,
}

impl Tail {
    /// The highest value told apart: an hour. Higher ones count as this.
    pub const MAX_NS: u64 = 3_600_000_000_000;

    /// No values yet. Allocates all it will ever need, about 270 KiB.
    ///
    /// # Panics
    ///
    /// Never: the bounds are constants that the histogram takes.
    pub fn new() -> Self {
        #[expect(clippy::expect_used, reason = "constants, and a test makes one")]
        let histogram = Histogram::new_with_max(Self::MAX_NS, DIGITS).expect("the bounds are valid");
        Self { histogram }
    }

    /// Counts a value.
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
    }

    /// It as a curve: values, and the share of all that is at most that; as many points as told at most, rising in both. The points
    /// lie closer to each other where the tail is: half of them are above the 90 % that most values stay within.
    pub fn curve(&self, points: usize) -> Vec<(u64, f64)> {
        let mut curve: Vec<(u64, f64)> = Vec::new();
        let count = self.histogram.len();
        if count == 0 || points == 0 {
            return curve;
        }
        let half = points.div_ceil(2);
        for point in 1..=points {
            let share = if point <= half {
                0.9 * ratio(point, half)
            } else {
                // The rest of the way shrinks by the same factor, down to a single value.
                1.0 - 0.1 * (10.0 / real(count.max(10))).powf(ratio(point - half, points - half))
            };
            let ns = self.histogram.value_at_quantile(if point == points { 1.0 } else { share });
            // The share that truly is at most so high: values are of buckets.
            let share = real(self.histogram.count_between(0, ns)) / real(count);
            if curve.last().is_none_or(|(last, last_share)| ns > *last && share > *last_share) {
                curve.push((ns, share.min(1.0)));
            }
        }
        curve
    }

    /// What it holds.
    pub fn quantiles(&self) -> Quantiles {
        if self.histogram.is_empty() {
            return Quantiles::default();
        }
        let at = |quantile| self.histogram.value_at_quantile(quantile);
        Quantiles {
            count: self.histogram.len(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            max_ns: self.histogram.max(),
        }
    }
}

fn ratio(part: usize, of: usize) -> f64 {
    count(part) / count(of.max(1))
}

#[expect(clippy::cast_precision_loss, reason = "an f64 is exact to 2^53 values")]
fn real(value: u64) -> f64 {
    value as f64
}

impl Default for Tail {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_of_totals_is_the_one_computed_by_hand() {
        // Totals 3 and 30: 0.1. Residuals 0.1, 0, -0.1: squares 0.02, s = 0.1; over sqrt(3) and the mean of 10: 0.0057735; t(2) = 9.9248.
        let ratio = Interval::of_totals(&[(0.6, 5.0), (0.5, 5.0), (1.9, 20.0)]).unwrap();
        assert!((ratio.mean - 0.1).abs() < 1e-12 && ratio.n == 3, "{ratio:?}");
        assert!((ratio.half_width.unwrap() - 0.057_301).abs() < 1e-5, "{ratio:?}");
        let same = Interval::of_totals(&[(2.0, 2.0), (7.0, 7.0)]).unwrap();
        assert_eq!((same.mean, same.half_width), (1.0, Some(0.0)));
        assert_eq!(Interval::of_totals(&[(1.0, 4.0)]).unwrap().half_width, None);
        assert_eq!((Interval::of_totals(&[]), Interval::of_totals(&[(1.0, 0.0)])), (None, None));
    }

    /// Two-sided 99 % points as printed in tables (NIST/SEMATECH e-Handbook, 1.3.6.7.2, column 0.995).
    #[test]
    fn t_quantiles_are_the_published_ones() {
        for (degrees, published) in [
            (1, 63.657),
            (2, 9.925),
            (3, 5.841),
            (4, 4.604),
            (5, 4.032),
            (7, 3.499),
            (10, 3.169),
            (15, 2.947),
            (20, 2.845),
            (30, 2.750),
            (60, 2.660),
            (100, 2.626),
        ] {
            let t = t_quantile(degrees).unwrap();
            assert!((t - published).abs() < 0.000_51, "{degrees} degrees: {t}, published {published}");
        }
        // With many degrees it is the normal distribution's.
        assert!((t_quantile(1_000_000).unwrap() - 2.576).abs() < 0.000_51);
        assert_eq!(t_quantile(0), None);
    }

    #[test]
    fn an_interval_is_the_one_computed_by_hand() {
        // 2, 4, 4, 4, 6: mean 4, s^2 = 8 / 4 = 2, half = 4.604 sqrt(2 / 5) = 2.912
        let interval = Interval::of(&[2.0, 4.0, 4.0, 4.0, 6.0]).unwrap();
        assert!((interval.mean - 4.0).abs() < 1e-12);
        assert!((interval.half_width.unwrap() - 2.912).abs() < 0.000_5, "{interval:?}");
        assert_eq!(interval.n, 5);
    }

    #[test]
    fn one_value_has_no_width_and_none_no_mean() {
        assert_eq!(Interval::of(&[7.0]), Some(Interval { mean: 7.0, half_width: None, n: 1 }));
        assert_eq!(Interval::of(&[]), None);
    }

    #[test]
    fn equal_values_have_no_spread() {
        assert_eq!(Interval::of(&[1.0; 9]).unwrap().half_width, Some(0.0));
    }

    #[test]
    fn a_tail_tells_its_quantiles_to_a_thousandth() {
        let mut tail = Tail::new();
        (1..=1_000).for_each(|us| tail.record(us * 1_000));
        let quantiles = tail.quantiles();
        assert_eq!(quantiles.count, 1_000);
        for (told, true_value) in
            [(quantiles.p50_ns, 500_000), (quantiles.p99_ns, 990_000), (quantiles.max_ns, 1_000_000)]
        {
            assert!(told.abs_diff(true_value) <= true_value / 1_000, "{told} for {true_value}");
        }
    }

    #[test]
    fn a_curve_rises_in_both_and_ends_at_the_highest() {
        let mut tail = Tail::new();
        assert_eq!(tail.curve(64), []);
        (1..=10_000).for_each(|us| tail.record(us * 1_000));
        let curve = tail.curve(64);
        assert!(curve.len() > 32 && curve.len() <= 64, "{curve:?}");
        assert!(curve.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1), "{curve:?}");
        for (ns, share) in &curve {
            assert!((*share - real(*ns) / 1e7).abs() < 0.002, "{ns} {share}");
        }
        assert!((curve.last().unwrap().1 - 1.0).abs() < 1e-12);
        assert!(curve.iter().filter(|(_, share)| *share > 0.9).count() >= 16, "{curve:?}");
        let mut one = Tail::new();
        one.record(7);
        assert_eq!((one.curve(64), one.curve(0)), (vec![(7, 1.0)], vec![]));
    }

    #[test]
    fn an_interval_excludes_what_is_further_off_than_its_half_width() {
        let interval = Interval { mean: 1.05, half_width: Some(0.04), n: 9 };
        assert!(interval.excludes(1.0) && !interval.excludes(1.02) && interval.excludes(1.1));
        assert!(!Interval { half_width: None, ..interval }.excludes(1.0));
    }

    #[test]
    fn a_tail_takes_every_value() {
        let mut tail = Tail::new();
        assert_eq!(tail.quantiles(), Quantiles::default());
        tail.record(0);
        tail.record(u64::MAX);
        assert_eq!(tail.quantiles().count, 2);
        assert!(tail.quantiles().max_ns >= Tail::MAX_NS);
    }
}
