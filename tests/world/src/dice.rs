//! Numbers from a seed.

/// Numbers from a seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Those of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Those of one part of a program: they do not depend on which other parts are run.
    pub const fn of_part(seed: u64, part: u64) -> Self {
        // The finalizer of splitmix64: neighbours are far apart behind it.
        let mut mixed = seed ^ part.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        Self(mixed ^ mixed >> 31)
    }

    /// A number below `bound`, which is below 2^31.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// The same as a place in something.
    pub fn place(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// Happens one time in so many.
    pub const fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}
