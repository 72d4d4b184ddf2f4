//! Reading a device's clock on a host's time line.

use wakeline_core::{Instant, Nanos};

/// How far two clocks drift apart at most, in parts per million. Crystals are within 100; time that is being set right moves at up to 500.
pub const DRIFT_PPM_MAX: u64 = 600;

/// By how much a device's clock is ahead of a host's: two bounds, which every stamp narrows and time widens.
///
/// ```
/// use wakeline_core::{Instant, Nanos};
/// use wakeline_cuda::ClockOffset;
/// let at = Instant::from_nanos;
/// // Launched at 1,000 and seen at 1,020, when the device's clock showed 501,005.
/// let offset = ClockOffset::UNKNOWN.bounded(501_005, at(1_000), at(1_020));
/// assert_eq!(offset.on_host(501_005), at(1_010));
/// assert_eq!(offset.uncertainty(), Nanos::from_nanos(10));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockOffset {
    least: i64,
    most: i64,
    /// When that was known.
    at: Instant,
}

impl ClockOffset {
    /// Before the first stamp.
    pub const UNKNOWN: Self = Self { least: i64::MIN, most: i64::MAX, at: Instant::ORIGIN };

    /// With what a stamp tells that was made between two moments of the host: the launch of its kernel, and when it was seen.
    #[must_use]
    pub fn bounded(self, stamp: u64, launched: Instant, seen: Instant) -> Self {
        let drift = seen.since(self.at).as_nanos() / 1_000_000 * DRIFT_PPM_MAX + 1;
        let drift = i64::try_from(drift).unwrap_or(i64::MAX);
        let new = Self { least: ahead(stamp, seen), most: ahead(stamp, launched), at: seen };
        let least = new.least.max(self.least.saturating_sub(drift));
        let most = new.most.min(self.most.saturating_add(drift));
        // Where they contradict each other a clock was set: what is new holds.
        if least > most { new } else { Self { least, most, at: seen } }
    }

    /// To within how much the ends of work are known, either way.
    pub fn uncertainty(self) -> Nanos {
        Nanos::from_nanos(self.most.abs_diff(self.least) / 2)
    }

    /// When a stamp was made, on the host's time line.
    pub fn on_host(self, stamp: u64) -> Instant {
        let middle = self.least.midpoint(self.most);
        Instant::from_nanos(stamp.wrapping_sub(middle.cast_unsigned()))
    }
}

/// By how much a clock that shows `stamp` is ahead of a host's at `at`. Wraps, as both are within 2^63 of each other.
fn ahead(stamp: u64, at: Instant) -> i64 {
    stamp.wrapping_sub(at.as_nanos()).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn each_stamp_narrows_what_is_known_and_time_widens_it() {
        const AHEAD: u64 = 1_700_000_000_000_000_000;
        // Launched, stamped and seen, on the host's time line.
        let one = ClockOffset::UNKNOWN.bounded(AHEAD + 1_005, at(1_000), at(1_020));
        assert_eq!((one.most - one.least, one.on_host(AHEAD + 1_010)), (20, at(1_015)));
        let two = one.bounded(AHEAD + 2_002, at(2_000), at(2_030));
        assert!(two.most - two.least <= 18, "{two:?}");
        let error = two.on_host(AHEAD + 2_002).as_nanos().abs_diff(2_002);
        assert!(error <= 9, "{error}");
        let later = two.bounded(AHEAD + 1_000_000_000, at(999_999_000), at(1_000_001_000));
        assert!(later.most - later.least <= 2_000, "{later:?}");
    }

    #[test]
    fn a_clock_that_was_set_is_followed() {
        let one = ClockOffset::UNKNOWN.bounded(1_000_000, at(500), at(520));
        let set = one.bounded(7_000, at(600), at(640));
        assert_eq!(set.on_host(7_000), at(620));
    }

    #[test]
    fn a_device_whose_clock_is_behind_is_no_different() {
        let apart = ClockOffset::UNKNOWN.bounded(10, at(5_000), at(5_010));
        assert_eq!(apart.on_host(10), at(5_005));
    }
}
