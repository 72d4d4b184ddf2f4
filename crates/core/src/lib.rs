//! Await GPU work the way I/O is awaited.
//!
//! A stream stores a sequence number into a word of host-visible memory behind its work; the host sleeps until the work
//! is nearly done, watches that word, and runs other ready work in between. This crate holds what every backend and host
//! shares, and every decision about waiting; it touches no clock, thread, operating system or driver.
//!
//! | you want | look at |
//! |---|---|
//! | how a wait goes about it, as text | [`WaitPlan`], [`WaitBands`] |
//! | to wait on this thread | [`run_inline`], [`Inline`], [`drive`] |
//! | to wait for several things on one thread, with work between | [`Executor`], [`Reactor`] |
//! | to learn how long points take | [`PointTable`], [`drive_at`] |
//! | to end a wait early | [`Wait::deadline`], [`CancelToken`] |
//! | what a wait did | [`Report`] |
//! | to write a backend or a host | the ports: [`CompletionPort`], [`Clock`], [`Timer`], [`Idle`], [`Park`], [`Watch`], [`Tend`] |
//! | to drive waits yourself | [`Wait`], the state machine |
//!
//! ```
//! use wakeline_core::{Inline, Nanos, Wait, WaitPlan, drive, run_inline};
//! use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime};
//!
//! let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?; // simulated, on virtual time
//! let host = VirtualHost::new(&device);
//! let inline = Inline::new(&host, &host, &host); // its clock, its sleep, its park
//!
//! let stream = device.stream()?;
//! stream.launch(Nanos::from_micros(250))?; // 250 us of work
//! let plan: WaitPlan = "flag:park_us=50,backstop_us=1000".parse()?;
//! let report = run_inline(drive(Wait::new(&plan), &mut stream.point(), &inline, None))??;
//! assert!(report.elapsed >= Nanos::from_micros(250) && report.elapsed < Nanos::from_micros(260));
//! # Ok::<(), wakeline_core::Error>(())
//! ```

#![no_std]
#![warn(clippy::std_instead_of_core, clippy::std_instead_of_alloc, clippy::alloc_instead_of_core)]
#![forbid(unsafe_code)]

extern crate alloc;

mod adapt;
mod cancel;
mod clock;
mod declared;
mod doorbell;
mod drive;
mod error;
mod executor;
mod inline;
mod kind;
mod lex;
mod line;
mod lookout;
mod plan;
mod port;
mod seq;
mod setting;
mod sync;
mod table;
mod time;
mod wait;
mod yielding;

pub use cancel::CancelToken;
pub use clock::ManualClock;
pub use declared::{Declared, Ladder, Strictness};
pub use doorbell::Doorbell;
pub use drive::{drive, drive_at};
pub use error::{Error, ErrorCode};
pub use executor::{Executor, Reactor, RunStats, SCAN_WORDS_MAX, STALL_CHECK_NS, TASKS_MAX};
pub use inline::{Inline, run_inline};
pub use kind::{ExecutorKind, HostCaps, resolve};
pub use line::{CompletionLine, HostLine, LineRef, MemoryDescriptor, Slot, WORDS};
pub use lookout::{Lookout, Watched};
pub use plan::{
    Adapt, Authority, BACKSTOP_US_MAX, BANDS_MAX, LATE_PCT_MAX, MARGIN_US_MAX, Mode, PARK_US_MAX, Predict,
    ROWS_MAX, SLEEP_US_MAX, WINDOW_MAX, WaitBands, WaitPlan,
};
pub use port::{
    Arming, Awaiter, Charge, Clock, CompletionPort, ContextKey, Idle, Park, Status, Tend, Timer, Turn, Wake,
    Watch,
};
pub use seq::Seq;
pub use setting::{invalid_setting, parse_number, parse_switch, parse_value, unknown_setting, within};
pub use table::{EXCUSES_MAX, Forecast, POINTS_MAX, PointTable};
pub use time::{Instant, Nanos};
pub use wait::{
    Action, CANCEL_NS_MAX, CONFIRM_NS_MAX, CONFIRM_QUERIES_MAX, End, LOST_QUERIES, Observation, Outcome,
    Report, Residual, Wait,
};
pub use yielding::yield_once;
