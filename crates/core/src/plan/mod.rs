//! Plans: how a wait goes about it, as a value and as text.
//!
//! The text is the language of settings, records and errors. Each plan has one way to be printed, and what is
//! printed reads back as the same plan: whatever a [`WaitPlan`] can be made of can be written. So the typed
//! constructors keep to the ranges of the text, and fail with its errors.
//!
//! ```text
//! bands   = plan *( ";rows>=" number ":" plan )
//! plan    = "block" / "poll" [ ahead [ "+warm" ] ] / flag [ ahead [ "+warm" ] ] [ "+trust" ]
//! flag    = "flag:park_us=" number ",backstop_us=" number
//! ahead   = predict / adapt
//! predict = "+predict:margin_us=" number ",min_sleep_us=" number ",max_sleep_us=" number ",window=" number
//! adapt   = "+adapt:late_pct=" number ",guard_us=" number ",min_sleep_us=" number ",max_sleep_us=" number
//!           ",window=" number
//! number  = 1*DIGIT
//! ```
//!
//! The fields of a part may come in any order, each exactly once; nothing is defaulted. White space, signs and
//! upper case are faults.

mod adapt;
mod bands;
mod parse;
#[cfg(test)]
mod tests;

use alloc::format;
use core::fmt;
use core::num::NonZeroU16;
use core::str::FromStr;

use crate::error::Error;
use crate::time::Nanos;

pub use adapt::{Adapt, LATE_PCT_MAX};
pub use bands::{BANDS_MAX, ROWS_MAX, WaitBands};

/// The longest park, in microseconds. The shortest is 1.
pub const PARK_US_MAX: u64 = 1_000_000;
/// The longest time between two questions to the driver, in microseconds. The shortest is that of a park.
pub const BACKSTOP_US_MAX: u64 = 10_000_000;
/// The longest margin, in microseconds. The shortest is 0.
pub const MARGIN_US_MAX: u64 = 1_000_000;
/// The longest sleep that a plan can set a limit at, in microseconds. The shortest is 1.
pub const SLEEP_US_MAX: u64 = 60_000_000;
/// The most residuals that a prediction can be made of. The fewest is 1.
pub const WINDOW_MAX: u16 = 256;

/// How a wait goes about it: what it watches, whether it sleeps first, and whose word counts.
///
/// Small and `Copy`; made from text or by the constructors here, and only ever a plan that can be written.
///
/// | text | the thread | costs | authority |
/// |---|---|---|---|
/// | `block` | blocks in the backend: in the driver's own wait, or in naps between queries | the wake-up, often tens of microseconds late | driver |
/// | `poll` | asks the driver in a loop | a core | driver |
/// | `flag:park_us=..,backstop_us=..` | parks on the completion word | a store a point, little CPU | driver |
/// | `flag:..+trust` | the same | one driver call less a point | word |
/// | `poll+predict:..`, `flag:..+predict:..` | sleeps first, until shortly before the predicted end | as without, for the rest only | as without |
/// | `poll+adapt:..`, `flag:..+adapt:..` | sleeps through the stretches where its point hardly ever ends | as without, where it may end | as without |
/// | either of these with `+warm` | makes the next submission fast between its sleep and the end | nothing: it would watch | as without |
///
/// ```
/// use wakeline_core::{Authority, Mode, Nanos, WaitPlan};
/// let plan: WaitPlan = "flag:park_us=50,backstop_us=1000+trust".parse()?;
/// assert_eq!(plan, WaitPlan::flag(50, 1_000)?.trusted()?);
/// assert_eq!(plan.mode(), Mode::Flag { park: Nanos::from_micros(50), backstop: Nanos::from_millis(1) });
/// assert_eq!(plan.authority(), Authority::Word);
/// assert_eq!(plan.to_string(), "flag:park_us=50,backstop_us=1000+trust");
///
/// let error = "flag:pak_us=50,backstop_us=1000".parse::<WaitPlan>().unwrap_err();
/// assert_eq!(error.args()[1], "6"); // the column
/// assert!(error.to_string().contains("unknown field `pak_us`: did you mean `park_us`?"));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaitPlan {
    stored: Stored,
    ahead: Ahead,
    warm: bool,
    trust: bool,
}

/// How it sleeps ahead of the end. Each field by itself, so that what tells the kinds apart finds room among them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Ahead {
    Nothing,
    Predict { margin_us: u32, min_sleep_us: u32, max_sleep_us: u32, window: NonZeroU16 },
    Adapt { late_pct: u8, guard_us: u32, min_sleep_us: u32, max_sleep_us: u32, window: NonZeroU16 },
}

impl From<Predict> for Ahead {
    fn from(Predict { margin_us, min_sleep_us, max_sleep_us, window }: Predict) -> Self {
        Self::Predict { margin_us, min_sleep_us, max_sleep_us, window }
    }
}

impl From<Adapt> for Ahead {
    fn from(Adapt { late_pct, fields }: Adapt) -> Self {
        let Predict { margin_us, min_sleep_us, max_sleep_us, window } = fields;
        Self::Adapt { late_pct, guard_us: margin_us, min_sleep_us, max_sleep_us, window }
    }
}

/// A [`Mode`] in whole microseconds: a plan goes into every report, so it is kept small.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stored {
    Block,
    Poll,
    Flag { park_us: u32, backstop_us: u32 },
}

const _: () = assert!(size_of::<WaitPlan>() <= 32, "a plan is copied into every report");

impl WaitPlan {
    /// `block`: the backend's blocking wait.
    pub const fn block() -> Self {
        Self::plain(Stored::Block)
    }

    /// `poll`: ask the driver until it says done.
    pub const fn poll() -> Self {
        Self::plain(Stored::Poll)
    }

    /// `flag:park_us=..,backstop_us=..`: park on the completion word; see [`Mode::Flag`] for what the two times are.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidPlan`](crate::ErrorCode::InvalidPlan), as from the text, unless
    /// 1 <= `park_us` <= [`PARK_US_MAX`] and `park_us` <= `backstop_us` <= [`BACKSTOP_US_MAX`].
    pub fn flag(park_us: u64, backstop_us: u64) -> Result<Self, Error> {
        format!("flag:park_us={park_us},backstop_us={backstop_us}").parse()
    }

    /// The same plan with `+predict:..`: sleep first. Takes the place of a prediction or an adaptation already there.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidPlan`](crate::ErrorCode::InvalidPlan) for `block`, which has no moment to wake before.
    pub fn with_predict(self, predict: Predict) -> Result<Self, Error> {
        Self { ahead: predict.into(), ..self }.checked()
    }

    /// The same plan with `+adapt:..`: sleep where the point hardly ever ends. Takes the place of a prediction or an adaptation already there.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidPlan`](crate::ErrorCode::InvalidPlan) for `block`, which watches nothing between its sleeps.
    pub fn with_adapt(self, adapt: Adapt) -> Result<Self, Error> {
        Self { ahead: adapt.into(), ..self }.checked()
    }

    /// The same plan with `+warm`: a wait that has slept has its port touch what the next submission needs, before the end that it wakes for.
    ///
    /// A thread that sleeps finds what the driver had in its processor's caches gone, and so launches the next work late: by 10 us after a sleep of 5 ms on the
    /// 16-core host of an NVIDIA H200, where the same launch was 6 us faster than after a spin with this. See
    /// [`CompletionPort::warm`](crate::CompletionPort::warm) for what is touched. Where a watcher waits for another thread it changes nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidPlan`](crate::ErrorCode::InvalidPlan) for a plan that does not sleep.
    pub fn warming(self) -> Result<Self, Error> {
        Self { warm: true, ..self }.checked()
    }

    /// The same plan with `+trust`: the completion word ends the wait, the driver is asked for faults only.
    ///
    /// Only for streams whose stores are known to be ordered behind the work and its writes: a stray or early
    /// store to the word is then a wrong answer.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidPlan`](crate::ErrorCode::InvalidPlan) for `block` and `poll`, which watch no word.
    pub fn trusted(self) -> Result<Self, Error> {
        Self { trust: true, ..self }.checked()
    }

    /// What it watches.
    pub const fn mode(&self) -> Mode {
        match self.stored {
            Stored::Block => Mode::Block,
            Stored::Poll => Mode::Poll,
            Stored::Flag { park_us, backstop_us } => {
                Mode::Flag { park: us(park_us), backstop: us(backstop_us) }
            }
        }
    }

    /// How it sleeps first, where it does.
    #[inline]
    pub const fn predict(&self) -> Option<Predict> {
        match self.ahead {
            Ahead::Predict { margin_us, min_sleep_us, max_sleep_us, window } => {
                Some(Predict { margin_us, min_sleep_us, max_sleep_us, window })
            }
            Ahead::Nothing | Ahead::Adapt { .. } => None,
        }
    }

    /// How it sleeps by what is known of its point, where it does.
    #[inline]
    pub const fn adapt(&self) -> Option<Adapt> {
        match self.ahead {
            Ahead::Adapt { late_pct, guard_us, min_sleep_us, max_sleep_us, window } => {
                let fields = Predict { margin_us: guard_us, min_sleep_us, max_sleep_us, window };
                Some(Adapt { late_pct, fields })
            }
            Ahead::Nothing | Ahead::Predict { .. } => None,
        }
    }

    /// Whether it warms what the next submission needs: with `+warm`.
    #[inline]
    pub const fn warms(&self) -> bool {
        self.warm
    }

    /// Whose word ends the wait: [`Authority::Word`] with `+trust`, else [`Authority::Driver`].
    pub const fn authority(&self) -> Authority {
        if self.trust { Authority::Word } else { Authority::Driver }
    }

    const fn plain(stored: Stored) -> Self {
        Self { stored, ahead: Ahead::Nothing, warm: false, trust: false }
    }

    /// A plan is one that can be written.
    fn checked(self) -> Result<Self, Error> {
        format!("{self}").parse()
    }
}

const fn us(us: u32) -> Nanos {
    Nanos::from_micros(us as u64)
}

impl FromStr for WaitPlan {
    type Err = Error;

    /// Reads a plan as in the table above.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidPlan`](crate::ErrorCode::InvalidPlan): the text (cut after 200 characters), the column of
    /// the first fault, what is wrong and what would be right.
    fn from_str(text: &str) -> Result<Self, Error> {
        parse::read(text, parse::plan)
    }
}

impl fmt::Display for WaitPlan {
    /// As [`FromStr`] reads it, with the fields in the order of the documentation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stored {
            Stored::Block => f.write_str("block")?,
            Stored::Poll => f.write_str("poll")?,
            Stored::Flag { park_us, backstop_us } => {
                write!(f, "flag:park_us={park_us},backstop_us={backstop_us}")?;
            }
        }
        if let Some(predict) = self.predict() {
            write!(f, "+{predict}")?;
        }
        if let Some(adapt) = self.adapt() {
            write!(f, "+{adapt}")?;
        }
        f.write_str(if self.warm { "+warm" } else { "" })?;
        f.write_str(if self.trust { "+trust" } else { "" })
    }
}

/// What a wait watches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// The backend's blocking wait.
    Block,
    /// The driver's status, asked in a loop.
    Poll,
    /// The completion word, parked on.
    Flag {
        /// `park_us`: the longest single park. Bounds how late a wake is that hardware loses. Whole microseconds,
        /// 1 to [`PARK_US_MAX`].
        park: Nanos,
        /// `backstop_us`: how often the driver is asked meanwhile. Bounds how late a lost store or a fault is seen.
        /// Whole microseconds, from `park` to [`BACKSTOP_US_MAX`].
        backstop: Nanos,
    },
}

/// Whose word ends a wait well.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Authority {
    /// The driver's status of the point; the completion word is only a hint of when to ask. A lost, late or early
    /// store costs at most one backstop, never a wrong answer.
    Driver,
    /// The completion word, stored by the stream behind the work; the driver is asked for faults only. By `+trust`.
    Word,
    /// The completion word, stored by a running kernel, whose point the driver knows nothing of. Never by a plan's
    /// text: it is a property of the point.
    Kernel,
}

/// How a wait sleeps first: until `margin` before the end that its point's recent residuals predict.
///
/// A residual is the time from the start of the wait to the end of the work.
///
/// ```
/// use wakeline_core::{Nanos, Predict, WaitPlan};
/// let predict = Predict::new(50, 100, 20_000, 16)?;
/// assert_eq!(predict.margin(), Nanos::from_micros(50));
/// assert_eq!(predict.to_string(), "predict:margin_us=50,min_sleep_us=100,max_sleep_us=20000,window=16");
/// assert_eq!(WaitPlan::poll().with_predict(predict)?.to_string(), format!("poll+{predict}"));
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Predict {
    margin_us: u32,
    min_sleep_us: u32,
    max_sleep_us: u32,
    window: NonZeroU16,
}

impl Predict {
    /// A prediction with these fields, in the order of the text; each is explained at its accessor.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidPlan`](crate::ErrorCode::InvalidPlan), as from the text, unless
    /// `margin_us` <= [`MARGIN_US_MAX`], 1 <= `min_sleep_us` <= `max_sleep_us` <= [`SLEEP_US_MAX`] and
    /// 1 <= `window` <= [`WINDOW_MAX`].
    pub fn new(margin_us: u64, min_sleep_us: u64, max_sleep_us: u64, window: u16) -> Result<Self, Error> {
        let text = format!(
            "predict:margin_us={margin_us},min_sleep_us={min_sleep_us},max_sleep_us={max_sleep_us},window={window}"
        );
        parse::read(&text, parse::lone_predict)
    }

    /// `margin_us`: how long before the predicted end the sleep ends. Covers the host's late wake-ups; all of it is
    /// watched through. Whole microseconds, 0 to [`MARGIN_US_MAX`].
    pub const fn margin(&self) -> Nanos {
        us(self.margin_us)
    }

    /// `min_sleep_us`: a shorter sleep is not worth it and is watched through instead. Whole microseconds, 1 to
    /// [`SLEEP_US_MAX`].
    pub const fn min_sleep(&self) -> Nanos {
        us(self.min_sleep_us)
    }

    /// `max_sleep_us`: no sleep is longer, whatever was predicted. Whole microseconds, from `min_sleep_us` to
    /// [`SLEEP_US_MAX`].
    pub const fn max_sleep(&self) -> Nanos {
        us(self.max_sleep_us)
    }

    /// `window`: of how many of the point's last residuals the prediction is made. 1 to [`WINDOW_MAX`].
    pub const fn window(&self) -> u16 {
        self.window.get()
    }
}

impl fmt::Display for Predict {
    /// As it stands behind the `+` in a plan.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "predict:margin_us={},min_sleep_us={},max_sleep_us={},window={}",
            self.margin_us, self.min_sleep_us, self.max_sleep_us, self.window
        )
    }
}
