//! The executor and its reactor on a clock turned by hand.

extern crate std;

use super::*;
use crate::clock::ManualClock;
use crate::line::{CompletionLine, HostLine, MemoryDescriptor, Slot};
use crate::port::{Arming, CompletionPort, Status, Timer, Wake, Watch};
use crate::seq::Seq;
use crate::time::Instant;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::panic::AssertUnwindSafe;

/// A host on virtual time: sleeping moves the clock on, and the script's stores land on the way.
#[derive(Debug)]
struct Host {
    clock: ManualClock,
    /// Moments at which words of the line are stored.
    stores: RefCell<Vec<(Instant, Slot)>>,
    line: HostLine,
    idles: Cell<u32>,
}

impl Host {
    fn new(stores: &[(u64, usize)]) -> Self {
        let stores = stores.iter().map(|(at, slot)| (Instant::from_nanos(*at), Slot::ALL[*slot])).collect();
        Self {
            clock: ManualClock::new(),
            stores: RefCell::new(stores),
            line: HostLine::new(),
            idles: Cell::new(0),
        }
    }

    fn advance_to(&self, until: Instant) {
        self.clock.advance_to(until);
        self.stores.borrow_mut().retain(|(at, slot)| {
            let due = *at <= until;
            if due {
                self.line.store(*slot, Seq::new(1));
            }
            !due
        });
    }

    fn port(&self, slot: usize) -> Port<'_> {
        Port(MemoryDescriptor::new(&self.line, Slot::ALL[slot], Seq::new(1)))
    }
}

impl Idle for Host {
    fn idle(&self, until: Option<Instant>) {
        self.idles.set(self.idles.get() + 1);
        self.advance_to(until.expect("every idle of these tests has an end"));
    }
    fn bell(&self) -> Waker {
        Waker::noop().clone()
    }
}

impl Park for Host {
    fn park(&self, line: Option<&CompletionLine>, until: Instant, mut ready: impl FnMut() -> bool) -> Wake {
        assert!(line.is_some_and(|line| core::ptr::eq(line, core::ptr::from_ref(&*self.line))));
        loop {
            if ready() {
                return Wake::Reached;
            }
            let next = self.stores.borrow().iter().map(|(at, _)| *at).min();
            let step = next.unwrap_or(until).min(until);
            self.advance_to(step);
            if step == until && !ready() {
                return Wake::Woke;
            }
        }
    }
}

struct Port<'h>(MemoryDescriptor<&'h HostLine>);

impl<'h> CompletionPort for Port<'h> {
    type Line = &'h HostLine;
    fn query(&mut self) -> Result<Status, Error> {
        Ok(if self.0.reached() { Status::Done } else { Status::Pending })
    }
    fn block(&mut self, _: Option<Instant>) -> Result<Status, Error> {
        Err(Error::new(ErrorCode::BlockUnbounded, [&"this port"]))
    }
    fn arm(&mut self) -> Result<Arming, Error> {
        Ok(Arming::Armed)
    }
    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
        Some(&self.0)
    }
}

type Shared<'h> = Reactor<&'h ManualClock, &'h HostLine>;

fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

#[test]
fn words_and_deadlines_end_in_the_order_of_their_time() {
    let host = Host::new(&[(700, 1), (300, 2)]);
    let reactor = Shared::new(&host.clock);
    let mut executor = Executor::new(&reactor, &host, &host, 8).unwrap();
    let task = async |slot: Option<usize>, until| {
        if let Some(slot) = slot {
            return reactor.watch(&host.port(slot), at(until)).await;
        }
        reactor.sleep_until(at(until)).await;
        Wake::Woke
    };
    for (slot, until) in [(Some(1), 9_000), (Some(2), 9_000), (None, 500), (Some(3), 400), (None, 0)] {
        executor.spawn(task(slot, until)).unwrap();
    }
    let mut ends = Vec::new();
    let stats = executor.run(|task, wake| ends.push((task, wake, host.clock.now().as_nanos()))).unwrap();
    assert_eq!(
        ends,
        [
            (4, Wake::Woke, 0), // the time had come: never pended
            (1, Wake::Reached, 300),
            (3, Wake::Woke, 400),
            (2, Wake::Woke, 500),
            (0, Wake::Reached, 700),
        ]
    );
    assert_eq!((stats.completions, stats.polls), (2, 9));
    assert_eq!((stats.idle_ns, stats.parked_ns, stats.slept_ns), (700, 700, 0));
    assert_eq!(reactor.registered(), 0);
}

#[test]
fn a_deadline_alone_is_slept_to() {
    let host = Host::new(&[]);
    let reactor = Shared::new(&host.clock);
    let mut executor = Executor::new(&reactor, &host, &host, 1).unwrap();
    executor.spawn(reactor.sleep_until(at(5_000))).unwrap();
    let stats = executor.run(|_, ()| ()).unwrap();
    assert_eq!((stats.slept_ns, stats.parked_ns, host.idles.get()), (5_000, 0, 1));
}

#[test]
fn ready_work_runs_between_waits_and_keeps_nothing_waiting() {
    let work = Cell::new(0);
    let host = Host::new(&[]);
    let reactor = Shared::new(&host.clock);
    let mut executor = Executor::new(&reactor, &host, &host, 2).unwrap();
    let task = async |waits: bool| {
        if waits {
            reactor.watch(&host.port(0), Instant::MAX).await;
            work.get()
        } else {
            for turn in 0..100 {
                work.set(turn);
                if turn == 10 {
                    host.line.store(Slot::ALL[0], Seq::new(1));
                }
                reactor.yield_now().await;
            }
            0
        }
    };
    executor.spawn(task(true)).unwrap();
    executor.spawn(task(false)).unwrap();
    let mut seen = None;
    let stats = executor
        .run(|task, turn| {
            if task == 0 {
                seen = Some(turn);
            }
        })
        .unwrap();
    assert_eq!(stats.idle_ns, 0, "there was always something to run");
    assert!(seen.is_some_and(|turn| turn <= 11), "seen at turn {seen:?} of the other's work");
}

#[test]
fn a_stall_is_an_error_and_the_tasks_stay() {
    let released = Cell::new(false);
    let host = Host::new(&[]);
    let reactor = Shared::new(&host.clock);
    let mut executor = Executor::new(&reactor, &host, &host, 4).unwrap();
    let task = async || poll_fn(|_| if released.get() { Poll::Ready(()) } else { Poll::Pending }).await;
    executor.spawn(task()).unwrap();
    executor.spawn(task()).unwrap();
    let error = executor.run(|_, ()| ()).unwrap_err();
    assert_eq!((error.code(), error.args()), (ErrorCode::Stalled, &["2".into()][..]));
    assert_eq!(executor.tasks(), 2);
    released.set(true);
    assert_eq!(executor.run(|_, ()| ()).unwrap_err().code(), ErrorCode::Stalled, "nobody woke them");
}

/// An idle that stands in for another thread: it wakes the task whose waker it finds at the third sleep.
struct Ringing<'h> {
    host: &'h Host,
    waker: Rc<RefCell<Option<Waker>>>,
}

impl Idle for Ringing<'_> {
    fn idle(&self, until: Option<Instant>) {
        self.host.idle(until);
        if self.host.idles.get() == 3
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }
    fn bell(&self) -> Waker {
        self.host.bell()
    }
}

#[test]
fn a_waker_alive_elsewhere_is_no_stall() {
    let host = Host::new(&[]);
    let reactor = Shared::new(&host.clock);
    let waker = Rc::default();
    let kept: Rc<RefCell<Option<Waker>>> = Rc::clone(&waker);
    let mut executor = Executor::new(&reactor, Ringing { host: &host, waker }, &host, 1).unwrap();
    let task = poll_fn(move |context| {
        if kept.borrow().is_some() {
            return Poll::Ready(());
        }
        *kept.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    });
    executor.spawn(task).unwrap();
    let stats = executor.run(|_, ()| ()).unwrap();
    assert_eq!((host.idles.get(), stats.polls), (3, 2));
    assert_eq!(stats.idle_ns, 3 * STALL_CHECK_NS);
}

#[test]
fn a_dropped_wait_takes_its_registration_back() {
    let host = Host::new(&[]);
    let reactor = Shared::new(&host.clock);
    let port = host.port(0);
    let mut watch = Box::pin(reactor.watch(&port, at(1_000)));
    let mut sleep = Box::pin(reactor.sleep_until(at(500)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(watch.as_mut().poll(&mut context).is_pending() && sleep.as_mut().poll(&mut context).is_pending());
    assert_eq!((reactor.registered(), reactor.watched()), (2, 1));
    assert_eq!(reactor.earliest(), Some(at(500)));
    drop(watch);
    assert_eq!((reactor.registered(), reactor.watched()), (1, 0));
    drop(sleep);
    assert_eq!(reactor.registered(), 0);
    assert_eq!(reactor.turn(true), 0);
}

/// The waker was stored only once, and the newest one was not the one called.
#[test]
fn case_5_the_waker_of_the_last_poll_is_the_one_that_is_woken() {
    use alloc::task::Wake as Waking;
    use core::sync::atomic::{AtomicU32, Ordering};
    struct Count(AtomicU32);
    impl Waking for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let host = Host::new(&[]);
    let reactor = Shared::new(&host.clock);
    let port = host.port(0);
    let mut watch = Box::pin(reactor.watch(&port, Instant::MAX));
    let counts = [(); 3].map(|()| Arc::new(Count(AtomicU32::new(0))));
    for count in &counts {
        let waker = Waker::from(Arc::clone(count));
        assert!(watch.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    // Ready before the next poll: the store lands while nobody looks.
    host.line.store(Slot::ALL[0], Seq::new(1));
    assert_eq!(reactor.turn(true), 1);
    assert_eq!(counts.map(|count| count.0.load(Ordering::Relaxed)), [0, 0, 1]);
    assert_eq!(watch.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Wake::Reached));
}

#[test]
fn a_waker_that_panics_leaves_the_reactor_whole() {
    use alloc::task::Wake as Waking;
    struct Panics;
    impl Waking for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker of the user's");
        }
    }
    let host = Host::new(&[]);
    let reactor = Shared::new(&host.clock);
    let port = host.port(0);
    let mut watch = Box::pin(reactor.watch(&port, Instant::MAX));
    let waker = Waker::from(Arc::new(Panics));
    assert!(watch.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    host.line.store(Slot::ALL[0], Seq::new(1));
    let turn = std::panic::catch_unwind(AssertUnwindSafe(|| reactor.turn(true)));
    assert!(turn.is_err());
    assert_eq!(reactor.turn(true), 0);
    assert_eq!(watch.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Wake::Reached));
}

/// The others whose turn had come were forgotten.
#[test]
fn a_waker_that_panics_keeps_no_other_from_waking() {
    struct Panics;
    impl alloc::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker of the user's");
        }
    }
    struct Counts(core::sync::atomic::AtomicU32);
    impl alloc::task::Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        }
    }
    let host = Host::new(&[]);
    let reactor = Shared::new(&host.clock);
    let counts = Arc::new(Counts(0.into()));
    let wakers =
        [Waker::from(Arc::clone(&counts)), Waker::from(Arc::new(Panics)), Waker::from(Arc::clone(&counts))];
    let ports = [0, 1, 2].map(|slot| host.port(slot));
    let mut watches: Vec<_> = ports.iter().map(|port| Box::pin(reactor.watch(port, Instant::MAX))).collect();
    for (watch, waker) in watches.iter_mut().zip(&wakers) {
        assert!(watch.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    for slot in 0..3 {
        host.line.store(Slot::ALL[slot], Seq::new(1));
    }
    let turn = std::panic::catch_unwind(AssertUnwindSafe(|| reactor.turn(true)));
    assert!(turn.is_err());
    reactor.turn(true);
    assert_eq!(counts.0.load(core::sync::atomic::Ordering::Relaxed), 2);
}

/// A place that changed hands while the words were looked at was passed over.
#[test]
fn a_turn_over_everything_looks_at_every_word() {
    let lines: Vec<HostLine> = (0..9).map(|_| HostLine::new()).collect();
    let host = Host::new(&[]);
    let reactor = Shared::new(&host.clock);
    let ports: Vec<Port<'_>> = (0..66)
        .map(|word| Port(MemoryDescriptor::new(&lines[word / 8], Slot::ALL[word % 8], Seq::new(1))))
        .collect();
    let mut watches: Vec<_> = ports.iter().map(|port| Box::pin(reactor.watch(port, Instant::MAX))).collect();
    for watch in &mut watches {
        assert!(watch.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(reactor.turn(false), 0);
    for word in [0, 63] {
        lines[word / 8].store(Slot::ALL[word % 8], Seq::new(1));
    }
    assert_eq!(reactor.turn(true), 2);
}

/// Counts how often its task was woken.
#[derive(Default)]
struct Wakes(core::sync::atomic::AtomicU32);

impl alloc::task::Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn a_nudge_wakes_each_task_that_pends_once_the_earliest_first() {
    let host = Host::new(&[]);
    let reactor = Reactor::<_, &HostLine>::new(&host.clock);
    assert!(!reactor.nudge(), "nobody waits");
    let counts: [Arc<Wakes>; 3] = core::array::from_fn(|_| Arc::default());
    let mut sleeps = [30, 10, 20].map(|ns| Box::pin(reactor.sleep_until(at(ns))));
    for (sleep, count) in sleeps.iter_mut().zip(&counts) {
        let waker = Waker::from(Arc::clone(count));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let seen = || counts.each_ref().map(|count| count.0.load(core::sync::atomic::Ordering::Relaxed));
    assert!(reactor.nudge());
    assert_eq!(seen(), [0, 1, 0]);
    assert!(reactor.nudge() && reactor.nudge());
    assert_eq!(seen(), [1, 1, 1]);
    assert!(!reactor.nudge(), "all of them were woken and not polled since");
    // A poll without cause leaves another waker, and the time is up for all of them in the end.
    let waker = Waker::from(Arc::clone(&counts[2]));
    assert!(sleeps[2].as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(reactor.nudge());
    assert_eq!(seen(), [1, 1, 2]);
    host.clock.advance_to(at(30));
    reactor.turn(true);
    for sleep in &mut sleeps {
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
    drop(sleeps);
    assert!(!reactor.nudge() && reactor.registered() == 0);
}
/// A waker of the task that had the place before was taken for one of the task there now.
#[test]
fn a_stale_waker_does_not_hide_a_stall() {
    let stale = Rc::new(RefCell::new(None));
    let host = Host::new(&[]);
    let reactor = Shared::new(&host.clock);
    let mut executor = Executor::new(&reactor, &host, &host, 1).unwrap();
    let task = async |keeps: bool| {
        poll_fn(|context| {
            if keeps {
                *stale.borrow_mut() = Some(context.waker().clone());
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
    };
    executor.spawn(task(true)).unwrap();
    executor.run(|_, ()| ()).unwrap();
    executor.spawn(task(false)).unwrap();
    assert_eq!(executor.run(|_, ()| ()).unwrap_err().code(), ErrorCode::Stalled);
    assert!(stale.borrow().is_some());
}

#[test]
fn a_task_that_panics_leaves_the_others() {
    let host = Host::new(&[]);
    let reactor = Shared::new(&host.clock);
    let mut executor = Executor::new(&reactor, &host, &host, 2).unwrap();
    let task = async |bad: bool| {
        reactor.yield_now().await;
        assert!(!bad, "a task of the user's");
    };
    executor.spawn(task(true)).unwrap();
    executor.spawn(task(false)).unwrap();
    let mut done = 0;
    let run = std::panic::catch_unwind(AssertUnwindSafe(|| executor.run(|_, ()| done += 1)));
    assert!(run.is_err());
    assert_eq!(executor.tasks(), 1);
    executor.run(|_, ()| done += 1).unwrap();
    assert_eq!((done, executor.tasks()), (1, 0));
    executor.spawn(task(false)).unwrap();
    executor.spawn(task(false)).unwrap();
}

#[test]
fn limits_are_checked_and_named() {
    let host = Host::new(&[]);
    let reactor = Shared::new(&host.clock);
    for tasks_max in [0, TASKS_MAX + 1] {
        let result = Executor::<core::future::Ready<()>, _, _, _, _>::new(&reactor, &host, &host, tasks_max);
        assert_eq!(result.unwrap_err().code(), ErrorCode::InvalidLimit);
    }
    let mut executor = Executor::new(&reactor, &host, &host, 1).unwrap();
    executor.spawn(core::future::ready(())).unwrap();
    let error = executor.spawn(core::future::ready(())).unwrap_err();
    assert_eq!((error.code(), error.args()), (ErrorCode::ExecutorFull, &["1".into()][..]));
    executor.run(|_, ()| ()).unwrap();
    executor.spawn(core::future::ready(())).unwrap();
}
