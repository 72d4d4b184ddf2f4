//! Parking on a completion line in hardware: the processor sleeps in user mode until somebody stores to the
//! line.
//!
//! | processor | instructions | capability bit | ends at its deadline by |
//! |---|---|---|---|
//! | x86-64 | `umonitor`, `umwait` | CPUID 7, ECX bit 5 (WAITPKG) | the time-stamp counter |
//! | x86-64 | `monitorx`, `mwaitx` | CPUID 0x80000001, ECX bit 29 (MONITORX) | the time-stamp counter |
//! | aarch64 | `ldxr`, `wfet` | `AT_HWCAP2` bit 31 (WFXT) | the virtual counter |
//! | aarch64 | `ldxr`, `wfe` | `AT_HWCAP` bit 2 (EVTSTRM) | the kernel's event stream, every 100 us |
//!
//! [`WordWait`] is the park, and the capability to execute these instructions: only a probe makes one, and a
//! probe only asks for the bits. No instruction is ever tried out, and nothing but the processor's own bits
//! can say yes: most virtual machines hide the bits, and an instruction that a hypervisor forbids ends the
//! process. No variable of the environment, feature or cfg overrides that.
//!
//! Invariants: `no_std`; no thread, no static, no environment. Unsafe code is in `arch` alone.
#![no_std]
#![warn(clippy::std_instead_of_core, clippy::std_instead_of_alloc, clippy::alloc_instead_of_core)]

#[cfg(test)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod arch;
mod features;
mod park;
mod ticks;

use core::fmt;
use core::hint::spin_loop;

use wakeline_core::{Clock, CompletionLine, Error, ErrorCode, Instant, Nanos, Park, Wake};

pub use features::{Features, Kind};
pub use park::WAIT_US_MAX;

use ticks::TickRate;

/// How long a park looks at several lines before it comes back, microseconds: hardware watches one.
pub const NO_LINE_US_MAX: u64 = 20;

/// Parks on a completion line in hardware; the capability to do so.
///
/// ```text
///   ready? ─no─► time up? ─no─► arm the monitor ─► ready? ─no─► wait ──► (any reason)
///     ▲                                                           │
///     └───────────────────────────────────────────────────────────┘
/// ```
///
/// The wait ends at a store to the line, at its deadline, at [`WAIT_US_MAX`], at the system's own limit
/// (`umwait` says so by the carry), at an interrupt, or for no reason: all of them only mean "look again",
/// never "done". The deadline is absolute, in ticks of the counter that the instruction understands, so being
/// preempted on the way does not prolong it.
///
/// Some stores may not be seen by a monitor (memory that is not write-back, a device that is not coherent):
/// such a park is late by [`WAIT_US_MAX`], never lost. The thread keeps its processor meanwhile, in a
/// low-power state; a host bounds that time (`StdPark` of `wakeline-std` does).
///
/// ```
/// use wakeline_std::{ParkPolicy, StdClock, StdIdle, StdPark, TscRate};
/// use wakeline_wordwait::WordWait;
/// let clock = StdClock::new();
/// let measure = || TscRate::measure(clock, TscRate::LENGTH).map(TscRate::ticks_per_2_32_ns);
/// let park = StdPark::new(StdIdle::new(clock), ParkPolicy::default())
///     .with_word_wait(WordWait::probe(clock, measure));
/// if let Some(warning) = park.warning() {
///     println!("{warning}");
/// }
/// ```
///
/// It cannot be made by hand:
///
/// ```compile_fail,E0451
/// # use wakeline_core::ManualClock;
/// # use wakeline_wordwait::WordWait;
/// // error: its fields are private
/// let forged = WordWait { clock: ManualClock::new(), hardware: todo!(), rate: todo!() };
/// ```
///
/// ```compile_fail,E0277
/// # use wakeline_core::ManualClock;
/// # use wakeline_wordwait::{Features, Kind, WordWait};
/// // error: nothing converts into it
/// let forged: WordWait<ManualClock> = (ManualClock::new(), Kind::Umwait, Features::all()).into();
/// ```
///
/// ```compile_fail,E0277
/// # use wakeline_core::ManualClock;
/// # use wakeline_wordwait::WordWait;
/// fn any<T: Default>() -> T {
///     T::default()
/// }
/// let forged: WordWait<ManualClock> = any(); // error: it has no default
/// ```
#[derive(Clone, Copy)]
pub struct WordWait<C> {
    clock: C,
    hardware: arch::Hardware,
    rate: TickRate,
}

impl<C: Clock> WordWait<C> {
    /// Asks the processor and the system what they have, and takes the best of it.
    ///
    /// `tsc_rate` tells how many ticks the time-stamp counter makes in 2^32 nanoseconds of `clock`, `None`
    /// where its rate is not constant; it is called at most once, and only on an x86-64 processor that has
    /// one of the instructions. aarch64 tells the rate of its counter itself. A rate that is wrong makes
    /// parks end early or late within [`WAIT_US_MAX`], nothing worse.
    ///
    /// The capability holds for all threads of the process: the systems that tell the bits tell what all
    /// processors have.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::ParkFallback`] with the reason where there is nothing to park with.
    pub fn probe(clock: C, tsc_rate: impl FnOnce() -> Option<u64>) -> Result<Self, Error> {
        Self::probe_among(clock, tsc_rate, Features::all())
    }

    /// As [`probe`](Self::probe), but takes none but `allowed`: to compare two, or to do without.
    ///
    /// It can only take away: a feature that is allowed and not there stays not there.
    ///
    /// # Errors
    ///
    /// As [`probe`](Self::probe).
    pub fn probe_among(
        clock: C,
        tsc_rate: impl FnOnce() -> Option<u64>,
        allowed: Features,
    ) -> Result<Self, Error> {
        let none = |why: &str| Error::new(ErrorCode::ParkFallback, [&why, &"the host's own park"]);
        let detected = arch::Detected::ask();
        let hardware = arch::Hardware::choose(&detected, allowed).ok_or_else(|| {
            none(if detected.features().is_empty() { arch::WHY_NOT } else { "not allowed" })
        })?;
        let rate = TickRate::new(arch::rate(tsc_rate))
            .ok_or_else(|| none("the rate of the processor's counter is not constant or not known"))?;
        Ok(Self { clock, hardware, rate })
    }

    /// What it parks with.
    pub fn kind(&self) -> Kind {
        self.hardware.kind()
    }
}

impl<C: Clock> Park for WordWait<C> {
    fn park(&self, line: Option<&CompletionLine>, until: Instant, mut ready: impl FnMut() -> bool) -> Wake {
        if let Some(line) = line {
            return park::on_line(&self.hardware, self.rate, &self.clock, line, until, ready);
        }
        let until = until.min(self.clock.now() + Nanos::from_micros(NO_LINE_US_MAX));
        loop {
            if ready() {
                return Wake::Reached;
            }
            if self.clock.now() >= until {
                return Wake::Woke;
            }
            spin_loop();
        }
    }
}

impl<C> fmt::Debug for WordWait<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WordWait")
            .field("kind", &self.hardware.kind())
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}
