//! Waits of one tokio thread, watched from that thread.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::hint::spin_loop;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use wakeline_core::{
    Clock, CompletionLine, CompletionPort, Error, ErrorCode, Instant, LineRef, Nanos, Park, Reactor, Timer,
    Wake, Watch,
};
use wakeline_std::{ParkPolicy, SleepMargin, StdClock, approach};

use crate::budget::Budget;
use crate::clock::in_runtime;
use crate::timer;

/// How long one poll watches words at most before other tasks may run, microseconds.
pub const WATCH_SLICE_US_MAX: u64 = 20;

/// By how much a sleep is set to end early at most, microseconds. What is left of it is waited out in slices.
pub const SLEEP_MARGIN_US_MAX: u64 = 200;

/// A sleep that is shorter than this is waited out in slices, microseconds: to be woken takes as long.
const SLEEP_US_LEAST: u64 = 30;

/// A yield that takes longer than this was used by other tasks: the thread has better things to do than to spin. (With nobody
/// else a yield of tokio takes 0.3 us, most of it a look at the system's events.)
const BUSY_US_LEAST: u64 = 5;

/// How late the pumping wait may be before another one that happens to be polled takes over, microseconds.
const OVERDUE_US: u64 = 1_000;

/// How often a timer that was ready too early is asked again before the thread yields.
const TIMER_LOOKS: u32 = 4;

/// How often a slice looks at one line between two looks at the clock, as in [`StdPark`](wakeline_std::StdPark).
const LOOKS_PER_CLOCK: u32 = 8;

/// The host of waits that stay on their own tokio thread: no other thread watches or wakes.
///
/// For a `current_thread` runtime, and for a `LocalSet` or `block_on` of any: hand it to [`drive`](wakeline_core::drive). It lends
/// the time line of its [`StdClock`], sleeps by a timer of its own (not by tokio's, which round up to a millisecond), and watches
/// words.
///
/// ```text
///                     ┌──────────────────── a look at all words and moments ◄────────────────┐
///                     ▼                                                                      │
///  (1) nothing left to wait for? ──yes──► no timer, no wake-up                               │
///                     │ no                                                                   │
///  (2) a word is watched for less than `spin_us_max`, or a sleep is about to end?            │
///          │ no                        │ yes                                                 │
///          ▼                           ├─ others ran meanwhile ──► their turn again ─────────┤
///  sleep to the earliest of:           └─ nobody did ──► look for 20 us, yield ──────────────┤
///  a deadline, the next nap's end,                                                           │
///  a sleep's end less the margin ────────────────────────────────────────────────────────────┘
/// ```
///
/// - One of the waits *pumps*: it goes round the above for all of them, within its own polls. The last one to begin does;
///   when it ends or is dropped, it wakes the next. However many waits there are, there is one timer, and one look at a
///   word costs a nanosecond. A word that is reached wakes its task.
/// - Other tasks run between any two slices, which take [`WATCH_SLICE_US_MAX`] at most. While others keep the thread busy there
///   are no slices, only looks: a wait is then late by what they run for in one poll. Naps and sleeps end when the runtime looks at the
///   system's events, which tokio does when no task is ready, or after 61 polls (`event_interval` of its builder). Work beside a wait should
///   part its polls by `tokio::task::yield_now`, which lets it look; a task that wakes itself does not.
/// - No core is burnt: `spin_us_max` of the [`ParkPolicy`] after the last watch began, watching goes on in naps of `nap_us`. (`hardware_us_max` does
///   not matter: nothing here parks in hardware, for that would stop the other tasks.) While nothing is waited for nothing wakes.
/// - Long sleeps are taken in two ([`approach`]). Sleeps are set to end early by what they were seen to be late (a [`SleepMargin`], at most [`SLEEP_MARGIN_US_MAX`]), and the
///   rest is waited out in slices: the margin of a `+predict` plan has to cover the spread of the steps only. The timer has no slack,
///   so the thread's [`TimerSlack`](wakeline_std::TimerSlack) does not matter: set to 5 ms, it is late by the 35 us that it is late without, where
///   a plain sleep is late by 5 ms and tokio's by 6 ms (2-core virtual machine).
/// - Nothing is allocated for a wait beyond the high-water mark of waits at a time. Dropping a wait at any await point takes all
///   of it back.
///
/// A wait that pumps must be polled when its task is woken, as any future. Where waits are kept without being polled (a `select!`
/// in a loop whose other arms await, say), run the loop under [`run_until`](Self::run_until), which pumps for all. Otherwise such a wait
/// may delay others until one of them is polled for another reason.
///
/// Elsewhere than on Linux the timer is tokio's: [`timer_resolution`](Self::timer_resolution) says a millisecond, and sleeps and naps end
/// that late.
///
/// ```
/// use wakeline_core::{Clock, Nanos, Timer};
/// use wakeline_std::{ParkPolicy, StdClock};
/// use wakeline_tokio::TokioLocal;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # runtime.block_on(async {
/// let local = TokioLocal::<&wakeline_core::HostLine>::new(StdClock::new(), ParkPolicy::default())?;
/// let at = local.now() + Nanos::from_micros(300);
/// local.sleep_until(at).await;
/// assert!(local.now() >= at);
/// # Ok::<(), wakeline_core::Error>(())
/// # }).unwrap();
/// ```
///
/// It stays on its thread, and with it whatever waits on it:
///
/// ```compile_fail
/// # use std::sync::Arc;
/// # use wakeline_core::{HostLine, Instant, Timer};
/// # async fn wait(local: wakeline_tokio::TokioLocal<Arc<HostLine>>) {
/// tokio::spawn(async move { local.sleep_until(Instant::ORIGIN).await }); // `TokioLocal` is not `Send`
/// # }
/// ```
pub struct TokioLocal<L> {
    clock: StdClock,
    policy: ParkPolicy,
    /// Words to watch, each with the time at which its wait looks elsewhere.
    words: Reactor<StdClock, L>,
    /// Moments to sleep to, which are met more exactly than the former.
    moments: Reactor<StdClock, L>,
    budget: Budget<StdClock>,
    timer: timer::Timer,
    margin: RefCell<SleepMargin>,
    /// The sleep that ends first.
    sleep: Cell<Option<Sleep>>,
    /// What the timer is set to.
    armed: Cell<Option<Instant>>,
    /// Whether the timer keeps a waker.
    timer_polled: Cell<bool>,
    pump: Cell<Pump>,
    /// How many waits there have been.
    waits: Cell<u64>,
    rested: Cell<Rested>,
    root: Cell<Option<Waker>>,
    /// Neither `Send` nor `Sync`.
    this_thread: PhantomData<*const ()>,
}

/// Who pumps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pump {
    /// The next wait that is polled will, and one has been woken for that.
    Nobody,
    Wait(u64),
    Root,
}

#[derive(Clone, Copy, Debug)]
struct Sleep {
    end: Instant,
    /// When to be awake for that.
    wake: Instant,
    /// What it was when `wake` was chosen.
    length: Nanos,
    /// Whether `wake` is the first of two.
    first: bool,
}

/// How the pump comes to be polled again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rest {
    /// Not by itself: there is nothing to wait for.
    Nothing,
    /// Behind the tasks that are ready.
    Requeue,
    /// When no task is ready, after the runtime has looked at the system's events.
    Yield,
    /// Then.
    Until(Instant),
}

#[derive(Clone, Copy, Debug)]
struct Rested {
    how: Rest,
    at: Instant,
}

impl<L: LineRef> TokioLocal<L> {
    /// A host for the waits of this thread, in the runtime that this is called in, which has to run while they wait: its timer is of that
    /// runtime. (What is left of it when the runtime is gone yields instead of sleeping.) Allocates, and makes a timerfd.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Backend`] outside of a tokio runtime, or when the system refuses another file.
    ///
    /// # Panics
    ///
    /// In a runtime without I/O (`enable_io` of its builder; `enable_time` elsewhere than on Linux): tokio tells of that in no other
    /// way, and here it is found before any wait.
    pub fn new(clock: StdClock, policy: ParkPolicy) -> Result<Self, Error> {
        in_runtime()?;
        let timer = timer::Timer::new().map_err(|error| {
            Error::new(ErrorCode::Backend, [&"tokio", &"making a timer", &error]).with_source(error)
        })?;
        Ok(Self {
            clock,
            policy,
            words: Reactor::new(clock),
            moments: Reactor::new(clock),
            budget: Budget::new(clock, policy.spin_us_max()),
            timer,
            margin: RefCell::new(SleepMargin::new(Nanos::from_micros(SLEEP_MARGIN_US_MAX))),
            sleep: Cell::new(None),
            armed: Cell::new(None),
            timer_polled: Cell::new(false),
            pump: Cell::new(Pump::Nobody),
            waits: Cell::new(0),
            rested: Cell::new(Rested { how: Rest::Nothing, at: Instant::ORIGIN }),
            root: Cell::new(None),
            this_thread: PhantomData,
        })
    }

    /// What the timer of waits rounds up to: 1 ns on Linux, a millisecond elsewhere. How late a thread is woken comes on top.
    pub const fn timer_resolution() -> Nanos {
        timer::Timer::RESOLUTION
    }

    /// How long a watch spins and naps.
    pub fn policy(&self) -> ParkPolicy {
        self.policy
    }

    /// How many words and moments are waited for.
    pub fn registered(&self) -> usize {
        self.words.registered() + self.moments.registered()
    }

    /// How many words are watched.
    pub fn watched(&self) -> usize {
        self.words.watched()
    }

    /// Runs a future, and pumps in the same task for all waits meanwhile: also for those of other tasks, and however long a
    /// wait is kept without being polled.
    ///
    /// Costs a poll of the future for each slice and each nap of any wait: hand in something that is cheap to poll without cause.
    /// While several of these run, each pumps when it is polled.
    pub async fn run_until<F: Future>(&self, future: F) -> F::Output {
        // Dropped after the future, whose waits are then gone.
        let _root = Root(self);
        let mut future = pin!(future);
        poll_fn(|context| {
            self.pump.set(Pump::Root);
            // Not to be called meanwhile: what this poll registers is seen to right after it.
            let kept = self.root.take();
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(output);
            }
            let kept = kept.filter(|kept| kept.will_wake(context.waker()));
            self.root.set(Some(kept.unwrap_or_else(|| context.waker().clone())));
            self.pump.set(Pump::Root);
            let rest = self.turn();
            self.rest(rest, context);
            Poll::Pending
        })
        .await
    }

    /// Whether the wait of this number is to pump in this poll, the first one or another.
    fn takes(&self, wait: u64, first: bool) -> bool {
        let takes = match self.pump.get() {
            Pump::Wait(pumping) if pumping == wait => return true,
            Pump::Nobody => true,
            Pump::Wait(_) => first || self.overdue(),
            Pump::Root => {
                if first && let Some(root) = self.root.take() {
                    root.wake_by_ref();
                    self.root.set(Some(root));
                }
                return false;
            }
        };
        if takes {
            self.pump.set(Pump::Wait(wait));
            // No slice yet: this poll may be of a task with many waits, of which another one has had its slice.
            self.rested.set(Rested { how: Rest::Nothing, at: Instant::ORIGIN });
        }
        takes
    }

    fn overdue(&self) -> bool {
        let due = match self.rested.get() {
            Rested { how: Rest::Until(at), .. } | Rested { at, .. } => at,
        };
        self.clock.now().since(due) > Nanos::from_micros(OVERDUE_US)
    }

    /// One round of the pump: wakes whose turn has come, watches for a slice at most, and says how to go on.
    fn turn(&self) -> Rest {
        let now = self.clock.now();
        let rested = self.rested.get();
        if let Some(at) = self.armed.get()
            && at <= now
        {
            self.armed.set(None);
            if let Some(sleep) = self.sleep.get()
                && sleep.wake == at
                && !sleep.first
                && rested.how == Rest::Until(at)
            {
                self.margin.borrow_mut().observe(sleep.length, now.since(at));
            }
        }
        if self.look() > 0 {
            // They run first.
            return if self.registered() > 0 { Rest::Yield } else { Rest::Nothing };
        }
        let watched = self.words.watched() > 0;
        let wake = self.wake_of_sleep(now);
        if !(watched && self.budget.lasts(now) || wake.is_some_and(|wake| wake <= now)) {
            return self.until(now, watched, wake);
        }
        let busy = now.since(rested.at) > Nanos::from_micros(BUSY_US_LEAST);
        match rested.how {
            Rest::Requeue | Rest::Yield if busy => Rest::Requeue,
            // Now that no task was ready: whether the system has news for one.
            Rest::Requeue | Rest::Nothing | Rest::Until(_) => Rest::Yield,
            Rest::Yield => {
                let slice = now + Nanos::from_micros(WATCH_SLICE_US_MAX);
                let ends = [self.words.earliest(), self.moments.earliest()];
                let end = ends.into_iter().flatten().fold(slice, Instant::min);
                self.words.park(&Slice(self.clock), end, || false);
                self.look();
                if self.registered() > 0 { Rest::Yield } else { Rest::Nothing }
            }
        }
    }

    /// Looks at everything; says how many were woken.
    fn look(&self) -> usize {
        self.words.turn(true) + self.moments.turn(true)
    }

    /// When to be awake for the sleep that ends first.
    fn wake_of_sleep(&self, now: Instant) -> Option<Instant> {
        let end = self.moments.earliest()?;
        if let Some(sleep) = self.sleep.get()
            && sleep.end == end
            && !(sleep.first && sleep.wake <= now)
        {
            return Some(sleep.wake);
        }
        let length = end.since(now);
        let wake = approach(now, end);
        if wake < end {
            self.sleep.set(Some(Sleep { end, wake, length, first: true }));
            return Some(wake);
        }
        let mut margins = self.margin.borrow_mut();
        let margin = margins.of(length);
        let wake = if length < Nanos::from_micros(SLEEP_US_LEAST) {
            now
        } else if margin < length {
            end - margin
        } else {
            // Not slept, so nothing is learned of it: a margin that is too long must not stay so for good.
            margins.observe(length, Nanos::ZERO);
            now
        };
        self.sleep.set(Some(Sleep { end, wake, length, first: false }));
        Some(wake)
    }

    /// Until when there is nothing to do: to the next nap's end, a deadline or the wake of a sleep.
    fn until(&self, now: Instant, watched: bool, wake: Option<Instant>) -> Rest {
        let nap = watched.then(|| {
            let nap = now + Nanos::from_micros(self.policy.nap_us().into());
            // The nap that is under way, where this is a poll for another reason.
            self.armed.get().map_or(nap, |at| at.min(nap))
        });
        let earliest = [nap, self.words.earliest(), wake].into_iter().flatten().min();
        earliest.map_or(Rest::Nothing, Rest::Until)
    }

    /// Sees to it that the pump is polled again.
    fn rest(&self, rest: Rest, context: &mut Context<'_>) {
        let now = self.clock.now();
        let how = match rest {
            Rest::Until(at) if !self.arm(at, now, context) => Rest::Yield,
            other => other,
        };
        match how {
            Rest::Nothing => self.disarm(),
            Rest::Requeue => context.waker().wake_by_ref(),
            Rest::Yield => defer(context),
            Rest::Until(_) => {}
        }
        self.rested.set(Rested { how, at: now });
    }

    /// Has the task woken at `at`: `false` where that has come already, or cannot be had.
    fn arm(&self, at: Instant, now: Instant, context: &mut Context<'_>) -> bool {
        if self.armed.get() != Some(at) {
            if !self.timer.set(Some(at), now) {
                return false;
            }
            self.armed.set(Some(at));
        }
        self.timer_polled.set(true);
        for _ in 0..TIMER_LOOKS {
            match self.timer.poll(context) {
                Poll::Pending => return true,
                Poll::Ready(Err(_)) => return false,
                // For this moment, or a late word of an earlier one: the clock tells.
                Poll::Ready(Ok(())) if self.clock.now() >= at => return false,
                Poll::Ready(Ok(())) => {}
            }
        }
        false
    }

    /// No wake-up any more, and no waker left behind.
    fn disarm(&self) {
        if self.armed.take().is_some() {
            self.timer.set(None, self.clock.now());
        }
        if self.timer_polled.take() {
            self.timer.forget();
        }
    }

    /// A wait has ended or was dropped, and is registered no more.
    fn leave(&self, wait: u64) {
        if self.registered() == 0 {
            self.disarm();
        }
        match self.pump.get() {
            Pump::Root => {}
            Pump::Wait(pumping) if pumping != wait => {}
            Pump::Wait(_) | Pump::Nobody => self.hand_over(),
        }
    }

    fn hand_over(&self) {
        self.pump.set(Pump::Nobody);
        let _ = self.words.nudge() || self.moments.nudge();
    }

    /// Waits for a registration, and pumps if it is this wait's turn.
    async fn wait<T>(&self, registration: impl Future<Output = T>) -> T {
        // Dropped after the registration, so that it does not wake itself.
        let mut role = Role { local: self, wait: None };
        let mut registration = pin!(registration);
        poll_fn(|context| role.poll(registration.as_mut(), context)).await
    }
}

/// A wait's part in the pumping.
struct Role<'l, L: LineRef> {
    local: &'l TokioLocal<L>,
    /// Its number, once it has pended.
    wait: Option<u64>,
}

impl<L: LineRef> Role<'_, L> {
    fn poll<F: Future>(
        &mut self,
        mut registration: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        if let Poll::Ready(output) = registration.as_mut().poll(context) {
            return Poll::Ready(output);
        }
        let local = self.local;
        let first = self.wait.is_none();
        let wait = *self.wait.get_or_insert_with(|| {
            local.waits.set(local.waits.get() + 1);
            local.waits.get()
        });
        if !local.takes(wait, first) {
            return Poll::Pending;
        }
        let rest = local.turn();
        if let Poll::Ready(output) = registration.poll(context) {
            return Poll::Ready(output);
        }
        // A waker that was called meanwhile may have had others polled.
        if local.pump.get() == Pump::Wait(wait) {
            local.rest(rest, context);
        }
        Poll::Pending
    }
}

impl<L: LineRef> Drop for Role<'_, L> {
    fn drop(&mut self) {
        if let Some(wait) = self.wait {
            self.local.leave(wait);
        }
    }
}

struct Root<'l, L: LineRef>(&'l TokioLocal<L>);

impl<L: LineRef> Drop for Root<'_, L> {
    fn drop(&mut self) {
        drop(self.0.root.take());
        if self.0.pump.get() == Pump::Root {
            self.0.hand_over();
        }
    }
}

/// Looks at words until the end of a slice.
struct Slice(StdClock);

impl Park for Slice {
    fn park(&self, line: Option<&CompletionLine>, until: Instant, mut ready: impl FnMut() -> bool) -> Wake {
        // With several lines each look takes as long as there are words.
        let looks = if line.is_some() { LOOKS_PER_CLOCK } else { 1 };
        loop {
            for _ in 0..looks {
                if ready() {
                    return Wake::Reached;
                }
                spin_loop();
            }
            if self.0.now() >= until {
                return Wake::Woke;
            }
        }
    }
}

/// Has the task polled again once the others that are ready have run and the runtime has looked at the system's events.
fn defer(context: &mut Context<'_>) {
    // tokio keeps the waker at its first poll; nothing is lost by dropping it after that.
    let _ = pin!(tokio::task::yield_now()).poll(context);
}

impl<L: LineRef> Clock for TokioLocal<L> {
    fn now(&self) -> Instant {
        self.clock.now()
    }
}

impl<L: LineRef> Timer for TokioLocal<L> {
    /// Ends at `at`, not before; at once where it has passed.
    async fn sleep_until(&self, at: Instant) {
        self.wait(self.moments.sleep_until(at)).await;
    }

    async fn yield_now(&self) {
        tokio::task::yield_now().await;
    }
}

impl<L: LineRef, P: CompletionPort<Line = L>> Watch<P> for TokioLocal<L> {
    async fn watch(&self, port: &P, until: Instant) -> Wake {
        let Some(word) = port.descriptor() else {
            self.sleep_until(until).await;
            return Wake::Woke;
        };
        let _parked = self.budget.begin(word);
        self.wait(self.words.watch(port, until)).await
    }
}

impl<L> fmt::Debug for TokioLocal<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokioLocal")
            .field("policy", &self.policy)
            .field("pump", &self.pump.get())
            .field("rested", &self.rested.get())
            .finish_non_exhaustive()
    }
}
