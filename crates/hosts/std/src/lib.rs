//! The standard-library host of wakeline: what the ports of `wakeline-core` need of an operating system's
//! threads.
//!
//! | here | port | what for |
//! |---|---|---|
//! | [`StdClock`] | [`Clock`](wakeline_core::Clock) | the monotonic time, and sleeping to an absolute moment |
//! | [`StdIdle`] | [`Idle`](wakeline_core::Idle) | put this thread to sleep until a moment or a ring; [`block_on`] |
//! | [`StdPark`] | [`Park`](wakeline_core::Park) | watch words from this thread: in hardware or spinning, then by naps |
//! | [`Bell`], [`ParkIdle`] | | what other hosts that sleep on something of their own share with these |
//! | [`Watcher`], [`WatcherHandle`] | [`Clock`](wakeline_core::Clock), [`Timer`](wakeline_core::Timer), [`Watch`](wakeline_core::Watch) | threads that watch the words of all runtimes |
//! | [`Tender`] | [`Tend`](wakeline_core::Tend) | the same threads, for points that nobody may await any more |
//! | [`on_a_thread`] | | a thread for a job that may block, for backends that need one |
//! | [`WordSet`] | | the armed words of a thread that watches many |
//! | [`DeviceThread`] | drives a [`Turn`](wakeline_core::Turn) | run a simulated device in real time |
//! | [`Points`], [`Point`] | | what waits of a name did, shared by threads: predictions, counts, [`Snapshot`]s |
//! | [`TimerSlack`], [`Oversleep`], [`SleepMargin`], [`TscRate`], [`usage`] | | what a thread's timers, counter and clocks are worth here |
//!
//! Linux is the first system: everything has absolute high-resolution timers there. Elsewhere the same
//! types stand on `std` alone, sleep as exactly as `std` does, and say `None` where there is nothing to read.
//!
//! Invariants: no static (but for those of `tracing`, where that feature is on), no environment, no driver call but those of a
//! [`Watcher`], through the ports that it is handed. The only threads made are that of [`DeviceThread`], which joins it, those
//! of a [`Watcher`], whose [`close`](Watcher::close) waits for them, and those of [`on_a_thread`], which end with their jobs. Timer slack is set on these threads, and on others only by an
//! explicit call, but for the length of a nap of a task that was woken early: it is as before once that is over.

extern crate alloc;

mod approach;
mod aside;
mod bell;
mod clock;
mod device;
mod idle;
mod margin;
mod oversleep;
mod park;
mod points;
mod slack;
mod sys;
mod trace;
mod tsc;
pub mod usage;
mod watcher;
mod words;

pub use approach::{APPROACH_LEAST_US, APPROACH_US, approach};
pub use aside::on_a_thread;
pub use bell::{Bell, Rouse};
pub use clock::StdClock;
pub use device::{DEVICE_SPIN_US_MAX, DeviceThread};
pub use idle::{StdIdle, block_on};
pub use margin::SleepMargin;
pub use oversleep::{OVERSLEEP_SAMPLES_MAX, Oversleep};
pub use park::{NoWordWait, ParkIdle, ParkPolicy, StdPark};
pub use points::{
    Counts, Metric, MetricKind, NAMED_POINTS_MAX, Point, PointSnapshot, Points, Snapshot, Spread,
    WAIT_BOUNDS_NS,
};
pub use slack::TimerSlack;
pub use tsc::TscRate;
pub use watcher::{
    AWAY_NS_MAX, BACKSTOP_QUERIES_PER_MS_MAX, LATE_US_MAX, NAP_NS_MAX, Tender, WATCH_NS_MAX,
    WATCH_SLICE_NS_MAX, Watcher, WatcherConfig, WatcherHandle, WatcherStats, WatcherWait, WordWait,
};
pub use words::WordSet;
