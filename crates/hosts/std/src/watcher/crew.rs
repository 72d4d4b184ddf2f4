//! The threads of a watcher: one leads each shard, one oversees them, helpers block.
//!
//! ```text
//!   leader (one a shard)   turn ─► errands (wakers, one query) ─► turn .. ─► spin, nap or sleep
//!   overseer (one)         while calls are made: every 2 ms, is a leader held up in one? then another takes its shard over
//!   helpers (on demand)    one `block` wait each, or the lead of a shard whose leader is held up
//! ```
//!
//! A leader lets the shard's lock go while it calls a driver or a waker. When it comes back and another leads, it hands in the
//! answer that it got and ends. So one driver that takes half a second to answer delays no flight of another by more than
//! [`AWAY_NS_MAX`] and a tick.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use wakeline_core::{Clock, Doorbell, Error, ErrorCode, Idle, Instant, Nanos};

use super::flight::Fly;
use super::home::Shared;
use super::panics;
use super::shard::{Core, Errand, Pace, Shard};
use super::sync::{AtomicBool, AtomicU64, Lock, Ordering, fence};
use crate::clock::StdClock;
use crate::idle::StdIdle;
use crate::margin::SleepMargin;
use crate::slack::TimerSlack;

/// How long a leader may be in one driver call or in the wakers of one turn before another takes its shard over.
pub const AWAY_NS_MAX: u64 = 1_000_000;

/// How often the overseer looks, while calls are made.
const OVERSEE: Nanos = Nanos::from_millis(2);

/// After so many looks without any call it sleeps until the next.
const QUIET_LOOKS: u32 = 64;

/// The longest oversleep that a leader makes up for.
const MARGIN_MAX: Nanos = Nanos::from_micros(100);

/// What the threads of a watcher share among themselves.
pub(super) struct Crew {
    duty: Duty,
    helpers: Mutex<Helpers>,
    work: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Whether the overseer looks.
struct Duty {
    on: AtomicBool,
    door: Doorbell,
    idle: Lock<StdIdle>,
    /// How many calls were begun.
    calls: AtomicU64,
}

#[derive(Default)]
struct Helpers {
    work: VecDeque<Work>,
    threads: usize,
    /// How many of them have nothing to do.
    idle: usize,
    closing: bool,
}

enum Work {
    Block(usize, Arc<dyn Fly>),
    Lead(usize, u64),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Crew {
    pub(super) fn new(clock: StdClock) -> Self {
        let idle = StdIdle::new(clock);
        let duty = Duty {
            on: AtomicBool::new(false),
            door: Doorbell::new(idle.bell()),
            idle: Lock::new(idle),
            calls: AtomicU64::new(0),
        };
        Self { duty, helpers: Mutex::default(), work: Condvar::new(), threads: Mutex::default() }
    }

    /// Has helpers and overseer end.
    pub(super) fn begin_close(&self) {
        locked(&self.helpers).closing = true;
        self.work.notify_all();
        self.duty.door.ring(Instant::ORIGIN);
    }

    /// Waits for the threads to end, but not beyond `until`; how many have not.
    pub(super) fn join(&self, clock: StdClock, until: Instant) -> usize {
        const LOOK: Nanos = Nanos::from_micros(200);
        let me = std::thread::current().id();
        loop {
            let (ended, others): (Vec<_>, Vec<_>) =
                locked(&self.threads).drain(..).partition(JoinHandle::is_finished);
            for thread in ended {
                if let Err(panic) = thread.join() {
                    // A payload may panic when it is dropped.
                    core::mem::forget(panic);
                }
            }
            let left = others.iter().filter(|thread| thread.thread().id() != me).count();
            locked(&self.threads).extend(others);
            let now = clock.now();
            if left == 0 || now >= until {
                return left;
            }
            clock.sleep_until(until.min(now + LOOK));
        }
    }

    /// Gives work to a helper, a new one where all are busy and there may be more.
    fn help(shared: &Arc<Shared>, work: Work) -> Result<(), Error> {
        let crew = &shared.crew;
        let mut helpers = locked(&crew.helpers);
        if helpers.idle > helpers.work.len() {
            helpers.work.push_back(work);
            crew.work.notify_one();
            return Ok(());
        }
        if helpers.threads >= shared.config.helpers_max {
            return Err(Error::new(ErrorCode::HelpersBusy, [&shared.config.helpers_max]));
        }
        helpers.work.push_back(work);
        helpers.threads += 1;
        let name = alloc::format!("wakeline-help-{}", helpers.threads);
        drop(helpers);
        let started = start(shared, &name, move |shared| Self::be_helper(&shared));
        if started.is_err() {
            let mut helpers = locked(&crew.helpers);
            helpers.threads -= 1;
            helpers.work.pop_back();
        }
        started
    }

    fn be_helper(shared: &Arc<Shared>) {
        let crew = &shared.crew;
        let mut helpers = locked(&crew.helpers);
        loop {
            if let Some(work) = helpers.work.pop_front() {
                drop(helpers);
                match work {
                    Work::Block(post, fly) => {
                        fly.block(&shared.clock);
                        let shard = &shared.posts[post].shard;
                        wake(shared, shard, &*fly);
                        shard.gone(fly);
                    }
                    Work::Lead(post, term) => lead(shared, post, term),
                }
                helpers = locked(&crew.helpers);
            } else if helpers.closing {
                helpers.threads -= 1;
                return;
            } else {
                helpers.idle += 1;
                helpers = crew.work.wait(helpers).unwrap_or_else(PoisonError::into_inner);
                helpers.idle -= 1;
            }
        }
    }
}

/// Starts the threads that a watcher always has.
pub(super) fn start_all(shared: &Arc<Shared>) -> Result<(), Error> {
    for post in 0..shared.posts.len() {
        let name = alloc::format!("wakeline-watch-{post}");
        start(shared, &name, move |shared| lead(&shared, post, 0))?;
    }
    start(shared, "wakeline-oversee", |shared| oversee(&shared))
}

fn start(
    shared: &Arc<Shared>,
    name: &str,
    run: impl FnOnce(Arc<Shared>) + Send + 'static,
) -> Result<(), Error> {
    let (shared_there, name_there) = (Arc::clone(shared), String::from(name));
    let body = move || {
        if let Some(hook) = &shared_there.config.thread_start {
            let _ =
                panics::message_of(|| hook(&name_there)).inspect(|panic| crate::trace::waker_panicked(panic));
        }
        // Where it cannot be set, sleeps end later, and the margins learn that.
        let _slack = TimerSlack::set(TimerSlack::LEAST);
        run(shared_there);
    };
    let thread = Builder::new()
        .name(name.into())
        .spawn(body)
        .map_err(|error| Error::new(ErrorCode::Backend, [&"std", &"spawn", &error]).with_source(error))?;
    locked(&shared.crew.threads).push(thread);
    Ok(())
}

/// Leads a shard for a term.
fn lead(shared: &Arc<Shared>, post: usize, term: u64) {
    let leader = Leader { shared, post };
    let shard = leader.shard();
    let clock = shared.clock;
    let mut margin = SleepMargin::at_median(MARGIN_MAX);
    let mut batch = Vec::new();
    let mut core = shard.lock();
    while core.term == term {
        if shared.is_closing() {
            let pending = core.close(shard);
            core.take_errands(&mut batch);
            drop(core);
            crate::trace::closed(pending);
            leader.run(&mut batch);
            return;
        }
        let now = clock.now();
        core.turn(shard, now);
        core.take_errands(&mut batch);
        let ask = core.next_ask();
        if batch.is_empty() && ask.is_none() {
            leader.rest(&core, now, &mut margin);
            continue;
        }
        drop(core);
        let away = Away::begin(shared, shard, now);
        leader.run(&mut batch);
        let answer = ask.map(|(number, fly)| (number, fly.ask(&clock), fly));
        away.end();
        core = shard.lock();
        if let Some((number, answer, fly)) = answer {
            core.asked(shard, number, &fly, clock.now(), answer);
            // Its port may be let go with it.
            drop(core);
            drop(fly);
            core = shard.lock();
        }
    }
}

/// Whoever leads a shard.
struct Leader<'s> {
    shared: &'s Arc<Shared>,
    post: usize,
}

impl<'s> Leader<'s> {
    fn shard(&self) -> &'s Shard {
        &self.shared.posts[self.post].shard
    }

    /// Runs errands, without the lock.
    fn run(&self, batch: &mut Vec<Errand>) {
        let shard = self.shard();
        for errand in batch.drain(..) {
            match errand {
                Errand::Over(fly) => wake(self.shared, shard, &*fly),
                Errand::Rouse(fly) => wake(self.shared, shard, &*fly),
                Errand::Block(fly) => {
                    if let Err(busy) = Crew::help(self.shared, Work::Block(self.post, Arc::clone(&fly))) {
                        fly.fail(busy);
                        wake(self.shared, shard, &*fly);
                        shard.gone(fly);
                    }
                }
            }
        }
    }

    /// Lets time pass until there may be something to do.
    fn rest(&self, core: &Core, now: Instant, margin: &mut SleepMargin) {
        let shard = self.shard();
        let (until, length) = match core.pace(now) {
            Pace::Look => return,
            Pace::Spin => return core::hint::spin_loop(),
            Pace::Nap { until } => {
                shard.counters.naps.add(1);
                (until, None)
            }
            Pace::Sleep { sharp, blunt } => {
                let length = sharp.since(now);
                let early = if sharp < Instant::MAX { margin.of(length) } else { Nanos::ZERO };
                if length <= early {
                    return core::hint::spin_loop();
                }
                shard.counters.sleeps.add(1);
                let until = blunt.min(Instant::from_nanos(sharp.as_nanos() - early.as_nanos()));
                (until, Some(until.since(now)))
            }
        };
        let idle = self.shared.posts[self.post].idle.lock();
        let quiet = || shard.is_quiet() && !self.shared.is_closing();
        let bound = (until < Instant::MAX).then_some(until);
        let rang = shard.door.sleep(until, quiet, || idle.sleep(bound));
        if let (Some(length), Some(false)) = (length, rang) {
            margin.observe(length, self.shared.clock.now().since(until));
        }
    }
}

/// Wakes whoever awaits a flight. A waker that panics is caught, counted and told.
fn wake(shared: &Shared, shard: &Shard, fly: &dyn Fly) {
    let tag = fly.tag();
    let Some(waker) = tag.waker.take() else { return };
    shard.counters.wakes.bump();
    if tag.learns() {
        tag.rouse.woken(shared.clock.now());
    }
    if let Some(panic) = panics::message_of(|| waker.wake()) {
        shard.counters.panics.bump();
        crate::trace::waker_panicked(&panic);
    }
}

/// A leader that has let the lock go.
struct Away<'s> {
    shard: &'s Shard,
    since: u64,
}

impl<'s> Away<'s> {
    fn begin(shared: &Shared, shard: &'s Shard, now: Instant) -> Self {
        let since = now.as_nanos().max(1);
        let duty = &shared.crew.duty;
        duty.calls.store(duty.calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        shard.away_since.store(since, Ordering::Relaxed);
        // With the overseer's: either it sees that we are away, or we see that it does not look.
        fence(Ordering::SeqCst);
        if !duty.on.load(Ordering::Relaxed) {
            duty.on.store(true, Ordering::Relaxed);
            duty.door.ring(Instant::ORIGIN);
        }
        Self { shard, since }
    }

    fn end(self) {
        // Only if nobody has taken over and is away now itself.
        let _ = self.shard.away_since.compare_exchange(self.since, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Looks, while calls are made, whether a leader is held up in one.
fn oversee(shared: &Arc<Shared>) {
    let duty = &shared.crew.duty;
    let idle = duty.idle.lock();
    let clock = shared.clock;
    let (mut calls, mut quiet) = (0, 0);
    while !shared.is_closing() {
        let now = clock.now();
        let mut away = false;
        for post in 0..shared.posts.len() {
            let since = shared.posts[post].shard.away_since.load(Ordering::Relaxed);
            away |= since != 0;
            if since != 0 && now.since(Instant::from_nanos(since)).as_nanos() > AWAY_NS_MAX {
                take_over(shared, post, since);
            }
        }
        let begun = duty.calls.load(Ordering::Relaxed);
        quiet = if away || begun != calls { 0 } else { quiet + 1 };
        calls = begun;
        if quiet < QUIET_LOOKS {
            let until = now + OVERSEE;
            duty.door.sleep(until, || !shared.is_closing(), || idle.sleep(Some(until)));
            continue;
        }
        quiet = 0;
        duty.on.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if shared.posts.iter().all(|post| post.shard.away_since.load(Ordering::Relaxed) == 0) {
            let off = || !duty.on.load(Ordering::Relaxed) && !shared.is_closing();
            duty.door.sleep(Instant::MAX, off, || idle.sleep(None));
        }
        duty.on.store(true, Ordering::Relaxed);
    }
}

/// Has another thread lead a shard whose leader has been away since `since`.
fn take_over(shared: &Arc<Shared>, post: usize, since: u64) {
    let shard = &shared.posts[post].shard;
    // Held to the end: a leader that comes back meanwhile finds out whether it still leads.
    let mut core = shard.lock();
    if shard.away_since.load(Ordering::Relaxed) != since {
        return;
    }
    let term = core.term + 1;
    // Where nobody is left to lead, the one that is held up goes on when it can.
    if Crew::help(shared, Work::Lead(post, term)).is_ok() {
        core.term = term;
        shard.away_since.store(0, Ordering::Relaxed);
        shard.counters.takeovers.bump();
    }
}
