//! The processor. Each file supplies, under the same names:
//!
//! - `WHY_NOT`: what to say where it has nothing to park with
//! - `Facts`: what the system and the processor say, by themselves
//! - `features(Facts)`: those facts as [`Features`]
//! - `rate(measure)`: the rate of the counter, ticks in 2^32 nanoseconds
//! - `ticks`, `arm` and `wait` for a [`Kind`]; unsafe, since the processor must have it
#![allow(unsafe_code)]

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
use aarch64 as this;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod other;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use other as this;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
use x86_64 as this;

use wakeline_core::CompletionLine;

use crate::features::{Features, Kind};
use crate::park::Instructions;

pub(crate) use this::{WHY_NOT, rate};

/// What this processor and system have. Only asking makes one, so it is true.
pub(crate) struct Detected {
    features: Features,
}

impl Detected {
    pub(crate) fn ask() -> Self {
        Self { features: this::features(this::Facts::ask()) }
    }

    pub(crate) fn features(&self) -> Features {
        self.features
    }
}

/// Instructions that this processor has. Only [`Hardware::choose`] makes one.
#[derive(Clone, Copy)]
pub(crate) struct Hardware {
    kind: Kind,
}

impl Hardware {
    /// The best that was detected and is allowed.
    pub(crate) fn choose(detected: &Detected, allowed: Features) -> Option<Self> {
        Kind::best(detected.features & allowed).map(|kind| Self { kind })
    }

    pub(crate) fn kind(self) -> Kind {
        self.kind
    }
}

impl Instructions for Hardware {
    fn ticks(&self) -> u64 {
        // SAFETY: the kind is one of those that this processor was asked for and said to have.
        unsafe { this::ticks(self.kind) }
    }

    fn arm(&self, line: &CompletionLine) {
        // SAFETY: as above; the line is alive, since it is borrowed.
        unsafe { this::arm(self.kind, line) }
    }

    fn wait(&self, until_ticks: u64) {
        // SAFETY: as above.
        unsafe { this::wait(self.kind, until_ticks) }
    }
}
