//! Partitions: tiles cover each number once, who else names the memory is told, and what is lent comes back.

#![cfg(not(loom))]
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)]

#[path = "../../ops/tests/common/mod.rs"]
mod common;

use common::{CONFIG, Rig, poll_once};
use proptest::prelude::*;
use wakeline_core::{Clock, Error, ErrorCode, Nanos};
use wakeline_ops::port::Shape;
use wakeline_ops::port::{Launch as _, Promise};
use wakeline_ops::{DeviceOp, Submission, device_op};
use wakeline_sim::{SimDevice, SimKernel};
use wakeline_tensor::{IntoPartition, KernelArg, Lent, Partition, Tensor, TensorOp, launch};

type Bytes = Tensor<u8, SimDevice>;

const ONE: Shape = Shape::new([1; 3], [1; 3]);
const RUN: Nanos = Nanos::from_micros(50);

fn bytes(rig: &Rig, dims: &[usize], byte: u8) -> Bytes {
    rig.run(Tensor::full(dims, byte).on(&rig.runtime)).unwrap()
}

/// Adds to all bytes, slowly.
struct Add(std::sync::Arc<wakeline_ops::Storage<SimDevice>>, u64);

impl DeviceOp for Add {
    type Device = SimDevice;
    type Pending = ();
    type Output = ();

    fn execute(self, submission: &mut Submission<SimDevice>) -> Result<(), Error> {
        let kernel = SimKernel::new(RUN, |args| {
            let plus = args.word(1).to_le_bytes()[0];
            args.bytes_mut(0).iter_mut().for_each(|byte| *byte = byte.wrapping_add(plus));
        });
        let Self(storage, plus) = self;
        submission.touch(&[storage.write()], |device, stream| {
            let args = [
                wakeline_ops::port::Arg::Write(storage.buffer().into()),
                wakeline_ops::port::Arg::Word(plus),
            ];
            // SAFETY: the submission keeps the storage, and `touch` orders what else uses it; the kernel writes its bytes only.
            let promise = unsafe { Promise::new() };
            device.launch(stream, &kernel, ONE, &args, promise)
        })
    }

    fn finish((): ()) -> Result<(), Error> {
        Ok(())
    }
}

device_op!([] Add);

/// What a launcher of kernels does with a partition of a borrowed tensor.
fn add(tiles: Partition<&mut Bytes>, plus: u64) -> Lent<Add, Partition<&mut Bytes>> {
    let op = Add(std::sync::Arc::clone(tiles.span().storage), plus);
    Lent::new(op, tiles)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn tiles_cover_each_number_once(
        (dims, tile) in proptest::collection::vec((0_usize..7, 1_usize..9), 0..4).prop_map(|both| {
            both.into_iter().unzip::<usize, usize, Vec<_>, Vec<_>>()
        })
    ) {
        let rig = Rig::new();
        let tiles = bytes(&rig, &dims, 0).partition(tile.clone()).unwrap();
        let grid = tiles.grid();
        for ((len, tile), count) in dims.iter().zip(&tile).zip(grid.iter()) {
            prop_assert_eq!(*count, len.div_ceil(*tile));
        }
        let (mut covered, mut found) = (0, 0);
        // One more along each dimension: what is behind the last is none.
        let all: Vec<usize> = grid.iter().map(|count| count + 1).collect();
        for mut rest in 0..all.iter().product() {
            let mut number = vec![0; all.len()];
            for axis in (0..all.len()).rev() {
                number[axis] = rest % all[axis];
                rest /= all[axis];
            }
            let there = number.iter().zip(grid.iter()).all(|(number, count)| number < count);
            let at = tiles.tile_at(&number);
            prop_assert_eq!(at.is_some(), there);
            if let Some(at) = at {
                found += 1;
                covered += at.dims.iter().product::<usize>();
                for axis in 0..dims.len() {
                    prop_assert_eq!(at.start[axis], number[axis] * tile[axis]);
                    prop_assert_eq!(at.dims[axis], tile[axis].min(dims[axis] - at.start[axis]));
                }
            }
        }
        prop_assert_eq!((found, covered), (tiles.tiles(), dims.iter().product::<usize>()));
        prop_assert!(tiles.tile_at(&vec![usize::MAX; dims.len()]).is_none() || dims.is_empty());
        prop_assert!(tiles.tile_at(&vec![0; dims.len() + 1]).is_none());
        drop(tiles);
        rig.assert_clean();
    }
}

#[test]
fn tiles_that_do_not_fit_are_told() {
    let rig = Rig::new();
    let error = bytes(&rig, &[4, 4], 0).partition(2).unwrap_err();
    assert_eq!(error.to_string(), "shape [2]: a tile of 1 dimension(s) for a tensor [4, 4] of 2");
    let error = bytes(&rig, &[4, 4], 0).partition([2, 0]).unwrap_err();
    assert_eq!((error.code(), error.args()[0].as_str()), (ErrorCode::InvalidShape, "[2, 0]"));
    let error = rig.run(Tensor::<u8, SimDevice>::zeros(4).partition([1, 1]).on(&rig.runtime)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidShape, "of an operation it is the operation's");
    rig.assert_clean();
}

#[test]
fn memory_that_somebody_else_names_is_not_to_be_written() {
    let rig = Rig::new();
    let shared = |error: Error| assert_eq!(error.code(), ErrorCode::TensorShared, "{error}");
    let mut tensor = bytes(&rig, &[8], 1);
    let clone = tensor.clone();
    shared((&mut tensor).partition(2).unwrap_err());
    shared(rig.run(bytes(&rig, &[8], 2).copy_to(clone).on(&rig.runtime)).unwrap_err());
    let view = tensor.slice(0, 2..4).unwrap();
    shared((&mut tensor).partition(2).unwrap_err());
    let other = bytes(&rig, &[8], 2);
    shared(rig.run(async { other.copy_into(&mut tensor).on(&rig.runtime).await.map(drop) }).unwrap_err());
    drop(view);
    // An operation that did not run yet is a name; one in flight is none.
    let read = tensor.to_host();
    shared((&mut tensor).partition(2).unwrap_err());
    let mut read = read.on(&rig.runtime);
    assert!(poll_once(&mut read).is_pending());
    let tiles = (&mut tensor).partition(2).unwrap();
    let mut written = add(tiles, 5).on(&rig.runtime);
    assert!(poll_once(&mut written).is_pending());
    assert_eq!(rig.run(read).unwrap(), [1; 8], "as it was when the read was submitted");
    let ((), tiles) = rig.run(written).unwrap();
    assert_eq!(rig.run(tiles.unpartition().to_host().on(&rig.runtime)).unwrap(), [6; 8]);
    shared(rig.run(async { tensor.clone().overwrite(vec![0; 8]).on(&rig.runtime).await }).unwrap_err());
    drop((tensor, other));
    rig.assert_clean();
}

#[test]
fn a_borrow_whose_future_is_dropped_or_forgotten_in_flight_leaves_the_tensor_ordered_behind_the_work() {
    let rig = Rig::new();
    let mut tensor = bytes(&rig, &[8], 1);
    for (rounds, forget) in (1_u8..).zip([false, true, false]) {
        let start = rig.watcher.now();
        let mut flying = add((&mut tensor).partition(2).unwrap(), 1).on(&rig.runtime);
        assert!(poll_once(&mut flying).is_pending());
        if forget {
            std::mem::forget(flying);
        } else {
            drop(flying);
        }
        // The device still writes; the tensor can be named again, and what reads it comes behind that.
        let read = rig.run(tensor.to_host().on(&rig.runtime)).unwrap();
        assert_eq!(read, [1 + rounds; 8]);
        assert!(rig.watcher.now().since(start) >= RUN);
    }
    // Dropped while it is written: the memory goes behind that.
    let mut flying = add((&mut tensor).partition(2).unwrap(), 1).on(&rig.runtime);
    assert!(poll_once(&mut flying).is_pending());
    std::mem::forget(flying);
    drop(tensor);
    rig.settle();
    assert_eq!(rig.device.misuses(), []);
    assert_eq!(rig.device.memory_use().buffers, 0);
    assert_eq!(rig.runtime.counts().in_flight(), 0);
}

#[test]
fn a_borrowed_operation_runs_in_every_way_and_an_error_just_ends_the_borrow() {
    let rig = Rig::new();
    let mut tensor = bytes(&rig, &[4], 0);
    let from = bytes(&rig, &[4], 7);
    let stream = rig.runtime.stream(wakeline_ops::port::Priority::Normal).unwrap();
    from.copy_into(&mut tensor).sync_on(&stream).unwrap();
    from.copy_into(&mut tensor).on(&rig.runtime).sync().unwrap();
    rig.run(rig.runtime.scope(async { from.copy_into(&mut tensor).await.map(drop) })).unwrap();
    assert_eq!(from.copy_into(&mut tensor).sync().unwrap_err().code(), ErrorCode::NoRuntime);
    let short = bytes(&rig, &[3], 0);
    let error = short.copy_into(&mut tensor).on(&rig.runtime).sync().unwrap_err();
    assert_eq!(error.to_string(), "shape [4]: it is to take a copy of [3]: the two must be alike");
    assert_eq!(rig.run(tensor.to_host().on(&rig.runtime)).unwrap(), [7; 4]);
    drop((tensor, from, short));
    rig.assert_clean();
}

#[test]
fn a_fault_poisons_what_was_to_be_written_and_every_later_use() {
    let rig = Rig::new();
    let mut tensor = bytes(&rig, &[8], 1);
    let mut flying = add((&mut tensor).partition(2).unwrap(), 1).on(&rig.runtime);
    assert!(poll_once(&mut flying).is_pending());
    rig.device.inject_fault();
    let cause = rig.run(flying).unwrap_err();
    assert_eq!(cause.code(), ErrorCode::Backend);
    let later = rig.run(tensor.to_host().on(&rig.runtime)).unwrap_err();
    assert_eq!(later.to_string(), cause.to_string());
    let made = rig.run(Tensor::<u8, SimDevice>::zeros(4).on(&rig.runtime)).unwrap_err();
    assert_eq!(made.to_string(), cause.to_string());
    assert_eq!(rig.device.misuses(), []);
}

#[test]
fn a_kernel_is_handed_the_part_that_a_view_names() {
    let rig = Rig::new();
    let tensor = bytes(&rig, &[8], 1);
    let part = tensor.slice(0, 3..5).unwrap();
    let kernel = SimKernel::new(CONFIG_RUN, |args| {
        args.bytes_mut(0).iter_mut().take(2).for_each(|byte| *byte = 9);
    });
    // SAFETY: the kernel writes two bytes.
    let op = unsafe { launch(kernel, ONE, [KernelArg::write(&part)]) };
    rig.run(op.on(&rig.runtime)).unwrap();
    assert_eq!(rig.run(tensor.to_host().on(&rig.runtime)).unwrap(), [1, 1, 1, 9, 9, 1, 1, 1]);
    drop((tensor, part));
    rig.assert_clean();
}

const CONFIG_RUN: Nanos = Nanos::from_nanos(CONFIG.copy_ns);
