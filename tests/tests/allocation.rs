//! The hot path allocates nothing, counted.

#![allow(clippy::unwrap_used, clippy::large_types_passed_by_value, reason = "tests")]

use std::alloc::System;
use std::cell::RefCell;
use std::sync::Arc;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use wakeline_core::{
    Error, ErrorCode, Executor, HostLine, Inline, ManualClock, MemoryDescriptor, Nanos, PointTable, Reactor,
    Residual, Seq, Slot, Timer, Wait, WaitPlan, drive, drive_at, run_inline,
};
use wakeline_sim::{SimConfig, SimDevice, VirtualHost, VirtualTime};
use wakeline_std::Point;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One test, for the counter is the whole process's.
#[test]
fn the_hot_path_allocates_nothing() {
    // The harness's own thread allocates for a moment after it has started this one, and all threads are counted.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let plan: WaitPlan =
        "flag:park_us=50,backstop_us=1000+predict:margin_us=40,min_sleep_us=100,max_sleep_us=20000,window=8"
            .parse()
            .unwrap();
    let device = SimDevice::new(VirtualTime::new(), SimConfig::default()).unwrap();
    let host = VirtualHost::new(&device);
    let inline = Inline::new(&host, &host, &host);
    let stream = device.stream().unwrap();
    let table = RefCell::new(PointTable::new(4).unwrap());
    let one = || {
        stream.launch(Nanos::from_micros(500)).unwrap();
        let wait = Wait::new(&plan);
        run_inline(drive_at(&table, 7_u32, wait, &mut stream.point(), &inline, None)).unwrap().unwrap()
    };
    for _ in 0..100 {
        one();
    }
    count("a whole inline wait, the simulated device included", || {
        for _ in 0..1_000 {
            one();
        }
    });

    adaptive_waits_allocate_nothing();

    let point = Point::new("decode");
    let mut result = Ok(one());
    point.observe(&result);
    assert!(point.predict(&plan).is_some()); // learns, and so makes the window
    count("waits told to a shared point", || {
        for ms in 1..1_000 {
            if let Ok(report) = &mut result {
                report.elapsed = Nanos::from_millis(ms);
                report.residual = Some(Residual::Exact(report.elapsed));
            }
            point.observe(&result);
            assert!(point.predict(&plan).is_some());
            point.abandoned();
        }
    });
    let failed = Err(Error::new(ErrorCode::StoreLost, [&1, &0]));
    count("failed waits told to a shared point", || point.observe(&failed));
    assert_eq!(point.snapshot().counts.waits(), 1 + 2 * 999 + 1);

    let line = Arc::new(HostLine::new());
    let point = MemoryDescriptor::new(Arc::clone(&line), Slot::ALL[0], Seq::new(1));
    count("a descriptor and its check", || {
        let clone = point.clone();
        assert!(!clone.reached());
    });

    let clock = ManualClock::new();
    let reactor = Reactor::<_, Arc<HostLine>>::new(&clock);
    let turns = async |n: u32| {
        for _ in 0..n {
            reactor.yield_now().await;
        }
    };
    let mut executor = Executor::new(&reactor, &host, &host, 64).unwrap();
    for _ in 0..64 {
        executor.spawn(turns(1_000)).unwrap();
    }
    count("wakes and polls of 64 tasks", || {
        executor.run(|_, ()| ()).unwrap();
    });

    let reactor = Reactor::new(&host);
    let waits = async |n: u32| {
        let stream = device.stream().unwrap();
        for _ in 0..n {
            stream.launch(Nanos::from_micros(100)).unwrap();
            let report = drive(Wait::new(&plan), &mut stream.point(), &reactor, None).await.unwrap();
            assert!(report.elapsed > Nanos::ZERO);
        }
    };
    let mut executor = Executor::new(&reactor, &host, &host, 8).unwrap();
    // The first round grows the registrations to their use.
    for n in [10, 200] {
        for _ in 0..8 {
            executor.spawn(waits(n)).unwrap();
        }
        if n == 10 {
            executor.run(|_, ()| ()).unwrap();
            continue;
        }
        let region = Region::new(ALLOCATOR);
        executor.run(|_, ()| ()).unwrap();
        let allocations = region.change().allocations;
        // Eight streams are made, each a handful of allocations; 1,600 waits add none.
        assert!(allocations < 80, "{allocations} allocations for 1,600 waits of 8 tasks");
    }
    assert_eq!(reactor.registered(), 0);
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    a_ring_allocates_nothing();
}

/// Also where waits of one point overlap, so that what they know cannot be brought up to date.
fn adaptive_waits_allocate_nothing() {
    let plan: WaitPlan =
        "flag:park_us=50,backstop_us=1000+adapt:late_pct=1,guard_us=5,min_sleep_us=10,max_sleep_us=20000,window=64"
            .parse()
            .unwrap();
    let device = SimDevice::new(VirtualTime::new(), SimConfig::default()).unwrap();
    let host = VirtualHost::new(&device);
    let inline = Inline::new(&host, &host, &host);
    let stream = device.stream().unwrap();
    let table = RefCell::new(PointTable::new(4).unwrap());
    let mut length = 500;
    let mut one = || {
        length = if length > 5_000 { 500 } else { length + 7 };
        stream.launch(Nanos::from_micros(length)).unwrap();
        let wait = Wait::new(&plan);
        run_inline(drive_at(&table, 7_u32, wait, &mut stream.point(), &inline, None)).unwrap().unwrap().sleeps
    };
    let slept: u32 = (0..100).map(|_| one()).sum();
    assert!(slept > 100, "{slept}");
    count("whole adaptive waits", || (0..1_000).for_each(|_| assert!(one() < 1_000)));
    let mut table = table.into_inner();
    count("adaptive waits of one point at once", || {
        let mut held = [table.forecast(&7, &plan), table.forecast(&7, &plan), table.forecast(&7, &plan)];
        for turn in 0..1_000 {
            held[turn % 3] = table.forecast(&7, &plan);
            table.record(7, &plan, Nanos::from_micros(turn as u64));
        }
    });
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn a_ring_allocates_nothing() {
    use std::os::fd::OwnedFd;
    use wakeline_core::{Clock, Idle};

    let clock = wakeline_std::StdClock::new();
    let ring = match wakeline_uring::UringIdle::new(clock) {
        Ok(ring) => ring,
        Err(error) => return println!("skipped: no io_uring: {error}"),
    };
    let (left, right) = std::os::unix::net::UnixStream::pair().unwrap();
    let (left, right) = (Arc::new(OwnedFd::from(left)), Arc::new(OwnedFd::from(right)));
    let task = async |mut out: Vec<u8>, mut back: Vec<u8>| {
        for _ in 0..500 {
            let receiving = ring.recv(&right, back);
            // Given up, as by a timeout: the operation is cancelled.
            drop(ring.accept(&left));
            let (sent, buffer) = ring.send(&left, out).await;
            out = buffer;
            let (received, buffer) = receiving.await;
            back = buffer;
            assert_eq!((sent.unwrap(), received.unwrap(), &back), (out.len(), out.len(), &out));
            back.clear();
        }
    };
    let park = wakeline_std::StdPark::new(&ring, wakeline_std::ParkPolicy::default());
    let reactor = Reactor::<_, Arc<HostLine>>::new(clock);
    let mut executor = Executor::new(&reactor, &ring, &park, 1).unwrap();
    executor.spawn(task(b"to and fro".to_vec(), Vec::with_capacity(64))).unwrap();
    count("operations on a ring, with their buffers, and its idles", || {
        executor.run(|_, ()| ()).unwrap();
        for _ in 0..100 {
            ring.idle(Some(clock.now() + Nanos::from_micros(10)));
        }
    });
}

fn count(what: &str, run: impl FnOnce()) {
    let region = Region::new(ALLOCATOR);
    run();
    let change = region.change();
    assert_eq!(change.allocations + change.reallocations, 0, "{what}: {change:?}");
}
