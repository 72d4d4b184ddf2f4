//! The tokio host of wakeline: waiting for a device on a tokio runtime.
//!
//! | here | ports | for |
//! |---|---|---|
//! | [`TokioLocal`] | [`Clock`](wakeline_core::Clock), [`Timer`](wakeline_core::Timer), [`Watch`](wakeline_core::Watch) | waits on the runtime's own thread, within microseconds, without another thread: `current_thread`, `LocalSet` |
//! | [`TokioWatcher`] | the same | waits of any runtime, watched by a [`Watcher`](wakeline_std::Watcher): `multi_thread`, tasks that move and are aborted |
//! | [`TokioClock`] | [`Clock`](wakeline_core::Clock), [`Timer`](wakeline_core::Timer) | tokio's time where a millisecond does not matter; follows its paused time |
//!
//! ```
//! use wakeline_core::{Nanos, Wait, WaitPlan, drive};
//! use wakeline_sim::{RealTime, SimConfig, SimDevice};
//! use wakeline_std::{DeviceThread, ParkPolicy, StdClock};
//! use wakeline_tokio::TokioLocal;
//!
//! # fn main() -> Result<(), wakeline_core::Error> {
//! let clock = StdClock::new();
//! let sleep = |length: Nanos| std::thread::sleep(std::time::Duration::from_nanos(length.as_nanos()));
//! let device = SimDevice::new(RealTime::new(clock, sleep), SimConfig::default())?;
//! let thread = DeviceThread::spawn(clock, device.clone())?;
//!
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
//! runtime.block_on(async {
//!     let local = TokioLocal::new(clock, ParkPolicy::default())?;
//!     let plan: WaitPlan = "flag:park_us=50,backstop_us=1000".parse()?;
//!     let stream = device.stream()?;
//!     stream.launch(Nanos::from_micros(700))?;
//!     let mut point = stream.point();
//!     let wait = drive(Wait::new(&plan), &mut point, &local, None);
//!     let (report, ticks) = tokio::join!(wait, async {
//!         tokio::task::yield_now().await; // other tasks run meanwhile
//!         1
//!     });
//!     assert!(report?.outcome().is_some() && ticks == 1);
//!     Ok(())
//! })
//! # }
//! ```
//!
//! Driver calls of a wait on a `TokioLocal` are made on the thread that polls it. A status query is short by itself, but can take
//! long (400 ms were seen) behind another thread's synchronize, and all of the runtime waits for it; a `+trust` plan asks at
//! its backstops only. A `block` plan blocks the runtime: it is for inline waits.
//!
//! Invariants: no thread, no static, no environment, no driver call of its own, no `unsafe`. What depends on the system is in `timer.rs`.
#![forbid(unsafe_code)]

mod budget;
mod clock;
mod local;
mod timer;
mod watched;

pub use clock::TokioClock;
pub use local::{SLEEP_MARGIN_US_MAX, TokioLocal, WATCH_SLICE_US_MAX};
pub use watched::TokioWatcher;
