//! Conflicting operations on one tensor are ordered on the device, whichever streams they run in.

use std::sync::Arc;
use std::time::Instant as Wall;

use wakeline_core::ErrorCode;
use wakeline_mapped::{ContextConfig, DEVICE_BYTES_KEPT, OpDevice};
use wakeline_ops::port::{Device as _, Priority};
use wakeline_ops::{DeviceOp, Runtime, SingleStream};
use wakeline_std::{Point, Watcher, block_on};
use wakeline_tensor::Tensor;
use wakeline_tests::device_tests;
use wakeline_tests::ops_rig::{OpsRig, VendorRig, poll_once, until};

use crate::ms;
use wakeline_tests::vendor::Vendor;

device_tests![
    Everywhere: a_read_in_another_stream_waits_for_the_write_on_the_device,
        kernels_in_several_streams_write_one_tensor_in_the_order_of_their_submission,
        a_write_waits_for_the_reads_before_it,
        two_threads_that_copy_in_circles_are_ordered_and_end,
        a_tensor_dropped_while_another_stream_uses_it_is_freed_behind_that,
        a_tensor_of_another_runtime_is_an_error_and_nothing_is_enqueued;
    Vendors: case_57_an_event_is_recorded_on_its_own_contexts_streams_and_waited_for_on_any;
];

fn a_read_in_another_stream_waits_for_the_write_on_the_device<R: OpsRig>(rig: &R) {
    let single = rig.runtime().with_policy(&SingleStream).unwrap();
    let other = rig.runtime().stream(Priority::Normal).unwrap();
    let tensor: Tensor<u32, R::Device> = block_on(Tensor::full(1_000, 4).on(&single)).unwrap();
    let start = Wall::now();
    let mut before = rig.occupy(ms(30)).on(&single);
    let mut written = rig.affine(&tensor, 3, 1).on(&single);
    assert!(poll_once(&mut before).is_pending() && poll_once(&mut written).is_pending());
    assert_eq!(tensor.to_host().sync_on(&other).unwrap(), [13; 1_000]);
    assert!(start.elapsed().as_nanos() >= ms(30).as_nanos().into());
    drop((before, written, tensor));
    rig.settle_clean();
}

fn kernels_in_several_streams_write_one_tensor_in_the_order_of_their_submission<R: OpsRig>(rig: &R) {
    let tensor: Tensor<u32, R::Device> = block_on(Tensor::full(4_096, 1).on(rig.runtime())).unwrap();
    let mut flying: Vec<_> =
        (0..100).map(|addend| rig.affine(&tensor, 3, addend).on(rig.runtime())).collect();
    for future in &mut flying {
        let _ = poll_once(future);
    }
    let wanted = (0..100_u32).fold(1_u32, |number, addend| number.wrapping_mul(3).wrapping_add(addend));
    let numbers = block_on(tensor.to_host().on(rig.runtime())).unwrap();
    assert!(numbers.iter().all(|number| *number == wanted), "{wanted}: {:?}", &numbers[..4]);
    drop((flying, tensor));
    rig.settle_clean();
}

fn a_write_waits_for_the_reads_before_it<R: OpsRig>(rig: &R) {
    let single = rig.runtime().with_policy(&SingleStream).unwrap();
    let tensor: Tensor<u32, R::Device> = block_on(Tensor::full(1_000, 1).on(rig.runtime())).unwrap();
    let mut before = rig.occupy(ms(30)).on(&single);
    let mut slow = tensor.to_host().on(&single);
    assert!(poll_once(&mut before).is_pending() && poll_once(&mut slow).is_pending());
    let mut quick = tensor.to_host().on(rig.runtime());
    let _ = poll_once(&mut quick);
    let mut written = rig.affine(&tensor, 0, 2).on(rig.runtime());
    let _ = poll_once(&mut written);
    assert_eq!(block_on(tensor.to_host().on(rig.runtime())).unwrap(), [2; 1_000]);
    assert_eq!(block_on(slow).unwrap(), [1; 1_000], "it was submitted before the write");
    drop((before, quick, written, tensor));
    rig.settle_clean();
}

fn two_threads_that_copy_in_circles_are_ordered_and_end<R: OpsRig>(rig: &R) {
    let make = |number| block_on(Tensor::<u32, R::Device>::full(8, number).on(rig.runtime())).unwrap();
    let (first, second) = (Arc::new(make(1)), Arc::new(make(2)));
    let runtime = rig.runtime();
    // Each thread reads one tensor and then the other, the two in opposite orders.
    std::thread::scope(|scope| {
        for (from, to) in [(&first, &second), (&second, &first)] {
            scope.spawn(move || {
                for _ in 0..60 {
                    let (from, to) = (Arc::clone(from), Arc::clone(to));
                    let op =
                        Tensor::full(8, 0).then(move |target: Tensor<u32, R::Device>| from.copy_to(target));
                    let mut future = op.then(move |target| to.copy_to(target)).on(runtime);
                    let _ = poll_once(&mut future);
                }
            });
        }
    });
    drop((first, second));
    rig.settle_clean();
}

fn a_tensor_dropped_while_another_stream_uses_it_is_freed_behind_that<R: OpsRig>(rig: &R) {
    let single = rig.runtime().with_policy(&SingleStream).unwrap();
    let tensor: Tensor<u32, R::Device> = block_on(Tensor::full(512, 9).on(rig.runtime())).unwrap();
    let mut before = rig.occupy(ms(30)).on(&single);
    let mut read = tensor.to_host().on(&single);
    assert!(poll_once(&mut before).is_pending() && poll_once(&mut read).is_pending());
    drop(tensor);
    // Memory that is given out anew is filled while the read is still to come.
    let others: Vec<_> = (0..8).map(|n| block_on(Tensor::full(512, n).on(rig.runtime())).unwrap()).collect();
    assert_eq!(block_on(read).unwrap(), [9; 512]);
    drop((before, others));
    rig.settle_clean();
}

fn a_tensor_of_another_runtime_is_an_error_and_nothing_is_enqueued<R: OpsRig>(rig: &R) {
    let watcher = Watcher::new().unwrap();
    let tender = watcher.handle().tender(&Point::new("other"));
    let tensor = block_on(Tensor::<u32, R::Device>::full(8, 1).on(rig.runtime())).unwrap();
    // Another runtime of the same device, not made from this one.
    let other = Runtime::new(rig.runtime().device().clone(), &SingleStream, tender).unwrap();
    let error = block_on(tensor.to_host().on(&other)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ForeignMemory);
    until("what the failed submission keeps is seen to its end", || other.counts().landed == 1);
    drop((tensor, other));
    watcher.close(Watcher::CLOSE).unwrap();
    rig.settle_clean();
}

/// An event was recorded on a stream of another context.
fn case_57_an_event_is_recorded_on_its_own_contexts_streams_and_waited_for_on_any<D: Vendor>(
    rig: &VendorRig<D>,
) {
    let context = rig.rig().context_beside(&ContextConfig::default()).unwrap();
    let (here, there) = (rig.device(), OpDevice::in_context(context, DEVICE_BYTES_KEPT).unwrap());
    let (source, destination) =
        (here.stream(Priority::Normal).unwrap(), there.stream(Priority::Normal).unwrap());
    let event = here.event().unwrap();
    let error = here.record(&destination, &event).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ForeignStream, "{error}");
    let start = Wall::now();
    rig.rig().kernels().occupy(&source, ms(30)).unwrap();
    here.record(&source, &event).unwrap();
    there.wait(&destination, &event).unwrap();
    let mut point = there.point(&destination).unwrap();
    while wakeline_core::CompletionPort::query(&mut point).unwrap() == wakeline_core::Status::Pending {}
    assert!(start.elapsed().as_nanos() >= ms(30).as_nanos().into(), "{:?}", start.elapsed());
    assert_eq!(
        wakeline_ops::port::Memory::alloc(here, &destination, 8).unwrap_err().code(),
        ErrorCode::ForeignStream
    );
}
