//! Typed kernels that are closures: what they are handed, and what is said where they go wrong.

#![cfg(not(loom))]
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../ops/tests/common/mod.rs"]
mod common;

use std::sync::{Arc, Mutex};

use common::Rig;
use wakeline_core::{ErrorCode, Nanos};
use wakeline_ops::DeviceOp;
use wakeline_ops::port::Shape;
use wakeline_sim::{SimDevice, SimKernel};
use wakeline_tensor::{KernelArg, Tensor, kernel, launch};

const ONE: Shape = Shape::new([1; 3], [1; 3]);

const RUN: Nanos = Nanos::from_micros(20);

kernel! { struct Count(inout z: [f32], a: f32, in x: [u8], n: u32) where n as usize <= z.len(); }

/// Sets all it is handed, and says how many those are.
fn counting(rig: &Rig) -> Count<SimDevice> {
    Count::on_host(&rig.device, RUN, |z, a, x, n| {
        assert_eq!((z.len(), x.len()), (n as usize, 3), "it is handed what the signature counts");
        z.fill(a);
    })
    .unwrap()
}

#[test]
fn a_closure_sees_and_writes_the_numbers_of_its_views_and_no_others() {
    let rig = Rig::new();
    let count = counting(&rig);
    let numbers: Vec<f32> = (0_u8..12).map(f32::from).collect();
    let table = rig.run(Tensor::from_shaped([3, 4], numbers).on(&rig.runtime)).unwrap();
    let bytes = rig.run(Tensor::from_host(vec![7_u8; 9]).on(&rig.runtime)).unwrap();
    let part = bytes.slice(0, 4..7).unwrap();
    let row = table.slice(0, 1..2).unwrap();
    drop(table);
    let (row, _, part, _) = rig.run(count.call(row, -1.0, part, 4).on(&rig.runtime)).unwrap();
    assert_eq!((row.shape(), part.len()), (&[1, 4][..], 3));
    assert_eq!(rig.run(row.to_host().on(&rig.runtime)).unwrap(), [-1.0; 4]);
    drop((row, part, bytes));
    rig.assert_clean();
}

kernel! { struct Nines(out z: [u8]); }

#[test]
fn what_lies_behind_a_view_stays_as_it_is() {
    let rig = Rig::new();
    let nines = Nines::on_host(&rig.device, RUN, |z| z.fill(9)).unwrap();
    let table = rig.run(Tensor::from_shaped([3, 2], vec![1_u8, 2, 3, 4, 5, 6]).on(&rig.runtime)).unwrap();
    let row = table.slice(0, 1..2).unwrap();
    drop(table);
    let row = rig.run(nines.call(row).on(&rig.runtime)).unwrap().0;
    // A kernel of no signature goes on to the end of the memory.
    let seen = Arc::new(Mutex::new(Vec::new()));
    let look = SimKernel::new(RUN, {
        let seen = Arc::clone(&seen);
        move |args| args.bytes(0).clone_into(&mut seen.lock().unwrap())
    });
    // SAFETY: it reads only.
    let look = unsafe { launch(look, ONE, [KernelArg::read(&row)]) };
    rig.run(look.on(&rig.runtime)).unwrap();
    assert_eq!(*seen.lock().unwrap(), [9, 9, 5, 6]);
    drop(row);
    rig.assert_clean();
}

#[test]
fn a_closure_that_panics_is_named_with_its_message() {
    for (message, told) in [(false, "none of 3 is right"), (true, "without a message")] {
        let rig = Rig::new();
        let count = Count::on_host(&rig.device, RUN, move |_, _, x, _| {
            if message {
                std::panic::panic_any(7_u8);
            }
            panic!("none of {} is right", x.len());
        });
        let op = count.unwrap().call(Tensor::zeros(4), 1.0, Tensor::zeros(3), 4);
        let error = rig.run(op.on(&rig.runtime)).unwrap_err();
        let wanted = format!("a closure in place of kernel `Count` panicked: {told}");
        let mut shown = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(source) = cause {
            shown = format!("{shown}: {source}");
            cause = source.source();
        }
        assert!(shown.contains(&wanted), "{shown}");
        assert!(!shown.contains("faulted at"), "{shown}");
    }
}

#[test]
fn a_condition_that_does_not_hold_is_told_with_the_names_of_what_was_handed_in() {
    let rig = Rig::new();
    let op = counting(&rig).call(Tensor::zeros([2, 4]), 2.0, Tensor::zeros(3), 9);
    let error = rig.run(op.on(&rig.runtime)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArguments);
    assert_eq!(error.args(), ["Count", "n as usize <= z.len()", "z: [2, 4], a: 2.0, x: [3], n: 9"]);
    rig.assert_clean();
}
