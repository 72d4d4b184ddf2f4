//! Every plan on every host.

use std::cell::RefCell;
use std::time::{Duration, Instant as Wall};

use wakeline_core::{
    Authority, Executor, Mode, Nanos, Outcome, PointTable, Reactor, Report, Wait, WaitPlan, drive_at,
};
use wakeline_mapped::{Port, Stream};
use wakeline_std::{ParkPolicy, Point, StdClock, StdIdle, StdPark, Watcher, block_on};
use wakeline_tests::driver_tests;
use wakeline_tests::rig::Rig;
use wakeline_tests::vendor::Vendor;
use wakeline_tokio::{TokioLocal, TokioWatcher};

use crate::waiting::{PLANS, ms, plan, wait};

driver_tests![
    Both: on_this_thread, on_an_executor, by_a_watcher, on_tokio_with_several_threads, on_a_tokio_thread,
        on_a_ring, three_lines_are_enough;
];

const WAITS: usize = 5;
const WORK: Duration = Duration::from_millis(2);

/// What every end has in common.
fn check(plan: &WaitPlan, report: &Report, launched: Wall, on: &str) {
    let outcome = report.outcome();
    let allowed: &[Outcome] = match (plan.mode(), report.authority) {
        (Mode::Block, _) => &[Outcome::Blocked],
        (_, Authority::Word) => &[Outcome::Trusted, Outcome::Late],
        _ => &[Outcome::Immediate, Outcome::Late, Outcome::Parked],
    };
    assert!(outcome.is_some_and(|outcome| allowed.contains(&outcome)), "{on}, {plan}: {report:?}");
    assert!(launched.elapsed() >= WORK, "{on}, {plan}: before its work was done, {report:?}");
}

fn work<D: Vendor>(rig: &Rig<D>) -> (Port<D>, Wall) {
    let stream = rig.stream();
    let launched = Wall::now();
    rig.kernels().occupy(&stream, Nanos::from_micros(WORK.as_micros().try_into().unwrap())).unwrap();
    (stream.port().unwrap(), launched)
}

fn on_this_thread<D: Vendor>(rig: &Rig<D>) {
    for text in PLANS {
        for _ in 0..WAITS {
            let (mut port, launched) = work(rig);
            let report = wait(text, &mut port).unwrap();
            check(&plan(text), &report, launched, "inline");
        }
    }
}

fn on_an_executor<D: Vendor>(rig: &Rig<D>) {
    executed(rig, &StdIdle::new(StdClock::new()), "executor");
}

fn on_a_ring<D: Vendor>(rig: &Rig<D>) {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    match wakeline_uring::UringIdle::new(StdClock::new()) {
        Ok(idle) => executed(rig, &idle, "ring"),
        // A machine may forbid rings.
        Err(error) => eprintln!("skipped: no io_uring: {error}"),
    }
    #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = rig;
}

fn executed<D: Vendor, I: wakeline_std::ParkIdle>(rig: &Rig<D>, idle: &I, name: &str) {
    let clock = StdClock::new();
    let reactor = Reactor::new(clock);
    let park = StdPark::new(idle, ParkPolicy::default());
    let table = RefCell::new(PointTable::new(16).unwrap());
    let task = async |text: &'static str| {
        for _ in 0..WAITS {
            let wait = Wait::new(&plan(text));
            let (mut port, launched) = work(rig);
            let report = drive_at(&table, text, wait, &mut port, &reactor, None).await.unwrap();
            check(&plan(text), &report, launched, name);
        }
    };
    let mut executor = Executor::new(&reactor, idle, &park, PLANS.len()).unwrap();
    for text in PLANS {
        // A blocking call would hold up all others.
        if text != "block" {
            executor.spawn(task(text)).unwrap();
        }
    }
    executor.run(|_, ()| {}).unwrap();
}

fn by_a_watcher<D: Vendor>(rig: &Rig<D>) {
    let watcher = Watcher::new().unwrap();
    for text in PLANS {
        let point = Point::new("point");
        for _ in 0..WAITS {
            let (port, launched) = work(rig);
            let report = block_on(watcher.wait(port, &plan(text), &point)).unwrap();
            check(&plan(text), &report, launched, "watcher");
        }
    }
}

fn on_tokio_with_several_threads<D: Vendor>(rig: &Rig<D>) {
    let watcher = Watcher::new().unwrap();
    let handle = TokioWatcher::new(&watcher);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build().unwrap();
    let tasks: Vec<_> = PLANS
        .into_iter()
        .map(|text| {
            let ports: Vec<_> = (0..WAITS).map(|_| work(rig)).collect();
            let handle = handle.clone();
            runtime.spawn(async move {
                let point = Point::new("point");
                for (port, launched) in ports {
                    let report = handle.wait(port, &plan(text), &point).await.unwrap();
                    check(&plan(text), &report, launched, "tokio");
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
}

fn on_a_tokio_thread<D: Vendor>(rig: &Rig<D>) {
    let clock = StdClock::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let local = TokioLocal::new(clock, ParkPolicy::default()).unwrap();
        let table = RefCell::new(PointTable::new(16).unwrap());
        for text in PLANS {
            for _ in 0..WAITS {
                let wait = Wait::new(&plan(text));
                let (mut port, launched) = work(rig);
                let report = drive_at(&table, text, wait, &mut port, &local, None).await.unwrap();
                check(&plan(text), &report, launched, "tokio-local");
            }
        }
    });
}

/// What a user with a live stream writes.
fn three_lines_are_enough<D: Vendor>(rig: &Rig<D>) {
    let theirs = rig.busy(ms(2));
    let raw = theirs.raw().as_ptr();
    let (context, watcher) = (rig.context(), Watcher::new().unwrap());
    let (plan, point) = (plan("flag:park_us=50,backstop_us=1000+trust"), Point::new("sample"));

    // SAFETY: the stream lives to the end of the test.
    let stream = unsafe { Stream::from_raw(context, raw) }.unwrap();
    let report = block_on(watcher.wait(stream.port().unwrap(), &plan, &point)).unwrap();

    assert!(report.outcome().is_some());
}
