//! No ring of a bell is lost, whenever and from wherever it comes.
//!
//! A lost ring shows as a sleep that its guard ends: ten seconds, which no machine is late by.
#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

extern crate alloc;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Context, Poll};

use wakeline_core::{Clock, Idle, Nanos, Park, Wake};
use wakeline_std::{ParkPolicy, StdClock, StdIdle, StdPark, block_on};

const GUARD: Nanos = Nanos::from_millis(10_000);

/// Sleeps until a ring; panics when none comes.
fn await_ring(idle: &StdIdle) {
    let until = idle.clock().now() + GUARD;
    // One that comes in time but wakes nobody is answered at the deadline.
    assert!(idle.sleep(Some(until)) && idle.clock().now() < until, "a ring was lost");
}

#[test]
fn a_ring_before_an_idle_call_ends_the_next_one_and_no_other() {
    let idle = StdIdle::new(StdClock::new());
    let bell = idle.bell();
    bell.wake_by_ref();
    bell.wake_by_ref();
    await_ring(&idle);
    let clock = idle.clock();
    let until = clock.now() + Nanos::from_millis(5);
    assert!(!idle.sleep(Some(until)), "two rings before a call are one");
    assert!(clock.now() >= until, "a sleep without a ring ended early");
    bell.wake();
    assert!(idle.take_ring());
    assert!(!idle.take_ring());
}

#[test]
fn a_ring_outlives_its_idle() {
    let idle = StdIdle::new(StdClock::new());
    let bell = idle.bell();
    drop(idle);
    bell.wake_by_ref();
    bell.wake();
}

#[test]
fn bells_of_one_idle_wake_the_same_and_of_two_do_not() {
    let (idle, other) = (StdIdle::new(StdClock::new()), StdIdle::new(StdClock::new()));
    assert!(idle.bell().will_wake(&idle.bell().clone()));
    assert!(!idle.bell().will_wake(&other.bell()));
}

/// A queue of one number and a bell, as an executor has it: look, sleep, look again.
#[test]
fn no_ring_is_lost_between_looking_and_sleeping() {
    const RINGERS: u64 = 3;
    const RINGS: u64 = 20_000;
    let idle = StdIdle::new(StdClock::new());
    let pushed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for ringer in 0..RINGERS {
            let (bell, pushed) = (idle.bell(), &pushed);
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
            await_ring(&idle);
        }
    });
}

/// One ring a round, answered before the next: each must end exactly one sleep.
#[test]
fn every_ring_of_a_ping_pong_ends_a_sleep() {
    const ROUNDS: u64 = 5_000;
    let (here, there) = (StdIdle::new(StdClock::new()), StdIdle::new(StdClock::new()));
    let (answer, serve) = (here.bell(), there.bell());
    let other = std::thread::spawn(move || {
        for _ in 0..ROUNDS {
            await_ring(&there);
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
fn a_ring_ends_a_park_while_it_spins_and_while_it_naps() {
    let clock = StdClock::new();
    let idle = StdIdle::new(clock);
    for (policy, delay_us) in [(ParkPolicy::new(10_000, 50), 100), (ParkPolicy::new(0, 10_000), 3_000)] {
        let park = StdPark::new(&idle, policy.unwrap());
        let bell = idle.bell();
        let ringer = std::thread::spawn(move || {
            clock.sleep_until(clock.now() + Nanos::from_micros(delay_us));
            bell.wake();
        });
        let until = clock.now() + GUARD;
        assert_eq!(park.park(None, until, || false), Wake::Woke);
        assert!(clock.now() < until, "a ring was lost");
        ringer.join().unwrap();
        assert!(!idle.take_ring(), "the park did not answer the ring");
    }
}

#[test]
fn block_on_polls_again_for_each_wake_and_only_then() {
    let clock = StdClock::new();
    let polls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&polls);
    let mut wakers = Vec::new();
    let future = core::future::poll_fn(move |context: &mut Context<'_>| {
        if counted.fetch_add(1, Ordering::Relaxed) == 3 {
            return Poll::Ready(wakers.len());
        }
        let waker = context.waker().clone();
        wakers.push(std::thread::spawn(move || {
            clock.sleep_until(clock.now() + Nanos::from_millis(2));
            waker.wake();
        }));
        Poll::Pending
    });
    assert_eq!(block_on(future), 3);
    assert_eq!(polls.load(Ordering::Relaxed), 4);
}

/// Polls twice: at the first, the future is woken and then does `idling`, which answers that ring.
fn is_polled_again(name: &str, idling: impl Fn(&StdIdle) + Send + 'static) {
    let (over, ended) = std::sync::mpsc::channel();
    // A lost wake is a sleep without end: on a thread of its own, so that the test ends.
    std::thread::spawn(move || {
        let idle = StdIdle::new(StdClock::new());
        let mut polls = 0;
        idle.block_on(core::future::poll_fn(|context| {
            polls += 1;
            if polls == 2 {
                return Poll::Ready(());
            }
            let waker = context.waker().clone();
            std::thread::spawn(move || waker.wake()).join().unwrap();
            idling(&idle);
            Poll::Pending
        }));
        over.send(()).unwrap();
    });
    let guard = core::time::Duration::from_nanos(GUARD.as_nanos());
    assert!(ended.recv_timeout(guard).is_ok(), "{name} took a wake from its block_on");
}

#[test]
fn a_wake_that_is_answered_within_a_poll_has_block_on_poll_again() {
    is_polled_again("an idle", |idle| idle.idle(Some(idle.clock().now() + GUARD)));
    is_polled_again("a park", |idle| {
        let park = StdPark::new(idle, ParkPolicy::default());
        assert_eq!(park.park(None, idle.clock().now() + GUARD, || false), Wake::Woke);
    });
    is_polled_again("a look", |idle| assert!(idle.take_ring()));
    is_polled_again("a nested block_on", |idle| {
        let mut polls = 0;
        idle.block_on(core::future::poll_fn(|_| {
            polls += 1;
            if polls == 1 { Poll::Pending } else { Poll::Ready(()) }
        }));
    });
}
