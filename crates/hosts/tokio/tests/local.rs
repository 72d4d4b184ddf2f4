//! Waits on the runtime's own thread: many at a time, dropped anywhere, and what they cost.

#![allow(clippy::unwrap_used, clippy::panic, clippy::large_types_passed_by_value, reason = "tests")]

mod common;

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::{PREDICTED, STRICT, TRUST, device, holds, local, of, plan, quantile, wait, without_timers};
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};
use wakeline_core::{Clock, ErrorCode, HostLine, Instant, Nanos, Timer, Wait, drive};
use wakeline_measured::{alone, measured};
use wakeline_std::usage::{thread_cpu_time, thread_switches};
use wakeline_std::{ParkPolicy, StdClock, TimerSlack};
use wakeline_tokio::TokioLocal;

const US: fn(u64) -> Nanos = Nanos::from_micros;
const MS: fn(u64) -> Nanos = Nanos::from_millis;
const MINUTE: Nanos = Nanos::from_millis(60_000);

/// Polls a future until it is ready or was polled `polls` times, whichever comes first.
async fn polled<F: Future>(mut future: Pin<&mut F>, polls: u32) -> Option<F::Output> {
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Whatever their lengths and plans, on one thread or beside the workers of another runtime.
#[test]
fn many_waits_of_different_lengths_share_the_thread_and_all_end() {
    let _alone = alone();
    let (clock, device, thread) = device();
    let multi = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for runtime in [without_timers(), multi] {
        let local = Rc::new(runtime.block_on(async { local(clock) }));
        let set = LocalSet::new();
        let tasks: Vec<_> = (0..64)
            .map(|task| {
                let (local, stream) = (Rc::clone(&local), device.stream().unwrap());
                set.spawn_local(async move {
                    let plan = plan([STRICT, TRUST, PREDICTED, "poll"][task % 4]);
                    for round in 0..5 {
                        let length = US((task as u64 * 389 + round * 1_013) % 4_000);
                        wait(&plan, &stream, length, &local).await;
                    }
                })
            })
            .collect();
        set.block_on(&runtime, async {
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!((local.registered(), local.watched()), (0, 0), "{local:?}");
    }
    thread.stop().unwrap();
}

/// A wait that is dropped after any number of polls takes back what it registered; one beside it, which may have relied on its
/// pumping, ends all the same.
#[test]
fn a_wait_that_is_dropped_at_any_await_point_leaves_nothing_and_loses_no_other() {
    let _alone = alone();
    let (clock, device, thread) = device();
    without_timers().block_on(async {
        let local = Rc::new(local(clock));
        for text in [STRICT, TRUST, PREDICTED, "poll"] {
            for polls in 0..30 {
                let other = async {
                    let stream = device.stream().unwrap();
                    wait(&plan(TRUST), &stream, MS(1), &local).await;
                };
                let dropped = async {
                    let stream = device.stream().unwrap();
                    let plan = plan(text);
                    let mut future = Box::pin(wait(&plan, &stream, MS(2), &local));
                    polled(future.as_mut(), polls).await;
                };
                // As parts of one task, and as two tasks.
                let start = clock.now();
                tokio::join!(other, dropped);
                assert_eq!(local.registered(), 0, "{text} dropped after {polls} polls: {local:?}");
                assert!(clock.now().since(start) < MS(2_000), "{text} dropped after {polls} polls: late");
                LocalSet::new()
                    .run_until(async {
                        let tasks = [false, true].map(|is_dropped| {
                            let (local, stream) = (Rc::clone(&local), device.stream().unwrap());
                            spawn_local(async move {
                                let text = if is_dropped { text } else { PREDICTED };
                                let plan = plan(text);
                                let future = wait(&plan, &stream, US(900), &local);
                                if is_dropped {
                                    polled(pin!(future), polls).await;
                                } else {
                                    future.await;
                                }
                            })
                        });
                        for task in tasks {
                            task.await.unwrap();
                        }
                    })
                    .await;
                assert_eq!(local.registered(), 0, "{text} dropped after {polls} polls: {local:?}");
            }
        }
    });
    thread.stop().unwrap();
}

/// The last wait to begin pumps for the one before it. Nothing else wakes the thread.
#[test]
fn a_wait_goes_on_when_the_one_that_pumped_for_it_is_dropped_or_aborted() {
    let _alone = alone();
    let clock = StdClock::new();
    without_timers().block_on(async {
        let local = Rc::new(TokioLocal::<&HostLine>::new(clock, ParkPolicy::default()).unwrap());
        LocalSet::new()
            .run_until(async {
                for aborted in 1..4 {
                    let at = clock.now() + MS(5);
                    let first = Rc::clone(&local);
                    let first = spawn_local(async move { first.sleep_until(at).await });
                    tokio::task::yield_now().await;
                    let pumps: Vec<_> = (0..aborted)
                        .map(|_| {
                            let local = Rc::clone(&local);
                            spawn_local(async move { local.sleep_until(Instant::MAX).await })
                        })
                        .collect();
                    for _ in 0..3 {
                        tokio::task::yield_now().await;
                    }
                    assert_eq!(local.registered(), 1 + aborted);
                    pumps.iter().for_each(tokio::task::JoinHandle::abort);
                    first.await.unwrap();
                    assert!((at..at + MS(500)).contains(&clock.now()));
                    for pump in pumps {
                        assert!(pump.await.unwrap_err().is_cancelled());
                    }
                    assert_eq!(local.registered(), 0);
                }
            })
            .await;
    });
}

/// Polled once, it pumps, and then nobody polls it.
#[test]
fn under_run_until_a_wait_that_is_kept_unpolled_holds_up_no_other() {
    let _alone = alone();
    let clock = StdClock::new();
    without_timers().block_on(async {
        let local = Rc::new(TokioLocal::<&HostLine>::new(clock, ParkPolicy::default()).unwrap());
        let set = LocalSet::new();
        let root = local.run_until(async {
            let mut kept = pin!(local.sleep_until(clock.now() + MS(1)));
            assert!(polled(kept.as_mut(), 1).await.is_none());
            let other = Rc::clone(&local);
            let at = clock.now() + MS(5);
            // A task of its own, which has to tell the root that there is something to pump for.
            spawn_local(async move { other.sleep_until(at).await }).await.unwrap();
            assert!((at..at + MS(500)).contains(&clock.now()));
            kept.await;
        });
        set.run_until(root).await;
        assert_eq!(local.registered(), 0);
        // Without the root they pump again.
        local.sleep_until(clock.now() + MS(1)).await;
    });
}

#[test]
fn a_root_that_ends_hands_the_pump_on() {
    let _alone = alone();
    let clock = StdClock::new();
    without_timers().block_on(async {
        let local = Rc::new(TokioLocal::<&HostLine>::new(clock, ParkPolicy::default()).unwrap());
        LocalSet::new()
            .run_until(async {
                let at = clock.now() + MS(5);
                let other = Rc::clone(&local);
                let task = Cell::new(None);
                let root = local.run_until(async {
                    task.set(Some(spawn_local(async move { other.sleep_until(at).await })));
                    tokio::task::yield_now().await;
                });
                root.await;
                task.take().unwrap().await.unwrap();
                assert!((at..at + MS(500)).contains(&clock.now()));
            })
            .await;
    });
}

#[test]
fn a_wait_loses_to_a_timeout_and_to_the_other_arm_of_a_select() {
    let _alone = alone();
    let (clock, device, thread) = device();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (local, stream) = (local(clock), device.stream().unwrap());
        stream.launch(MINUTE).unwrap();
        for text in [STRICT, TRUST, PREDICTED, "poll"] {
            let (plan, start) = (plan(text), clock.now());
            let mut port = stream.point();
            let wait = drive(of(&plan, MINUTE), &mut port, &local, None);
            assert!(tokio::time::timeout(Duration::from_millis(3), wait).await.is_err(), "{text}");
            assert_eq!(local.registered(), 0, "{text}");
            let mut port = stream.point();
            tokio::select! {
                _ = drive(of(&plan, MINUTE), &mut port, &local, None) => panic!("{text}: it takes a minute"),
                () = local.sleep_until(clock.now() + MS(2)) => {}
            }
            assert_eq!(local.registered(), 0, "{text}");
            // Its own deadline, by the same timer.
            let deadline = Some(clock.now() + MS(2));
            let mut port = stream.point();
            let late = drive(of(&plan, MINUTE).deadline(deadline), &mut port, &local, None).await;
            assert_eq!(late.unwrap_err().code(), ErrorCode::Timeout, "{text}");
            assert!(clock.now().since(start) < MS(2_000), "{text}");
        }
    });
    drop(runtime);
    thread.stop().unwrap();
}

#[test]
fn a_sleep_never_ends_early_and_ends_within_microseconds() {
    let _alone = alone();
    let clock = StdClock::new();
    measured(|machine| {
        without_timers().block_on(async {
            let local = TokioLocal::<&HostLine>::new(clock, ParkPolicy::default()).unwrap();
            let mut late = Vec::new();
            for length in [10, 70, 300, 1_300, 2_500].into_iter().cycle().take(300) {
                let at = clock.now() + US(length);
                local.sleep_until(at).await;
                assert!(clock.now() >= at, "early");
                late.push(clock.now().since(at));
            }
            let (p50, p90) = (quantile(&mut late, 50), quantile(&mut late, 90));
            println!("late by {p50} (p50), {p90} (p90)");
            // Tokio's own timers would be half a millisecond late.
            holds(p50 <= US(40) + machine.usual(), || format!("late by {p50} (p50), {p90} (p90)"))
        })
    });
}

/// Plain sleeps of this thread, and tokio's, would end 5 ms late.
#[test]
fn the_timer_slack_of_the_thread_does_not_matter() {
    let _alone = alone();
    let clock = StdClock::new();
    let slack = TimerSlack::set(MS(5)).unwrap();
    measured(|_| {
        without_timers().block_on(async {
            let local = TokioLocal::<&HostLine>::new(clock, ParkPolicy::default()).unwrap();
            let mut late = Vec::new();
            for _ in 0..50 {
                let at = clock.now() + US(1_500);
                local.sleep_until(at).await;
                late.push(clock.now().since(at));
            }
            let p50 = quantile(&mut late, 50);
            holds(p50 <= MS(1), || format!("late by {p50} (p50)"))
        })
    });
    drop(slack);
}

/// A watch of 100 ms spins at its beginning and naps from then on, though it parks in slices and asks the driver in between.
#[test]
fn a_long_watch_drops_out_of_spinning_after_a_bounded_time() {
    let _alone = alone();
    let (clock, device, thread) = device();
    let policy = ParkPolicy::new(200, 1_000).unwrap();
    measured(|_| {
        without_timers().block_on(async {
            let local = TokioLocal::new(clock, policy).unwrap();
            let streams = [0; 4].map(|_| device.stream().unwrap());
            let (plan, start) = (plan("flag:park_us=5000,backstop_us=20000"), thread_cpu_time().unwrap());
            let wait = |n: usize| wait(&plan, &streams[n], MS(100), &local);
            tokio::join!(wait(0), wait(1), wait(2), wait(3));
            let used = thread_cpu_time().unwrap() - start;
            println!("{used} of CPU time in 100 ms");
            holds(used <= MS(25), || format!("{used} of CPU time in 100 ms"))
        })
    });
    thread.stop().unwrap();
}

/// As many waits as there were are gone, by their ends and by drops: the thread sleeps through.
#[test]
fn nothing_wakes_the_thread_while_nothing_is_registered() {
    let _alone = alone();
    let (clock, device, thread) = device();
    measured(|_| {
        without_timers().block_on(async {
            let (local, stream) = (local(clock), device.stream().unwrap());
            wait(&plan(PREDICTED), &stream, MS(1), &local).await;
            stream.launch(MS(30)).unwrap();
            let (plan, mut port) = (plan(PREDICTED), stream.point());
            polled(pin!(drive(of(&plan, MS(30)), &mut port, &local, None)), 2).await;
            polled(pin!(local.sleep_until(clock.now() + MS(10))), 2).await;
            assert_eq!(local.registered(), 0);
            let (ringing, bell) = tokio::sync::oneshot::channel();
            let start = thread_switches().unwrap();
            let ringer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(60));
                ringing.send(()).unwrap();
            });
            bell.await.unwrap();
            let sleeps = thread_switches().unwrap().voluntary - start.voluntary;
            ringer.join().unwrap();
            holds(sleeps <= 2, || format!("the thread slept {sleeps} times until it was rung"))
        })
    });
    thread.stop().unwrap();
}

/// The task that pumped is gone, and so is all that it owned.
#[test]
fn no_waker_of_a_task_is_kept_after_its_wait() {
    let _alone = alone();
    let clock = StdClock::new();
    without_timers().block_on(async {
        let local = Rc::new(TokioLocal::<&HostLine>::new(clock, ParkPolicy::default()).unwrap());
        let waker = std::sync::Arc::new(Noted);
        for at in [US(300), MS(60_000)] {
            let task = Waker::from(std::sync::Arc::clone(&waker));
            let mut context = Context::from_waker(&task);
            let until = clock.now() + at;
            let mut sleep = Box::pin(local.sleep_until(until));
            while sleep.as_mut().poll(&mut context).is_pending() && at < MS(1) {
                tokio::task::yield_now().await;
            }
            drop(sleep);
            drop(task);
            // What tokio was asked to wake after a yield is gone after one.
            tokio::task::yield_now().await;
            assert_eq!(std::sync::Arc::strong_count(&waker), 1, "{at}");
        }
    });
}

struct Noted;

impl std::task::Wake for Noted {
    fn wake(self: std::sync::Arc<Self>) {}
}

#[test]
fn outside_of_a_runtime_it_is_an_error() {
    let _alone = alone();
    let error = TokioLocal::<&HostLine>::new(StdClock::new(), ParkPolicy::default()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Backend);
    let error = wakeline_tokio::TokioClock::new(StdClock::new()).unwrap_err();
    assert!(error.to_string().contains("runtime"), "{error}");
}

/// Many waits of one task at a time: each look serves them all, and no poll is owed to any by another.
#[test]
fn a_wait_among_a_hundred_costs_the_thread_no_spinning_of_its_own() {
    let _alone = alone();
    let (clock, device, thread) = device();
    measured(|_| {
        let polls = Rc::new(Cell::new(0_u64));
        without_timers().block_on(async {
            let local = Rc::new(local(clock));
            LocalSet::new()
                .run_until(async {
                    let tasks: Vec<_> = (0..100)
                        .map(|task| {
                            let (local, stream) = (Rc::clone(&local), device.stream().unwrap());
                            let polls = Rc::clone(&polls);
                            spawn_local(async move {
                                let plan = plan("flag:park_us=20000,backstop_us=20000+trust");
                                stream.launch(US(2_000 + task * 50)).unwrap();
                                let mut port = stream.point();
                                let mut wait = pin!(drive(Wait::new(&plan), &mut port, &*local, None));
                                poll_fn(|context| {
                                    polls.set(polls.get() + 1);
                                    wait.as_mut().poll(context)
                                })
                                .await
                                .unwrap();
                            })
                        })
                        .collect();
                    for task in tasks {
                        task.await.unwrap();
                    }
                })
                .await;
        });
        // About 7 ms: at most 7,000 / 50 naps and 200 / 2 yields, and a few polls each.
        println!("{} polls", polls.get());
        holds(polls.get() <= 2_000, || format!("{} polls", polls.get()))
    });
    thread.stop().unwrap();
}
