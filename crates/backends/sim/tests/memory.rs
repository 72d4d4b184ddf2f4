//! Simulated memory: what work does to it and when, and every misuse that is found.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use wakeline_core::{Clock, CompletionPort, Error, Instant, Nanos, Status};
use wakeline_sim::{
    LogEvent, MISUSES_MAX, MemoryUse, Misuse, SimArg, SimConfig, SimDevice, SimKernel, SimStream, VirtualTime,
};

const COPY: Nanos = Nanos::from_nanos(500);

fn device() -> SimDevice {
    SimDevice::new(VirtualTime::new(), SimConfig { copy_ns: 500, log_len_max: 1_000, ..SimConfig::exact() })
        .unwrap()
}

fn wait(stream: &SimStream) {
    assert_eq!(stream.point().block(None).unwrap(), Status::Done);
}

/// Has `behind` wait for what is enqueued in `before`.
fn order(before: &SimStream, behind: &SimStream) {
    let event = before.device().event();
    before.record(&event).unwrap();
    behind.wait(&event).unwrap();
}

fn misused<T: std::fmt::Debug>(device: &SimDevice, result: Result<T, Error>) -> Misuse {
    let error = result.unwrap_err();
    let misuse = *device.misuses().last().unwrap();
    assert!(error.to_string().ends_with(&misuse.to_string()), "{error}");
    misuse
}

#[test]
fn a_copy_takes_effect_at_the_time_at_which_it_ends() {
    let device = device();
    let stream = device.stream().unwrap();
    let (memory, out) = (stream.alloc(4).unwrap(), device.pinned(4).unwrap());
    stream.fill(&memory, 1).unwrap();
    wait(&stream);
    out.write(&[9; 4]).unwrap();
    let start = device.time().now();
    stream.download(&memory, &out, 3).unwrap();
    let mut point = stream.point();
    assert_eq!(point.block(Some(start + Nanos::from_nanos(499))).unwrap(), Status::Pending);
    assert!(matches!(misused(&device, out.read(&mut [0; 4])), Misuse::ByHost { .. }));
    wait(&stream);
    assert_eq!(device.time().now(), start + COPY);
    let mut bytes = [0; 4];
    out.read(&mut bytes).unwrap();
    assert_eq!(bytes, [1, 1, 1, 9]);
}

#[test]
fn fresh_memory_is_not_zero() {
    let device = device();
    let stream = device.stream().unwrap();
    let (memory, out) = (stream.alloc(2).unwrap(), device.pinned(2).unwrap());
    stream.download(&memory, &out, 2).unwrap();
    wait(&stream);
    let mut bytes = [0; 2];
    out.read(&mut bytes).unwrap();
    assert_ne!(bytes, [0; 2]);
}

#[test]
fn a_stream_waits_on_the_device_for_what_the_event_stands_behind_and_no_more() {
    let device = device();
    let (one, other) = (device.stream().unwrap(), device.stream().unwrap());
    one.launch(Nanos::from_micros(50)).unwrap();
    order(&one, &other);
    one.launch(Nanos::from_millis(5)).unwrap();
    other.launch(Nanos::from_micros(1)).unwrap();
    assert_eq!(device.time().now(), Instant::ORIGIN, "the host waits for nothing");
    wait(&other);
    assert_eq!(device.time().now(), Instant::from_nanos(51_000));
    // An event of work that has ended holds nothing up; a point right behind a wait is held up by it.
    order(&other, &one);
    order(&one, &other);
    wait(&other);
    assert_eq!(device.time().now(), Instant::from_nanos(5_050_000));
}

#[test]
fn a_stream_that_is_gone_still_ends_what_others_wait_for() {
    let device = device();
    let other = device.stream().unwrap();
    let gone = device.stream().unwrap();
    gone.launch(Nanos::from_micros(50)).unwrap();
    let event = device.event();
    gone.record(&event).unwrap();
    drop(gone);
    other.wait(&event).unwrap();
    wait(&other);
    assert_eq!(device.time().now(), Instant::from_nanos(50_000));
    other.wait(&event).unwrap();
    wait(&other);
}

#[test]
fn a_use_after_a_free_and_a_second_free_are_errors() {
    let device = device();
    let stream = device.stream().unwrap();
    let memory = stream.alloc(4).unwrap();
    stream.free(&memory).unwrap();
    assert_eq!(misused(&device, stream.fill(&memory, 1)), Misuse::UseAfterFree { buffer: 0 });
    assert_eq!(misused(&device, stream.free(&memory)), Misuse::DoubleFree { buffer: 0 });
    wait(&stream);
    // Its place may have been taken by then.
    let next = stream.alloc(4).unwrap();
    assert!(matches!(misused(&device, stream.fill(&memory, 1)), Misuse::UseAfterFree { .. }));
    assert!(matches!(misused(&device, stream.free(&memory)), Misuse::DoubleFree { .. }));
    stream.free(&next).unwrap();
    wait(&stream);
    assert_eq!(device.memory_use(), MemoryUse::default());
}

#[test]
fn conflicting_uses_need_an_order_and_any_order_will_do() {
    let device = device();
    let (one, other, third) = (device.stream().unwrap(), device.stream().unwrap(), device.stream().unwrap());
    let (memory, target) = (one.alloc(4).unwrap(), other.alloc(4).unwrap());
    let unordered = |stream, other| Misuse::Unordered { buffer: 0, stream, other };
    assert_eq!(misused(&device, other.copy(&memory, &target, 4)), unordered(1, 0));
    order(&one, &other);
    other.copy(&memory, &target, 4).unwrap();
    // Reads need no order among themselves, a write behind them does.
    one.copy(&memory, &one.alloc(4).unwrap(), 4).unwrap();
    assert_eq!(misused(&device, one.fill(&memory, 1)), unordered(0, 1));
    assert_eq!(misused(&device, one.free(&memory)), unordered(0, 1));
    // By way of a third stream.
    order(&other, &third);
    order(&third, &one);
    one.fill(&memory, 1).unwrap();
    // By the end of the work before.
    wait(&one);
    other.fill(&memory, 2).unwrap();
    assert_eq!(device.misuses().len(), 3);
}

#[test]
fn pinned_memory_in_use_is_not_the_hosts() {
    let device = device();
    let stream = device.stream().unwrap();
    let (memory, pinned) = (stream.alloc(4).unwrap(), device.pinned(4).unwrap());
    stream.upload(&pinned, &memory, 4).unwrap();
    pinned.read(&mut [0; 4]).unwrap();
    let by_host = Misuse::ByHost { buffer: 1, stream: 0 };
    assert_eq!(misused(&device, pinned.write(&[0; 4])), by_host);
    drop(pinned);
    assert_eq!(device.misuses(), [by_host; 2]);
    assert_eq!(device.memory_use(), MemoryUse { buffers: 1, pinned: 0 });
}

#[test]
fn more_bytes_than_there_are_an_event_never_recorded_and_things_of_another_device_are_errors() {
    let device = device();
    let stream = device.stream().unwrap();
    let (memory, pinned) = (stream.alloc(4).unwrap(), device.pinned(2).unwrap());
    let beyond = Misuse::Beyond { buffer: 1, len: 2, wanted: 4 };
    assert_eq!(misused(&device, stream.download(&memory, &pinned, 4)), beyond);
    assert_eq!(misused(&device, pinned.read(&mut [0; 4])), beyond);
    assert_eq!(misused(&device, stream.wait(&device.event())), Misuse::Unsubmitted { stream: 0 });
    let foreign = self::device();
    let there = foreign.stream().unwrap();
    assert_eq!(misused(&foreign, there.fill(&memory, 0)), Misuse::Foreign);
    let event = device.event();
    stream.record(&event).unwrap();
    assert_eq!(misused(&foreign, there.wait(&event)), Misuse::Foreign);
    for _ in 0..MISUSES_MAX {
        stream.wait(&device.event()).unwrap_err();
    }
    assert_eq!(device.misuses().len(), MISUSES_MAX);
}

#[test]
fn a_kernel_may_name_a_buffer_twice_and_reads_nothing_where_there_is_nothing() {
    let device = device();
    let stream = device.stream().unwrap();
    let (memory, out) = (stream.alloc(1).unwrap(), device.pinned(1).unwrap());
    let square = SimKernel::new(COPY, |args| {
        assert_eq!((args.word(0), args.word(9), args.word(2)), (0, 0, 1));
        assert!(args.bytes(2).is_empty() && args.bytes_mut(9).is_empty());
        let product = args.bytes(0)[0] * args.bytes(1)[0];
        args.bytes_mut(1)[0] = product;
    });
    stream.fill(&memory, 5).unwrap();
    stream
        .run(&square, &[SimArg::Read((&memory).into()), SimArg::Write((&memory).into()), SimArg::Word(1)])
        .unwrap();
    stream.download(&memory, &out, 1).unwrap();
    wait(&stream);
    let mut byte = [0];
    out.read(&mut byte).unwrap();
    assert_eq!((byte, device.health().is_none()), ([25], true));
}

#[test]
fn a_kernel_that_panics_faults_the_device_and_nobody_else() {
    let device = device();
    let stream = device.stream().unwrap();
    stream.run(&SimKernel::new(COPY, |_| std::panic::resume_unwind(Box::new(()))), &[]).unwrap();
    let error = stream.point().block(None).unwrap_err();
    assert_eq!(error.to_string(), device.health().unwrap().to_string());
}

#[test]
fn a_host_function_holds_its_stream_up_and_may_call_the_device() {
    let device = device();
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let seen = Arc::new(AtomicUsize::new(0));
    let see = Arc::clone(&seen);
    stream.launch(Nanos::from_micros(3)).unwrap();
    let clone = other.clone();
    stream
        .call_host(move || {
            clone.launch(Nanos::from_micros(1)).unwrap();
            see.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 0);
    let mut point = stream.point();
    assert_eq!(point.query().unwrap(), Status::Pending);
    wait(&stream);
    wait(&other);
    assert_eq!((seen.load(Ordering::Relaxed), device.time().now()), (1, Instant::from_nanos(4_000)));
}

#[test]
fn the_same_calls_give_the_same_run() {
    let run = || {
        let device = device();
        let streams = [device.stream().unwrap(), device.stream().unwrap()];
        for round in 0..20 {
            let (one, other) = (&streams[round % 2], &streams[(round + 1) % 2]);
            let memory = one.alloc(8).unwrap();
            one.run(
                &SimKernel::new(COPY, |args| args.bytes_mut(0).fill(3)),
                &[SimArg::Write((&memory).into())],
            )
            .unwrap();
            order(one, other);
            other.free(&memory).unwrap();
        }
        streams.iter().for_each(wait);
        device.log()
    };
    let log = run();
    assert!(log.iter().any(|entry| entry.event == LogEvent::Ended));
    assert_eq!(log, run());
}

#[test]
fn after_a_fault_nothing_is_done_and_nothing_given_back() {
    let device = device();
    let stream = device.stream().unwrap();
    let memory = stream.alloc(4).unwrap();
    stream.fill(&memory, 1).unwrap();
    device.inject_fault();
    stream.free(&memory).unwrap_err();
    assert_eq!((device.memory_use().buffers, device.misuses()), (1, vec![]));
}
