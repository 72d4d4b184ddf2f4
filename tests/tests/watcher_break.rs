//! What once broke the watcher: each of these was found by an attempt to break it.

#![allow(clippy::unwrap_used, reason = "tests")]

use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant as Wall};

use wakeline_core::{
    Arming, CancelToken, Clock, CompletionPort, ContextKey, Error, ErrorCode, HostLine, Instant,
    MemoryDescriptor, Nanos, Report, Seq, Slot, Status, WaitPlan, Wake,
};
use wakeline_measured::{measured, median};
use wakeline_std::{Point, StdClock, Watcher, WatcherConfig, WatcherWait, block_on};
use wakeline_tests::watching::{eventually, within};

const LIMIT: Duration = Duration::from_secs(20);
const CONTEXT: ContextKey = ContextKey::new(7);

fn plan(text: &str) -> WaitPlan {
    text.parse().unwrap()
}

/// What a test says of a device.
#[derive(Default)]
struct Device {
    line: Arc<HostLine>,
    done: AtomicBool,
    queries: AtomicUsize,
    /// A port that is let go panics.
    drop_panics: AtomicBool,
}

impl Device {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The point of number `seq` in this word.
    fn point(self: &Arc<Self>, slot: usize, seq: u64) -> FakePort {
        let word = MemoryDescriptor::new(Arc::clone(&self.line), Slot::ALL[slot], Seq::new(seq));
        FakePort { device: Arc::clone(self), word }
    }
}

/// A port whose driver says what the test says.
struct FakePort {
    device: Arc<Device>,
    word: MemoryDescriptor<Arc<HostLine>>,
}

impl CompletionPort for FakePort {
    type Line = Arc<HostLine>;

    fn query(&mut self) -> Result<Status, Error> {
        self.device.queries.fetch_add(1, Ordering::SeqCst);
        let done = self.device.done.load(Ordering::SeqCst) || self.word.reached();
        Ok(if done { Status::Done } else { Status::Pending })
    }

    fn block(&mut self, until: Option<Instant>) -> Result<Status, Error> {
        loop {
            let status = self.query()?;
            if status == Status::Done || until.is_some_and(|until| StdClock::new().now() >= until) {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn arm(&mut self) -> Result<Arming, Error> {
        Ok(Arming::Armed)
    }

    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
        Some(&self.word)
    }

    fn context(&self) -> Option<ContextKey> {
        Some(CONTEXT)
    }
}

impl Drop for FakePort {
    fn drop(&mut self) {
        if self.device.drop_panics.load(Ordering::SeqCst) {
            std::panic::resume_unwind(Box::new("a port's own"));
        }
    }
}

fn poll(wait: &mut WatcherWait<FakePort>) -> Poll<Result<Report, Error>> {
    Pin::new(wait).poll(&mut Context::from_waker(Waker::noop()))
}

/// A token that rings somebody else tells this watcher nothing: it has to look at it as at any other.
#[test]
fn a_token_that_rings_somebody_else_cancels_in_time() {
    for text in
        ["block", "flag:park_us=50,backstop_us=10000000", "flag:park_us=50,backstop_us=10000000+trust"]
    {
        for kind in 0..3 {
            let (watcher, other) = (Watcher::new().unwrap(), Watcher::new().unwrap());
            let (device, point) = (Device::new(), Point::new("foreign"));
            let token = match kind {
                0 => other.cancel_token(),
                1 => CancelToken::ringing(Waker::noop().clone()),
                _ => watcher.handle().cancel_token(),
            };
            let mut wait = watcher.wait(device.point(0, 1), &plan(text), &point).cancelled_by(&token);
            assert!(poll(&mut wait).is_pending());
            std::thread::sleep(Duration::from_millis(5));
            token.cancel();
            let start = Wall::now();
            let ended = eventually(Duration::from_secs(5), || watcher.handle().pending() == 0);
            device.done.store(true, Ordering::SeqCst);
            assert!(ended, "{text}, token {kind}: not cancelled after {:?}", start.elapsed());
            let Poll::Ready(Err(error)) = poll(&mut wait) else { unreachable!("it has ended well") };
            assert_eq!(error.code(), ErrorCode::Cancelled, "{text}, token {kind}");
        }
    }
}

const PREDICTS: &str = "flag:park_us=50,backstop_us=1000000+predict:margin_us=100,min_sleep_us=100,max_sleep_us=2000000,window=4";

/// Has the point predict so long.
fn teach(watcher: &Watcher, point: &Point, text: &str, length: Duration) -> Nanos {
    let device = Device::new();
    let mut wait = watcher.wait(device.point(0, 1), &plan(text), point);
    assert!(poll(&mut wait).is_pending());
    std::thread::sleep(length);
    device.line.store(Slot::ALL[0], Seq::new(1));
    block_on(wait).unwrap().elapsed
}

/// A cancellation is of those who were handed the token: others sleep on, and their drivers are not asked.
#[test]
fn a_cancellation_leaves_the_sleep_of_others_alone() {
    let watcher = Watcher::new().unwrap();
    let point = Point::new("sleeps");
    teach(&watcher, &point, PREDICTS, Duration::from_millis(400));
    let device = Device::new();
    let mut waits: Vec<_> =
        (0..50).map(|_| watcher.wait(device.point(0, 1), &plan(PREDICTS), &point)).collect();
    assert!(waits.iter_mut().all(|wait| poll(wait).is_pending()));
    let start = Wall::now();
    for _ in 0..20 {
        // Whose it is does not matter: nobody's.
        watcher.cancel_token().cancel();
        std::thread::sleep(Duration::from_millis(1));
    }
    let stats = watcher.stats();
    if start.elapsed() > Duration::from_millis(300) {
        // Too slow a machine: they may have landed by themselves.
        return;
    }
    assert_eq!(stats.early_wakes, 0, "{stats:?}");
    assert_eq!(device.queries.load(Ordering::SeqCst), 0);
}

/// A cancellation that overtakes its wait on the way to the watcher's thread, which looks at words meanwhile, is not lost.
#[test]
fn a_cancellation_right_after_the_first_poll_ends_the_wait_at_once() {
    let watcher = Watcher::new().unwrap();
    let (device, point) = (Device::new(), Point::new("overtaken"));
    let text = plan("flag:park_us=50,backstop_us=1000000");
    let mut other = watcher.wait(device.point(0, 1), &text, &point);
    assert!(poll(&mut other).is_pending());
    for round in 0..300 {
        let token = watcher.cancel_token();
        let mut wait = watcher.wait(device.point(1, 1), &text, &point).cancelled_by(&token);
        assert!(poll(&mut wait).is_pending());
        token.cancel();
        let ended = eventually(Duration::from_millis(500), || watcher.handle().pending() == 1);
        assert!(ended, "round {round}");
        std::thread::sleep(Duration::from_micros(round % 150));
    }
}

/// A backend whose destructor panics costs a message, not the thread that watches for everybody.
#[test]
fn a_port_that_panics_when_it_is_let_go_harms_no_other() {
    for helpers in [0, 2] {
        let config = WatcherConfig::default().helpers_max(helpers).unwrap();
        let watcher = Watcher::with(config).unwrap();
        let point = Point::new("drops");
        for text in ["poll", "flag:park_us=50,backstop_us=1000", "block"] {
            for round in 0..if helpers == 0 && text == "block" { 0 } else { 5 } {
                // Let go by a thread of the watcher: its future is forgotten, and leaves nobody to do it.
                let device = Device::new();
                device.drop_panics.store(true, Ordering::SeqCst);
                let mut wait = watcher.wait(device.point(0, 1), &plan(text), &point);
                assert!(poll(&mut wait).is_pending());
                std::mem::forget(wait);
                std::thread::sleep(Duration::from_millis(1));
                device.done.store(true, Ordering::SeqCst);
                device.line.store(Slot::ALL[0], Seq::new(1));
                // And so is that of another, which is well.
                let device = Device::new();
                let mut wait = watcher.wait(device.point(0, 1), &plan(text), &point);
                assert!(poll(&mut wait).is_pending());
                device.done.store(true, Ordering::SeqCst);
                device.line.store(Slot::ALL[0], Seq::new(1));
                let ended = eventually(Duration::from_secs(2), || poll(&mut wait).is_ready());
                assert!(ended, "{helpers} helpers, {text}, round {round}");
            }
        }
        watcher.close(Watcher::CLOSE).unwrap();
    }
}

/// Turns that were taken by those who have left since are not waited for: a lost store is found in time, however many waits of
/// its context there were before.
#[test]
fn a_lost_store_is_found_in_time_after_a_crowd_has_come_and_gone() {
    const TEXT: &str = "flag:park_us=50,backstop_us=1000";
    let watcher = Watcher::new().unwrap();
    let point = Point::new("crowd");
    let device = Device::new();
    // Keeps the context there.
    let mut stays = watcher.wait(device.point(0, 1), &plan("flag:park_us=50,backstop_us=1000000"), &point);
    assert!(poll(&mut stays).is_pending());
    let mut crowd: Vec<_> =
        (0..40_000).map(|_| watcher.wait(device.point(1, 1), &plan(TEXT), &point)).collect();
    assert!(crowd.iter_mut().all(|wait| poll(wait).is_pending()));
    assert!(eventually(LIMIT, || watcher.stats().arrivals == 40_001));
    std::thread::sleep(Duration::from_millis(50));
    drop(crowd);
    assert!(eventually(LIMIT, || watcher.stats().ends == 40_000));
    let lost = Device::new();
    let wait = watcher.wait(lost.point(0, 1), &plan(TEXT), &point);
    lost.done.store(true, Ordering::SeqCst);
    let start = Wall::now();
    within(LIMIT, || block_on(wait)).unwrap();
    // The crowd together would be asked within 2.5 s.
    assert!(start.elapsed() < Duration::from_millis(1_500), "{:?}", start.elapsed());
}

/// A task that is woken early watches no longer than its deadline allows.
#[test]
fn a_deadline_behind_the_landing_is_kept_by_a_wait_that_is_woken_early() {
    const TEXT: &str = "flag:park_us=50,backstop_us=1000000+predict:margin_us=2000,min_sleep_us=100,max_sleep_us=2000000,window=4+trust";
    let watcher = Watcher::with(WatcherConfig::default().early_wake(true)).unwrap();
    let once = || {
        let point = Point::new("deadline");
        let landing = teach(&watcher, &point, TEXT, Duration::from_millis(10)) - Nanos::from_millis(2);
        let device = Device::new();
        let clock = watcher.handle().clock();
        let start = clock.now();
        let deadline = start + landing + Nanos::from_micros(50);
        let wait = watcher.wait(device.point(0, 1), &plan(TEXT), &point).deadline(deadline);
        let error = within(LIMIT, || block_on(wait)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Timeout);
        clock.now().since(deadline)
    };
    measured(|machine| {
        let mut late = (0..15).map(|_| once()).collect::<Vec<_>>();
        let late = median(&mut late);
        // The sleep that ends early, and that until the deadline, are each followed by a wake-up of another thread.
        let allowed = Nanos::from_micros(200) + machine.usual() + machine.usual();
        if late < allowed { Ok(()) } else { Err(format!("{late} late of {allowed}")) }
    });
}

/// However many wait for one word, and in whatever order they came, one more costs about as much.
#[test]
fn a_hundred_thousand_waits_for_one_word_come_and_go_in_time() {
    const WAITS: u64 = 100_000;
    for forward in [true, false] {
        let watcher = Watcher::new().unwrap();
        let point = Point::new("one word");
        let device = Device::new();
        let text = plan("flag:park_us=50,backstop_us=1000000+trust");
        let start = Wall::now();
        let mut waits: Vec<_> = (0..WAITS)
            .map(|number| if forward { number + 1 } else { WAITS - number })
            .map(|seq| watcher.wait(device.point(0, seq), &text, &point))
            .collect();
        assert!(waits.iter_mut().all(|wait| poll(wait).is_pending()));
        assert!(eventually(Duration::from_secs(60), || watcher.stats().arrivals == WAITS));
        let came = start.elapsed();
        let start = Wall::now();
        for seq in 1..=1_000 {
            device.line.store(Slot::ALL[0], Seq::new(seq));
            let ended = eventually(LIMIT, || watcher.stats().ends >= seq);
            assert!(ended);
        }
        let ended = start.elapsed();
        let start = Wall::now();
        waits.clear();
        assert!(eventually(Duration::from_secs(60), || watcher.stats().ends == WAITS));
        println!(
            "forward {forward}: {came:?} to come, {ended:?} for a thousand to end, {:?} to go",
            start.elapsed()
        );
    }
}

/// The overseer may wake before the leaders of an idle watcher do, and has to look again until they have closed their shards.
#[test]
fn an_idle_watcher_closes_at_once() {
    for shards in [1, 8, 64] {
        for round in 0..20 {
            let watcher = Watcher::with(WatcherConfig::default().shards(shards).unwrap()).unwrap();
            // By then all of them sleep, the overseer for good.
            std::thread::sleep(Duration::from_millis(if shards == 64 { 20 } else { round }));
            let closed = watcher.close(Watcher::CLOSE);
            assert!(closed.is_ok(), "{shards} shards, round {round}: {closed:?}");
        }
    }
}

/// A waker that blocks until the test is over, or one that counts.
struct Caller {
    called: Arc<AtomicUsize>,
    blocks: Option<Arc<AtomicBool>>,
}

impl std::task::Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.called.fetch_add(1, Ordering::SeqCst);
        while self.blocks.as_ref().is_some_and(|over| !over.load(Ordering::SeqCst)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Wakers that block for good cost the threads that called them. Every other flight ends when the watcher closes, also where that leaves
/// nobody to lead, and is told of it where there are as many helpers as such wakers.
#[test]
fn a_watcher_closes_while_wakers_block_for_good() {
    const OTHERS: usize = 20;
    for (helpers, ends_before) in [(0, true), (0, false), (2, true), (2, false), (4, true), (4, false)] {
        let config = WatcherConfig::default().helpers_max(helpers).unwrap();
        let watcher = Watcher::with(config).unwrap();
        let (device, point) = (Device::new(), Point::new("blocks"));
        // Both of those that block end in one turn.
        let text = plan("flag:park_us=50,backstop_us=1000000+trust");
        let over = Arc::new(AtomicBool::new(false));
        let (blocked, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let begin = |slot, waker: Caller| {
            let mut wait = watcher.wait(device.point(slot, 1), &text, &point);
            let waker = Waker::from(Arc::new(waker));
            assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&waker)).is_pending());
            wait
        };
        let blocks = || Caller { called: Arc::clone(&blocked), blocks: Some(Arc::clone(&over)) };
        let counts = || Caller { called: Arc::clone(&told), blocks: None };
        let _blocking = [begin(0, blocks()), begin(0, blocks())];
        let mut others: Vec<_> = (0..OTHERS).map(|_| begin(1, counts())).collect();
        assert!(eventually(LIMIT, || watcher.stats().arrivals == 2 + OTHERS as u64));
        if ends_before {
            device.line.store(Slot::ALL[0], Seq::new(1));
            assert!(eventually(LIMIT, || blocked.load(Ordering::SeqCst) > 0));
            // For the takeovers.
            std::thread::sleep(Duration::from_millis(50));
        }
        let closed = within(LIMIT, move || watcher.close(Nanos::from_millis(300)));
        assert_eq!(closed.unwrap_err().code(), ErrorCode::Backend, "{helpers} helpers");
        if helpers >= 2 {
            let all = eventually(LIMIT, || told.load(Ordering::SeqCst) == OTHERS);
            assert!(all, "{helpers} helpers, {ends_before}: {told:?} of {OTHERS} are told");
        }
        for wait in &mut others {
            let Poll::Ready(Err(error)) = poll(wait) else {
                unreachable!("{helpers} helpers, {ends_before}: it is pending after the closing")
            };
            assert_eq!(error.code(), ErrorCode::WatcherClosed);
        }
        over.store(true, Ordering::SeqCst);
    }
}

/// What stands behind a waker panics when it is let go.
struct Fragile;

impl std::task::Wake for Fragile {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Fragile {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("a waker's own"));
    }
}

/// A waker that panics while another is registered in its place leaves its wait without anybody to wake: that wait is over, as if it
/// was dropped, and no other is touched. A wait for a word begins anew.
#[test]
fn a_waker_that_panics_in_a_registration_ends_its_wait_alone() {
    let watcher = Watcher::new().unwrap();
    let (device, point) = (Device::new(), Point::new("fragile"));
    let text = plan("flag:park_us=50,backstop_us=1000000+trust");
    let fragile = || Waker::from(Arc::new(Fragile));
    let panics = |run: &mut dyn FnMut()| {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "a waker's own");
    };
    let mut other = watcher.wait(device.point(1, 1), &text, &point);
    assert!(poll(&mut other).is_pending());

    let mut wait = watcher.wait(device.point(0, 1), &text, &point);
    // The flight holds the last of it then.
    assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&fragile())).is_pending());
    panics(&mut || drop(poll(&mut wait)));
    let Poll::Ready(Err(error)) = poll(&mut wait) else { unreachable!("it waits for nobody") };
    assert_eq!(error.code(), ErrorCode::PolledAfterEnd);
    assert_eq!((watcher.handle().pending(), point.snapshot().counts.abandoned), (1, 1));

    let word = MemoryDescriptor::new(Arc::clone(&device.line), Slot::ALL[0], Seq::new(1));
    let mut word = watcher.handle().word(word, Instant::MAX);
    assert!(Pin::new(&mut word).poll(&mut Context::from_waker(&fragile())).is_pending());
    panics(&mut || {
        let _ = Pin::new(&mut word).poll(&mut Context::from_waker(Waker::noop()));
    });
    assert!(Pin::new(&mut word).poll(&mut Context::from_waker(Waker::noop())).is_pending());

    device.line.store(Slot::ALL[0], Seq::new(1));
    device.line.store(Slot::ALL[1], Seq::new(1));
    assert_eq!(within(LIMIT, || block_on(word)), Wake::Reached);
    within(LIMIT, || block_on(other)).unwrap();
    watcher.close(Watcher::CLOSE).unwrap();
}
