//! What the ring promises as an idle and a park: no ring of the bell is lost, deadlines hold, I/O ends a sleep.
//!
//! Where there is no ring to be had, a test prints a line that begins with `skipped:` and does nothing.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

#[path = "../../std/tests/storm/mod.rs"]
mod storm;

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use storm::Storm;
use wakeline_core::{
    Clock, CompletionPort, Error, Executor, HostLine, Idle, Instant, Nanos, Park, Reactor, Seq, Slot, Timer,
    Wake, Watch,
};
use wakeline_measured::{alone, measured};
use wakeline_std::usage::thread_switches;
use wakeline_std::{ParkIdle, ParkPolicy, StdClock, StdPark, TimerSlack};
use wakeline_uring::{Probe, UringIdle};

const GUARD: Nanos = Nanos::from_millis(10_000);

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn ring() -> Option<UringIdle> {
    UringIdle::new(StdClock::new()).map_err(|error| println!("skipped: no io_uring: {error}")).ok()
}

fn await_ring(ring: &UringIdle) {
    let until = ring.clock().now() + GUARD;
    // One that comes in time but wakes nobody is answered at the deadline.
    assert!(ring.sleep(Some(until)) && ring.clock().now() < until, "a ring was lost");
}

fn pair() -> (Arc<OwnedFd>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Arc::new(ours.into()), theirs)
}

#[test]
fn the_probe_and_the_ring_agree() {
    let probe = Probe::run();
    assert_eq!(probe.works(), Some(UringIdle::new(StdClock::new()).is_ok()), "{probe:?}");
    assert_eq!(probe.result().is_ok(), probe.works() == Some(true));
}

#[test]
fn a_ring_before_an_idle_call_ends_the_next_one_and_no_other() {
    let Some(ring) = ring() else { return };
    let bell = ring.bell();
    bell.wake_by_ref();
    bell.wake_by_ref();
    await_ring(&ring);
    let until = ring.clock().now() + ms(5);
    assert!(!ring.sleep(Some(until)), "two rings before a call are one");
    assert!(ring.clock().now() >= until, "a sleep without a ring ended early");
    bell.wake();
    assert!(ring.take_ring());
    assert!(!ring.take_ring());
    let outlives = ring.bell();
    drop(ring);
    outlives.wake();
}

/// A queue of one number and a bell, as an executor has it: look, sleep, look again.
#[test]
fn no_ring_is_lost_between_looking_and_sleeping() {
    const RINGERS: u64 = 3;
    const RINGS: u64 = 20_000;
    let Some(ring) = ring() else { return };
    let pushed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for ringer in 0..RINGERS {
            let (bell, pushed) = (ring.bell(), &pushed);
            scope.spawn(move || {
                for ring in 0..RINGS {
                    // `Relaxed`: the ring itself publishes it.
                    pushed.fetch_add(1, Ordering::Relaxed);
                    bell.wake_by_ref();
                    // So that the other side falls asleep at all kinds of moments.
                    for _ in 0..(ring * 7 + ringer * 13) % 97 {
                        core::hint::spin_loop();
                    }
                }
            });
        }
        while pushed.load(Ordering::Relaxed) < RINGERS * RINGS {
            await_ring(&ring);
        }
    });
    println!("{:?}", ring.stats());
}

/// One ring a round, answered before the next: each must end exactly one sleep, with a deadline and without.
#[test]
fn every_ring_of_a_ping_pong_ends_a_sleep() {
    const ROUNDS: u64 = 5_000;
    let (Some(here), Some(there)) = (ring(), ring()) else { return };
    let (answer, serve) = (here.bell(), there.bell());
    let other = std::thread::spawn(move || {
        for round in 0..ROUNDS {
            if round % 2 == 0 {
                await_ring(&there);
            } else {
                assert!(there.sleep(None));
            }
            answer.wake_by_ref();
        }
    });
    for _ in 0..ROUNDS {
        serve.wake_by_ref();
        await_ring(&here);
    }
    other.join().unwrap();
}

#[test]
fn case_47_a_storm_of_signals_neither_ends_nor_prolongs_an_idle_in_the_ring() {
    let _alone = alone();
    let Some(ring) = ring() else { return };
    let park = StdPark::new(&ring, ParkPolicy::default());
    let waits: [(&str, &dyn Fn(Instant)); 2] = [
        ("an idle", &|until| ring.idle(Some(until))),
        ("a park", &|until| assert_eq!(park.park(None, until, || false), Wake::Woke)),
    ];
    for (name, wait) in waits {
        measured(|_| {
            let clock = ring.clock();
            let storm = Storm::on_this_thread();
            let start = clock.now();
            wait(start + ms(50));
            let took = clock.now().since(start);
            let signals = storm.signals();
            assert!(took >= ms(50), "{name} ended early, after {took}");
            if took <= ms(55) && signals >= 30 {
                return Ok(());
            }
            Err(format!("{name} took {took} with {signals} signals"))
        });
    }
    assert_eq!(ring.stats().retries, 0);
}

#[test]
fn deadlines_that_have_passed_end_an_idle_at_once_and_without_a_call() {
    let _alone = alone();
    let Some(ring) = ring() else { return };
    let clock = ring.clock();
    let park = StdPark::new(&ring, ParkPolicy::default());
    let before = (thread_switches().unwrap().voluntary, ring.stats().enters);
    for until in [Instant::ORIGIN, clock.now() - ms(1), clock.now()] {
        for _ in 0..1_000 {
            ring.idle(Some(until));
            assert_eq!(park.park(None, until, || false), Wake::Woke);
            assert_eq!(park.park(None, until, || true), Wake::Reached);
        }
    }
    assert_eq!(ring.stats().enters, before.1);
    let switches = thread_switches().unwrap().voluntary - before.0;
    assert!(switches < 100, "{switches} sleeps");
}

#[test]
fn idles_outlast_a_clock_at_the_end_of_its_range() {
    let Some(ring) = ring() else { return };
    let clock = ring.clock();
    let park = StdPark::new(&ring, ParkPolicy::default());
    for end in [i64::MAX.cast_unsigned() - 1, i64::MAX.cast_unsigned(), 1 << 63, u64::MAX - 1, u64::MAX] {
        let end = Instant::from_nanos(end);
        let waits: [&dyn Fn(); 2] = [&|| ring.idle(Some(end)), &|| {
            assert_eq!(park.park(None, end, || false), Wake::Woke);
        }];
        for wait in waits {
            let bell = ring.bell();
            let start = clock.now();
            let ringer = std::thread::spawn(move || {
                clock.sleep_until(start + ms(10));
                bell.wake();
            });
            wait();
            assert!(clock.now().since(start) >= ms(10), "no ring had come");
            ringer.join().unwrap();
        }
    }
    assert!(ring.fault().is_none(), "{:?}", ring.fault());
}

/// The timers of a ring have no slack; the thread's own slack is left as it is.
#[test]
fn an_idle_ends_as_exactly_as_without_slack_and_sets_none() {
    let _alone = alone();
    let Some(ring) = ring() else { return };
    let clock = ring.clock();
    let slack = TimerSlack::of_this_thread();
    let late = |sleep: &dyn Fn(Instant)| {
        let mut late: Vec<u64> = (0..50)
            .map(|_| {
                let until = clock.now() + ms(1);
                sleep(until);
                let now = clock.now();
                assert!(now >= until, "it ended early");
                now.since(until).as_nanos()
            })
            .collect();
        late.sort_unstable();
        late[25]
    };
    measured(|_| {
        let in_ring = late(&|until| ring.idle(Some(until)));
        let exact = {
            let _slack = TimerSlack::set(TimerSlack::LEAST);
            late(&|until| clock.sleep_until(until))
        };
        println!("late by, p50: a ring {in_ring} ns, a sleep without slack {exact} ns");
        if in_ring <= exact + 30_000 { Ok(()) } else { Err(format!("{in_ring} ns, against {exact} ns")) }
    });
    assert_eq!(TimerSlack::of_this_thread(), slack);
}

#[test]
fn io_ends_an_idle_and_a_park_that_spins_and_one_that_naps() {
    let Some(ring) = ring() else { return };
    let clock = ring.clock();
    let long = [(ParkPolicy::new(10_000, 50), 100), (ParkPolicy::new(0, 10_000), 3_000)];
    for (policy, delay_us) in long {
        let park = StdPark::new(&ring, policy.unwrap());
        let waits: [&dyn Fn(Instant); 2] = [&|until| ring.idle(Some(until)), &|until| {
            assert_eq!(park.park(None, until, || false), Wake::Woke);
        }];
        for wait in waits {
            let (ours, mut theirs) = pair();
            let received = ring.recv(&ours, Vec::with_capacity(8));
            let sender = std::thread::spawn(move || {
                clock.sleep_until(clock.now() + Nanos::from_micros(delay_us));
                theirs.write_all(b"x").unwrap();
                theirs
            });
            let until = clock.now() + GUARD;
            wait(until);
            assert!(clock.now() < until, "a completion was slept through");
            assert_eq!(ring.in_flight(), 0);
            drop(received);
            sender.join().unwrap();
        }
    }
}

#[test]
fn a_park_in_the_ring_reports_a_word_that_is_stored_while_it_spins_or_naps() {
    let Some(ring) = ring() else { return };
    let clock = ring.clock();
    let park = StdPark::new(&ring, ParkPolicy::default());
    for delay_us in [20, 5_000] {
        let line = HostLine::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                clock.sleep_until(clock.now() + Nanos::from_micros(delay_us));
                line.store(Slot::ALL[3], Seq::new(1));
            });
            let reached = || line.load(Slot::ALL[3]).reached(Seq::new(1));
            assert_eq!(park.park(Some(&line), Instant::MAX, reached), Wake::Reached);
        });
    }
}

/// A point whose word another thread stores.
struct Stored(wakeline_core::MemoryDescriptor<Arc<HostLine>>);

impl CompletionPort for Stored {
    type Line = Arc<HostLine>;
    fn query(&mut self) -> Result<wakeline_core::Status, Error> {
        Ok(wakeline_core::Status::Pending)
    }
    fn block(&mut self, _: Option<Instant>) -> Result<wakeline_core::Status, Error> {
        Ok(wakeline_core::Status::Pending)
    }
    fn arm(&mut self) -> Result<wakeline_core::Arming, Error> {
        Ok(wakeline_core::Arming::Armed)
    }
    fn descriptor(&self) -> Option<&wakeline_core::MemoryDescriptor<Self::Line>> {
        Some(&self.0)
    }
}

/// Words are watched, moments are slept to, one task is always ready: bytes go to and fro all the same.
#[test]
fn tasks_on_words_moments_and_io_share_one_thread() {
    const ROUNDS: usize = 500;
    let Some(ring) = ring() else { return };
    let clock = ring.clock();
    for (busy, watched) in [(false, false), (false, true), (true, true)] {
        let park = StdPark::new(&ring, ParkPolicy::default());
        let reactor = Reactor::new(clock);
        let (ours, mut theirs) = pair();
        let client = std::thread::spawn(move || {
            for round in 0..ROUNDS {
                let byte = [u8::try_from(round % 251).unwrap()];
                theirs.write_all(&byte).unwrap();
                let mut back = [0];
                theirs.read_exact(&mut back).unwrap();
                assert_eq!(byte, back);
            }
        });
        let line = Arc::new(HostLine::new());
        let word = Stored(wakeline_core::MemoryDescriptor::new(Arc::clone(&line), Slot::ALL[0], Seq::new(1)));
        let done = Cell::new(false);
        let task = async |role: u32| match role {
            0 => {
                let mut buffer = Vec::with_capacity(64);
                loop {
                    let (received, filled) = ring.recv(&ours, buffer).await;
                    if received.unwrap() == 0 {
                        break;
                    }
                    let (sent, sent_buffer) = ring.send(&ours, filled).await;
                    assert!(sent.unwrap() > 0);
                    buffer = sent_buffer;
                    buffer.clear();
                }
                line.store(Slot::ALL[0], Seq::new(1));
                done.set(true);
            }
            1 if watched => {
                while reactor.watch(&word, clock.now() + GUARD).await != Wake::Reached {}
                assert!(done.get());
            }
            1 => {
                while !done.get() {
                    reactor.sleep_until(clock.now() + ms(1)).await;
                }
            }
            _ => {
                while busy && !done.get() {
                    reactor.yield_now().await;
                }
            }
        };
        let mut executor = Executor::new(&reactor, &ring, &park, 3).unwrap();
        for role in 0..3 {
            executor.spawn(task(role)).unwrap();
        }
        let start = clock.now();
        let stats = executor.run(|_, ()| {}).unwrap();
        println!(
            "busy {busy}, watched {watched}: {} for {ROUNDS} rounds, {stats:?}",
            clock.now().since(start)
        );
        drop(executor);
        client.join().unwrap();
        assert_eq!(ring.in_flight(), 0);
        assert!(clock.now().since(start) < GUARD);
    }
}

#[test]
fn files_and_pipes_are_read_written_and_closed() {
    let Some(ring) = ring() else { return };
    let park = StdPark::new(&ring, ParkPolicy::default());
    let reactor = Reactor::<_, Arc<HostLine>>::new(ring.clock());
    let mut executor = Executor::new(&reactor, &ring, &park, 1).unwrap();
    let ring = &ring;
    let (reads, writes) = std::io::pipe().unwrap();
    let (reads, writes) = (Arc::new(OwnedFd::from(reads)), Arc::new(OwnedFd::from(writes)));
    executor
        .spawn(async move {
            let (written, _) = ring.write(&writes, b"through a pipe".to_vec()).await;
            assert_eq!(written.unwrap(), 14);
            let mut buffer = b"> ".to_vec();
            let (refused, _) = ring.read(&reads, Vec::new()).await;
            assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
            buffer.reserve(64);
            let (read, buffer) = ring.read(&reads, buffer).await;
            assert_eq!((read.unwrap(), &*buffer), (14, &b"> through a pipe"[..]));
            ring.close(Arc::into_inner(writes).unwrap()).await.unwrap();
            let (end, _) = ring.read(&reads, buffer).await;
            assert_eq!(end.unwrap(), 0, "it was not closed");
            let (wrong, _) = ring.recv(&reads, Vec::with_capacity(1)).await;
            assert!(wrong.is_err(), "a pipe is no socket");
        })
        .unwrap();
    executor.run(|_, ()| {}).unwrap();
}
