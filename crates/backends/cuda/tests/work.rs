//! Work: modules, kernels, graphs, memory. On the fake, and on the machine's own device where there is one.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(unsafe_code, reason = "work is launched by unsafe calls")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use core::sync::atomic::{AtomicU64, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

use common::{clean, loaded, until};
use wakeline_core::{CompletionPort, Error, ErrorCode, Status as Asked};
use wakeline_cuda::{Cuda, CudaContext, DeviceBuffer, Function, Graph, HostBuffer, Module, kernels};
use wakeline_fake_driver::{Act, Rule, Status};

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

fn kernel(context: &CudaContext, name: &str) -> Function {
    Module::from_ptx(context, kernels::PTX).unwrap().function(name).unwrap()
}

/// The first eight bytes of a buffer, as a device stores them.
fn word(buffer: &HostBuffer) -> u64 {
    // SAFETY: the buffer is alive, its start aligned, and the bytes are stored by devices alone, as a whole.
    let word = unsafe { AtomicU64::from_ptr(buffer.as_slice().as_ptr().cast_mut().cast()) };
    word.load(Ordering::Acquire)
}

#[test]
fn bytes_go_to_the_device_and_come_back() {
    on_each(|cuda| {
        let context = cuda.context(0).unwrap();
        let stream = context.stream().unwrap();
        let mut sent = HostBuffer::new(&context, 10_000).unwrap();
        let (received, device) =
            (HostBuffer::new(&context, 10_000).unwrap(), DeviceBuffer::new(&context, 12_000).unwrap());
        assert!(sent.as_slice().iter().all(|byte| *byte == 0));
        let numbers = (0..=250_u8).cycle();
        sent.as_mut_slice().iter_mut().zip(numbers).for_each(|(byte, number)| *byte = number);
        // SAFETY: the stream is alive, the buffers are until the point is done, and nobody looks at them before.
        unsafe { device.fill(stream.raw(), 9) }.unwrap();
        // SAFETY: as above.
        unsafe { device.copy_from(stream.raw(), &sent) }.unwrap();
        // SAFETY: as above.
        unsafe { device.copy_to(stream.raw(), &received) }.unwrap();
        let mut port = stream.port().unwrap();
        until("the copies", || port.query().unwrap() == Asked::Done);
        assert!(sent.as_slice() == received.as_slice());

        let large = HostBuffer::new(&context, 12_001).unwrap();
        // SAFETY: nothing is enqueued.
        let error = unsafe { device.copy_from(stream.raw(), &large) }.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidLimit);
        assert_eq!(error.args()[1..], ["12001", "0", "12000"]);
    });
}

#[test]
fn a_kernel_occupies_its_stream_for_as_long_as_it_is_told() {
    on_each(|cuda| {
        let context = cuda.context(0).unwrap();
        let (stream, occupy) = (context.stream().unwrap(), kernel(&context, kernels::OCCUPY));
        // SAFETY: the stream is alive; the kernel takes a u64 and touches no memory.
        unsafe { occupy.launch(stream.raw(), 1, 1, 0, [&20_000_000_u64]) }.unwrap();
        let mut port = stream.port().unwrap();
        assert_eq!(port.query().unwrap(), Asked::Pending);
        until("the kernel's end", || port.query().unwrap() == Asked::Done);
    });
}

#[test]
fn a_kernel_stores_a_word_that_the_host_sees() {
    on_each(|cuda| {
        let context = cuda.context(0).unwrap();
        let (stream, store) = (context.stream().unwrap(), kernel(&context, kernels::STORE_WORD));
        let buffer = HostBuffer::new(&context, 64).unwrap();
        let (address, value, ns) = (buffer.address(), 0x0123_4567_89ab_cdef_u64, 100_000_u64);
        // SAFETY: the stream is alive; the kernel takes three u64 and stores into the buffer, which lives until that was seen.
        unsafe { store.launch(stream.raw(), 1, 1, 0, [&address, &value, &ns]) }.unwrap();
        until("the word", || word(&buffer) == value);
        let mut port = stream.port().unwrap();
        until("the kernel's end", || port.query().unwrap() == Asked::Done);
    });
}

#[test]
fn stamps_of_one_stream_rise() {
    on_each(|cuda| {
        let context = cuda.context(0).unwrap();
        let (stream, stamp) = (context.stream().unwrap(), kernel(&context, kernels::STAMP));
        let stamps = [(); 2].map(|()| HostBuffer::new(&context, 8).unwrap());
        for buffer in &stamps {
            // SAFETY: the stream is alive; the kernel takes a u64 and stores into the buffer, which lives until the point is done.
            unsafe { stamp.launch(stream.raw(), 1, 1, 0, [&buffer.address()]) }.unwrap();
        }
        let mut port = stream.port().unwrap();
        until("the stamps", || port.query().unwrap() == Asked::Done);
        let [first, second] = stamps.map(|buffer| word(&buffer));
        assert!(first > 0 && first <= second, "{first} {second}");
    });
}

#[test]
fn a_kernel_that_is_not_there_is_named() {
    on_each(|cuda| {
        let context = cuda.context(0).unwrap();
        let module = Module::from_ptx(&context, kernels::PTX).unwrap();
        let error = module.function("no_such_kernel").unwrap_err();
        assert_eq!(error.args()[..2], ["cuda", "cuModuleGetFunction"]);
        assert!(error.args()[2].ends_with("(the kernel `no_such_kernel`)"), "{error}");
        let error = module.function("zero\0inside").unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidSetting, "{error}");
    });
}

#[test]
fn a_text_that_does_not_compile_is_an_error_and_the_context_goes_on() {
    on_each(|cuda| {
        let context = cuda.context(0).unwrap();
        for text in [".version 6.0\n.target sm_70\n.address_size 64\nthis is no kernel", "zero\0inside"] {
            let error = Module::from_ptx(&context, text).unwrap_err();
            assert_eq!(error.args()[..2], ["cuda", "cuModuleLoadDataEx"]);
            let compiled = !text.contains('\0') && !cuda.library().contains("fake");
            assert!(!compiled || error.args()[2].contains("its compiler says: "), "{error}");
        }
        context.health().unwrap();
    });
}

#[test]
fn a_graph_runs_when_it_is_launched_and_as_often() {
    on_each(|cuda| {
        let context = cuda.context(0).unwrap();
        let stream = context.stream().unwrap();
        let (mut sent, received) =
            (HostBuffer::new(&context, 8).unwrap(), HostBuffer::new(&context, 8).unwrap());
        sent.as_mut_slice().fill(5);
        let device = DeviceBuffer::new(&context, 8).unwrap();
        let captured = Graph::capture(&stream, (sent, device, received), |(sent, device, received)| {
            // SAFETY: the stream is alive; the graph owns all buffers.
            unsafe { device.copy_from(stream.raw(), sent) }?;
            // SAFETY: as above.
            unsafe { device.copy_to(stream.raw(), received) }
        });
        let mut graph = captured.unwrap();
        assert_eq!(word(&graph.kept().2), 0, "nothing runs while it is captured");
        for _ in 0..2 {
            // SAFETY: the stream is alive; the graph is until the point is done.
            unsafe { graph.launch(stream.raw()) }.unwrap();
            let mut port = stream.port().unwrap();
            until("the graph's end", || port.query().unwrap() == Asked::Done);
            assert_eq!(word(&graph.kept().2), 0x0505_0505_0505_0505);
        }
    });
}

#[test]
fn case_37_a_capture_ends_whatever_comes_of_its_work() {
    on_each(|cuda| {
        let context = cuda.context(0).unwrap();
        let stream = context.stream().unwrap();
        let refuse = || Error::new(ErrorCode::PolledAfterEnd, []);
        let failed = Graph::capture(&stream, (), |()| Err(refuse()));
        assert_eq!(failed.unwrap_err().code(), ErrorCode::PolledAfterEnd, "the error of the work itself");
        stream.port().unwrap();
        let panicked =
            catch_unwind(AssertUnwindSafe(|| Graph::capture(&stream, (), |()| panic!("on purpose"))));
        assert!(panicked.is_err());
        let mut port = stream.port().unwrap();
        until("an empty stream", || port.query().unwrap() == Asked::Done);
        Graph::capture(&stream, (), |()| Ok(())).unwrap();
    });
}

#[test]
fn a_capture_that_is_within_another_is_refused_and_the_other_goes_on() {
    on_each(|cuda| {
        let context = cuda.context(0).unwrap();
        let stream = context.stream().unwrap();
        let outer = Graph::capture(&stream, (), |()| {
            let inner = Graph::capture(&stream, (), |()| Ok(()));
            assert_eq!(inner.unwrap_err().args()[1], "cuStreamBeginCapture");
            assert_eq!(stream.port().unwrap_err().code(), ErrorCode::StreamCapturing);
            Ok(())
        });
        outer.unwrap();
    });
}

#[test]
fn case_30_a_failure_in_a_drop_is_counted_and_no_panic() {
    let (fake, cuda) = loaded();
    let context = cuda.context(0).unwrap();
    let stream = context.stream().unwrap();
    let module = Module::from_ptx(&context, kernels::PTX).unwrap();
    let graph = Graph::capture(&stream, (), |()| Ok(())).unwrap();
    let (host, device) = (HostBuffer::new(&context, 1).unwrap(), DeviceBuffer::new(&context, 1).unwrap());
    for call in ["cuModuleUnload", "cuGraphExecDestroy", "cuMemFreeHost", "cuMemFree"] {
        fake.rule(Rule::new(call, Act::FailAfter(Status::INVALID_VALUE)).times(1));
    }
    drop((module, graph, host, device));
    assert_eq!(cuda.census().counts().drop_failures, 4);
    drop((stream, context));
    clean(&fake);
}
