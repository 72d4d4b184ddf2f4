//! Reading a device's clock on a host's time line.

use wakeline_core::{Instant, Nanos};

/// How far two clocks drift apart at most, in parts per million. Crystals are within 100; time that is being set right moves at up to 500.
pub const DRIFT_PPM_MAX: u64 = 600;

/// How tight bounds must be to tell of a rate, nanoseconds.
const TIGHT_NS: u64 = 20_000;

/// Over what time a rate is told at least, nanoseconds.
const RATE_NS: u64 = 20_000_000;

/// Over what time it is told at most, where there are stamps enough: half of it stays when that has passed.
const RATE_NS_MAX: u64 = 10_000_000_000;

/// By how much a device's clock is ahead of a host's: two bounds, which every stamp narrows and time widens.
///
/// Between two stamps the clocks drift apart at the rate at which they did before: by 0.3 us a millisecond on the virtual host of an H200.
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
    /// What is taken for it then, within the bounds.
    ahead: i64,
    /// By how much that grows, parts in 10^9.
    rate_ppb: i64,
    /// What the rate is told from.
    since: Option<(Instant, i64)>,
    /// What it is told from next, half as old at least.
    next: Option<(Instant, i64)>,
}

impl ClockOffset {
    /// Before the first stamp.
    pub const UNKNOWN: Self = Self {
        least: i64::MIN,
        most: i64::MAX,
        at: Instant::ORIGIN,
        ahead: 0,
        rate_ppb: 0,
        since: None,
        next: None,
    };

    /// With what a stamp tells that was made between two moments of the host: the launch of its kernel, and when it was seen.
    #[must_use]
    pub fn bounded(self, stamp: u64, launched: Instant, seen: Instant) -> Self {
        let passed = seen.since(self.at).as_nanos();
        let drift = i64::try_from(u128::from(passed) * u128::from(DRIFT_PPM_MAX) / 1_000_000 + 1);
        let drift = drift.unwrap_or(i64::MAX);
        let (least, most) = (ahead(stamp, seen), ahead(stamp, launched));
        let (narrow_least, narrow_most) =
            (least.max(self.least.saturating_sub(drift)), most.min(self.most.saturating_add(drift)));
        // Where they contradict each other a clock was set: what is new holds.
        if narrow_least > narrow_most || self == Self::UNKNOWN {
            let ahead = least.midpoint(most);
            return Self { least, most, at: seen, ahead, ..Self::UNKNOWN }.told();
        }
        let (least, most) = (narrow_least, narrow_most);
        // What tells more of it: the bounds, where they are tight; else where it was, and where it went.
        let ahead = if most.abs_diff(least) <= TIGHT_NS {
            least.midpoint(most)
        } else {
            self.ahead.saturating_add(part(passed, self.rate_ppb)).clamp(least, most)
        };
        Self { least, most, at: seen, ahead, ..self }.told()
    }

    /// With the rate that it has by now.
    fn told(self) -> Self {
        if self.most.abs_diff(self.least) > TIGHT_NS {
            return self;
        }
        let Some((since, ahead)) = self.since else {
            return Self { since: Some((self.at, self.ahead)), ..self };
        };
        let passed = self.at.since(since).as_nanos();
        if passed < RATE_NS {
            return self;
        }
        let most = i64::try_from(DRIFT_PPM_MAX * 1_000).unwrap_or(i64::MAX);
        let grown = i128::from(self.ahead) - i128::from(ahead);
        let rate = i64::try_from(grown * 1_000_000_000 / i128::from(passed)).unwrap_or(0);
        let here = Some((self.at, self.ahead));
        let (since, next) = match self.next {
            None if passed < RATE_NS_MAX / 2 => (self.since, None),
            None => (self.since, here),
            Some(_) if passed < RATE_NS_MAX => (self.since, self.next),
            Some(_) => (self.next, here),
        };
        Self { rate_ppb: rate.clamp(-most, most), since, next, ..self }
    }

    /// To within how much the ends of work are known, either way.
    pub fn uncertainty(self) -> Nanos {
        Nanos::from_nanos(self.most.abs_diff(self.least) / 2)
    }

    /// What the device's clock shows at a moment of the host's, soon after the last stamp.
    pub fn on_device(self, at: Instant) -> u64 {
        let ahead = self.ahead.saturating_add(part(at.since(self.at).as_nanos(), self.rate_ppb));
        at.as_nanos().wrapping_add(ahead.cast_unsigned())
    }

    /// When a stamp was made, on the host's time line.
    pub fn on_host(self, stamp: u64) -> Instant {
        let then = stamp.wrapping_sub(self.ahead.cast_unsigned());
        // Stamps are of the past: it was ahead by less then, where it gains.
        let passed = self.at.since(Instant::from_nanos(then)).as_nanos();
        Instant::from_nanos(then.wrapping_add(part(passed, self.rate_ppb).cast_unsigned()))
    }
}

/// So many parts in 10^9 of a time.
fn part(ns: u64, ppb: i64) -> i64 {
    i64::try_from(i128::from(ns) * i128::from(ppb) / 1_000_000_000).unwrap_or(0)
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

    /// The device's clock gains 300 parts in a million; a stamp each 5 ms, then one of which little is known for a second.
    #[test]
    fn a_drift_is_followed_where_stamps_are_rare() {
        const AHEAD: u64 = 1_700_000_000_000_000_000;
        let shows = |ns: u64| AHEAD + ns + ns / 1_000_000 * 300;
        let mut apart = ClockOffset::UNKNOWN;
        for step in 1..200 {
            let ns = step * 5_000_000;
            apart = apart.bounded(shows(ns), at(ns - 5_000), at(ns + 4_000));
            let error = apart.on_host(shows(ns)).as_nanos().abs_diff(ns);
            assert!(error <= 2_000, "{step}: {error}");
        }
        // Launched at 1.0 s, done at 1.005 s, and looked at a second later.
        let done = 1_005_000_000;
        let soon = 1_100_000_000;
        let error = apart.on_device(at(soon)).abs_diff(shows(soon));
        assert!(error <= 4_000, "{error}");
        let later = apart.bounded(shows(done), at(1_000_000_000), at(2_005_000_000));
        let error = later.on_host(shows(done)).as_nanos().abs_diff(done);
        assert!(error <= 20_000, "{error} of 300,000 ns that it drifts in a second");
        assert!(later.uncertainty() >= Nanos::from_micros(300), "{later:?}");
    }

    /// What is known of the drift is not thrown away to be told anew from two stamps that are as far apart as their bounds are wide.
    #[test]
    fn a_drift_that_is_known_stays_known_for_good() {
        const AHEAD: u64 = 1_700_000_000_000_000_000;
        let shows = |ns: u64| AHEAD + ns + ns / 1_000 * 3 / 10;
        let (mut apart, mut worst) = (ClockOffset::UNKNOWN, 0);
        for step in 1_u64..8_000 {
            let ns = step * 5_000_000;
            let (before, after) = (1_000 + step * 7_919 % 8_000, 1_000 + step * 104_729 % 8_000);
            apart = apart.bounded(shows(ns), at(ns - before), at(ns + after));
            if step > 1_000 {
                let later = ns + 1_000_000_000;
                worst = worst.max(apart.on_device(at(later)).abs_diff(shows(later)));
            }
        }
        assert!(worst <= 10_000, "{worst} of 300,000 ns that it drifts in a second");
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
