//! The ring under errors that are forced, small queues, thefts and drops: what takes a look inside.

use super::tag::Tag;
use super::*;

use alloc::task::Wake;
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;

const GUARD: Nanos = Nanos::from_millis(10_000);

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// `None`, and a line that is counted, where there is no ring to be had.
fn ring_of(limits: UringLimits) -> Option<UringIdle> {
    UringIdle::with_limits(StdClock::new(), limits)
        .map_err(|error| println!("skipped: no io_uring: {error}"))
        .ok()
}

fn ring() -> Option<UringIdle> {
    ring_of(UringLimits::default())
}

fn pair() -> (Arc<OwnedFd>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Arc::new(ours.into()), theirs)
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Idles until a future is ready.
fn await_on<F: Future + Unpin>(ring: &UringIdle, future: &mut F) -> F::Output {
    let until = ring.clock().now() + GUARD;
    loop {
        if let Poll::Ready(output) = poll(future) {
            return output;
        }
        ring.idle(Some(until));
        ring.turn();
        assert!(ring.clock().now() < until, "an operation was lost");
    }
}

/// Idles until nothing is in flight.
fn settle(ring: &UringIdle) {
    let until = ring.clock().now() + GUARD;
    while ring.in_flight() > 0 {
        // A drop's completion ends no idle call: nobody waits for it.
        ring.idle(Some(ring.clock().now() + ms(1)));
        ring.turn();
        assert!(ring.clock().now() < until, "an operation that was given up never ended");
    }
}

#[test]
fn a_kernel_that_refuses_a_ring_is_a_coded_error() {
    for (errno, said) in
        [(libc::ENOSYS, "ENOSYS"), (libc::EPERM, "EPERM"), (libc::ENOMEM, "ENOMEM"), (libc::EMFILE, "")]
    {
        let refuse = |_| Err(io::Error::from_raw_os_error(errno));
        let error = UringIdle::over(StdClock::new(), UringLimits::default(), refuse).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Backend);
        assert!(error.args()[1] == "io_uring_setup" && error.args()[2].contains(said), "{error}");
        assert!(core::error::Error::source(&error).is_some());
    }
}

#[test]
fn errors_of_a_call_neither_end_nor_prolong_an_idle() {
    let Some(ring) = ring() else { return };
    let clock = ring.clock();
    let passing = [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::ENOMEM, libc::EINTR];
    for errnos in [&passing[..], &[libc::EINTR; 300]] {
        ring.state.borrow_mut().ring.forced.extend(errnos);
        let until = clock.now() + ms(200);
        assert!(!ring.sleep(Some(until)));
        let late = clock.now().since(until);
        assert!(clock.now() >= until && late < ms(1_000), "late by {late}");
        assert!(ring.fault().is_none(), "a passing error is no fault");
        assert!(ring.state.borrow().ring.forced.is_empty());
    }
    assert_eq!(ring.stats().retries, 3);
}

#[test]
fn a_ring_that_is_broken_for_good_still_ends_idles_on_time_and_at_rings() {
    let Some(ring) = ring() else { return };
    let clock = ring.clock();
    ring.state.borrow_mut().ring.forced.extend(core::iter::repeat_n(libc::EPERM, 1_000_000));
    let until = clock.now() + ms(10);
    assert!(!ring.sleep(Some(until)));
    assert!(clock.now() >= until);
    let bell = ring.bell();
    let ringer = std::thread::spawn(move || {
        clock.sleep_until(clock.now() + ms(5));
        bell.wake();
    });
    assert!(ring.sleep(Some(clock.now() + GUARD)), "a ring was lost");
    ringer.join().unwrap();
    let fault = ring.fault().unwrap();
    assert_eq!(fault.code(), ErrorCode::Backend);
    assert!(fault.to_string().starts_with("io_uring: io_uring_enter failed"), "{fault}");
    assert!(ring.stats().retries < 2_000, "it did not pause");
}

#[test]
fn a_busy_kernel_with_a_full_queue_refuses_and_gives_the_buffer_back() {
    let Some(ring) = ring_of(UringLimits::new(4, 8, 2).unwrap()) else { return };
    let (ours, _theirs) = pair();
    (0..4).for_each(|user_data| ring.push_nop(user_data).unwrap());
    ring.state.borrow_mut().ring.forced.extend([libc::EBUSY, libc::EAGAIN]);
    assert_eq!(ring.push_nop(4).unwrap_err().code(), ErrorCode::Backend);
    let Poll::Ready((refused, buffer)) = poll(&mut ring.send(&ours, b"kept".to_vec())) else {
        panic!("there was room");
    };
    assert_eq!((refused.unwrap_err().kind(), &*buffer), (io::ErrorKind::QuotaExceeded, &b"kept"[..]));
    // The kernel takes entries again; now the operations are too many.
    let mut first = ring.recv(&ours, Vec::with_capacity(1));
    let _second = ring.recv(&ours, Vec::with_capacity(1));
    let (refused, _) = await_on(&ring, &mut ring.recv(&ours, Vec::with_capacity(1)));
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
    assert!(error.get_ref().unwrap().is::<Error>(), "it is coded");
    assert!(poll(&mut first).is_pending());
}

#[test]
fn reserved_values_are_refused_and_the_users_come_back_once_in_order() {
    let Some(ring) = ring() else { return };
    for user_data in [USER_DATA_RESERVED, Tag::Bell.user_data(), u64::MAX] {
        let error = ring.push_nop(user_data).unwrap_err();
        assert_eq!((error.code(), &*error.args()[0]), (ErrorCode::InvalidLimit, "user_data"));
    }
    let values = [0, 1, 7, USER_DATA_RESERVED - 1];
    for user_data in values {
        ring.push_nop(user_data).unwrap();
    }
    assert!(ring.sleep(Some(ring.clock().now() + GUARD)), "completions end a sleep");
    let mut seen = Vec::new();
    ring.completions(|entry| seen.push(entry.user_data()));
    assert_eq!(seen, values);
    ring.completions(|entry| panic!("{entry:?} came twice"));
    let until = ring.clock().now() + ms(3);
    assert!(!ring.sleep(Some(until)), "news that was told ended another sleep");
    assert!(ring.clock().now() >= until);
    assert_eq!(ring.stats().completions, 4);
}

#[test]
fn a_completion_that_is_pushed_is_awaited_as_a_future() {
    let Some(ring) = ring() else { return };
    let mut completion = ring.completion();
    assert!(poll(&mut completion).is_pending());
    ring.push_nop(11).unwrap();
    assert_eq!(await_on(&ring, &mut completion).user_data(), 11);
}

/// More completions than the queue and the inbox hold: the kernel sets them aside.
#[test]
fn an_overflow_of_completions_loses_and_doubles_none() {
    const ENTRIES: u64 = 100;
    let Some(ring) = ring_of(UringLimits::new(4, 4, 4).unwrap()) else { return };
    let (ours, mut theirs) = pair();
    let mut received = ring.recv(&ours, Vec::with_capacity(16));
    for user_data in 0..ENTRIES {
        ring.push_nop(user_data).unwrap();
    }
    theirs.write_all(b"behind").unwrap();
    let mut seen = Vec::new();
    let until = ring.clock().now() + GUARD;
    while seen.len() < 100 {
        ring.idle(Some(until));
        ring.turn();
        ring.completions(|entry| seen.push(entry.user_data()));
        assert!(ring.clock().now() < until, "{} of {ENTRIES} came", seen.len());
    }
    assert_eq!(seen, (0..ENTRIES).collect::<Vec<_>>());
    assert_eq!(await_on(&ring, &mut received).1, b"behind");
    // The poll of the bell may have ended by that: it is armed again.
    let bell = ring.bell();
    let clock = ring.clock();
    let ringer = std::thread::spawn(move || {
        clock.sleep_until(clock.now() + ms(5));
        bell.wake();
    });
    assert!(ring.sleep(Some(clock.now() + GUARD)) && clock.now() < until, "a ring was lost");
    ringer.join().unwrap();
}

#[test]
fn many_that_nobody_fetches_end_idles_at_once_and_cost_nothing_else() {
    let Some(ring) = ring_of(UringLimits::new(4, 4, 4).unwrap()) else { return };
    (0..8).for_each(|user_data| ring.push_nop(user_data).unwrap());
    for _ in 0..3 {
        assert!(ring.sleep(None));
    }
    let mut seen = 0;
    while seen < 8 {
        ring.idle(Some(ring.clock().now() + ms(1)));
        ring.completions(|_| seen += 1);
    }
    assert_eq!(seen, 8);
}

/// Timeouts of idles that ended early must end no later one, and must not pile up.
#[test]
fn a_stale_timeout_never_ends_a_later_idle() {
    for quiet in [true, false] {
        let Some(ring) = ring() else { return };
        let clock = ring.clock();
        // As on a kernel that tells of every change.
        ring.state.borrow_mut().ring.quiet &= quiet;
        for round in 0..200_u64 {
            // Ends at once by its ring, with the timeout armed by the idle before.
            ring.bell().wake_by_ref();
            ring.idle(Some(clock.now() + ms(1)));
            // Ends by a completion, with its timeout about to fire.
            ring.push_nop(round).unwrap();
            let mut seen = 0;
            while seen == 0 {
                ring.sleep(Some(clock.now() + Nanos::from_micros(round % 50)));
                ring.completions(|_| seen += 1);
            }
            ring.take_ring();
            let until = clock.now() + Nanos::from_micros(100 + round * 7 % 300);
            assert!(!ring.sleep(Some(until)), "nothing had come");
            assert!(clock.now() >= until, "round {round} ended early");
        }
        assert!(ring.fault().is_none(), "{:?}", ring.fault());
        assert_eq!(ring.stats().retries, 0);
    }
}

/// The look at the queue that comes before a sleep took what the ring had left there, and the sleep went on to its deadline.
#[test]
fn a_ring_whose_completion_is_taken_before_the_sleep_is_not_slept_through() {
    let Some(ring) = ring() else { return };
    let clock = ring.clock();
    let start = clock.now();
    ring.idle(Some(start + ms(1))); // arms the poll
    let until = Some(start + GUARD);
    let answered = ring.bell.sleep(|word, asleep| {
        ring.bell.ring();
        ring.wait(until, || word.load(Ordering::Acquire) != asleep)
    });
    assert!(answered);
    assert!(clock.now() < start + GUARD, "it slept to its deadline");
}

#[test]
fn a_timeout_that_the_user_takes_away_is_set_again() {
    let Some(ring) = ring() else { return };
    let clock = ring.clock();
    let until = clock.now() + ms(30);
    // Arms the timeout, and ends early.
    ring.push_nop(1).unwrap();
    assert!(ring.sleep(Some(until)));
    ring.push_theft(2).unwrap();
    let mut seen = Vec::new();
    while clock.now() < until {
        ring.idle(Some(until));
        ring.completions(|entry| seen.push(entry.user_data()));
    }
    assert_eq!(seen, [1, 2]);
    assert!(clock.now().since(until) < ms(1_000));
}

/// Sees its drop.
struct Tattle(Arc<AtomicU64>);

impl Drop for Tattle {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn what_an_operation_keeps_comes_back_with_its_result_and_is_dropped_once() {
    let Some(ring) = ring() else { return };
    let drops = Arc::new(AtomicU64::new(0));
    let (result, kept) = await_on(&ring, &mut ring.submit_nop(Tattle(Arc::clone(&drops))));
    assert_eq!((result.unwrap(), drops.load(Ordering::Relaxed)), (0, 0));
    drop(kept);
    drop(ring.submit_nop(Tattle(Arc::clone(&drops))));
    assert_eq!(drops.load(Ordering::Relaxed), 1, "it went before its completion");
    settle(&ring);
    assert_eq!(drops.load(Ordering::Relaxed), 2);
}

#[test]
fn a_future_may_be_dropped_at_every_point() {
    let Some(ring) = ring() else { return };
    let (ours, mut theirs) = pair();
    let recv = || ring.recv(&ours, Vec::with_capacity(64));
    drop(recv()); // never polled, never submitted
    settle(&ring);
    let mut polled = recv();
    assert!(poll(&mut polled).is_pending());
    drop(polled);
    settle(&ring);
    let mut submitted = recv();
    assert!(poll(&mut submitted).is_pending());
    ring.idle(Some(ring.clock().now() + ms(1)));
    drop(submitted);
    settle(&ring);
    // Has ended, and nobody has looked.
    let ended = recv();
    theirs.write_all(b"x").unwrap();
    ring.idle(Some(ring.clock().now() + GUARD));
    assert_eq!(ring.in_flight(), 0);
    drop(ended);
    // Nothing above took what comes now.
    theirs.write_all(b"y").unwrap();
    let mut last = recv();
    assert_eq!(await_on(&ring, &mut last).1, b"y");
    drop(last); // after it was ready
    assert_eq!((ring.in_flight(), Arc::strong_count(&ours)), (0, 1));
}

#[test]
fn a_connection_that_is_accepted_for_nobody_is_closed() {
    let Some(ring) = ring() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let listener = Arc::new(OwnedFd::from(listener));
    let accept = ring.accept(&listener);
    let mut client = std::net::TcpStream::connect(address).unwrap();
    ring.idle(Some(ring.clock().now() + GUARD));
    drop(accept);
    settle(&ring);
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "it is still open");
}

#[test]
fn a_ring_that_goes_takes_its_operations_along_or_leaks_their_memory() {
    let Some(ring) = ring() else { return };
    let (ours, _theirs) = pair();
    let leaks = ring.leaks();
    core::mem::forget(ring.recv(&ours, Vec::with_capacity(4_096)));
    ring.idle(Some(ring.clock().now() + ms(1)));
    drop(ring);
    assert_eq!(leaks.count(), 0, "a receiving is cancelled at once");

    let Some(ring) = self::ring() else { return };
    let leaks = ring.leaks();
    drop(ring.recv(&ours, Vec::with_capacity(4_096)));
    ring.state.borrow_mut().ring.forced.extend([libc::EAGAIN; 8]);
    drop(ring);
    assert_eq!(leaks.count(), 1, "nobody knows whether the kernel uses it");

    let Some(ring) = self::ring() else { return };
    let leaks = ring.leaks();
    core::mem::forget(ring.recv(&ours, Vec::with_capacity(4_096)));
    assert_eq!(ring.shutdown(ms(1_000)), 0);
    assert_eq!((leaks.count(), Arc::strong_count(&ours)), (0, 1));
}

#[test]
fn many_operations_given_up_at_once_are_all_cancelled() {
    let Some(ring) = ring_of(UringLimits::new(4, 8, 200).unwrap()) else { return };
    let (ours, _theirs) = pair();
    let futures: Vec<_> = (0..200).map(|_| ring.recv(&ours, Vec::with_capacity(8))).collect();
    ring.state.borrow_mut().ring.forced.extend([libc::EAGAIN; 100]);
    drop(futures);
    settle(&ring);
    assert_eq!(Arc::strong_count(&ours), 1);
}

/// Idles on its own ring and pushes to it when it is woken, as a waker may.
struct Reentrant(AtomicU64);

impl Wake for Reentrant {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn wakers_are_called_by_turn_alone_and_once() {
    let Some(ring) = ring() else { return };
    let (ours, mut theirs) = pair();
    let woken = Arc::new(Reentrant(AtomicU64::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut recv = ring.recv(&ours, Vec::with_capacity(8));
    let mut context = Context::from_waker(&waker);
    assert!(pin!(&mut recv).poll(&mut context).is_pending());
    theirs.write_all(b"x").unwrap();
    ring.idle(Some(ring.clock().now() + GUARD));
    assert_eq!(woken.0.load(Ordering::Relaxed), 0, "an idle, and so a park, calls nobody");
    ring.turn();
    ring.turn();
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(pin!(&mut recv).poll(&mut context).is_ready());
}

#[test]
fn a_ring_may_be_sent_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<UringIdle>();
    is_send::<Leaks>();
}
