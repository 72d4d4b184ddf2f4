//! A single-threaded executor that fills the waits for devices with ready work.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the executor: which task runs, when the thread sleeps |
//! | `ready.rs` | the set of ready tasks, which wakers of any thread add to |
//! | `reactor.rs` | what tasks wait for: words and moments |
//! | `timers.rs` | deadlines by owner |

mod reactor;
mod ready;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod timers;

pub use reactor::{Reactor, SCAN_WORDS_MAX};
pub use ready::TASKS_MAX;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use crate::error::{Error, ErrorCode};
use crate::line::LineRef;
use crate::port::{Clock, Idle, Park};
use crate::time::Nanos;
use ready::{Cursor, Ready, TaskWaker};

/// How long the executor sleeps at most before it checks again that somebody can still wake its tasks.
pub const STALL_CHECK_NS: u64 = 100_000_000;

/// What a run did. Times are of the executor's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunStats {
    /// Polls of tasks.
    pub polls: u64,
    /// Words that were seen to be reached while a task waited for them.
    pub completions: u64,
    /// Time with nothing to run, in nanoseconds: the next two and the waiting for other threads.
    pub idle_ns: u64,
    /// Time asleep to a deadline with no word to watch, in nanoseconds.
    pub slept_ns: u64,
    /// Time parked on words, in nanoseconds.
    pub parked_ns: u64,
}

/// Runs tasks of one future type (an enum, or what one `async fn` returns) on the calling thread.
///
/// ```text
///          ┌──────────────────────── turn: I/O, words and deadlines ◄─────────┐
///          ▼                                                                  │
///   (1) ready task? ──yes──► poll it ──done──► on_done                        │
///          │ no               └──pending or done──────────────────────────────┤
///          ▼                                                                  │
///   (2) tasks left? ──no──► return                                            │
///          │ yes                                                              │
///          ├─ words watched ──► park on them to the earliest deadline ────────┤
///          ├─ deadlines only ─► sleep to the earliest ────────────────────────┤
///          ├─ wakers alive ───► sleep until one rings ────────────────────────┤
///          └─ nothing ────────► Stalled
/// ```
///
/// Completions are looked at between any two polls ([`Reactor::turn`], [`Idle::turn`]), so ready work always runs between waits, and a task that is always
/// ready keeps no other from running. A wake costs at most three atomic operations whatever the number of tasks, and a ring
/// of the [`Idle`]'s bell only while the thread sleeps. `spawn` allocates; wakes, polls and waits do not.
///
/// A `block` plan blocks the thread, and with it every task: it is for inline waits.
///
/// Tasks may be woken from any thread. While words are watched, such a wake is seen within the bound of the [`Park`].
///
/// ```
/// use wakeline_core::{Executor, Nanos, Reactor, Wait, WaitPlan, drive};
/// use wakeline_sim::{SimConfig, SimDevice, SimStream, VirtualHost, VirtualTime};
///
/// let device = SimDevice::new(VirtualTime::new(), SimConfig::default())?;
/// let host = VirtualHost::new(&device);
/// let reactor = Reactor::new(&host);
/// let plan: WaitPlan = "flag:park_us=50,backstop_us=1000".parse()?;
/// let step = async |stream: SimStream, length| {
///     stream.launch(length)?;
///     drive(Wait::new(&plan), &mut stream.point(), &reactor, None).await
/// };
/// let mut executor = Executor::new(&reactor, &host, &host, 8)?;
/// for length_us in [300, 100, 200] {
///     executor.spawn(step(device.stream()?, Nanos::from_micros(length_us)))?;
/// }
/// let mut order = Vec::new();
/// executor.run(|task, report| {
///     report.unwrap();
///     order.push(task);
/// })?;
/// assert_eq!(order, [1, 2, 0]); // in the order of their ends
/// # Ok::<(), wakeline_core::Error>(())
/// ```
pub struct Executor<'r, F, C, L, I, P> {
    reactor: &'r Reactor<C, L>,
    idle: I,
    park: P,
    ready: Arc<Ready>,
    cursor: Cursor,
    places: Vec<Place<F>>,
    free: Vec<usize>,
    tasks_max: usize,
    /// A place whose task had a waker alive elsewhere when that was last asked; most likely it still has.
    awaited: usize,
}

/// Where a task lives. The waker outlives the task and wakes whatever task comes to the place next, once and spuriously.
struct Place<F> {
    task: Option<Pin<Box<F>>>,
    wake: Arc<TaskWaker>,
    waker: Waker,
}

impl<F> Place<F> {
    fn new(ready: &Arc<Ready>, task: usize) -> Self {
        let wake = Arc::new(TaskWaker { ready: Arc::clone(ready), task });
        Self { task: None, waker: Waker::from(Arc::clone(&wake)), wake }
    }
}

/// How many references to a place's waker its executor holds itself.
const OWN_WAKERS: usize = 2;

impl<'r, F, C, L, I, P> Executor<'r, F, C, L, I, P>
where
    F: Future,
    C: Clock,
    L: LineRef,
    I: Idle,
    P: Park,
{
    /// An executor for up to `tasks_max` tasks at a time, whose waits are those of `reactor`.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::InvalidLimit`] unless `tasks_max` is from 1 to [`TASKS_MAX`].
    pub fn new(reactor: &'r Reactor<C, L>, idle: I, park: P, tasks_max: usize) -> Result<Self, Error> {
        if !(1..=TASKS_MAX).contains(&tasks_max) {
            return Err(Error::new(ErrorCode::InvalidLimit, [&"tasks_max", &tasks_max, &1, &TASKS_MAX]));
        }
        let ready = Arc::new(Ready::new(tasks_max, idle.bell()));
        let cursor = Cursor::default();
        Ok(Self {
            reactor,
            idle,
            park,
            ready,
            cursor,
            places: Vec::new(),
            free: Vec::new(),
            tasks_max,
            awaited: 0,
        })
    }

    /// Adds a task, ready to be polled first by the next [`run`](Self::run). Returns its number, which is that of a task that
    /// has ended where there was one. Allocates the task's box.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::ExecutorFull`] when `tasks_max` tasks are there already; the future is dropped.
    pub fn spawn(&mut self, future: F) -> Result<usize, Error> {
        let task = if let Some(task) = self.free.pop() {
            let place = &mut self.places[task];
            // A waker of the task before this one must not pass for one of this task's.
            if Arc::strong_count(&place.wake) > OWN_WAKERS {
                *place = Place::new(&self.ready, task);
            }
            task
        } else if self.places.len() < self.tasks_max {
            let task = self.places.len();
            // Room for all of them to be free at once, so that the end of a task allocates nothing.
            self.free.reserve(self.places.len() + 1);
            self.places.push(Place::new(&self.ready, task));
            task
        } else {
            return Err(Error::new(ErrorCode::ExecutorFull, [&self.tasks_max]));
        };
        self.places[task].task = Some(Box::pin(future));
        self.ready.insert(task);
        Ok(task)
    }

    /// How many tasks have not ended.
    pub fn tasks(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Runs until every task has ended, handing each task's number and output to `on_done`.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Stalled`] when tasks are left but nothing is registered and no waker of theirs is alive. The tasks stay. (A waker
    /// that a task keeps itself, or that waiting tasks keep of each other, is alive: that is waited for in vain, at
    /// one wake-up each [`STALL_CHECK_NS`].)
    ///
    /// # Panics
    ///
    /// Passes on the panic of a task or of `on_done`. The task that panicked is gone; the others can be run on.
    pub fn run(&mut self, mut on_done: impl FnMut(usize, F::Output)) -> Result<RunStats, Error> {
        let mut stats = RunStats::default();
        let completions = self.reactor.completions();
        loop {
            self.idle.turn();
            self.reactor.turn(false);
            if let Some(task) = self.cursor.next(&self.ready) {
                if let Some(output) = self.poll(task, &mut stats) {
                    on_done(task, output);
                }
            } else if self.reactor.turn(true) == 0 {
                if self.tasks() == 0 {
                    stats.completions = self.reactor.completions() - completions;
                    return Ok(stats);
                }
                self.rest(&mut stats)?;
            }
        }
    }

    fn poll(&mut self, task: usize, stats: &mut RunStats) -> Option<F::Output> {
        let place = &mut self.places[task];
        // Its place is free while it runs, so a task that panics leaves an executor that can be run on.
        let mut future = place.task.take()?;
        self.free.push(task);
        stats.polls += 1;
        match future.as_mut().poll(&mut Context::from_waker(&place.waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => {
                place.task = Some(future);
                self.free.pop();
                None
            }
        }
    }

    /// Puts the thread to sleep: nothing is ready.
    fn rest(&mut self, stats: &mut RunStats) -> Result<(), Error> {
        let start = self.reactor.now();
        let ready = Arc::clone(&self.ready);
        let watched = self.reactor.watched() > 0;
        let earliest = self.reactor.earliest();
        let until = match earliest {
            Some(earliest) => earliest,
            None if self.wakers_alive() || ready.adding() => start + Nanos::from_nanos(STALL_CHECK_NS),
            None => return Err(Error::new(ErrorCode::Stalled, [&self.tasks()])),
        };
        ready.sleep(|| {
            if watched {
                self.reactor.park(&self.park, until, || !ready.is_empty());
            } else {
                self.idle.idle(Some(until));
            }
        });
        let rested = self.reactor.now().since(start).as_nanos();
        stats.idle_ns += rested;
        if watched {
            stats.parked_ns += rested;
        } else if earliest.is_some() {
            stats.slept_ns += rested;
        }
        Ok(())
    }

    /// Whether somebody holds a waker of a task. Looks first where somebody did the last time.
    fn wakers_alive(&mut self) -> bool {
        let alive = |place: &Place<F>| place.task.is_some() && Arc::strong_count(&place.wake) > OWN_WAKERS;
        if self.places.get(self.awaited).is_some_and(alive) {
            return true;
        }
        let found = self.places.iter().position(alive);
        self.awaited = found.unwrap_or(0);
        found.is_some()
    }
}

impl<F, C: fmt::Debug, L: fmt::Debug, I: fmt::Debug, P: fmt::Debug> fmt::Debug
    for Executor<'_, F, C, L, I, P>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("tasks", &(self.places.len() - self.free.len()))
            .field("tasks_max", &self.tasks_max)
            .field("ready", &self.ready)
            .finish_non_exhaustive()
    }
}
