//! The ring: an idle sleep and the user's I/O in one place.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the ring as an idle, for its user |
//! | `ops.rs` | operations as futures |
//! | `slab.rs` | the operations in flight and what they keep alive |
//! | `state.rs` | what is armed, what completions mean, who is to be woken |
//! | `tag.rs` | whose a completion is |
//! | `limits.rs` | sizes |
//! | `sys.rs` | the queues shared with the kernel; all unsafe code |

mod limits;
mod ops;
mod slab;
mod state;
mod sys;
mod tag;
#[cfg(test)]
mod tests;

pub use limits::UringLimits;
pub use ops::{Accept, Close, Completion, Op, Operation, Raw, Transfer};
pub use tag::USER_DATA_RESERVED;

use alloc::sync::Arc;
use core::cell::RefCell;
use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::task::Waker;
use std::io;
use std::os::fd::OwnedFd;

use io_uring::cqueue;
use rustix::event::{EventfdFlags, eventfd};
use wakeline_core::{Clock, Error, ErrorCode, Idle, Instant, Nanos};
use wakeline_std::{Bell, ParkIdle, Rouse, StdClock};

use state::{News, State};
use sys::Ring;

/// How long an entry stays pushed at most before a [`turn`](Idle::turn) submits it, where a busy thread never sleeps: microseconds.
pub const SUBMIT_US_MAX: u64 = 20;

/// How long the thread pauses before it tries again where the kernel lacks the means for a call: microseconds.
pub const RETRY_US: u64 = 50;

/// Makes the smallest ring and closes it again.
pub(crate) fn try_one() -> io::Result<()> {
    let least = UringLimits::ENTRIES_LEAST;
    Ring::new(UringLimits::new(least, 2 * least, 1).unwrap_or_default()).map(drop)
}

/// The event that a bell rings: the ring polls it.
#[derive(Debug)]
struct Event(OwnedFd);

impl Rouse for Event {
    fn rouse(&self, _: &AtomicU32) {
        // Nobody ever reads it: each write adds one and wakes the poll, and 2^64 of them do not come. An error could only mean
        // that it is not open.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// Puts its thread to sleep in an `io_uring` until a moment, a ring of its [`bell`](Idle::bell), or the end of some I/O of the
/// same thread.
///
/// ```text
///   tasks ── recv, send, push .. ──► submission queue ─┐            ┌─ one timeout, at the absolute moment
///                                                      ├─► kernel ◄─┤
///   tasks ◄── wakers ◄── turn ◄──── completion queue ◄─┘            └─ one poll of the bell's event, always armed
/// ```
///
/// - **Sleeping** is one system call, which also submits what was pushed. It ends at the time of one timeout that other
///   completions neither end nor complete, as exactly as the kernel's timers go: timeouts of a ring have no timer slack. Of
///   timeouts there is one at a time; a new moment changes it. Where one fires late for an idle that has ended, the next one sees by
///   the clock that its time has not come, and sleeps on. Signals neither end nor prolong it.
/// - **A ring** of the bell, from any thread and from signal handlers, costs two atomic operations while nobody sleeps and one
///   `write` to an eventfd otherwise; none is lost ([`Bell`] says why).
/// - **Your I/O** are futures ([`recv`](Self::recv) and so on) or entries of your own ([`push`](Self::push)). What it completes
///   ends an idle call; [`turn`](Idle::turn) calls the wakers. An [`Executor`](wakeline_core::Executor) does all of that.
/// - **Parks** on words are [`StdPark::new(&ring, policy)`](wakeline_std::StdPark): it spins and naps in this ring, looks at the
///   completion queue, which is shared memory, at every look at the clock, and ends as soon as some I/O has ended.
///
/// One thread uses it at a time: the value may be sent to another thread, but not shared. Dropping it cancels what is in flight
/// and does not wait: memory that the kernel still uses then is never freed, and counted ([`leaks`](Self::leaks)). To wait, call
/// [`shutdown`](Self::shutdown).
///
/// Values of `user_data` from [`USER_DATA_RESERVED`] on are the ring's own.
///
/// ```
/// use std::os::fd::OwnedFd;
/// use std::sync::Arc;
/// use wakeline_core::{HostLine, Executor, Reactor};
/// use wakeline_std::{ParkPolicy, StdClock, StdPark};
/// use wakeline_uring::UringIdle;
///
/// let clock = StdClock::new();
/// let ring = match UringIdle::new(clock) {
///     Ok(ring) => ring,
///     Err(error) => return println!("skipped: {error}"),
/// };
/// let park = StdPark::new(&ring, ParkPolicy::default());
/// let reactor = Reactor::<_, Arc<HostLine>>::new(clock);
/// let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
/// let (ours, theirs) = (Arc::new(OwnedFd::from(ours)), Arc::new(OwnedFd::from(theirs)));
///
/// let mut executor = Executor::new(&reactor, &ring, &park, 8).unwrap();
/// executor
///     .spawn(async {
///         let (sent, _) = ring.send(&theirs, b"hello".to_vec()).await;
///         let (received, buffer) = ring.recv(&ours, Vec::with_capacity(64)).await;
///         assert_eq!((sent.unwrap(), received.unwrap(), &*buffer), (5, 5, &b"hello"[..]));
///     })
///     .unwrap();
/// executor.run(|_, ()| {}).unwrap();
/// ```
///
/// ```compile_fail
/// # use wakeline_std::StdClock;
/// # use wakeline_uring::UringIdle;
/// let ring = UringIdle::new(StdClock::new()).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(|| &ring); // `UringIdle` is not `Sync`
/// });
/// ```
pub struct UringIdle {
    clock: StdClock,
    bell: Arc<Bell<Event>>,
    state: RefCell<State>,
    leaks: Leaks,
}

/// How many operations were in flight when their ring was dropped, each with memory that is never freed.
///
/// A handle that outlives the ring, for whoever watches over a process.
#[derive(Clone, Debug, Default)]
pub struct Leaks(Arc<AtomicU64>);

impl Leaks {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a ring did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UringStats {
    /// How often the kernel was entered: to submit, to sleep, or both.
    pub enters: u64,
    /// How often it lacked the means for that (`EAGAIN`, `EBUSY`, `ENOMEM`, or a [`fault`](UringIdle::fault)), and the thread paused for
    /// [`RETRY_US`] or until the deadline.
    pub retries: u64,
    /// How many completions of the user's I/O have come.
    pub completions: u64,
}

impl UringIdle {
    /// A ring of the default size whose bell has not rung; moments are on the time line of `clock`.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Backend`] with the reason where the kernel refuses: there is no `io_uring` (`ENOSYS`), it is older than Linux 5.13,
    /// or it is forbidden by the sysctl or a sandbox (`EPERM`), or there is no memory for it. [`Probe`](crate::Probe) tells beforehand.
    pub fn new(clock: StdClock) -> Result<Self, Error> {
        Self::with_limits(clock, UringLimits::default())
    }

    /// As [`new`](Self::new), of another size. Allocates all there is to allocate.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_limits(clock: StdClock, limits: UringLimits) -> Result<Self, Error> {
        Self::over(clock, limits, Ring::new)
    }

    /// Over the ring that `make` makes.
    fn over(
        clock: StdClock,
        limits: UringLimits,
        make: impl FnOnce(UringLimits) -> io::Result<Ring>,
    ) -> Result<Self, Error> {
        let ring = make(limits).map_err(crate::probe::refused)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| broken(&"eventfd", &errno).with_source(errno))?;
        let state = State::new(ring, clock, limits);
        let bell = Arc::new(Bell::new(Event(event)));
        Ok(Self { clock, bell, state: RefCell::new(state), leaks: Leaks::default() })
    }

    /// The clock whose moments it understands.
    pub fn clock(&self) -> StdClock {
        self.clock
    }

    /// Hands `each` the completions of entries that were [pushed](Self::push), in the order of the queue; each is handed out once,
    /// here or by [`completion`](Self::completion). Does not sleep, and allocates nothing. `each` may push.
    ///
    /// What is not fetched waits. Once as many wait as there may be [`completions`](UringLimits::completions), idle calls return at
    /// once and everything behind them, operations included, stays in the queue until some are fetched.
    pub fn completions(&self, mut each: impl FnMut(cqueue::Entry)) {
        while let Some(entry) = self.take_completion() {
            each(entry);
        }
    }

    fn wait(&self, until: Option<Instant>, rang: impl FnOnce() -> bool) -> bool {
        self.state.borrow_mut().wait(until, &self.bell, rang)
    }

    fn take_completion(&self) -> Option<cqueue::Entry> {
        let mut state = self.state.borrow_mut();
        if state.inbox.is_empty() {
            state.reap();
        }
        state.inbox.pop_front()
    }

    /// How many operations are in flight, those included whose futures were dropped.
    pub fn in_flight(&self) -> usize {
        self.state.borrow().ops.flying()
    }

    /// What it did so far.
    pub fn stats(&self) -> UringStats {
        let state = self.state.borrow();
        UringStats { enters: state.ring.enters, retries: state.retries, completions: state.completions }
    }

    /// The first failure that is no passing one, [`ErrorCode::Backend`]: the ring is of no use for I/O then. Idle calls still end on
    /// time and at rings, by pauses of [`RETRY_US`].
    pub fn fault(&self) -> Option<Error> {
        self.state.borrow().fault.clone()
    }

    /// Counts what is leaked when the ring is dropped.
    pub fn leaks(&self) -> Leaks {
        self.leaks.clone()
    }

    /// Cancels all operations and waits for their ends, for `within` at most, then drops the ring: how many were in flight then, and
    /// so were leaked. A sleep in the kernel until all have ended; operations that cannot be cancelled, as the reading of a disk,
    /// take their time.
    pub fn shutdown(self, within: Nanos) -> usize {
        let until = self.clock.now() + within;
        {
            let mut state = self.state.borrow_mut();
            state.cancel_all(false);
            while state.ops.flying() > 0 && self.clock.now() < until {
                // Whoever would have fetched these has given the ring away.
                state.inbox.clear();
                state.news = News::default();
                state.wait(Some(until), &self.bell, || false);
            }
        }
        self.state.borrow().ops.flying()
    }
}

impl ParkIdle for UringIdle {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    /// True also where I/O has ended since. Submits what was pushed.
    fn take_ring(&self) -> bool {
        let mut state = self.state.borrow_mut();
        state.flush();
        state.reap();
        let news = state.take_news();
        drop(state);
        self.bell.take() | news
    }

    /// True also where I/O has ended.
    fn sleep(&self, until: Option<Instant>) -> bool {
        let rang =
            self.bell.sleep(|word, asleep| self.wait(until, || word.load(Ordering::Acquire) != asleep));
        let news = self.state.borrow_mut().take_news();
        rang | news
    }
}

impl Idle for UringIdle {
    /// Ends also where I/O has ended. Allocates nothing.
    fn idle(&self, until: Option<Instant>) {
        self.sleep(until);
    }

    fn bell(&self) -> Waker {
        Waker::from(Arc::clone(&self.bell))
    }

    /// Calls the wakers of I/O that has ended, and submits entries that were pushed [`SUBMIT_US_MAX`] ago. Some 10 ns where there is
    /// neither.
    fn turn(&self) {
        let (mut due, mut discarded) = {
            let mut state = self.state.borrow_mut();
            if state
                .pushed_at
                .is_some_and(|at| state.clock.now().since(at) >= Nanos::from_micros(SUBMIT_US_MAX))
            {
                state.flush();
            }
            state.reap();
            if state.due.is_empty() && state.discarded.is_empty() {
                return;
            }
            state.news.of_tasks = false;
            (core::mem::take(&mut state.due), core::mem::take(&mut state.discarded))
        };
        discarded.drain(..).for_each(ops::discard);
        due.drain(..).for_each(Waker::wake);
        // For their room. A waker that itself turned may have left others meanwhile.
        let mut state = self.state.borrow_mut();
        if state.due.is_empty() {
            state.due = due;
        }
        if state.discarded.is_empty() {
            state.discarded = discarded;
        }
    }
}

impl Drop for UringIdle {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if state.ops.flying() > 0 {
            // Neither waits: what can be cancelled at once has ended when the call returns.
            state.cancel_all(false);
            state.flush();
            state.inbox.clear();
            state.reap();
        }
        state.discarded.drain(..).for_each(ops::discard);
        let leaked = u64::try_from(state.ops.leak()).unwrap_or(u64::MAX);
        self.leaks.0.fetch_add(leaked, Ordering::Relaxed);
    }
}

impl fmt::Debug for UringIdle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringIdle")
            .field("stats", &self.state.try_borrow().map(|_| self.stats()).ok())
            .finish_non_exhaustive()
    }
}

fn broken(call: &dyn fmt::Display, why: &dyn fmt::Display) -> Error {
    Error::new(ErrorCode::Backend, [&"io_uring", call, why])
}
