//! What threads can do to a flight, in every interleaving: one that ends it, one that awaits it or gives it up, another that ends it.

use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Wake;

use loom::sync::atomic::AtomicUsize;
use loom::thread;

use crate::counts::Counters;
use crate::flight::{Flight, Owner};

/// Counts its wakes. By loom's atomics, so that others run between the flight's lock and what it calls.
#[derive(Default)]
struct Task(AtomicUsize);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Counts its drop.
struct Kept(Arc<AtomicUsize>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn flight() -> (Arc<Flight>, Arc<AtomicUsize>, Arc<Counters>) {
    let (dropped, counters) = (Arc::new(AtomicUsize::new(0)), Arc::new(Counters::default()));
    let owners = vec![Owner::Own(Box::new(Kept(Arc::clone(&dropped))))];
    (Flight::new(owners, None, &counters), dropped, counters)
}

#[test]
fn loom_a_poll_that_pends_is_woken_once_and_then_finds_the_outcome_and_nothing_kept() {
    loom::model(|| {
        let (flight, dropped, _) = flight();
        let ends = Arc::clone(&flight);
        let thread = thread::spawn(move || ends.land(Ok(())));
        let task = Arc::new(Task::default());
        let waker = Waker::from(Arc::clone(&task));
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
        let (flight, dropped, _) = flight();
        let task = Arc::new(Task::default());
        let waker = Waker::from(Arc::clone(&task));
        assert!(flight.poll(&Context::from_waker(&waker)).is_pending());
        drop(waker);
        let ends = Arc::clone(&flight);
        let thread = thread::spawn(move || ends.land(Ok(())));
        flight.abandon();
        thread.join().unwrap();
        assert_eq!((Arc::strong_count(&task), dropped.load(Ordering::SeqCst)), (1, 1));
    });
}

#[test]
fn loom_a_flight_that_two_end_lets_go_once_and_before_either_goes_on() {
    loom::model(|| {
        let (flight, dropped, counters) = flight();
        let ends = Arc::clone(&flight);
        let thread = thread::spawn(move || ends.land(Ok(())));
        flight.land_and_wait(Ok(()));
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
        thread.join().unwrap();
        assert_eq!((counters.read().landed, counters.read().leaked), (1, 0));
    });
}
