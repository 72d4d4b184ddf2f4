//! What the handles, the futures and the threads of a watcher share.

use alloc::task::Wake as RawWake;
use core::fmt;
use core::task::{Context, Waker};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};

use wakeline_core::{CancelToken, CompletionPort, Error, ErrorCode, Idle, Instant, Nanos};

use super::config::WatcherConfig;
use super::crew::Crew;
use super::shard::{Errand, Shard};
use super::sync::{AtomicBool, AtomicUsize, Lock, Ordering};
use super::wake_time::WakeTime;
use crate::clock::StdClock;
use crate::idle::StdIdle;

/// One runtime's view of a watcher: what its wake-ups take is learned here.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) hub: Arc<Hub>,
    pub(super) wake_time: WakeTime,
    /// Has a task of it polled again that watches.
    pub(super) again: Again,
    /// How long a task of it that is there too early may have its thread sleep at a time.
    pub(super) nap: fn() -> Nanos,
}

/// Has a task polled again, from within its poll.
pub(super) type Again = fn(&mut Context<'_>);

fn short() -> Nanos {
    Nanos::from_nanos(super::wake_time::NAP_NS)
}

fn wake(context: &mut Context<'_>) {
    context.waker().wake_by_ref();
}

impl Home {
    pub(super) fn new(hub: Arc<Hub>) -> Arc<Self> {
        Self::with(hub, wake, short)
    }

    pub(super) fn with(hub: Arc<Hub>, again: Again, nap: fn() -> Nanos) -> Arc<Self> {
        Arc::new(Self { hub, wake_time: WakeTime::new(), again, nap })
    }
}

/// What all of them share.
pub(super) struct Hub {
    pub(super) clock: StdClock,
    pub(super) config: WatcherConfig,
    pub(super) posts: Box<[Post]>,
    pub(super) crew: Crew,
    /// What the tokens of this watcher ring.
    token_bell: OnceLock<Waker>,
    seats: AtomicUsize,
    closing: AtomicBool,
}

/// A shard and where its leader sleeps.
pub(super) struct Post {
    pub(super) shard: Shard,
    pub(super) idle: Lock<StdIdle>,
    /// What whoever leads is about to run, for another to run if it is held up.
    pub(super) left: Lock<VecDeque<Errand>>,
}

impl Hub {
    pub(super) fn new(config: WatcherConfig) -> Self {
        let clock = config.clock;
        let spin = Nanos::from_micros(config.park.spin_us_max().into());
        let nap = Nanos::from_micros(config.park.nap_us().into());
        let post = |_| {
            let idle = StdIdle::new(clock);
            Post {
                shard: Shard::new(idle.bell(), wakeline_core::Clock::now(&clock), spin, nap),
                idle: Lock::new(idle),
                left: Lock::new(VecDeque::new()),
            }
        };
        Self {
            clock,
            posts: (0..config.shards).map(post).collect(),
            crew: Crew::new(clock),
            config,
            token_bell: OnceLock::new(),
            seats: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
        }
    }

    /// A token whose cancellation is looked at at once.
    pub(super) fn cancel_token(self: &Arc<Self>) -> CancelToken {
        let bell = || Waker::from(Arc::new(LookAtTokens(Arc::downgrade(self))));
        CancelToken::ringing(self.token_bell.get_or_init(bell).clone())
    }

    /// Whether it is such a token: any other, one that rings somebody else included, has to be looked at.
    pub(super) fn is_rung_by(&self, token: &CancelToken) -> bool {
        // By their data, which is an allocation of ours: tables of the same functions may stand at several addresses.
        let bells = token.bell().zip(self.token_bell.get());
        bells.is_some_and(|(its, ours)| core::ptr::eq(its.data(), ours.data()))
    }

    pub(super) fn take_seat(&self) -> Result<(), Error> {
        let most = self.config.flights_max;
        if self.seats.fetch_add(1, Ordering::Relaxed) < most {
            return Ok(());
        }
        self.leave_seat();
        Err(Error::new(ErrorCode::WatcherFull, [&most]))
    }

    pub(super) fn leave_seat(&self) {
        self.seats.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many waits hold a seat.
    pub(super) fn seated(&self) -> usize {
        self.seats.load(Ordering::Relaxed)
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Has all threads end, whatever is pending. Does not wait for them.
    pub(super) fn begin_close(&self) {
        self.closing.store(true, Ordering::Release);
        for post in &self.posts {
            post.shard.door.ring(Instant::ORIGIN);
        }
        self.crew.begin_close();
    }

    /// The number of the shard that watches this port: all words of a line are looked at by one thread.
    pub(super) fn shard_of<P: CompletionPort>(&self, port: &P) -> usize {
        let line = port.descriptor().map(|word| core::ptr::from_ref(word.line()).addr());
        self.shard_at(line.unwrap_or(0))
    }

    pub(super) fn shard_at(&self, address: usize) -> usize {
        if self.posts.len() == 1 {
            return 0;
        }
        // Fibonacci hashing: lines stand 64 bytes apart.
        let spread = (address as u64 >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        usize::try_from(spread).unwrap_or(0) % self.posts.len()
    }
}

/// What a token rings.
struct LookAtTokens(Weak<Hub>);

impl RawWake for LookAtTokens {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(hub) = self.0.upgrade() {
            for post in &hub.posts {
                post.shard.look_at_tokens();
            }
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("config", &self.config).finish_non_exhaustive()
    }
}
