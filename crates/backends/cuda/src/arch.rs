//! Architectures: what code is compiled for, and what a device is.

use core::fmt;

/// An architecture of devices, as a compute capability: 9.0 is that of an H200.
///
/// ```
/// use wakeline_cuda::Arch;
/// let h200 = Arch::new(9, 0);
/// assert_eq!((h200.to_string(), h200.number()), ("9.0".to_owned(), 90));
/// assert!(Arch::new(8, 9).runs(Arch::new(8, 6)) && !h200.runs(Arch::new(8, 9)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Arch {
    /// The part before the dot.
    pub major: u32,
    /// The part behind the dot.
    pub minor: u32,
}

impl Arch {
    /// The architecture `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// As compilers write it: 90 is 9.0.
    pub const fn of_number(number: u32) -> Self {
        Self { major: number / 10, minor: number % 10 }
    }

    /// As compilers write it: 90 for 9.0.
    pub const fn number(self) -> u32 {
        self.major * 10 + self.minor
    }

    /// Whether a device of this architecture runs machine code for `code`: that of the same generation, and no later one of it.
    pub const fn runs(self, code: Self) -> bool {
        self.major == code.major && self.minor >= code.minor
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
