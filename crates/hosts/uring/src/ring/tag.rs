//! The `user_data` of a ring's entries: whose they are.
//!
//! ```text
//!   63  62..60  59..32       31..0
//!   0   the user's own value
//!   1   kind    generation   index
//! ```
//!
//! A generation keeps what comes late, or is still to be submitted, from hitting what took its place.

/// The `user_data` values from here on, which have their highest bit set, are the ring's own. No address of a process has it set.
pub const USER_DATA_RESERVED: u64 = 1 << 63;

const KIND_SHIFT: u32 = 60;
const GENERATION_SHIFT: u32 = 32;
const GENERATION_MASK: u32 = (1 << (KIND_SHIFT - GENERATION_SHIFT)) - 1;

/// One use of a place that is used again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key {
    pub(super) index: u32,
    generation: u32,
}

impl Key {
    pub(super) const fn new(index: u32) -> Self {
        Self { index, generation: 0 }
    }

    /// The next use of the same place.
    pub(super) const fn next(self) -> Self {
        Self { index: self.index, generation: (self.generation + 1) & GENERATION_MASK }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tag {
    /// An entry that the user pushed.
    User,
    /// The timeout of an idle, of this use.
    Timer(Key),
    /// The change of a timeout's time.
    Update,
    /// The poll of the bell's event.
    Bell,
    /// The cancelling of an operation.
    Cancel,
    /// An operation with a future.
    Operation(Key),
}

impl Tag {
    pub(super) fn of(user_data: u64) -> Self {
        if user_data < USER_DATA_RESERVED {
            return Self::User;
        }
        let low = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
        let key =
            Key { index: low(user_data), generation: low(user_data >> GENERATION_SHIFT) & GENERATION_MASK };
        match user_data >> KIND_SHIFT & 7 {
            0 => Self::Timer(key),
            1 => Self::Update,
            2 => Self::Bell,
            3 => Self::Cancel,
            _ => Self::Operation(key),
        }
    }

    /// Zero for the user's, whose own value it is not.
    pub(super) fn user_data(self) -> u64 {
        let data = |kind: u64, key: Key| {
            USER_DATA_RESERVED
                | kind << KIND_SHIFT
                | u64::from(key.generation) << GENERATION_SHIFT
                | u64::from(key.index)
        };
        let one = Key::new(0);
        match self {
            Self::User => 0,
            Self::Timer(key) => data(0, key),
            Self::Update => data(1, one),
            Self::Bell => data(2, one),
            Self::Cancel => data(3, one),
            Self::Operation(key) => data(4, key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_read_back_and_leave_the_user_half_of_all_values() {
        let last = Key { index: u32::MAX, generation: GENERATION_MASK };
        for key in [Key::new(0), Key::new(7).next(), last] {
            for tag in [Tag::Timer(key), Tag::Operation(key), Tag::Update, Tag::Bell, Tag::Cancel] {
                assert!(tag.user_data() >= USER_DATA_RESERVED);
                assert_eq!(Tag::of(tag.user_data()), tag);
            }
        }
        for user_data in [0, 1, USER_DATA_RESERVED - 1] {
            assert_eq!(Tag::of(user_data), Tag::User);
        }
        assert_eq!(last.next(), Key::new(u32::MAX), "generations wrap");
    }
}
