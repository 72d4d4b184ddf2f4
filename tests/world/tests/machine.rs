//! Random programs over several devices: copies between them, conflicting uses, drops, gates, and faults of any of them at any moment.
//!
//! Devices differ in how long things take and in whether they reach each other. Whatever happens: the devices see no misuse, a result that is given is the right one,
//! also of numbers that came from a device which has faulted since, and nothing stays in flight.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use wakeline_core::{Error, Nanos};
use wakeline_ops::{
    ByKey, DeviceFuture, DeviceOp, Gate, LeastBusy, Machine, RuntimeConfig, Site, StreamPoolRoundRobin, gate,
};
use wakeline_sim::{Faults, MemoryUse, SimConfig, SimDevice, VirtualTime, VirtualWatcher};
use wakeline_tensor::{Tensor, TensorOp};

use wakeline_world::caught::caught;
use wakeline_world::dice::Dice;
use wakeline_world::faults::{honest, swarm};
use wakeline_world::swarm::{How, STRICT, TRUSTING, WATCHING};

type Bytes = Tensor<u8, SimDevice>;
type Boxed = Pin<Box<dyn Future<Output = Result<Vec<u8>, Error>>>>;

/// How long memory is.
const LEN: usize = 16;

const MACHINE_SEEDS: u64 = 2_500;
const STEPS: u64 = 40;

/// The most buffers that a forgotten future keeps: those of both sides, and blocks of pinned memory.
const FORGOTTEN: usize = 12;

struct Program {
    devices: Vec<SimDevice>,
    watcher: VirtualWatcher,
    machine: Machine<SimDevice>,
    dice: Dice,
    /// Each with what is in it and the device that it is on.
    tensors: Vec<(Bytes, u8, usize)>,
    pending: Vec<(Boxed, u8)>,
    gates: Vec<Gate<SimDevice>>,
    forgotten: usize,
    /// How many results were right, and how many of those were of numbers that had been on another device.
    right: u64,
    across: u64,
}

impl Program {
    fn new(seed: u64, faults: impl Fn(u64) -> Faults, how: How) -> Option<Self> {
        let mut dice = Dice::new(seed ^ 0x0D_E71C);
        let count = 2 + dice.below(4);
        let mut devices: Vec<SimDevice> = Vec::new();
        for number in 0..count {
            let config = SimConfig {
                seed: seed ^ number,
                copy_ns: 1 + dice.below(60_000),
                launch_ns: dice.below(3) * 700,
                store_latency_ns: dice.below(2) * 2_300,
                query_ns: 300,
                peer_access: !dice.one_in(3),
                // Some devices go on whatever becomes of the others.
                faults: if dice.one_in(3) { Faults::none() } else { faults(seed ^ number << 32) },
                ..SimConfig::exact()
            };
            let device = match devices.first() {
                Some(first) => first.beside(config),
                None => SimDevice::new(VirtualTime::new(), config),
            };
            devices.push(device.ok()?);
        }
        let watcher = VirtualWatcher::new(&devices[0]);
        watcher.let_tasks_watch(how.watches);
        let mut setup = RuntimeConfig::default();
        if let Some(plan) = how.plan {
            setup = setup.plan(plan.parse().unwrap());
        }
        let policy = StreamPoolRoundRobin::new(1 + usize::try_from(dice.below(3)).unwrap()).unwrap();
        let machine = Machine::with_config(devices.clone(), &policy, watcher.clone(), setup).ok()?;
        let (tensors, pending, gates) = (Vec::new(), Vec::new(), Vec::new());
        Some(Self {
            devices,
            watcher,
            machine,
            dice,
            tensors,
            pending,
            gates,
            forgotten: 0,
            right: 0,
            across: 0,
        })
    }

    fn device(&mut self) -> usize {
        usize::try_from(self.dice.below(self.devices.len() as u64)).unwrap()
    }

    fn any_tensor(&mut self) -> Option<usize> {
        let count = self.tensors.len() as u64;
        (count > 0).then(|| usize::try_from(self.dice.below(count)).unwrap())
    }

    fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Runs an operation on a device in one of the ways there are; its output where it was waited for.
    fn ends<O: DeviceOp<Device = SimDevice>>(
        &mut self,
        device: usize,
        op: O,
    ) -> Option<<O as DeviceOp>::Output> {
        let runtime = self.machine.site(device).unwrap().runtime();
        let mut future: DeviceFuture<O> = op.on(runtime);
        if self.dice.one_in(8) {
            future = future.timeout(Nanos::from_micros(self.dice.below(300)));
        }
        match self.dice.below(9) {
            0 => drop(future),
            1 => {
                for _ in 0..self.dice.below(4) {
                    if let Poll::Ready(result) = Self::poll(&mut future) {
                        return result.ok();
                    }
                    if self.dice.one_in(3) {
                        self.watcher.turn();
                    }
                }
            }
            2 => {
                if Self::poll(&mut future).is_pending() {
                    std::mem::forget(future);
                    self.forgotten += FORGOTTEN;
                }
            }
            3 if self.gates.is_empty() => return future.sync().ok(),
            _ => return self.watcher.run(future).ok()?.ok(),
        }
        None
    }

    fn is_right(&mut self, bytes: Result<Vec<u8>, Error>, byte: u8) {
        if let Ok(bytes) = bytes {
            assert_eq!(bytes, [byte; LEN]);
            self.right += 1;
        }
    }

    fn step(&mut self) {
        let device = self.device();
        match self.dice.below(16) {
            0 | 1 => {
                let byte = u8::try_from(self.dice.below(200)).unwrap();
                if let Some(tensor) = self.ends(device, Tensor::full(LEN, byte)) {
                    self.tensors.push((tensor, byte, device));
                }
            }
            2 | 3 => {
                let Some(at) = self.any_tensor() else { return };
                let (copy, byte) = (self.tensors[at].0.to_device(), self.tensors[at].1);
                if let Some(tensor) = self.ends(device, copy) {
                    self.across += 1;
                    self.tensors.push((tensor, byte, device));
                }
            }
            4 if self.tensors.len() > 1 => {
                // To memory that is there, of any device.
                let Some(at) = self.any_tensor() else { return };
                let (target, _, its) = self.tensors.swap_remove(at);
                let (copy, byte) = (self.tensors[0].0.send_to(target), self.tensors[0].1);
                if let Some(tensor) = self.ends(its, copy) {
                    self.tensors.push((tensor, byte, its));
                }
            }
            5 => {
                // There and on in one submission, and read behind that.
                let Some(at) = self.any_tensor() else { return };
                let (tensor, byte, _) = &self.tensors[at];
                let byte = *byte;
                let read = tensor
                    .to_device()
                    .reshape([4, 4])
                    .then(|copy: Bytes| copy.dup())
                    .then(|copy| copy.to_host());
                if let Some(bytes) = self.ends(device, read) {
                    self.is_right(Ok(bytes), byte);
                }
            }
            6 | 7 => {
                let Some(at) = self.any_tensor() else { return };
                let (tensor, byte, its) = &self.tensors[at];
                let mut read: Boxed =
                    Box::pin(tensor.to_host().on(self.machine.site(*its).unwrap().runtime()));
                let byte = *byte;
                match Self::poll(&mut read) {
                    Poll::Pending => self.pending.push((read, byte)),
                    Poll::Ready(result) => self.is_right(result, byte),
                }
            }
            8 if !self.pending.is_empty() => {
                let (mut read, byte) = self.pending.swap_remove(0);
                match self.dice.below(4) {
                    0 => drop(read),
                    1 => match Self::poll(&mut read) {
                        Poll::Pending => self.pending.push((read, byte)),
                        Poll::Ready(result) => self.is_right(result, byte),
                    },
                    _ => {
                        if let Ok(result) = self.watcher.run(read) {
                            self.is_right(result, byte);
                        }
                    }
                }
            }
            9 => self.placed(),
            10 => {
                // What is copied behind a gate of another device.
                let (handle, opened) = gate(Nanos::from_millis(2)).unwrap();
                let byte = u8::try_from(self.dice.below(200)).unwrap();
                let held = opened.then(move |()| Tensor::full(LEN, byte));
                if self.dice.one_in(2) {
                    self.gates.push(handle);
                } else {
                    drop(handle);
                }
                if let Some(tensor) = self.ends(device, held) {
                    self.tensors.push((tensor, byte, device));
                }
            }
            11 if !self.gates.is_empty() => drop(self.gates.swap_remove(0)),
            13 | 14 => self.reads_behind(device),
            12 if self.dice.one_in(12) => self.devices[device].inject_fault(),
            _ => {
                self.watcher.turn();
            }
        }
    }

    /// Reads what a copy is still to bring, by operations of their own: directly, and by way of memory that was never elsewhere.
    fn reads_behind(&mut self, device: usize) {
        let Some(at) = self.any_tensor() else { return };
        let (tensor, byte, source) = &self.tensors[at];
        let (byte, source, reads) = (*byte, *source, Arc::new(Mutex::new(Vec::new())));
        let give = Arc::clone(&reads);
        let copy = tensor.to_device().map(move |copy: Bytes| {
            let mut reads = give.lock().unwrap();
            reads.push(copy.to_host().boxed_host());
            reads.push(copy.dup().then(|dup| dup.dup()).then(|dup| dup.to_host()).boxed_host());
            copy
        });
        let copied = self.ends(device, copy);
        let reads = std::mem::take(&mut *reads.lock().unwrap());
        for read in reads {
            let mut read: Boxed = Box::pin(read.on(self.machine.site(device).unwrap().runtime()));
            match Self::poll(&mut read) {
                Poll::Pending => self.pending.push((read, byte)),
                Poll::Ready(result) => self.is_right(result, byte),
            }
        }
        if self.dice.one_in(8) {
            self.devices[source].inject_fault();
        }
        if let Some(tensor) = copied {
            self.tensors.push((tensor, byte, device));
        }
    }

    /// Wherever it is placed, and again where that one faults.
    fn placed(&mut self) {
        let byte = u8::try_from(self.dice.below(200)).unwrap();
        let machine = match self.dice.below(3) {
            0 => self.machine.placed_by(LeastBusy::new()),
            1 => self.machine.placed_by(ByKey),
            _ => self.machine.clone(),
        };
        let make = move |_: &Site<SimDevice>| Tensor::full(LEN, byte).then(|tensor: Bytes| tensor.to_host());
        let key = self.dice.below(9);
        let mut future: Boxed = if self.dice.one_in(2) {
            Box::pin(machine.retrying(3, make).unwrap().keyed(key))
        } else {
            Box::pin(machine.run(make).keyed(key))
        };
        match self.dice.below(3) {
            0 => match Self::poll(&mut future) {
                Poll::Pending => self.pending.push((future, byte)),
                Poll::Ready(result) => self.is_right(result, byte),
            },
            _ => {
                if let Ok(result) = self.watcher.run(future) {
                    self.is_right(result, byte);
                }
            }
        }
    }

    /// Lets everything end, and looks at what is left; how many devices were well.
    fn ends_clean(self, seed: u64) -> (usize, u64, u64) {
        let Self { devices, watcher, machine, tensors, pending, gates, forgotten, right, across, .. } = self;
        drop((tensors, pending, gates));
        while watcher.pending() > 0 && watcher.turn() {}
        while watcher.turn() {}
        assert_eq!(devices[0].misuses(), [], "seed {seed}");
        let (mut leaked, mut left) = (0, 0);
        for (site, device) in machine.sites().iter().zip(&devices) {
            let counts = site.runtime().counts();
            assert_eq!(counts.in_flight(), 0, "seed {seed}: {counts:?}");
            leaked += usize::try_from(counts.owners_leaked + counts.frees_failed).unwrap();
            let used = device.memory_use();
            left += used.buffers + used.pinned;
        }
        assert!(left <= leaked + forgotten, "seed {seed}: {left} buffers, {leaked} owners leaked");
        let well = devices.iter().filter(|device| device.health().is_none()).count();
        if well == devices.len() && forgotten == 0 && leaked == 0 {
            assert!(devices.iter().all(|device| device.memory_use() == MemoryUse::default()), "seed {seed}");
        }
        (well, right, across)
    }
}

/// Runs the program of a seed, and fails with that; how many devices were well at its end, and how many results were right.
fn run(seed: u64, faults: impl Fn(u64) -> Faults, how: How) -> (usize, u64, u64) {
    let program = || {
        let Some(mut program) = Program::new(seed, faults, how) else { return Ok((0, 0, 0)) };
        for _ in 0..STEPS {
            program.step();
        }
        Ok(program.ends_clean(seed))
    };
    caught(program).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"))
}

#[test]
fn programs_over_several_devices() {
    let (all, total) = (0..MACHINE_SEEDS, MACHINE_SEEDS);
    let (mut well, mut right, mut across) = (0, 0, 0);
    for seed in all {
        let (its, gave, crossed) = match seed % 4 {
            0 => run(seed, |_| Faults::none(), TRUSTING),
            1 => run(seed, swarm, STRICT),
            2 => run(seed, honest, TRUSTING),
            _ => run(seed, honest, WATCHING),
        };
        well += its as u64;
        right += gave;
        across += crossed;
    }
    let told = format!("{well} devices well, {right} results, {across} copies of {total} programs");
    assert!(total < 1_000 || (well > total && right > 2 * total && across > total), "{told}");
    assert!(total < 1_000 || well < 7 * total / 2, "some have faulted: {told}");
}

#[test]
fn a_fault_of_one_device_at_each_of_its_calls() {
    for seed in 0..6 {
        for call in 1..60 {
            let at = Faults { fault_at_call: Some(call), ..Faults::none() };
            run(seed, |_| at, TRUSTING);
        }
    }
}
