//! The time of a program and all that happens in it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use wakeline_core::{Clock, Instant, Nanos, Seq, Turn};
use wakeline_ops::Runtime;
use wakeline_sim::{SimDevice, SimStream, TimeLine, VirtualTime, VirtualWatcher};

use super::Summary;
use super::event::Event;
use crate::script::Script;
use crate::swarm::How;
use crate::swarm::program::Bytes;

/// How often in a row something may be done while no time passes. (The most in 100,000 programs was a few hundred.)
const STILL_MAX: u32 = 20_000;

/// How many moments a program has at most: what goes on longer waits for what never comes.
const MOMENTS_MAX: u32 = 2_000_000;

/// Every so many moments the words are looked at.
const WORDS_EVERY: u32 = 8;

/// What began and must end, counted from both sides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Balance(Arc<(AtomicU64, AtomicU64)>);

impl Balance {
    pub(crate) fn begin(&self) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.0.1.fetch_add(1, Ordering::Relaxed);
    }

    /// How many began and how many ended.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.0.0.load(Ordering::Relaxed), self.0.1.load(Ordering::Relaxed))
    }

    pub(crate) fn alive(&self) -> u64 {
        let (began, ended) = self.counts();
        began.saturating_sub(ended)
    }
}

/// What was found broken where nobody could be told: in a destructor, on a device's time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Broken(Arc<Mutex<Option<String>>>);

impl Broken {
    /// Notes the first.
    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(what);
    }

    pub(crate) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A device, its runtimes, its watcher.
pub(crate) struct Place {
    pub(crate) how: How,
    pub(crate) device: SimDevice,
    pub(crate) watcher: VirtualWatcher,
    runtimes: Vec<Runtime<SimDevice>>,
    /// Streams of no runtime.
    pub(crate) raw: Vec<SimStream>,
    pub(crate) streams: usize,
    /// The most buffers that forgotten futures can keep.
    pub(crate) forgotten: Rc<Cell<usize>>,
    /// What flights keep for the judge.
    pub(crate) owners: Balance,
}

impl Place {
    pub(crate) fn new(
        how: How,
        device: SimDevice,
        watcher: VirtualWatcher,
        runtimes: Vec<Runtime<SimDevice>>,
        raw: Vec<SimStream>,
        streams: usize,
    ) -> Self {
        let (forgotten, owners) = (Rc::default(), Balance::default());
        Self { how, device, watcher, runtimes, raw, streams, forgotten, owners }
    }

    /// The first of its runtimes, whose counts are those of all.
    pub(crate) fn runtime(&self) -> &Runtime<SimDevice> {
        &self.runtimes[0]
    }

    pub(crate) fn a_runtime(&self, number: u64) -> &Runtime<SimDevice> {
        let number = usize::try_from(number).unwrap_or(0);
        &self.runtimes[number % self.runtimes.len()]
    }
}

/// A task as seen from outside.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    pub(crate) aborted: Cell<bool>,
    pub(crate) waker: RefCell<Option<Waker>>,
}

impl Outside {
    /// Has it polled, whatever it waits for.
    pub(crate) fn stir(&self) {
        let waker = self.waker.borrow().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The time of a program and all that happens in it.
pub(crate) struct World<'s> {
    pub(crate) seed: u64,
    pub(crate) script: &'s Script,
    pub(crate) time: VirtualTime,
    pub(crate) places: Vec<Place>,
    pub(crate) watchers: Vec<VirtualWatcher>,
    /// Those that are to come, the last first.
    pub(crate) events: RefCell<Vec<(Instant, Event)>>,
    pub(crate) tasks: RefCell<Vec<Rc<Outside>>>,
    /// Memory that tasks hand to one another, by device.
    pub(crate) pool: RefCell<Vec<(usize, Bytes, u8)>>,
    pub(crate) summary: Cell<Summary>,
    pub(crate) tended: Balance,
    pub(crate) broken: Broken,
    /// Since when the watchers are shut down.
    pub(crate) closed: Cell<bool>,
    /// Time that was waited through; all other time is that of calls.
    waited_ns: Cell<u64>,
    /// How late the task that is being polled is, since it was woken.
    pub(crate) delay: Cell<Nanos>,
    keys: Cell<u64>,
    words: RefCell<Vec<Vec<Seq>>>,
    moments: Cell<u32>,
    still: Cell<(Instant, u32)>,
}

impl<'s> World<'s> {
    pub(crate) fn new(
        seed: u64,
        script: &'s Script,
        time: VirtualTime,
        places: Vec<Place>,
        watchers: Vec<VirtualWatcher>,
    ) -> Self {
        let words = places.iter().map(|_| Vec::new()).collect();
        Self {
            seed,
            script,
            time,
            places,
            watchers,
            events: RefCell::default(),
            tasks: RefCell::default(),
            pool: RefCell::default(),
            summary: Cell::default(),
            tended: Balance::default(),
            broken: Broken::default(),
            closed: Cell::new(false),
            waited_ns: Cell::new(0),
            delay: Cell::new(Nanos::ZERO),
            // Behind those that programs give.
            keys: Cell::new(1_000),
            words: RefCell::new(words),
            moments: Cell::new(0),
            still: Cell::new((Instant::ORIGIN, 0)),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.time.now()
    }

    /// Time that calls have taken so far: nobody's waiting, but everybody's delay, since there is one time.
    pub(crate) fn injected(&self) -> Nanos {
        Nanos::from_nanos(self.now().as_nanos() - self.waited_ns.get())
    }

    /// A number for a kind of operations that nothing is known of.
    pub(crate) fn new_key(&self) -> u64 {
        self.keys.set(self.keys.get() + 1);
        self.keys.get()
    }

    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        self.script.note(|| format!("{:>12} {}", self.now().as_nanos(), line()));
    }

    /// Does all that is due now, and tells of what has ended.
    ///
    /// # Errors
    ///
    /// What does not hold.
    pub(crate) fn settle(&self) -> Result<(), String> {
        self.events_due();
        let now = self.now();
        for place in &self.places {
            place.device.turn(now);
        }
        for watcher in &self.watchers {
            watcher.look();
        }
        self.whole()?;
        self.moments.set(self.moments.get() + 1);
        if self.moments.get().is_multiple_of(WORDS_EVERY) {
            self.words()?;
        }
        let (at, times) = self.still.get();
        let times = if self.now() > at { 0 } else { times + 1 };
        self.still.set((self.now(), times));
        if times > STILL_MAX || self.moments.get() > MOMENTS_MAX {
            return Err(format!(
                "no progress: {times} times at {:?}, {} moments",
                self.now(),
                self.moments.get()
            ));
        }
        Ok(())
    }

    /// When something is due next, `None` where nothing can come any more.
    pub(crate) fn next(&self) -> Option<Instant> {
        let now = self.now();
        let devices = self.places.iter().filter_map(|place| place.device.turn(now));
        let watchers = self.watchers.iter().filter_map(VirtualWatcher::due);
        let events = self.events.borrow();
        let event = events.last().map(|(at, _)| *at);
        devices.chain(watchers).chain(event).min()
    }

    /// Lets time pass, in which everybody waits.
    pub(crate) fn pass(&self, until: Instant) {
        let now = self.now();
        self.waited_ns.set(self.waited_ns.get() + until.since(now).as_nanos());
        self.time.pass(until);
    }

    /// Lets time pass to the next moment at which something is due, from within a task. Whether there was one.
    pub(crate) fn turn(&self) -> bool {
        self.must(self.settle());
        let Some(next) = self.next() else { return false };
        // Its task does not wait, and keeps all others from being polled.
        self.time.pass(next);
        self.must(self.settle());
        true
    }

    /// What is broken is told by whoever lets time pass next.
    pub(crate) fn must(&self, result: Result<(), String>) {
        if let Err(broken) = result {
            self.broken.note(|| broken);
        }
    }

    /// Lets time pass until nothing can come any more.
    pub(crate) fn run_out(&self) -> Result<(), String> {
        self.settle()?;
        while let Some(next) = self.next() {
            self.pass(next);
            self.settle()?;
        }
        self.words()
    }

    /// Nobody sees a point to its end any more.
    pub(crate) fn close_all(&self) {
        self.closed.set(true);
        self.watchers.iter().for_each(VirtualWatcher::close);
    }

    /// That nothing is broken: nothing was noted, and no device misused.
    pub(crate) fn whole(&self) -> Result<(), String> {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        for (number, place) in self.places.iter().enumerate() {
            let misuses = place.device.misuses();
            if let Some(first) = misuses.first() {
                return Err(format!("device {number} was misused: {first}"));
            }
        }
        Ok(())
    }

    /// That no word went backwards.
    fn words(&self) -> Result<(), String> {
        for (number, (place, before)) in
            self.places.iter().zip(self.words.borrow_mut().iter_mut()).enumerate()
        {
            let words = place.device.words();
            for (word, (now, was)) in words.iter().zip(before.iter()).enumerate() {
                if !now.reached(*was) {
                    return Err(format!("word {word} of device {number} went from {was:?} back to {now:?}"));
                }
            }
            *before = words;
        }
        Ok(())
    }
}
