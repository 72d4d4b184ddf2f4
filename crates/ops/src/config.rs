//! How a runtime is set up.

use wakeline_core::{Error, WaitPlan, within};

/// How points are waited for where no other plan is handed in: by the word alone, since the streams are the runtime's own, with a
/// question to the driver every 10 ms so that faults are found. What is expected to take longer than `spin_us` is slept through to 30 us and a 256th before its end,
/// however long that is, or a little more; what the runtime itself has learned is what it expects. A task that is woken before its end touches what the next
/// submission needs ([`Device::warm`](crate::port::Device::warm)) before it watches: a plan without `+warm` does without.
pub const PLAN: &str = "flag:park_us=10,backstop_us=10000\
                        +predict:margin_us=30,min_sleep_us=40,max_sleep_us=60000000,window=8+warm+trust";

/// For how long a task watches its word from submission on, where nothing else is said. A kernel of 100 us is seen to its end so, with
/// what its launch takes; beyond that sleeping, and waking some 30 us too early, costs less than watching.
pub const SPIN_US_DEFAULT: u32 = 200;

/// The longest time for which a task may be made to watch from submission on.
pub const SPIN_US_MAX: u32 = 10_000;

/// With more flights than this in a runtime, its tasks do not watch by themselves, from submission on or woken early: its threads have
/// better to do.
pub const FEW_FLIGHTS_MAX: u64 = 8;

/// With more flights than this in a runtime, ends may be told late, so that some are told at a time: by [`CROWD_LATE_US`], or by up to a 64th of
/// how long they are expected to take, but by no more than [`CROWD_LATE_US_MAX`].
pub const CROWD_FLIGHTS: u64 = 32;

/// See [`CROWD_FLIGHTS`].
pub const CROWD_LATE_US: u32 = 50;

/// See [`CROWD_FLIGHTS`].
pub const CROWD_LATE_US_MAX: u32 = 400;

/// The most that an operation may allow to be told late: a second.
pub const LATE_US_MAX: u32 = 1_000_000;

/// How a runtime is told of the end of work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Completion {
    /// By a word that the stream stores behind the work. Where the device cannot store words, by a callback; where that fails too, by
    /// questions to the driver.
    #[default]
    Word,
    /// By a function of the host that the driver calls behind the work, and that stores a word: 40 us and more later than the device's
    /// own. Where the driver refuses it, by questions.
    Callback,
    /// By questions to the driver, one each `park_us` of the plan.
    Poll,
}

/// How a runtime is set up.
///
/// ```
/// use wakeline_ops::{Completion, RuntimeConfig};
/// let config = RuntimeConfig::default().completion(Completion::Callback).spin_us(20)?;
/// assert!(RuntimeConfig::default().spin_us(1_000_000).is_err());
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuntimeConfig {
    pub(crate) plan: WaitPlan,
    pub(crate) completion: Completion,
    pub(crate) spin_us: u32,
}

impl RuntimeConfig {
    /// With this plan for its points. [`RuntimeConfig::default`] has [`PLAN`].
    ///
    /// By the word's authority, `+trust`, a task may see the end by itself. Of `+predict` the margin and the limits count; what is
    /// predicted is what the runtime has learned of each kind of operation.
    #[must_use]
    pub fn plan(self, plan: WaitPlan) -> Self {
        Self { plan, ..self }
    }

    /// With ends told in this way.
    #[must_use]
    pub fn completion(self, completion: Completion) -> Self {
        Self { completion, ..self }
    }

    /// With tasks that watch by themselves for at most `us` from submission on, in polls of at most 20 us each, where that is expected to
    /// be enough: [`SPIN_US_DEFAULT`] without. 0 has them never do so.
    ///
    /// A task watches only by the word's authority, one a thread at a time, with at most [`FEW_FLIGHTS_MAX`] in flight, and not the first
    /// time that a kind of operation is run.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit) for more than [`SPIN_US_MAX`].
    pub fn spin_us(self, us: u32) -> Result<Self, Error> {
        Ok(Self { spin_us: within("spin_us", us, 0, SPIN_US_MAX)?, ..self })
    }
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        // The text is a constant, and a test reads it.
        let plan = PLAN.parse().unwrap_or_else(|_| WaitPlan::poll());
        Self { plan, completion: Completion::default(), spin_us: SPIN_US_DEFAULT }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_plan_can_be_read_and_is_the_default() {
        assert_eq!(RuntimeConfig::default().plan, PLAN.parse().unwrap());
    }
}
