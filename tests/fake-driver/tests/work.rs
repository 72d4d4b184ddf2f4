//! Kernels, modules, faults, captures and graphs, through the fake's own symbols.
#![allow(unsafe_code)]

mod raw;

use core::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use raw::{Driver, KERNELS, MAPPED, NO_TIMING, NON_BLOCKING, until, word};
use wakeline_fake_driver::{Fake, FaultEnds, Live, Status};

const GLOBAL: c_uint = 0;
const THREAD_LOCAL: c_uint = 1;
const RELAXED: c_uint = 2;

#[test]
fn kernels_take_their_time_and_store() {
    let fake = Fake::new().unwrap();
    fake.configure(|options| options.clock_offset_ns = Some(0));
    let driver = Driver::ready(&fake);
    let stream = driver.stream_create(NON_BLOCKING).unwrap();
    let page = driver.host_alloc(64, MAPPED).unwrap();
    let begin = Instant::now();
    assert_eq!(driver.run(c"stamp", stream, &[page]), Status::SUCCESS);
    assert_eq!(driver.run(c"occupy", stream, &[3_000_000]), Status::SUCCESS);
    assert_eq!(driver.run(c"store_word", stream, &[page + 8, 5, 2_000_000]), Status::SUCCESS);
    assert_eq!(driver.run(c"stamp", stream, &[page + 16]), Status::SUCCESS);
    assert_eq!(driver.run(c"mine", stream, &[0]), Status::SUCCESS);
    until("the word", || word(page + 8) == 5);
    assert!(begin.elapsed() >= Duration::from_millis(5));
    assert_eq!(driver.stream_synchronize(stream), Status::SUCCESS);
    assert!(word(page + 16) - word(page) >= 5_000_000);
    assert!(fake.violations().is_empty(), "{:?}", fake.violations());
}

/// However far the device's clock is from the host's: one begins late and ends at once where its time has passed.
#[test]
fn a_kernel_is_busy_until_a_time_of_the_devices_clock() {
    for offset in [0, 1_700_000_000_000_000_000, -1_700_000_000_000_000_000] {
        let fake = Fake::new().unwrap();
        fake.configure(|options| options.clock_offset_ns = Some(offset));
        let driver = Driver::ready(&fake);
        let stream = driver.stream_create(NON_BLOCKING).unwrap();
        let page = driver.host_alloc(64, MAPPED).unwrap();
        assert_eq!(driver.run(c"stamp", stream, &[page]), Status::SUCCESS);
        until("the stamp", || word(page) != 0);
        let end = word(page).wrapping_add(5_000_000);
        assert_eq!(driver.run(c"occupy_until", stream, &[end]), Status::SUCCESS);
        for passed in [end, end.wrapping_sub(5_000_000), end.wrapping_sub(1 << 62)] {
            assert_eq!(driver.run(c"occupy_until", stream, &[passed]), Status::SUCCESS);
        }
        assert_eq!(driver.run(c"stamp", stream, &[page + 8]), Status::SUCCESS);
        until("the second stamp", || word(page + 8) != 0);
        let late = word(page + 8).wrapping_sub(end);
        assert!(late < 50_000_000, "{offset}: {late}");
    }
}

#[test]
fn modules_know_their_entries() {
    let fake = Fake::new().unwrap();
    let driver = Driver::ready(&fake);
    assert_eq!(driver.module_load(c"no kernel".as_ptr()), Err(Status::INVALID_PTX));
    let module = driver.module_load(KERNELS.as_ptr()).unwrap();
    assert_eq!(driver.module_function(module, c"absent".as_ptr()), Err(Status::NOT_FOUND));
    let function = driver.module_function(module, c"traps".as_ptr()).unwrap();
    // A stream of another context than the function's.
    let other = driver.context_create(0, 0).unwrap();
    assert_eq!(driver.launch(function, 0, &[]), Status::INVALID_HANDLE);
    assert_eq!(driver.context_destroy(other), Status::SUCCESS);
    assert_eq!(fake.live().modules, 1);
    assert_eq!(driver.module_unload(module), Status::SUCCESS);
    assert_eq!(driver.launch(function, 0, &[]), Status::INVALID_HANDLE);
    assert_eq!(fake.live().modules, 0);
    assert_eq!(fake.violations().len(), 1);
}

#[test]
fn a_fault_poisons_its_context_after_a_while_and_no_other_where_that_is_all() {
    extern "C" fn count(data: *mut c_void) {
        // SAFETY: the test keeps it until the end of the process.
        unsafe { &*data.cast::<AtomicU64>() }.fetch_add(1, Ordering::Relaxed);
    }

    for (kernel, status) in [
        (c"traps", Status::LAUNCH_FAILED),
        (c"illegal_address", Status::ILLEGAL_ADDRESS),
        (c"assert_fails", Status::ASSERT),
    ] {
        let fake = Fake::new().unwrap();
        fake.configure(|options| {
            options.fault_delay_us = 50_000;
            options.fault_ends = FaultEnds::Context;
        });
        let driver = Driver::ready(&fake);
        let calls: &'static AtomicU64 = Box::leak(Box::default());
        let well = driver.current().unwrap();
        let page = driver.host_alloc(64, MAPPED).unwrap();
        let healthy = driver.stream_create(NON_BLOCKING).unwrap();
        let ill = driver.context_create(0, 0).unwrap();
        let [stream, beside] = [(); 2].map(|()| driver.stream_create(NON_BLOCKING).unwrap());
        let event = driver.event_create(NO_TIMING).unwrap();

        let begin = Instant::now();
        assert_eq!(driver.run(c"occupy", beside, &[5_000_000]), Status::SUCCESS);
        assert_eq!(driver.write(beside, page + 16, 1, 0), Status::SUCCESS);
        assert_eq!(driver.run(kernel, stream, &[]), Status::SUCCESS);
        assert_eq!(driver.event_record(event, stream), Status::SUCCESS);
        assert_eq!(driver.write(stream, page, 1, 0), Status::SUCCESS);
        let data = (&raw const *calls).cast_mut().cast();
        assert_eq!(driver.host(stream, count, data), Status::SUCCESS);
        let early = [driver.stream_query(stream), driver.event_query(event), driver.stream_query(beside)];
        if begin.elapsed() < Duration::from_millis(50) {
            assert_eq!(early, [Status::NOT_READY; 3]);
        }
        assert_eq!(driver.stream_synchronize(stream), status);
        assert!(begin.elapsed() >= Duration::from_millis(50));
        assert_eq!([driver.stream_query(beside), driver.event_query(event)], [status; 2]);
        assert_eq!(driver.stream_destroy(stream), status);

        assert_eq!(driver.set_current(well), Status::SUCCESS);
        assert_eq!(driver.write(healthy, page + 8, 1, 0), Status::SUCCESS);
        assert_eq!(driver.stream_synchronize(healthy), Status::SUCCESS);
        // That the other word is stored depends on who came first: its kernel or the fault's.
        assert_eq!((word(page), word(page + 8), calls.load(Ordering::Relaxed)), (0, 1, 0));
        assert_eq!(driver.context_destroy(ill), Status::SUCCESS);
        assert_eq!(driver.host_free(page), Status::SUCCESS);
        assert_eq!(driver.stream_destroy(healthy), Status::SUCCESS);
        assert_eq!(driver.primary_release(0), Status::SUCCESS);
        assert_eq!(fake.live(), Live::default());
        assert!(fake.violations().is_empty(), "{:?}", fake.violations());
    }
}

/// As driver 580 does on an H200.
#[test]
fn a_fault_ends_every_context_of_the_process() {
    let fake = Fake::new().unwrap();
    fake.configure(|options| {
        options.fault_delay_us = 50_000;
        options.devices = 2;
    });
    let driver = Driver::ready(&fake);
    let well = driver.current().unwrap();
    let healthy = driver.stream_create(NON_BLOCKING).unwrap();
    let elsewhere = driver.context_create(0, 1).unwrap();
    let distant = driver.stream_create(NON_BLOCKING).unwrap();
    let ill = driver.context_create(0, 0).unwrap();
    let stream = driver.stream_create(NON_BLOCKING).unwrap();
    assert_eq!(driver.run(c"traps", stream, &[]), Status::SUCCESS);
    assert_eq!(driver.stream_synchronize(stream), Status::LAUNCH_FAILED);
    for (context, stream) in [(well, healthy), (elsewhere, distant)] {
        assert_eq!(driver.set_current(context), Status::SUCCESS);
        assert_eq!(driver.stream_query(stream), Status::LAUNCH_FAILED);
    }
    assert_eq!(driver.context_create(0, 0), Err(Status::LAUNCH_FAILED));
    assert_eq!(driver.context_create(0, 1), Err(Status::LAUNCH_FAILED));
    assert_eq!(driver.context_destroy(ill), Status::SUCCESS);
    assert_eq!(driver.context_destroy(elsewhere), Status::SUCCESS);
    assert_eq!(driver.context_create(0, 0), Err(Status::LAUNCH_FAILED));
}

#[test]
fn a_captured_row_is_replayed() {
    let fake = Fake::new().unwrap();
    let driver = Driver::ready(&fake);
    let [stream, side] = [(); 2].map(|()| driver.stream_create(NON_BLOCKING).unwrap());
    let page = driver.host_alloc(64, MAPPED).unwrap();
    let [fork, join] = [(); 2].map(|()| driver.event_create(NO_TIMING).unwrap());
    let module = driver.module_load(KERNELS.as_ptr()).unwrap();
    let occupy = driver.module_function(module, c"occupy".as_ptr()).unwrap();

    assert_eq!(driver.begin_capture(stream, THREAD_LOCAL), Status::SUCCESS);
    assert_eq!(driver.launch(occupy, stream, &[1_000_000]), Status::SUCCESS);
    assert_eq!(driver.event_record(fork, stream), Status::SUCCESS);
    assert_eq!(driver.wait_event(side, fork, 0), Status::SUCCESS);
    assert_eq!(driver.write(side, page + 8, 4, 0), Status::SUCCESS);
    assert_eq!(driver.is_capturing(side), 1);
    assert_eq!(driver.event_record(join, side), Status::SUCCESS);
    assert_eq!(driver.wait_event(stream, join, 0), Status::SUCCESS);
    assert_eq!(driver.write(stream, page, 3, 0), Status::SUCCESS);
    let graph = driver.end_capture(stream).unwrap();
    assert_eq!((driver.is_capturing(stream), word(page)), (0, 0));
    let exec = driver.instantiate(graph, 0).unwrap();
    assert_eq!(driver.graph_destroy(graph), Status::SUCCESS);

    let begin = Instant::now();
    assert_eq!(driver.graph_launch(exec, stream), Status::SUCCESS);
    assert_eq!(driver.write(stream, page + 16, 5, 0), Status::SUCCESS);
    until("the last word", || word(page + 16) == 5);
    assert!(begin.elapsed() >= Duration::from_millis(1));
    assert_eq!((word(page), word(page + 8)), (3, 4));
    assert_eq!((fake.live().graphs, fake.live().graph_execs), (0, 1));
    assert_eq!(driver.exec_destroy(exec), Status::SUCCESS);

    // What was forked has to be joined.
    assert_eq!(driver.begin_capture(stream, RELAXED), Status::SUCCESS);
    assert_eq!(driver.event_record(fork, stream), Status::SUCCESS);
    assert_eq!(driver.wait_event(side, fork, 0), Status::SUCCESS);
    assert_eq!(driver.end_capture(stream), Err(Status::STREAM_CAPTURE_UNJOINED));
    assert!(fake.violations().is_empty(), "{:?}", fake.violations());
}

#[test]
fn what_a_capture_would_miss_invalidates_it() {
    let fake = Fake::new().unwrap();
    let driver = Driver::ready(&fake);
    let context = driver.current().unwrap();
    let [stream, other] = [(); 2].map(|()| driver.stream_create(0).unwrap());
    let event = driver.event_create(NO_TIMING).unwrap();
    // On a thread of its own, with this mode of the thread.
    let elsewhere = |mode: c_uint, call: &(dyn Fn() -> Status + Sync)| {
        let driver = &driver;
        thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let mut mode = mode;
                assert_eq!(driver.push(context), Status::SUCCESS);
                assert_eq!(driver.exchange_mode(&raw mut mode), Status::SUCCESS);
                call()
            });
            thread.join().unwrap()
        })
    };
    let ask = || driver.event_query(event);
    for (capture, thread, said) in [
        (GLOBAL, GLOBAL, Status::STREAM_CAPTURE_UNSUPPORTED),
        (GLOBAL, THREAD_LOCAL, Status::SUCCESS),
        (GLOBAL, RELAXED, Status::SUCCESS),
        (THREAD_LOCAL, GLOBAL, Status::SUCCESS),
        (RELAXED, GLOBAL, Status::SUCCESS),
    ] {
        assert_eq!(driver.begin_capture(stream, capture), Status::SUCCESS);
        assert_eq!(elsewhere(thread, &ask), said, "{capture} {thread}");
        let ended = driver.end_capture(stream);
        let expected = if said == Status::SUCCESS { None } else { Some(Status::STREAM_CAPTURE_INVALIDATED) };
        assert_eq!(ended.err(), expected, "{capture} {thread}");
    }

    // By the capturing thread itself; of the stream itself; by way of the legacy stream; of an event in it.
    let steps: [(&dyn Fn() -> Status, Status); 5] = [
        (&|| driver.host_alloc(64, MAPPED).unwrap_err(), Status::STREAM_CAPTURE_UNSUPPORTED),
        (&|| driver.stream_query(other), Status::STREAM_CAPTURE_UNSUPPORTED),
        (&|| driver.stream_synchronize(stream), Status::STREAM_CAPTURE_UNSUPPORTED),
        (&|| driver.fill(0, 0, 0, 0), Status::INVALID_VALUE),
        (&|| driver.event_record(event, 0), Status::STREAM_CAPTURE_IMPLICIT),
    ];
    for (step, (call, said)) in steps.into_iter().enumerate() {
        assert_eq!(driver.begin_capture(stream, THREAD_LOCAL), Status::SUCCESS);
        assert_eq!(call(), said, "{step}");
        let broken = said != Status::INVALID_VALUE;
        assert_eq!(driver.is_capturing(stream), if broken { 2 } else { 1 }, "{step}");
        assert_eq!(driver.end_capture(stream).is_err(), broken, "{step}");
    }
    assert_eq!(driver.begin_capture(stream, RELAXED), Status::SUCCESS);
    assert_eq!(driver.event_record(event, stream), Status::SUCCESS);
    assert_eq!(driver.event_query(event), Status::CAPTURED_EVENT);
    assert_eq!(driver.end_capture(stream), Err(Status::STREAM_CAPTURE_INVALIDATED));
    assert_eq!(driver.end_capture(stream), Err(Status::ILLEGAL_STATE));
    assert!(fake.violations().is_empty(), "{:?}", fake.violations());
}

/// Its stream was destroyed before, and it forbade calls in whatever test came next.
#[test]
fn a_capture_that_nobody_can_end_is_gone_with_a_reset() {
    let fake = Fake::new().unwrap();
    let driver = Driver::ready(&fake);
    let stream = driver.stream_create(NON_BLOCKING).unwrap();
    assert_eq!(driver.begin_capture(stream, GLOBAL), Status::SUCCESS);
    assert_eq!(driver.stream_destroy(stream), Status::SUCCESS);
    assert_eq!(driver.host_alloc(64, MAPPED), Err(Status::STREAM_CAPTURE_UNSUPPORTED));
    fake.reset();
    assert_eq!(driver.init(0), Status::SUCCESS);
    let context = driver.primary_retain(0).unwrap();
    assert_eq!(driver.set_current(context), Status::SUCCESS);
    driver.host_alloc(64, MAPPED).unwrap();
}
