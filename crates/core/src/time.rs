//! Time as integers of nanoseconds.
//!
//! The core never reads a clock; hosts hand it [`Instant`]s of their own [`Clock`](crate::Clock). All
//! arithmetic saturates, so a deadline that is "too far" is simply never reached and a clock at the end
//! of its range stays there.

use core::fmt;
use core::ops::{Add, Sub};

/// A length of time in nanoseconds. At most 584 years.
///
/// ```
/// use wakeline_core::Nanos;
/// assert_eq!(Nanos::from_micros(3) + Nanos::from_nanos(7), Nanos::from_nanos(3_007));
/// assert_eq!(Nanos::from_micros(1) - Nanos::from_micros(2), Nanos::ZERO); // saturates
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Nanos(u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest length there is.
    pub const MAX: Self = Self(u64::MAX);

    /// A length of `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// A length of `us` microseconds, [`Nanos::MAX`] where that overflows.
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// A length of `ms` milliseconds, [`Nanos::MAX`] where that overflows.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// The length in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The length in whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Nanos {
    /// `17 ns`, `4.250 us`, `5.031 ms` or `1.500 s`: the largest unit that leaves a digit before the point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let thousandths = self.0 % unit / (unit / 1_000);
        write!(f, "{}.{thousandths:03} {name}", self.0 / unit)
    }
}

/// A moment: nanoseconds since the origin of the [`Clock`](crate::Clock) that gave it.
///
/// Instants of different clocks do not compare. Arithmetic saturates at both ends.
///
/// ```
/// use wakeline_core::{Instant, Nanos};
/// let start = Instant::from_nanos(100);
/// let end = start + Nanos::from_micros(1);
/// assert_eq!(end.since(start), Nanos::from_micros(1));
/// assert_eq!(start.since(end), Nanos::ZERO); // saturates
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(u64);

impl Instant {
    /// The clock's origin.
    pub const ORIGIN: Self = Self(0);
    /// The end of time: a deadline here never comes.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `ns` nanoseconds after the clock's origin.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this moment, zero where `earlier` is later.
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Nanos> for Instant {
    type Output = Self;
    fn add(self, length: Nanos) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}

impl Sub<Nanos> for Instant {
    type Output = Self;
    fn sub(self, length: Nanos) -> Self {
        Self(self.0.saturating_sub(length.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Instant::MAX + Nanos::from_nanos(1), Instant::MAX);
        assert_eq!(Instant::ORIGIN - Nanos::from_nanos(1), Instant::ORIGIN);
        assert_eq!(Nanos::from_micros(u64::MAX), Nanos::MAX);
        assert_eq!(Instant::ORIGIN.since(Instant::MAX), Nanos::ZERO);
    }

    #[test]
    fn lengths_print_in_the_largest_unit() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (4_250, "4.250 us"),
            (5_031_999, "5.031 ms"),
            (1_500_000_000, "1.500 s"),
        ] {
            assert_eq!(Nanos::from_nanos(ns).to_string(), text);
        }
    }
}
