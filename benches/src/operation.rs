//! What an operation costs the host, by itself: on a device that does nothing, less the calls of the port that it makes.

use core::hint::black_box;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use wakeline_core::Error;
use wakeline_ops::port::{Device, Priority};
use wakeline_ops::{
    DeviceFuture, DeviceOp, Runtime, SingleStream, StreamPoolRoundRobin, Submission, device_op, value,
};

use noop::{Noop, NoopStream, NoopTender};

// The device of the tests of operations.
#[path = "../../crates/ops/tests/noop/mod.rs"]
mod noop;

/// Keeps something, and has the device do nothing.
struct Keep(Arc<u64>);

impl DeviceOp for Keep {
    type Device = Noop;
    type Pending = u64;
    type Output = u64;

    fn execute(self, submission: &mut Submission<Noop>) -> Result<u64, Error> {
        submission.retain_shared(&self.0);
        Ok(*self.0)
    }

    fn finish(number: u64) -> Result<u64, Error> {
        Ok(number)
    }
}

device_op!([] Keep);

fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// The calls of the port that are taken off.
pub(crate) fn raw(n: u64) -> Result<(), Error> {
    let device = Noop::default();
    let stream = device.stream(Priority::Normal)?;
    for i in 0..n {
        black_box(i);
        black_box(black_box(&device).raw(black_box(&stream))?);
    }
    Ok(())
}

/// An operation of one owner: awaited, submitted, seen to its end in its first poll, let go.
pub(crate) fn awaited(n: u64) -> Result<(), Error> {
    let runtime = Runtime::new(Noop::default(), &StreamPoolRoundRobin::default(), NoopTender::default())?;
    let owner = Arc::new(7);
    for i in 0..n {
        black_box(i);
        black_box(at_once(Keep(Arc::clone(&owner)).on(black_box(&runtime))).transpose()?);
    }
    Ok(())
}

/// An operation of one owner that is handed over in its first poll, and whose end the next one sees: the two parts that [`begin`] and [`end`]
/// are, which are counted by themselves.
pub(crate) fn in_two_polls(n: u64) -> Result<(), Error> {
    let device = Noop { lazy: true, ..Noop::default() };
    let tender = NoopTender { leaves: true, ..NoopTender::default() };
    let runtime = Runtime::new(device.clone(), &SingleStream, tender)?;
    let owner = Arc::new(7);
    for i in 0..n {
        black_box(i);
        let mut future = begin(black_box(&runtime), Arc::clone(&owner));
        device.streams().iter().for_each(NoopStream::store);
        black_box(end(black_box(&mut future))).transpose()?;
    }
    Ok(())
}

/// Builds it, submits it, and hands it over to who tends: the first poll, which pends.
#[inline(never)]
fn begin(runtime: &Runtime<Noop>, owner: Arc<u64>) -> DeviceFuture<Keep> {
    let mut future = Keep(owner).on(runtime);
    let polled = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
    debug_assert!(polled.is_pending());
    future
}

/// Sees its word, lets go what it kept, and gives its output.
#[inline(never)]
fn end(future: &mut DeviceFuture<Keep>) -> Option<Result<u64, Error>> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// The same as [`awaited`] behind a value, a map and a then.
pub(crate) fn chained(n: u64) -> Result<(), Error> {
    let runtime = Runtime::new(Noop::default(), &StreamPoolRoundRobin::default(), NoopTender::default())?;
    let owner = Arc::new(7);
    for i in 0..n {
        let owner = Arc::clone(&owner);
        let op = value(black_box(i)).map(|i| i + 1).then(move |_| Keep(owner));
        black_box(at_once(op.on(black_box(&runtime))).transpose()?);
    }
    Ok(())
}
