//! A thread that watches completion words for the tasks of any runtime.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the watcher, its handles |
//! | `config.rs` | how it is set up |
//! | `future.rs` | the futures that are awaited |
//! | `tend.rs`, `shelf.rs` | points that are seen to their ends for nobody who awaits them; their memory |
//! | `flight.rs` | what stands behind a future: the wait machine, its port, its outcome |
//! | `look.rs` | words and moments that somebody waits for |
//! | `shard.rs`, `shard/follow.rs` | the flights of one thread, and every decision about them; knows no thread |
//! | `shard/stale.rs` | those of them that their tasks have ended by themselves |
//! | `lines.rs` | the words that are watched, over lines of any kind |
//! | `wheel.rs` | the times, in a timing wheel |
//! | `contexts.rs` | how often the flights of one device ask its driver |
//! | `crew.rs`, `crew/oversee.rs` | the threads: leaders, helpers; the overseer |
//! | `wake_time.rs` | waking tasks early, and watching in their polls |
//! | `stats.rs` | what it has done |
//! | `panics.rs` | code of others that panics |
//! | `home.rs`, `sync.rs` | what all share; loom or the system |

mod config;
mod contexts;
mod crew;
mod flight;
mod future;
mod home;
mod lines;
mod look;
#[cfg(all(test, loom))]
mod loom_tests;
mod panics;
mod shard;
mod shelf;
mod stats;
mod sync;
mod tend;
#[cfg(all(test, not(loom)))]
mod tests;
mod wake_time;
mod wheel;

pub use config::WatcherConfig;
pub use contexts::BACKSTOP_QUERIES_PER_MS_MAX;
pub use crew::AWAY_NS_MAX;
pub use future::{LATE_US_MAX, WatcherWait, WordWait};
pub use stats::WatcherStats;
pub use tend::Tender;
pub use wake_time::{NAP_NS_MAX, WATCH_NS_MAX, WATCH_SLICE_NS_MAX};

use core::fmt;
use core::task::Context;
use std::sync::Arc;

use wakeline_core::{
    CancelToken, Clock, CompletionPort, Error, ErrorCode, HostLine, Instant, LineRef, MemoryDescriptor,
    Nanos, Timer, WaitPlan, Wake, Watch, yield_once,
};

use crate::clock::StdClock;
use crate::points::Point;
use home::{Home, Hub};

/// A thread that watches completion words for the tasks of any runtime.
///
/// ```
/// use wakeline_core::Nanos;
/// use wakeline_sim::{RealTime, SimConfig, SimDevice};
/// use wakeline_std::{DeviceThread, Point, StdClock, Watcher, block_on};
///
/// let clock = StdClock::new();
/// let sleep = |length: Nanos| std::thread::sleep(std::time::Duration::from_nanos(length.as_nanos()));
/// let device = SimDevice::new(RealTime::new(clock, sleep), SimConfig::default())?;
/// let thread = DeviceThread::spawn(clock, device.clone())?;
///
/// let watcher = Watcher::new()?;
/// let point = Point::new("decode"); // what is learned and counted of these waits
/// let stream = device.stream()?;
/// stream.launch(Nanos::from_micros(800))?;
/// let report = block_on(watcher.wait(stream.point(), &"flag:park_us=50,backstop_us=1000".parse()?, &point))?;
/// assert!(report.outcome().is_some());
/// watcher.close(Watcher::CLOSE)?;
/// # drop(stream);
/// # thread.stop()?;
/// # Ok::<(), wakeline_core::Error>(())
/// ```
///
/// It sleeps until shortly before the earliest completion that is expected, then watches the words, and wakes the task whose wait has
/// ended; a new wait wakes it at once where it would sleep for too long. With nothing in flight it does not wake up at all. Each wait is
/// the same state machine that [`drive`](wakeline_core::drive) drives, and follows its plan but for `park_us`: how words are watched is
/// the watcher's own [`ParkPolicy`](crate::ParkPolicy), one for all of them.
///
/// A *flight* is a wait that it has taken over, a *shard* one thread's part of them, a *context* the device context that a port
/// [names](CompletionPort::context). A `poll` plan keeps a thread busy with queries for as long as it waits; prefer `flag`.
///
/// Driver calls, but for the arming, are made on its threads: a status query that takes half a second holds up no task of a runtime,
/// and no other flight for longer than [`AWAY_NS_MAX`] and 3 ms (10 ms for a waker), as long
/// as one of the [helpers](WatcherConfig::helpers_max) is free to stand in. A failed query has all flights of its context asked at once. Beyond
/// what waits cannot end without, a context is asked [`BACKSTOP_QUERIES_PER_MS_MAX`] times a millisecond: with more flights than that in
/// one context a lost store is found after as many more backstops.
///
/// A deadline is met but for one last question to the driver: where many flights have the same, within a millisecond.
///
/// Dropping it has its threads end without waiting for them; [`close`](Self::close) waits. Whatever is pending then, or comes later, ends with
/// [`ErrorCode::WatcherClosed`].
pub struct Watcher {
    handle: WatcherHandle,
}

impl Watcher {
    /// How long to give [`close`](Self::close) where there is no reason for another time: a second.
    pub const CLOSE: Nanos = Nanos::from_millis(1_000);

    /// A watcher of one shard, as [`WatcherConfig::default`] says. Starts two threads.
    ///
    /// # Errors
    ///
    /// As [`with`](Self::with).
    pub fn new() -> Result<Self, Error> {
        Self::with(WatcherConfig::default())
    }

    /// A watcher set up like this. Starts a thread a shard, and one that oversees them.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Backend`] when the system refuses a thread; those that started end again.
    pub fn with(config: WatcherConfig) -> Result<Self, Error> {
        let hub = Arc::new(Hub::new(config));
        // From here on its drop ends the threads.
        let watcher = Self { handle: WatcherHandle { home: Home::new(Arc::clone(&hub)) } };
        crew::start_all(&hub)?;
        Ok(watcher)
    }

    /// A handle for a runtime: clones share what is learned of its wake-ups, other handles do not.
    pub fn handle(&self) -> WatcherHandle {
        WatcherHandle { home: Home::new(Arc::clone(&self.handle.home.hub)) }
    }

    /// Awaits the point of `port` under `plan`; see [`WatcherWait`]. `point` says what it may be predicted by, and learns from it.
    pub fn wait<P>(&self, port: P, plan: &WaitPlan, point: &Point) -> WatcherWait<P>
    where
        P: CompletionPort + Send + 'static,
        P::Line: Send + Sync + 'static,
    {
        self.handle.wait(port, plan, point)
    }

    /// A token whose cancellation is looked at at once.
    pub fn cancel_token(&self) -> CancelToken {
        self.handle.cancel_token()
    }

    /// What it has done so far.
    pub fn stats(&self) -> WatcherStats {
        self.handle.stats()
    }

    /// Ends everything that is pending with [`ErrorCode::WatcherClosed`] and waits for the threads to end, for at most `within`.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Backend`] when threads are still in a driver call or a waker by then; they end when that returns.
    pub fn close(self, within: Nanos) -> Result<(), Error> {
        let hub = &self.handle.home.hub;
        hub.begin_close();
        match hub.crew.join(hub.clock, hub.clock.now() + within) {
            0 => Ok(()),
            left => {
                let held_up =
                    alloc::format!("{left} thread(s) are still in a driver call or a waker after {within}");
                Err(Error::new(ErrorCode::Backend, [&"std", &"closing the watcher", &held_up]))
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.handle.home.hub.begin_close();
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("pending", &self.handle.pending()).finish_non_exhaustive()
    }
}

/// One runtime's way to a [`Watcher`]. Clones are the same handle.
///
/// Besides [`wait`](Self::wait) it is a host of [`drive`](wakeline_core::drive) (clock, timer and watch) for tasks that drive their waits
/// themselves. Their driver calls are then made by the task, on its runtime's thread. Once the watcher is closed such a task looks
/// by itself at each poll and lets others run in between.
#[derive(Clone, Debug)]
pub struct WatcherHandle {
    home: Arc<Home>,
}

impl WatcherHandle {
    /// The same for a runtime that has something cheaper for a task that is to be polled again than waking it, which is called within the
    /// poll. Knows nothing of the runtime's wake-ups yet.
    ///
    /// A task that was woken early watches its word in slices, and lets others run in between. One that wakes itself has tokio's `multi_thread` wake
    /// another worker to come and take it, and look at nothing else before; `wakeline_tokio::TokioWatcher` makes a handle that does better.
    ///
    /// ```
    /// use wakeline_std::Watcher;
    /// let watcher = Watcher::new()?;
    /// let handle = watcher.handle().polled_again_by(|context| context.waker().wake_by_ref());
    /// # watcher.close(Watcher::CLOSE)?;
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    #[must_use]
    pub fn polled_again_by(self, again: fn(&mut Context<'_>)) -> Self {
        Self { home: Home::with(Arc::clone(&self.home.hub), again, self.home.nap) }
    }

    /// The same where `nap` says how long a task that was woken too early may have its thread sleep at a time, at most
    /// [`NAP_NS_MAX`](crate::NAP_NS_MAX): for a runtime whose other threads take what becomes ready meanwhile. It is asked on that thread before each nap. Without, it is
    /// so little that a nap is over within [`WATCH_SLICE_NS_MAX`](crate::WATCH_SLICE_NS_MAX), with what a timer is late by.
    ///
    /// A nap costs 4 us of a processor's time or more, however long it is (16-core virtual host of an H200).
    ///
    /// ```
    /// use wakeline_core::Nanos;
    /// use wakeline_std::Watcher;
    /// let watcher = Watcher::new()?;
    /// let handle = watcher.handle().naps_for(|| Nanos::from_micros(30));
    /// # watcher.close(Watcher::CLOSE)?;
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    #[must_use]
    pub fn naps_for(self, nap: fn() -> Nanos) -> Self {
        Self { home: Home::with(Arc::clone(&self.home.hub), self.home.again, nap) }
    }

    /// As [`Watcher::wait`].
    pub fn wait<P>(&self, port: P, plan: &WaitPlan, point: &Point) -> WatcherWait<P>
    where
        P: CompletionPort + Send + 'static,
        P::Line: Send + Sync + 'static,
    {
        WatcherWait::new(&self.home, port, plan, point)
    }

    /// Awaits a word until `until` ([`Instant::MAX`]: without bound); see [`WordWait`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use wakeline_core::{HostLine, Instant, MemoryDescriptor, Seq, Slot, Wake};
    /// use wakeline_std::{Watcher, block_on};
    /// let watcher = Watcher::new()?;
    /// let line = Arc::new(HostLine::new());
    /// let word = MemoryDescriptor::new(Arc::clone(&line), Slot::ALL[0], Seq::new(1));
    /// let wait = watcher.handle().word(word, Instant::MAX);
    /// let device = std::thread::spawn(move || line.store(Slot::ALL[0], Seq::new(1)));
    /// assert_eq!(block_on(wait), Wake::Reached);
    /// # device.join().unwrap();
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    pub fn word<L>(&self, word: MemoryDescriptor<L>, until: Instant) -> WordWait<L>
    where
        L: LineRef + Send + Sync + 'static,
    {
        WordWait::new(&self.home, Some(word), until)
    }

    /// As [`Watcher::cancel_token`].
    pub fn cancel_token(&self) -> CancelToken {
        self.home.hub.cancel_token()
    }

    /// As [`Watcher::stats`].
    pub fn stats(&self) -> WatcherStats {
        let mut stats = WatcherStats::default();
        for post in &self.home.hub.posts {
            stats.add(&post.shard.counters);
        }
        stats
    }

    /// How many waits are pending now.
    pub fn pending(&self) -> usize {
        self.home.hub.seated()
    }

    /// How long this runtime takes from a call of its waker to the poll of a task that has slept for so long, as learned: the median, of sleeps that are equal within a factor
    /// of two. 50 us before any was seen, at most 250 us.
    pub fn wake_time(&self, slept: Nanos) -> Nanos {
        self.home.wake_time.of(slept)
    }

    /// The clock of all deadlines.
    pub fn clock(&self) -> StdClock {
        self.home.hub.clock
    }
}

impl Clock for WatcherHandle {
    fn now(&self) -> Instant {
        self.home.hub.clock.now()
    }
}

impl Timer for WatcherHandle {
    async fn sleep_until(&self, at: Instant) {
        WordWait::<Arc<HostLine>>::new(&self.home, None, at).await;
    }

    fn yield_now(&self) -> impl Future<Output = ()> {
        yield_once()
    }
}

impl<P> Watch<P> for WatcherHandle
where
    P: CompletionPort,
    P::Line: Send + Sync + 'static,
{
    async fn watch(&self, port: &P, until: Instant) -> Wake {
        WordWait::new(&self.home, port.descriptor().cloned(), until).await
    }
}
