//! A shard whose leader, tasks, device and drivers are all played by one thread, at instants of the test's choice.

use crate::points::Point;
use alloc::task::Wake as RawWake;
use core::cell::Cell;
use core::task::Waker;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use wakeline_core::{
    Arming, CancelToken, Clock, CompletionPort, ContextKey, ErrorCode, HostLine, Instant, MemoryDescriptor,
    Mode, Nanos, Report, Seq, Slot, Wait, WaitPlan, Watched,
};

use super::super::config::WatcherConfig;
use super::super::flight::{Flight, Fly, Options, Seen, Tag};
use super::super::home::{Home, Hub};
use super::super::shard::census::Census;
use super::super::shard::{Errand, Pace, Shard};
use super::super::wake_time;
use super::ports::{Deed, Driver, Port, Time};

pub(super) type Line = Arc<HostLine>;

pub(super) const STRICT: &str = "flag:park_us=50,backstop_us=1000";
pub(super) const TRUST: &str = "flag:park_us=50,backstop_us=1000+trust";

pub(super) fn line() -> Line {
    Arc::new(HostLine::new())
}

/// The first number of this slot's word.
pub(super) fn word(line: &Line, slot: usize) -> MemoryDescriptor<Line> {
    MemoryDescriptor::new(Arc::clone(line), Slot::ALL[slot], Seq::new(1))
}

pub(super) fn us(us: u64) -> Nanos {
    Nanos::from_micros(us)
}

/// So long after the beginning of the play.
pub(super) fn at(micros: u64) -> Instant {
    START + us(micros)
}

/// Not zero, as no clock is, and no multiple of anything.
pub(super) const START: Instant = Instant::from_nanos(3_333_333_333);

/// How closely words are watched here, and then how often.
pub(super) const SPIN: Nanos = Nanos::from_micros(200);
pub(super) const NAP: Nanos = Nanos::from_micros(50);

/// How long a turn takes in a spin.
const SPIN_STEP: Nanos = Nanos::from_micros(1);

/// How often a leader may look again at once while no time passes. A strict wait confirms a thousand times at most.
const LOOKS_MAX: usize = 5_000;

/// A clock that goes on by itself, for who watches by it.
struct Passing(Cell<Instant>);

impl Clock for Passing {
    fn now(&self) -> Instant {
        self.0.replace(self.0.get() + us(10))
    }
}

/// A wait to be made.
#[derive(Clone)]
pub(super) struct Spec {
    pub(super) plan: String,
    pub(super) word: Option<MemoryDescriptor<Line>>,
    pub(super) context: Option<u64>,
    pub(super) deadline: Instant,
    pub(super) cancel: Option<CancelToken>,
    pub(super) late: Nanos,
    pub(super) early_wake: bool,
    pub(super) prediction: Option<Nanos>,
    /// What is known of its point, in place of a prediction.
    pub(super) forecast: Option<wakeline_core::Forecast>,
    pub(super) done_at: Instant,
    pub(super) fails_at: Instant,
    /// How long its task takes to be polled once it is woken.
    pub(super) runs_after: Nanos,
}

pub(super) const PREDICT: &str = "+predict:margin_us=50,min_sleep_us=100,max_sleep_us=20000,window=8";

impl Spec {
    pub(super) fn new(plan: &str) -> Self {
        Self {
            plan: plan.into(),
            word: None,
            context: None,
            deadline: Instant::MAX,
            cancel: None,
            late: Nanos::ZERO,
            early_wake: false,
            prediction: None,
            forecast: None,
            done_at: Instant::MAX,
            fails_at: Instant::MAX,
            runs_after: Nanos::ZERO,
        }
    }

    /// With the word of this slot.
    pub(super) fn on(self, line: &Line, slot: usize) -> Self {
        Self { word: Some(word(line, slot)), ..self }
    }
}

/// How a task's wait ended: when the task knew, and what it got.
pub(super) type Ended = (Instant, Result<Report, ErrorCode>);

/// A task that awaits one wait.
pub(super) struct Task {
    stage: Weak<Stage>,
    me: Weak<Task>,
    pub(super) driver: Arc<Driver>,
    pub(super) runs_after: Nanos,
    flight: Mutex<Option<Arc<Flight<Port>>>>,
    wakes: Mutex<Vec<Instant>>,
    polled: AtomicBool,
    ended: Mutex<Option<Ended>>,
}

impl Task {
    pub(super) fn ended(&self) -> Option<Ended> {
        *self.ended.lock().unwrap()
    }

    /// The outcome, which is there.
    pub(super) fn report(&self) -> Report {
        self.ended().expect("it has ended").1.expect("it has ended well")
    }

    pub(super) fn code(&self) -> Option<ErrorCode> {
        self.ended().and_then(|(_, outcome)| outcome.err())
    }

    /// When its waker was called.
    pub(super) fn wakes(&self) -> Vec<Instant> {
        self.wakes.lock().unwrap().clone()
    }

    /// Where its flight stands.
    pub(super) fn number(&self) -> u32 {
        self.flight().tag().number.load(Ordering::Relaxed)
    }

    pub(super) fn flight(&self) -> Arc<Flight<Port>> {
        self.flight.lock().unwrap().clone().expect("it is flying")
    }

    /// Whether its wait is over and it has not been told.
    pub(super) fn is_forgotten(&self) -> bool {
        self.flight.lock().unwrap().as_ref().is_some_and(|flight| flight.is_over())
    }

    fn is_of(&self, fly: &Arc<dyn Fly>) -> bool {
        let flight = self.flight.lock().unwrap();
        flight.as_ref().is_some_and(|flight| core::ptr::addr_eq(Arc::as_ptr(flight), Arc::as_ptr(fly)))
    }

    /// As the future's poll.
    fn poll(&self) {
        self.polled.store(false, Ordering::Relaxed);
        let Some(stage) = self.stage.upgrade() else { return };
        let Some(flight) = self.flight.lock().unwrap().clone() else { return };
        let (who, now) = (core::ptr::from_ref(&*flight).addr(), stage.time.now());
        wake_time::learn(&flight.lookout, &stage.home.wake_time, &stage.time);
        let mut outcome = flight.outcome();
        let mut watched = Watched::NotAsked;
        if outcome.is_none() {
            let ended = || flight.is_over() || flight.trusted() && flight.word_reached();
            let nap = || Nanos::ZERO;
            watched = wake_time::watch(&flight.lookout, who, &Passing(Cell::new(now)), nap, || (), ended);
            if watched == Watched::Ended && !flight.is_over() {
                flight.see(now, Seen::Reached);
            }
            flight.tag.waker.register(&Waker::from(self.me.upgrade().unwrap()));
            outcome = flight.outcome();
        }
        if let Some(outcome) = outcome {
            *self.ended.lock().unwrap() = Some((now, outcome.map_err(|error| error.code())));
            self.drop_flight(&stage);
        } else if watched == Watched::Again {
            self.poll_at(&stage, now + us(20));
        }
    }

    fn poll_at(&self, stage: &Stage, at: Instant) {
        if !self.polled.swap(true, Ordering::Relaxed) {
            let me = self.me.clone();
            stage.when(at, move || {
                if let Some(task) = me.upgrade() {
                    task.poll();
                }
            });
        }
    }

    /// Drops its future, ended or not.
    pub(super) fn abandon(&self) {
        if let Some(stage) = self.stage.upgrade() {
            self.drop_flight(&stage);
        }
    }

    fn drop_flight(&self, stage: &Stage) {
        let Some(flight) = self.flight.lock().unwrap().take() else { return };
        wake_time::stop(&flight.lookout, core::ptr::from_ref(&*flight).addr());
        flight.abandon();
        stage.shard.gone(flight);
    }
}

impl RawWake for Task {
    fn wake(self: Arc<Self>) {
        let Some(stage) = self.stage.upgrade() else { return };
        let now = stage.time.now();
        self.wakes.lock().unwrap().push(now);
        self.poll_at(&stage, now + self.runs_after);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A claim of the thread's to watch would outlive the play.
        for task in self.tasks.lock().unwrap().drain(..) {
            if let Some(flight) = task.flight.lock().unwrap().take() {
                wake_time::stop(&flight.lookout, core::ptr::from_ref(&*flight).addr());
            }
        }
    }
}

/// What an errand was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ran {
    Over,
    Rouse,
    Stir,
    Block,
    Drop,
    Faulted,
}

struct Bell(AtomicBool);

impl RawWake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) struct Stage {
    pub(super) time: Time,
    pub(super) shard: Shard,
    pub(super) home: Arc<Home>,
    bell: Arc<Bell>,
    /// What is to happen, by its time, and in the order in which it was said.
    plot: Mutex<BTreeMap<(Instant, u64), Deed>>,
    plots: AtomicU64,
    pub(super) tasks: Mutex<Vec<Arc<Task>>>,
    ran: Mutex<Vec<(Instant, Ran)>>,
    /// When sleeps without a word to watch have ended, and naps.
    pub(super) sleeps: Mutex<Vec<Instant>>,
    pub(super) naps: Mutex<Vec<Instant>>,
    /// How often the leader has looked since time last passed.
    looks: Mutex<(Instant, usize)>,
}

impl Stage {
    pub(super) fn new() -> Arc<Self> {
        let hub = Arc::new(Hub::new(WatcherConfig::default().early_wake(true)));
        let bell = Arc::new(Bell(AtomicBool::new(false)));
        Arc::new(Self {
            time: Time::new(START),
            shard: Shard::new(Waker::from(Arc::clone(&bell)), START, SPIN, NAP),
            home: Home::new(hub),
            bell,
            plot: Mutex::default(),
            plots: AtomicU64::new(0),
            tasks: Mutex::default(),
            ran: Mutex::default(),
            sleeps: Mutex::default(),
            naps: Mutex::default(),
            looks: Mutex::new((START, 0)),
        })
    }
    /// A token that rings, as those of a watcher do.
    pub(super) fn ringing_token(self: &Arc<Self>) -> CancelToken {
        struct Ring(Weak<Stage>);
        impl RawWake for Ring {
            fn wake(self: Arc<Self>) {
                if let Some(stage) = self.0.upgrade() {
                    stage.shard.look_at_tokens();
                }
            }
        }
        CancelToken::ringing(Waker::from(Arc::new(Ring(Arc::downgrade(self)))))
    }

    /// Has something happen then, after all that was said before to happen then.
    pub(super) fn when(&self, at: Instant, deed: impl FnOnce() + Send + 'static) {
        let count = self.plots.fetch_add(1, Ordering::Relaxed);
        self.plot.lock().unwrap().insert((at, count), Box::new(deed));
    }

    /// Stores a word then.
    pub(super) fn store_at(&self, at: Instant, word: &MemoryDescriptor<Line>) {
        let word = word.clone();
        self.when(at, move || word.line_ref().store(word.slot(), word.seq()));
    }

    /// Polls a wait for the first time, as the future does.
    pub(super) fn fly(self: &Arc<Self>, spec: &Spec) -> Arc<Task> {
        let driver = Arc::new(Driver::new(&self.time, spec.done_at, spec.fails_at));
        let task = Arc::new_cyclic(|me| Task {
            stage: Arc::downgrade(self),
            me: Weak::clone(me),
            driver: Arc::clone(&driver),
            runs_after: spec.runs_after,
            flight: Mutex::default(),
            wakes: Mutex::default(),
            polled: AtomicBool::new(false),
            ended: Mutex::default(),
        });
        let plan: WaitPlan = spec.plan.parse().unwrap();
        let mut port = Port::new(driver, spec.word.clone(), spec.context.map(ContextKey::new));
        let arming = match plan.mode() {
            Mode::Flag { .. } => port.arm().unwrap(),
            Mode::Block | Mode::Poll => Arming::Unsupported,
        };
        let now = self.time.now();
        let wait = Wait::new(&plan)
            .expecting(spec.forecast.clone().unwrap_or_else(|| spec.prediction.into()).late_by(spec.late))
            .deadline(Some(spec.deadline))
            .cancellable(spec.cancel.as_ref().is_some_and(|token| token.bell().is_none()))
            .watched(arming);
        let options = Options {
            deadline: spec.deadline,
            cancel: spec.cancel.clone(),
            late: spec.late,
            early_wake: spec.early_wake && spec.late == Nanos::ZERO,
            stir: true,
            kernel: false,
        };
        let (wait, action) = wait.start(now);
        let flight = Flight::new(Tag::seated(&self.home).unwrap(), options, Point::new("played"), wait, port);
        let next = flight.carry(now, action);
        self.tasks.lock().unwrap().push(Arc::clone(&task));
        if let Some(outcome) = flight.outcome() {
            *task.ended.lock().unwrap() = Some((now, outcome.map_err(|error| error.code())));
            return task;
        }
        flight.tag.waker.register(&Waker::from(Arc::clone(&task)));
        let flight = Arc::new(flight);
        *task.flight.lock().unwrap() = Some(Arc::clone(&flight));
        self.shard.add(flight as Arc<dyn Fly>, next);
        task
    }

    /// A turn and its errands. What is to be asked then is not asked yet.
    pub(super) fn turn(self: &Arc<Self>) -> Option<(u32, Arc<dyn Fly>)> {
        let mut batch = Vec::new();
        let mut core = self.shard.lock();
        core.turn(&self.shard, self.time.now());
        core.take_errands(&mut batch);
        let ask = core.next_ask();
        drop(core);
        self.run_errands(batch);
        ask
    }

    /// What a leader does between two rests.
    pub(super) fn round(self: &Arc<Self>) {
        let now = self.time.now();
        {
            let mut looks = self.looks.lock().unwrap();
            *looks = if looks.0 == now { (now, looks.1 + 1) } else { (now, 0) };
            assert!(looks.1 < LOOKS_MAX, "its leader never rests");
        }
        let ask = self.turn();
        if let Some((number, fly)) = ask {
            let answer = fly.ask(&self.time);
            self.shard.lock().asked(&self.shard, number, &fly, self.time.now(), answer);
        }
    }

    fn run_errands(self: &Arc<Self>, batch: Vec<Errand>) {
        for errand in batch {
            let (ran, fly) = match errand {
                Errand::Over(fly) => (Ran::Over, Some(fly)),
                Errand::Rouse(fly) => (Ran::Rouse, Some(fly)),
                Errand::Stir(fly) => {
                    if let Some(waker) = fly.tag().waker.take() {
                        waker.wake();
                    }
                    (Ran::Stir, None)
                }
                Errand::Block(fly) => {
                    self.block(fly);
                    (Ran::Block, None)
                }
                Errand::Drop(_) => (Ran::Drop, None),
                Errand::Faulted(_) => (Ran::Faulted, None),
            };
            self.ran.lock().unwrap().push((self.time.now(), ran));
            if let Some(fly) = fly {
                Self::wake(fly);
            }
        }
    }

    fn wake(fly: Arc<dyn Fly>) {
        let Some(waker) = fly.tag().waker.take() else { return };
        drop(fly);
        waker.wake();
    }

    /// Its helper comes back when the driver's own wait ends: with the work, or by the deadline.
    fn block(self: &Arc<Self>, fly: Arc<dyn Fly>) {
        let task = self.tasks.lock().unwrap().iter().find(|task| task.is_of(&fly)).cloned();
        let Some(task) = task else { return };
        let until = fly.deadline().min(task.driver.answers_at());
        if until == Instant::MAX {
            return;
        }
        let stage = Arc::downgrade(self);
        self.when(until, move || {
            let Some(stage) = stage.upgrade() else { return };
            fly.block(&stage.time);
            Self::wake(Arc::clone(&fly));
            fly.let_go();
            stage.shard.gone(fly);
        });
    }

    /// All that is to have happened by now.
    fn happen(&self) {
        while let Some(deed) = self.next_deed(self.time.now()) {
            deed();
        }
    }

    fn next_deed(&self, by: Instant) -> Option<Deed> {
        let mut plot = self.plot.lock().unwrap();
        let first = plot.first_entry()?;
        (first.key().0 <= by).then(|| first.remove())
    }

    fn next_at(&self) -> Instant {
        self.plot.lock().unwrap().keys().next().map_or(Instant::MAX, |(at, _)| *at)
    }

    /// Plays until then, and all that a leader does at that moment.
    pub(super) fn run(self: &Arc<Self>, until: Instant) {
        loop {
            self.happen();
            self.round();
            let now = self.time.now();
            let pace = self.shard.lock().pace(now);
            match pace {
                _ if now > until => return,
                Pace::Look => {}
                _ if self.next_at() <= now => {}
                // In a spin arrivals are looked at every fourth turn.
                _ if now >= until && self.shard.is_quiet() => return,
                Pace::Spin => self.time.pass_to((now + SPIN_STEP).min(self.next_at()).min(until.max(now))),
                Pace::Nap { until: wake } => {
                    if self.sleep(wake, until) {
                        self.naps.lock().unwrap().push(self.time.now());
                    }
                }
                Pace::Sleep { sharp, blunt } => {
                    if self.sleep(sharp.min(blunt), until) {
                        self.sleeps.lock().unwrap().push(self.time.now());
                    }
                }
            }
        }
    }

    /// Sleeps as a leader does, by its door; whether it did, and to the end or until it was rung.
    fn sleep(&self, wake: Instant, until: Instant) -> bool {
        let slept = || {
            self.bell.0.store(false, Ordering::Relaxed);
            loop {
                let next = self.next_at();
                if next > wake.min(until) {
                    self.time.pass_to(wake.min(until));
                    return wake <= until;
                }
                self.time.pass_to(next);
                self.happen();
                if self.bell.0.load(Ordering::Relaxed) {
                    return true;
                }
            }
        };
        self.shard.door.sleep(wake, || self.shard.is_quiet(), slept) == Some(true)
    }

    /// Closes the watcher, as its leader does.
    pub(super) fn close(self: &Arc<Self>) -> Option<usize> {
        let mut batch = Vec::new();
        let mut core = self.shard.lock();
        let pending = core.close(&self.shard);
        core.take_errands(&mut batch);
        drop(core);
        self.run_errands(batch);
        self.happen();
        pending
    }

    /// What was run so far, and when.
    pub(super) fn ran(&self) -> Vec<(Instant, Ran)> {
        self.ran.lock().unwrap().clone()
    }

    pub(super) fn count(&self, ran: Ran) -> usize {
        self.ran.lock().unwrap().iter().filter(|(_, its)| *its == ran).count()
    }

    /// Nobody is left, and nothing of them.
    pub(super) fn assert_empty(self: &Arc<Self>) {
        // What was abandoned is let go with the next turns.
        for _ in 0..8 {
            let _ = self.turn();
        }
        assert_eq!(self.shard.lock().census(), Census::default());
        assert_eq!(self.home.hub.seated(), 0);
        for task in self.tasks.lock().unwrap().iter() {
            assert_eq!(task.driver.drops(), 1, "its port was not let go, or twice");
        }
    }
}
