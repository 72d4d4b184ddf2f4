//! Memory that runs out, is bounded, is somebody else's, and is in use when its tensor goes.

#![cfg(not(loom))]
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)]

#[path = "../../ops/tests/common/mod.rs"]
mod common;

use std::sync::Arc;

use common::{Busy, Rig, poll_once};
use wakeline_core::{ErrorCode, Nanos};
use wakeline_ops::{DeviceOp, Foreign, Storage, Submission, value, with_context};
use wakeline_sim::{MemoryUse, SimDevice, SimMemory};
use wakeline_tensor::{CHUNK_BYTES, CHUNKS_AT_A_TIME, PoolUse, Pools, Tensor};

type Bytes = Tensor<u8, SimDevice>;

#[test]
fn a_limit_of_the_device_makes_an_error_that_names_what_was_asked_for_and_what_there_may_be() {
    let rig = Rig::new();
    rig.device.limit_device_pool(1_000);
    let most: Bytes = rig.run(Tensor::zeros(900).on(&rig.runtime)).unwrap();
    let error = rig.run(Bytes::zeros(101).on(&rig.runtime)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::OutOfMemory);
    assert_eq!(
        error.to_string(),
        "sim: out of device memory: 101 bytes were asked for (the limit is 1000 bytes, of which 900 are in use)"
    );
    let rest: Bytes = rig.run(Tensor::zeros(100).on(&rig.runtime)).unwrap();
    let usage = rig.device.device_pool().unwrap();
    let wanted =
        PoolUse { in_use_bytes: 1_000, reserved_bytes: 1_000, high_water_bytes: 1_000, limit_bytes: 1_000 };
    assert_eq!(usage, wanted);
    drop(most);
    assert_eq!(rig.device.device_pool().unwrap().in_use_bytes, 100, "free in the order of its stream");
    drop(rig.run(Bytes::zeros(900).on(&rig.runtime)).unwrap());
    drop(rest);
    rig.assert_clean();
    let usage = rig.device.device_pool().unwrap();
    assert_eq!((usage.in_use_bytes, usage.reserved_bytes, usage.high_water_bytes), (0, 0, 1_000));
    rig.device.trim_device_pool(0).unwrap();
}

#[test]
fn a_limit_of_pinned_memory_is_an_error_of_what_needs_it_and_of_nothing_else() {
    let rig = Rig::new();
    let tensor: Bytes = rig.run(Tensor::full(2_000, 3).on(&rig.runtime)).unwrap();
    rig.device.limit_pinned_pool(1_000);
    for error in [
        rig.run(tensor.to_host().on(&rig.runtime)).unwrap_err(),
        rig.run(Tensor::<u8, SimDevice>::from_host(vec![0; 1_001]).on(&rig.runtime)).unwrap_err(),
        rig.run(Tensor::<f32, SimDevice>::randn(251, 0).on(&rig.runtime)).unwrap_err(),
    ] {
        assert_eq!((error.code(), error.args()[1].as_str()), (ErrorCode::OutOfMemory, "pinned"), "{error}");
    }
    let part = tensor.slice(0, ..1_000).unwrap();
    assert_eq!(rig.run(part.to_host().on(&rig.runtime)).unwrap(), [3; 1_000]);
    let copy = rig.run(tensor.dup().on(&rig.runtime)).unwrap();
    drop((tensor, part, copy));
    rig.assert_clean();
    assert_eq!(rig.device.pinned_pool().in_use_bytes, 0);
    rig.device.trim_pinned_pool(0).unwrap();
}

#[test]
fn many_numbers_go_both_ways_through_little_pinned_memory() {
    let rig = Rig::new();
    let len = CHUNK_BYTES / 4 * 5 + 3;
    rig.device.limit_pinned_pool((CHUNK_BYTES * CHUNKS_AT_A_TIME) as u64);
    let numbers: Vec<u32> = (0..).map(|n: u32| n.wrapping_mul(2_654_435_761)).take(len).collect();
    let back = rig.run(async {
        let tensor = Tensor::send_in_chunks(&rig.runtime, len, numbers.clone()).await?;
        // Of a view that does not begin where the memory does.
        tensor.slice(0, 1..)?.fetch_in_chunks(&rig.runtime).await
    });
    assert!(back.unwrap() == numbers[1..]);
    let most = rig.device.pinned_pool().high_water_bytes;
    assert!(most > CHUNK_BYTES as u64 && most <= (CHUNK_BYTES * CHUNKS_AT_A_TIME) as u64, "{most}");
    let wrong = rig.run(Tensor::<_, SimDevice>::send_in_chunks(&rig.runtime, 3, vec![1_u8; 4]));
    assert_eq!(wrong.unwrap_err().code(), ErrorCode::InvalidShape);
    let none = rig.run(Tensor::<u8, SimDevice>::send_in_chunks(&rig.runtime, 0, vec![])).unwrap();
    assert_eq!(rig.run(none.fetch_in_chunks(&rig.runtime)).unwrap(), []);
    drop(none);
    rig.assert_clean();
}

#[test]
fn a_tensor_and_its_views_dropped_in_any_order_in_flight_leave_the_memory_to_the_work() {
    let rig = Rig::new();
    let tensor: Bytes = rig.run(Tensor::full([4, 4], 1).on(&rig.runtime)).unwrap();
    let column = tensor.select(1, 2).unwrap();
    let mut reading = column.to_host().on(&rig.runtime);
    let mut copying = tensor.dup().on(&rig.runtime);
    assert!(poll_once(&mut reading).is_pending() && poll_once(&mut copying).is_pending());
    drop((tensor, copying));
    drop(column);
    assert!(rig.device.memory_use().buffers > 0, "the work keeps it");
    assert_eq!(rig.run(reading).unwrap(), [1; 4]);
    rig.assert_clean();
}

#[test]
fn zero_sized_tensors_do_everything_and_touch_nothing() {
    let rig = Rig::new();
    let none: Bytes = rig.run(Tensor::zeros([0, 5]).on(&rig.runtime)).unwrap();
    assert_eq!((none.len(), none.is_empty(), none.shape()), (0, true, &[0, 5][..]));
    let copy = rig.run(none.dup().on(&rig.runtime)).unwrap();
    let copy = rig.run(none.copy_to(copy).on(&rig.runtime)).unwrap();
    let turned = copy.transpose().unwrap();
    assert_eq!(rig.run(turned.to_host().on(&rig.runtime)).unwrap(), []);
    drop(turned);
    let copy = rig.run(copy.reshape([3, 0]).unwrap().overwrite(vec![]).on(&rig.runtime)).unwrap();
    assert_eq!(rig.run(Tensor::<f64, SimDevice>::rand(0, 1).on(&rig.runtime)).unwrap().len(), 0);
    drop((none, copy));
    rig.assert_clean();
}

#[test]
fn a_view_of_an_empty_tensor_lies_within_its_memory() {
    let rig = Rig::new();
    let none: Bytes = rig.run(Tensor::zeros([0, 100]).on(&rig.runtime)).unwrap();
    let column = none.select(1, 99).unwrap();
    assert_eq!(column.span().offset_bytes, 0, "of memory of {} bytes", column.storage().len_bytes());
    assert_eq!(none.slice(1, 50..).unwrap().span().offset_bytes, 0);
    rig.run(column.to_host().on(&rig.runtime)).unwrap();
    drop((none, column));
    // However long its other dimensions are.
    let none: Bytes = rig.run(Tensor::zeros([0, usize::MAX, usize::MAX]).on(&rig.runtime)).unwrap();
    let view = none.select(2, usize::MAX - 1).unwrap().select(1, usize::MAX - 1).unwrap();
    assert_eq!((view.shape(), view.span().offset_bytes), (&[0][..], 0));
    assert_eq!(rig.run(view.to_host().on(&rig.runtime)).unwrap(), []);
    drop((none, view));
    rig.assert_clean();
}

/// Memory that another library has, of which it wants to know when it is let go.
struct Theirs {
    memory: SimMemory,
    _kept: Arc<()>,
}

fn lend(
    kept: &Arc<()>,
) -> impl DeviceOp<Device = SimDevice, Pending = Foreign<SimDevice>, Output = Foreign<SimDevice>> + use<> {
    let kept = Arc::clone(kept);
    with_context(move |submission: &mut Submission<SimDevice>| {
        let memory = submission.stream().raw().alloc(8)?;
        let theirs = Theirs { memory: memory.clone(), _kept: kept };
        // SAFETY: the memory is the device's and never freed; it was allocated in this stream.
        unsafe { Storage::foreign(submission, memory, 8, theirs) }.map(value)
    })
}

#[test]
fn memory_of_others_is_kept_until_the_last_use_is_done_and_never_freed() {
    let (rig, kept) = (Rig::new(), Arc::new(()));
    let tensor = Tensor::<u32, _>::from_foreign(rig.run(lend(&kept).on(&rig.runtime)).unwrap(), 2).unwrap();
    let tensor = rig.run(tensor.overwrite(vec![5, 6]).on(&rig.runtime)).unwrap();
    let mut reading = tensor.to_host().on(&rig.runtime);
    assert!(poll_once(&mut reading).is_pending());
    drop(tensor);
    assert_eq!(Arc::strong_count(&kept), 2, "the work keeps it");
    assert_eq!(rig.run(reading).unwrap(), [5, 6]);
    rig.settle();
    assert_eq!(Arc::strong_count(&kept), 1);
    assert_eq!(rig.device.memory_use(), MemoryUse { buffers: 1, pinned: 0 }, "that is for them to free");
    assert_eq!(rig.device.misuses(), []);
}

#[test]
fn memory_of_others_is_given_back_when_nothing_uses_it() {
    let (rig, kept) = (Rig::new(), Arc::new(()));
    let tensor =
        Tensor::<u8, _>::from_foreign(rig.run(lend(&kept).on(&rig.runtime)).unwrap(), [2, 3]).unwrap();
    let mut busy = Busy(Nanos::from_millis(1), ()).on(&rig.runtime);
    let mut reading = tensor.to_host().on(&rig.runtime);
    assert!(poll_once(&mut busy).is_pending() && poll_once(&mut reading).is_pending());
    let (tensor, error) = tensor.give_back::<Theirs>().map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::StillInFlight, "{error}");
    let view = tensor.select(0, 1).unwrap();
    let (tensor, error) = tensor.give_back::<Theirs>().map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TensorShared, "{error}");
    drop(view);
    rig.run(reading).unwrap();
    let (tensor, error) = tensor.give_back::<String>().unwrap_err();
    assert!(error.to_string().contains("String"), "{error}");
    assert_eq!(tensor.shape(), [2, 3], "as it was");
    let theirs = tensor.give_back::<Theirs>().map_err(|(_, error)| error).unwrap();
    assert_eq!((theirs.memory.len(), Arc::strong_count(&kept)), (8, 2));
    // What was allocated here has no owner to be given.
    let own: Bytes = rig.run(Tensor::zeros(3).on(&rig.runtime)).unwrap();
    let (own, _) = own.give_back::<Theirs>().map(drop).unwrap_err();
    assert_eq!(rig.run(own.to_host().on(&rig.runtime)).unwrap(), [0; 3]);
    let long = Tensor::<u64, _>::from_foreign(rig.run(lend(&kept).on(&rig.runtime)).unwrap(), 2).unwrap_err();
    assert_eq!(long.to_string(), "the length of a tensor, in bytes, is 16, but must be from 0 to 8");
    rig.settle();
    assert_eq!(rig.device.misuses(), []);
}
