//! Random programs on a device that fails in random ways: futures are awaited, dropped, forgotten, run on the spot.
//!
//! Whatever happens: the device sees no misuse, a result that is given is the right one, nothing stays in flight, and memory that is not
//! given back is accounted for.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

mod common;

use common::{CONFIG, Rig, poll_once};
use wakeline_ops::{DeviceFuture, DeviceOp, Tensor, ToHost};
use wakeline_sim::{Faults, MemoryUse, SimConfig, SimDevice};

type Bytes = Tensor<u8, SimDevice>;

const SEEDS: u64 = 3_000;
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

/// What a program does, and what its memory should hold.
struct Program<'a> {
    rig: &'a Rig,
    dice: Dice,
    tensors: Vec<(Bytes, u8)>,
    reads: Vec<(DeviceFuture<ToHost<u8, SimDevice>>, u8)>,
    /// The most that forgotten futures can keep.
    forgotten: usize,
}

impl Program<'_> {
    /// Runs an operation in one of the ways there are; its output where it was waited for.
    fn ends<O: DeviceOp<Device = SimDevice>>(&mut self, op: O) -> Option<<O as DeviceOp>::Output> {
        let mut future = op.on(&self.rig.runtime);
        match self.dice.below(8) {
            0 => drop(future),
            1 => drop((poll_once(&mut future).is_ready(), future)),
            2 => {
                let _ = poll_once(&mut future).is_ready();
                std::mem::forget(future);
                self.forgotten += 3;
            }
            3 | 4 => return future.sync().ok(),
            _ => return self.rig.run(future).ok(),
        }
        None
    }

    fn step(&mut self) {
        match self.dice.below(6) {
            0 => {
                let byte = u8::try_from(self.dice.below(200)).unwrap();
                if let Some(tensor) = self.ends(Tensor::full(LEN, byte)) {
                    self.tensors.push((tensor, byte));
                }
            }
            1 => {
                let bytes = vec![7; LEN];
                let through = Tensor::from_host(bytes)
                    .then(|from: Bytes| Tensor::full(LEN, 9).then(move |to| from.copy_to(to)));
                if let Some(tensor) = self.ends(through) {
                    self.tensors.push((tensor, 7));
                }
            }
            2 if self.tensors.len() > 1 => {
                let target = self.dice.below(self.tensors.len() as u64);
                let (target, _) = self.tensors.swap_remove(usize::try_from(target).unwrap());
                let (from, byte) = &self.tensors[0];
                let byte = *byte;
                if let Some(tensor) = self.ends(from.copy_to(target)) {
                    self.tensors.push((tensor, byte));
                }
            }
            3 if !self.tensors.is_empty() => {
                let (tensor, byte) = &self.tensors[0];
                let mut read = tensor.to_host().on(&self.rig.runtime);
                if poll_once(&mut read).is_pending() {
                    self.reads.push((read, *byte));
                }
            }
            4 if !self.reads.is_empty() => {
                let (read, byte) = self.reads.swap_remove(0);
                if let Ok(bytes) = self.rig.run(read) {
                    assert_eq!(bytes, [byte; LEN]);
                }
            }
            _ => {
                self.rig.watcher.turn();
            }
        }
    }
}

/// Runs the program of a seed, and says whether the device was well at the end.
fn run(seed: u64, plan: &str, faults: &Faults) -> bool {
    let mut dice = Dice(seed ^ 0x5EED);
    let copy_ns = 1 + dice.below(20_000);
    let launch_ns = dice.below(3) * 700;
    let config = SimConfig { seed, copy_ns, launch_ns, query_ns: 300, faults: *faults, ..CONFIG };
    let Ok(rig) = Rig::try_with(&config, plan) else { return false };
    let mut program = Program { rig: &rig, dice, tensors: Vec::new(), reads: Vec::new(), forgotten: 0 };
    for _ in 0..STEPS {
        program.step();
    }
    let forgotten = program.forgotten;
    drop(program);
    rig.settle();
    let (counts, left) = (rig.runtime.counts(), rig.device.memory_use());
    assert_eq!(rig.device.misuses(), [], "seed {seed}");
    assert_eq!(counts.in_flight(), 0, "seed {seed}: {counts:?}");
    let accounted = counts.owners_leaked + counts.frees_failed;
    assert!(
        left.buffers + left.pinned <= usize::try_from(accounted).unwrap() + forgotten,
        "seed {seed}: {left:?} {counts:?}"
    );
    let well = rig.device.health().is_none();
    if well && forgotten == 0 {
        assert_eq!((left, accounted), (MemoryUse::default(), 0), "seed {seed}: {counts:?}");
    }
    well
}

/// A swarm whose waits all end: without a deadline one for a point that is stuck never does.
fn swarm(seed: u64) -> Faults {
    Faults { stuck_ppm: 0, ..Faults::swarm(seed) }
}

#[test]
fn random_programs_under_the_drivers_authority_and_any_faults() {
    let well = (0..SEEDS).filter(|&seed| run(seed, "flag:park_us=50,backstop_us=1000", &swarm(seed))).count();
    assert!(well > 1_000 && well < 2_990, "both kinds of devices were there: {well}");
}

#[test]
fn random_programs_under_the_words_authority_and_faults_that_forge_no_word() {
    for seed in 0..SEEDS {
        let Faults { lost_store_ppm, late_store, fault_at, fault_at_call, slow_query, .. } = swarm(seed);
        let faults =
            Faults { lost_store_ppm, late_store, fault_at, fault_at_call, slow_query, ..Faults::none() };
        run(seed, "flag:park_us=50,backstop_us=1000+trust", &faults);
    }
}

#[test]
fn a_fault_at_each_driver_call_of_a_program() {
    let mut well = 0;
    for seed in 0..20 {
        for call in 1..150 {
            let faults = Faults { fault_at_call: Some(call), ..Faults::none() };
            well += u64::from(run(seed, "flag:park_us=50,backstop_us=1000", &faults));
        }
    }
    assert!(well < 20 * 149 / 2, "most programs make more calls than that: {well}");
}
