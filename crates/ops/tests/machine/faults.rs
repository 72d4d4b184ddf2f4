//! One device faults: what was placed there fails with its cause, what came behind its work as well, and the others go on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use wakeline_core::{Clock, Error, ErrorCode, Instant, Nanos};
use wakeline_ops::{
    DeviceLoads, DeviceOp, SingleStream, StreamPoolRoundRobin, Submission, TRIES_MAX, Value, value,
    with_context,
};
use wakeline_sim::{Faults, SimConfig, SimDevice};
use wakeline_tensor::Tensor;

use crate::common::{CONFIG, poll_once};
use crate::{Bytes, Machines, busy};

const APART: SimConfig = SimConfig { peer_access: false, ..CONFIG };

/// Runs all of them on one thread.
struct All(Vec<Option<Pin<Box<dyn Future<Output = ()>>>>>);

impl Future for All {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        for future in &mut self.0 {
            if future.as_mut().is_some_and(|future| future.as_mut().poll(context).is_ready()) {
                *future = None;
            }
        }
        if self.0.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// What each device did: how many operations, and when the last of them ended.
type Done = Vec<(u64, Instant)>;

/// Has each device run as many operations one after the other as it can in a time, two tasks at a time; of one a fault comes in the midst of that.
fn done(devices: usize, faults: Option<usize>) -> Done {
    const UNTIL: Instant = Instant::from_nanos(20_000_000);
    let rig = Machines::with(devices, &CONFIG, &StreamPoolRoundRobin::new(2).unwrap());
    if let Some(device) = faults {
        let faults = Faults { fault_at: Some(Instant::from_nanos(7_000_000)), ..Faults::none() };
        rig.devices[device].set_faults(&faults).unwrap();
    }
    let done: Arc<Mutex<Done>> = Arc::new(Mutex::new(vec![(0, Instant::ORIGIN); devices]));
    let tasks = (0..2 * devices).map(|task| {
        let (site, done) = (Arc::clone(rig.machine.site(task / 2).unwrap()), Arc::clone(&done));
        let watcher = rig.watcher.clone();
        let task = async move {
            while watcher.now() < UNTIL && busy(100).on(site.runtime()).await.is_ok() {
                let mut done = done.lock().unwrap();
                done[site.number()] = (done[site.number()].0 + 1, watcher.now());
            }
        };
        Some(Box::pin(task) as Pin<Box<dyn Future<Output = ()>>>)
    });
    rig.run(All(tasks.collect()));
    rig.settle();
    assert_eq!(rig.devices[0].misuses(), []);
    let done = done.lock().unwrap();
    done.clone()
}

#[test]
fn a_fault_of_one_device_changes_nothing_for_the_others() {
    for devices in [2, 8, 64] {
        let (well, faulted) = (done(devices, None), done(devices, Some(1)));
        assert!(well.iter().all(|(count, _)| *count == 400), "{well:?}");
        for (device, (well, faulted)) in well.iter().zip(&faulted).enumerate() {
            if device == 1 {
                assert_eq!(faulted.0, 138, "it did what it could in 7 ms");
            } else {
                assert_eq!(faulted, well, "device {device} of {devices}");
            }
        }
    }
}

fn cause(rig: &Machines, device: usize) -> String {
    rig.devices[device].health().unwrap().to_string()
}

#[test]
fn what_was_placed_on_it_fails_with_its_cause_and_what_comes_later_goes_elsewhere() {
    let rig = Machines::new(4);
    let mut flying: Vec<_> = (0..16).map(|_| rig.machine.run(|_| busy(500))).collect();
    for future in &mut flying {
        assert!(poll_once(future).is_pending());
    }
    rig.devices[2].inject_fault();
    for (number, future) in flying.into_iter().enumerate() {
        let result = rig.run(future);
        match number % 4 {
            2 => assert_eq!(result.unwrap_err().to_string(), cause(&rig, 2)),
            _ => result.unwrap(),
        }
    }
    assert_eq!(rig.placed(), [4; 4]);
    assert!(!rig.machine.site(2).unwrap().is_in());
    for _ in 0..12 {
        rig.run(rig.machine.run(|_| busy(10))).unwrap();
    }
    assert_eq!(rig.placed(), [8, 8, 4, 8], "evenly over those that are in");
    let site = rig.machine.site(2).unwrap();
    assert_eq!(site.put_in().unwrap_err().to_string(), cause(&rig, 2), "it stays out");
    rig.run(rig.machine.drain(Nanos::from_millis(1))).unwrap();
    for device in [0, 1, 3] {
        rig.devices[device].inject_fault();
    }
    for _ in 0..3 {
        rig.run(rig.machine.run(|_| busy(10))).unwrap_err();
    }
    let out = rig.run(rig.machine.run(|_| busy(10))).unwrap_err();
    assert_eq!((out.code(), &*out.args()[0]), (ErrorCode::DevicesOut, "4"));
    assert!(out.args()[1].contains("faulted"), "{out}");
}

#[test]
fn what_came_behind_its_work_on_another_device_fails_with_its_cause_and_that_device_goes_on() {
    for config in [&CONFIG, &APART] {
        for lag in [0, 3_000_000] {
            let rig = Machines::with(2, config, &SingleStream);
            let tensor: Bytes = rig.run(Tensor::full(8, 1).on(rig.on(0))).unwrap();
            let faults = Faults { fault_lag_ns: lag, ..Faults::none() };
            rig.devices[0].set_faults(&faults).unwrap();
            let copies = Arc::new(Mutex::new(None));
            let give = Arc::clone(&copies);
            let mut before = busy(5_000).on(rig.on(0));
            let touched = tensor.dup().map(move |tensor: Bytes| {
                *give.lock().unwrap() = Some(tensor.to_device());
                tensor
            });
            let mut touched = touched.on(rig.on(0));
            assert!(poll_once(&mut before).is_pending() && poll_once(&mut touched).is_pending());
            let copy = copies.lock().unwrap().take().unwrap();
            // Whoever uses what it has written fails as well, with no copy of its own: also through memory that was never on the other device.
            let (reads, dups) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
            let (give_read, give_dup) = (Arc::clone(&reads), Arc::clone(&dups));
            let copy = copy.map(move |copy: Bytes| {
                *give_read.lock().unwrap() = Some(copy.to_host());
                *give_dup.lock().unwrap() = Some(copy.dup().then(|dup| dup.dup()).then(|dup| dup.to_host()));
                copy
            });
            let mut copy = copy.on(rig.on(1));
            assert!(poll_once(&mut copy).is_pending());
            let mut read = reads.lock().unwrap().take().unwrap().on(rig.on(1));
            let mut dup = dups.lock().unwrap().take().unwrap().on(rig.on(1));
            assert!(poll_once(&mut read).is_pending() && poll_once(&mut dup).is_pending());
            rig.devices[0].inject_fault();
            let error = rig.run(copy).unwrap_err().to_string();
            assert_eq!(error, cause(&rig, 0), "lag {lag}");
            assert_eq!(rig.run(read).unwrap_err().to_string(), error);
            assert_eq!(rig.run(dup).unwrap_err().to_string(), error);
            assert!(rig.devices[1].health().is_none());
            assert!(rig.machine.site(1).unwrap().is_in());
            rig.run(busy(10).on(rig.on(1))).unwrap();
            rig.run(before).unwrap_err();
            rig.run(touched).unwrap_err();
            drop(tensor);
            rig.settle();
            assert_eq!(rig.devices[0].misuses(), []);
            assert_eq!(rig.on(1).counts().in_flight(), 0);
            assert_eq!(rig.on(1).counts().leaked, 0);
        }
    }
}

#[test]
fn what_has_arrived_before_it_faults_is_as_good_as_any() {
    for config in [&CONFIG, &APART] {
        let rig = Machines::with(2, config, &SingleStream);
        let tensor: Bytes = rig.run(Tensor::full(8, 1).on(rig.on(0))).unwrap();
        let (awaited, mut dropped) =
            (rig.run(tensor.to_device().on(rig.on(1))).unwrap(), tensor.to_device().on(rig.on(1)));
        assert!(poll_once(&mut dropped).is_pending());
        rig.settle();
        rig.devices[0].inject_fault();
        assert_eq!(rig.run(awaited.to_host().on(rig.on(1))).unwrap(), [1; 8]);
        let dropped = rig.run(dropped).unwrap();
        assert_eq!(rig.run(dropped.to_host().on(rig.on(1))).unwrap(), [1; 8]);
        // From now on nothing leaves it.
        assert_eq!(rig.run(tensor.to_device().on(rig.on(1))).unwrap_err().to_string(), cause(&rig, 0));
        rig.run(busy(10).on(rig.on(1))).unwrap();
        drop((tensor, awaited, dropped));
        rig.settle();
        assert_eq!(rig.devices[0].misuses(), []);
    }
}

#[test]
fn where_the_one_that_it_goes_to_faults_the_one_that_it_comes_from_goes_on() {
    for config in [&CONFIG, &APART] {
        let rig = Machines::with(2, config, &SingleStream);
        let tensor: Bytes = rig.run(Tensor::full(8, 1).on(rig.on(0))).unwrap();
        let twos: Bytes = rig.run(Tensor::full(8, 2).on(rig.on(0))).unwrap();
        let mut before = busy(5_000).on(rig.on(1));
        let mut copy = tensor.to_device().on(rig.on(1));
        assert!(poll_once(&mut before).is_pending() && poll_once(&mut copy).is_pending());
        // Waits for the read on the other device.
        let mut written = twos.copy_to(tensor).on(rig.on(0));
        assert!(poll_once(&mut written).is_pending());
        rig.devices[1].inject_fault();
        assert_eq!(rig.run(copy).unwrap_err().to_string(), cause(&rig, 1));
        let written = rig.run(written).unwrap();
        assert_eq!(rig.run(written.to_host().on(rig.on(0))).unwrap(), [2; 8]);
        rig.run(before).unwrap_err();
        drop((written, twos));
        rig.settle();
        assert_eq!((rig.devices[0].misuses(), rig.on(0).counts().leaked), (vec![], 0));
    }
}

#[test]
fn an_operation_is_made_again_elsewhere_where_its_user_asks_for_that_and_so_often_only() {
    let rig = Machines::new(4);
    let numbers = Arc::new(Mutex::new(Vec::new()));
    let tried = |record: &Arc<Mutex<Vec<usize>>>| {
        let record = Arc::clone(record);
        move |site: &wakeline_ops::Site<SimDevice>| {
            record.lock().unwrap().push(site.number());
            Tensor::full(8, u8::try_from(site.number()).unwrap()).then(|tensor: Bytes| tensor.to_host())
        }
    };
    let mut two = rig.machine.retrying(2, tried(&numbers)).unwrap();
    assert!(poll_once(&mut two).is_pending());
    rig.devices[0].inject_fault();
    let bytes = rig.run(two).unwrap();
    let [first, second] = numbers.lock().unwrap()[..] else { panic!("it was made twice") };
    assert!(first == 0 && second != 0 && bytes.iter().all(|byte| usize::from(*byte) == second));
    // As often as it was allowed to.
    let mut once = rig.machine.retrying(1, tried(&numbers)).unwrap();
    assert!(poll_once(&mut once).is_pending());
    let on = *numbers.lock().unwrap().last().unwrap();
    rig.devices[on].inject_fault();
    assert_eq!(rig.run(once).unwrap_err().to_string(), cause(&rig, on));
    assert_eq!(numbers.lock().unwrap().len(), 3);
    // What is no fault of its device's is told at once.
    let calls = Arc::new(Mutex::new(0));
    let count = Arc::clone(&calls);
    let refused = rig.machine.retrying(TRIES_MAX, move |_| {
        *count.lock().unwrap() += 1;
        with_context(|_: &mut Submission<SimDevice>| {
            Err::<Value<SimDevice, ()>, _>(Error::new(ErrorCode::Cancelled, [&1, &2, &3]))
        })
    });
    assert_eq!(rig.run(refused.unwrap()).unwrap_err().code(), ErrorCode::Cancelled);
    assert_eq!(*calls.lock().unwrap(), 1);
    for device in 0..4 {
        rig.devices[device].inject_fault();
    }
    let none = rig.machine.retrying(TRIES_MAX, |site| value(site.number())).unwrap();
    let error = rig.run(none.keyed(3).timeout(Nanos::from_millis(1))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DevicesOut, "{error}");
    for wrong in [0, TRIES_MAX + 1] {
        let error = rig.machine.retrying(wrong, |site| value(site.number())).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidLimit);
    }
}

#[test]
fn a_closure_that_panics_ends_its_tries() {
    let rig = Machines::new(2);
    for placement_panics in [false, true] {
        let machine = if placement_panics {
            rig.machine.placed_by(|_: &DeviceLoads<'_>| panic!("a placement"))
        } else {
            rig.machine.clone()
        };
        let mut future = machine.retrying(1, |_| -> Value<SimDevice, ()> { panic!("an operation") }).unwrap();
        assert!(catch_unwind(AssertUnwindSafe(|| poll_once(&mut future))).is_err());
        let over = rig.run(future).unwrap_err();
        assert_eq!(over.code(), ErrorCode::PolledAfterEnd, "{over}");
    }
    rig.assert_clean();
}
