//! Policies that go by what is in flight and by priority, for one operation and for a scope.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use common::{Busy, CONFIG, Rig, poll_once};
use wakeline_core::{Clock, ErrorCode, Nanos};
use wakeline_ops::port::Priority;
use wakeline_ops::{
    ByPriority, DeviceOp, LeastLoaded, Runtime, SchedulingPolicy, Submission, with_context, zip,
};
use wakeline_sim::SimDevice;

/// Gives the stream that it runs in.
fn stream() -> impl DeviceOp<Device = SimDevice, Output = u64, Pending = u64> {
    with_context(|submission: &mut Submission<SimDevice>| Ok(wakeline_ops::value(submission.stream().id())))
}

fn of(rig: &Rig, runtime: &Runtime<SimDevice>) -> u64 {
    rig.run(stream().on(runtime)).unwrap()
}

#[test]
fn the_least_loaded_stream_is_the_one_whose_work_is_expected_to_end_first() {
    let rig = Rig::with(&CONFIG, "flag:park_us=50,backstop_us=1000+trust");
    let runtime = rig.runtime.with_policy(&LeastLoaded::new(3).unwrap()).unwrap();
    // It learns how long each takes.
    for (key, ms) in [(1, 8), (2, 1), (3, 3)] {
        for _ in 0..3 {
            rig.run(Busy(Nanos::from_millis(ms), ()).on(&runtime).keyed(key)).unwrap();
        }
    }
    let busy = |key: u64, ms: u64| {
        let mut future = Busy(Nanos::from_millis(ms), ()).on(&runtime).keyed(key);
        assert!(poll_once(&mut future).is_pending());
        future
    };
    let start = rig.watcher.now();
    // 8 in one stream; 1 and 3 and 1 and 3 in the two others, by turns to where less is left.
    let flying = [busy(1, 8), busy(2, 1), busy(3, 3), busy(2, 1), busy(3, 3), busy(2, 1), busy(2, 1)];
    for future in flying {
        rig.run(future).unwrap();
    }
    let took = rig.watcher.now().since(start);
    assert_eq!(took, Nanos::from_millis(8), "10 more fit in two streams beside the 8");
    rig.assert_clean();
}

#[test]
fn branches_go_to_different_streams_under_it() {
    let rig = Rig::new();
    let runtime = rig.runtime.with_policy(&LeastLoaded::new(4).unwrap()).unwrap();
    for _ in 0..5 {
        let (a, b, c, d) = rig.run(zip!(stream(), stream(), stream(), stream()).on(&runtime)).unwrap();
        let mut all = [a, b, c, d];
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
    }
}

#[test]
fn a_stream_is_chosen_by_priority_for_one_operation_and_for_a_scope() {
    let rig = Rig::new();
    let policy = ByPriority::new(1, 2, 1).unwrap();
    assert_eq!(
        (0..4).map(|stream| policy.priority(stream)).collect::<Vec<_>>(),
        [Priority::Low, Priority::Normal, Priority::Normal, Priority::High]
    );
    let runtime = rig.runtime.with_policy(&policy).unwrap();
    let normal = [of(&rig, &runtime), of(&rig, &runtime), of(&rig, &runtime)];
    assert_eq!((normal[0], normal[0] != normal[1]), (normal[2], true), "two in turn");
    let high = rig.run(stream().on(&runtime).schedule(&policy.at(Priority::High))).unwrap();
    let low = runtime.scheduled(&policy.at(Priority::Low));
    let (first, second) = rig.run(low.scope(async { (stream().await.unwrap(), stream().await.unwrap()) }));
    assert_eq!(first, second);
    assert!(!normal.contains(&high) && !normal.contains(&first) && first != high);
    // The nearest, where there is none of it.
    let few = ByPriority::new(1, 0, 1).unwrap();
    let runtime = rig.runtime.with_policy(&few).unwrap();
    let urgent = of(&rig, &runtime.scheduled(&few.at(Priority::High)));
    assert_ne!(of(&rig, &runtime), urgent, "of two that are as near the less urgent");
    assert_eq!(ByPriority::new(0, 0, 0).unwrap_err().code(), ErrorCode::InvalidLimit);
    assert_eq!(LeastLoaded::new(65).unwrap_err().code(), ErrorCode::InvalidLimit);
    assert_eq!(few.at(Priority::High).next(), 1);
}
