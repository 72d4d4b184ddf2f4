//! The difference of two means whose spreads differ: Welch's interval, with Welch and Satterthwaite's degrees of freedom.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::{CONFIDENCE, Interval};

/// The difference of two means and how far it may be off.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Difference {
    /// The second mean less the first.
    pub mean: f64,
    /// The true difference lies within `mean` plus or minus this, with [`CONFIDENCE`].
    pub half_width: f64,
    /// Degrees of freedom; infinite where neither side has any spread.
    pub degrees: f64,
}

impl Difference {
    /// The mean of `after` less that of `before`, which were measured apart from each other; `None` where one of them
    /// is of fewer than two values.
    ///
    /// ```
    /// use wakeline_benches::{Interval, ab::report::Difference};
    /// let [before, after] = [[1.0, 1.2, 1.1], [2.0, 2.2, 2.1]].map(|ratios| Interval::of(&ratios).unwrap());
    /// let difference = Difference::between(before, after).unwrap();
    /// assert!((difference.mean - 1.0).abs() < 1e-12 && (difference.degrees - 4.0).abs() < 1e-9);
    /// ```
    pub fn between(before: Interval, after: Interval) -> Option<Self> {
        let (first, second) = (Spread::of(before)?, Spread::of(after)?);
        let variance = first.of_mean + second.of_mean;
        let mean = after.mean - before.mean;
        if variance == 0.0 {
            return Some(Self { mean, half_width: 0.0, degrees: f64::INFINITY });
        }
        // By shares of the variance, whose squares neither vanish nor overflow.
        let share = first.of_mean / variance;
        let degrees = 1.0 / (share.powi(2) / first.degrees + (1.0 - share).powi(2) / second.degrees);
        let half_width = t_quantile(degrees)? * variance.sqrt();
        Some(Self { mean, half_width, degrees })
    }

    /// The lowest and the highest that it may be.
    pub fn ends(self) -> (f64, f64) {
        (self.mean - self.half_width, self.mean + self.half_width)
    }
}

/// The largest standard error that is told from larger ones.
const ERROR_MAX: f64 = 1e150;

/// How far a mean spreads.
struct Spread {
    /// The variance of the mean: that of the values by their number.
    of_mean: f64,
    degrees: f64,
}

impl Spread {
    /// An [`Interval`] keeps the half width, which is the standard error times Student's t.
    fn of(interval: Interval) -> Option<Self> {
        let degrees = degrees(interval.n)?;
        // One whose square is no number is beyond all comparison as well.
        let standard_error = (interval.half_width? / t_quantile(degrees)?).min(ERROR_MAX);
        Some(Self { of_mean: standard_error.powi(2), degrees })
    }
}

#[allow(clippy::cast_precision_loss, reason = "an f64 is exact to 2^53 values")]
fn degrees(n: usize) -> Option<f64> {
    n.checked_sub(1).filter(|degrees| *degrees > 0).map(|degrees| degrees as f64)
}

/// What Student's t stays within, with [`CONFIDENCE`].
fn t_quantile(degrees: f64) -> Option<f64> {
    let distribution = StudentsT::new(0.0, 1.0, degrees).ok()?;
    Some(distribution.inverse_cdf(0.5 + CONFIDENCE / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked examples of Wikipedia's articles on Welch's t-test (three, of equal and unequal spreads and sizes) and
    /// on Student's t-test (the weights of screws), each with its degrees of freedom and its t.
    const A1: &[f64] =
        &[27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4];
    const B1: &[f64] =
        &[27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4];
    const A2: &[f64] = &[17.2, 20.9, 22.6, 18.1, 21.7, 21.4, 23.5, 24.2, 14.7, 21.8];
    const B2: &[f64] = &[
        21.5, 22.8, 21.0, 23.0, 21.6, 23.6, 22.5, 20.7, 23.4, 21.8, 20.7, 21.7, 21.5, 22.5, 23.6, 21.5, 22.5,
        23.5, 21.5, 21.8,
    ];
    const A3: &[f64] = &[19.8, 20.4, 19.6, 17.8, 18.5, 18.9, 18.3, 18.9, 19.5, 22.0];
    const B3: &[f64] = &[
        28.2, 26.6, 20.1, 23.3, 25.2, 22.1, 17.7, 27.6, 20.6, 13.7, 23.2, 17.5, 20.6, 18.0, 23.9, 21.6, 24.3,
        20.4, 24.0, 13.2,
    ];

    fn between(before: &[f64], after: &[f64]) -> Difference {
        Difference::between(Interval::of(before).unwrap(), Interval::of(after).unwrap()).unwrap()
    }

    fn t(difference: Difference) -> f64 {
        difference.mean / (difference.half_width / t_quantile(difference.degrees).unwrap())
    }

    #[test]
    fn degrees_and_t_are_the_published_ones() {
        let screws: [&[f64]; 2] =
            [&[30.02, 29.99, 30.11, 29.97, 30.01, 29.99], &[29.89, 29.93, 29.72, 29.98, 30.02, 29.98]];
        for (first, second, degrees, published_t) in [
            (A1, B1, 25.0, -2.46),
            (A2, B2, 9.9, -1.57),
            (A3, B3, 24.5, -2.22),
            (screws[0], screws[1], 7.03, 1.96),
        ] {
            let found = between(second, first);
            assert!((found.degrees - degrees).abs() < 0.051, "{found:?}, published {degrees}");
            assert!((t(found) - published_t).abs() < 0.006, "{found:?}, published {published_t}");
        }
    }

    /// Miles per gallon of cars: NIST/SEMATECH e-Handbook, 1.3.5.3, data set AUTO83B, unequal variances.
    #[test]
    fn means_and_deviations_are_enough() {
        let of = |mean: f64, deviation: f64, n: usize| {
            let degrees = degrees(n).unwrap();
            let half_width = Some(t_quantile(degrees).unwrap() * deviation / (degrees + 1.0).sqrt());
            Interval { mean, half_width, n }
        };
        let found = Difference::between(of(30.481_01, 6.107_71, 79), of(20.144_58, 6.414_70, 249)).unwrap();
        assert!((found.degrees - 136.875_0).abs() < 0.01, "{found:?}");
        assert!((t(found) - -12.946_27).abs() < 0.001, "{found:?}");
    }

    #[test]
    fn it_is_the_one_computed_by_hand() {
        // 1, 2, 3: mean 2, s^2 / n = 1 / 3. 10, 14: mean 12, s^2 / n = 8 / 2 = 4. Together 13 / 3;
        // degrees (13/3)^2 / ((1/3)^2 / 2 + 4^2 / 1) = 18.7778 / 16.0556 = 1.16955.
        let found = between(&[1.0, 2.0, 3.0], &[10.0, 14.0]);
        assert!((found.mean - 10.0).abs() < 1e-12 && (found.degrees - 1.169_55).abs() < 1e-5, "{found:?}");
        let (low, high) = found.ends();
        assert!((high - low - 2.0 * found.half_width).abs() < 1e-9 && found.half_width > 40.0, "{found:?}");
    }

    #[test]
    fn published_quantiles_between_whole_degrees_are_met() {
        // As in the table of `stats`, and rising without a step between its rows.
        for (degrees, published) in [(1.0, 63.657), (4.0, 4.604), (30.0, 2.750)] {
            assert!((t_quantile(degrees).unwrap() - published).abs() < 0.000_51);
        }
        let between = t_quantile(4.5).unwrap();
        assert!(between < 4.604 && between > 4.032, "{between}");
    }

    /// Widths at both ends of what a number holds.
    #[test]
    fn widths_of_any_size_have_a_difference() {
        let widths = [0.0, 5e-324, 1e-160, 1.0, 1e160, f64::MAX];
        for (before, after) in widths.iter().flat_map(|one| widths.map(|other| (*one, other))) {
            let [before, after] =
                [before, after].map(|half| Interval { mean: 1.0, half_width: Some(half), n: 9 });
            let found = Difference::between(before, after).unwrap();
            assert!(
                found.mean.abs() < 1e-12 && found.half_width.is_finite() && !found.degrees.is_nan(),
                "{found:?}"
            );
        }
    }

    #[test]
    fn two_sides_without_spread_differ_exactly_and_single_values_not_at_all() {
        let exact = between(&[1.0, 1.0], &[3.0, 3.0, 3.0]);
        assert_eq!((exact.mean, exact.half_width), (2.0, 0.0));
        let (one, two) = (Interval::of(&[1.0]).unwrap(), Interval::of(&[1.0, 2.0]).unwrap());
        assert_eq!(Difference::between(one, two), None);
        assert_eq!(Difference::between(two, one), None);
    }
}
