//! The threads of a watcher: one leads each shard, one oversees them, helpers block.
//!
//! ```text
//!   leader (one a shard)   turn ─► errands (wakers, one query) ─► turn .. ─► spin, nap or sleep
//!   overseer (one)         while calls are made: every 3 ms, is a leader held up in one? then another takes its shard over
//!   helpers (on demand)    one `block` wait each, or the lead of a shard whose leader is held up
//! ```
//!
//! A leader has the shard's lock all the time, but while it calls a driver or a waker. It is away then, and says so by the time at
//! which it left: whoever swaps that time for a zero leads from then on, be it the leader that comes back or another that takes over.
//! A leader that comes back too late touches neither the lock nor the shard: it hands in the answer that it got as any thread hands
//! in work, and becomes a helper in place of the one that leads now. What it had still to run is run by that one. So a driver that
//! takes half a second to answer, or a waker, delays no flight of another by more than [`AWAY_NS_MAX`] and a look of the overseer.
//!
//! When the watcher closes, a leader ends its flights before it calls any waker, and the overseer does that for one that is held up. The
//! wakers that are left then are called by helpers, of which there may be one more for that, and never by the overseer: so each flight
//! ends whatever wakers do, and each waker is called unless more of them block for good than there may be helpers.

mod oversee;

use core::task::Waker;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use wakeline_core::{Clock, Doorbell, Error, ErrorCode, Idle, Instant, Nanos};

use super::flight::Fly;
use super::home::Hub;
use super::panics;
use super::shard::{Core, Errand, Pace, Shard};
use super::sync::{AtomicU32, AtomicU64, Lock, MutexGuard as CoreGuard, Ordering, fence};
use crate::approach::{APPROACH_US, approach};
use crate::clock::StdClock;
use crate::idle::StdIdle;
use crate::margin::SleepMargin;
use crate::slack::TimerSlack;

/// How long a leader may be in one driver call or in the wakers of one turn before another takes its shard over.
pub const AWAY_NS_MAX: u64 = 1_000_000;

/// A leader whose last sleep was rung off within this time looks around for so long before the next: falling asleep and being
/// rung takes as long, and takes it from those who ring.
const LINGER_NS: u64 = 10_000;

/// How long a park in hardware lasts at most, so that what comes in is noticed.
const HARDWARE_SLICE_NS: u64 = 50_000;

/// The longest oversleep that a leader makes up for.
const MARGIN_MAX: Nanos = Nanos::from_micros(100);

/// What the threads of a watcher share among themselves.
pub(super) struct Crew {
    duty: Duty,
    helpers: Mutex<Helpers>,
    work: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Whether and how often the overseer looks.
struct Duty {
    pace: AtomicU32,
    door: Doorbell,
    idle: Lock<StdIdle>,
    /// How often leaders went away, and how often to ask a driver.
    calls: AtomicU64,
    asks: AtomicU64,
}

/// The overseer sleeps until it is rung.
const OFF: u32 = 0;
/// It looks slowly: wakers are called.
const SLOW: u32 = 1;
/// It looks often: drivers are asked.
const FAST: u32 = 2;

#[derive(Default)]
struct Helpers {
    work: VecDeque<Work>,
    threads: usize,
    /// How many of them have nothing to do.
    idle: usize,
    /// How many are about to have nothing to do: their call has returned, and they tell of it.
    ending: usize,
    closing: bool,
}

enum Work {
    Block(usize, Arc<dyn Fly>),
    /// The lead of a shard whose leader is away since then.
    Lead(usize, u64),
    /// What is left to be told of a shard that is closed.
    Tell(usize),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Crew {
    pub(super) fn new(clock: StdClock) -> Self {
        let idle = StdIdle::new(clock);
        let duty = Duty {
            pace: AtomicU32::new(OFF),
            door: Doorbell::new(idle.bell()),
            idle: Lock::new(idle),
            calls: AtomicU64::new(0),
            asks: AtomicU64::new(0),
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
    fn help(hub: &Arc<Hub>, work: Work) -> Result<(), Error> {
        let crew = &hub.crew;
        let mut helpers = locked(&crew.helpers);
        let blocks = matches!(work, Work::Block(..));
        let most = hub.config.helpers_max + usize::from(matches!(work, Work::Tell(_)));
        if helpers.closing && blocks {
            return Err(Error::new(ErrorCode::WatcherClosed, []));
        }
        if helpers.idle <= helpers.work.len() {
            if helpers.threads < most {
                helpers.threads += 1;
                let name = alloc::format!("wakeline-help-{}", helpers.threads);
                drop(helpers);
                // With its work: where the watcher closes, one that finds none ends.
                let started = start(hub, &name, move |hub| {
                    Self::be_helper(&hub, Some(work));
                    locked(&hub.crew.helpers).threads -= 1;
                });
                return started.inspect_err(|_| locked(&crew.helpers).threads -= 1);
            }
            // Who is at its end may be in a waker, and what is to go on although one blocks does not count on it.
            if helpers.idle + if blocks { helpers.ending } else { 0 } <= helpers.work.len() {
                return Err(Error::new(ErrorCode::HelpersBusy, [&hub.config.helpers_max]));
            }
        }
        helpers.work.push_back(work);
        crew.work.notify_one();
        Ok(())
    }

    fn be_helper(hub: &Arc<Hub>, mut first: Option<Work>) {
        let crew = &hub.crew;
        let mut helpers = locked(&crew.helpers);
        loop {
            if let Some(work) = first.take().or_else(|| helpers.work.pop_front()) {
                drop(helpers);
                match work {
                    Work::Block(post, fly) => {
                        fly.block(&hub.clock);
                        // Its task may want a helper as soon as it is woken.
                        locked(&crew.helpers).ending += 1;
                        let shard = &hub.posts[post].shard;
                        wake(shard, Arc::clone(&fly));
                        fly.let_go();
                        shard.gone(fly);
                        // At no moment is it neither at its end nor idle, nor does it have work.
                        helpers = locked(&crew.helpers);
                        helpers.ending -= 1;
                    }
                    Work::Lead(post, since) => {
                        take_over(hub, post, since);
                        helpers = locked(&crew.helpers);
                    }
                    Work::Tell(post) => {
                        Leader { hub, post }.run_away(&mut Vec::new(), hub.clock.now());
                        helpers = locked(&crew.helpers);
                    }
                }
            } else if helpers.closing {
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
pub(super) fn start_all(hub: &Arc<Hub>) -> Result<(), Error> {
    for post in 0..hub.posts.len() {
        let name = alloc::format!("wakeline-watch-{post}");
        start(hub, &name, move |hub| {
            lead(&hub, post);
            Crew::be_helper(&hub, None);
        })?;
    }
    start(hub, "wakeline-oversee", |hub| oversee::oversee(&hub))
}

fn start(hub: &Arc<Hub>, name: &str, run: impl FnOnce(Arc<Hub>) + Send + 'static) -> Result<(), Error> {
    let (hub_there, name_there) = (Arc::clone(hub), String::from(name));
    let body = move || {
        if let Some(hook) = &hub_there.config.thread_start
            && let Some(panic) = panics::message_of(|| hook(&name_there))
        {
            panics::tell(None, || crate::trace::waker_panicked(&panic));
        }
        // Where it cannot be set, sleeps end later, and the margins learn that.
        let _slack = TimerSlack::set(TimerSlack::LEAST);
        run(hub_there);
    };
    let thread = Builder::new()
        .name(name.into())
        .spawn(body)
        .map_err(|error| Error::new(ErrorCode::Backend, [&"std", &"spawn", &error]).with_source(error))?;
    locked(&hub.crew.threads).push(thread);
    Ok(())
}

/// Leads a shard until the watcher closes or another has taken over.
fn lead(hub: &Arc<Hub>, post: usize) {
    let leader = Leader { hub, post };
    let shard = leader.shard();
    let clock = hub.clock;
    let mut rest = Rest { margin: SleepMargin::at_median(MARGIN_MAX), lingers: false, idle_since: None };
    let mut batch = Vec::new();
    // What the leader before this one has left; when the watcher closes, that comes after the end of the flights.
    if !hub.is_closing() && !leader.run_away(&mut batch, clock.now()) {
        return;
    }
    let mut core = shard.lock();
    loop {
        if hub.is_closing() {
            leader.close(core);
            leader.run_away(&mut batch, clock.now());
            return;
        }
        let now = clock.now();
        core.turn(shard, now);
        core.take_errands(&mut batch);
        let ask = core.next_ask();
        if batch.is_empty() && ask.is_none() {
            leader.rest(&core, now, &mut rest);
            continue;
        }
        drop(core);
        rest.idle_since = None;
        let away = Away::begin(hub, shard, now, ask.is_some());
        let mut leads = leader.run(&mut batch, &away);
        let answer = match ask {
            Some((number, fly)) if leads => Some((number, Some(fly.ask(&clock)), fly)),
            ask => ask.map(|(number, fly)| (number, None, fly)),
        };
        leads &= away.end();
        match answer {
            answer if !leads => {
                if let Some((number, answer, fly)) = answer {
                    shard.hand_in(number, fly, answer);
                }
                return;
            }
            Some((number, Some(answer), fly)) => {
                core = shard.lock();
                core.asked(shard, number, &fly, clock.now(), answer);
                // Its port may be let go with it.
                drop(core);
                panics::let_go(fly);
            }
            _ => {}
        }
        core = shard.lock();
    }
}

/// Whoever leads a shard.
struct Leader<'s> {
    hub: &'s Arc<Hub>,
    post: usize,
}

impl<'s> Leader<'s> {
    fn shard(&self) -> &'s Shard {
        &self.hub.posts[self.post].shard
    }

    /// Runs errands, without the lock; whether this one still leads. Where it does not, another runs what is left.
    fn run(&self, batch: &mut Vec<Errand>, away: &Away<'_>) -> bool {
        let left = &self.hub.posts[self.post].left;
        if batch.len() > 1 {
            left.lock().extend(batch.drain(1..));
        }
        let mut errand = batch.pop();
        while let Some(this) = errand {
            self.run_one(this);
            if !away.still_leads() {
                return false;
            }
            errand = left.lock().pop_front();
        }
        true
    }

    /// Runs what was left, by another leader or by the closing, where there is any; whether this one still leads. `batch` is empty.
    fn run_away(&self, batch: &mut Vec<Errand>, now: Instant) -> bool {
        let left = &self.hub.posts[self.post].left;
        if left.lock().is_empty() {
            return true;
        }
        // Before anything is taken out: there is no moment at which it is neither left nor being run, as `is_over` asks.
        let away = Away::begin(self.hub, self.shard(), now, false);
        batch.extend(left.lock().pop_front());
        self.run(batch, &away) && away.end()
    }

    /// Ends all flights, and leaves it to be told.
    fn close(&self, mut core: CoreGuard<'_, Core>) {
        let mut batch = Vec::new();
        let pending = core.close(self.shard());
        core.take_errands(&mut batch);
        // With the lock, for `is_over`.
        self.hub.posts[self.post].left.lock().extend(batch);
        drop(core);
        if let Some(pending) = pending {
            panics::tell(Some(&self.shard().counters.panics), || crate::trace::closed(pending));
        }
    }

    /// Whether the shard is closed and all told, or all but what somebody is held up in for good.
    fn is_over(&self) -> bool {
        let shard = self.shard();
        if !shard.is_closed() {
            return false;
        }
        // Who closes it may not have left yet what is to be told.
        drop(shard.lock());
        self.hub.posts[self.post].left.lock().is_empty() && shard.away_since.load(Ordering::Relaxed) == 0
    }

    fn run_one(&self, errand: Errand) {
        let shard = self.shard();
        match errand {
            Errand::Over(fly) | Errand::Rouse(fly) => wake(shard, fly),
            Errand::Stir(fly) => stir(shard, fly),
            Errand::Drop(fly) => panics::let_go(fly),
            Errand::Faulted(failure) => {
                panics::tell(Some(&shard.counters.panics), || crate::trace::context_faulted(&failure));
            }
            Errand::Block(fly) => {
                if let Err(busy) = Crew::help(self.hub, Work::Block(self.post, Arc::clone(&fly))) {
                    fly.fail(busy);
                    wake(shard, Arc::clone(&fly));
                    shard.gone(fly);
                }
            }
        }
    }

    /// Parks on the words in hardware for a slice; whether that could be done.
    fn park(&self, core: &Core, now: Instant) -> bool {
        let config = &self.hub.config;
        let most = Nanos::from_micros(config.park.hardware_us_max().into());
        let (Some(word_wait), Some((line, until))) = (&config.word_wait, core.parkable(now, most)) else {
            return false;
        };
        let shard = self.shard();
        let slice = until.min(now + Nanos::from_nanos(HARDWARE_SLICE_NS));
        shard.counters.parks.add(1);
        word_wait.park(line, slice, &mut || core.lines.any_reached() || !shard.is_quiet());
        true
    }

    /// Lets time pass until there may be something to do.
    fn rest(&self, core: &Core, now: Instant, rest: &mut Rest) {
        let shard = self.shard();
        let pace = core.pace(now);
        if matches!(pace, Pace::Spin | Pace::Nap { .. }) && self.park(core, now) {
            return;
        }
        let (until, length) = match pace {
            Pace::Look => return,
            Pace::Spin => return core::hint::spin_loop(),
            Pace::Nap { until } => {
                shard.counters.naps.add(1);
                (until, None)
            }
            Pace::Sleep { sharp, blunt } => {
                let length = sharp.since(now);
                let first = approach(now, sharp);
                let early = if first < sharp {
                    Nanos::from_micros(APPROACH_US)
                } else if sharp < Instant::MAX {
                    rest.margin.of(length)
                } else {
                    Nanos::ZERO
                };
                if length <= early || rest.lingers(now) && self.hub.config.park.spin_us_max() > 0 {
                    return core::hint::spin_loop();
                }
                shard.counters.sleeps.add(1);
                let until = blunt.min(Instant::from_nanos(sharp.as_nanos() - early.as_nanos()));
                // How late the first of two sleeps ends is of no account.
                (until, (first == sharp).then(|| until.since(now)))
            }
        };
        let idle = self.hub.posts[self.post].idle.lock();
        let quiet = || shard.is_quiet() && !shard.is_stale(core) && !self.hub.is_closing();
        let bound = (until < Instant::MAX).then_some(until);
        let rang = shard.door.sleep(until, quiet, || idle.sleep_at_once(bound));
        let awake = self.hub.clock.now();
        if let (Some(length), Some(false)) = (length, rang) {
            rest.margin.observe(length, awake.since(until));
        }
        rest.lingers = rang == Some(true) && awake.since(now).as_nanos() < LINGER_NS;
        rest.idle_since = None;
    }
}

/// What a leader knows of its rests.
struct Rest {
    margin: SleepMargin,
    /// Whether the last sleep was so short that it was not worth it.
    lingers: bool,
    /// Since when there has been nothing to do.
    idle_since: Option<Instant>,
}

impl Rest {
    /// Whether to look around for a moment longer before sleeping.
    fn lingers(&mut self, now: Instant) -> bool {
        self.lingers && now.since(*self.idle_since.get_or_insert(now)).as_nanos() < LINGER_NS
    }
}

/// Wakes whoever awaits a flight for nothing, so that it has not slept for long when it is woken next.
fn stir(shard: &Shard, fly: Arc<dyn Fly>) {
    let waker = fly.tag().waker.take();
    if waker.is_none() {
        return tell(shard, fly);
    }
    panics::let_go(fly);
    if let Some(waker) = waker {
        shard.counters.wakes.bump();
        call(shard, waker);
    }
}

/// Tells of a flight that nobody awaits by a waker, if there is somebody to be told.
fn tell(shard: &Shard, fly: Arc<dyn Fly>) {
    let mut told = false;
    if let Some(panic) = panics::message_of(|| told = fly.tell()) {
        shard.counters.panics.bump();
        panics::tell(Some(&shard.counters.panics), || crate::trace::waker_panicked(&panic));
    }
    if told {
        shard.counters.wakes.bump();
    }
    if fly.ended() { fly.retire() } else { panics::let_go(fly) }
}

/// Calls a waker, outside of any lock. One that panics is caught, counted and told.
fn call(shard: &Shard, waker: Waker) {
    if let Some(panic) = panics::message_of(|| waker.wake()) {
        shard.counters.panics.bump();
        panics::tell(Some(&shard.counters.panics), || crate::trace::waker_panicked(&panic));
    }
}

/// Wakes whoever awaits a flight. A waker that panics is caught, counted and told.
fn wake(shard: &Shard, fly: Arc<dyn Fly>) {
    let tag = fly.tag();
    let Some(waker) = tag.waker.take() else { return tell(shard, fly) };
    shard.counters.wakes.bump();
    // What is to be learned is left for when the task is on its way; else it is let go before the task runs, so that it is the
    // task's thread, which allocated it, that frees it.
    let learner = if tag.learns() {
        Some(fly)
    } else {
        panics::let_go(fly);
        None
    };
    call(shard, waker);
    if let Some(learner) = learner {
        panics::tell(Some(&shard.counters.panics), || learner.observe());
        panics::let_go(learner);
    }
}

/// A leader that has let the lock go.
struct Away<'s> {
    shard: &'s Shard,
    since: u64,
}

impl<'s> Away<'s> {
    fn begin(hub: &Hub, shard: &'s Shard, now: Instant, asks: bool) -> Self {
        let since = now.as_nanos().max(1);
        let duty = &hub.crew.duty;
        let count =
            |calls: &AtomicU64| calls.store(calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        count(&duty.calls);
        if asks {
            count(&duty.asks);
        }
        shard.away_since.store(since, Ordering::Relaxed);
        // With the overseer's: either it sees that we are away, or we see that it does not look.
        fence(Ordering::SeqCst);
        let pace = if asks { FAST } else { SLOW };
        if duty.pace.load(Ordering::Relaxed) < pace {
            duty.pace.store(pace, Ordering::Relaxed);
            duty.door.ring(Instant::ORIGIN);
        }
        Self { shard, since }
    }

    /// Whether nobody has taken over so far.
    fn still_leads(&self) -> bool {
        self.shard.away_since.load(Ordering::Relaxed) == self.since
    }

    /// Comes back; whether nobody has taken over.
    fn end(self) -> bool {
        self.shard.lead_from(self.since)
    }
}

/// Leads a shard whose leader has been away since `since`, unless that is back.
fn take_over(hub: &Arc<Hub>, post: usize, since: u64) {
    let shard = &hub.posts[post].shard;
    if shard.lead_from(since) {
        shard.counters.takeovers.bump();
        lead(hub, post);
    }
}
