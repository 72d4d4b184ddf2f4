//! The limits of a watcher, its errors, how it closes, and wakers that misbehave.

#![allow(clippy::unwrap_used, clippy::large_types_passed_by_value, reason = "tests")]

use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::Wake;
use std::time::{Duration, Instant as Wall};

use wakeline_core::{Clock, CompletionPort, Error, ErrorCode, Nanos, Report, WaitPlan};
use wakeline_measured::measured;
use wakeline_sim::{Chance, Faults, SimConfig};
use wakeline_std::{AWAY_NS_MAX, Point, Watcher, WatcherConfig, WatcherWait, block_on};
use wakeline_tests::watching::{Call, Calls, HookPort, PLANS, RealPort, Stage, eventually, within};

const FLAG: &str = "flag:park_us=50,backstop_us=1000";
const LIMIT: Duration = Duration::from_secs(20);

fn plan(text: &str) -> WaitPlan {
    text.parse().unwrap()
}

fn ms(length: u64) -> Nanos {
    Nanos::from_millis(length)
}

fn poll<P>(wait: &mut WatcherWait<P>, waker: &Waker) -> Poll<Result<Report, Error>>
where
    P: CompletionPort + Send + 'static,
    P::Line: Send + Sync + 'static,
{
    Pin::new(wait).poll(&mut Context::from_waker(waker))
}

/// A waker that runs this.
fn waker(run: impl Fn() + Send + Sync + 'static) -> Waker {
    struct Runs<F>(F);
    impl<F: Fn() + Send + Sync> Wake for Runs<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }
    Waker::from(Arc::new(Runs(run)))
}

fn code(outcome: Poll<Result<Report, Error>>) -> Option<ErrorCode> {
    match outcome {
        Poll::Ready(Err(error)) => Some(error.code()),
        _ => None,
    }
}

#[test]
fn one_more_wait_than_there_is_room_for_is_an_error_until_one_has_gone() {
    let stage = Stage::new(SimConfig::default()).unwrap();
    let watcher = Watcher::with(WatcherConfig::default().flights_max(3).unwrap()).unwrap();
    let point = Point::new("full");
    let wait = |length| watcher.wait(stage.work(length).unwrap(), &plan(FLAG), &point);
    let noop = Waker::noop();
    for round in 0..50 {
        let mut waits: Vec<_> = (0..3).map(|_| wait(Nanos::MAX)).collect();
        for wait in &mut waits {
            assert!(poll(wait, noop).is_pending(), "round {round}");
        }
        let mut more = wait(Nanos::MAX);
        let Poll::Ready(Err(error)) = poll(&mut more, noop) else { panic!("round {round}: no error") };
        assert_eq!((error.code(), error.args()), (ErrorCode::WatcherFull, &["3".to_string()][..]));
        // A drop gives room at once.
        drop(waits.pop());
        let mut again = wait(ms(10));
        assert!(poll(&mut again, noop).is_pending(), "round {round}");
        // So does an end: seen by whoever polls, whether the shard has let it go or not.
        within(LIMIT, || block_on(again)).unwrap();
        let mut again = wait(Nanos::MAX);
        assert!(poll(&mut again, noop).is_pending(), "round {round}");
        // What was never polled has no seat.
        let _never = wait(Nanos::MAX);
        assert_eq!(watcher.handle().pending(), 3);
    }
    assert_eq!(watcher.handle().pending(), 0);
    watcher.close(Watcher::CLOSE).unwrap();
}

/// How many waits are pending at a time.
const MILLION: usize = 1_000_000;

/// For how long the work of a million goes on: until all of them are there, on a machine that has other work.
const LASTS: Nanos = Nanos::from_millis(60_000);

#[test]
#[ignore = "it takes a minute and a gigabyte: cargo test -p wakeline-tests --test watcher_limits -- --ignored"]
fn a_million_waits_at_once_all_end() {
    let stage = Stage::new(SimConfig::default()).unwrap();
    let watcher = Watcher::with(WatcherConfig::default().flights_max(MILLION).unwrap()).unwrap();
    let (plan, point) = (plan("flag:park_us=50,backstop_us=1000000+trust"), Point::new("million"));
    // Each takes a thousand stores.
    let streams: Vec<_> = (0..1_024).map(|_| stage.device.stream().unwrap()).collect();
    for stream in &streams {
        stream.launch(LASTS).unwrap();
    }
    let start = Wall::now();
    // They may be told late: nobody wakes for each of them.
    let wait =
        |number: usize| watcher.wait(streams[number % streams.len()].point(), &plan, &point).late_us(1_000);
    let mut waits: Vec<_> = (0..MILLION).map(wait).collect();
    for (number, wait) in waits.iter_mut().enumerate() {
        let polled = poll(wait, Waker::noop());
        assert!(polled.is_pending(), "wait {number} after {:?}: {polled:?}", start.elapsed());
    }
    let (pending, began) = (watcher.handle().pending(), start.elapsed());
    assert_eq!(pending, MILLION);
    assert_eq!(code(poll(&mut wait(0), Waker::noop())), Some(ErrorCode::WatcherFull));
    let ended = within(LIMIT * 6, || waits.into_iter().flat_map(block_on).count());
    assert_eq!(ended, MILLION);
    println!("{MILLION} waits: all there after {began:?}, all ended after {:?}", start.elapsed());
    assert_eq!(watcher.handle().pending(), 0);
    watcher.close(Watcher::CLOSE).unwrap();
}

#[test]
fn a_wait_is_polled_after_its_end() {
    let stage = Stage::new(SimConfig::default()).unwrap();
    let watcher = Watcher::new().unwrap();
    let point = Point::new("again");
    for text in PLANS {
        let mut wait = watcher.wait(stage.work(Nanos::from_micros(50)).unwrap(), &plan(text), &point);
        assert!(eventually(LIMIT, || matches!(poll(&mut wait, Waker::noop()), Poll::Ready(Ok(_)))), "{text}");
        for _ in 0..2 {
            assert_eq!(code(poll(&mut wait, Waker::noop())), Some(ErrorCode::PolledAfterEnd), "{text}");
        }
    }
}

#[test]
fn no_helper_for_a_block_is_an_error_and_one_helper_serves_one_after_the_other() {
    let stage = Stage::new(SimConfig::default()).unwrap();
    let point = Point::new("helpers");
    let watcher = Watcher::with(WatcherConfig::default().helpers_max(0).unwrap()).unwrap();
    let wait = watcher.wait(stage.work(ms(1)).unwrap(), &plan("block"), &point);
    let error = within(LIMIT, || block_on(wait)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::HelpersBusy);
    watcher.close(Watcher::CLOSE).unwrap();
    // The helper is not at rest yet when the task that it has woken asks for it again.
    let watcher = Watcher::with(WatcherConfig::default().helpers_max(1).unwrap()).unwrap();
    let mut refused = 0;
    for _ in 0..300 {
        let calls = Calls::counted();
        let port = HookPort::new(stage.work(Nanos::from_micros(30)).unwrap(), &calls);
        let wait = watcher.wait(port, &plan("block"), &point);
        if let Err(error) = within(LIMIT, || block_on(wait)) {
            assert_eq!(error.code(), ErrorCode::HelpersBusy, "{error}");
            refused += 1;
        }
        assert!(eventually(LIMIT, || calls.count(Call::Drop) == 1), "its port is kept after its end");
    }
    // A leader that the scheduler holds up for a millisecond has the helper lead in its place, until it is back and helps.
    assert!(refused < 10, "{refused} of 300");
    watcher.close(Watcher::CLOSE).unwrap();
}

#[test]
fn a_closed_watcher_ends_what_is_pending_and_refuses_what_comes_later() {
    let stage = Stage::new(SimConfig::default()).unwrap();
    for shards in [1, 4] {
        let watcher = Watcher::with(WatcherConfig::default().shards(shards).unwrap()).unwrap();
        let handle = watcher.handle();
        let point = Point::new("closed");
        let waits: Vec<_> = PLANS
            .iter()
            .cycle()
            .take(21)
            .map(|text| {
                // One whose sleep is long, of those that sleep.
                let wait = handle.wait(stage.work(ms(400)).unwrap(), &plan(text), &point);
                std::thread::spawn(move || block_on(wait))
            })
            .collect();
        assert!(eventually(LIMIT, || handle.pending() == 21));
        let start = Wall::now();
        let bounded = watcher.close(Watcher::CLOSE);
        assert!(start.elapsed() < Duration::from_secs(2));
        // A simulated block looks up every millisecond, but sleeps on: its thread ends with its work.
        if let Err(error) = bounded {
            assert_eq!(error.code(), ErrorCode::Backend);
        }
        for wait in waits {
            let error = within(LIMIT, move || wait.join().unwrap()).unwrap_err();
            assert_eq!(error.code(), ErrorCode::WatcherClosed);
        }
        let mut later = handle.wait(stage.work(ms(400)).unwrap(), &plan(FLAG), &point);
        assert_eq!(code(poll(&mut later, Waker::noop())), Some(ErrorCode::WatcherClosed));
        assert_eq!(handle.pending(), 0);
    }
}

#[test]
fn a_watcher_that_is_dropped_ends_what_is_pending_and_its_threads_end() {
    let stage = Stage::new(SimConfig::default()).unwrap();
    let ends = Arc::new(AtomicUsize::new(0));
    let (names, started) = mpsc::channel();
    let names = Mutex::new(names);
    let watcher = Watcher::with(
        WatcherConfig::default()
            .shards(2)
            .unwrap()
            .on_thread_start(move |name| names.lock().unwrap().send(name.to_string()).unwrap()),
    )
    .unwrap();
    let point = Point::new("dropped");
    let mut wait = watcher.wait(stage.work(Nanos::MAX).unwrap(), &plan(FLAG), &point);
    let woken = Arc::clone(&ends);
    let waker = waker(move || {
        woken.fetch_add(1, Ordering::SeqCst);
    });
    assert!(poll(&mut wait, &waker).is_pending());
    drop(watcher);
    assert!(eventually(LIMIT, || ends.load(Ordering::SeqCst) == 1));
    assert_eq!(code(poll(&mut wait, &waker)), Some(ErrorCode::WatcherClosed));
    drop(wait);
    // The hook goes with the last thread; then nobody is left to send a name.
    let mut names = Vec::new();
    loop {
        match started.recv_timeout(LIMIT) {
            Ok(name) => names.push(name),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("a thread stays: {names:?}"),
        }
    }
    names.sort();
    assert_eq!(names, ["wakeline-oversee", "wakeline-watch-0", "wakeline-watch-1"]);
}

#[test]
fn a_watcher_is_closed_by_a_waker() {
    let stage = Stage::new(SimConfig::default()).unwrap();
    let watcher = Watcher::new().unwrap();
    let point = Point::new("closes");
    let (told, tell) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
    let mut wait = watcher.wait(stage.work(ms(1)).unwrap(), &plan(FLAG), &point);
    let mut other = watcher.wait(stage.work(Nanos::MAX).unwrap(), &plan(FLAG), &point);
    let (watcher_there, result) = (Arc::clone(&tell), Arc::clone(&told));
    let closes = waker(move || {
        let watcher: Option<Watcher> = watcher_there.lock().unwrap().take();
        *result.lock().unwrap() = watcher.map(|watcher| watcher.close(Watcher::CLOSE));
    });
    let handle = watcher.handle();
    *tell.lock().unwrap() = Some(watcher);
    assert!(poll(&mut other, Waker::noop()).is_pending());
    assert!(poll(&mut wait, &closes).is_pending());
    assert!(eventually(LIMIT, || told.lock().unwrap().is_some()), "it waits for itself");
    assert!(eventually(LIMIT, || code(poll(&mut other, Waker::noop())) == Some(ErrorCode::WatcherClosed)));
    assert!(matches!(poll(&mut wait, Waker::noop()), Poll::Ready(Ok(_))));
    assert_eq!(handle.pending(), 0);
}

/// A driver call that does not return is named by `close` in time, and holds up the end of nobody else's wait.
#[test]
fn a_close_during_a_stuck_query_gives_its_error_in_time_and_ends_all_other_waits() {
    let faults = Faults { slow_query: Chance::always(3_000_000_000), ..Faults::none() };
    for shards in [1, 2] {
        let stage = Stage::new(SimConfig { faults, ..SimConfig::default() }).unwrap();
        let healthy = Stage::new(SimConfig::default()).unwrap();
        // No helper: nobody can take over before it closes.
        for helpers in [0, 4] {
            let config = WatcherConfig::default().shards(shards).unwrap().helpers_max(helpers).unwrap();
            let watcher = Watcher::with(config).unwrap();
            let point = Point::new("stuck");
            let calls = Calls::counted();
            let port = HookPort::new(stage.work(ms(1)).unwrap(), &calls);
            let mut stuck = watcher.wait(port, &plan("poll"), &point);
            assert!(poll(&mut stuck, Waker::noop()).is_pending());
            assert!(eventually(LIMIT, || calls.count(Call::Query) == 1));
            let mut others: Vec<_> = (0..8)
                .map(|_| watcher.wait(healthy.work(Nanos::MAX).unwrap(), &plan(FLAG), &point))
                .collect();
            for wait in &mut others {
                assert!(poll(wait, Waker::noop()).is_pending());
            }
            let start = Wall::now();
            let error = watcher.close(ms(100)).unwrap_err();
            let took = start.elapsed();
            assert_eq!(error.code(), ErrorCode::Backend);
            assert!(error.to_string().contains("1 thread(s)"), "{error}");
            assert!(took < Duration::from_secs(2), "{took:?}");
            for wait in &mut others {
                assert_eq!(
                    code(poll(wait, Waker::noop())),
                    Some(ErrorCode::WatcherClosed),
                    "{helpers} helpers"
                );
            }
            assert_eq!(code(poll(&mut stuck, Waker::noop())), Some(ErrorCode::WatcherClosed));
            assert_eq!(calls.count(Call::Drop), 0, "the call has it");
            assert!(
                eventually(LIMIT, || calls.count(Call::Drop) == 1),
                "the call lets it go when it returns"
            );
        }
    }
}

#[test]
fn a_waker_that_panics_is_counted_and_others_go_on() {
    let stage = Stage::new(SimConfig::default()).unwrap();
    let watcher = Watcher::new().unwrap();
    let point = Point::new("panics");
    let panics = waker(|| std::panic::resume_unwind(Box::new("a waker's own")));
    for text in ["poll", "block", FLAG, "flag:park_us=50,backstop_us=1000+trust"] {
        let before = watcher.stats().panics;
        let mut wait = watcher.wait(stage.work(ms(30)).unwrap(), &plan(text), &point);
        assert!(poll(&mut wait, &panics).is_pending(), "{text}");
        let others: Vec<_> = (0..4)
            .map(|_| watcher.wait(stage.work(ms(31)).unwrap(), &plan(text), &point))
            .map(|wait| std::thread::spawn(move || block_on(wait)))
            .collect();
        for other in others {
            within(LIMIT, move || other.join().unwrap()).unwrap();
        }
        assert!(eventually(LIMIT, || watcher.stats().panics == before + 1), "{text}");
        assert!(matches!(poll(&mut wait, &panics), Poll::Ready(Ok(_))), "{text}: it had ended all the same");
    }
    watcher.close(Watcher::CLOSE).unwrap();
}

#[test]
fn a_query_that_panics_is_an_error_of_its_wait_alone() {
    let stage = Stage::new(SimConfig::default()).unwrap();
    let healthy = Stage::new(SimConfig::default()).unwrap();
    let watcher = Watcher::new().unwrap();
    let point = Point::new("panics");
    for (text, in_call) in [("poll", Call::Query), (FLAG, Call::Query), ("block", Call::Block)] {
        let calls = Calls::new(move |call| {
            if call == in_call {
                std::panic::resume_unwind(Box::new("the driver's own"));
            }
        });
        let port = HookPort::new(stage.work(ms(1)).unwrap(), &calls);
        let wait = watcher.wait(port, &plan(text), &point);
        let other = watcher.wait(healthy.work(ms(2)).unwrap(), &plan(text), &point);
        let error = within(LIMIT, || block_on(wait)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Backend, "{text}");
        assert!(error.to_string().contains("the driver's own"), "{text}: {error}");
        within(LIMIT, || block_on(other)).unwrap();
        assert!(eventually(LIMIT, || calls.count(Call::Drop) == 1), "{text}");
    }
    watcher.close(Watcher::CLOSE).unwrap();
}

/// Also for those that end in the same moment, and so would be woken by the same thread right after it.
#[test]
fn a_waker_that_blocks_delays_no_other_beyond_the_takeover() {
    const BLOCKS: Duration = Duration::from_millis(100);
    let stage = Stage::new(SimConfig::default()).unwrap();
    measured(|_| {
        let watcher = Watcher::new().unwrap();
        let point = Point::new("blocks");
        let began = Arc::new(OnceLock::new());
        let blocks = {
            let began = Arc::clone(&began);
            waker(move || {
                began.set(Wall::now()).unwrap();
                std::thread::sleep(BLOCKS);
            })
        };
        // One word, looked at once, after its last store: one turn finds all of them reached.
        let stream = stage.device.stream().unwrap();
        stream.launch(ms(40)).unwrap();
        let trust = plan("flag:park_us=50,backstop_us=1000+trust");
        let mut blocking = watcher.wait(stream.point(), &trust, &point).late_us(6_000);
        assert!(poll(&mut blocking, &blocks).is_pending());
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut others: Vec<WatcherWait<RealPort>> =
            (0..20).map(|_| watcher.wait(stream.point(), &trust, &point).late_us(6_000)).collect();
        for wait in &mut others {
            let woken = Arc::clone(&woken);
            let waker = waker(move || woken.lock().unwrap().push(Wall::now()));
            assert!(poll(wait, &waker).is_pending());
        }
        // And some that end while it blocks.
        assert!(eventually(LIMIT, || began.get().is_some()));
        let mut later: Vec<Duration> = Vec::new();
        for _ in 0..10 {
            let port = stage.work(ms(4)).unwrap();
            let witness = port.witness();
            within(LIMIT, {
                let wait = watcher.wait(port, &plan(FLAG), &point);
                || block_on(wait)
            })
            .unwrap();
            let late = stage.clock.now().since(witness.truth().ended_at.unwrap());
            later.push(Duration::from_nanos(late.as_nanos()));
        }
        assert!(eventually(LIMIT, || woken.lock().unwrap().len() == 20));
        let woken = woken.lock().unwrap().clone();
        let spread = woken.iter().max().unwrap().saturating_duration_since(*began.get().unwrap());
        let takeovers = watcher.stats().takeovers;
        let bound = Duration::from_nanos(AWAY_NS_MAX) + Duration::from_millis(20);
        let worst = later.into_iter().max().unwrap();
        watcher.close(Watcher::CLOSE).unwrap();
        if spread < bound && worst < bound && takeovers > 0 {
            Ok(())
        } else {
            Err(format!("in one turn {spread:?}, later {worst:?}, {takeovers} takeovers"))
        }
    });
}

/// The overseer once slept for good when it saw that the watcher closes before all shards had.
#[test]
fn a_watcher_that_is_closed_as_soon_as_it_is_made_ends_every_time() {
    for round in 0..100 {
        let config = WatcherConfig::default().shards(1 + round % 4).unwrap();
        let watcher = Watcher::with(config).unwrap();
        watcher.close(Nanos::from_millis(20_000)).unwrap();
    }
}
