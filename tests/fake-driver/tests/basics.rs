//! The fake through its own symbols: contexts, streams, events, words, memory, host functions and looks for symbols.

#![allow(unsafe_code)]

mod raw;

use core::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use raw::{Driver, MAPPED, NO_TIMING, NON_BLOCKING, until, word};
use wakeline_fake_driver::{Fake, Live, Status};

#[test]
fn words_are_stored_in_order_behind_what_is_before() {
    let fake = Fake::new().unwrap();
    let driver = Driver::ready(&fake);
    let stream = driver.stream_create(NON_BLOCKING).unwrap();
    let page = driver.host_alloc(4_096, MAPPED).unwrap();
    assert_eq!(driver.device_pointer(page, 0), Ok(page));
    let event = driver.event_create(NO_TIMING).unwrap();

    // A wait for a word holds all back that is behind it.
    assert_eq!(driver.wait(stream, page + 64, 1, 0), Status::SUCCESS);
    assert_eq!(driver.write(stream, page, 7, 0), Status::SUCCESS);
    assert_eq!(driver.event_record(event, stream), Status::SUCCESS);
    assert_eq!(driver.write(stream, page + 8, 8, 0), Status::SUCCESS);
    thread::sleep(Duration::from_millis(2));
    assert_eq!((word(page), word(page + 8)), (0, 0));
    assert_eq!(driver.stream_query(stream), Status::NOT_READY);
    assert_eq!(driver.event_query(event), Status::NOT_READY);

    let other = driver.stream_create(NON_BLOCKING).unwrap();
    assert_eq!(driver.write(other, page + 64, 1, 0), Status::SUCCESS);
    until("the second word", || word(page + 8) == 8);
    assert_eq!(word(page), 7);
    assert_eq!(driver.event_query(event), Status::SUCCESS);
    assert_eq!(driver.stream_synchronize(stream), Status::SUCCESS);
    assert_eq!(driver.stream_query(stream), Status::SUCCESS);
    assert!(fake.violations().is_empty(), "{:?}", fake.violations());
}

#[test]
fn a_status_comes_a_little_after_the_word() {
    let fake = Fake::new().unwrap();
    fake.configure(|options| {
        options.store_lag_ns = 1_000_000;
        options.status_lag_ns = 50_000_000;
    });
    let driver = Driver::ready(&fake);
    let stream = driver.stream_create(NON_BLOCKING).unwrap();
    let page = driver.host_alloc(4_096, MAPPED).unwrap();
    let event = driver.event_create(NO_TIMING).unwrap();
    let begin = Instant::now();
    assert_eq!(driver.event_record(event, stream), Status::SUCCESS);
    assert_eq!(driver.write(stream, page, 1, 0), Status::SUCCESS);
    until("the word", || word(page) == 1);
    assert!(begin.elapsed() >= Duration::from_millis(1));
    assert_eq!(driver.event_query(event), Status::SUCCESS);
    if begin.elapsed() < Duration::from_millis(50) {
        assert_eq!(driver.stream_query(stream), Status::NOT_READY);
    }
    assert_eq!(driver.stream_synchronize(stream), Status::SUCCESS);
    assert!(begin.elapsed() >= Duration::from_millis(51));
}

#[test]
fn events_order_streams_and_the_legacy_stream_orders_blocking_ones() {
    let fake = Fake::new().unwrap();
    let driver = Driver::ready(&fake);
    let page = driver.host_alloc(4_096, MAPPED).unwrap();
    let (gate, word_of) = (page, |index: u64| page + 64 * index);
    let first = driver.stream_create(0).unwrap();
    let second = driver.stream_create(NON_BLOCKING).unwrap();
    let event = driver.event_create(NO_TIMING).unwrap();

    assert_eq!(driver.wait(first, gate, 1, 0), Status::SUCCESS);
    assert_eq!(driver.event_record(event, first), Status::SUCCESS);
    assert_eq!(driver.wait_event(second, event, 0), Status::SUCCESS);
    assert_eq!(driver.write(second, word_of(1), 1, 0), Status::SUCCESS);
    // The legacy stream waits for the blocking one, another blocking one for the legacy stream.
    assert_eq!(driver.write(0, word_of(2), 1, 0), Status::SUCCESS);
    let third = driver.stream_create(0).unwrap();
    assert_eq!(driver.write(third, word_of(3), 1, 0), Status::SUCCESS);
    assert_eq!(driver.write(2, word_of(4), 1, 0), Status::SUCCESS);
    let free = driver.stream_create(NON_BLOCKING).unwrap();
    assert_eq!(driver.write(free, word_of(5), 1, 0), Status::SUCCESS);
    until("the free stream's word", || word(word_of(5)) == 1);
    assert_eq!([1, 2, 3, 4].map(|index| word(word_of(index))), [0; 4]);
    assert_eq!(driver.write(free, gate, 1, 0), Status::SUCCESS);
    assert_eq!(driver.context_synchronize(), Status::SUCCESS);
    assert_eq!([1, 2, 3, 4].map(|index| word(word_of(index))), [1; 4]);
}

#[test]
fn contexts_are_stacked_counted_and_known_when_gone() {
    let fake = Fake::new().unwrap();
    let driver = Driver::open(fake.path());
    assert_eq!(driver.primary_retain(0), Err(Status::NOT_INITIALIZED));
    assert_eq!(driver.init(0), Status::SUCCESS);
    assert_eq!(driver.stream_create(0), Err(Status::INVALID_CONTEXT));
    assert_eq!(driver.primary_retain(1), Err(Status::INVALID_DEVICE));
    let primary = driver.primary_retain(0).unwrap();
    assert_eq!(driver.primary_retain(0), Ok(primary));
    assert_eq!(driver.current(), Ok(0));
    assert_eq!(driver.push(primary), Status::SUCCESS);
    let created = driver.context_create(0, 0).unwrap();
    assert_eq!(driver.current(), Ok(created));

    let stream = driver.stream_create(0).unwrap();
    assert_eq!(driver.pop(), Ok(created));
    assert_eq!(driver.current(), Ok(primary));
    // An event is recorded on a stream of its own context only.
    let event = driver.event_create(0).unwrap();
    assert_eq!(driver.event_record(event, stream), Status::INVALID_HANDLE);
    assert_eq!(driver.stream_query(stream), Status::SUCCESS);
    assert!(thread::scope(|scope| scope.spawn(|| driver.current() == Ok(0)).join().unwrap()));

    assert_eq!(driver.context_destroy(created), Status::SUCCESS);
    assert!(fake.violations().is_empty());
    assert_eq!(driver.stream_query(stream), Status::CONTEXT_IS_DESTROYED);
    assert_eq!(driver.set_current(created), Status::CONTEXT_IS_DESTROYED);
    assert_eq!(fake.live().primary_retains, 2);
    assert_eq!(driver.primary_release(0), Status::SUCCESS);
    assert_eq!(driver.event_query(event), Status::SUCCESS);
    assert_eq!(driver.primary_release(0), Status::SUCCESS);
    assert_eq!(driver.event_query(event), Status::CONTEXT_IS_DESTROYED);
    assert_eq!(driver.primary_release(0), Status::INVALID_CONTEXT);
    assert_eq!(fake.live(), Live::default());
    assert_eq!(fake.violations().len(), 3, "{:?}", fake.violations());
}

#[test]
fn destroyed_and_unknown_handles_are_violations() {
    let fake = Fake::new().unwrap();
    let driver = Driver::ready(&fake);
    let stream = driver.stream_create(0).unwrap();
    assert_eq!(driver.stream_destroy(stream), Status::SUCCESS);
    assert_eq!(driver.stream_query(stream), Status::INVALID_HANDLE);
    assert_eq!(driver.event_destroy(0x1234_5670), Status::INVALID_HANDLE);
    let said = fake.violations();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].starts_with("cuStreamQuery: stream 0x") && said[0].ends_with("was destroyed"),
        "{said:?}"
    );
    assert_eq!(said[1], "cuEventDestroy_v2: event 0x12345670 never was one");
}

#[test]
fn a_page_that_is_freed_under_a_store_is_a_violation_and_stays_untouched() {
    let fake = Fake::new().unwrap();
    let driver = Driver::ready(&fake);
    let stream = driver.stream_create(NON_BLOCKING).unwrap();
    let (gate, page) = (driver.host_alloc(64, MAPPED).unwrap(), driver.host_alloc(64, MAPPED).unwrap());
    assert_eq!(driver.wait(stream, gate, 1, 0), Status::SUCCESS);
    assert_eq!(driver.write(stream, page, 1, 0), Status::SUCCESS);
    assert_eq!(driver.host_free(page), Status::SUCCESS);
    assert_eq!(driver.write(2, gate, 1, 0), Status::SUCCESS);
    assert_eq!(driver.stream_synchronize(stream), Status::SUCCESS);
    assert_eq!(driver.write(stream, page, 1, 0), Status::INVALID_VALUE);
    assert_eq!(driver.host_free(page), Status::INVALID_VALUE);
    let said = fake.violations();
    let ends = ["still to use it", "which is freed", "is freed", "is freed already"];
    assert_eq!(said.len(), ends.len(), "{said:?}");
    assert!(said.iter().zip(ends).all(|(said, end)| said.ends_with(end)), "{said:?}");
}

#[test]
fn copies_and_fills_go_by_the_stream() {
    let fake = Fake::new().unwrap();
    let driver = Driver::ready(&fake);
    let stream = driver.stream_create(NON_BLOCKING).unwrap();
    let device = driver.alloc(4_096).unwrap();
    let mut host = vec![3_u8; 4_096];
    let address = host.as_mut_ptr().expose_provenance() as u64;
    assert_eq!(driver.to_device(device, address, 4_096, stream), Status::SUCCESS);
    assert_eq!(driver.fill(device + 1_024, 9, 1_024, stream), Status::SUCCESS);
    assert_eq!(driver.to_host(address, device, 4_096, stream), Status::SUCCESS);
    assert_eq!((host[0], host[1_024], host[2_047], host[2_048]), (3, 9, 9, 3));
    assert_eq!(driver.fill(device + 4_000, 9, 1_024, stream), Status::INVALID_VALUE);
    let pooled = driver.alloc_async(64, stream).unwrap();
    assert_eq!(fake.live().device_bytes, 4_096 + 64);
    assert_eq!(driver.free_async(pooled, stream), Status::SUCCESS);
    assert_eq!(driver.free(device), Status::SUCCESS);
    assert_eq!(fake.live().device_allocations, 0);
    assert_eq!(driver.alloc(usize::MAX), Err(Status::OUT_OF_MEMORY));
}

#[test]
fn host_functions_run_in_order_on_a_thread_that_may_not_call() {
    struct Seen {
        query: extern "C" fn(u64) -> Status,
        status: AtomicU64,
    }
    extern "C" fn see(data: *mut c_void) {
        // SAFETY: the test keeps it until the stream has passed this.
        let seen = unsafe { &*data.cast::<Seen>() };
        seen.status.store(u64::from((seen.query)(0).0.unsigned_abs()), Ordering::Release);
    }

    let fake = Fake::new().unwrap();
    let driver = Driver::ready(&fake);
    let stream = driver.stream_create(NON_BLOCKING).unwrap();
    let seen = Seen { query: driver.function("cuStreamQuery"), status: AtomicU64::new(0) };
    assert_eq!(driver.host(stream, see, (&raw const seen).cast_mut().cast()), Status::SUCCESS);
    assert_eq!(driver.stream_synchronize(stream), Status::SUCCESS);
    assert_eq!(seen.status.load(Ordering::Acquire), 800);
    assert_eq!(fake.violations(), ["cuStreamQuery: called from a host function"]);
}

#[test]
fn events_are_timed_when_asked_to_be() {
    let fake = Fake::new().unwrap();
    fake.configure(|options| options.store_lag_ns = 100_000_000);
    let driver = Driver::ready(&fake);
    let page = driver.host_alloc(64, MAPPED).unwrap();
    let [start, end] = [(); 2].map(|()| driver.event_create(0).unwrap());
    assert_eq!(driver.elapsed_ms(start, end), Err(Status::INVALID_HANDLE));
    assert_eq!(driver.event_record(start, 2), Status::SUCCESS);
    assert_eq!(driver.write(2, page, 1, 0), Status::SUCCESS);
    assert_eq!(driver.event_record(end, 2), Status::SUCCESS);
    assert_eq!(driver.elapsed_ms(start, end), Err(Status::NOT_READY));
    assert_eq!(driver.event_synchronize(end), Status::SUCCESS);
    let ms = driver.elapsed_ms(start, end).unwrap();
    assert!(ms >= 100.0, "{ms}");
}

#[test]
fn a_name_and_a_version_give_the_variant() {
    let fake = Fake::new().unwrap();
    let driver = Driver::ready(&fake);
    let newer = driver.address("cuStreamWriteValue64_v2");
    assert_eq!(driver.lookup(c"cuStreamWriteValue64", 12_000, 0), Ok((newer, 0)));
    assert_eq!(
        driver.lookup(c"cuStreamWriteValue64", 11_000, 0),
        Ok((driver.address("cuStreamWriteValue64"), 0))
    );
    assert_eq!(driver.lookup(c"cuStreamWriteValue64", 8_000, 0), Ok((0, 2)));
    assert_eq!(driver.lookup(c"cuNothing", 12_000, 0), Ok((0, 1)));
    assert_eq!(driver.lookup(c"cuInit", 13_010, 0), Err(Status::INVALID_VALUE));
    assert_ne!(driver.lookup(c"cuStreamWriteValue64", 12_000, 2), Ok((newer, 0)));
    assert_eq!(driver.write_v1(0, 0, 0, 0), Status::NOT_SUPPORTED);
    fake.configure(|options| _ = options.hidden.insert("cuStreamWriteValue64_v2".to_owned()));
    let older = driver.address("cuStreamWriteValue64");
    assert_eq!(driver.lookup(c"cuStreamWriteValue64", 12_000, 0), Ok((older, 0)));
    for name in fake.symbols() {
        assert_ne!(driver.address(&name), 0);
    }
}
