//! Random programs: futures are awaited, dropped, forgotten, run on the spot; and a program in which each call of the driver fails once.
//!
//! Whatever happens: a result that is given is the right one, the driver is not misused, nothing stays in flight, and what is not given back is counted.

// It sets arguments of a kernel.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use wakeline_core::Error;
use wakeline_fake_driver::{Act, FaultEnds, Rule, Status};
use wakeline_mapped::work::AFFINE;
use wakeline_mapped::{ContextConfig, DEVICE_BYTES_KEPT, Function, OpDevice};
use wakeline_ops::port::{Priority, Shape};
use wakeline_ops::{DeviceFuture, DeviceOp, Graph, Runtime, StreamPoolRoundRobin, all, gate, zip};
use wakeline_std::{Point, Watcher, block_on};
use wakeline_tensor::{KernelArg, Tensor, ToHost, set_kernel};
use wakeline_tests::device_tests;
use wakeline_tests::ops_rig::{OpsRig, PLAN, VendorRig, affine, poll_once, until};

use crate::ms;
use wakeline_tests::vendor::Vendor;

device_tests![
    Everywhere: random_programs_give_right_results_and_leave_nothing;
    FakesLeaving: a_failure_of_each_call_of_a_program_is_an_error_or_counted,
        a_failure_of_each_call_of_graphs_is_an_error_or_counted;
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

/// A program that makes every sort of call; its result where it ends well.
fn program<D: Vendor>(kernel: &Function<D>, runtime: &Runtime<OpDevice<D>>) -> Result<Vec<u32>, Error> {
    let tensor = block_on(Tensor::<_, OpDevice<D>>::from_host(vec![5_u32; LEN]).on(runtime))?;
    let target = block_on(Tensor::<_, OpDevice<D>>::full(LEN, 1_u32).on(runtime))?;
    let mut dropped = affine(kernel.clone(), &tensor, 1, 1).on(runtime);
    let _ = poll_once(&mut dropped);
    drop(dropped);
    let kept = tensor.to_host().on(runtime).sync()?;
    assert!(kept.iter().all(|number| [5, 6].contains(number)), "{kept:?}");
    let copy = block_on(tensor.copy_to(target).on(runtime))?;
    // In front of a gate, behind it, and in two streams.
    let (handle, opened) = gate(ms(500))?;
    let (first, other) = (kernel.clone(), kernel.clone());
    let step = affine(first, &copy, 2, 0).then(|()| opened).then(move |()| {
        let ones = Tensor::<_, OpDevice<D>>::full(LEN, 1_u32)
            .then(move |ones| affine(other, &ones, 1, 1).map(move |()| ones));
        zip!(copy.to_host(), ones.then(|twos| twos.to_host()))
    });
    let mut step = step.on(runtime);
    let polled = poll_once(&mut step);
    handle.open()?;
    let (numbers, twos) = match polled {
        Poll::Ready(read) => read?,
        Poll::Pending => block_on(step)?,
    };
    assert_eq!(twos, [2; LEN]);
    Ok(numbers)
}

/// A graph of two branches: launched, captured anew, launched, given another argument, launched. What it was worked on in the end.
fn graphs<D: Vendor>(kernel: &Function<D>, runtime: &Runtime<OpDevice<D>>) -> Result<Vec<u32>, Error> {
    let [one, two] = [1_u32; 2].map(|number| block_on(Tensor::full(LEN, number).on(runtime)));
    let (one, two) = (one?, two?);
    let step = |tensor: &Tensor<u32, OpDevice<D>>, factor| affine(kernel.clone(), tensor, factor, 0);
    let both = |factor| zip!(step(&one, factor), step(&two, factor)).map(drop);
    let mut graph = both(2).graph_on(&runtime.stream(Priority::Normal)?)?;
    let launch = |graph: &Graph<OpDevice<D>>| block_on(graph.launch().on(runtime));
    launch(&graph)?;
    graph.recapture(both(3))?;
    launch(&graph)?;
    let words = [LEN as u64, 5, 0].map(KernelArg::word);
    let args = [KernelArg::write(&one)].into_iter().chain(words);
    let shape = Shape::new([4, 1, 1], [64, 1, 1]);
    // SAFETY: the kernel takes an address, a count and two numbers, and writes so many numbers there; it is the node's own tensor.
    unsafe { set_kernel(&graph, 0, kernel, shape, args) }?;
    launch(&graph)?;
    let (mut numbers, more) = block_on(zip!(one.to_host(), two.to_host()).on(runtime))?;
    numbers.extend(more);
    Ok(numbers)
}

/// What a row does.
type Runs<D> = fn(&Function<D>, &Runtime<OpDevice<D>>) -> Result<Vec<u32>, Error>;

/// A context, a watcher, a runtime and the program in it, all of it let go; the result.
///
/// The watcher is its own: a thread that could not be given its context back is not to go on to another row with it.
fn whole<D: Vendor>(rig: &VendorRig<D>, program: Runs<D>) -> Result<Vec<u32>, Error> {
    let context = rig.rig().context_beside(&ContextConfig::default())?;
    let device = OpDevice::in_context(context, DEVICE_BYTES_KEPT)?;
    let module = D::kernels(device.context())?;
    let kernel = module.function(AFFINE)?;
    let watcher = Watcher::new()?;
    let tender = watcher.handle().tender(&Point::new("row"));
    let runtime = Runtime::with_plan(device, &StreamPoolRoundRobin::new(2)?, tender, PLAN.parse()?)?;
    let result = program(&kernel, &runtime);
    until("flights end", || runtime.counts().in_flight() == 0);
    watcher.close(Watcher::CLOSE).unwrap();
    result
}

fn a_failure_of_each_call_of_a_program_is_an_error_or_counted<D: Vendor>(rig: &VendorRig<D>) {
    // The operation that is dropped is not heard of where it fails.
    each_call_fails(rig, program, &[vec![12; LEN], vec![10; LEN]]);
}

fn a_failure_of_each_call_of_graphs_is_an_error_or_counted<D: Vendor>(rig: &VendorRig<D>) {
    let right = [[30; LEN], [18; LEN]].concat();
    each_call_fails(rig, graphs, &[right]);
}

/// Runs it with each failure of each of its calls. The first of the results is that where nothing fails; no other is right.
fn each_call_fails<D: Vendor>(rig: &VendorRig<D>, program: Runs<D>, right: &[Vec<u32>]) {
    // One context's fault is to leave the next row's alone, and to be told soon.
    rig.fake().configure(|options| options.fault_ends = FaultEnds::Context);
    let fake = rig.fake();
    assert_eq!(program(&rig.affines(), rig.runtime()).unwrap(), right[0]);
    fake.clear_log();
    assert_eq!(whole(rig, program).unwrap(), right[0]);
    let mut names: Vec<String> = fake.log().into_iter().map(|call| call.name).collect();
    names.sort();
    names.dedup();
    let mut rows = 0;
    for name in &names {
        for status in [1, 2, 719, 801, 900] {
            for skip in [0, 1, 3] {
                fake.rule(Rule::new(name.clone(), Act::Fail(Status(status))).skip(skip).times(1));
                let ran = catch_unwind(AssertUnwindSafe(|| whole(rig, program)));
                fake.clear_rules();
                let Ok(ran) = ran else { panic!("{name} as {status}, the {skip}th: a panic") };
                if let Ok(numbers) = ran {
                    assert!(right.contains(&numbers), "{name} as {status}, the {skip}th: {numbers:?}");
                }
                rows += 1;
                let violations = fake.violations();
                assert!(violations.is_empty(), "{name} as {status}, the {skip}th: {violations:?}");
            }
        }
    }
    assert!(rows > 300, "{rows} rows of {names:?}");
    block_on(rig.occupy(ms(1)).on(rig.runtime())).unwrap();
}
