//! What two threads that arm one stream can do to each other, in every interleaving.
//!
//! The hazard: thread A takes number 1 and B number 2, then B enqueues its store first, and more work behind it.
//! Once the word reads 2, A's point counts as reached although its own store is still to come; when that lands, a
//! real device lowers the word to 1, and B's waiter hangs. The submission lock rules it out.

use alloc::sync::Arc;
use alloc::vec::Vec;

use loom::thread;
use wakeline_core::{Clock, CompletionPort, Error, Instant, Nanos, Seq, Turn, Wake};

use crate::sync::Lock;
use crate::{SimConfig, SimDevice, SimPort, TimeLine, VirtualTime, Witness};

/// How a thread arms its point.
type Arm = fn(&Lock<Seq>, SimPort) -> Result<SimPort, Error>;

fn arm(_: &Lock<Seq>, mut point: SimPort) -> Result<SimPort, Error> {
    point.arm()?;
    Ok(point)
}

/// The same with the lock taken away between taking the number and enqueuing its store.
fn arm_without_lock(numbers: &Lock<Seq>, point: SimPort) -> Result<SimPort, Error> {
    let seq = {
        let mut last = numbers.lock();
        *last = last.next();
        *last
    };
    point.store_as(seq)
}

fn two_threads(arm: Arm) {
    loom::model(move || {
        let device = SimDevice::new(VirtualTime::new(), SimConfig::exact()).unwrap();
        let stream = device.stream().unwrap();
        let numbers = Arc::new(Lock::new(Seq::ZERO));
        let threads: Vec<_> = [10, 25]
            .map(|length| {
                let (stream, numbers) = (stream.clone(), Arc::clone(&numbers));
                move || {
                    stream.launch(Nanos::from_nanos(length)).unwrap();
                    let point = arm(&numbers, stream.point()).unwrap();
                    stream.launch(Nanos::from_nanos(length)).unwrap();
                    point
                }
            })
            .map(thread::spawn)
            .into();
        let points: Vec<SimPort> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        check(&device, &points);
    });
}

/// Goes through time from event to event, and looks at every word after each.
fn check(device: &SimDevice, points: &[SimPort]) {
    let witnesses: Vec<Witness> = points.iter().map(SimPort::witness).collect();
    loop {
        let next = device.turn(device.time().now());
        for (point, witness) in points.iter().zip(&witnesses) {
            if point.poll() == Wake::Reached {
                let truth = witness.truth();
                assert!(truth.ended_at.is_some(), "the word completed a point whose work runs");
                assert!(truth.landed_at.is_some(), "a store passed an earlier one and completed its point");
            }
        }
        match next {
            Some(next) => device.time().pass(next),
            None => break,
        }
    }
    assert!(points.iter().all(|point| point.poll() == Wake::Reached));
    assert_eq!(device.counts().overtaken, 0, "a store passed an earlier one");
    assert!(device.time().now() < Instant::MAX);
}

#[test]
fn loom_two_threads_arming_one_stream() {
    two_threads(arm);
}

#[test]
#[should_panic(expected = "a store passed an earlier one")]
fn loom_two_threads_arming_one_stream_pass_each_other_without_the_lock() {
    two_threads(arm_without_lock);
}
