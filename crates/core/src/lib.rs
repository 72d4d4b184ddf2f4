//! Core of wakeline.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod clock;
mod declared;
mod error;
mod kind;
mod lex;
mod line;
mod plan;
mod port;
mod seq;
mod setting;
mod sync;
mod time;

pub use clock::ManualClock;
pub use declared::{Declared, Ladder, Strictness};
pub use error::{Error, ErrorCode};
pub use kind::{ExecutorKind, HostCaps, resolve};
pub use line::{CompletionLine, LineRef, MemoryDescriptor, Slot, WORDS};
pub use plan::{
    Authority, BACKSTOP_US_MAX, BANDS_MAX, MARGIN_US_MAX, Mode, PARK_US_MAX, Predict, ROWS_MAX, SLEEP_US_MAX,
    WINDOW_MAX, WaitBands, WaitPlan,
};
pub use port::{Arming, Clock, CompletionPort, Idle, Park, Status, Timer, Turn, Wake, Watch};
pub use seq::Seq;
pub use setting::{invalid_setting, parse_number, parse_switch, parse_value, unknown_setting};
pub use time::{Instant, Nanos};
