//! What puts a thread to sleep without losing a ring: one word that the sleeper and the ringers share.

use alloc::sync::Arc;
use alloc::task::Wake;
use core::sync::atomic::{AtomicU32, Ordering};

/// Nothing happened since the last sleep ended.
const QUIET: u32 = 0;
/// Somebody rang, and no sleep has ended for it yet.
const RUNG: u32 = 1;
/// The thread sleeps or is about to.
const ASLEEP: u32 = 2;

/// Ends the sleep of the one thread that sleeps at a [`Bell`].
pub trait Rouse {
    /// Ends the sleep, or keeps the sleeper, which has announced itself on `word`, from falling asleep.
    ///
    /// MUST NOT block, allocate or call back. Called only where the thread is asleep or about to be.
    fn rouse(&self, word: &AtomicU32);
}

/// What an idle and its wakers share; `R` is how the thread is woken: a futex, an event of a ring.
///
/// ```text
///            1 sleep                        1 Bell::sleep, before it sleeps
///   QUIET ------------> ASLEEP              2 Bell::ring, nobody asleep
///    ^  |                 |  |              3 Bell::ring, which then rouses the sleeper
///    |  | 2 ring   3 ring |  |              4 Bell::sleep, before it returns:
///    |  +-----> RUNG <----+  | 4 time up      the ring is answered by that
///    |           |           |
///    +-----------+-----------+
///          4 answered
/// ```
///
/// No wake-up is lost, and no fence is needed, because the decision is taken on one word by
/// read-modify-writes, which have one order: a ring comes either before arrow 1, which then fails and so does
/// not sleep, or after it, and then sees `ASLEEP` and rouses; a sleep that it finds not begun yet must then end at once. What
/// the ringing thread wrote before is visible after the answer: the ring is a `Release` write and arrow 4 an
/// `Acquire` one. A ring that arrow 4 overwrites together with an earlier one is answered by the same return, and its
/// writes are visible too, since each ring is a read-modify-write and so continues the release sequence.
///
/// A ring is answered once, by whoever sleeps or asks first. Who must not miss one that another has answered looks at
/// [`rings`](Self::rings): a ring counts before it takes the word, so where it was answered, it was counted.
///
/// Cost of a ring: two atomic operations while nobody sleeps, and one [`Rouse::rouse`] otherwise. An `Arc` of it is a
/// [`Waker`](core::task::Waker). For hosts that sleep on something of their own; one thread sleeps at a time.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::AtomicU32;
/// use wakeline_std::{Bell, Rouse};
///
/// /// The sleeper looks again by itself.
/// struct Polled;
/// impl Rouse for Polled {
///     fn rouse(&self, _word: &AtomicU32) {}
/// }
///
/// let bell = Arc::new(Bell::new(Polled));
/// let ringer = Arc::clone(&bell);
/// let thread = std::thread::spawn(move || ringer.ring());
/// let rang = bell.sleep(|_, _| {
///     std::thread::yield_now(); // a real one sleeps here
///     true
/// });
/// assert!(rang);
/// # thread.join().unwrap();
/// ```
#[derive(Debug)]
pub struct Bell<R> {
    state: AtomicU32,
    /// How many rings there were, modulo 2^32.
    rings: AtomicU32,
    sleeper: R,
}

impl<R> Bell<R> {
    /// A bell that has not rung.
    pub const fn new(sleeper: R) -> Self {
        Self { state: AtomicU32::new(QUIET), rings: AtomicU32::new(0), sleeper }
    }

    /// How its thread is woken.
    pub const fn sleeper(&self) -> &R {
        &self.sleeper
    }

    /// How many rings there were, modulo 2^32.
    pub fn rings(&self) -> u32 {
        self.rings.load(Ordering::Acquire)
    }

    /// Whether it rang since the last sleep ended; answers the ring. Does not sleep; a load where it did not ring. For the
    /// thread that sleeps here.
    pub fn take(&self) -> bool {
        // Only this thread leaves `QUIET`, so a stale load is a ring that has only just come.
        self.state.load(Ordering::Relaxed) == RUNG && self.state.swap(QUIET, Ordering::AcqRel) == RUNG
    }

    /// Sleeps by calls of `wait` until it rings or `wait` says `false`; says whether it rang, and answers the ring. Where it
    /// rang before, `wait` is not called.
    ///
    /// `wait` gets the word and what it reads while nobody rang, and may return for no reason. It MUST NOT sleep on once
    /// [`Rouse::rouse`] was called, however early in the call that was.
    pub fn sleep(&self, mut wait: impl FnMut(&AtomicU32, u32) -> bool) -> bool {
        let Self { state, .. } = self;
        if state.compare_exchange(QUIET, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            while wait(state, ASLEEP) && state.load(Ordering::Acquire) == ASLEEP {}
        }
        state.swap(QUIET, Ordering::AcqRel) == RUNG
    }
}

impl<R: Rouse> Bell<R> {
    /// Rings, from any thread: ends the sleep, or the next one where nobody sleeps. Neither blocks nor allocates.
    pub fn ring(&self) {
        self.rings.fetch_add(1, Ordering::Release);
        // Always a swap, even if it rang already: a thread that only looked would not publish its own writes.
        if self.state.swap(RUNG, Ordering::AcqRel) == ASLEEP {
            self.sleeper.rouse(&self.state);
        }
    }
}

impl<R: Rouse + Send + Sync + 'static> Wake for Bell<R> {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}
