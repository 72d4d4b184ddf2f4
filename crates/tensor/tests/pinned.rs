//! Pinned memory of the user's: nobody touches it while a device does.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use core::pin::pin;
use core::task::{Context, Waker};
use std::sync::Arc;

use wakeline_core::ErrorCode;
use wakeline_ops::{DeviceOp, Runtime, SingleStream, StreamPoolRoundRobin};
use wakeline_sim::{SimConfig, SimDevice, VirtualTime, VirtualWatcher};
use wakeline_tensor::{PinnedBuffer, Tensor};

type Numbers = Tensor<u32, SimDevice>;

fn stage() -> (SimDevice, VirtualWatcher, Runtime<SimDevice>) {
    let device = SimDevice::new(VirtualTime::new(), SimConfig::default()).unwrap();
    let watcher = VirtualWatcher::new(&device);
    let runtime = Runtime::new(device.clone(), &StreamPoolRoundRobin::default(), watcher.clone()).unwrap();
    (device, watcher, runtime)
}

#[test]
fn a_buffer_goes_to_the_device_and_comes_back() {
    let (device, watcher, runtime) = stage();
    let numbers: Vec<u32> = (0..1_000).collect();
    let mut buffer = PinnedBuffer::new(&device, 1_000).unwrap();
    buffer.write(0, &numbers[..400]).unwrap();
    buffer.write(400, &numbers[400..]).unwrap();
    let op = Numbers::uninit([10, 100]).then(|tensor| tensor.overwrite_from(buffer));
    let (tensor, mut buffer) = watcher.run(op.on(&runtime)).unwrap().unwrap();
    buffer.write(0, &vec![7; 1_000]).unwrap();
    assert_eq!(watcher.run(tensor.to_host().on(&runtime)).unwrap().unwrap(), numbers);
    let buffer = watcher.run(tensor.fetch_into(buffer).on(&runtime)).unwrap().unwrap();
    assert_eq!(buffer.to_vec().unwrap(), numbers);
    let mut two = [0; 2];
    buffer.read(998, &mut two).unwrap();
    assert_eq!(two, [998, 999]);
}

#[test]
fn a_view_is_fetched_row_by_row() {
    let (device, watcher, runtime) = stage();
    let tensor = watcher.run(Numbers::arange(0, 1, 12).on(&runtime)).unwrap().unwrap();
    let turned = tensor.reshape([3, 4]).unwrap().permute(&[1, 0]).unwrap();
    let buffer = PinnedBuffer::new(&device, 12).unwrap();
    let buffer = watcher.run(turned.fetch_into(buffer).on(&runtime)).unwrap().unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
}

#[test]
fn what_does_not_fit_is_told_before_anything_is_enqueued() {
    let (device, watcher, runtime) = stage();
    let tensor = watcher.run(Numbers::zeros(4).on(&runtime)).unwrap().unwrap();
    let fetch = |len| tensor.fetch_into(PinnedBuffer::new(&device, len).unwrap());
    for len in [0, 3, 5] {
        let error = watcher.run(fetch(len).on(&runtime)).unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidShape, "{error}");
    }
    let shared = tensor.clone();
    let op = shared.overwrite_from(PinnedBuffer::new(&device, 4).unwrap());
    let error = watcher.run(op.on(&runtime)).unwrap().unwrap_err();
    assert_eq!(error.code(), ErrorCode::TensorShared, "{error}");
    let mut buffer = PinnedBuffer::<u32, _>::new(&device, 4).unwrap();
    for (at, count) in [(4, 1), (0, 5), (usize::MAX, 1), (usize::MAX, usize::MAX / 8)] {
        if count < 10 {
            buffer.write(at, &vec![1; count]).unwrap_err();
        }
        let error = buffer.read(at, &mut vec![0; count.min(9)]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidLimit, "{error}");
    }
    buffer.write(4, &[]).unwrap();
    assert_eq!(PinnedBuffer::<u64, _>::new(&device, usize::MAX).unwrap_err().code(), ErrorCode::InvalidShape);
    assert!(PinnedBuffer::<u64, _>::new(&device, 0).unwrap().to_vec().unwrap().is_empty());
}

/// The simulated memory tells of a use that it does not know to be over.
#[test]
fn a_future_that_is_dropped_in_flight_leaves_its_buffer_to_the_device() {
    let config = SimConfig { copy_ns: 5_000_000, ..SimConfig::default() };
    let device = SimDevice::new(VirtualTime::new(), config).unwrap();
    let watcher = VirtualWatcher::new(&device);
    let runtime = Runtime::new(device.clone(), &SingleStream, watcher.clone()).unwrap();
    let tensor = watcher.run(Numbers::full(64, 9).on(&runtime)).unwrap().unwrap();
    let owner = Arc::new(());
    for forgets in [false, true] {
        let buffer = PinnedBuffer::new(&device, 64).unwrap();
        let held = Arc::clone(&owner);
        let op = tensor.fetch_into(buffer).map_host(move |_| drop(held));
        let mut future = Box::pin(op.on(&runtime));
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        if forgets {
            core::mem::forget(future);
        } else {
            drop(future);
        }
        // Others get pinned memory of the same size meanwhile, and not this.
        let mut other = PinnedBuffer::new(&device, 64).unwrap();
        other.write(0, &[3; 64]).unwrap();
        let mut back = pin!(tensor.to_host().on(&runtime));
        assert_eq!(watcher.run(back.as_mut()).unwrap().unwrap(), [9; 64]);
        assert_eq!(other.to_vec().unwrap(), [3; 64]);
    }
    while watcher.turn() {}
    assert_eq!(runtime.counts().in_flight(), 0);
    assert_eq!(runtime.counts().leaked, 0);
}
