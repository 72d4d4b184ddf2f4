//! A shard: the flights that one thread watches, and the decisions about them. Knows no thread.
//!
//! ```text
//!            add, gone (any thread)
//!                   │ inbox, door
//!                   ▼
//!   turn: inbox ─► words ─► times ─► follow ──┬─► watch   lines + wheel
//!                                     ▲       ├─► sleep   wheel
//!                                     │       ├─► ask     errands ─┐
//!                                     │       ├─► block   errands  │ outside of the lock
//!                              asked ─┘       └─► over    errands  │
//!                                     ▲                            │
//!                                     └────────────────────────────┘
//! ```
//!
//! Invariants: the lock of the [`Core`] covers no driver call, no waker and no drop of a flight; those are [`Errand`]s, which whoever
//! leads the shard runs after it has let the lock go. A flight stands in the lines only while `watched`, in one of the wheels at most once, and
//! is asked at most once at a time.

#[cfg(all(test, not(loom)))]
pub(super) mod census;
mod follow;
mod stale;

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use wakeline_core::{CompletionLine, Doorbell, Error, Instant, Nanos};

use super::contexts::Contexts;
use super::flight::{Fly, NOWHERE, Next, Seen};
use super::lines::Lines;
use super::panics;
use super::stats::Counters;
use super::sync::{AtomicBool, AtomicU64, Lock, MutexGuard, Ordering, Queue, fence};
use super::wake_time::Lead;
use super::wheel::Wheel;
use stale::Sweep;

/// How many arrivals one turn takes at most, so that words are looked at in between.
const ARRIVALS_PER_TURN_MAX: usize = 1_024;

/// Naps grow to this part of the time for which no new word has been watched, and to a millisecond.
const NAP_PART: u64 = 64;
const NAP_MAX: Nanos = Nanos::from_millis(1);

/// While words are watched, what has come in is looked at in one of so many turns, each of which takes 0.1 us or so.
const TURNS_PER_LOOK: u32 = 4;

pub(super) struct Shard {
    inbox: Queue<Notice>,
    /// What those who register read and nobody writes while the shard is awake.
    pub(super) door: CachePadded<Doorbell>,
    /// Nothing is taken in any more.
    closed: AtomicBool,
    /// A token that rings was cancelled.
    tokens: AtomicBool,
    /// A task has ended its flight by itself.
    stale: AtomicBool,
    /// What is watched may come from now on, however long it has been in coming.
    attends: AtomicBool,
    core: CachePadded<Lock<Core>>,
    /// Since when the leader has been in code that is not ours; zero while it is not. Changed from a time by [`Shard::lead_from`] alone.
    pub(super) away_since: CachePadded<AtomicU64>,
    pub(super) counters: CachePadded<Counters>,
}

enum Notice {
    New(Arc<dyn Fly>, Next),
    /// It was abandoned.
    Gone(Arc<dyn Fly>),
    /// It was to be asked by one who leads no longer: what the driver said, `None` where it was not asked.
    Answer(u32, Arc<dyn Fly>, Option<(Next, Option<Error>)>),
}

/// What is to be done without the lock.
pub(super) enum Errand {
    /// Its outcome is there: wake its task, and let it go.
    Over(Arc<dyn Fly>),
    /// Its task is to watch from now on.
    Rouse(Arc<dyn Fly>),
    /// Its task has slept for long, and is to be woken in a moment: wake it for nothing now.
    Stir(Arc<dyn Fly>),
    /// Have the driver's own wait made on a thread of its own.
    Block(Arc<dyn Fly>),
    /// Let go of it.
    Drop(Arc<dyn Fly>),
    /// Tell that a query has failed, for which all flights of its context are asked.
    Faulted(Error),
}

/// What the leader's thread does until the next turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pace {
    /// Look again at once.
    Look,
    /// Look again at once, but tell the processor that this is a spin.
    Spin,
    /// Look again soon: words are watched, but not so closely any more.
    Nap { until: Instant },
    /// Nothing to look at before the earlier of the two; the one is to be met exactly.
    Sleep { sharp: Instant, blunt: Instant },
}

pub(super) struct Core {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Who has to be looked at exactly then.
    sharp: Wheel,
    /// Who has to be looked at about then.
    blunt: Wheel,
    pub(super) lines: Lines,
    contexts: Contexts,
    /// Flights to be asked about, in order.
    asks: VecDeque<u32>,
    errands: Vec<Errand>,
    /// Whose tasks watch their words themselves, as far as is known.
    roused: Vec<u32>,
    sweep: Sweep,
    turns: u32,
    /// The turn in which an end was rehearsed last.
    rehearsed: u32,
    /// Who has left and still stands in the wheels, and their contexts.
    left: Vec<(u32, Option<usize>)>,
    /// Kept for their memory.
    reached: Vec<u32>,
    due: Vec<u32>,
    /// How many watched flights allow no lateness.
    hot: usize,
    /// When the last of them began to be watched.
    hot_since: Instant,
    /// How long a word is watched closely.
    spin: Nanos,
    nap: Nanos,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a thing of its own that can be true with any other"
)]
struct Entry {
    fly: Arc<dyn Fly>,
    context: Option<usize>,
    /// Its word stands in the lines.
    watched: bool,
    /// It allows no lateness.
    exact: bool,
    /// It is, or is about to be, asked.
    asking: bool,
    /// When it is its turn to be asked, where it waits for that.
    turn: Option<Instant>,
    blocking: bool,
    /// Until when its word is watched. In between, who may be told late is passed by at the times that it shares.
    watch_until: Instant,
    /// What is to be done before its predicted sleep is over.
    early: Option<Early>,
}

impl Entry {
    /// It no longer waits for its turn to be asked, which it gives back if it did.
    fn unqueue(&mut self, contexts: &mut Contexts) {
        if self.turn.take().is_some()
            && let Some(context) = self.context
        {
            contexts.give_back(context);
        }
    }
}

#[derive(Clone, Copy)]
enum Early {
    /// Its task is stirred, to be roused then.
    Stir { wake_at: Instant, look_at: Instant, lead: Lead },
    /// Its task watches the word itself, woken at about `wake_at`; it is looked at again some time before that ends.
    Rouse { wake_at: Instant, look_at: Instant, lead: Lead },
    /// It lands at a time that it shares with others.
    Land,
}

impl Shard {
    /// `bell` wakes the thread that leads; words are watched closely for `spin` after each new one, then every `nap`.
    pub(super) fn new(bell: core::task::Waker, now: Instant, spin: Nanos, nap: Nanos) -> Self {
        let core = Core {
            entries: Vec::new(),
            free: Vec::new(),
            sharp: Wheel::new(now),
            blunt: Wheel::new(now),
            lines: Lines::default(),
            contexts: Contexts::default(),
            asks: VecDeque::new(),
            errands: Vec::new(),
            roused: Vec::new(),
            sweep: Sweep::new(),
            turns: 0,
            rehearsed: 0,
            left: Vec::new(),
            reached: Vec::new(),
            due: Vec::new(),
            hot: 0,
            hot_since: Instant::ORIGIN,
            spin,
            nap,
        };
        Self {
            inbox: Queue::new(),
            door: CachePadded::new(Doorbell::new(bell)),
            closed: AtomicBool::new(false),
            tokens: AtomicBool::new(false),
            stale: AtomicBool::new(false),
            attends: AtomicBool::new(false),
            core: CachePadded::new(Lock::new(core)),
            away_since: CachePadded::new(AtomicU64::new(0)),
            counters: CachePadded::default(),
        }
    }

    /// Hands a flight over. Its waker is set by now.
    pub(super) fn add(&self, fly: Arc<dyn Fly>, next: Next) {
        self.inbox.push(Notice::New(fly, next));
        self.door.ring(next.due());
        // The ring has the fence: either the one who closes sees the notice, or we see that it is closed.
        if self.closed.load(Ordering::Relaxed) {
            self.refuse();
        }
    }

    /// Lets an abandoned flight go.
    pub(super) fn gone(&self, fly: Arc<dyn Fly>) {
        if self.closed.load(Ordering::Relaxed) {
            return panics::let_go(fly);
        }
        self.inbox.push(Notice::Gone(fly));
        // At once: whoever made its line may want to free that.
        self.door.ring(Instant::ORIGIN);
        if self.closed.load(Ordering::Relaxed) {
            self.refuse();
        }
    }

    /// Hands in what a driver has answered, or that it was not asked. For one who leads no longer.
    pub(super) fn hand_in(&self, number: u32, fly: Arc<dyn Fly>, answer: Option<(Next, Option<Error>)>) {
        self.inbox.push(Notice::Answer(number, fly, answer));
        self.door.ring(Instant::ORIGIN);
        if self.closed.load(Ordering::Relaxed) {
            self.refuse();
        }
    }

    /// Takes the lead from a leader that has been away since then, or comes back as that: one of them gets it.
    ///
    /// `Acquire` and `Release`, though what leaders share is behind the lock of the core.
    pub(super) fn lead_from(&self, since: u64) -> bool {
        self.away_since.compare_exchange(since, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether every flight was ended, and none is taken in any more.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Looks at the tokens of all flights.
    pub(super) fn look_at_tokens(&self) {
        self.tokens.store(true, Ordering::Release);
        self.door.ring(Instant::ORIGIN);
    }

    /// Has words be watched closely again.
    pub(super) fn attend(&self) {
        self.attends.store(true, Ordering::Release);
        self.door.ring(Instant::ORIGIN);
    }

    /// Ends what comes too late.
    fn refuse(&self) {
        while let Some(notice) = self.inbox.pop() {
            // On any thread, one of ours included.
            let told = panics::message_of(move || match notice {
                Notice::New(fly, _) => {
                    fly.see(Instant::MAX, Seen::Closed);
                    match fly.tag().waker.take() {
                        Some(waker) => waker.wake(),
                        None => drop(fly.tell()),
                    }
                }
                other => drop(other),
            });
            if let Some(panic) = told {
                self.counters.panics.bump();
                panics::tell(Some(&self.counters.panics), || crate::trace::waker_panicked(&panic));
            }
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    /// Whether nothing has come in since the last turn: the last look before the leader sleeps.
    pub(super) fn is_quiet(&self) -> bool {
        self.inbox.is_empty() && !self.tokens.load(Ordering::Acquire) && !self.attends.load(Ordering::Acquire)
    }
}

impl Core {
    /// Takes what has come in, looks at the words and at the time.
    pub(super) fn turn(&mut self, shard: &Shard, now: Instant) {
        self.tidy();
        self.turns = self.turns.wrapping_add(1);
        // A look takes the line that those who register write away from them.
        if (self.lines.armed() == 0 || self.turns.is_multiple_of(TURNS_PER_LOOK)) && !shard.inbox.is_empty() {
            self.take_arrivals(shard, now);
        }
        if self.lines.armed() > 0 {
            let mut reached = core::mem::take(&mut self.reached);
            self.lines.scan(&mut reached);
            for number in reached.drain(..) {
                self.seen(shard, number, now, Seen::Reached);
            }
            self.reached = reached;
        }
        // All that is due first: who is due again at once has to wait for the next turn, lest this one never ends.
        let mut due = core::mem::take(&mut self.due);
        due.extend(core::iter::from_fn(|| self.sharp.pop(now)));
        due.extend(core::iter::from_fn(|| self.blunt.pop(now)));
        for number in due.drain(..) {
            self.seen(shard, number, now, Seen::Due);
        }
        self.due = due;
        self.sweep(shard, now);
        if shard.attends.load(Ordering::Relaxed) && shard.attends.swap(false, Ordering::Acquire) {
            self.hot_since = now;
        }
        if shard.tokens.load(Ordering::Relaxed) && shard.tokens.swap(false, Ordering::Acquire) {
            for number in self.numbers() {
                // Those alone: to look at the others would end their sleeps.
                if self.entry(number).is_some_and(|entry| entry.fly.cancelled()) {
                    self.seen(shard, number, now, Seen::Due);
                }
            }
        }
    }

    /// Lets go of those that their tasks have ended, now that there is something else to do: no wake-up is had for that alone.
    fn let_roused_go(&mut self, shard: &Shard) {
        while let Some(number) = self.roused.pop() {
            if self.entry(number).is_some_and(|entry| entry.fly.ended()) {
                self.leave(shard, number);
            }
        }
    }

    fn take_arrivals(&mut self, shard: &Shard, now: Instant) {
        self.let_roused_go(shard);
        for _ in 0..ARRIVALS_PER_TURN_MAX {
            match shard.inbox.pop() {
                None => break,
                Some(Notice::New(fly, next)) => {
                    shard.counters.arrivals.add(1);
                    // Its token may have been cancelled, and those of all who were here looked at, while it was on its way.
                    let next = if fly.cancelled() { fly.see(now, Seen::Due) } else { next };
                    let number = self.enter(fly);
                    self.follow(shard, number, now, next);
                    self.sweep_for_arrival(shard);
                }
                Some(Notice::Gone(fly)) => {
                    let number = fly.tag().number.load(Ordering::Relaxed);
                    if self.is(number, &fly) {
                        self.leave(shard, number);
                    }
                    self.errands.push(Errand::Over(fly));
                }
                Some(Notice::Answer(number, fly, answer)) => {
                    match answer {
                        Some(answer) => self.asked(shard, number, &fly, now, answer),
                        None if self.is(number, &fly) => self.asks.push_back(number),
                        None => {}
                    }
                    // Its port may be let go with it, and not under the lock.
                    self.errands.push(Errand::Drop(fly));
                }
            }
        }
    }

    /// Takes what is to be done without the lock; `batch` is empty, and keeps its memory.
    pub(super) fn take_errands(&mut self, batch: &mut Vec<Errand>) {
        core::mem::swap(&mut self.errands, batch);
    }

    /// The next flight to be asked about, without the lock; then call [`asked`](Self::asked).
    pub(super) fn next_ask(&mut self) -> Option<(u32, Arc<dyn Fly>)> {
        while let Some(number) = self.asks.pop_front() {
            if let Some(Some(entry)) = self.entries.get(number as usize)
                && entry.asking
            {
                return Some((number, Arc::clone(&entry.fly)));
            }
        }
        None
    }

    /// The driver has answered.
    pub(super) fn asked(
        &mut self,
        shard: &Shard,
        number: u32,
        fly: &Arc<dyn Fly>,
        now: Instant,
        (next, failure): (Next, Option<Error>),
    ) {
        shard.counters.queries.add(1);
        if !self.is(number, fly) {
            // It ended meanwhile.
            return;
        }
        let context = self.entry(number).and_then(|entry| {
            entry.asking = false;
            entry.context
        });
        self.follow(shard, number, now, next);
        if let (Some(context), Some(failure)) = (context, failure)
            && self.contexts.sweep(context, now)
        {
            shard.counters.faults.add(1);
            self.ask_all(context);
            self.errands.push(Errand::Faulted(failure));
        }
    }

    /// One flight of the context has failed: the others are asked at once, each for its own answer.
    fn ask_all(&mut self, context: usize) {
        for number in self.numbers() {
            if let Some(entry) = self.entry(number)
                && entry.context == Some(context)
                && !entry.asking
                && !entry.blocking
            {
                entry.asking = true;
                entry.turn = None;
                self.asks.push_back(number);
            }
        }
    }

    /// What the leader does until the next turn.
    pub(super) fn pace(&self, now: Instant) -> Pace {
        if !self.errands.is_empty() || !self.asks.is_empty() {
            return Pace::Look;
        }
        let (sharp, blunt) = (self.sharp.earliest(), self.blunt.earliest().min(self.sweep.due()));
        if sharp.min(blunt) <= now {
            return Pace::Look;
        }
        if self.hot == 0 {
            return Pace::Sleep { sharp, blunt };
        }
        if now < self.hot_since + self.spin {
            Pace::Spin
        } else {
            // What is long in coming is looked at ever more seldom, and told late by no more than that part of how long it took.
            let long = Nanos::from_nanos(now.since(self.hot_since).as_nanos() / NAP_PART).min(NAP_MAX);
            Pace::Nap { until: sharp.min(blunt).min(now + self.nap.max(long)) }
        }
    }

    /// For how long the words may be parked on in hardware, if for no more than `most` after the last began to be watched, and by what.
    pub(super) fn parkable(&self, now: Instant, most: Nanos) -> Option<(&CompletionLine, Instant)> {
        let until = (self.hot_since + most).min(self.sharp.earliest()).min(self.blunt.earliest());
        (self.hot > 0 && until > now).then_some(())?;
        Some((self.lines.lone_line()?, until))
    }

    /// Ends every flight: the watcher closes. Returns how many there were, `None` where it was closed before.
    pub(super) fn close(&mut self, shard: &Shard) -> Option<usize> {
        let first = !shard.closed.swap(true, Ordering::AcqRel);
        // As in `add`.
        fence(Ordering::SeqCst);
        self.take_all_arrivals(shard);
        let numbers = self.numbers();
        for number in &numbers {
            if let Some(entry) = self.entry(*number) {
                entry.fly.see(Instant::MAX, Seen::Closed);
            }
            self.leave(shard, *number);
        }
        self.asks.clear();
        first.then_some(numbers.len())
    }

    fn take_all_arrivals(&mut self, shard: &Shard) {
        while !shard.inbox.is_empty() {
            self.take_arrivals(shard, Instant::ORIGIN);
        }
    }

    fn numbers(&self) -> Vec<u32> {
        (0..).zip(&self.entries).filter(|(_, entry)| entry.is_some()).map(|(number, _)| number).collect()
    }

    fn entry(&mut self, number: u32) -> Option<&mut Entry> {
        self.entries.get_mut(number as usize)?.as_mut()
    }

    /// Whether this is still the flight of that number.
    fn is(&self, number: u32, fly: &Arc<dyn Fly>) -> bool {
        let entry = self.entries.get(number as usize).and_then(Option::as_ref);
        entry.is_some_and(|entry| core::ptr::addr_eq(Arc::as_ptr(&entry.fly), Arc::as_ptr(fly)))
    }

    fn enter(&mut self, fly: Arc<dyn Fly>) -> u32 {
        let context = fly.context().map(|key| self.contexts.enter(key));
        let number = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len() - 1).unwrap_or(NOWHERE - 1)
        });
        fly.tag().number.store(number, Ordering::Relaxed);
        let exact = fly.late() == Nanos::ZERO;
        let entry = Entry {
            fly,
            context,
            watched: false,
            exact,
            asking: false,
            turn: None,
            blocking: false,
            watch_until: Instant::ORIGIN,
            early: None,
        };
        self.entries[number as usize] = Some(entry);
        number
    }

    /// Lets a flight go; its task is woken as an errand. What else there is to do waits for [`tidy`](Self::tidy), since the task does
    /// not need it.
    fn leave(&mut self, shard: &Shard, number: u32) {
        self.unwatch(number);
        let Some(mut entry) = self.entries.get_mut(number as usize).and_then(Option::take) else { return };
        entry.unqueue(&mut self.contexts);
        shard.counters.ends.add(1);
        self.errands.push(Errand::Over(entry.fly));
        self.left.push((number, entry.context));
    }

    /// Takes those that have left out of the wheels, and gives their numbers to others.
    fn tidy(&mut self) {
        while let Some((number, context)) = self.left.pop() {
            self.at(number, Instant::MAX);
            if let Some(context) = context {
                self.contexts.leave(context);
            }
            self.free.push(number);
        }
    }
}
