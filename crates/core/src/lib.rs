//! Core of wakeline.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod clock;
mod error;
mod line;
mod port;
mod seq;
mod sync;
mod time;

pub use clock::ManualClock;
pub use error::{Error, ErrorCode};
pub use line::{CompletionLine, LineRef, MemoryDescriptor, Slot, WORDS};
pub use port::{Arming, Clock, CompletionPort, Idle, Park, Status, Timer, Turn, Wake, Watch};
pub use seq::Seq;
pub use time::{Instant, Nanos};
