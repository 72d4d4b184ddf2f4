//! Graphs: recorded once, launched and awaited many times, on virtual time and a device that finds every misuse.

#![cfg(not(loom))]
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use common::{CONFIG, Rig, poll_once};
use wakeline_core::{Clock, CompletionPort, Error, ErrorCode, Nanos, Seq};
use wakeline_ops::port::{NodeKind, Priority, Shape};
use wakeline_ops::{DeviceOp, Graph, Stream, Submission, all, gate, value, with_context, zip};
use wakeline_sim::{SimConfig, SimDevice, SimKernel};
use wakeline_tensor::{KernelArg, Launch, Tensor, launch, set_kernel};

type Bytes = Tensor<u8, SimDevice>;

const PLAN: &str = "flag:park_us=50,backstop_us=1000+trust";
const ONE: Shape = Shape::new([1; 3], [1; 3]);
const RUN: Nanos = Nanos::from_micros(20);

/// Multiplies all bytes and adds a number to each.
fn affine(name: &'static str) -> SimKernel {
    let code = |args: &mut wakeline_sim::SimArgs| {
        let (by, plus) = (args.word(1), args.word(2));
        args.bytes_mut(0).iter_mut().for_each(|byte| *byte = (u64::from(*byte) * by + plus).to_le_bytes()[0]);
    };
    SimKernel::new(RUN, code).named(name)
}

fn args(tensor: &Bytes, by: u64, plus: u64) -> [KernelArg<SimDevice>; 3] {
    [KernelArg::write(tensor), KernelArg::word(by), KernelArg::word(plus)]
}

fn step(tensor: &Bytes, by: u64, plus: u64) -> Launch<SimDevice> {
    // SAFETY: the kernel takes bytes and two numbers, and writes those bytes only.
    unsafe { launch(affine("affine"), ONE, args(tensor, by, plus)) }
}

impl Rig {
    fn full(&self, byte: u8) -> Bytes {
        self.run(Tensor::full(4, byte).on(&self.runtime)).unwrap()
    }

    fn read(&self, tensor: &Bytes) -> Vec<u8> {
        self.run(tensor.to_host().on(&self.runtime)).unwrap()
    }

    fn stream(&self) -> Stream<SimDevice> {
        self.runtime.stream(Priority::Normal).unwrap()
    }

    /// As `assert_clean`, and no graph is left.
    fn assert_clean_of_graphs(&self) {
        self.assert_clean();
        assert_eq!(self.device.graphs(), 0);
    }
}

#[test]
fn nothing_runs_at_capture_and_every_launch_does_all_of_it() {
    let rig = Rig::new();
    let tensor = rig.full(1);
    let before = rig.runtime.counts();
    let graph = step(&tensor, 2, 1).then({
        let tensor = tensor.clone();
        move |()| step(&tensor, 3, 0).map(move |()| tensor)
    });
    let mut graph = graph.graph_on(&rig.stream()).unwrap();
    assert_eq!(rig.runtime.counts(), before, "no flight");
    assert_eq!(rig.read(&tensor), [1; 4]);
    let output = graph.take_output().unwrap();
    assert!(graph.take_output().is_none());
    let mut wanted = 1_u64;
    for _ in 0..3 {
        rig.run(graph.launch().on(&rig.runtime)).unwrap();
        wanted = (wanted * 2 + 1) * 3;
        assert_eq!(rig.read(&output), [wanted.to_le_bytes()[0]; 4]);
    }
    drop((graph, output, tensor));
    rig.assert_clean_of_graphs();
}

#[test]
fn branches_of_a_zip_run_at_a_time_and_what_conflicts_does_not() {
    let rig = Rig::new();
    let [one, two, shared] = [rig.full(1), rig.full(2), rig.full(3)];
    let took = |graph: &Graph<SimDevice, _>| {
        let start = rig.watcher.now();
        rig.run(graph.launch().on(&rig.runtime)).unwrap();
        rig.watcher.now().since(start)
    };
    let apart = || {
        zip!(
            step(&one, 2, 0).then({
                let one = one.clone();
                move |()| step(&one, 1, 1)
            }),
            step(&two, 2, 0)
        )
    };
    {
        let graph = apart().map(drop).graph_on(&rig.stream()).unwrap();
        assert_eq!(took(&graph), RUN + RUN, "the second branch runs beside the first");
        assert_eq!(graph.nodes().iter().filter(|node| node.after.is_empty()).count(), 2);
        let graph = apart().in_one_stream().map(drop).graph_on(&rig.stream()).unwrap();
        assert_eq!(took(&graph), RUN + RUN + RUN);
    }
    // Both write one buffer, in the order in which they were recorded; then something uses all.
    let both = zip!(step(&shared, 5, 0), step(&shared, 1, 1), step(&one, 1, 0)).map(drop);
    let graph = both
        .then({
            let shared = shared.clone();
            move |()| step(&shared, 2, 0)
        })
        .graph_on(&rig.stream())
        .unwrap();
    assert_eq!(took(&graph), RUN + RUN + RUN);
    assert_eq!(rig.read(&shared), [32; 4]);
    drop((graph, one, two, shared));
    rig.assert_clean_of_graphs();
}

#[test]
fn branches_within_branches_and_more_of_them_than_streams() {
    let rig = Rig::new();
    let tensors: Vec<_> = (0..40).map(|n| rig.full(n)).collect();
    let branch = |n: usize| {
        step(&tensors[2 * n], 3, 0).then({
            let (one, other) = (tensors[2 * n].clone(), tensors[2 * n + 1].clone());
            move |()| zip!(step(&one, 1, 1), step(&other, 1, 1)).map(drop)
        })
    };
    let op = all((0..20).map(branch)).map(drop);
    let graph = op
        .then({
            let all = tensors.clone();
            move |()| step(&all[0], 2, 0)
        })
        .graph_on(&rig.stream())
        .unwrap();
    assert_eq!(graph.nodes().len(), 61);
    rig.run(graph.launch().on(&rig.runtime)).unwrap();
    for (n, tensor) in tensors.iter().enumerate() {
        let number = n as u64;
        let wanted = match n {
            0 => 2,
            n if n % 2 == 0 => number * 3 + 1,
            _ => number + 1,
        };
        assert_eq!(rig.read(tensor), [wanted.to_le_bytes()[0]; 4], "{n}");
    }
    drop((graph, tensors));
    rig.assert_clean_of_graphs();
}

#[test]
fn case_7_each_replay_is_awaited_by_itself() {
    let rig = Rig::new();
    let tensor = rig.full(1);
    let graph = step(&tensor, 2, 0).graph_on(&rig.stream()).unwrap();
    // In one stream, where each has a number of its own, and in several.
    for one in [true, false] {
        let runtime =
            if one { rig.runtime.scheduled(&wakeline_ops::SingleStream) } else { rig.runtime.clone() };
        let mut flying: Vec<_> = (0..4).map(|_| graph.launch().on(&runtime)).collect();
        for future in &mut flying {
            assert!(poll_once(future).is_pending());
        }
        let start = rig.watcher.now();
        for (n, mut future) in flying.into_iter().enumerate() {
            assert!(poll_once(&mut future).is_pending(), "the one before says nothing of it");
            rig.run(future).unwrap();
            let runs = RUN.as_nanos() * (n as u64 + 1);
            assert_eq!(rig.watcher.now().since(start).as_nanos(), runs, "one after another");
        }
    }
    assert_eq!(rig.read(&tensor), [0; 4], "eight times doubled");
    drop((graph, tensor));
    rig.assert_clean_of_graphs();
}

#[test]
fn case_6_the_word_never_decreases_where_eager_work_and_replays_take_turns() {
    let rig = Rig::with(&SimConfig { first_word: Seq::new(u64::MAX - 3), ..CONFIG }, PLAN);
    let tensor = rig.full(0);
    let stream = rig.stream();
    let graph = step(&tensor, 1, 1).graph_on(&stream).unwrap();
    let mut flying = Vec::new();
    for n in 0..12 {
        graph.launch().sync_on(&stream).unwrap();
        if n % 2 == 0 {
            step(&tensor, 1, 1).sync_on(&stream).unwrap();
        }
        let mut eager = step(&tensor, 1, 1).on(&rig.runtime);
        assert!(poll_once(&mut eager).is_pending());
        flying.push(eager);
    }
    for eager in flying {
        rig.run(eager).unwrap();
    }
    assert_eq!(rig.read(&tensor), [30; 4]);
    let counts = rig.device.counts();
    assert_eq!((counts.overtaken, counts.lost), (0, 0), "numbers land in their order");
    drop((graph, tensor));
    rig.assert_clean_of_graphs();
}

#[test]
fn case_21_a_graph_owns_the_buffers_that_it_was_made_of() {
    let rig = Rig::new();
    let (from, to) = (rig.full(7), rig.full(0));
    let mut graph = from.copy_to(to).graph_on(&rig.stream()).unwrap();
    drop(from);
    let to = graph.take_output().unwrap();
    rig.settle();
    assert_eq!(rig.device.memory_use().buffers, 2);
    rig.run(graph.launch().on(&rig.runtime)).unwrap();
    assert_eq!(rig.read(&to), [7; 4]);
    // In flight, nobody else has it: neither is freed before the end.
    let mut replay = graph.launch().on(&rig.runtime);
    assert!(poll_once(&mut replay).is_pending());
    drop((graph, to, replay));
    assert_eq!((rig.device.memory_use().buffers, rig.device.graphs()), (2, 1));
    rig.assert_clean_of_graphs();
}

#[test]
fn case_26_a_graph_owns_the_numbers_of_the_host_that_it_sends() {
    let rig = Rig::new();
    let tensor = rig.full(0);
    let numbers = vec![1, 2, 3, 4];
    let mut graph = tensor.overwrite(numbers).graph_on(&rig.stream()).unwrap();
    let tensor = graph.take_output().unwrap();
    rig.settle();
    for _ in 0..2 {
        rig.run(step(&tensor, 0, 0).on(&rig.runtime)).unwrap();
        // Another takes the memory of the host that is free by then.
        rig.full(9).overwrite(vec![9; 4]).on(&rig.runtime).sync().unwrap();
        rig.run(graph.launch().on(&rig.runtime)).unwrap();
        assert_eq!(rig.read(&tensor), [1, 2, 3, 4]);
    }
    drop((graph, tensor));
    rig.assert_clean_of_graphs();
}

/// What a capture of this is refused for.
fn refused<O>(rig: &Rig, op: O) -> Error
where
    O: DeviceOp<Device = SimDevice, Output = <O as DeviceOp>::Pending>,
{
    let streams = rig.device.slots();
    let error = op.graph_on(&rig.stream()).map(drop).unwrap_err();
    rig.settle();
    assert_eq!((rig.device.slots(), rig.device.graphs()), (streams, 0), "nothing is left of it: {error}");
    error
}

#[test]
fn what_cannot_be_repeated_is_refused_and_says_what_to_do() {
    let rig = Rig::new();
    let tensor = rig.full(1);
    let says = |error: Error, what: &str, instead: &str| {
        assert_eq!(error.code(), ErrorCode::CaptureRefused, "{error}");
        assert!(error.args()[0].contains(what) && error.args()[1].contains(instead), "{error}");
    };
    says(refused(&rig, Tensor::<u8, SimDevice>::full(4, 1)), "an allocation", "before the capture");
    // Also where whoever is told goes on.
    let swallows = with_context(|submission: &mut Submission<SimDevice>| {
        drop(Tensor::<u8, SimDevice>::full(4, 1).execute(submission));
        Ok(value(()))
    });
    says(refused(&rig, swallows), "an allocation", "hand the memory in");
    let reads = tensor.to_host();
    let read = with_context(move |submission: &mut Submission<SimDevice>| {
        reads.execute(submission)?;
        Ok(value(()))
    });
    says(refused(&rig, read), "a read to the host", "behind a launch");
    let (handle, opened) = gate::<SimDevice>(Nanos::from_micros(50)).unwrap();
    says(refused(&rig, opened), "a gate", "graph.launch()");
    drop(handle);
    says(refused(&rig, step(&tensor, 1, 1).shared()), "a shared operation", "before");
    let graph = step(&tensor, 1, 1).graph_on(&rig.stream()).unwrap();
    let launches = graph.launch();
    drop(graph);
    let error = launches.clone().graph_on(&rig.stream()).unwrap_err();
    says(error, "the launch of a graph", "record");
    drop(launches);
    // A function of the host would be called by each launch: the device itself says so.
    let calls = with_context(|submission: &mut Submission<SimDevice>| {
        submission.stream().raw().call_host(|| ())?;
        Ok(value(()))
    });
    assert_eq!(refused(&rig, calls).code(), ErrorCode::Backend);
    assert_eq!(rig.read(&tensor), [1; 4], "nothing of them has run");
    drop(tensor);
    rig.assert_clean_of_graphs();
}

#[test]
fn case_37_a_capture_ends_whatever_its_closure_does() {
    let rig = Rig::new();
    let (tensor, stream) = (rig.full(1), rig.stream());
    let failing = Error::new(ErrorCode::Stalled, [&1]);
    let fails = |error: Error| {
        step(&tensor, 2, 0)
            .and_then_with_context(move |_, ()| Err::<wakeline_ops::Value<SimDevice, ()>, _>(error))
    };
    let slots = rig.device.slots();
    for _ in 0..3 {
        assert_eq!(fails(failing.clone()).graph_on(&stream).unwrap_err().code(), ErrorCode::Stalled);
        // In a branch, beside others.
        let op = zip!(step(&tensor, 1, 1), fails(failing.clone()), step(&tensor, 1, 1)).map(drop);
        assert_eq!(op.graph_on(&stream).unwrap_err().code(), ErrorCode::Stalled);
        let panics =
            zip!(step(&tensor, 1, 1), step(&tensor, 1, 1).map(|()| std::panic::resume_unwind(Box::new(()))));
        assert!(catch_unwind(AssertUnwindSafe(|| panics.map(drop).graph_on(&stream).map(drop))).is_err());
        let scope = Graph::scope(&stream, |graph| {
            drop(graph.record(fails(failing.clone())));
            graph.record(step(&tensor, 1, 1))
        });
        assert_eq!(
            scope.unwrap_err().code(),
            ErrorCode::Stalled,
            "told by the operation, whatever came then"
        );
        step(&tensor, 1, 1).sync_on(&stream).unwrap();
    }
    rig.settle();
    assert_eq!(rig.device.slots().free, slots.free, "no stream is left");
    let graph = step(&tensor, 2, 0).graph_on(&stream).unwrap();
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!(rig.read(&tensor), [8; 4]);
    drop((graph, tensor));
    rig.assert_clean_of_graphs();
}

#[test]
fn no_operation_is_executed_and_nothing_captured_within_a_capture() {
    let rig = Rig::new();
    let (tensor, stream) = (rig.full(1), rig.stream());
    let other = step(&tensor, 1, 0).graph_on(&stream).unwrap();
    let graph = Graph::scope(&stream, |graph| {
        let nested = ErrorCode::NestedExecution;
        assert_eq!(step(&tensor, 1, 1).on(&rig.runtime).sync().unwrap_err().code(), nested);
        assert_eq!(step(&tensor, 1, 1).sync_on(&stream).unwrap_err().code(), nested);
        let Poll::Ready(Err(error)) = poll_once(&mut step(&tensor, 1, 1).on(&rig.runtime)) else {
            return Err(Error::new(ErrorCode::Stalled, [&1]));
        };
        assert_eq!(error.code(), nested);
        assert_eq!(step(&tensor, 1, 1).graph_on(&stream).map(drop).unwrap_err().code(), nested);
        assert_eq!(other.update(step(&tensor, 1, 1)).unwrap_err().code(), nested);
        graph.record(step(&tensor, 3, 0))
    });
    graph.unwrap().launch().sync_on(&stream).unwrap();
    assert_eq!(rig.read(&tensor), [3; 4]);
    drop((other, tensor));
    rig.assert_clean_of_graphs();
}

#[test]
fn an_update_is_in_front_of_the_launches_that_come_later() {
    let rig = Rig::new();
    let (from, to) = (rig.full(0), rig.full(0));
    let graph = from.copy_to(to.clone()).map(drop).graph_on(&rig.stream());
    assert_eq!(graph.unwrap_err().code(), ErrorCode::TensorShared);
    let mut graph = from.copy_to(to).graph_on(&rig.stream()).unwrap();
    let to = graph.take_output().unwrap();
    for n in 1..5 {
        graph.update(step(&from, 0, n)).unwrap();
        // In another stream, and while the update runs.
        rig.run(graph.launch().on(&rig.runtime)).unwrap();
        assert_eq!(rig.read(&to), [n.to_le_bytes()[0]; 4]);
    }
    drop((graph, from, to));
    rig.assert_clean_of_graphs();
}

#[test]
fn a_shared_operation_that_has_run_is_what_launches_come_behind() {
    let rig = Rig::new();
    let tensor = rig.full(1);
    let shared = step(&tensor, 2, 0).shared();
    let mut first = shared.clone().on(&rig.runtime);
    assert!(poll_once(&mut first).is_pending());
    let busy = with_context(|submission: &mut Submission<SimDevice>| {
        submission.stream().raw().launch(RUN)?;
        Ok(value(()))
    });
    let graph = shared.then(move |_| busy).graph_on(&rig.stream()).unwrap();
    let start = rig.watcher.now();
    rig.run(graph.launch().on(&rig.runtime)).unwrap();
    assert_eq!(rig.watcher.now().since(start), RUN + RUN, "behind it, though they share no buffer");
    rig.run(first).unwrap();
    drop((graph, tensor));
    rig.assert_clean_of_graphs();
}

#[test]
fn a_graph_becomes_another_of_the_same_nodes_and_no_other() {
    let rig = Rig::new();
    let (one, two) = (rig.full(1), rig.full(1));
    let twice = |tensor: &Bytes, by| {
        step(tensor, by, 0).then({
            let tensor = tensor.clone();
            move |()| step(&tensor, 1, 1)
        })
    };
    let mut graph = twice(&one, 2).graph_on(&rig.stream()).unwrap();
    // One is in flight while it changes, and nobody else has its buffer.
    let mut before = graph.launch().on(&rig.runtime);
    assert!(poll_once(&mut before).is_pending());
    graph.recapture(twice(&two, 5)).unwrap();
    rig.run(graph.launch().on(&rig.runtime)).unwrap();
    rig.run(before).unwrap();
    assert_eq!((rig.read(&one), rig.read(&two)), (vec![3; 4], vec![6; 4]));
    drop(one);
    rig.settle();
    assert_eq!(rig.device.memory_use().buffers, 1, "what it used before is let go");
    let says = |error: Error, why: &str| {
        assert_eq!(error.code(), ErrorCode::GraphMismatch, "{error}");
        assert!(error.to_string().contains(why), "{error}");
    };
    says(graph.recapture(step(&two, 1, 1)).unwrap_err(), "2 nodes, and the other 1");
    let other = rig.full(0);
    let apart = zip!(step(&two, 1, 1), step(&other, 1, 1)).map(drop);
    says(graph.recapture(apart).unwrap_err(), "comes after other nodes");
    let copies = two.copy_to(other).then(|to| step(&to, 1, 1));
    says(graph.recapture(copies).unwrap_err(), "of another kind");
    // It is as it was.
    rig.run(graph.launch().on(&rig.runtime)).unwrap();
    assert_eq!(rig.read(&two), [31; 4]);
    drop((graph, two));
    rig.assert_clean_of_graphs();
}

#[test]
fn a_kernel_of_a_graph_gets_other_arguments() {
    let rig = Rig::new();
    let (one, two, through) = (rig.full(1), rig.full(1), rig.full(0));
    let op = one.copy_to(through).then(|to| step(&to, 2, 0).map(move |()| to));
    let mut graph = op.graph_on(&rig.stream()).unwrap();
    let through = graph.take_output().unwrap();
    let kernel = graph.nodes().iter().position(|node| node.kind == NodeKind::Kernel).unwrap();
    let mut before = graph.launch().on(&rig.runtime);
    assert!(poll_once(&mut before).is_pending());
    let set = |node, tensor: &Bytes, by| {
        // SAFETY: the kernel takes bytes and two numbers, and writes those bytes only; the graph is a chain.
        unsafe { set_kernel(&graph, node, &affine("other"), ONE, args(tensor, by, 0)) }
    };
    set(kernel, &through, 7).unwrap();
    rig.run(before).unwrap();
    assert_eq!(rig.read(&through), [2; 4], "what was in flight stays as it was");
    rig.run(graph.launch().on(&rig.runtime)).unwrap();
    assert_eq!(rig.read(&through), [7; 4]);
    // A buffer that it did not have before: kept, and ordered.
    set(kernel, &two, 5).unwrap();
    let mut behind = step(&two, 1, 1).on(&rig.runtime);
    assert!(poll_once(&mut behind).is_pending());
    rig.run(graph.launch().on(&rig.runtime)).unwrap();
    rig.run(behind).unwrap();
    assert_eq!((rig.read(&two), rig.read(&through)), (vec![10; 4], vec![1; 4]));
    for (node, why) in [(1 - kernel, "launches no kernel"), (9, "there are 2 nodes")] {
        let error = set(node, &through, 1).unwrap_err();
        assert_eq!(error.code(), ErrorCode::GraphMismatch);
        assert!(error.to_string().contains(why), "{error}");
    }
    let elsewhere = Rig::new();
    assert_eq!(set(kernel, &elsewhere.full(1), 1).unwrap_err().code(), ErrorCode::ForeignMemory);
    let error = elsewhere.run(graph.launch().on(&elsewhere.runtime)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ForeignMemory);
    set(kernel, &through, 1).unwrap();
    drop(two);
    rig.settle();
    assert_eq!(rig.device.memory_use().buffers, 2, "what the node used before is let go");
    drop((graph, one, through));
    rig.assert_clean_of_graphs();
    elsewhere.assert_clean();
}

#[test]
fn a_graph_that_the_device_does_not_take_names_the_node() {
    let rig = Rig::with(&SimConfig { graph_nodes_max: 2, ..CONFIG }, PLAN);
    let tensor = rig.full(1);
    let three = || step(&tensor, 2, 0);
    let error = zip!(three(), three(), three()).map(drop).graph_on(&rig.stream()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::GraphRefused);
    assert_eq!(error.args()[1], "node 2");
    drop(tensor);
    rig.assert_clean_of_graphs();
}

#[test]
fn a_graph_is_drawn_with_its_nodes_and_what_they_come_after() {
    let rig = Rig::new();
    let (one, two, to) = (rig.full(1), rig.full(2), rig.full(0));
    let op = zip!(step(&one, 2, 0), step(&two, 2, 0)).map(drop);
    let graph = op.then(move |()| one.copy_to(to)).map(drop).graph_on(&rig.stream()).unwrap();
    let (dot, svg) = (graph.dot(), graph.svg());
    for line in ["n0 [label=\"0: affine\"", "n2 [label=\"2: copy\"", "n0 -> n2;", "n1 -> n2;"] {
        assert!(dot.contains(line), "{line} in {dot}");
    }
    assert!(!dot.contains("n0 -> n1"), "{dot}");
    assert_eq!((svg.matches("<rect").count(), svg.matches("<line").count()), (3, 2), "{svg}");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    drop((graph, two));
    rig.assert_clean_of_graphs();
}

#[test]
fn case_32_what_is_launched_into_a_stream_that_others_capture_is_refused() {
    let rig = Rig::new();
    let (tensor, stream) = (rig.full(1), rig.stream());
    let graph = step(&tensor, 2, 0).graph_on(&stream).unwrap();
    stream.raw().begin_capture().unwrap();
    let error = graph.launch().sync_on(&stream).unwrap_err();
    assert_eq!(error.code(), ErrorCode::StreamCapturing);
    assert_eq!(step(&tensor, 2, 0).sync_on(&stream).unwrap_err().code(), ErrorCode::StreamCapturing);
    // Captures of ours are in streams of their own: they take no notice.
    drop(step(&tensor, 5, 0).graph_on(&stream).unwrap());
    drop(graph);
    assert_eq!(stream.raw().end_capture().unwrap().nodes(), [], "nothing of it was captured");
    step(&tensor, 3, 0).sync_on(&stream).unwrap();
    assert_eq!(rig.read(&tensor), [3; 4]);
    drop(tensor);
    rig.assert_clean_of_graphs();
}

#[test]
fn case_34_a_store_into_a_capturing_stream_is_refused_and_the_word_stays() {
    let rig = Rig::new();
    let stream = rig.device.stream().unwrap();
    let reads = || stream.line().load(stream.slot());
    let before = reads();
    stream.begin_capture().unwrap();
    stream.launch(RUN).unwrap();
    let mut point = stream.point();
    assert_eq!(point.arm().unwrap_err().code(), ErrorCode::StreamCapturing);
    assert!(point.descriptor().is_none());
    assert_eq!(reads(), before);
    let captured = stream.end_capture().unwrap();
    assert_eq!(captured.nodes().len(), 1, "the capture has gone on");
    let mut point = stream.point();
    point.arm().unwrap();
    rig.settle();
    assert_eq!(reads(), before.next());
}

#[test]
fn a_fault_in_a_launch_ends_all_of_them_and_what_they_use_is_accounted_for() {
    let rig = Rig::new();
    let tensor = rig.full(1);
    let graph = zip!(step(&tensor, 2, 0), step(&tensor, 1, 1)).map(drop).graph_on(&rig.stream()).unwrap();
    let mut flying: Vec<_> = (0..3).map(|_| graph.launch().on(&rig.runtime)).collect();
    for future in &mut flying {
        assert!(poll_once(future).is_pending());
    }
    rig.device.inject_fault();
    for future in flying {
        assert_eq!(rig.run(future).unwrap_err().code(), ErrorCode::Backend);
    }
    assert_eq!(rig.run(graph.launch().on(&rig.runtime)).unwrap_err().code(), ErrorCode::Backend);
    assert_eq!(step(&tensor, 1, 1).graph_on(&rig.stream_or(&graph)).unwrap_err().code(), ErrorCode::Backend);
    let counts = rig.runtime.counts();
    assert_eq!((counts.in_flight(), counts.leaked), (0, 4), "{counts:?}");
    drop((graph, tensor));
    assert_eq!(rig.device.misuses(), []);
    assert_eq!((rig.device.graphs(), rig.device.memory_use().buffers), (1, 1), "they keep it for good");
}

impl Rig {
    /// The graph's stream: a device that has failed makes none.
    fn stream_or<T>(&self, graph: &Graph<SimDevice, T>) -> Stream<SimDevice> {
        self.runtime.stream(Priority::Normal).unwrap_or_else(|_| graph.stream().clone())
    }
}

#[test]
fn graphs_are_made_by_the_runtime_that_is_bound() {
    let rig = Rig::new();
    let tensor = Arc::new(rig.full(1));
    let graph = {
        let tensor = Arc::clone(&tensor);
        rig.run(rig.runtime.scope(async move { step(&tensor, 2, 0).graph() })).unwrap()
    };
    assert_eq!(step(&tensor, 2, 0).graph().map(drop).unwrap_err().code(), ErrorCode::NoRuntime);
    rig.run(rig.runtime.scope({
        let launch = graph.launch();
        async move { launch.await }
    }))
    .unwrap();
    assert_eq!(rig.read(&tensor), [2; 4]);
    drop((graph, tensor));
    rig.assert_clean_of_graphs();
}
