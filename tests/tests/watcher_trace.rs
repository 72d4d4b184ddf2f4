//! A subscriber of `tracing` that panics on the threads of a watcher.
//!
//! Alone in its process: an event that is emitted for the first time while another thread sets a subscriber may be off for good.

#![allow(clippy::unwrap_used, reason = "tests")]

use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

use tracing::{Event, Metadata, Subscriber, span};
use wakeline_core::{Error, ErrorCode, Nanos, Report, WaitPlan};
use wakeline_sim::SimConfig;
use wakeline_std::{Point, Watcher, WatcherConfig, WatcherWait};
use wakeline_tests::watching::{Call, Calls, HookPort, Stage, eventually};

const LIMIT: Duration = Duration::from_secs(20);

/// Panics at every event.
struct Panics;

impl Subscriber for Panics {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &Event<'_>) {
        std::panic::resume_unwind(Box::new("a subscriber's own"));
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        std::panic::resume_unwind(Box::new("a waker's own"));
    }
}

fn poll(wait: &mut WatcherWait<HookPort>) -> Poll<Result<Report, Error>> {
    Pin::new(wait).poll(&mut Context::from_waker(Waker::noop()))
}

/// Whatever the watcher's threads tell of, it costs that event, not the thread that watches for everybody.
#[test]
fn a_subscriber_that_panics_is_counted_and_ends_no_thread() {
    let config = WatcherConfig::default()
        .on_thread_start(|_| std::mem::forget(tracing::subscriber::set_default(Panics)));
    let watcher = Watcher::with(config).unwrap();
    let point = Point::new("told");
    let plan: WaitPlan = "flag:park_us=50,backstop_us=1000".parse().unwrap();
    let (stage, faulted) =
        (Stage::new(SimConfig::default()).unwrap(), Stage::new(SimConfig::default()).unwrap());
    let wait = |stage: &Stage, length: Nanos, calls: &Arc<Calls>| {
        watcher.wait(HookPort::new(stage.work(length).unwrap(), calls), &plan, &point)
    };
    let (short, long) = (Nanos::from_micros(500), Nanos::from_millis(60_000));
    let counted = |panics: u64| {
        let all = eventually(LIMIT, || watcher.stats().panics >= panics);
        assert!(all, "{panics}: {:?}", watcher.stats());
    };

    // Told by the watcher's thread, since nobody polls.
    let mut ends = wait(&stage, short, &Calls::counted());
    assert!(poll(&mut ends).is_pending());
    counted(1);
    assert!(matches!(poll(&mut ends), Poll::Ready(Ok(_))));

    // The waker, the event of that, and the event of the end.
    let mut woken = wait(&stage, short, &Calls::counted());
    let panics = Waker::from(Arc::new(Panics));
    assert!(Pin::new(&mut woken).poll(&mut Context::from_waker(&panics)).is_pending());
    counted(4);

    // The port's own is told as well, but counted nowhere.
    let fragile = Calls::new(|call| {
        if call == Call::Drop {
            std::panic::resume_unwind(Box::new("a port's own"));
        }
    });
    // Let go by a helper, though its future is forgotten.
    let port = HookPort::new(stage.work(short).unwrap(), &fragile);
    let mut forgotten = watcher.wait(port, &"block".parse().unwrap(), &point);
    assert!(poll(&mut forgotten).is_pending());
    std::mem::forget(forgotten);
    counted(5);
    assert!(eventually(LIMIT, || fragile.count(Call::Drop) == 1));

    // The event of the fault, and that of the end.
    let mut fails = wait(&faulted, long, &Calls::counted());
    assert!(poll(&mut fails).is_pending());
    faulted.device.inject_fault();
    counted(7);
    assert!(matches!(poll(&mut fails), Poll::Ready(Err(_))));
    assert_eq!(watcher.stats().faults, 1);

    // And it still watches.
    let mut ends = wait(&stage, short, &Calls::counted());
    assert!(poll(&mut ends).is_pending());
    counted(8);
    assert!(matches!(poll(&mut ends), Poll::Ready(Ok(_))));

    let mut pending = wait(&stage, long, &Calls::counted());
    assert!(poll(&mut pending).is_pending());
    watcher.close(Watcher::CLOSE).unwrap();
    let Poll::Ready(Err(error)) = poll(&mut pending) else { unreachable!("it is pending after the closing") };
    assert_eq!(error.code(), ErrorCode::WatcherClosed);
}
