//! Work whose end nobody sees, since the watcher was closed or had no room: what it has of its stream's queue stays counted, and nobody is kept waiting for it.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use common::{Busy, CONFIG, Rig, Woken, poll_once};
use wakeline_core::{
    Awaiter, Charge, Clock, CompletionPort, Error, ErrorCode, Instant, Lookout, Nanos, Report, Tend, Watched,
};
use wakeline_ops::{DeviceOp, IN_FLIGHT_MAX, Runtime, SingleStream, all};
use wakeline_sim::{SimDevice, VirtualTime, VirtualWatcher};

const MS: Nanos = Nanos::from_millis(1);
const US: Nanos = Nanos::from_micros(1);
const MANY: usize = 3_000;

#[test]
fn what_comes_behind_a_closed_watcher_is_refused_and_who_waited_for_room_is_woken_and_told() {
    let rig = Rig::new();
    let single = rig.runtime.scheduled(&SingleStream);
    let mut flying: Vec<_> = (0..IN_FLIGHT_MAX).map(|_| Busy(MS, ()).on(&single)).collect();
    for future in &mut flying {
        assert!(poll_once(future).is_pending());
    }
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut waits = Box::pin(Busy(MS, ()).on(&single));
    assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let begun = rig.runtime.counts().begun;
    rig.watcher.close();
    assert!(woken.0.load(Ordering::SeqCst) > 0, "nothing else would wake it");
    let owner = Arc::new(());
    for mut refused in [waits, Box::pin(Busy(MS, ()).on(&single))] {
        let Poll::Ready(Err(error)) = poll_once(&mut refused) else { panic!("nobody would end it") };
        assert_eq!(error.code(), ErrorCode::Unwatched);
        assert!(error.to_string().contains("closed"), "{error}");
    }
    let Poll::Ready(Err(_)) = poll_once(&mut Busy(MS, Arc::clone(&owner)).on(&rig.runtime)) else {
        panic!("nor in another stream")
    };
    assert_eq!((rig.runtime.counts().begun, Arc::strong_count(&owner)), (begun, 1), "nothing was submitted");
}

/// A real queue would block the caller where more is enqueued than it takes; the simulated one fails.
#[test]
fn behind_a_closed_watcher_a_stream_still_takes_no_more_than_its_queue_has() {
    let rig = Rig::new();
    let single = rig.runtime.scheduled(&SingleStream);
    let mut flying: Vec<_> = (0..IN_FLIGHT_MAX).map(|_| Busy(MS, ()).on(&single)).collect();
    for future in &mut flying {
        assert!(poll_once(future).is_pending());
    }
    rig.watcher.close();
    // All of that is still in the queue. On the spot it is waited for.
    all((0..MANY).map(|_| Busy(US, ()))).on(&single).sync().unwrap();
    for _ in 0..MANY {
        Busy(US, ()).on(&single).sync().unwrap();
    }
    assert_eq!((rig.device.misuses(), rig.runtime.counts().in_flight()), (vec![], 0));
}

/// A watcher that has no room for so many.
#[derive(Clone)]
struct Full {
    watcher: VirtualWatcher,
    refuses: Arc<AtomicUsize>,
}

impl Clock for Full {
    fn now(&self) -> Instant {
        self.watcher.now()
    }
}

impl<P: CompletionPort + Send + 'static> Tend<P> for Full {
    fn tend<A, E>(&self, port: P, charge: &Charge<'_>, awaiter: A, ended: E)
    where
        A: Awaiter,
        E: FnOnce(Result<Report, Error>) + Send + 'static,
    {
        let one_less = |left: usize| left.checked_sub(1);
        if self.refuses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok() {
            return ended(Err(Error::new(ErrorCode::WatcherFull, [&1])));
        }
        self.watcher.tend(port, charge, awaiter, ended);
    }

    fn watch(&self, lookout: &Lookout, who: usize, ended: impl FnMut() -> bool) -> Watched {
        Tend::<P>::watch(&self.watcher, lookout, who, ended)
    }

    fn unwatch(&self, lookout: &Lookout, who: usize) {
        Tend::<P>::unwatch(&self.watcher, lookout, who);
    }

    fn alarm(&self, at: Instant, waker: &Waker) {
        Tend::<P>::alarm(&self.watcher, at, waker);
    }
}

#[test]
fn what_a_full_watcher_did_not_take_stays_counted_until_something_behind_it_has_ended() {
    let device = SimDevice::new(VirtualTime::new(), CONFIG).unwrap();
    let watcher = VirtualWatcher::new(&device);
    let full = Full { watcher: watcher.clone(), refuses: Arc::new(AtomicUsize::new(IN_FLIGHT_MAX)) };
    let runtime = Runtime::new(device.clone(), &SingleStream, full.clone()).unwrap();
    let code = |polled: Poll<Result<(), Error>>| match polled {
        Poll::Ready(Err(error)) => Some(error.code()),
        Poll::Ready(Ok(())) | Poll::Pending => None,
    };
    for _ in 0..IN_FLIGHT_MAX {
        assert_eq!(code(poll_once(&mut Busy(MS, ()).on(&runtime))), Some(ErrorCode::WatcherFull));
    }
    // All of it is in the queue, and nobody would say when there is room.
    let begun = runtime.counts().begun;
    assert_eq!(code(poll_once(&mut Busy(MS, ()).on(&runtime))), Some(ErrorCode::Unwatched));
    assert_eq!(runtime.counts().begun, begun);
    // What is run on the spot is behind it.
    Busy(MS, ()).on(&runtime).sync().unwrap();
    let mut flying: Vec<_> = (0..IN_FLIGHT_MAX).map(|_| Busy(US, ()).on(&runtime)).collect();
    assert!(flying.iter_mut().all(|future| poll_once(future).is_pending()));
    for future in flying {
        watcher.run(future).unwrap().unwrap();
    }
    assert_eq!(device.misuses(), []);
}
