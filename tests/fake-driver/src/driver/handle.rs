//! Handles: numbers that look like no memory, so that one that is used as a pointer faults at once. None is given out twice,
//! so that one of something destroyed is known for what it is.

/// What a handle is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Context = 1,
    Stream = 2,
    Event = 3,
    Module = 4,
    Function = 5,
    Graph = 6,
    Exec = 7,
    Node = 8,
}

/// Not canonical, as an address.
const BASE: u64 = 0x0fa4_0000_0000_0000;
const KIND_SHIFT: u32 = 44;
/// Handles are multiples of 16, as pointers to structures are.
const NUMBER_SHIFT: u32 = 4;

/// Gives out handles.
#[derive(Debug, Default)]
pub(super) struct Handles {
    given: u64,
}

impl Handles {
    pub(super) fn give(&mut self, kind: Kind) -> u64 {
        self.given += 1;
        Self::compose(kind, self.given)
    }

    /// Whether it once was a handle of this kind.
    pub(super) fn gave(&self, kind: Kind, handle: u64) -> bool {
        let number = (handle & ((1 << KIND_SHIFT) - 1)) >> NUMBER_SHIFT;
        number > 0 && number <= self.given && handle == Self::compose(kind, number)
    }

    fn compose(kind: Kind, number: u64) -> u64 {
        BASE | (kind as u64) << KIND_SHIFT | number << NUMBER_SHIFT
    }
}
