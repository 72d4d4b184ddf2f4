//! What operations say of their room in the queue of a stream is what they take.

#![cfg(not(loom))]
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)]

#[path = "../../ops/tests/common/mod.rs"]
mod common;

use std::sync::Arc;

use common::Rig;
use wakeline_core::Nanos;
use wakeline_ops::port::Shape;
use wakeline_ops::{DeviceOp, SingleStream, Submission, value, with_context};
use wakeline_sim::{SimDevice, SimKernel};
use wakeline_tensor::{KernelArg, PinnedBuffer, Tensor, TensorOp, kernel, launch};

type Numbers = Tensor<f64, SimDevice>;

const ONE: Shape = Shape::new([1; 3], [1; 3]);
const RUN: Nanos = Nanos::from_micros(20);

kernel! { struct Count(inout z: [f32], a: f32, in x: [u8], n: u32); }

/// What an operation says of its room, and how many calls it makes, but for those that get it pinned memory; with the one that records the event behind them, which
/// comes when the submission is through.
fn entries<O: DeviceOp<Device = SimDevice>>(rig: &Rig, pinned: u64, op: O) -> (u64, u64) {
    let device = rig.device.clone();
    let counted = with_context(move |submission: &mut Submission<SimDevice>| {
        let (said, before) = (op.entries(), device.counts().calls);
        let pending = op.execute(submission)?;
        submission.retain(pending);
        let made = device.counts().calls - before - pinned;
        Ok(value((u64::from(said), if made == 0 { 0 } else { made + 1 })))
    });
    counted.on(&rig.runtime.scheduled(&SingleStream)).sync().unwrap()
}

#[test]
fn operations_say_how_much_room_they_take_in_the_queue_of_their_stream() {
    let rig = Rig::new();
    let single = rig.runtime.scheduled(&SingleStream);
    let tensor = || Numbers::zeros([6, 8]).on(&single).sync().unwrap();
    let pinned = || PinnedBuffer::<f64, _>::new(&rig.device, 48).unwrap();
    let columns = tensor().transpose().unwrap();
    let cube = Numbers::zeros([2, 3, 4]).on(&single).sync().unwrap().permute(&[2, 1, 0]).unwrap();
    let count = Count::on_host(&rig.device, RUN, |_, _, _, _| ()).unwrap();
    let whole = vec![1.5; 48];
    let made = [
        entries(&rig, 0, Numbers::uninit(5)),
        entries(&rig, 0, Numbers::zeros(5)),
        entries(&rig, 0, Numbers::zeros(0)),
        entries(&rig, 1, Numbers::full(1, 1.1)),
        entries(&rig, 1, Numbers::full(8_192, 1.1)),
        entries(&rig, 1, Numbers::full(8_193, 1.1)),
        entries(&rig, 1, Numbers::full(100_000, 1.1)),
        entries(&rig, 1, Numbers::eye(3, 2)),
        entries(&rig, 0, Numbers::eye(0, 2)),
        entries(&rig, 1, Numbers::arange(0.0, 1.0, 4)),
        entries(&rig, 1, Numbers::from_host(whole.clone())),
        entries(&rig, 0, Numbers::zeros(4).reshape([2, 2])),
        entries(&rig, 0, Numbers::zeros(4).partition([2])),
    ];
    let moved = [
        entries(&rig, 1, tensor().overwrite(whole)),
        entries(&rig, 0, tensor().overwrite_from(pinned())),
        entries(&rig, 0, tensor().fetch_into(pinned())),
        entries(&rig, 0, columns.fetch_into(pinned())),
        entries(&rig, 1, columns.to_host()),
        entries(&rig, 1, cube.to_host()),
        entries(&rig, 0, columns.dup()),
        entries(&rig, 0, cube.dup()),
        entries(&rig, 0, tensor().copy_to(tensor())),
        entries(&rig, 0, cube.copy_to(Numbers::zeros([4, 3, 2]).on(&single).sync().unwrap())),
    ];
    let shared = Arc::new(Tensor::<u8, _>::zeros(3).on(&single).sync().unwrap());
    let args = [KernelArg::read(&*shared), KernelArg::word(1)];
    let idle = || SimKernel::new(RUN, |_| ());
    // SAFETY: it does nothing.
    let on_tensor = unsafe { launch(idle(), ONE, args) };
    // SAFETY: as above.
    let on_none = unsafe { launch(idle(), ONE, [KernelArg::word(1)]) };
    let launched = [
        entries(&rig, 0, count.call(Tensor::zeros(4), value(1.0), Arc::clone(&shared), 4)),
        entries(&rig, 0, on_tensor),
    ];
    assert_eq!(entries(&rig, 0, on_none), (1, 2), "no event is behind what uses no memory");
    for (at, (said, made)) in made.into_iter().chain(moved).chain(launched).enumerate() {
        assert_eq!(said, made, "the operation at {at}");
    }
    drop((columns, cube, shared));
    rig.assert_clean();
}
