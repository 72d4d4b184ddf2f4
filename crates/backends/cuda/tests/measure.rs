//! What benches measure with: the driver's calls one by one, its own wait, copies that are checked, steps that store a word themselves.
//! On the fake, and on the machine's own device where there is one.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(unsafe_code, reason = "what is shared with other tests launches work by unsafe calls")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::{Duration, Instant as Wall};

use common::{clean, loaded, until};
use wakeline_core::{Clock, CompletionPort, ErrorCode, Instant, Nanos, Status};
use wakeline_cuda::kernels::{Fault, Kernels, TimedSteps};
use wakeline_cuda::{Answer, Calls, ContextConfig, Cuda, CudaContext, Ordinal, Readback, synchronize};

/// Runs a test on the fake, and on the device of this machine if it has one.
fn on_each(test: impl Fn(&Cuda)) {
    let (fake, cuda) = loaded();
    test(&cuda);
    clean(&fake);
    match Cuda::load() {
        Ok(cuda) => test(&cuda),
        Err(error) => println!("skipped: no CUDA device: {error}"),
    }
}

/// From when it was made.
#[derive(Clone, Copy)]
struct Since(Wall);

impl Clock for Since {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.elapsed().as_nanos().try_into().unwrap())
    }
}

#[test]
fn synchronizing_blocks_until_the_stream_has_nothing_left() {
    on_each(|cuda| {
        let context = cuda.context(0).unwrap();
        let stream = context.stream().unwrap();
        let start = Wall::now();
        Kernels::load(&context).unwrap().occupy(&stream, Nanos::from_millis(20)).unwrap();
        synchronize(&stream).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20), "{:?}", start.elapsed());
        assert_eq!(stream.port().unwrap().query().unwrap(), Status::Done);
    });
}

#[test]
fn single_calls_tell_what_the_driver_knows() {
    on_each(|cuda| {
        let context = cuda.context(0).unwrap();
        let stream = context.stream().unwrap();
        let calls = Calls::new(&context, &stream).unwrap();
        assert!(calls.current().unwrap() && !calls.capturing().unwrap());
        calls.exchange_capture_mode().unwrap();
        Kernels::load(&context).unwrap().occupy(&stream, Nanos::from_millis(200)).unwrap();
        calls.record().unwrap();
        assert_eq!(calls.query_stream(), Ok(Status::Pending));
        assert_eq!(calls.query_event(), Ok(Status::Pending));
        until("the kernel's end", || calls.query_event().unwrap() == Status::Done);
        until("the stream's end", || calls.query_stream().unwrap() == Status::Done);
        let other = CudaContext::create(cuda, Ordinal(0), &ContextConfig::default()).unwrap();
        assert_eq!(Calls::new(&other, &stream).unwrap_err().code(), ErrorCode::ForeignStream);
    });
}

#[test]
fn a_single_call_that_meets_a_fault_breaks_no_wait() {
    let (_fake, cuda) = loaded();
    let context = CudaContext::create(&cuda, Ordinal(0), &ContextConfig::default()).unwrap();
    let stream = context.stream().unwrap();
    Kernels::load(&context).unwrap().fault(&stream, Fault::Trap).unwrap();
    let calls = Calls::new(&context, &stream).unwrap();
    until("the fault", || calls.query_stream().is_err());
    assert_eq!(calls.query_stream().unwrap_err().status, 719);
    // It would be told so without a call, were the context known to be broken.
    let error = stream.port().unwrap_err();
    assert!(error.to_string().contains("719"), "{error}");
}

#[test]
fn a_port_tells_who_said_done() {
    on_each(|cuda| {
        let context = cuda.context(0).unwrap();
        let (stream, kernels) = (context.stream().unwrap(), Kernels::load(&context).unwrap());
        let mut alone = stream.port().unwrap();
        until("the stream's answer", || alone.query().unwrap() == Status::Done);
        assert_eq!(alone.answer(), Some(Answer::Stream));
        kernels.occupy(&stream, Nanos::from_millis(100)).unwrap();
        let mut before = stream.port().unwrap();
        assert_eq!((before.query().unwrap(), before.answer()), (Status::Pending, None));
        kernels.occupy(&stream, Nanos::from_millis(100)).unwrap();
        until("the event's answer", || before.query().unwrap() == Status::Done);
        assert_eq!(before.answer(), Some(Answer::Event));
        synchronize(&stream).unwrap();
    });
}

#[test]
fn a_readback_is_stale_until_its_copy_is_done() {
    on_each(|cuda| {
        let context = cuda.context(0).unwrap();
        let stream = context.stream().unwrap();
        let readback = Readback::new(&stream, 10_001).unwrap();
        assert_eq!((readback.stale_bytes(0), readback.stale_bytes(1)), (0, 10_008));
        readback.launch(1).unwrap();
        synchronize(&stream).unwrap();
        assert_eq!((readback.stale_bytes(0), readback.stale_bytes(1)), (10_008, 0));
        Kernels::load(&context).unwrap().occupy(&stream, Nanos::from_millis(30)).unwrap();
        readback.launch(2).unwrap();
        assert_eq!(readback.stale_bytes(2), 10_008);
        synchronize(&stream).unwrap();
        assert_eq!(readback.stale_bytes(2), 0);
    });
}

#[test]
fn a_readback_that_is_dropped_under_a_copy_leaves_its_memory_to_the_device() {
    let (fake, cuda) = loaded();
    let context = CudaContext::create(&cuda, Ordinal(0), &ContextConfig::default()).unwrap();
    let stream = context.stream().unwrap();
    let readback = Readback::new(&stream, 8).unwrap();
    Kernels::load(&context).unwrap().occupy(&stream, Nanos::from_millis(20)).unwrap();
    readback.launch(1).unwrap();
    drop(readback);
    synchronize(&stream).unwrap();
    assert!(fake.violations().is_empty(), "{:?}", fake.violations());
    assert_eq!(fake.live().device_allocations, 1);
}

#[test]
fn a_step_that_stores_a_word_tells_when_it_ended_as_well() {
    on_each(|cuda| {
        let context = cuda.context(0).unwrap();
        let (stream, clock) = (context.stream().unwrap(), Since(Wall::now()));
        let steps = TimedSteps::new(&stream, clock).unwrap();
        let word = context.kernel_word().unwrap();
        for _ in 0..3 {
            let (before, length) = (word.reads(), Nanos::from_millis(3));
            let launched = steps.launch_storing(length, &word, before.next()).unwrap();
            until("the word", || word.reads().reached(before.next()));
            let seen = clock.now();
            let ended = steps.ended(launched).unwrap();
            assert!(ended.since(launched) >= Nanos::from_millis(2), "{ended:?}, {launched:?}");
            assert!(ended.since(seen) <= steps.uncertainty() + Nanos::from_micros(1), "{ended:?}, {seen:?}");
        }
        synchronize(&stream).unwrap();
        // SAFETY: the steps have ended.
        unsafe { word.retire() };
        let other = CudaContext::create(cuda, Ordinal(0), &ContextConfig::default()).unwrap();
        let foreign = other.kernel_word().unwrap();
        let error = steps.launch_storing(Nanos::ZERO, &foreign, foreign.reads().next()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ForeignStream);
        // SAFETY: nothing was launched.
        unsafe { foreign.retire() };
    });
}
