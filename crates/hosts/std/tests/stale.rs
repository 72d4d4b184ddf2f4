//! Points whose ends their tasks have seen by themselves: what the watcher keeps for them is given back, though nothing wakes it for each.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant as Time};

use wakeline_core::{
    Arming, Awaiter, Charge, CompletionPort, Error, HostLine, Instant, MemoryDescriptor, Nanos, Seq, Slot,
    Status, Tend, WaitPlan,
};
use wakeline_std::{Point, Tender, Watcher, WatcherConfig};

const PLAN: &str = "flag:park_us=50,backstop_us=10000000\
                    +predict:margin_us=30,min_sleep_us=40,max_sleep_us=60000000,window=8+trust";

/// How long each is expected to take: longer than any of these tests.
const EXPECTED: Nanos = Nanos::from_millis(40_000);

/// Within which everything has to be gone.
const SOON: Duration = Duration::from_secs(5);

/// A point that never ends; counts those that are there.
struct Endless {
    word: MemoryDescriptor<Arc<HostLine>>,
    there: Arc<AtomicUsize>,
}

impl CompletionPort for Endless {
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
        Some(&self.word)
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.there.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Clone, Default)]
struct Sees(Arc<AtomicBool>);

impl Awaiter for Sees {
    fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

struct Rig {
    watcher: Watcher,
    tender: Tender,
    plan: WaitPlan,
    line: Arc<HostLine>,
    there: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
}

impl Rig {
    fn new(config: WatcherConfig) -> Self {
        let watcher = Watcher::with(config).unwrap();
        let tender = watcher.handle().tender(&Point::new("stale"));
        let (there, refused) = (Arc::default(), Arc::default());
        Self { watcher, tender, plan: PLAN.parse().unwrap(), line: Arc::new(HostLine::new()), there, refused }
    }

    /// Hands one over. What it is told is counted: there is nothing to be told but errors.
    fn tend(&self) -> Sees {
        let sees = Sees::default();
        self.there.fetch_add(1, Ordering::SeqCst);
        let word = MemoryDescriptor::new(Arc::clone(&self.line), Slot::ALL[0], Seq::new(1));
        let port = Endless { word, there: Arc::clone(&self.there) };
        let mut charge = Charge::new(&self.plan);
        (charge.arming, charge.residual) = (Some(Arming::Armed), Some(EXPECTED));
        let refused = Arc::clone(&self.refused);
        self.tender.tend(port, &charge, sees.clone(), move |_| {
            refused.fetch_add(1, Ordering::SeqCst);
        });
        sees
    }

    /// Its task sees the end of one.
    fn see(&self, sees: &Sees) {
        sees.0.store(true, Ordering::Release);
        <Tender as Tend<Endless>>::let_go(&self.tender);
    }

    fn left(&self) -> (usize, usize) {
        (self.there.load(Ordering::SeqCst), self.watcher.handle().pending())
    }

    /// Waits until no more than `most` are there.
    fn settle(&self, most: usize) {
        let start = Time::now();
        while self.left().0.max(self.left().1) > most {
            assert!(start.elapsed() < SOON, "ports and seats: {:?}", self.left());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_port_and_its_seat_are_given_back_soon_though_its_landing_is_far_and_the_watcher_sleeps() {
    for shards in [1, 3] {
        let rig = Rig::new(WatcherConfig::default().shards(shards).unwrap());
        let (stays, ends) = (rig.tend(), rig.tend());
        assert_eq!(rig.left(), (2, 2));
        // It has gone to sleep until they are expected.
        std::thread::sleep(Duration::from_millis(30));
        let sleeps = rig.watcher.stats().sleeps;
        rig.see(&ends);
        rig.settle(1);
        assert!(!stays.is_over());
        assert_eq!((rig.left(), rig.refused.load(Ordering::SeqCst)), ((1, 1), 0), "the other goes on");
        std::thread::sleep(Duration::from_millis(50));
        let woken = rig.watcher.stats().sleeps - sleeps;
        assert!(woken <= 3 * shards as u64, "{woken} sleeps for one that is over");
        rig.watcher.close(Watcher::CLOSE).unwrap();
    }
}

#[test]
fn seats_do_not_run_out_with_100_000_that_their_tasks_end() {
    const SEATS: usize = 4_096;
    let rig = Rig::new(WatcherConfig::default().flights_max(SEATS).unwrap());
    // Some that stay, so that there is something to look through.
    let stay: Vec<Sees> = (0..100).map(|_| rig.tend()).collect();
    let mut most = 0;
    for n in 0..100_000 {
        let sees = rig.tend();
        rig.see(&sees);
        most = most.max(rig.watcher.handle().pending());
        if n % 512 == 0 {
            // Who submits waits for its device now and then: the watcher's thread has its turn.
            rig.settle(SEATS / 2);
        }
    }
    rig.settle(stay.len());
    assert_eq!((rig.left(), rig.refused.load(Ordering::SeqCst)), ((100, 100), 0), "{most} at a time");
    for sees in &stay {
        rig.see(sees);
    }
    rig.settle(0);
    rig.watcher.close(Watcher::CLOSE).unwrap();
}
