//! aarch64: an exclusive load arms the monitor of the line, `wfet` or `wfe` waits for its event.

use core::arch::asm;

use wakeline_core::CompletionLine;

use crate::features::{Features, Kind};

pub(crate) const WHY_NOT: &str = "the system shows neither WFXT with a counter that tells its rate, nor an event stream that \
                                  bounds a `wfe`, or the processor's monitors are narrower than a line";

/// The bits of `AT_HWCAP` and `AT_HWCAP2`, as Linux defines them.
const HWCAP_EVTSTRM: u64 = 1 << 2;
const HWCAP2_WFXT: u64 = 1 << 31;

/// A monitor covers at least a line from this size on, bytes.
const LINE_BYTES: u32 = 64;

/// What the system and the processor's registers say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    hwcap: u64,
    hwcap2: u64,
    /// What an exclusive load monitors, bytes.
    granule_bytes: u32,
    /// Ticks of the virtual counter a second; 0 where the firmware did not say.
    counter_hz: u64,
}

impl Facts {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn ask() -> Self {
        // The bits come from the kernel, by way of the auxiliary vector that it started the process with.
        // SAFETY: it takes any number, and only reads what the kernel wrote.
        let hwcap = unsafe { libc::getauxval(libc::AT_HWCAP) };
        // SAFETY: as above.
        let hwcap2 = unsafe { libc::getauxval(libc::AT_HWCAP2) };
        Self { hwcap, hwcap2, granule_bytes: granule_bytes(cache_type()), counter_hz: counter_hz() }
    }

    /// No other system says whether its event stream runs: nothing is known, so nothing is there.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn ask() -> Self {
        Self { hwcap: 0, hwcap2: 0, granule_bytes: 0, counter_hz: 0 }
    }
}

pub(super) fn features(facts: Facts) -> Features {
    let mut features = Features::empty();
    // A store elsewhere in the line has to end the wait, too.
    if facts.granule_bytes >= LINE_BYTES {
        features.set(Features::WFET, facts.hwcap2 & HWCAP2_WFXT != 0 && facts.counter_hz != 0);
        // Without the stream a `wfe` may sleep for good.
        features.set(Features::WFE, facts.hwcap & HWCAP_EVTSTRM != 0);
    }
    features
}

/// The counter tells its rate; where it does not, only `wfe` is left, which is not bounded by it.
pub(crate) fn rate(_measure: impl FnOnce() -> Option<u64>) -> Option<u64> {
    Some(per_2_32_ns(counter_hz()).max(1))
}

fn per_2_32_ns(hz: u64) -> u64 {
    u64::try_from((u128::from(hz) << 32) / 1_000_000_000).unwrap_or(u64::MAX)
}

/// From `CTR_EL0.ERG`: the logarithm of the number of 4-byte words; 0 says nothing, and then it may be up to
/// 2 KiB.
fn granule_bytes(cache_type: u64) -> u32 {
    match cache_type >> 20 & 0xF {
        0 => 2_048,
        log2_words => 4 << log2_words,
    }
}

fn cache_type() -> u64 {
    let value;
    // SAFETY: Linux lets user mode read the register, or reads it for it.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

fn counter_hz() -> u64 {
    let value: u64;
    // SAFETY: Linux lets user mode read the register.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) value, options(nomem, nostack, preserves_flags)) };
    // The upper half is reserved.
    value & 0xFFFF_FFFF
}

/// # Safety
///
/// The system lets user mode read the virtual counter: Linux does wherever it shows the bits.
pub(super) unsafe fn ticks(_kind: Kind) -> u64 {
    let value;
    // No barrier: read a little early it only ends a wait early.
    // SAFETY: as the caller says.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// # Safety
///
/// None: every aarch64 processor has the instruction, and the line is memory.
pub(super) unsafe fn arm(_kind: Kind, line: &CompletionLine) {
    // The monitor stays armed after the park: the next exclusive load moves it, and an event it leaves behind
    // ends one wait early. `ready` in between may load, but must not do exclusives of its own: they would
    // move the monitor, and the park would be late by the bound of a wait. SAFETY: it reads eight bytes of
    // the line, which is alive and 64-aligned.
    unsafe { asm!("ldxr {}, [{}]", out(reg) _, in(reg) line, options(nostack, preserves_flags)) }
}

/// # Safety
///
/// The processor has WFXT where `kind` is `wfet`.
pub(super) unsafe fn wait(kind: Kind, until_ticks: u64) {
    if kind == Kind::Wfet {
        // SAFETY: as the caller says.
        unsafe { wfet(until_ticks) };
    } else {
        // SAFETY: every aarch64 processor has the instruction; the event stream, without which it is not
        // chosen, bounds it.
        unsafe { asm!("wfe", options(nostack, preserves_flags)) };
    }
}

/// # Safety
///
/// The processor has WFXT.
#[inline(never)]
unsafe fn wfet(until_ticks: u64) {
    // `wfet x0`, by its number: assemblers refuse the name unless told that the processor has it.
    // SAFETY: it changes nothing, and comes back by the deadline.
    unsafe { asm!(".inst 0xd5031000", in("x0") until_ticks, options(nostack, preserves_flags)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Facts =
        Facts { hwcap: u64::MAX, hwcap2: u64::MAX, granule_bytes: 64, counter_hz: 1_000_000_000 };

    /// A virtual machine hid the bit, and the instruction was executed all the same.
    #[test]
    fn case_44_a_bit_that_the_system_masks_is_a_feature_that_is_not_there() {
        let both = Features::WFET | Features::WFE;
        for (facts, expected) in [
            (ALL, both),
            (Facts { hwcap2: !HWCAP2_WFXT, ..ALL }, Features::WFE),
            (Facts { hwcap: !HWCAP_EVTSTRM, ..ALL }, Features::WFET),
            (Facts { hwcap: 0, hwcap2: 0, ..ALL }, Features::empty()),
            (Facts { counter_hz: 0, ..ALL }, Features::WFE),
            (Facts { granule_bytes: 32, ..ALL }, Features::empty()),
            (Facts { granule_bytes: 2_048, ..ALL }, both),
        ] {
            assert_eq!(features(facts), expected, "{facts:?}");
        }
    }

    #[test]
    fn granules_and_rates_are_what_the_registers_mean() {
        for (erg, bytes) in [(0, 2_048), (3, 32), (4, 64), (9, 2_048)] {
            assert_eq!(granule_bytes(erg << 20 | 0xF_FFFF), bytes);
        }
        assert_eq!(per_2_32_ns(1_000_000_000), 1 << 32);
        assert_eq!(per_2_32_ns(0), 0);
        assert_eq!(per_2_32_ns(u64::MAX), u64::MAX);
    }
}
