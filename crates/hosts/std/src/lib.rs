//! The standard-library host of wakeline: what the ports of `wakeline-core` need of an operating system's
//! threads.
//!
//! | here | port | what for |
//! |---|---|---|
//! | [`StdClock`] | [`Clock`](wakeline_core::Clock) | the monotonic time, and sleeping to an absolute moment |
//! | [`StdIdle`] | [`Idle`](wakeline_core::Idle) | put this thread to sleep until a moment or a ring; [`block_on`] |
//! | [`StdPark`] | [`Park`](wakeline_core::Park) | watch words from this thread: in hardware or spinning, then by naps |
//! | [`Bell`], [`ParkIdle`] | | what other hosts that sleep on something of their own share with these |
//! | [`DeviceThread`] | drives a [`Turn`](wakeline_core::Turn) | run a simulated device in real time |
//! | [`TimerSlack`], [`Oversleep`], [`SleepMargin`], [`TscRate`], [`usage`] | | what a thread's timers, counter and clocks are worth here |
//!
//! Linux is the first system: everything has absolute high-resolution timers there. Elsewhere the same
//! types stand on `std` alone, sleep as exactly as `std` does, and say `None` where there is nothing to read.
//!
//! Invariants: no static, no environment, no driver call. The only thread made is that of [`DeviceThread`],
//! which joins it. Timer slack is set on that thread, and on another only by an explicit call.

extern crate alloc;

mod bell;
mod clock;
mod device;
mod idle;
mod margin;
mod oversleep;
mod park;
mod slack;
mod sys;
mod tsc;
pub mod usage;

pub use bell::{Bell, Rouse};
pub use clock::StdClock;
pub use device::{DEVICE_SPIN_US_MAX, DeviceThread};
pub use idle::{StdIdle, block_on};
pub use margin::SleepMargin;
pub use oversleep::{OVERSLEEP_SAMPLES_MAX, Oversleep};
pub use park::{NoWordWait, ParkIdle, ParkPolicy, StdPark};
pub use slack::TimerSlack;
pub use tsc::TscRate;
