//! The ring: an idle sleep and the user's I/O in one place.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the ring as an idle: sleeping, rings of the bell, what completions mean |
//! | `ops.rs` | operations as futures |
//! | `slab.rs` | the operations in flight and what they keep alive |
//! | `tag.rs` | whose a completion is |
//! | `limits.rs` | sizes |
//! | `sys.rs` | the queues shared with the kernel; all unsafe code |

mod limits;
mod ops;
mod slab;
mod sys;
mod tag;
#[cfg(test)]
mod tests;

pub use limits::UringLimits;
pub use ops::{Accept, Close, Completion, Op, Operation, Raw, Transfer};
pub use tag::USER_DATA_RESERVED;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::cell::RefCell;
use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::task::Waker;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use io_uring::cqueue;
use rustix::event::{EventfdFlags, eventfd};
use wakeline_core::{Clock, Error, ErrorCode, Idle, Instant, Nanos};
use wakeline_std::{Bell, ParkIdle, Rouse, StdClock};

use slab::{Completed, Ended, Slab};
use sys::{Full, Ring};
use tag::{Key, Tag};

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
/// use wakeline_core::{CompletionLine, Executor, Reactor};
/// use wakeline_std::{ParkPolicy, StdClock, StdPark};
/// use wakeline_uring::UringIdle;
///
/// let clock = StdClock::new();
/// let ring = match UringIdle::new(clock) {
///     Ok(ring) => ring,
///     Err(error) => return println!("skipped: {error}"),
/// };
/// let park = StdPark::new(&ring, ParkPolicy::default());
/// let reactor = Reactor::<_, Arc<CompletionLine>>::new(clock);
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

struct State {
    ring: Ring,
    clock: StdClock,
    ops: Slab,
    /// Completions of entries that the user pushed; at most as many as the queue holds.
    inbox: VecDeque<cqueue::Entry>,
    inbox_max: usize,
    /// Who waits for one of them.
    waker: Option<Waker>,
    /// Wakers taken out to be called, with room for all that there can be.
    due: Vec<Waker>,
    /// What nobody waited for, to be dropped where user code may run.
    discarded: Vec<Ended>,
    /// When the timeout that is in flight or to be submitted fires.
    timer_at: Option<Instant>,
    /// Its key, or that of the last one.
    timer: Key,
    bell_armed: bool,
    /// Since the last call ended, I/O of a task, or I/O that nobody awaits, has ended.
    news: News,
    /// Since when the oldest entry of the user's waits to be submitted.
    pushed_at: Option<Instant>,
    /// Whether an operation is still to be cancelled, for want of room.
    owes_cancels: bool,
    fault: Option<Error>,
    retries: u64,
    completions: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct News {
    of_tasks: bool,
    of_nobody: bool,
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
        let inbox_max = limits.completions() as usize;
        let state = State {
            ring,
            clock,
            ops: Slab::new(limits.operations()),
            inbox: VecDeque::with_capacity(inbox_max),
            inbox_max,
            waker: None,
            due: Vec::with_capacity(limits.operations() as usize + 1),
            discarded: Vec::with_capacity(limits.operations() as usize),
            timer_at: None,
            timer: Key::new(0),
            bell_armed: false,
            news: News::default(),
            pushed_at: None,
            owes_cancels: false,
            fault: None,
            retries: 0,
            completions: 0,
        };
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

impl State {
    /// An entry of the user's was pushed.
    fn pushed(&mut self) {
        if self.pushed_at.is_none() {
            self.pushed_at = Some(self.clock.now());
        }
    }

    /// Submits what was pushed and does not wait. Where that fails, it stays pushed.
    fn flush(&mut self) {
        if self.pushed_at.is_some() {
            let _ = self.enter(false);
        }
    }

    fn enter(&mut self, wait: bool) -> Result<(), i32> {
        self.ring.enter(wait)?;
        if self.ring.unsubmitted() == 0 {
            self.pushed_at = None;
        }
        Ok(())
    }

    /// Takes all that has come out of the queue, without calling anybody.
    fn reap(&mut self) {
        let mut asked = false;
        while self.inbox.len() < self.inbox_max {
            if let Some(entry) = self.ring.next() {
                self.take(&entry);
                asked = false;
            } else if asked || !self.ring.overflown() || self.enter(false).is_err() {
                break;
            } else {
                // The kernel had set completions aside for want of room, and has given them back now if it could.
                asked = true;
            }
        }
    }

    fn take(&mut self, entry: &cqueue::Entry) {
        let (result, more) = (entry.result(), cqueue::more(entry.flags()));
        match Tag::of(entry.user_data()) {
            Tag::User => {
                self.completions += 1;
                self.inbox.push_back(entry.clone());
                match self.waker.take() {
                    Some(waker) => self.wake(waker),
                    None => self.news.of_nobody = true,
                }
            }
            Tag::Operation(key) => match self.ops.complete(key, result, more) {
                Completed::Nothing => {}
                Completed::Ended(waker) => {
                    self.completions += 1;
                    match waker {
                        Some(waker) => self.wake(waker),
                        None => self.news.of_nobody = true,
                    }
                }
                Completed::Orphan(ended) => self.discarded.push(ended),
            },
            Tag::Timer(key) if key == self.timer => {
                self.timer_at = None;
                self.judge("timeout", result, &[libc::ETIME, libc::ECANCELED]);
            }
            Tag::Timer(_) | Tag::Cancel => {}
            Tag::Update => {
                if self.judge("timeout update", result, &[libc::ENOENT, libc::EALREADY, libc::ECANCELED]) {
                    // It stands at its old time; a new one takes its place.
                    self.timer_at = None;
                }
            }
            Tag::Bell if more => {}
            Tag::Bell => {
                self.bell_armed = false;
                self.judge("poll", result, &[libc::ECANCELED]);
            }
        }
    }

    fn wake(&mut self, waker: Waker) {
        self.news.of_tasks = true;
        self.due.push(waker);
    }

    /// Remembers an error that none of the ring's own entries should meet. Returns whether it was one.
    fn judge(&mut self, call: &str, result: i32, expected: &[i32]) -> bool {
        let errno = result.wrapping_neg();
        let is_fault = result < 0 && !expected.contains(&errno);
        if is_fault {
            self.retries += 1;
            if !is_passing(errno) {
                self.blame(call, errno);
            }
        }
        is_fault
    }

    fn blame(&mut self, call: &str, errno: i32) {
        if self.fault.is_none() {
            let error = io::Error::from_raw_os_error(errno);
            self.fault = Some(broken(&call, &error).with_source(error));
        }
    }

    /// Whether I/O has ended since this was asked last; so many completions that nobody fetched are news for good.
    fn take_news(&mut self) -> bool {
        let News { of_tasks, of_nobody } = core::mem::take(&mut self.news);
        of_tasks || of_nobody || self.is_full()
    }

    fn is_full(&self) -> bool {
        self.inbox.len() >= self.inbox_max
    }

    /// Sleeps once, until something comes; false when there is news, the time is up or it `rang` before.
    ///
    /// `rang` is asked behind the last look at the queue: that may have taken the completion which a ring just left.
    fn wait(&mut self, until: Option<Instant>, bell: &Bell<Event>, rang: impl FnOnce() -> bool) -> bool {
        self.reap();
        let is_over = until.is_some_and(|until| self.clock.now() >= until);
        if is_over || self.has_news() || rang() {
            self.flush();
            return false;
        }
        let entered = match self.arm(until, bell) {
            Ok(()) => self.enter(true),
            Err(Full) => Err(libc::EAGAIN),
        };
        let failed = entered.err().filter(|errno| *errno != libc::EINTR);
        let before = self.retries;
        self.reap();
        if let Some(errno) = failed {
            self.retries += 1;
            if !is_passing(errno) {
                self.blame("io_uring_enter", errno);
            }
        }
        if self.has_news() {
            return false;
        }
        if failed.is_some() || self.retries > before {
            let retry = self.clock.now() + Nanos::from_micros(RETRY_US);
            self.clock.sleep_until(until.map_or(retry, |until| until.min(retry)));
        }
        true
    }

    fn has_news(&self) -> bool {
        self.news.of_tasks || self.news.of_nobody || self.is_full()
    }

    /// Makes sure that the bell and the time end the sleep that is about to begin.
    fn arm(&mut self, until: Option<Instant>, bell: &Bell<Event>) -> Result<(), Full> {
        if self.owes_cancels {
            self.cancel_all(true);
        }
        if !self.bell_armed {
            self.ring.push_bell(bell.sleeper().0.as_fd())?;
            self.bell_armed = true;
        }
        // One for an earlier moment, where there is no bound now, is left to fire.
        let Some(until) = until.filter(|until| self.timer_at != Some(*until)) else { return Ok(()) };
        if self.timer_at.is_some() {
            self.ring.push_update(until, self.timer)?;
        } else {
            let key = self.timer.next();
            self.ring.push_timer(until, key)?;
            self.timer = key;
        }
        self.timer_at = Some(until);
        Ok(())
    }

    /// Cancels an operation, later where there is no room now.
    fn cancel(&mut self, key: Key) {
        match self.ring.push_cancel(key) {
            Ok(()) => self.pushed(),
            Err(Full) => self.owes_cancels = true,
        }
    }

    /// Cancels what is in flight, `orphans` only or all, again where it was before: that changes nothing.
    fn cancel_all(&mut self, orphans: bool) {
        self.owes_cancels = false;
        let keys: Vec<Key> = self.ops.cancellable(orphans).collect();
        for key in keys {
            self.cancel(key);
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

/// Of these errors the next call may be free.
fn is_passing(errno: i32) -> bool {
    matches!(errno, libc::EAGAIN | libc::EBUSY | libc::ENOMEM | libc::EINTR)
}

fn broken(call: &dyn fmt::Display, why: &dyn fmt::Display) -> Error {
    Error::new(ErrorCode::Backend, [&"io_uring", call, why])
}
