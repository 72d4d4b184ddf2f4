//! x86-64: `umonitor` and `umwait` of Intel and of AMD's newer processors, `monitorx` and `mwaitx` of AMD.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, _rdtsc};

use wakeline_core::CompletionLine;

use crate::features::{Features, Kind};

pub(crate) const WHY_NOT: &str =
    "the processor shows neither WAITPKG nor MONITORX, which virtual machines often hide";

/// `umwait` in the shallow state C0.1, from which waking is fastest.
const UMWAIT_C01: u32 = 1;

/// `mwaitx` with its timer, in ECX.
const MWAITX_TIMER: u32 = 1 << 1;

/// `mwaitx` without entering a deeper state, in EAX.
const MWAITX_C0: u32 = 0xF0;

/// What CPUID says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Leaf 7, subleaf 0, ECX; 0 where there is no such leaf.
    leaf_7_ecx: u32,
    /// Leaf 0x80000001, ECX; 0 where there is no such leaf.
    extended_1_ecx: u32,
}

impl Facts {
    // The intrinsics are safe from Rust 1.94 on.
    #[allow(unused_unsafe)]
    pub(super) fn ask() -> Self {
        const EXTENDED: u32 = 0x8000_0000;
        // SAFETY: every x86-64 processor has the instruction, for any leaf.
        let leaf = |leaf| unsafe { __cpuid(leaf) };
        let leaf_7_ecx = if leaf(0).eax >= 7 {
            // SAFETY: as above.
            unsafe { __cpuid_count(7, 0) }.ecx
        } else {
            0
        };
        let extended_1_ecx = if leaf(EXTENDED).eax > EXTENDED { leaf(EXTENDED + 1).ecx } else { 0 };
        Self { leaf_7_ecx, extended_1_ecx }
    }
}

/// The bits alone: neither has to be enabled by the system, and neither is reported through anything else.
pub(super) fn features(facts: Facts) -> Features {
    const WAITPKG: u32 = 1 << 5;
    const MONITORX: u32 = 1 << 29;
    let mut features = Features::empty();
    features.set(Features::UMWAIT, facts.leaf_7_ecx & WAITPKG != 0);
    features.set(Features::MWAITX, facts.extended_1_ecx & MONITORX != 0);
    features
}

pub(crate) fn rate(measure: impl FnOnce() -> Option<u64>) -> Option<u64> {
    measure()
}

/// # Safety
///
/// None: every x86-64 processor has the instruction.
pub(super) unsafe fn ticks(_kind: Kind) -> u64 {
    // SAFETY: see above; where the system forbids it the process ends, which harms no memory.
    unsafe { _rdtsc() }
}

/// # Safety
///
/// The processor has the instructions of `kind`.
pub(super) unsafe fn arm(kind: Kind, line: &CompletionLine) {
    match kind {
        // SAFETY: as the caller says.
        Kind::Umwait => unsafe { umonitor(line) },
        // SAFETY: as the caller says.
        Kind::Mwaitx => unsafe { monitorx(line) },
        // Not of this processor, so never chosen.
        Kind::Wfet | Kind::Wfe => {}
    }
}

/// # Safety
///
/// The processor has the instructions of `kind`.
pub(super) unsafe fn wait(kind: Kind, until_ticks: u64) {
    match kind {
        // SAFETY: as the caller says.
        Kind::Umwait => unsafe { umwait(until_ticks) },
        // SAFETY: as the caller says.
        Kind::Mwaitx => unsafe { mwaitx(until_ticks) },
        // Not of this processor, so never chosen.
        Kind::Wfet | Kind::Wfe => {}
    }
}

// Never inlined, so that a disassembly shows where the instructions are: in these four and nowhere else. None
// of the blocks says `nomem`: they order the loads around them for the compiler.

/// # Safety
///
/// The processor has WAITPKG.
#[inline(never)]
unsafe fn umonitor(line: &CompletionLine) {
    // SAFETY: it reads the line, which is alive, at most, and changes nothing that the program can see.
    unsafe { asm!("umonitor {}", in(reg) line, options(nostack, preserves_flags)) }
}

/// # Safety
///
/// The processor has WAITPKG.
#[inline(never)]
unsafe fn umwait(until_ticks: u64) {
    let [low, high] = halves(until_ticks);
    // The carry says that the system's own limit (IA32_UMWAIT_CONTROL) ended it: a reason like any other.
    // SAFETY: it changes nothing but the flags, and comes back for any interrupt.
    unsafe {
        asm!("umwait {:e}", in(reg) UMWAIT_C01, in("eax") low, in("edx") high, options(nostack));
    }
}

/// # Safety
///
/// The processor has MONITORX.
#[inline(never)]
unsafe fn monitorx(line: &CompletionLine) {
    // ECX and EDX are extensions and hints, of which there are none.
    // SAFETY: it reads the line, which is alive, at most, and changes nothing that the program can see.
    unsafe {
        asm!("monitorx", in("rax") line, in("ecx") 0, in("edx") 0, options(nostack, preserves_flags));
    }
}

/// # Safety
///
/// The processor has MONITORX.
#[inline(never)]
unsafe fn mwaitx(until_ticks: u64) {
    // Its timer is a length, of 32 bits: whatever is left of the way to the deadline.
    // SAFETY: every x86-64 processor has the instruction.
    let left = until_ticks.saturating_sub(unsafe { _rdtsc() });
    if left == 0 {
        return;
    }
    let left = u32::try_from(left).unwrap_or(u32::MAX);
    // SAFETY: it changes nothing, and comes back for any interrupt. RBX, which the compiler keeps for itself,
    // is put back.
    unsafe {
        asm!(
            "xchg rbx, {timer}",
            "mwaitx",
            "xchg rbx, {timer}",
            timer = inout(reg) u64::from(left) => _,
            in("eax") MWAITX_C0,
            in("ecx") MWAITX_TIMER,
            options(nostack, preserves_flags),
        );
    }
}

fn halves(ticks: u64) -> [u32; 2] {
    // Both fit, by the mask and by the shift.
    [ticks & 0xFFFF_FFFF, ticks >> 32].map(|half| u32::try_from(half).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A virtual machine hid the bit, and the instruction was executed all the same.
    #[test]
    fn case_44_a_bit_that_cpuid_masks_is_a_feature_that_is_not_there() {
        for (leaf_7_ecx, extended_1_ecx, expected) in [
            (0, 0, Features::empty()),
            (1 << 5, 0, Features::UMWAIT),
            (0, 1 << 29, Features::MWAITX),
            (u32::MAX, u32::MAX, Features::UMWAIT | Features::MWAITX),
            (!(1 << 5), u32::MAX, Features::MWAITX),
            (u32::MAX, !(1 << 29), Features::UMWAIT),
            (!(1 << 5), !(1 << 29), Features::empty()),
        ] {
            assert_eq!(features(Facts { leaf_7_ecx, extended_1_ecx }), expected);
        }
    }

    #[test]
    fn a_deadline_is_split_into_its_halves() {
        assert_eq!(halves(0x0123_4567_89AB_CDEF), [0x89AB_CDEF, 0x0123_4567]);
        assert_eq!(halves(u64::MAX), [u32::MAX; 2]);
    }
}
