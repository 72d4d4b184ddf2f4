//! A watcher that is handed a park in hardware. The machines that these tests ran on hide theirs, so a played one stands in for it, and
//! keeps what the port asks of it.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use wakeline_core::{
    Clock, CompletionLine, HostLine, Instant, MemoryDescriptor, Nanos, Park, Seq, Slot, WaitPlan, Wake,
};
use wakeline_sim::SimConfig;
use wakeline_std::{Point, StdClock, Watcher, WatcherConfig, block_on};
use wakeline_tests::watching::{Stage, eventually, within};

/// Looks until the time is up, as a monitor that wakes at every store would; counts its parks, and whether one lasted long.
#[derive(Clone, Default)]
struct Played {
    parks: Arc<AtomicU64>,
    longest_ns: Arc<AtomicU64>,
}

impl Park for Played {
    fn park(&self, line: Option<&CompletionLine>, until: Instant, mut ready: impl FnMut() -> bool) -> Wake {
        assert!(line.is_some(), "a monitor covers one line");
        let clock = StdClock::new();
        let start = clock.now();
        self.parks.fetch_add(1, Ordering::Relaxed);
        self.longest_ns.fetch_max(until.since(start).as_nanos(), Ordering::Relaxed);
        loop {
            if ready() {
                return Wake::Reached;
            }
            if clock.now() >= until {
                return Wake::Woke;
            }
            std::hint::spin_loop();
        }
    }
}

const PLAN: &str = "flag:park_us=50,backstop_us=20000";

#[test]
fn words_of_one_line_are_parked_on_in_hardware_and_new_waits_are_taken_in_meanwhile() {
    within(Duration::from_secs(20), || {
        let park = Played::default();
        let watcher = Watcher::with(WatcherConfig::default().word_wait(park.clone())).unwrap();
        let stage = Stage::new(SimConfig::default()).unwrap();
        let plan: WaitPlan = PLAN.parse().unwrap();
        // The streams of one device share lines.
        let long = watcher.wait(stage.work(Nanos::from_millis(8)).unwrap(), &plan, &Point::new("long"));
        let short = watcher.wait(stage.work(Nanos::from_millis(3)).unwrap(), &plan, &Point::new("short"));
        block_on(async {
            let mut long = std::pin::pin!(long);
            assert!(std::future::poll_fn(|cx| Poll::Ready(long.as_mut().poll(cx))).await.is_pending());
            std::thread::sleep(Duration::from_millis(1));
            short.await.unwrap();
            long.await.unwrap();
        });
        assert!(watcher.stats().parks > 0 && park.parks.load(Ordering::Relaxed) == watcher.stats().parks);
        // So what comes in is noticed.
        assert!(park.longest_ns.load(Ordering::Relaxed) <= 50_000);
        watcher.close(Watcher::CLOSE).unwrap();
    });
}

#[test]
fn words_of_several_lines_are_looked_at_instead() {
    within(Duration::from_secs(20), || {
        let park = Played::default();
        let watcher = Watcher::with(WatcherConfig::default().word_wait(park.clone())).unwrap();
        let lines: Vec<_> = (0..2).map(|_| Arc::new(HostLine::new())).collect();
        let word = |line: &Arc<HostLine>| MemoryDescriptor::new(Arc::clone(line), Slot::ALL[5], Seq::new(1));
        let handle = watcher.handle();
        let until = handle.now() + Nanos::from_millis(400);
        let (mut one, mut other) = (handle.word(word(&lines[0]), until), handle.word(word(&lines[1]), until));
        block_on(std::future::poll_fn(|cx| {
            assert!(Pin::new(&mut one).poll(cx).is_pending() && Pin::new(&mut other).poll(cx).is_pending());
            Poll::Ready(())
        }));
        // By then both have been taken in, and what was parked on the first of them has come back.
        assert!(eventually(Duration::from_secs(10), || watcher.stats().arrivals == 2));
        std::thread::sleep(Duration::from_millis(20));
        let before = watcher.stats();
        std::thread::sleep(Duration::from_millis(20));
        let after = watcher.stats();
        assert_eq!((after.parks, after.ends), (before.parks, before.ends), "a monitor covers one line");
        assert!(after.naps > before.naps);
        block_on(async { (one.await, other.await) });
        watcher.close(Watcher::CLOSE).unwrap();
    });
}
