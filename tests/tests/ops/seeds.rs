//! Random programs: futures are awaited, dropped, forgotten, run on the spot.
//!
//! Whatever happens: a result that is given is the right one, and nothing stays in flight or in use.

use std::sync::Arc;
use std::task::Poll;

use wakeline_ops::{DeviceFuture, DeviceOp, all, gate, zip};
use wakeline_std::block_on;
use wakeline_tensor::{Tensor, ToHost};
use wakeline_tests::device_tests;
use wakeline_tests::ops_rig::{OpsRig, affine, poll_once};

use crate::ms;

device_tests![
    Everywhere: random_programs_give_right_results_and_leave_nothing;
];

const SEEDS: u64 = 30;
const STEPS: u64 = 24;
const LEN: usize = 16;

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A read under way of numbers of a device.
type Read<D> = DeviceFuture<ToHost<u32, D>>;

/// What a program does, and what its memory should hold.
struct Program<'a, R: OpsRig> {
    rig: &'a R,
    dice: Dice,
    tensors: Vec<(Tensor<u32, R::Device>, u32)>,
    reads: Vec<(Read<R::Device>, u32)>,
}

impl<R: OpsRig> Program<'_, R> {
    /// Runs an operation in one of the ways there are; its output where it was waited for.
    fn ends<O: DeviceOp<Device = R::Device>>(&mut self, op: O) -> Option<<O as DeviceOp>::Output> {
        let mut future = op.on(self.rig.runtime());
        match self.dice.below(8) {
            0 => drop(future),
            1 => drop((poll_once(&mut future).is_ready(), future)),
            2 => return future.sync().ok(),
            _ => return block_on(future).ok(),
        }
        None
    }

    fn step(&mut self) {
        match self.dice.below(9) {
            6 => self.branches(),
            7 => self.shares(),
            8 => self.gates(),
            0 => {
                let number = u32::try_from(self.dice.below(200)).unwrap();
                if let Some(tensor) = self.ends(Tensor::full(LEN, number)) {
                    self.tensors.push((tensor, number));
                }
            }
            1 => {
                let kernel = self.rig.affines();
                let op = Tensor::from_host(vec![7; LEN])
                    .then(move |tensor| affine(kernel, &tensor, 2, 3).map(move |()| tensor));
                if let Some(tensor) = self.ends(op) {
                    self.tensors.push((tensor, 17));
                }
            }
            2 if self.tensors.len() > 1 => {
                let target = self.dice.below(self.tensors.len() as u64);
                let (target, _) = self.tensors.swap_remove(usize::try_from(target).unwrap());
                let (from, number) = &self.tensors[0];
                let (op, number) = (from.copy_to(target), *number);
                if let Some(tensor) = self.ends(op) {
                    self.tensors.push((tensor, number));
                }
            }
            3 if !self.tensors.is_empty() => {
                let (tensor, number) = &mut self.tensors[0];
                let mut written = self.rig.affine(tensor, 3, 1).on(self.rig.runtime());
                let _ = poll_once(&mut written);
                *number = number.wrapping_mul(3).wrapping_add(1);
            }
            4 if !self.tensors.is_empty() => {
                let (tensor, number) = &self.tensors[0];
                let mut read = tensor.to_host().on(self.rig.runtime());
                if poll_once(&mut read).is_pending() {
                    self.reads.push((read, *number));
                }
            }
            _ if !self.reads.is_empty() => {
                let (read, number) = self.reads.swap_remove(0);
                assert_eq!(block_on(read).unwrap(), [number; LEN]);
            }
            _ => {}
        }
    }

    /// Changes what two streams read, and reads both.
    fn branches(&mut self) {
        let (kernel, number) = (self.rig.affines(), u32::try_from(self.dice.below(200)).unwrap());
        let op = Tensor::from_host(vec![number; LEN]).arc().then(move |from: Arc<Tensor<u32, R::Device>>| {
            let again = Arc::clone(&from);
            let changed = Tensor::full(LEN, 0)
                .then(move |to| again.copy_to(to))
                .then(move |tensor| affine::<R::Device>(kernel, &tensor, 2, 1).map(move |()| tensor));
            zip!(changed, all([from.to_host(), from.to_host()]))
        });
        if let Some((tensor, reads)) = self.ends(op) {
            assert_eq!(reads, [[number; LEN]; 2]);
            self.tensors.push((tensor, number * 2 + 1));
        }
    }

    /// Runs a shared operation in several ways.
    fn shares(&mut self) {
        let number = u32::try_from(self.dice.below(200)).unwrap();
        let shared = Tensor::<u32, R::Device>::full(LEN, number).shared();
        for _ in 0..3 {
            let read = shared.clone().then(|tensor: Arc<Tensor<u32, R::Device>>| tensor.to_host());
            if let Some(read) = self.ends(read) {
                assert_eq!(read, [number; LEN]);
            }
        }
    }

    /// Opens a gate, or leaves that to its deadline.
    fn gates(&mut self) {
        let number = u32::try_from(self.dice.below(200)).unwrap();
        let (handle, opened) = gate(ms(2)).unwrap();
        let mut step = opened
            .then(move |()| Tensor::<u32, R::Device>::full(LEN, number))
            .then(|tensor| tensor.to_host())
            .on(self.rig.runtime());
        let polled = poll_once(&mut step);
        match self.dice.below(4) {
            0 => drop(handle),
            // Its deadline opens it.
            1 => drop((block_on(async { if polled.is_pending() { step.await.ok() } else { None } }), handle)),
            2 => drop(handle.open()),
            _ => {
                if let (Ok(()), Poll::Pending) = (handle.open(), polled) {
                    assert_eq!(block_on(step).unwrap(), [number; LEN]);
                }
            }
        }
    }
}

fn random_programs_give_right_results_and_leave_nothing<R: OpsRig>(rig: &R) {
    for seed in 0..SEEDS {
        let dice = Dice(seed ^ 0x5EED);
        let mut program = Program { rig, dice, tensors: Vec::new(), reads: Vec::new() };
        for _ in 0..STEPS {
            program.step();
        }
        for (tensor, number) in core::mem::take(&mut program.tensors) {
            assert_eq!(block_on(tensor.to_host().on(rig.runtime())).unwrap(), [number; LEN], "seed {seed}");
        }
    }
    rig.settle_clean();
}
