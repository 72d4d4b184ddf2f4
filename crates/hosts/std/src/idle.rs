//! Putting the calling thread to sleep until a moment or a ring.

use alloc::sync::Arc;
use alloc::task::Wake;
use core::cell::Cell;
use core::marker::PhantomData;
use core::pin::pin;
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Context, Poll, Waker};

use wakeline_core::{Clock, Idle, Instant};

use crate::clock::StdClock;
use crate::sys;

/// Nothing happened since the last idle call ended.
const QUIET: u32 = 0;
/// Somebody rang, and no idle call has ended for it yet.
const RUNG: u32 = 1;
/// The thread sleeps or is about to.
const ASLEEP: u32 = 2;

/// What a bell rings, shared by an idle and its wakers.
///
/// ```text
///            1 idle                         1 StdIdle::sleep, before it sleeps
///   QUIET ------------> ASLEEP              2 Bell::ring, nobody asleep
///    ^  |                 |  |              3 Bell::ring, which then wakes the sleeper
///    |  | 2 ring   3 ring |  |              4 StdIdle::sleep, before it returns:
///    |  +-----> RUNG <----+  | 4 time up      the ring is answered by that
///    |           |           |
///    +-----------+-----------+
///          4 answered
/// ```
///
/// No wake-up is lost, and no fence is needed, because the decision is taken on one word by
/// read-modify-writes, which have one order: a ring comes either before arrow 1, which then fails and so does
/// not sleep, or after it, and then sees `ASLEEP` and wakes; the kernel in turn only puts the thread to sleep
/// while the word still reads `ASLEEP`. What the ringing thread wrote before is visible after the answer: the
/// ring is a `Release` write and arrow 4 an `Acquire` one. A ring that arrow 4 overwrites together with an
/// earlier one is answered by the same return, and its writes are visible too, since each ring is a
/// read-modify-write and so continues the release sequence.
///
/// A ring is answered once, by whoever sleeps or asks first. Who must not miss one that another has answered, as
/// [`StdIdle::block_on`] with a future that itself idles, looks at `rings`: a ring counts before it takes the word,
/// so where it was answered, it was counted.
#[derive(Debug)]
struct Bell {
    state: AtomicU32,
    /// How many rings there were, modulo 2^32.
    rings: AtomicU32,
    sleeper: sys::Sleeper,
}

impl Bell {
    fn ring(&self) {
        self.rings.fetch_add(1, Ordering::Release);
        // Always a swap, even if it rang already: a thread that only looked would not publish its own writes.
        if self.state.swap(RUNG, Ordering::AcqRel) == ASLEEP {
            self.sleeper.wake(&self.state);
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

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
    bell: Arc<Bell>,
    /// `Send`, but not `Sync`.
    one_thread: PhantomData<Cell<()>>,
}

impl StdIdle {
    /// An idle whose bell has not rung; moments are on the time line of `clock`. Allocates once.
    pub fn new(clock: StdClock) -> Self {
        let bell =
            Bell { state: AtomicU32::new(QUIET), rings: AtomicU32::new(0), sleeper: sys::Sleeper::new() };
        Self { clock, bell: Arc::new(bell), one_thread: PhantomData }
    }

    /// The clock whose moments it understands.
    pub fn clock(&self) -> StdClock {
        self.clock
    }

    /// Whether the bell rang since the last call ended; answers the ring. Does not sleep; a load where it did
    /// not ring.
    pub fn take_ring(&self) -> bool {
        // Only this thread leaves `QUIET`, so a stale load is a ring that has only just come.
        self.bell.state.load(Ordering::Relaxed) == RUNG
            && self.bell.state.swap(QUIET, Ordering::AcqRel) == RUNG
    }

    /// Sleeps until `until` (`None`: without bound) or a ring; says whether it rang, and answers the ring.
    pub fn sleep(&self, until: Option<Instant>) -> bool {
        let Bell { state, sleeper, .. } = &*self.bell;
        if state.compare_exchange(QUIET, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            loop {
                if until.is_some_and(|until| self.clock.now() >= until) {
                    break;
                }
                sleeper.wait(state, ASLEEP, until, self.clock.sys());
                if state.load(Ordering::Acquire) != ASLEEP {
                    break;
                }
            }
        }
        state.swap(QUIET, Ordering::AcqRel) == RUNG
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
            let rings = self.bell.rings.load(Ordering::Acquire);
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            if self.bell.rings.load(Ordering::Acquire) == rings {
                self.sleep(None);
            } else {
                // One since before the poll, whoever answered it: the next poll is for this ring.
                self.take_ring();
            }
        }
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
