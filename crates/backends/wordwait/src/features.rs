//! The instructions to park with, as capability bits, and which of them is taken.

use core::fmt;

use crate::arch::Detected;

bitflags::bitflags! {
    /// Which instructions there are to park with.
    ///
    /// A value says nothing about this machine and allows nothing: only a probe makes a
    /// [`WordWait`](crate::WordWait).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct Features: u8 {
        /// x86-64: `umonitor` and `umwait` (WAITPKG).
        const UMWAIT = 1;
        /// x86-64: `monitorx` and `mwaitx` (MONITORX).
        const MWAITX = 1 << 1;
        /// aarch64: `ldxr` and `wfet` (WFXT), with a counter that tells its rate.
        const WFET = 1 << 2;
        /// aarch64: `ldxr` and `wfe`, with the kernel's event stream (EVTSTRM) to end it.
        const WFE = 1 << 3;
    }
}

impl Features {
    /// What this processor and system have, whether or not all it takes to use it is there.
    pub fn detected() -> Self {
        Detected::ask().features()
    }
}

/// What a [`WordWait`](crate::WordWait) parks with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// `umonitor` and `umwait`, in the shallow state C0.1. The system limits a wait, to 100,000 ticks by
    /// default.
    Umwait,
    /// `monitorx` and `mwaitx`, with its timer and without deeper states.
    Mwaitx,
    /// `ldxr` and `wfet`.
    Wfet,
    /// `ldxr` and `wfe`: late by up to the period of the kernel's event stream, 100 us.
    Wfe,
}

impl Kind {
    /// The best first: those that end at a deadline of their own before the one that does not.
    const ALL: [(Features, Self); 4] = [
        (Features::UMWAIT, Self::Umwait),
        (Features::MWAITX, Self::Mwaitx),
        (Features::WFET, Self::Wfet),
        (Features::WFE, Self::Wfe),
    ];

    /// The best of `features`.
    pub(crate) fn best(features: Features) -> Option<Self> {
        Self::ALL.into_iter().find(|(bit, _)| features.contains(*bit)).map(|(_, kind)| kind)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Umwait => "umwait",
            Self::Mwaitx => "mwaitx",
            Self::Wfet => "wfet",
            Self::Wfe => "wfe",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// A virtual machine hid the bit, and the instruction was executed all the same.
    #[test]
    fn case_44_no_bit_no_instruction_for_every_set_of_bits() {
        assert_eq!(Kind::best(Features::empty()), None);
        for bits in 0..=Features::all().bits() {
            let features = Features::from_bits_truncate(bits);
            let Some(kind) = Kind::best(features) else {
                assert!(features.is_empty());
                continue;
            };
            let (bit, _) = Kind::ALL.into_iter().find(|(_, other)| *other == kind).unwrap();
            assert!(features.contains(bit), "{kind} of {features:?}");
            // Masked, it is never taken.
            assert_ne!(Kind::best(features - bit), Some(kind));
        }
    }

    #[test]
    fn kinds_are_named_after_the_instruction() {
        assert_eq!(Kind::best(Features::all()).unwrap().to_string(), "umwait");
        assert_eq!(Kind::best(Features::WFET | Features::WFE).unwrap().to_string(), "wfet");
    }
}
