//! The rate of the x86 time-stamp counter, which the hardware parks' deadlines are counted in.

use wakeline_core::Nanos;
#[cfg(target_arch = "x86_64")]
use wakeline_core::{Clock, Instant};

use crate::clock::StdClock;

/// How many pairs of clock and counter are read at each end; the tightest counts.
#[cfg(target_arch = "x86_64")]
const PAIRS: usize = 32;

/// How fast the time-stamp counter runs, against the host's clock.
///
/// The processor does not say (AMD reports no frequency, virtual machines hide it), so it is measured. Only a
/// rate is kept, no offset: a deadline is turned into ticks from the counter's value at that moment, so an
/// error of the rate costs its share of one short wait and nothing accumulates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TscRate {
    ticks_per_2_32_ns: u64,
    error_ppm_max: u32,
}

impl TscRate {
    /// How long a calibration takes by default: to within about 20 ppm with a clock that is read in 40 ns.
    pub const LENGTH: Nanos = Nanos::from_millis(10);

    /// Measures the rate over `length`, asleep. `None` where the processor has no such counter, or one whose
    /// rate follows the processor's frequency or stops with it (CPUID 0x80000007, EDX bit 8).
    ///
    /// ```
    /// use wakeline_std::{StdClock, TscRate};
    /// if let Some(rate) = TscRate::measure(StdClock::new(), TscRate::LENGTH) {
    ///     println!("{} MHz", rate.mhz());
    /// }
    /// ```
    #[cfg(target_arch = "x86_64")]
    pub fn measure(clock: StdClock, length: Nanos) -> Option<Self> {
        if !invariant() {
            return None;
        }
        let start = pair(clock);
        clock.sleep_until(start.at + length);
        let end = pair(clock);
        let ns = end.at.since(start.at).as_nanos();
        if ns == 0 || end.ticks <= start.ticks {
            return None;
        }
        let rate = (u128::from(end.ticks - start.ticks) << 32) / u128::from(ns);
        // The true moments lie anywhere within the brackets.
        let error = u128::from((start.bracket + end.bracket).as_nanos()) * 1_000_000 / u128::from(ns);
        Some(Self {
            ticks_per_2_32_ns: u64::try_from(rate).ok()?,
            error_ppm_max: u32::try_from(error).unwrap_or(u32::MAX),
        })
    }

    /// There is no such counter here: `None`.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn measure(_clock: StdClock, _length: Nanos) -> Option<Self> {
        None
    }

    /// Ticks in 2^32 nanoseconds: `ns * rate >> 32` turns a length into ticks.
    pub const fn ticks_per_2_32_ns(self) -> u64 {
        self.ticks_per_2_32_ns
    }

    /// The rate in whole megahertz.
    pub const fn mhz(self) -> u64 {
        // In two parts, so that nothing overflows.
        (self.ticks_per_2_32_ns >> 32) * 1_000 + (((self.ticks_per_2_32_ns & 0xFFFF_FFFF) * 1_000) >> 32)
    }

    /// By how much the rate may be wrong, parts in a million.
    pub const fn error_ppm_max(self) -> u32 {
        self.error_ppm_max
    }
}

/// The counter at a moment, which is known to within `bracket`.
#[cfg(target_arch = "x86_64")]
struct Pair {
    at: Instant,
    ticks: u64,
    bracket: Nanos,
}

#[cfg(target_arch = "x86_64")]
fn pair(clock: StdClock) -> Pair {
    let read = || {
        let before = clock.now();
        let ticks = ticks();
        let bracket = clock.now().since(before);
        Pair { at: before + Nanos::from_nanos(bracket.as_nanos() / 2), ticks, bracket }
    };
    // A preemption between the reads only widens a bracket, and another is taken.
    (1..PAIRS)
        .map(|_| read())
        .fold(read(), |best, pair| if pair.bracket < best.bracket { pair } else { best })
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; a system that forbids it ends the process, it harms
    // nothing.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn invariant() -> bool {
    /// The highest extended leaf, and the leaf that holds the bit.
    const EXTENDED: u32 = 0x8000_0000;
    const POWER: u32 = 0x8000_0007;
    const INVARIANT_TSC: u32 = 1 << 8;
    let cpuid = |leaf| {
        // SAFETY: every x86-64 processor has the instruction. (Safe from Rust 1.94 on.)
        #[allow(unused_unsafe)]
        unsafe {
            core::arch::x86_64::__cpuid(leaf)
        }
    };
    cpuid(EXTENDED).eax >= POWER && cpuid(POWER).edx & INVARIANT_TSC != 0
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn two_calibrations_agree_within_what_they_say() {
        let clock = StdClock::new();
        // A machine that hides the counter's rate has nothing to agree on, and says so.
        let Some(first) = TscRate::measure(clock, TscRate::LENGTH) else {
            assert!(!invariant());
            return;
        };
        let second = TscRate::measure(clock, Nanos::from_millis(2)).unwrap();
        let difference = first.ticks_per_2_32_ns().abs_diff(second.ticks_per_2_32_ns());
        let ppm = difference * 1_000_000 / first.ticks_per_2_32_ns();
        // The clock itself is slewed by up to 500 ppm.
        let within = u64::from(first.error_ppm_max()) + u64::from(second.error_ppm_max()) + 500;
        assert!(ppm <= within, "{first:?} and {second:?} are {ppm} ppm apart");
        assert!((100..20_000).contains(&first.mhz()), "{} MHz", first.mhz());
    }

    #[test]
    fn megahertz_do_not_overflow() {
        let rate = |ticks_per_2_32_ns| TscRate { ticks_per_2_32_ns, error_ppm_max: 0 };
        assert_eq!(rate(0).mhz(), 0);
        assert_eq!(rate((1 << 32) * 5 / 2).mhz(), 2_500);
        assert_eq!(rate(u64::MAX).mhz(), 4_294_967_295_999);
    }
}
