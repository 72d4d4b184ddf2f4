//! Numbers for people: three significant digits, the unit that suits, no more digits than the interval warrants.
//!
//! What was not measured is [`MISSING`], never zero.

use crate::Interval;

/// What stands where nothing was measured.
pub(crate) const MISSING: &str = "\u{2013}";

/// How many significant digits a number without an interval has, at least.
const SIGNIFICANT: i32 = 3;

/// How many digits behind the point a tick has before its noughts are cut off.
const TICK_DECIMALS: i32 = 5;

/// The most digits behind the point.
const DECIMALS_MAX: i32 = 9;

/// From this size on, and below this one, a number is written with a power of ten: nobody counts noughts.
const LARGE: f64 = 1e15;
const SMALL: f64 = 1e-9;

/// A unit to show numbers in: what to multiply by, and what to write behind.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Unit {
    factor: f64,
    name: &'static str,
}

const TIMES: [Unit; 4] = [unit(1.0, "ns"), unit(1e-3, "us"), unit(1e-6, "ms"), unit(1e-9, "s")];
const ENERGIES: [Unit; 4] = [unit(1e9, "nJ"), unit(1e6, "uJ"), unit(1e3, "mJ"), unit(1.0, "J")];
const RATES: [Unit; 1] = [unit(1.0, "/s")];
const PLAIN: [Unit; 1] = [unit(1.0, "")];

const fn unit(factor: f64, name: &'static str) -> Unit {
    Unit { factor, name }
}

impl Unit {
    /// The one in which a value of this size in the schema's `unit` has the fewest digits before its point, but one at
    /// least where any has. `None` for a unit that is not known here: shown as it is.
    fn for_size(schema_unit: &str, size: f64) -> Option<Self> {
        let units: &[Self] = match schema_unit {
            "ns" => &TIMES,
            "J" => &ENERGIES,
            "1/s" => &RATES,
            "" => &PLAIN,
            _ => return None,
        };
        // 999.6 ns is `1,000 ns` with three digits, so it is shown as a microsecond.
        let fits = units.iter().rev().find(|unit| size.abs() * unit.factor >= 0.9995);
        fits.or(units.first()).copied()
    }
}

/// A value in one of the schema's units: `2.31 us`, `48,213 /s`.
pub(crate) fn quantity(value: f64, schema_unit: &str) -> String {
    let (factor, name) = shown_in(value, schema_unit);
    with_unit(&significant(value * factor), name)
}

/// A value with its interval: `2.31 ± 0.04 us`; of a single round, without.
pub(crate) fn interval(interval: Interval, schema_unit: &str) -> String {
    let (factor, name) = shown_in(interval.mean, schema_unit);
    with_unit(&plus_minus(interval.mean * factor, interval.half_width.map(|half| half * factor)), name)
}

/// The same apart: `2.31 us` and `± 0.04`.
pub(crate) fn interval_apart(interval: Interval, schema_unit: &str) -> (String, Option<String>) {
    let (factor, name) = shown_in(interval.mean, schema_unit);
    let (mean, half) = apart(interval.mean * factor, interval.half_width.map(|half| half * factor));
    (with_unit(&mean, name), half.map(|half| format!("\u{b1} {half}")))
}

/// A ratio with its interval: `0.998 ± 0.012`; of a single round, without.
pub(crate) fn ratio(ratio: Interval) -> String {
    plus_minus(ratio.mean, ratio.half_width)
}

/// A difference with its sign and its interval: `+0.012 ± 0.004`.
pub(crate) fn difference(mean: f64, half_width: f64) -> String {
    let (mean, half) = difference_apart(mean, half_width);
    format!("{mean} {half}")
}

/// The same apart: `+0.012` and `± 0.004`.
pub(crate) fn difference_apart(mean: f64, half_width: f64) -> (String, String) {
    let sign = if mean > 0.0 { "+" } else { "" };
    let (mean, half) = apart(mean, Some(half_width));
    (format!("{sign}{mean}"), format!("\u{b1} {}", half.unwrap_or_else(|| MISSING.to_owned())))
}

/// How many there are of something: `1 CPU`, `16 CPUs`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Nanoseconds as a whole number of them has it.
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn ns(ns: u64) -> String {
    quantity(ns as f64, "ns")
}

/// A value that an axis names, with no more digits than it needs: `20 us`.
pub(crate) fn tick(value: f64, schema_unit: &str) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let (factor, name) = shown_in(value, schema_unit);
    let value = value * factor;
    if is_extreme(value) {
        return with_unit(&scientific(value), name);
    }
    // Ticks are whole multiples of a step, which three digits would round where it is small beside them.
    let text = fixed(value, (SIGNIFICANT - exponent(value)).clamp(TICK_DECIMALS, DECIMALS_MAX));
    let short = text.trim_end_matches('0').trim_end_matches('.');
    with_unit(short, name)
}

/// A moment of a wait that took `whole_ns`, so that its moments can be told apart: nanoseconds of a short one, tenths of
/// a microsecond of others.
#[allow(clippy::cast_precision_loss, reason = "a tenth of a microsecond is shown")]
pub(crate) fn moment(ns: u64, whole_ns: u64) -> String {
    if whole_ns < 10_000 { fixed(ns as f64, 0) + " ns" } else { fixed(ns as f64 / 1e3, 1) + " us" }
}

/// A share that an axis names, in percent.
pub(crate) fn percent_tick(share: f64) -> String {
    tick(share * 100.0, "") + " %"
}

fn shown_in(size: f64, schema_unit: &str) -> (f64, &str) {
    Unit::for_size(schema_unit, size).map_or((1.0, schema_unit), |unit| (unit.factor, unit.name))
}

fn with_unit(number: &str, name: &str) -> String {
    if name.is_empty() { number.to_owned() } else { format!("{number} {name}") }
}

fn plus_minus(mean: f64, half_width: Option<f64>) -> String {
    match apart(mean, half_width) {
        (mean, Some(half)) => format!("{mean} \u{b1} {half}"),
        (mean, None) => mean,
    }
}

/// One digit of the half width, or two where one would be coarse (below 35), and as many of the mean as reach as far.
fn apart(mean: f64, half_width: Option<f64>) -> (String, Option<String>) {
    match half_width.map(f64::abs).filter(|half| half.is_finite()) {
        None => (significant(mean), None),
        // No width, or one that is far below what is shown of the mean.
        Some(half) if half == 0.0 || half <= mean.abs() * 1e-6 => (significant(mean), Some("0".to_owned())),
        Some(half) if half < SMALL || half.max(mean.abs()) >= LARGE => {
            (scientific(mean), Some(scientific(half)))
        }
        Some(half) => {
            let digits = if half / 10f64.powi(exponent(half)) < 3.5 { 2 } else { 1 };
            let decimals = (digits - 1 - exponent(half)).clamp(0, DECIMALS_MAX);
            (fixed(mean, decimals), Some(fixed(half, decimals)))
        }
    }
}

/// At least three significant digits; whole thousands are written out.
pub(crate) fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { MISSING.to_owned() };
    }
    if is_extreme(value) {
        return scientific(value);
    }
    // 999.6 rounds to 1,000: one digit behind the point less.
    let rounded = value * (1.0 + 0.5 * 10f64.powi(-SIGNIFICANT));
    fixed(value, (SIGNIFICANT - 1 - exponent(rounded)).clamp(0, DECIMALS_MAX))
}

/// Whether it is too large or too small to be written out.
fn is_extreme(value: f64) -> bool {
    !(SMALL..LARGE).contains(&value.abs()) && value != 0.0
}

/// Three significant digits and a power of ten: `1.00e300`.
fn scientific(value: f64) -> String {
    if value == 0.0 || !value.is_finite() { significant(value) } else { format!("{value:.2e}") }
}

/// The power of ten of the first digit.
fn exponent(value: f64) -> i32 {
    #[allow(clippy::cast_possible_truncation, reason = "an f64's exponent is within 400")]
    let exponent = value.abs().log10().floor().max(-400.0) as i32;
    exponent
}

/// With this many digits behind the point, and a comma before every three in front of it.
fn fixed(value: f64, decimals: i32) -> String {
    let decimals = usize::try_from(decimals).unwrap_or(0);
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut shown = String::new();
    if value < 0.0 && text.chars().any(|c| ('1'..='9').contains(&c)) {
        shown.push('-');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown + rest
}

/// Seconds since 1970 as a date: `2026-11-30 02:27 UTC`.
pub(crate) fn date(unix_s: u64) -> String {
    // Days of the era of 400 years that begins on 1 March of year 0: see Hinnant, "chrono-compatible low-level date
    // algorithms", `civil_from_days`.
    let days = unix_s / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let minutes = unix_s % 86_400 / 60;
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(mean: f64, half_width: f64) -> Interval {
        Interval { mean, half_width: Some(half_width), n: 5 }
    }

    #[test]
    fn numbers_have_three_digits_and_the_unit_that_suits() {
        for (value, unit, shown) in [
            (0.0, "ns", "0 ns"),
            (7.0, "ns", "7.00 ns"),
            (999.4, "ns", "999 ns"),
            (999.6, "ns", "1.00 us"),
            (2_314.0, "ns", "2.31 us"),
            (1_234_567.0, "ns", "1.23 ms"),
            (90e9, "ns", "90.0 s"),
            (0.05, "ns", "0.0500 ns"),
            (48_213.4, "1/s", "48,213 /s"),
            (1_234_567.0, "1/s", "1,234,567 /s"),
            (0.000_012, "J", "12.0 uJ"),
            (250.0, "J", "250 J"),
            (0.25, "", "0.250"),
            (17.0, "pages", "17.0 pages"),
            (-2_314.0, "ns", "-2.31 us"),
            (f64::NAN, "", MISSING),
            (f64::INFINITY, "", MISSING),
            (1e300, "ns", "1.00e291 s"),
            (-5e-324, "", "-4.94e-324"),
            (f64::MAX, "J", "1.80e308 J"),
        ] {
            assert_eq!(quantity(value, unit), shown, "{value} {unit}");
        }
        assert_eq!(ns(1_500), "1.50 us");
        assert_eq!([counted(1, "CPU"), counted(16, "CPU")], ["1 CPU", "16 CPUs"]);
        assert_eq!([moment(1_002_449, 1_100_000), moment(7, 9_999)], ["1,002.4 us", "7 ns"]);
        assert_eq!(percent_tick(0.75), "75 %");
        assert_eq!(
            [0.0, 1e3, 2e5, 5e9, 0.5].map(|ns| tick(ns, "ns")),
            ["0", "1 us", "200 us", "5 s", "0.5 ns"]
        );
        assert_eq!([1e30, 1e-30].map(|ns| tick(ns, "ns")), ["1.00e21 s", "1.00e-30 ns"]);
        assert_eq!(
            [0.05, 0.995, 1.0, 1.005, 1_000.0].map(|ratio| tick(ratio, "")),
            ["0.05", "0.995", "1", "1.005", "1,000"]
        );
    }

    #[test]
    fn intervals_have_a_digit_or_two_and_means_reach_as_far() {
        assert_eq!(interval(of(2_314.2, 41.7), "ns"), "2.31 \u{b1} 0.04 us");
        assert_eq!(interval(of(1_234.0, 1_000.0), "1/s"), "1,234 \u{b1} 1,000 /s");
        assert_eq!(interval(of(5.0, 0.0), ""), "5.00 \u{b1} 0");
        assert_eq!(interval(Interval { mean: 5.0, half_width: None, n: 1 }, "ns"), "5.00 ns");
        assert_eq!(ratio(of(0.998_4, 0.012_3)), "0.998 \u{b1} 0.012");
        assert_eq!(ratio(of(1.0, 1e-12)), "1.00 \u{b1} 0");
        assert_eq!(ratio(of(5.0, 1e300)), "5.00e0 \u{b1} 1.00e300");
        assert_eq!(ratio(of(0.0, 5e-324)), "0 \u{b1} 4.94e-324");
        assert_eq!(ratio(of(f64::NAN, -0.0)), format!("{MISSING} \u{b1} 0"));
        assert_eq!(difference(0.05, 0.004), "+0.050 \u{b1} 0.004");
        assert_eq!(
            interval_apart(of(2_314.2, 41.7), "ns"),
            ("2.31 us".to_owned(), Some("\u{b1} 0.04".to_owned()))
        );
        assert_eq!(difference(-0.000_1, 0.2), "0.00 \u{b1} 0.20");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix_s, shown) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (951_868_799, "2000-02-29 23:59 UTC"),
            (1_000_000_000, "2001-09-09 01:46 UTC"),
            (1_234_567_890, "2009-02-13 23:31 UTC"),
            (4_102_444_800, "2100-01-01 00:00 UTC"),
        ] {
            assert_eq!(date(unix_s), shown);
        }
    }
}
