//! An operation allocates nothing, once as many have been in flight at a time: counted.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::panic, unsafe_code)]

mod noop;

use std::alloc::System;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use noop::{Noop, NoopKernel, NoopTender};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use wakeline_core::Error;
use wakeline_ops::port::{Priority, Shape};
use wakeline_ops::{Completion, DeviceOp, Graph, Runtime, RuntimeConfig, StreamPoolRoundRobin, value, zip};
use wakeline_std::{Point, Watcher, block_on};
use wakeline_tensor::{KernelArg, Tensor, kernel, launch};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SHAPE: Shape = Shape::new([1; 3], [1; 3]);

kernel! { struct Typed(out z: [u8], in a: [u8], in b: [u8], in c: [u8], in d: [u8], x: u8, y: f64, n: u32); }

/// A chain of every kind that does not allocate by what it is.
fn chain(tensor: Arc<Tensor<u8, Noop>>) -> impl DeviceOp<Device = Noop, Output = u32> {
    value(20_u32)
        .map(|n| n + 1)
        .then(move |n| {
            let args = [KernelArg::write(&*tensor), KernelArg::read(&*tensor), KernelArg::word(n.into())];
            // SAFETY: the kernel does nothing.
            unsafe { launch(NoopKernel, SHAPE, args) }.map(move |()| n)
        })
        .map_host(|n| n * 2)
}

/// One that goes apart into several streams and comes together again, twice. What it keeps fits in four places.
fn diamond() -> impl DeviceOp<Device = Noop, Output = u32> {
    // SAFETY: the kernel does nothing.
    let work = || unsafe { launch::<Noop>(NoopKernel, SHAPE, [KernelArg::word(1)]) };
    work()
        .then(move |()| zip!(zip!(work(), 20_u32), work()).first().last().inspect(|n| assert_eq!(*n, 20)))
        .and_then_with_context(|submission, n| {
            submission.retain(n);
            Ok(value(n + 1))
        })
        .map_host(|n| n * 2)
}

fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it was to be done in its first poll"),
    }
}

fn allocations(times: usize, mut run: impl FnMut() -> Result<u32, Error>) -> usize {
    for _ in 0..300 {
        assert_eq!(run().unwrap(), 42);
    }
    let region = Region::new(ALLOCATOR);
    for _ in 0..times {
        assert_eq!(run().unwrap(), 42);
    }
    let change = region.change();
    change.allocations + change.reallocations
}

/// One test, for the counter is the whole process's.
#[test]
fn operations_allocate_nothing() {
    // The harness's own thread allocates for a moment after it has started this one, and all threads are counted.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let policy = StreamPoolRoundRobin::default();
    let tender = NoopTender::default();
    let runtime = Runtime::new(Noop::default(), &policy, tender.clone()).unwrap();
    let tensor = Arc::new(Tensor::<u8, _>::full(8, 1).on(&runtime).sync().unwrap());
    let done_in_the_poll = || at_once(chain(Arc::clone(&tensor)).on(&runtime));
    assert_eq!(allocations(1_000, done_in_the_poll), 0, "done in its first poll");
    let on_the_spot = || chain(Arc::clone(&tensor)).on(&runtime).sync();
    assert_eq!(allocations(1_000, on_the_spot), 0, "waited for on the spot");
    let branches = || at_once(diamond().on(&runtime));
    assert_eq!(allocations(1_000, branches), 0, "in several streams");
    // As many arguments as are kept without one; some of them borrowed.
    // SAFETY: the kernel does nothing.
    let typed = unsafe { Typed::bind(runtime.device(), NoopKernel) }.unwrap();
    let mut written = Tensor::<u8, _>::full(8, 1).on(&runtime).sync().unwrap();
    let other = Tensor::<u8, _>::full(8, 1).on(&runtime).sync().unwrap();
    let borrowed = || {
        let call = typed.call(&mut written, &*tensor, Arc::clone(&tensor), &other, &*tensor, 1, 2.0, 42);
        at_once(call.on(&runtime)).map(|(.., n)| n)
    };
    assert_eq!(allocations(1_000, borrowed), 0, "a typed launch");
    // A graph of as many buffers as a launch has room for.
    let tensors: Vec<_> = (0..31).map(|_| Tensor::<u8, _>::full(8, 1).on(&runtime).sync().unwrap()).collect();
    let graph = Graph::scope(&runtime.stream(Priority::Normal).unwrap(), |graph| {
        // SAFETY: the kernel does nothing.
        let write = |tensor| unsafe { launch(NoopKernel, SHAPE, [KernelArg::write(tensor)]) };
        tensors.iter().try_for_each(|tensor| graph.record(write(tensor)))
    });
    let graph = graph.unwrap();
    let launched = || at_once(graph.launch().on(&runtime)).map(|()| 42);
    assert_eq!(allocations(1_000, launched), 0, "the launch of a graph");
    let mut scope = Box::pin(runtime.scope(async {
        let run = || at_once(chain(Arc::clone(&tensor)).into_future());
        assert_eq!(allocations(1_000, run), 0, "in a scope");
    }));
    at_once(&mut scope);
    let each = RuntimeConfig::default().spin_us(0).unwrap();
    let handed = Runtime::with_config(Noop::default(), &policy, tender.clone(), each).unwrap();
    let tensor = Arc::new(Tensor::<u8, _>::full(8, 1).on(&handed).sync().unwrap());
    tender.tended.store(false, Ordering::Relaxed);
    let run = || at_once(chain(Arc::clone(&tensor)).on(&handed));
    assert_eq!(allocations(1_000, run), 0, "handed over");
    assert!(tender.tended.load(Ordering::Relaxed));
    handed_to_a_watcher(each);
    handed_to_a_watcher(each.completion(Completion::Word));
}

/// The way to the watcher's thread makes an allocation for every 31.
fn handed_to_a_watcher(config: RuntimeConfig) {
    let device = Noop { lazy: true, ..Noop::default() };
    let watcher = Watcher::new().unwrap();
    let tender = watcher.handle().tender(&Point::new("ops"));
    let runtime =
        Runtime::with_config(device.clone(), &StreamPoolRoundRobin::default(), tender, config).unwrap();
    let tensor = Arc::new(Tensor::<u8, _>::full(8, 1).on(&runtime).sync().unwrap());
    let (streams, ends) = (device.streams(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                streams.iter().for_each(noop::NoopStream::store);
                std::thread::yield_now();
            }
        });
        let one = async || assert_eq!(chain(Arc::clone(&tensor)).on(&runtime).await.unwrap(), 42);
        let all = block_on(async {
            for _ in 0..300 {
                one().await;
            }
            let region = Region::new(ALLOCATOR);
            for _ in 0..3_100 {
                one().await;
            }
            let change = region.change();
            change.allocations + change.reallocations
        });
        ends.store(true, Ordering::Relaxed);
        // And now and then one more where a queue grows, on a machine that is busy.
        assert!(all <= 140, "{all}");
    });
    watcher.close(Watcher::CLOSE).unwrap();
    assert_eq!((runtime.counts().in_flight(), runtime.counts().leaked), (0, 0));
}
