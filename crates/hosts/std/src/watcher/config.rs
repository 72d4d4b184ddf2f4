//! How a watcher is set up.

use core::fmt;
use std::sync::Arc;
use std::thread::available_parallelism;

use wakeline_core::{CompletionLine, Error, Instant, Park, within};

use crate::clock::StdClock;
use crate::park::ParkPolicy;

/// A park in hardware, as an object: [`Park`] itself is generic over what it looks at.
pub(super) trait WordPark: Send + Sync {
    fn park(&self, line: &CompletionLine, until: Instant, ready: &mut dyn FnMut() -> bool);
}

impl<P: Park + Send + Sync> WordPark for P {
    fn park(&self, line: &CompletionLine, until: Instant, ready: &mut dyn FnMut() -> bool) {
        Park::park(self, Some(line), until, ready);
    }
}

/// Run at the start of a watcher's thread, on that thread.
pub(super) type ThreadStart = Arc<dyn Fn(&str) + Send + Sync>;

/// How a [`Watcher`](crate::Watcher) is set up.
///
/// ```
/// use wakeline_std::{ParkPolicy, Watcher, WatcherConfig};
/// let config = WatcherConfig::default()
///     .shards(2)?
///     .flights_max(10_000)?
///     .park(ParkPolicy::new(100, 50)?)
///     .on_thread_start(|name| eprintln!("{name} starts")); // the place to set affinity and priority
/// let watcher = Watcher::with(config)?;
/// watcher.close(Watcher::CLOSE)?;
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone)]
pub struct WatcherConfig {
    pub(super) clock: StdClock,
    pub(super) shards: usize,
    pub(super) flights_max: usize,
    pub(super) helpers_max: usize,
    pub(super) park: ParkPolicy,
    pub(super) word_wait: Option<Arc<dyn WordPark>>,
    pub(super) early_wake: bool,
    pub(super) stir: bool,
    pub(super) thread_start: Option<ThreadStart>,
}

impl Default for WatcherConfig {
    /// One shard, at most 262,144 flights (about 600 bytes each while they are there), at most 16 helpers,
    /// [`ParkPolicy::default`], early wakes without a stir before.
    ///
    /// Where the process may use only one processor, by its affinity or its quota, words are never spun on and no task is woken
    /// early, for both would take the time of those who are to run.
    fn default() -> Self {
        let alone = available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
        let park = ParkPolicy::default();
        Self {
            clock: StdClock::new(),
            shards: 1,
            flights_max: 1 << 18,
            helpers_max: 16,
            park: if alone { park.without_spin() } else { park },
            word_wait: None,
            early_wake: !alone,
            stir: false,
            thread_start: None,
        }
    }
}

impl WatcherConfig {
    /// The most shards.
    pub const SHARDS_MAX: usize = 64;
    /// The most flights that may be allowed for.
    pub const FLIGHTS_LIMIT: usize = 1 << 30;
    /// The most helper threads that may be allowed for.
    pub const HELPERS_LIMIT: usize = 1_024;

    /// With the words divided among so many threads. One looks at about 100 million words a second.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit) unless it is from 1 to [`SHARDS_MAX`](Self::SHARDS_MAX).
    pub fn shards(self, shards: usize) -> Result<Self, Error> {
        Ok(Self { shards: within("shards", shards, 1, Self::SHARDS_MAX)?, ..self })
    }

    /// With at most so many waits at a time; one more is a [`WatcherFull`](wakeline_core::ErrorCode::WatcherFull).
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit) unless it is from 1 to [`FLIGHTS_LIMIT`](Self::FLIGHTS_LIMIT).
    pub fn flights_max(self, flights: usize) -> Result<Self, Error> {
        Ok(Self { flights_max: within("flights_max", flights, 1, Self::FLIGHTS_LIMIT)?, ..self })
    }

    /// With at most so many helper threads, each of which makes one `block` wait at a time, or stands in for a thread that is held up in a
    /// driver call or by the scheduler. They are made when they are needed, and stay until the watcher closes. With none, and while all of them
    /// do that, a `block` wait is a [`HelpersBusy`](wakeline_core::ErrorCode::HelpersBusy).
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`](wakeline_core::ErrorCode::InvalidLimit) unless it is at most [`HELPERS_LIMIT`](Self::HELPERS_LIMIT).
    pub fn helpers_max(self, helpers: usize) -> Result<Self, Error> {
        Ok(Self { helpers_max: within("helpers_max", helpers, 0, Self::HELPERS_LIMIT)?, ..self })
    }

    /// How words are watched: closely for `spin_us_max` after a wait's sleep, then once every `nap_us`.
    #[must_use]
    pub fn park(self, park: ParkPolicy) -> Self {
        Self { park, ..self }
    }

    /// With a park in hardware, what `WordWait::probe(..)` of `wakeline-wordwait` gives: used while the awaited words are all in one
    /// line, which is what a hardware monitor covers, for at most the policy's `hardware_us_max` after a wait's sleep, in slices of 50 us,
    /// so that a new wait is taken in as soon. With words in several lines, and without this, the thread spins.
    #[must_use]
    pub fn word_wait(self, park: impl Park + Send + Sync + 'static) -> Self {
        Self { word_wait: Some(Arc::new(park)), ..self }
    }

    /// Whether tasks are woken before their words land, so that they watch themselves; and whether those of a [`Tender`](crate::Tender)'s
    /// points may watch from the start.
    ///
    /// They are woken for nearly the longest wake-up, so that most are there too early: until the landing their threads sleep in naps, of at most
    /// [`NAP_NS_MAX`](crate::NAP_NS_MAX), each with the least timer slack, which is the thread's own again behind it. See [`WatcherHandle::naps_for`](crate::WatcherHandle::naps_for).
    #[must_use]
    pub fn early_wake(self, early_wake: bool) -> Self {
        Self { early_wake, ..self }
    }

    /// Whether a task that is woken early, after more than a moment, is stirred before: woken for nothing 0.3 ms ahead, so that its thread is awake in 10 us and
    /// not in 50 when it counts. Its price is a wake-up of that thread: about 50 us of CPU on tokio's workers, for which a plan whose margin is 20 us longer gets the
    /// same. Not by default.
    #[must_use]
    pub fn stir(self, stir: bool) -> Self {
        Self { stir, ..self }
    }

    /// With `hook` run by each thread of the watcher when it starts, with the thread's name: the place to set its affinity or
    /// its priority. One that panics is told by an event, with the feature `tracing`, and its thread goes on.
    #[must_use]
    pub fn on_thread_start(self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { thread_start: Some(Arc::new(hook)), ..self }
    }
}

impl fmt::Debug for WatcherConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatcherConfig")
            .field("shards", &self.shards)
            .field("flights_max", &self.flights_max)
            .field("helpers_max", &self.helpers_max)
            .field("park", &self.park)
            .field("word_wait", &self.word_wait.is_some())
            .field("early_wake", &self.early_wake)
            .field("stir", &self.stir)
            .finish_non_exhaustive()
    }
}
