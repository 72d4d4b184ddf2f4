//! How the end of work becomes known: in the poll that submits, in later polls, by who tends; by a word, a callback, questions.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use common::{Busy, Woken, poll_once};
use wakeline_core::{Clock, ErrorCode, Instant, Nanos};
use wakeline_ops::port::Priority;
use wakeline_ops::{
    Completion, DeviceFuture, DeviceOp, FEW_FLIGHTS_MAX, Runtime, RuntimeConfig, SPIN_US_DEFAULT,
    SingleStream, StreamPoolRoundRobin,
};
use wakeline_sim::{Faults, MemoryUse, SimConfig, SimDevice, VirtualTime, VirtualWatcher};
use wakeline_tensor::Tensor;

const US: Nanos = Nanos::from_micros(1);

fn us(us: u64) -> Nanos {
    Nanos::from_micros(us)
}

struct Rig {
    device: SimDevice,
    watcher: VirtualWatcher,
    runtime: Runtime<SimDevice>,
}

fn rig_of(device: &SimConfig, config: RuntimeConfig) -> Rig {
    let device = SimDevice::new(VirtualTime::new(), *device).unwrap();
    let watcher = VirtualWatcher::new(&device);
    watcher.let_tasks_watch(true);
    let policy = StreamPoolRoundRobin::new(3).unwrap();
    let runtime = Runtime::with_config(device.clone(), &policy, watcher.clone(), config).unwrap();
    Rig { device, watcher, runtime }
}

fn rig() -> Rig {
    rig_of(&common::CONFIG, RuntimeConfig::default())
}

impl Rig {
    fn run<F: Future>(&self, future: F) -> F::Output {
        self.watcher.run(future).unwrap()
    }

    fn busy(&self, length: Nanos) -> DeviceFuture<Busy<()>> {
        Busy(length, ()).on(&self.runtime)
    }

    /// Runs it often enough for its length to be known.
    fn teach(&self, length: Nanos) {
        for _ in 0..8 {
            self.run(self.busy(length)).unwrap();
        }
    }

    fn assert_clean(&self) {
        while self.watcher.turn() {}
        assert_eq!((self.device.misuses(), self.watcher.pending()), (vec![], 0));
        assert_eq!((self.runtime.counts().in_flight(), self.runtime.counts().leaked), (0, 0));
        assert_eq!(self.device.memory_use(), MemoryUse::default());
    }
}

fn poll<F: Future + Unpin>(future: &mut F, woken: &Arc<Woken>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::clone(woken));
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

#[test]
fn short_work_that_is_known_ends_in_the_poll_that_submits_it_and_nobody_tends_it() {
    let rig = rig();
    rig.teach(us(15));
    let start = rig.watcher.now();
    let owner = Arc::new(());
    let mut future = Busy(us(15), Arc::clone(&owner)).on(&rig.runtime);
    // Another type than the one that was taught: it is not known.
    assert!(poll_once(&mut future).is_pending());
    assert_eq!(rig.watcher.pending(), 1);
    rig.run(future).unwrap();
    let mut known = Busy(us(15), Arc::clone(&owner)).on(&rig.runtime);
    assert!(poll_once(&mut known).is_ready(), "in its first poll");
    assert_eq!((rig.watcher.pending(), Arc::strong_count(&owner)), (0, 1));
    assert_eq!(rig.watcher.now(), start + us(30));
    rig.assert_clean();
}

#[test]
fn a_task_watches_in_slices_and_wakes_itself_in_between() {
    let rig = rig();
    rig.teach(us(50));
    let woken = Arc::new(Woken::default());
    let start = rig.watcher.now();
    let mut future = rig.busy(us(50));
    assert!(poll(&mut future, &woken).is_pending());
    assert_eq!((rig.watcher.now(), woken.0.load(Ordering::Relaxed)), (start + us(20), 1));
    assert_eq!(rig.runtime.counts().in_flight(), 1);
    assert!(rig.watcher.pending() > 0, "whatever becomes of the future, somebody tends it");
    assert!(poll(&mut future, &woken).is_pending());
    assert_eq!((rig.watcher.now(), woken.0.load(Ordering::Relaxed)), (start + us(40), 2));
    assert!(poll(&mut future, &woken).is_ready());
    assert_eq!(rig.watcher.now(), start + us(50));
    rig.assert_clean();
}

#[test]
fn case_20_a_future_that_is_forgotten_or_dropped_between_two_slices_is_seen_to_its_end() {
    for forgotten in [true, false] {
        let rig = rig();
        let owner = Arc::new(());
        for _ in 0..8 {
            rig.run(Busy(us(60), Arc::clone(&owner)).on(&rig.runtime)).unwrap();
        }
        let mut future = Busy(us(60), Arc::clone(&owner)).on(&rig.runtime);
        assert!(poll_once(&mut future).is_pending());
        if forgotten {
            std::mem::forget(future);
        } else {
            drop(future);
        }
        assert_eq!(Arc::strong_count(&owner), 2, "the device is at work");
        rig.assert_clean();
        assert_eq!(Arc::strong_count(&owner), 1);
        // And the thread is free to watch again: when the time of a watch is over that was forgotten, at the latest.
        if forgotten {
            rig.device.time().clock().advance(us(100));
        }
        let start = rig.watcher.now();
        let mut other = Busy(us(60), Arc::clone(&owner)).on(&rig.runtime);
        assert!(poll_once(&mut other).is_pending());
        assert_eq!(rig.watcher.now(), start + us(20));
    }
}

#[test]
fn one_task_of_a_thread_watches_and_none_where_many_are_in_flight() {
    let rig = rig();
    rig.teach(us(50));
    let start = rig.watcher.now();
    let mut first = rig.busy(us(50));
    assert!(poll_once(&mut first).is_pending());
    assert_eq!(rig.watcher.now(), start + us(20));
    let mut second = rig.busy(us(50));
    assert!(poll_once(&mut second).is_pending());
    assert_eq!(rig.watcher.now(), start + us(20), "the first watches");
    let mut all: Vec<_> = (0..FEW_FLIGHTS_MAX).map(|_| rig.busy(us(50))).collect();
    drop(first);
    for future in &mut all {
        assert!(poll_once(future).is_pending());
    }
    let now = rig.watcher.now();
    let mut late = rig.busy(us(50));
    assert!(poll_once(&mut late).is_pending());
    assert_eq!(rig.watcher.now(), now, "there are many");
    drop((all, second, late));
    rig.assert_clean();
}

#[test]
fn work_that_takes_longer_than_expected_is_left_to_who_tends() {
    let rig = rig();
    rig.teach(us(30));
    let woken = Arc::new(Woken::default());
    let start = rig.watcher.now();
    let mut future = rig.busy(us(5_000));
    let mut polls = 0;
    while woken.0.load(Ordering::Relaxed) == polls {
        polls += 1;
        assert!(poll(&mut future, &woken).is_pending());
    }
    let watched = rig.watcher.now().since(start);
    assert!((us(60)..=us(SPIN_US_DEFAULT.into())).contains(&watched), "{watched}");
    let calls = rig.device.counts().calls;
    assert!(poll(&mut future, &woken).is_pending());
    assert_eq!(
        (rig.device.counts().calls, rig.watcher.now().since(start)),
        (calls, watched),
        "a poll does nothing"
    );
    rig.run(future).unwrap();
    assert_eq!(rig.watcher.now(), start + us(5_000));
    rig.assert_clean();
}

#[test]
fn long_work_is_slept_through_and_its_task_woken_before_the_end_to_watch() {
    let rig = rig();
    rig.teach(us(3_000));
    let woken = Arc::new(Woken::default());
    let start = rig.watcher.now();
    let mut future = rig.busy(us(3_000));
    assert!(poll(&mut future, &woken).is_pending());
    assert_eq!(rig.watcher.now(), start, "it is not watched from the start");
    while woken.0.load(Ordering::Relaxed) == 0 {
        assert!(rig.watcher.turn());
    }
    let early = (start + us(3_000)).since(rig.watcher.now());
    assert!((us(65)..us(115)).contains(&early), "{early}: the margin, some more, and what a wake-up takes");
    let mut polls = 0;
    while poll(&mut future, &woken).is_pending() {
        polls += 1;
    }
    assert!((1..7).contains(&polls), "{polls}");
    assert_eq!(rig.watcher.now(), start + us(3_000), "seen at its end");
    rig.assert_clean();
}

#[test]
fn a_task_that_was_woken_early_and_does_not_watch_is_told_as_any() {
    let rig = rig();
    rig.teach(us(3_000));
    let woken = Arc::new(Woken::default());
    let mut future = rig.busy(us(3_000));
    assert!(poll(&mut future, &woken).is_pending());
    while woken.0.load(Ordering::Relaxed) == 0 {
        assert!(rig.watcher.turn());
    }
    // It is held up; its waker was taken, so nobody can wake it, but it was woken.
    while rig.watcher.turn() {}
    assert!(poll(&mut future, &woken).is_ready());
    rig.assert_clean();
}

#[test]
fn numbers_tell_operations_of_one_type_apart() {
    let rig = rig();
    for _ in 0..8 {
        for (key, length) in [(1, 15), (2, 4_000)] {
            rig.run(rig.busy(us(length)).keyed(key)).unwrap();
        }
    }
    assert!(poll_once(&mut rig.busy(us(15)).keyed(1)).is_ready());
    let start = rig.watcher.now();
    let mut long = rig.busy(us(4_000)).keyed(2);
    assert!(poll_once(&mut long).is_pending());
    assert_eq!(rig.watcher.now(), start);
    drop(long);
    rig.assert_clean();
}

#[test]
fn without_a_budget_nothing_is_watched_from_the_start() {
    let rig = rig_of(&common::CONFIG, RuntimeConfig::default().spin_us(0).unwrap());
    rig.teach(us(15));
    let start = rig.watcher.now();
    let mut future = rig.busy(us(15));
    assert!(poll_once(&mut future).is_pending());
    assert_eq!(rig.watcher.now(), start);
    rig.run(future).unwrap();
    rig.assert_clean();
}

#[test]
fn who_may_be_told_late_does_not_watch() {
    let rig = rig();
    rig.teach(us(15));
    let start = rig.watcher.now();
    let mut future = rig.busy(us(15)).late_us(500);
    assert!(poll_once(&mut future).is_pending());
    assert_eq!(rig.watcher.now(), start);
    rig.run(future).unwrap();
    rig.assert_clean();
}

#[test]
fn a_callback_tells_of_the_end_where_that_is_chosen_and_where_words_are_not_supported() {
    let unsupported = Faults { unsupported_ppm: 1_000_000, ..Faults::none() };
    for (faults, completion) in [
        (Faults::none(), Completion::Callback),
        (unsupported, Completion::Word),
        (unsupported, Completion::Callback),
    ] {
        let config = SimConfig { faults, ..common::CONFIG };
        let rig = rig_of(&config, RuntimeConfig::default().completion(completion));
        for _ in 0..3 {
            let start = rig.watcher.now();
            rig.run(rig.busy(us(700))).unwrap();
            assert_eq!(rig.watcher.now(), start + us(700), "at once");
        }
        let counts = rig.device.counts();
        assert_eq!((counts.queries, counts.landed), (0, 0), "{completion:?}");
        let tensor = rig.run(Tensor::full(8, 3_u8).on(&rig.runtime)).unwrap();
        assert_eq!(rig.run(tensor.to_host().on(&rig.runtime)).unwrap(), [3; 8]);
        drop(tensor);
        rig.assert_clean();
    }
}

#[test]
fn case_63_a_callback_only_stores_and_owners_are_let_go_by_others() {
    /// Says on which thread it was dropped.
    struct Dropped(Arc<std::sync::Mutex<Option<std::thread::ThreadId>>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = Some(std::thread::current().id());
        }
    }
    let rig = rig_of(&common::CONFIG, RuntimeConfig::default().completion(Completion::Callback));
    let dropped = Arc::default();
    let mut future = Busy(us(100), Dropped(Arc::clone(&dropped))).on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending());
    drop(future);
    // Another thread has the time pass at which the callback runs, and nothing else.
    let device = rig.device.clone();
    let end = rig.watcher.now() + us(100);
    std::thread::spawn(move || {
        device.time().clock().advance_to(end);
        wakeline_core::Turn::turn(&device, end);
    })
    .join()
    .unwrap();
    assert_eq!(*dropped.lock().unwrap(), None);
    rig.assert_clean();
    assert_eq!(*dropped.lock().unwrap(), Some(std::thread::current().id()));
}

#[test]
fn questions_tell_of_the_end_where_that_is_chosen() {
    let config = RuntimeConfig::default().completion(Completion::Poll);
    let rig = rig_of(&SimConfig { query_ns: 100, ..common::CONFIG }, config);
    let start = rig.watcher.now();
    rig.run(rig.busy(us(700))).unwrap();
    assert!(rig.watcher.now().since(start) < us(720));
    assert!(rig.device.counts().queries > 0);
    rig.assert_clean();
}

#[test]
fn a_fault_while_a_task_watches_is_found_by_who_tends() {
    let rig = rig();
    rig.teach(us(60));
    let mut future = rig.busy(us(60));
    assert!(poll_once(&mut future).is_pending());
    rig.device.inject_fault();
    let cause = rig.device.health().unwrap().to_string();
    assert_eq!(rig.run(future).unwrap_err().to_string(), cause);
    assert_eq!(rig.runtime.counts().leaked, 1);
}

#[test]
fn a_deadline_ends_the_awaiting_and_not_the_work() {
    let rig = rig();
    let owner = Arc::new(());
    let start = rig.watcher.now();
    let late = Busy(us(5_000), Arc::clone(&owner)).on(&rig.runtime).timeout(us(300));
    let error = rig.run(late).unwrap_err();
    assert_eq!((error.code(), rig.watcher.now()), (ErrorCode::Timeout, start + us(300)));
    assert_eq!((Arc::strong_count(&owner), rig.runtime.counts().in_flight()), (2, 1));
    let at = rig.watcher.now() + us(200);
    let error = rig.run(Busy(us(5_000), ()).on(&rig.runtime).deadline(at)).unwrap_err();
    assert_eq!((error.code(), rig.watcher.now()), (ErrorCode::Timeout, at));
    // In time.
    rig.run(rig.busy(us(100)).timeout(us(10_000))).unwrap();
    rig.assert_clean();
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn what_waits_for_room_until_its_deadline_is_never_submitted() {
    let rig = rig();
    let single = rig.runtime.with_policy(&SingleStream).unwrap();
    let mut all: Vec<_> = (0..wakeline_ops::IN_FLIGHT_MAX).map(|_| Busy(us(100), ()).on(&single)).collect();
    for future in &mut all {
        assert!(poll_once(future).is_pending());
    }
    let launches = rig.device.counts().launches;
    let token = rig.runtime.cancel_token();
    let mut cancelled = Busy(us(1), ()).on(&single).cancelled_by(&token);
    assert!(poll_once(&mut cancelled).is_pending());
    let start = rig.watcher.now();
    let late = Busy(us(1), ()).on(&single).timeout(us(50));
    assert_eq!(rig.run(late).unwrap_err().code(), ErrorCode::Timeout);
    assert_eq!(rig.watcher.now(), start + us(50));
    token.cancel();
    assert_eq!(rig.run(cancelled).unwrap_err().code(), ErrorCode::Cancelled);
    assert_eq!(rig.device.counts().launches, launches, "nothing more was submitted");
    drop(all);
    rig.assert_clean();
}

#[test]
fn a_token_ends_what_awaits_at_once_where_it_rings_and_soon_where_it_does_not() {
    let rig = rig();
    let owner = Arc::new(());
    for rings in [true, false] {
        let token = if rings { rig.runtime.cancel_token() } else { wakeline_core::CancelToken::new() };
        let woken = Arc::new(Woken::default());
        let mut future = Busy(us(50_000), Arc::clone(&owner)).on(&rig.runtime).cancelled_by(&token);
        assert!(poll(&mut future, &woken).is_pending());
        let start = rig.watcher.now();
        token.cancel();
        assert_eq!(woken.0.load(Ordering::Relaxed), usize::from(rings));
        assert_eq!(rig.run(future).unwrap_err().code(), ErrorCode::Cancelled);
        assert_eq!(rig.watcher.now(), start, "looked at in the next poll");
    }
    let token = wakeline_core::CancelToken::new();
    let woken = Arc::new(Woken::default());
    let mut future = rig.busy(us(50_000)).cancelled_by(&token);
    assert!(poll(&mut future, &woken).is_pending());
    token.cancel();
    let start = rig.watcher.now();
    while woken.0.load(Ordering::Relaxed) == 0 {
        assert!(rig.watcher.turn());
    }
    assert!(rig.watcher.now().since(start).as_nanos() <= wakeline_core::CANCEL_NS_MAX);
    assert!(poll(&mut future, &woken).is_ready());
    let never = rig.runtime.cancel_token();
    never.cancel();
    let launches = rig.device.counts().launches;
    assert_eq!(rig.run(rig.busy(US).cancelled_by(&never)).unwrap_err().code(), ErrorCode::Cancelled);
    assert_eq!(rig.device.counts().launches, launches, "it was cancelled before");
    rig.assert_clean();
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn thousands_of_time_outs_that_do_not_come_cost_few_alarms() {
    let rig = rig();
    for _ in 0..5_000 {
        rig.run(rig.busy(us(15)).timeout(us(20_000))).unwrap();
    }
    assert!(rig.watcher.now() >= Instant::ORIGIN + us(75_000));
    assert!(rig.watcher.pending() <= 2, "{} alarms", rig.watcher.pending());
    rig.assert_clean();
}

#[test]
fn a_read_far_behind_a_write_still_comes_after_it() {
    let rig = rig();
    let streams =
        [rig.runtime.stream(Priority::Normal).unwrap(), rig.runtime.stream(Priority::Normal).unwrap()];
    let first: Tensor<u8, SimDevice> = Tensor::full(8, 1).sync_on(&streams[0]).unwrap();
    // The events of the first stream are recorded again and again.
    for round in 0..200_u8 {
        let other: Tensor<u8, SimDevice> = Tensor::full(8, round).sync_on(&streams[0]).unwrap();
        if round % 67 == 0 {
            assert_eq!(first.to_host().sync_on(&streams[1]).unwrap(), [1; 8]);
            assert_eq!(other.to_host().sync_on(&streams[1]).unwrap(), [round; 8]);
        }
    }
    drop((first, streams));
    rig.assert_clean();
}
