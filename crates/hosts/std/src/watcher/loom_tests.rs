//! What threads can do to each other around a shard, in every interleaving with up to five preemptions.
//!
//! A leader here takes its turns by hand. Where it would spin, the model joins the other threads first and has it look once more: what
//! they did is visible then, and what was lost stays lost. Where it would sleep, it waits for a bell that loom knows, so that a wake
//! that is slept through is a deadlock, which loom reports.

use alloc::task::Wake as RawWake;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use wakeline_core::{
    Arming, Awaiter, Charge, CompletionPort, Error, ErrorCode, HostLine, Instant, MemoryDescriptor, Nanos,
    Seq, Slot, Status, Tend, WaitPlan, Wake,
};

use super::WatcherHandle;
use super::config::WatcherConfig;
use super::flight::{Fly, Next, Tag};
use super::future::WatcherWait;
use super::home::{Home, Hub};
use super::look::Look;
use super::shard::{Errand, Shard};
use crate::points::Point;

type Line = Arc<HostLine>;

/// Counts its wakes.
struct Counter(AtomicUsize);

impl Counter {
    fn new() -> (Arc<Self>, Waker) {
        let counter = Arc::new(Self(AtomicUsize::new(0)));
        (Arc::clone(&counter), Waker::from(counter))
    }

    fn wakes(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl RawWake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A bell that an idle thread waits on.
struct Bell {
    rung: Mutex<bool>,
    ring: Condvar,
}

impl Bell {
    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.ring.wait(rung).unwrap();
        }
        *rung = false;
    }
}

impl RawWake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap() = true;
        self.ring.notify_one();
    }
}

/// A point that is done when its word is; counts its ends.
struct Point1 {
    word: MemoryDescriptor<Line>,
    drops: Arc<AtomicUsize>,
}

impl CompletionPort for Point1 {
    type Line = Line;
    fn query(&mut self) -> Result<Status, Error> {
        Ok(if self.word.reached() { Status::Done } else { Status::Pending })
    }
    fn block(&mut self, _: Option<Instant>) -> Result<Status, Error> {
        self.query()
    }
    fn arm(&mut self) -> Result<Arming, Error> {
        Ok(Arming::Armed)
    }
    fn descriptor(&self) -> Option<&MemoryDescriptor<Line>> {
        Some(&self.word)
    }
}

impl Drop for Point1 {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

struct Stage {
    hub: Arc<Hub>,
    line: Line,
    drops: Arc<AtomicUsize>,
}

impl Stage {
    fn new() -> Self {
        let hub = Arc::new(Hub::new(WatcherConfig::default().early_wake(false)));
        Self { hub, line: Arc::new(HostLine::new()), drops: Arc::new(AtomicUsize::new(0)) }
    }

    fn shard(&self) -> &Shard {
        &self.hub.posts[0].shard
    }

    fn wait(&self, plan: &str) -> WatcherWait<Point1> {
        let plan: WaitPlan = plan.parse().unwrap();
        let word = MemoryDescriptor::new(Arc::clone(&self.line), Slot::ALL[0], Seq::new(1));
        let port = Point1 { word, drops: Arc::clone(&self.drops) };
        WatcherWait::new(&Home::new(Arc::clone(&self.hub)), port, &plan, &Point::new("loom"))
    }

    fn store(&self) {
        self.line.store(Slot::ALL[0], Seq::new(1));
    }

    /// One turn of a leader and what comes of it.
    fn turn(&self) {
        turn(self.shard(), &self.hub);
    }
}

fn turn(shard: &Shard, hub: &Hub) {
    let mut batch = Vec::new();
    let mut core = shard.lock();
    core.turn(shard, Instant::from_nanos(1));
    core.take_errands(&mut batch);
    let ask = core.next_ask();
    drop(core);
    run(&mut batch);
    if let Some((number, fly)) = ask {
        let answer = fly.ask(&hub.clock);
        shard.lock().asked(shard, number, &fly, Instant::from_nanos(1), answer);
    }
}

fn run(batch: &mut Vec<Errand>) {
    for errand in batch.drain(..) {
        match errand {
            Errand::Over(fly) | Errand::Rouse(fly) | Errand::Stir(fly) => {
                if let Some(waker) = fly.tag().waker.take() {
                    waker.wake();
                } else {
                    fly.tell();
                }
                if fly.ended() {
                    fly.retire();
                }
            }
            Errand::Drop(fly) => drop(fly),
            Errand::Block(_) | Errand::Faulted(_) => unreachable!("no block plan and no fault here"),
        }
    }
}

fn poll<P>(wait: &mut WatcherWait<P>, waker: &Waker) -> Poll<Result<(), ErrorCode>>
where
    P: CompletionPort<Line = Line> + Send + 'static,
{
    let polled = Pin::new(wait).poll(&mut Context::from_waker(waker));
    polled.map(|outcome| outcome.map(|_| ()).map_err(|error| error.code()))
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(5);
    model.check(check);
}

const TRUST: &str = "flag:park_us=50,backstop_us=1000000+trust";
const STRICT: &str = "flag:park_us=50,backstop_us=1000000";

/// The word is stored and the leader turns while the wait is registered: it ends well, and its task is woken if it was told to wait.
fn registration(plan: &'static str) {
    model(move || {
        let stage = Arc::new(Stage::new());
        let (store, lead) = (Arc::clone(&stage), Arc::clone(&stage));
        let device = thread::spawn(move || store.store());
        let leader = thread::spawn(move || lead.turn());
        let (counter, waker) = Counter::new();
        let mut wait = stage.wait(plan);
        let first = poll(&mut wait, &waker);
        device.join().unwrap();
        leader.join().unwrap();
        if first.is_pending() {
            // At most: it comes in, its word is seen, its driver is asked.
            (0..3).for_each(|_| stage.turn());
            assert_eq!(counter.wakes(), 1, "its task was not woken, or twice");
            assert_eq!(poll(&mut wait, &waker), Poll::Ready(Ok(())));
        } else {
            assert_eq!(first, Poll::Ready(Ok(())));
        }
        drop(wait);
        assert_eq!(stage.hub.seated(), 0);
    });
}

#[test]
fn loom_a_registration_meets_its_completion_under_trust() {
    registration(TRUST);
}

#[test]
fn loom_a_registration_meets_its_completion_under_the_drivers_authority() {
    registration(STRICT);
}

/// Polled again with another waker while it ends: whoever polled last is woken, or has the outcome.
#[test]
fn loom_case_5_a_poll_with_another_waker_meets_the_completion() {
    model(|| {
        let stage = Arc::new(Stage::new());
        let (_, old) = Counter::new();
        let mut wait = stage.wait(TRUST);
        assert!(poll(&mut wait, &old).is_pending());
        stage.turn();
        stage.store();
        let lead = Arc::clone(&stage);
        let leader = thread::spawn(move || lead.turn());
        let (counter, new) = Counter::new();
        let again = poll(&mut wait, &new);
        leader.join().unwrap();
        match again {
            Poll::Pending => assert_eq!(counter.wakes(), 1, "the newest waker was not woken"),
            outcome => assert_eq!(outcome, Poll::Ready(Ok(()))),
        }
    });
}

/// Dropped while it ends and while its driver is asked: its port is let go once, and nothing stays.
#[test]
fn loom_a_drop_meets_the_completion() {
    model(|| {
        let stage = Arc::new(Stage::new());
        let (_, waker) = Counter::new();
        let mut wait = stage.wait(STRICT);
        assert!(poll(&mut wait, &waker).is_pending());
        stage.store();
        let lead = Arc::clone(&stage);
        let leader = thread::spawn(move || {
            lead.turn();
        });
        drop(wait);
        leader.join().unwrap();
        assert_eq!(stage.drops.load(Ordering::SeqCst), 1, "its port was not let go, or twice");
        stage.turn();
        assert_eq!((stage.hub.seated(), stage.shard().lock().lines.armed()), (0, 0));
        assert_eq!(Arc::strong_count(&stage.line), 1, "somebody still holds the line");
    });
}

/// The watcher closes while a wait comes in: the wait ends with the code, whoever was first.
#[test]
fn loom_a_shutdown_meets_a_registration() {
    model(|| {
        let stage = Arc::new(Stage::new());
        let lead = Arc::clone(&stage);
        let leader = thread::spawn(move || {
            let mut batch = Vec::new();
            let mut core = lead.shard().lock();
            core.close(lead.shard());
            core.take_errands(&mut batch);
            drop(core);
            run(&mut batch);
        });
        let (counter, waker) = Counter::new();
        let mut wait = stage.wait(TRUST);
        let first = poll(&mut wait, &waker);
        leader.join().unwrap();
        assert!(first.is_pending());
        assert_eq!(counter.wakes(), 1, "its task was not woken, or twice");
        assert_eq!(poll(&mut wait, &waker), Poll::Ready(Err(ErrorCode::WatcherClosed)));
    });
}

/// A leader that goes to sleep while work comes in sleeps through none that is due before it would wake.
#[test]
fn loom_the_doorbell_meets_the_sleep() {
    model(|| {
        let bell = Arc::new(Bell { rung: Mutex::new(false), ring: Condvar::new() });
        let door = Waker::from(Arc::clone(&bell));
        let shard = Arc::new(Shard::new(door, Instant::ORIGIN, Nanos::ZERO, Nanos::from_micros(50)));
        let lead = Arc::clone(&shard);
        let leader = thread::spawn(move || {
            let mut slept_to_the_end = 0;
            loop {
                lead.lock().turn(&lead, Instant::from_nanos(1));
                if lead.counters.arrivals.get() == 2 {
                    break;
                }
                // First to a time that will come by itself, then for as long as nobody rings.
                let until = if slept_to_the_end == 0 { Instant::from_nanos(1_000) } else { Instant::MAX };
                lead.door.sleep(
                    until,
                    || lead.is_quiet(),
                    || {
                        if until == Instant::MAX { bell.wait() } else { slept_to_the_end += 1 }
                    },
                );
            }
        });
        for (due, next) in [(500, Next::Ask), (2_000, Next::Sleep { until: Instant::from_nanos(2_000) })] {
            let until = Instant::from_nanos(due);
            let look = Arc::new(Look::<Line>::new(Tag::new(), None, until));
            shard.add(look as Arc<dyn Fly>, next);
        }
        leader.join().unwrap();
    });
}

/// What a task that drives its own wait gets.
#[test]
fn loom_a_look_meets_its_word() {
    model(|| {
        let stage = Arc::new(Stage::new());
        let word = MemoryDescriptor::new(Arc::clone(&stage.line), Slot::ALL[0], Seq::new(1));
        let look = Arc::new(Look::new(Tag::new(), Some(word), Instant::MAX));
        let store = Arc::clone(&stage);
        let device = thread::spawn(move || store.store());
        let (counter, waker) = Counter::new();
        look.tag.waker.register(&waker);
        stage.shard().add(Arc::clone(&look) as Arc<dyn Fly>, Next::Watch { until: Instant::MAX });
        stage.turn();
        device.join().unwrap();
        stage.turn();
        assert_eq!((look.outcome(), counter.wakes()), (Some(Wake::Reached), 1));
    });
}

/// A task that sees its word by itself.
struct Sees(Arc<AtomicUsize>);

impl Awaiter for Sees {
    fn is_over(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

/// A tended point ends while its task sees that by itself: it is told at most once, always where the task did not see it, and its port
/// and its memory are there for the next.
#[test]
fn loom_a_tended_point_is_told_once_or_seen_and_its_memory_serves_the_next() {
    model(|| {
        let stage = Arc::new(Stage::new());
        let tender = WatcherHandle { home: Home::new(Arc::clone(&stage.hub)) }.tender(&Point::new("loom"));
        let plan: WaitPlan = TRUST.parse().unwrap();
        let (seen, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tend = |seq: u64, sees: bool| {
            let word = MemoryDescriptor::new(Arc::clone(&stage.line), Slot::ALL[0], Seq::new(seq));
            let port = Point1 { word, drops: Arc::clone(&stage.drops) };
            let seen = if sees { Arc::clone(&seen) } else { Arc::new(AtomicUsize::new(0)) };
            let told = Arc::clone(&told);
            tender.tend(port, &Charge::new(&plan), Sees(seen), move |result| {
                assert!(result.is_ok());
                told.fetch_add(1, Ordering::SeqCst);
            });
        };
        tend(1, true);
        let lead = Arc::clone(&stage);
        let leader = thread::spawn(move || lead.turn());
        stage.store();
        seen.store(1, Ordering::SeqCst);
        leader.join().unwrap();
        (0..2).for_each(|_| stage.turn());
        assert!(told.load(Ordering::SeqCst) <= 1);
        assert_eq!((stage.drops.load(Ordering::SeqCst), stage.hub.seated()), (1, 0));
        told.store(0, Ordering::SeqCst);
        // Reached already: told by the next turn.
        tend(1, false);
        (0..2).for_each(|_| stage.turn());
        assert_eq!((told.load(Ordering::SeqCst), stage.drops.load(Ordering::SeqCst)), (1, 2));
    });
}
