//! Kernels on tensors: ordered as every use, whatever streams they run in.

#![cfg(not(loom))]
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{CONFIG, Rig, poll_once};
use wakeline_core::{Clock, Nanos};
use wakeline_ops::port::{At, Memory, Pattern, Promise, Shape};
use wakeline_ops::{DeviceOp, SingleStream, Storage, Submission, value, with_context};
use wakeline_sim::{SimDevice, SimKernel};
use wakeline_tensor::{KernelArg, Launch, Tensor, launch};

type Bytes = Tensor<u8, SimDevice>;

const ONE: Shape = Shape::new([1; 3], [1; 3]);
const RUN: Nanos = Nanos::from_micros(20);

/// Multiplies all bytes and adds a number to each, in an operation of its own.
fn step(tensor: &Bytes, by: u64, plus: u64) -> Launch<SimDevice> {
    let kernel = SimKernel::new(RUN, |args| {
        let (by, plus) = (args.word(1), args.word(2));
        args.bytes_mut(0).iter_mut().for_each(|byte| *byte = (u64::from(*byte) * by + plus).to_le_bytes()[0]);
    });
    let args = vec![KernelArg::write(tensor), KernelArg::word(by), KernelArg::word(plus)];
    // SAFETY: the kernel takes bytes and two numbers, and writes those bytes only.
    unsafe { launch(kernel, ONE, args) }
}

#[test]
fn kernels_in_several_streams_write_one_tensor_in_the_order_of_their_submission() {
    let rig = Rig::new();
    let tensor: Bytes = rig.run(Tensor::full(4, 1).on(&rig.runtime)).unwrap();
    let start = rig.watcher.now();
    let mut flying: Vec<_> = (0..5).map(|plus| step(&tensor, 3, plus).on(&rig.runtime)).collect();
    for future in &mut flying {
        assert!(poll_once(future).is_pending());
    }
    let wanted = (0..5).fold(1_u64, |byte, plus| byte * 3 + plus);
    let bytes = rig.run(tensor.to_host().on(&rig.runtime)).unwrap();
    assert_eq!(bytes, [wanted.to_le_bytes()[0]; 4]);
    let runs = Nanos::from_nanos(5 * RUN.as_nanos() + CONFIG.copy_ns);
    assert_eq!(rig.watcher.now().since(start), runs, "one after another");
    drop((flying, tensor));
    rig.assert_clean();
}

#[test]
fn a_tensor_named_twice_is_one_use_that_writes() {
    let rig = Rig::new();
    let tensor: Bytes = rig.run(Tensor::full(4, 5).on(&rig.runtime)).unwrap();
    let square = SimKernel::new(RUN, |args| {
        let from = args.bytes(0).to_vec();
        args.bytes_mut(1).iter_mut().zip(from).for_each(|(to, from)| *to *= from);
    });
    let args = vec![KernelArg::read(&tensor), KernelArg::write(&tensor)];
    // SAFETY: the kernel takes two runs of bytes, and writes the second only.
    let mut squared = unsafe { launch(square, ONE, args) }.on(&rig.runtime);
    assert!(poll_once(&mut squared).is_pending());
    assert_eq!(rig.run(tensor.to_host().on(&rig.runtime)).unwrap(), [25; 4]);
    drop((squared, tensor));
    rig.assert_clean();
}

#[test]
fn a_kernel_whose_future_is_dropped_keeps_its_tensor_and_its_code() {
    let rig = Rig::new();
    let code = Arc::new(());
    let tensor: Bytes = rig.run(Tensor::full(4, 5).on(&rig.runtime)).unwrap();
    let kernel = SimKernel::new(RUN, {
        let code = Arc::clone(&code);
        move |_| assert_eq!(*code, ())
    });
    // SAFETY: the kernel touches nothing.
    let mut future = unsafe { launch(kernel, ONE, vec![KernelArg::read(&tensor)]) }.on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending());
    drop((future, tensor));
    assert_eq!((Arc::strong_count(&code) > 1, rig.device.memory_use().buffers), (true, 1));
    rig.settle();
    assert_eq!(Arc::strong_count(&code), 1);
    rig.assert_clean();
}

#[test]
fn of_two_places_of_one_stream_the_one_that_ends_last_is_waited_for_too() {
    let rig = Rig::new();
    let made = || {
        let alloc =
            with_context(|submission: &mut Submission<SimDevice>| Ok(value(Storage::alloc(submission, 64)?)));
        rig.run(alloc.on(&rig.runtime)).unwrap()
    };
    let (x, y) = (made(), made());
    rig.settle();
    let fill = |storage: &Arc<Storage<SimDevice>>| {
        let storage = Arc::clone(storage);
        with_context(move |submission: &mut Submission<SimDevice>| {
            submission.touch(&[storage.write()], |device, stream| {
                // SAFETY: the storage stays until this is done, and `touch` orders what else uses it.
                let promise = unsafe { Promise::new() };
                device.fill(stream, At::from(storage.buffer()), Pattern::One(1), 64, promise)
            })?;
            Ok(value(()))
        })
    };
    let [single, other] = [(); 2].map(|()| rig.runtime.with_policy(&SingleStream).unwrap());
    let (first, within, one) = (fill(&y), fill(&x), single.clone());
    let (from, to) = (Arc::clone(&x), Arc::clone(&y));
    let goes_on = with_context(move |submission: &mut Submission<SimDevice>| {
        first.execute(submission)?;
        // Another thread submits in the same stream, and is through before this is.
        std::thread::spawn(move || assert!(poll_once(&mut within.on(&one)).is_pending())).join().unwrap();
        submission.touch(&[from.read(), to.write()], |device, stream| {
            // SAFETY: as above.
            let promise = unsafe { Promise::new() };
            device.copy(stream, At::from(from.buffer()), At::from(to.buffer()), 64, promise)
        })?;
        Ok(value(()))
    });
    let mut goes_on = goes_on.on(&single);
    assert!(poll_once(&mut goes_on).is_pending());
    // It comes behind the other thread's write and the read that is behind that.
    assert!(poll_once(&mut fill(&x).on(&other)).is_pending());
    drop((goes_on, x, y));
    rig.assert_clean();
}
