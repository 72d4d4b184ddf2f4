//! How large a ring is.

use wakeline_core::{Error, within};

/// How many entries the queues of a ring have, and how many operations may be in flight.
///
/// ```
/// use wakeline_uring::UringLimits;
/// let limits = UringLimits::new(64, 256, 100)?;
/// assert_eq!(limits.operations(), 100);
/// assert!(UringLimits::new(2, 256, 100).is_err());
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UringLimits {
    entries: u32,
    completions: u32,
    operations: u32,
}

impl UringLimits {
    /// The fewest entries: the ring's own are up to three at a time.
    pub const ENTRIES_LEAST: u32 = 4;
    /// The most entries.
    pub const ENTRIES_LIMIT: u32 = 4_096;
    /// The most completions that wait to be looked at without the kernel setting them aside.
    pub const COMPLETIONS_LIMIT: u32 = 65_536;
    /// The most operations in flight.
    pub const OPERATIONS_LIMIT: u32 = 1 << 20;

    /// `entries` to be submitted at a time, `completions` to be looked at at a time, and `operations` with futures in flight. The
    /// kernel rounds the first two up to powers of two. Memory: 64 bytes an entry, 16 to 48 a completion, 128 an operation.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit) unless `entries` is from [`ENTRIES_LEAST`](Self::ENTRIES_LEAST) to
    /// [`ENTRIES_LIMIT`](Self::ENTRIES_LIMIT), `completions` from the next power of two of `entries` to
    /// [`COMPLETIONS_LIMIT`](Self::COMPLETIONS_LIMIT), and `operations` from 1 to [`OPERATIONS_LIMIT`](Self::OPERATIONS_LIMIT).
    pub fn new(entries: u32, completions: u32, operations: u32) -> Result<Self, Error> {
        let entries = within("entries", entries, Self::ENTRIES_LEAST, Self::ENTRIES_LIMIT)?;
        Ok(Self {
            entries,
            completions: within(
                "completions",
                completions,
                entries.next_power_of_two(),
                Self::COMPLETIONS_LIMIT,
            )?,
            operations: within("operations", operations, 1, Self::OPERATIONS_LIMIT)?,
        })
    }

    /// Entries that can be pushed before they are submitted.
    pub const fn entries(self) -> u32 {
        self.entries
    }

    /// Completions that can wait in shared memory, and as many of yours that were taken from there.
    pub const fn completions(self) -> u32 {
        self.completions
    }

    /// Operations with futures that can be in flight.
    pub const fn operations(self) -> u32 {
        self.operations
    }
}

impl Default for UringLimits {
    /// 128 entries, 1,024 completions and 512 operations.
    fn default() -> Self {
        Self { entries: 128, completions: 1_024, operations: 512 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_out_of_range_name_themselves() {
        for (limits, args) in [
            (UringLimits::new(3, 64, 1), ["entries", "3", "4", "4096"]),
            (UringLimits::new(5, 7, 1), ["completions", "7", "8", "65536"]),
            (UringLimits::new(4, 4, 0), ["operations", "0", "1", "1048576"]),
        ] {
            let error = limits.unwrap_err();
            assert_eq!(
                (error.code(), error.args()),
                (wakeline_core::ErrorCode::InvalidLimit, &args.map(String::from)[..])
            );
        }
        let default = UringLimits::default();
        let same = UringLimits::new(default.entries(), default.completions(), default.operations());
        assert_eq!(same.unwrap(), default);
    }
}
