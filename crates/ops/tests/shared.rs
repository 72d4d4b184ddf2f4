//! Shared operations run once, whoever comes; operations that are executed within another's submission are errors.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::Poll;
use std::time::Duration;

use common::{Busy, Rig, Woken, poll_once};
use wakeline_core::{Clock, Error, ErrorCode, Nanos};
use wakeline_ops::port::Priority;
use wakeline_ops::{Boxed, DeviceOp, Shared, Submission, device_op, value, zip};
use wakeline_sim::SimDevice;
use wakeline_tensor::Tensor;

type Bytes = Tensor<u8, SimDevice>;

/// A clone that its own closure finds.
type Slot = Arc<Mutex<Option<Boxed<SimDevice, Arc<u8>>>>>;

const MS: Nanos = Nanos::from_millis(1);

/// Longer than the watcher lets pass by itself.
const LONG: Nanos = Nanos::from_millis(7);

/// Counts its runs.
fn counted(runs: &Arc<AtomicUsize>) -> impl DeviceOp<Device = SimDevice, Pending = Bytes, Output = Bytes> {
    let runs = Arc::clone(runs);
    Busy(LONG, ()).then(|()| Tensor::full(4, 7)).inspect(move |_: &Bytes| {
        runs.fetch_add(1, Ordering::Relaxed);
    })
}

#[test]
fn it_runs_once_and_clones_come_behind_it_in_whichever_streams() {
    let rig = Rig::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let shared = counted(&runs).shared();
    let read = |shared: &Shared<_>| shared.clone().then(|tensor: Arc<Bytes>| tensor.to_host());
    let mut first = read(&shared).on(&rig.runtime);
    assert!(poll_once(&mut first).is_pending());
    let mut others: Vec<_> = (0..5).map(|_| read(&shared).on(&rig.runtime)).collect();
    for other in &mut others {
        assert!(poll_once(other).is_pending());
    }
    // Not behind its memory alone, but behind all of its work.
    let (start, after) = (rig.watcher.now(), shared.clone().then(|_| Busy(Nanos::ZERO, ())));
    let own = rig.runtime.with_policy(&wakeline_ops::SingleStream).unwrap();
    rig.run(after.on(&own)).unwrap();
    assert!(rig.watcher.now().since(start) >= LONG);
    for read in others.into_iter().chain([first]) {
        assert_eq!(rig.run(read).unwrap(), [7; 4]);
    }
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    let both = zip!(read(&shared), read(&shared));
    assert_eq!(rig.run(both.on(&rig.runtime)).unwrap(), (vec![7; 4], vec![7; 4]));
    drop(shared);
    rig.assert_clean();
}

#[test]
fn what_nobody_runs_has_nothing_happen_and_what_nobody_takes_is_given_back() {
    let rig = Rig::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let shared = counted(&runs).shared();
    drop(shared.clone());
    drop(shared);
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    let shared = counted(&runs).shared();
    let mut future = shared.clone().on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending());
    drop((future, shared));
    rig.assert_clean();
}

/// Fails, or panics.
struct Fails(bool);

impl DeviceOp for Fails {
    type Device = SimDevice;
    type Pending = u8;
    type Output = u8;

    fn execute(self, submission: &mut Submission<SimDevice>) -> Result<u8, Error> {
        submission.stream().raw().launch(MS)?;
        assert!(self.0, "on purpose");
        Err(Error::new(ErrorCode::Backend, [&"test", &"execute", &"once"]))
    }

    fn finish(number: u8) -> Result<u8, Error> {
        Ok(number)
    }
}

device_op!([] Fails);

#[test]
fn a_failure_and_a_panic_are_everybodys() {
    let rig = Rig::new();
    let shared = Fails(true).shared();
    for _ in 0..3 {
        assert_eq!(rig.run(shared.clone().on(&rig.runtime)).unwrap_err().args()[2], "once");
    }
    let shared = Fails(false).shared();
    let first = catch_unwind(AssertUnwindSafe(|| poll_once(&mut shared.clone().on(&rig.runtime))));
    assert!(first.is_err());
    for _ in 0..3 {
        let error = rig.run(shared.clone().on(&rig.runtime)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::SharedPanicked);
    }
    rig.assert_clean();
}

#[test]
fn within_its_own_execution_it_is_an_error() {
    let rig = Rig::new();
    let slot = Slot::default();
    let own = Arc::clone(&slot);
    let shared = value(1_u8).then(move |_| {
        let within = own.lock().unwrap().take().unwrap();
        within.map(|number| *number)
    });
    let shared = shared.shared();
    *slot.lock().unwrap() = Some(shared.clone().boxed());
    for _ in 0..2 {
        let error = rig.run(shared.clone().on(&rig.runtime)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::SharedReentered);
    }
    rig.assert_clean();
}

#[test]
fn a_poll_pends_while_another_thread_submits_it_and_is_woken() {
    let rig = Rig::new();
    let (begun, goes_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (tells, waits) = (Arc::clone(&begun), Arc::clone(&goes_on));
    let shared = Tensor::full(4, 5_u8).inspect(move |_: &Bytes| {
        tells.wait();
        waits.wait();
    });
    let shared = shared.shared();
    std::thread::scope(|scope| {
        let producer = shared.clone();
        let thread = scope.spawn(|| {
            let mut future = producer.on(&rig.runtime);
            assert!(poll_once(&mut future).is_pending());
        });
        begun.wait();
        let flag = Arc::new(Woken::default());
        let waker = std::task::Waker::from(Arc::clone(&flag));
        let mut context = std::task::Context::from_waker(&waker);
        let read = zip!(shared.clone().then(|tensor: Arc<Bytes>| tensor.to_host()), 1_u8);
        let mut read = read.on(&rig.runtime);
        let calls = rig.device.counts().calls;
        for _ in 0..100 {
            assert!(std::pin::Pin::new(&mut read).poll(&mut context).is_pending());
        }
        assert_eq!((rig.device.counts().calls, flag.0.load(Ordering::Relaxed)), (calls, 0));
        goes_on.wait();
        thread.join().unwrap();
        assert_eq!(flag.0.load(Ordering::Relaxed), 1);
        assert_eq!(rig.run(read).unwrap(), (vec![5; 4], 1));
    });
    drop(shared);
    rig.assert_clean();
}

#[test]
fn a_closure_that_waits_for_a_thread_that_needs_the_same_shared_operation_is_an_error_and_no_deadlock() {
    let rig = Rig::new();
    let runtime = rig.runtime.clone();
    let slot = Slot::default();
    let own = Arc::clone(&slot);
    let shared = value(1_u8).map(move |number| {
        let other = own.lock().unwrap().take().unwrap();
        let thread = std::thread::spawn({
            let runtime = runtime.clone();
            move || other.on(&runtime).sync()
        });
        assert_eq!(thread.join().unwrap().unwrap_err().code(), ErrorCode::SharedBusy);
        number
    });
    let shared = shared.shared();
    *slot.lock().unwrap() = Some(shared.clone().boxed());
    assert_eq!(*rig.run(shared.on(&rig.runtime)).unwrap(), 1);
    rig.assert_clean();
}

#[test]
fn many_threads_that_come_at_once_run_it_once() {
    let rig = Rig::new();
    for _ in 0..50 {
        let runs = Arc::new(AtomicUsize::new(0));
        let shared = counted(&runs).shared();
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (shared, runtime, start) = (shared.clone(), &rig.runtime, &start);
                scope.spawn(move || {
                    let mut future = shared.then(|tensor: Arc<Bytes>| tensor.to_host()).on(runtime);
                    start.wait();
                    while poll_once(&mut future).is_pending() {
                        // It has been submitted, or another thread is at it.
                        std::thread::sleep(Duration::from_micros(20));
                        if format!("{future:?}").contains("in flight") {
                            break;
                        }
                    }
                });
            }
        });
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }
    rig.assert_clean();
}

#[test]
fn of_another_runtime_it_is_an_error() {
    let (rig, other) = (Rig::new(), Rig::new());
    let shared = Tensor::full(4, 5_u8).shared();
    drop(rig.run(shared.clone().on(&rig.runtime)).unwrap());
    let error = other.run(shared.clone().on(&other.runtime)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ForeignMemory);
    drop(shared);
    rig.assert_clean();
    other.assert_clean();
}

#[test]
fn no_closure_executes_another_operation_in_any_way() {
    let rig = Rig::new();
    let stream = rig.runtime.stream(Priority::Normal).unwrap();
    let runtime = rig.runtime.clone();
    let codes = move |_: u8| {
        let mut pending = value(1).on(&runtime);
        let Poll::Ready(polled) = poll_once(&mut pending) else { return vec![] };
        // SAFETY: it gives a number.
        #[allow(unsafe_code)]
        let asynchronous = unsafe { value(1).async_on(&stream) };
        let all = [
            value(1).on(&runtime).sync(),
            value(1).sync_on(&stream),
            asynchronous,
            polled,
            runtime.enter(|| value::<SimDevice, _>(1).sync()),
        ];
        all.into_iter().map(|result| result.unwrap_err().code()).collect::<Vec<_>>()
    };
    let expected = vec![ErrorCode::NestedExecution; 5];
    let begun = rig.runtime.counts().begun;
    assert_eq!(rig.run(value(1).map(codes.clone()).on(&rig.runtime)).unwrap(), expected);
    let then = codes.clone();
    assert_eq!(rig.run(value(1).then(move |n| value(then(n))).on(&rig.runtime)).unwrap(), expected);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (see, inspect) = (Arc::clone(&seen), codes.clone());
    let inspected = value(1).inspect(move |n| *see.lock().unwrap() = inspect(*n));
    assert_eq!(inspected.on(&rig.runtime).sync().unwrap(), 1);
    assert_eq!(*seen.lock().unwrap(), expected);
    assert_eq!(rig.runtime.counts().begun, begun + 3, "none of those within has begun");
    // Where it is released they run; and afterwards the thread executes again.
    let runtime = rig.runtime.clone();
    // SAFETY: it uses nothing of what is around it.
    #[allow(unsafe_code)]
    let unchecked = unsafe { value(1).then_unchecked(move |n| value(value(n + 1).on(&runtime).sync())) };
    assert_eq!(rig.run(unchecked.on(&rig.runtime)).unwrap().unwrap(), 2);
    let after = rig.run(value(1).map_host(codes).on(&rig.runtime)).unwrap();
    rig.settle();
    assert_eq!(after, [], "on the host, when the device is done, they may");
}

#[test]
fn a_thread_that_a_closure_hands_a_tensor_to_is_ordered_behind_what_was_enqueued() {
    let rig = Rig::new();
    let runtime = rig.runtime.clone();
    let op = Busy(MS, ()).then(|()| Tensor::full(4, 1_u8)).then(move |tensor: Bytes| {
        let tensor = Arc::new(tensor);
        let other = Arc::clone(&tensor);
        // It is submitted while this one is, and read by another stream.
        let submitted = std::thread::spawn(move || {
            let mut read = other.to_host().on(&runtime);
            assert!(poll_once(&mut read).is_pending());
            read
        });
        value((submitted.join().unwrap(), tensor))
    });
    let (read, tensor) = rig.run(op.on(&rig.runtime)).unwrap();
    assert_eq!(rig.run(read).unwrap(), [1; 4]);
    drop(tensor);
    rig.assert_clean();
}
