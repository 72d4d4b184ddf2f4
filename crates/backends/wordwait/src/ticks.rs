//! From lengths of time to ticks of the processor's counter.

use core::num::NonZeroU64;

use wakeline_core::Nanos;

/// How fast the counter runs that a wait's deadline is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TickRate {
    /// Ticks in 2^32 nanoseconds: a rate of up to 4 THz, to within a part in 2^32 of a gigahertz.
    per_2_32_ns: NonZeroU64,
}

impl TickRate {
    /// `None` for no rate, or none of a counter that moves.
    pub(crate) fn new(per_2_32_ns: Option<u64>) -> Option<Self> {
        Some(Self { per_2_32_ns: NonZeroU64::new(per_2_32_ns?)? })
    }

    /// The ticks in a length, rounded down: a wait rather ends early.
    pub(crate) fn ticks(self, length: Nanos) -> u64 {
        let ticks = (u128::from(length.as_nanos()) * u128::from(self.per_2_32_ns.get())) >> 32;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_become_ticks_rounded_down_and_saturating() {
        let rate = |per_ns: u64| TickRate::new(Some(per_ns << 32)).unwrap();
        assert_eq!(rate(3).ticks(Nanos::from_micros(100)), 300_000);
        assert_eq!(rate(3).ticks(Nanos::ZERO), 0);
        assert_eq!(rate(3).ticks(Nanos::MAX), u64::MAX);
        let slow = TickRate::new(Some(1 << 31)).unwrap();
        assert_eq!(slow.ticks(Nanos::from_nanos(3)), 1);
        assert_eq!(TickRate::new(Some(u64::MAX)).unwrap().ticks(Nanos::MAX), u64::MAX);
    }

    #[test]
    fn a_counter_that_stands_still_has_no_rate() {
        assert_eq!(TickRate::new(Some(0)), None);
        assert_eq!(TickRate::new(None), None);
    }
}
