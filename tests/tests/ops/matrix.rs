//! The fault matrix of operations: each call of the driver that a program of operations, graphs or tensors makes, as each of its failures.
//!
//! Whatever happens: a result that is given is the right one, the driver is not misused, nothing stays in flight, and what is not given back is counted. The first
//! turns of each call are among the usual tests; all of them are behind `--ignored every_row`.

// It sets arguments of a kernel.
#![allow(unsafe_code)]

use std::task::Poll;

use wakeline_core::Error;
use wakeline_fake_driver::FaultEnds;
use wakeline_mapped::work::AFFINE;
use wakeline_mapped::{ContextConfig, DEVICE_BYTES_KEPT, Function, OpDevice};
use wakeline_ops::port::{Priority, Shape};
use wakeline_ops::{DeviceOp, Graph, Runtime, StreamPoolRoundRobin, gate, value, zip};
use wakeline_std::{Point, Watcher, block_on};
use wakeline_tensor::{KernelArg, PinnedBuffer, Tensor, set_kernel};
use wakeline_tests::device_tests;
use wakeline_tests::every_call::{Extent, Ran, each_call_fails};
use wakeline_tests::ops_rig::{OpsRig, PLAN, VendorRig, affine, poll_once, until};
use wakeline_tests::vendor::Vendor;

use crate::ms;

device_tests![
    FakesLeaving: a_failure_of_each_call_of_a_program_is_an_error_or_counted,
        a_failure_of_each_call_of_graphs_is_an_error_or_counted,
        a_failure_of_each_call_of_tensors_is_an_error_or_counted;
    FakesLong: every_row_of_a_program,
        every_row_of_graphs,
        every_row_of_tensors;
];

const LEN: usize = 16;

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

/// Views of tensors, copies that take several calls, pinned buffers, numbers in chunks; each read as it is left.
fn tensors<D: Vendor>(kernel: &Function<D>, runtime: &Runtime<OpDevice<D>>) -> Result<Vec<u32>, Error> {
    let numbers: Vec<u32> = (0..64).collect();
    let square = block_on(Tensor::<_, OpDevice<D>>::from_shaped([8, 8], numbers.clone()).on(runtime))?;
    // Every other row, the other way round.
    let rows = square.permute(&[1, 0])?.stepped(0, .., 2)?;
    let packed = block_on(rows.dup().on(runtime))?;
    block_on(affine(kernel.clone(), &packed, 2, 1).on(runtime))?;
    let mut target = block_on(Tensor::<_, OpDevice<D>>::zeros([8, 8]).on(runtime))?;
    block_on(target.view_mut().slice(0, 2..3)?.overwrite(vec![9; 8]).on(runtime))?;
    block_on(target.view_mut().select(1, 0)?.copy_from(&square.select(1, 1)?).on(runtime))?;
    let buffer = PinnedBuffer::new(runtime.device(), 32)?;
    let (target, buffer) = block_on(zip!(value(target), packed.fetch_into(buffer)).on(runtime))?;
    let mut read = block_on(target.to_host().on(runtime))?;
    read.extend(buffer.to_vec()?);
    read.extend(block_on(rows.to_host().on(runtime))?);
    Ok(read)
}

/// What [`tensors`] comes to.
fn of_tensors() -> Vec<u32> {
    let at = |row: u32, column: u32| match (row, column) {
        (row, 0) => row * 8 + 1,
        (2, _) => 9,
        _ => 0,
    };
    let square = (0..8).flat_map(|row| (0..8).map(move |column| at(row, column)));
    let rows = || (0..8).step_by(2).flat_map(|row| (0..8).map(move |column| column * 8 + row));
    square.chain(rows().map(|number| number * 2 + 1)).chain(rows()).collect()
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

/// Runs the rows of one program, all in one stand-in: a context that broke is only the row's own, and is told soon.
fn rows<D: Vendor>(rig: &VendorRig<D>, name: &str, extent: Extent, program: Runs<D>, right: &[Vec<u32>]) {
    let fake = rig.fake();
    fake.configure(|options| options.fault_ends = FaultEnds::Context);
    let rows = each_call_fails(name, extent, right, |wrong| Ran::on(fake, wrong, || whole(rig, program)));
    assert!(rows > 150, "{rows} rows");
    // Others are as they were.
    block_on(rig.occupy(ms(1)).on(rig.runtime())).unwrap();
}

/// The operation that is dropped is not heard of where it fails.
fn of_program() -> [Vec<u32>; 2] {
    [vec![12; LEN], vec![10; LEN]]
}

fn of_graphs() -> Vec<u32> {
    [[30; LEN], [18; LEN]].concat()
}

fn a_failure_of_each_call_of_a_program_is_an_error_or_counted<D: Vendor>(rig: &VendorRig<D>) {
    rows(rig, "operations", Extent::Part, program, &of_program());
}

fn a_failure_of_each_call_of_graphs_is_an_error_or_counted<D: Vendor>(rig: &VendorRig<D>) {
    rows(rig, "graphs", Extent::Part, graphs, &[of_graphs()]);
}

fn a_failure_of_each_call_of_tensors_is_an_error_or_counted<D: Vendor>(rig: &VendorRig<D>) {
    rows(rig, "tensors", Extent::Part, tensors, &[of_tensors()]);
}

fn every_row_of_a_program<D: Vendor>(rig: &VendorRig<D>) {
    rows(rig, "operations", Extent::Every, program, &of_program());
}

fn every_row_of_graphs<D: Vendor>(rig: &VendorRig<D>) {
    rows(rig, "graphs", Extent::Every, graphs, &[of_graphs()]);
}

fn every_row_of_tensors<D: Vendor>(rig: &VendorRig<D>) {
    rows(rig, "tensors", Extent::Every, tensors, &[of_tensors()]);
}
