//! Kernels on tensors: ordered as every use, whatever streams they run in.

#![cfg(not(loom))]
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod common;

use common::{CONFIG, Rig, poll_once};
use wakeline_core::{Clock, Nanos};
use wakeline_ops::DeviceOp;
use wakeline_ops::port::Shape;
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
    let code = std::sync::Arc::new(());
    let tensor: Bytes = rig.run(Tensor::full(4, 5).on(&rig.runtime)).unwrap();
    let kernel = SimKernel::new(RUN, {
        let code = std::sync::Arc::clone(&code);
        move |_| assert_eq!(*code, ())
    });
    // SAFETY: the kernel touches nothing.
    let mut future = unsafe { launch(kernel, ONE, vec![KernelArg::read(&tensor)]) }.on(&rig.runtime);
    assert!(poll_once(&mut future).is_pending());
    drop((future, tensor));
    assert_eq!((std::sync::Arc::strong_count(&code) > 1, rig.device.memory_use().buffers), (true, 1));
    rig.settle();
    assert_eq!(std::sync::Arc::strong_count(&code), 1);
    rig.assert_clean();
}
