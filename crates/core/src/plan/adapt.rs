//! `+adapt`: the fields of a plan that sleeps by what is known of its point.

use alloc::format;
use core::fmt;

use super::{Predict, parse};
use crate::error::Error;
use crate::time::Nanos;

/// The most that `late_pct` may be. The least is 1.
pub const LATE_PCT_MAX: u8 = 50;

/// How a wait sleeps through the stretches where its point's recent residuals did not end, and watches where they cluster.
///
/// It decides again after each sleep and each watch: at any moment it sleeps towards the next residual that is known, less what sleeps of
/// that length are late by on this host, and past everything that is known it naps in proportion to the time already spent.
///
/// ```
/// use wakeline_core::{Adapt, Nanos, WaitPlan};
/// let adapt = Adapt::new(1, 5, 20, 20_000, 64)?;
/// assert_eq!((adapt.late_pct(), adapt.guard()), (1, Nanos::from_micros(5)));
/// assert_eq!(adapt.to_string(), "adapt:late_pct=1,guard_us=5,min_sleep_us=20,max_sleep_us=20000,window=64");
/// assert_eq!(WaitPlan::poll().with_adapt(adapt)?.to_string(), format!("poll+{adapt}"));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Adapt {
    pub(super) late_pct: u8,
    /// Whose margin is the guard.
    pub(super) fields: Predict,
}

impl Adapt {
    /// With these fields, in the order of the text; each is explained at its accessor.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidPlan`](crate::ErrorCode::InvalidPlan), as from the text, unless 1 <= `late_pct` <= [`LATE_PCT_MAX`],
    /// `guard_us` <= [`MARGIN_US_MAX`](crate::MARGIN_US_MAX), 1 <= `min_sleep_us` <= `max_sleep_us` <= [`SLEEP_US_MAX`](crate::SLEEP_US_MAX)
    /// and 1 <= `window` <= [`WINDOW_MAX`](crate::WINDOW_MAX).
    pub fn new(
        late_pct: u8,
        guard_us: u64,
        min_sleep_us: u64,
        max_sleep_us: u64,
        window: u16,
    ) -> Result<Self, Error> {
        let text = format!(
            "adapt:late_pct={late_pct},guard_us={guard_us},min_sleep_us={min_sleep_us},max_sleep_us={max_sleep_us},window={window}"
        );
        parse::read(&text, parse::lone_adapt)
    }

    /// `late_pct`: how late a wake may be, in hundredths of the residual: what the length of a nap past everything known is bounded by,
    /// the chance at which a sleep may pass an end that is known, and the share of the sleeps that may end later than what is allowed for the host's timer (of that
    /// powers of two are told apart). 1 to [`LATE_PCT_MAX`].
    ///
    /// Once a window has been filled, waits are late by at most that (and 10 us) but for a part of them. That part is about 1 % of the waits, at 1, where residuals alternate, drift, have
    /// outliers, rare short ones, regimes or two states; 2 % where they have a heavy tail; 5 % with a window of 64, and 2 % with one of 256, where they
    /// get shorter by steps again and again. The worst that a search of 60 sequences of each kind found was 20 % (many short steps of a tenth, and a tail whose mean has no
    /// bound). What nothing known tells of cannot be slept through in time: a first short one is late once, and the wait behind it naps until it has seen an end.
    pub const fn late_pct(&self) -> u8 {
        self.late_pct
    }

    /// `guard_us`: how long before the next known residual a sleep ends, besides what this host's timers are late by, which is learned.
    /// Whole microseconds, 0 to [`MARGIN_US_MAX`](crate::MARGIN_US_MAX).
    pub const fn guard(&self) -> Nanos {
        self.fields.margin()
    }

    /// `min_sleep_us`: a shorter sleep is not worth it and is watched through instead. Whole microseconds, 1 to
    /// [`SLEEP_US_MAX`](crate::SLEEP_US_MAX).
    pub const fn min_sleep(&self) -> Nanos {
        self.fields.min_sleep()
    }

    /// `max_sleep_us`: no single sleep is longer. Whole microseconds, from `min_sleep_us` to
    /// [`SLEEP_US_MAX`](crate::SLEEP_US_MAX).
    pub const fn max_sleep(&self) -> Nanos {
        self.fields.max_sleep()
    }

    /// `window`: how many of the point's last residuals are known. 1 to [`WINDOW_MAX`](crate::WINDOW_MAX).
    pub const fn window(&self) -> u16 {
        self.fields.window()
    }
}

impl fmt::Display for Adapt {
    /// As it stands behind the `+` in a plan.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Predict { margin_us, min_sleep_us, max_sleep_us, window } = self.fields;
        write!(
            f,
            "adapt:late_pct={},guard_us={margin_us},min_sleep_us={min_sleep_us},max_sleep_us={max_sleep_us},window={window}",
            self.late_pct
        )
    }
}
