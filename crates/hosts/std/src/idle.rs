//! Putting the calling thread to sleep until a moment or a ring.

use alloc::sync::Arc;
use core::cell::Cell;
use core::marker::PhantomData;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use wakeline_core::{Clock, Idle, Instant};

use crate::approach::approach;
use crate::bell::Bell;
use crate::clock::StdClock;
use crate::park::ParkIdle;
use crate::sys;

/// Puts its thread to sleep until a moment or a ring of its [`bell`](Idle::bell).
///
/// A ring costs two atomic operations while nobody sleeps, and one futex wake otherwise. On Linux it may be rung
/// from a signal handler. Signals do not end an [`idle`](Idle::idle) call: it sleeps on to the same absolute
/// moment.
///
/// One thread idles at a time: the value may be sent to another thread, but not shared.
///
/// ```
/// use wakeline_core::{Clock, Idle, Nanos};
/// use wakeline_std::{StdClock, StdIdle};
/// let idle = StdIdle::new(StdClock::new());
/// let bell = idle.bell();
/// let ringer = std::thread::spawn(move || bell.wake());
/// idle.idle(None); // until the ring, whether it comes before or after
/// # ringer.join().unwrap();
/// ```
///
/// ```compile_fail
/// # use wakeline_std::{StdClock, StdIdle};
/// let idle = StdIdle::new(StdClock::new());
/// std::thread::scope(|scope| {
///     scope.spawn(|| &idle); // `StdIdle` is not `Sync`
/// });
/// ```
#[derive(Debug)]
pub struct StdIdle {
    clock: StdClock,
    bell: Arc<Bell<sys::Sleeper>>,
    /// `Send`, but not `Sync`.
    one_thread: PhantomData<Cell<()>>,
}

impl StdIdle {
    /// An idle whose bell has not rung; moments are on the time line of `clock`. Allocates once.
    pub fn new(clock: StdClock) -> Self {
        Self { clock, bell: Arc::new(Bell::new(sys::Sleeper::new())), one_thread: PhantomData }
    }

    /// The clock whose moments it understands.
    pub fn clock(&self) -> StdClock {
        self.clock
    }

    /// Whether the bell rang since the last call ended; answers the ring. Does not sleep; a load where it did
    /// not ring.
    pub fn take_ring(&self) -> bool {
        self.bell.take()
    }

    /// Sleeps until `until` (`None`: without bound) or a ring; says whether it rang, and answers the ring. A long sleep is taken in two
    /// ([`approach`](crate::approach)).
    pub fn sleep(&self, until: Option<Instant>) -> bool {
        self.sleep_by(until, approach)
    }

    /// The same in one.
    pub(crate) fn sleep_at_once(&self, until: Option<Instant>) -> bool {
        self.sleep_by(until, |_, until| until)
    }

    fn sleep_by(&self, until: Option<Instant>, to: impl Fn(Instant, Instant) -> Instant) -> bool {
        self.bell.sleep(|word, asleep| {
            let Some(until) = until else {
                self.bell.sleeper().wait(word, asleep, None, self.clock.sys());
                return true;
            };
            let now = self.clock.now();
            if now < until {
                self.bell.sleeper().wait(word, asleep, Some(to(now, until)), self.clock.sys());
            }
            now < until
        })
    }

    /// Polls `future` on this thread until it is ready, and sleeps in between until its waker is woken.
    ///
    /// Without a bound of its own: it ends when the future does. The future may itself idle, park or block on this
    /// idle: a ring that it answers while it is polled has it polled again.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let bell = self.bell();
        let mut context = Context::from_waker(&bell);
        loop {
            let rings = self.bell.rings();
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            if self.bell.rings() == rings {
                self.sleep(None);
            } else {
                // One since before the poll, whoever answered it: the next poll is for this ring.
                self.take_ring();
            }
        }
    }
}

impl ParkIdle for StdIdle {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn take_ring(&self) -> bool {
        Self::take_ring(self)
    }

    fn sleep(&self, until: Option<Instant>) -> bool {
        Self::sleep(self, until)
    }
}

impl Idle for StdIdle {
    fn idle(&self, until: Option<Instant>) {
        self.sleep(until);
    }

    fn bell(&self) -> Waker {
        Waker::from(Arc::clone(&self.bell))
    }
}

/// Polls `future` on this thread until it is ready, and sleeps in between until its waker is woken.
///
/// Makes a [`StdIdle`] for the call: to wait often, keep one and use [`StdIdle::block_on`].
///
/// ```
/// assert_eq!(wakeline_std::block_on(async { 6 * 7 }), 42);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    StdIdle::new(StdClock::new()).block_on(future)
}
