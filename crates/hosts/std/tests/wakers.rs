//! Which waker of a task is called.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant as Time};

use wakeline_core::{Arming, CompletionPort, Error, HostLine, Instant, MemoryDescriptor, Seq, Slot, Status};
use wakeline_std::{Point, Watcher, WatcherConfig};

/// Within which a waker is called that is called at all.
const SOON: Duration = Duration::from_secs(20);

/// A point whose word alone says that it is done.
struct ByWord(MemoryDescriptor<Arc<HostLine>>);

impl CompletionPort for ByWord {
    type Line = Arc<HostLine>;

    fn query(&mut self) -> Result<Status, Error> {
        Ok(Status::Pending)
    }

    fn block(&mut self, _: Option<Instant>) -> Result<Status, Error> {
        Ok(Status::Pending)
    }

    fn arm(&mut self) -> Result<Arming, Error> {
        Ok(Arming::Armed)
    }

    fn descriptor(&self) -> Option<&MemoryDescriptor<Self::Line>> {
        Some(&self.0)
    }
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn case_5_of_a_wait_by_the_watcher_the_waker_of_the_last_poll_is_called() {
    let watcher = Watcher::with(WatcherConfig::default()).unwrap();
    let plan = "flag:park_us=50,backstop_us=10000000+trust".parse().unwrap();
    let line = Arc::new(HostLine::new());
    let port = ByWord(MemoryDescriptor::new(Arc::clone(&line), Slot::ALL[0], Seq::new(1)));
    let mut wait = watcher.wait(port, &plan, &Point::new("case 5"));
    let wakers: [Arc<Woken>; 3] = core::array::from_fn(|_| Arc::default());
    for woken in &wakers {
        let waker = Waker::from(Arc::clone(woken));
        assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    line.store(Slot::ALL[0], Seq::new(1));
    let start = Time::now();
    while wakers.iter().all(|woken| woken.0.load(Ordering::SeqCst) == 0) {
        assert!(start.elapsed() < SOON, "nobody was woken");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(wakers.map(|woken| woken.0.load(Ordering::SeqCst)), [0, 0, 1]);
    watcher.close(Watcher::CLOSE).unwrap();
}
