//! What threads can do to a flight, in every interleaving: one that ends it, one that awaits it or gives it up, another that ends it, those
//! who let the last of its handles go; and to a place in a full stream.

use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Wake;

use loom::sync::atomic::AtomicUsize;
use loom::thread;
use wakeline_core::{Awaiter, Instant};

use crate::counts::FlightCounts;
use crate::flight::{Fleet, Handle, Seen};
use crate::lane::Lane;
use crate::owner::{Owner, Owners};

const SEEN: Seen = Seen { at: Instant::ORIGIN, exact: true };

/// Counts its wakes. By loom's atomics, so that others run between the flight's lock and what it calls.
#[derive(Default)]
struct Task(AtomicUsize);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn task() -> (Arc<Task>, Waker) {
    let task = Arc::new(Task::default());
    (Arc::clone(&task), Waker::from(task))
}

/// Counts its drop.
struct Kept(Arc<AtomicUsize>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn owners(dropped: &Arc<AtomicUsize>) -> Owners {
    let mut owners = Owners::new();
    owners.push(Owner::new(Kept(Arc::clone(dropped))));
    owners
}

fn flight() -> (Handle, Arc<AtomicUsize>, Arc<Fleet>) {
    let (dropped, fleet) = (Arc::new(AtomicUsize::new(0)), Fleet::new());
    fleet.counters.begin();
    (Handle::new(&fleet, &mut owners(&dropped), None, None), dropped, fleet)
}

#[test]
fn loom_a_poll_that_pends_is_woken_once_and_then_finds_the_outcome_and_nothing_kept() {
    loom::model(|| {
        let (flight, dropped, _fleet) = flight();
        let ends = flight.clone();
        let thread = thread::spawn(move || ends.land(Ok(())));
        let (task, waker) = task();
        let polled = flight.poll(&Context::from_waker(&waker));
        if polled.is_ready() {
            assert_eq!(dropped.load(Ordering::SeqCst), 1);
        }
        thread.join().unwrap();
        assert_eq!(task.0.load(Ordering::SeqCst), usize::from(polled.is_pending()));
        assert!(matches!(flight.poll(&Context::from_waker(&waker)), Poll::Ready(Ok(()))));
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn loom_a_flight_given_up_while_it_ends_keeps_no_waker() {
    loom::model(|| {
        let (flight, dropped, _fleet) = flight();
        let (task, waker) = task();
        assert!(flight.poll(&Context::from_waker(&waker)).is_pending());
        drop(waker);
        let ends = flight.clone();
        let thread = thread::spawn(move || ends.land(Ok(())));
        flight.abandon();
        thread.join().unwrap();
        assert_eq!((Arc::strong_count(&task), dropped.load(Ordering::SeqCst)), (1, 1));
    });
}

#[test]
fn loom_a_flight_that_two_end_lets_go_once_and_before_either_goes_on() {
    loom::model(|| {
        let (flight, dropped, fleet) = flight();
        let ends = flight.clone();
        let thread = thread::spawn(move || ends.land(Ok(())));
        flight.land_and_wait(Ok(()));
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
        thread.join().unwrap();
        let FlightCounts { landed, leaked, .. } = fleet.counters.read();
        assert_eq!((landed, leaked), (1, 0));
    });
}

#[test]
fn loom_a_task_that_sees_its_word_while_it_is_told_is_ready_or_woken() {
    loom::model(|| {
        let (flight, dropped, fleet) = flight();
        let ends = flight.clone();
        // The task was woken early, or for nothing, and who tends sees the word as well.
        let thread = thread::spawn(move || {
            ends.wake();
            ends.land(Ok(()));
        });
        let (task, waker) = task();
        let seen = flight.see(SEEN);
        let ready = seen || flight.poll(&Context::from_waker(&waker)).is_ready();
        thread.join().unwrap();
        assert!(ready || task.0.load(Ordering::SeqCst) > 0);
        if !seen {
            assert!(matches!(flight.poll(&Context::from_waker(&waker)), Poll::Ready(Ok(()))));
        }
        assert_eq!((dropped.load(Ordering::SeqCst), fleet.counters.read().landed), (1, 1));
    });
}

#[test]
fn loom_a_wake_for_nothing_beside_a_poll_loses_no_end() {
    loom::model(|| {
        let (flight, _dropped, _fleet) = flight();
        let (task, waker) = task();
        assert!(flight.poll(&Context::from_waker(&waker)).is_pending());
        let (stirs, ends) = (flight.clone(), flight.clone());
        let stir = thread::spawn(move || stirs.wake());
        let end = thread::spawn(move || ends.land(Ok(())));
        let polled = flight.poll(&Context::from_waker(&waker));
        stir.join().unwrap();
        end.join().unwrap();
        // Either this poll has it, or a wake comes after it was registered: the stir that took the waker before, or the end.
        assert!(polled.is_ready() || task.0.load(Ordering::SeqCst) > 0);
    });
}

#[test]
fn loom_the_last_handle_makes_a_flight_blank_and_the_next_has_nothing_of_it() {
    loom::model(|| {
        let (flight, dropped, fleet) = flight();
        let (task, waker) = task();
        assert!(flight.poll(&Context::from_waker(&waker)).is_pending());
        drop(waker);
        let tends = flight.clone();
        let thread = thread::spawn(move || {
            tends.land(Ok(()));
            drop(tends);
        });
        flight.abandon();
        drop(flight);
        // While the other may still be about to let go.
        fleet.counters.begin();
        let second = Arc::new(AtomicUsize::new(0));
        let next = Handle::new(&fleet, &mut owners(&second), None, None);
        assert!(!next.is_over());
        thread.join().unwrap();
        assert!(!next.is_over() && next.poll(&Context::from_waker(Waker::noop())).is_pending());
        assert_eq!((dropped.load(Ordering::SeqCst), second.load(Ordering::SeqCst)), (1, 0));
        assert_eq!(Arc::strong_count(&task), 1);
        next.land(Ok(()));
        assert_eq!(second.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn loom_a_flight_that_nobody_tends_any_more_is_leaked_once() {
    loom::model(|| {
        let (flight, dropped, fleet) = flight();
        let other = flight.clone();
        let thread = thread::spawn(move || drop(other));
        drop(flight);
        thread.join().unwrap();
        let FlightCounts { landed, leaked, .. } = fleet.counters.read();
        assert_eq!((landed, leaked, dropped.load(Ordering::SeqCst)), (0, 1, 0));
    });
}

#[test]
fn loom_who_waits_for_a_place_gets_it_or_is_woken_when_one_is_given_back() {
    loom::model(|| {
        let lane = Lane::of(1);
        let last = lane.admit_anyway(1);
        let thread = thread::spawn(move || drop(last));
        let (task, waker) = task();
        let mut turn = None;
        let admitted = lane.admit(1, &mut turn, &Context::from_waker(&waker));
        thread.join().unwrap();
        assert!(admitted.is_ready() || task.0.load(Ordering::SeqCst) == 1);
        drop(admitted);
        assert!(lane.admit(1, &mut turn, &Context::from_waker(&waker)).is_ready());
    });
}

#[test]
fn loom_whom_room_is_held_for_gets_it_or_is_woken_and_so_are_those_behind_it() {
    loom::model(|| {
        let lane = Lane::of(20);
        let last = lane.admit_anyway(1);
        let thread = thread::spawn(move || drop(last));
        let ((large, large_waker), (small, small_waker)) = (task(), task());
        let (mut turn, mut behind) = (None, None);
        let place = lane.admit(20, &mut turn, &Context::from_waker(&large_waker));
        let other = lane.admit(1, &mut behind, &Context::from_waker(&small_waker));
        thread.join().unwrap();
        if place.is_pending() {
            assert!(other.is_pending(), "room is held");
            assert_eq!(large.0.load(Ordering::SeqCst), 1);
            assert!(lane.admit(20, &mut turn, &Context::from_waker(&large_waker)).is_ready());
        }
        drop(place);
        assert!(other.is_ready() || small.0.load(Ordering::SeqCst) > 0);
        drop(other);
        assert!(lane.admit(1, &mut behind, &Context::from_waker(&small_waker)).is_ready());
    });
}
