//! Graphs: recorded once, launched and awaited many times.

// It sets arguments of kernels, and captures as a user would.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use wakeline_core::{Error, ErrorCode};
use wakeline_fake_driver::{Act, Rule, Status};
use wakeline_ops::port::{Device, Graphs, NodeKind, Priority, Shape};
use wakeline_ops::{
    DeviceOp, Graph, SingleStream, Stream, Submission, Value, gate, value, with_context, zip,
};
use wakeline_std::block_on;
use wakeline_tensor::{KernelArg, Launch, Tensor, set_kernel};
use wakeline_tests::device_tests;
use wakeline_tests::ops_rig::{GraphRig, OpsRig, VendorRig, affine, poll_once, until};
use wakeline_tests::vendor::Vendor;

use crate::ms;

device_tests![
    Graphs: launches_do_all_of_it_and_are_awaited_one_by_one,
        branches_of_a_zip_are_branches_of_the_graph,
        case_6_eager_work_and_launches_take_turns,
        case_7_the_end_of_one_launch_says_nothing_of_the_next,
        case_21_a_graph_owns_what_it_was_made_of,
        case_26_a_graph_owns_the_numbers_of_the_host_that_it_sends,
        case_37_a_capture_ends_whatever_its_closure_does,
        what_cannot_be_repeated_is_refused,
        no_stream_of_a_runtime_is_taken_into_a_capture,
        launches_in_several_streams_and_from_several_threads_are_ordered,
        a_graph_becomes_another_of_the_same_nodes_and_no_other,
        a_graph_whose_nodes_come_after_others_is_no_update,
        a_kernel_of_a_graph_gets_other_arguments;
    GraphsLeaving: a_fault_in_a_launch_ends_all_of_them;
    Vendors: case_32_a_stream_that_others_capture_takes_no_operation,
        a_capture_of_the_users_in_global_mode_survives_all_that_graphs_do;
    Fakes: a_graph_that_the_driver_does_not_take_names_the_node,
        a_launch_makes_one_call_and_records_one_event,
        what_is_captured_is_as_urgent_as_its_stream,
        nothing_is_left_of_a_capture_whatever_fails;
];

type Numbers<R> = Tensor<u32, <R as OpsRig>::Device>;

const LEN: usize = 64;

fn full<R: GraphRig>(rig: &R, number: u32) -> Numbers<R> {
    block_on(Tensor::full(LEN, number).on(rig.runtime())).unwrap()
}

fn read<R: GraphRig>(rig: &R, tensor: &Numbers<R>) -> Vec<u32> {
    block_on(tensor.to_host().on(rig.runtime())).unwrap()
}

fn stream<R: GraphRig>(rig: &R) -> Stream<R::Device> {
    rig.runtime().stream(Priority::Normal).unwrap()
}

/// A chain of so many kernels, each of which multiplies and adds.
fn chain<R: GraphRig>(rig: &R, tensor: &Numbers<R>, steps: &[(u32, u32)]) -> Graph<R::Device> {
    let graph = Graph::scope(&stream(rig), |graph| {
        steps.iter().try_for_each(|(factor, addend)| graph.record(rig.affine(tensor, *factor, *addend)))
    });
    graph.unwrap()
}

fn launches_do_all_of_it_and_are_awaited_one_by_one<R: GraphRig>(rig: &R) {
    let tensor = full(rig, 1);
    let steps: Vec<_> = (0..32).map(|n| (3, n)).collect();
    let graph = chain(rig, &tensor, &steps);
    assert_eq!(read(rig, &tensor), [1; LEN], "nothing has run");
    assert_eq!(graph.nodes().len(), 32);
    let mut wanted = 1_u32;
    for launch in 0..5 {
        if launch % 2 == 0 {
            block_on(graph.launch().on(rig.runtime())).unwrap();
        } else {
            graph.launch().sync_on(graph.stream()).unwrap();
        }
        wanted = steps.iter().fold(wanted, |number, (by, plus)| number.wrapping_mul(*by).wrapping_add(*plus));
        assert_eq!(read(rig, &tensor), [wanted; LEN]);
    }
}

fn branches_of_a_zip_are_branches_of_the_graph<R: GraphRig>(rig: &R) {
    let [one, two, three] = [1, 2, 3].map(|number| full(rig, number));
    let step = |tensor: &Numbers<R>, factor| rig.affine(tensor, factor, 0);
    let both = zip!(step(&one, 2), zip!(step(&two, 3), step(&three, 5))).map(drop);
    // Both of the last write one tensor, and one reads what was written in another branch.
    let (next, last) = (zip!(step(&one, 7), step(&one, 1)).map(drop), one.copy_to(three.clone()));
    let error = last.graph_on(&stream(rig)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TensorShared);
    let behind = step(&one, 11);
    let graph = both.then(move |()| next).then(move |()| behind).graph_on(&stream(rig)).unwrap();
    let nodes = graph.nodes();
    let mut rows: Vec<usize> = Vec::new();
    for node in &nodes {
        rows.push(node.after.iter().map(|before| rows[*before] + 1).max().unwrap_or(0));
    }
    let count = |row| rows.iter().filter(|its| **its == row).count();
    assert_eq!([0, 1, 2, 3].map(count), [3, 1, 1, 1], "{nodes:?}");
    for _ in 0..2 {
        block_on(graph.launch().on(rig.runtime())).unwrap();
    }
    let (one, two, three) = (read(rig, &one), read(rig, &two), read(rig, &three));
    assert_eq!((one[0], two[0], three[0]), (154 * 154, 18, 75));
    assert!(graph.dot().contains("n3 -> n4;") && graph.svg().ends_with("</svg>\n"), "{}", graph.dot());
}

/// A graph reset a counter, and who waited for eager work got stuck.
fn case_6_eager_work_and_launches_take_turns<R: GraphRig>(rig: &R) {
    let tensor = full(rig, 0);
    let graph = chain(rig, &tensor, &[(1, 1)]);
    // All in one stream, each with a number of its own in the stream's word.
    let runtime = rig.runtime().scheduled(&SingleStream);
    let mut flying = Vec::new();
    for round in 0..30 {
        let mut eager = rig.affine(&tensor, 1, 1).on(&runtime);
        assert!(!matches!(poll_once(&mut eager), Poll::Ready(Err(_))));
        let mut replay = graph.launch().on(&runtime);
        let done = poll_once(&mut replay);
        if round % 3 == 0 && done.is_pending() {
            block_on(replay).unwrap();
        }
        flying.push(eager);
    }
    rig.settle();
    assert_eq!(read(rig, &tensor), [60; LEN]);
}

/// A captured value was the same in each launch, and the second await passed at once.
fn case_7_the_end_of_one_launch_says_nothing_of_the_next<R: GraphRig>(rig: &R) {
    let kept = Arc::new(());
    let graph = rig.busy(ms(60), Arc::clone(&kept)).graph_on(&stream(rig)).unwrap();
    block_on(graph.launch().on(rig.runtime())).unwrap();
    let mut flying: Vec<_> = (0..2).map(|_| graph.launch().on(rig.runtime())).collect();
    for replay in &mut flying {
        assert!(poll_once(replay).is_pending(), "the one before says nothing of it");
    }
    let second = flying.pop().unwrap();
    block_on(flying.pop().unwrap()).unwrap();
    assert!(rig.runtime().counts().in_flight() > 0, "the second is still under way");
    block_on(second).unwrap();
    drop(graph);
    until("it is let go", || Arc::strong_count(&kept) == 1);
}

/// A graph outlived the buffers that it was made of.
fn case_21_a_graph_owns_what_it_was_made_of<R: GraphRig>(rig: &R) {
    let (from, to) = (full(rig, 7), full(rig, 0));
    let mut graph = from.copy_to(to).graph_on(&stream(rig)).unwrap();
    drop(from);
    let to = graph.take_output().unwrap();
    // Others get what is free.
    let others: Vec<_> = (0..8).map(|number| full(rig, 100 + number)).collect();
    block_on(graph.launch().on(rig.runtime())).unwrap();
    assert_eq!(read(rig, &to), [7; LEN]);
    let last = to.to_host();
    let mut replay =
        block_on(value(()).on(rig.runtime())).map(|()| graph.launch().on(rig.runtime())).unwrap();
    assert!(!matches!(poll_once(&mut replay), Poll::Ready(Err(_))));
    // The graph, its output and who awaits it go while it is in flight.
    drop((graph, to, replay, others));
    assert_eq!(block_on(last.on(rig.runtime())).unwrap(), [7; LEN]);
}

/// Numbers of the host were freed after the capture, and the launch crashed.
fn case_26_a_graph_owns_the_numbers_of_the_host_that_it_sends<R: GraphRig>(rig: &R) {
    let (tensor, numbers) = (full(rig, 0), (0..64).collect::<Vec<u32>>());
    let mut graph = tensor.overwrite(numbers.clone()).graph_on(&stream(rig)).unwrap();
    let mut tensor = graph.take_output().unwrap();
    for round in 0..3 {
        // Another one takes what pinned memory is free.
        tensor = block_on(tensor.overwrite(vec![round; LEN]).on(rig.runtime())).unwrap();
        assert_eq!(read(rig, &tensor), [round; LEN]);
        block_on(graph.launch().on(rig.runtime())).unwrap();
        assert_eq!(read(rig, &tensor), numbers);
    }
}

/// After one capture had failed every call did.
fn case_37_a_capture_ends_whatever_its_closure_does<R: GraphRig>(rig: &R) {
    let (tensor, on) = (full(rig, 1), stream(rig));
    let failing = || Error::new(ErrorCode::Stalled, [&1]);
    for _ in 0..2 {
        let fails = rig
            .affine(&tensor, 2, 0)
            .and_then_with_context(move |_, ()| Err::<Value<R::Device, ()>, _>(failing()));
        let op = zip!(rig.affine(&tensor, 2, 0), fails, rig.affine(&tensor, 2, 0)).map(drop);
        assert_eq!(op.graph_on(&on).unwrap_err().code(), ErrorCode::Stalled);
        let panics = rig.affine(&tensor, 2, 0).map(|()| std::panic::resume_unwind(Box::new(())));
        let op = zip!(rig.affine(&tensor, 2, 0), panics).map(drop);
        assert!(catch_unwind(AssertUnwindSafe(|| op.graph_on(&on).map(drop))).is_err());
        let swallowed = Graph::scope(&on, |graph| {
            drop(graph.record(Tensor::<u32, R::Device>::full(4, 0)));
            graph.record(rig.affine(&tensor, 2, 0))
        });
        assert_eq!(swallowed.unwrap_err().code(), ErrorCode::CaptureRefused);
        let survived = Graph::scope(&on, |graph| {
            let panics = rig.affine(&tensor, 2, 0).map(|()| std::panic::resume_unwind(Box::new(())));
            assert!(catch_unwind(AssertUnwindSafe(|| graph.record(panics.map(|()| ())))).is_err());
            graph.record(rig.affine(&tensor, 2, 0))
        });
        assert_eq!(survived.unwrap_err().code(), ErrorCode::CaptureRefused);
        rig.affine(&tensor, 3, 0).sync_on(&on).unwrap();
    }
    let graph = chain(rig, &tensor, &[(5, 0)]);
    graph.launch().sync_on(&on).unwrap();
    assert_eq!(read(rig, &tensor), [45; LEN]);
}

/// What a capture of this says.
fn refused<D: Graphs, O>(on: &Stream<D>, op: O) -> ErrorCode
where
    O: DeviceOp<Device = D, Output = <O as DeviceOp>::Pending>,
{
    op.graph_on(on).map(drop).unwrap_err().code()
}

fn what_cannot_be_repeated_is_refused<R: GraphRig>(rig: &R) {
    let tensor = full(rig, 1);
    let on = stream(rig);
    assert_eq!(refused(&on, Tensor::<u32, R::Device>::full(4, 1)), ErrorCode::CaptureRefused);
    let reads = tensor.to_host();
    let read_within = with_context(move |submission: &mut Submission<R::Device>| {
        reads.execute(submission)?;
        Ok(value(()))
    });
    assert_eq!(refused(&on, read_within), ErrorCode::CaptureRefused);
    let (handle, opened) = gate::<R::Device>(ms(50)).unwrap();
    assert_eq!(refused(&on, opened), ErrorCode::CaptureRefused);
    drop(handle);
    assert_eq!(refused(&on, rig.affine(&tensor, 2, 0).shared()), ErrorCode::CaptureRefused);
    let calls = with_context(|submission: &mut Submission<R::Device>| {
        let stream = submission.stream().clone();
        stream.device().call_host(stream.raw(), || ())?;
        Ok(value(()))
    });
    assert!([ErrorCode::StreamCapturing, ErrorCode::Backend].contains(&refused(&on, calls)));
    let graph = chain(rig, &tensor, &[(2, 0)]);
    assert_eq!(refused(&on, graph.launch()), ErrorCode::CaptureRefused);
    let nested = Graph::scope(&on, |graph| {
        let error = rig.affine(&tensor, 2, 0).on(rig.runtime()).sync().unwrap_err();
        assert_eq!(error.code(), ErrorCode::NestedExecution);
        let error = rig.affine(&tensor, 2, 0).graph_on(&on).map(drop).unwrap_err();
        assert_eq!(error.code(), ErrorCode::NestedExecution);
        graph.record(rig.affine(&tensor, 3, 0))
    });
    block_on(nested.unwrap().launch().on(rig.runtime())).unwrap();
    assert_eq!(read(rig, &tensor), [3; LEN]);
}

/// It would be captured along with whatever others enqueue in it at that moment.
fn no_stream_of_a_runtime_is_taken_into_a_capture<R: GraphRig>(rig: &R) {
    let (tensor, other) = (full(rig, 1), full(rig, 1));
    let on = stream(rig);
    let device = on.device().clone();
    let event = Arc::new(device.event().unwrap());
    let recorded = Arc::clone(&event);
    let records = with_context(move |submission: &mut Submission<R::Device>| {
        submission.stream().device().record(submission.stream().raw(), &recorded)?;
        Ok(value(()))
    });
    let graph = Graph::scope(&on, |graph| {
        graph.record(rig.affine(&tensor, 3, 0))?;
        graph.record(records)?;
        let error = device.wait(on.raw(), &event).unwrap_err();
        assert_eq!(error.code(), ErrorCode::StreamCapturing, "{error}");
        // So what others enqueue there runs.
        device.record(on.raw(), &event)?;
        device.wait(on.raw(), &event)?;
        graph.record(rig.affine(&tensor, 1, 4))
    });
    let graph = graph.unwrap();
    assert_eq!(graph.nodes().len(), 2);
    block_on(rig.affine(&other, 5, 0).on(rig.runtime())).unwrap();
    assert_eq!((read(rig, &tensor), read(rig, &other)), (vec![1; LEN], vec![5; LEN]));
    block_on(graph.launch().on(rig.runtime())).unwrap();
    assert_eq!(read(rig, &tensor), [7; LEN]);
    rig.settle();
}

fn launches_in_several_streams_and_from_several_threads_are_ordered<R: GraphRig>(rig: &R) {
    const EACH: u32 = 40;
    let (tensor, other) = (full(rig, 0), full(rig, 0));
    let graph = chain(rig, &tensor, &[(1, 1), (1, 1)]);
    // They share no buffer, and the driver runs one launch of a graph at a time.
    let empty = rig.occupy(ms(0)).graph_on(&stream(rig)).unwrap();
    let (runtime, kernel) = (rig.runtime(), rig.affines());
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (graph, empty, tensor, other, kernel) = (&graph, &empty, &tensor, &other, &kernel);
            scope.spawn(move || {
                for _ in 0..EACH {
                    let mut replay = graph.launch().on(runtime);
                    assert!(!matches!(poll_once(&mut replay), Poll::Ready(Err(_))));
                    block_on(empty.launch().on(runtime)).unwrap();
                    if thread == 0 {
                        let step = |tensor| affine::<R::Device>(kernel.clone(), tensor, 1, 1);
                        block_on(step(tensor).on(runtime)).unwrap();
                        graph.update(step(other)).unwrap();
                    }
                }
            });
        }
    });
    rig.settle();
    assert_eq!(read(rig, &tensor), [EACH * 3 * 2 + EACH; LEN]);
    assert_eq!(read(rig, &other), [EACH; LEN]);
}

fn a_graph_becomes_another_of_the_same_nodes_and_no_other<R: GraphRig>(rig: &R) {
    let (one, two) = (full(rig, 1), full(rig, 1));
    let twice = |tensor: &Numbers<R>, factor| {
        let next: Launch<R::Device> = rig.affine(tensor, 1, 1);
        rig.affine(tensor, factor, 0).then(move |()| next)
    };
    let mut graph = twice(&one, 2).graph_on(&stream(rig)).unwrap();
    let mut before = graph.launch().on(rig.runtime());
    assert!(!matches!(poll_once(&mut before), Poll::Ready(Err(_))));
    graph.recapture(twice(&two, 5)).unwrap();
    block_on(graph.launch().on(rig.runtime())).unwrap();
    rig.settle();
    assert_eq!((read(rig, &one), read(rig, &two)), (vec![3; LEN], vec![6; LEN]));
    drop((one, before));
    for _ in 0..2 {
        let error = graph.recapture(rig.affine(&two, 1, 1)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::GraphMismatch, "{error}");
        let other = full(rig, 0);
        let copies = two.copy_to(other).map(drop);
        let error = graph.recapture(copies.then({
            let next = rig.affine(&two, 1, 1);
            move |()| next
        }));
        assert_eq!(error.unwrap_err().code(), ErrorCode::GraphMismatch);
        // Its first node could become the other's, the last could not: none does.
        let copies = two.copy_to(full(rig, 0)).map(drop);
        let error = graph.recapture(rig.affine(&two, 9, 0).then(move |()| copies));
        assert_eq!(error.unwrap_err().code(), ErrorCode::GraphMismatch);
        block_on(graph.launch().on(rig.runtime())).unwrap();
    }
    assert_eq!(read(rig, &two), [156; LEN], "it is as it was");
}

/// The kernels would run in the order of the graph before, one of them too early.
fn a_graph_whose_nodes_come_after_others_is_no_update<R: GraphRig>(rig: &R) {
    let tensors = [1, 1].map(|number| full(rig, number));
    let both = || zip!(rig.affine(&tensors[0], 2, 0), rig.affine(&tensors[1], 2, 0)).map(drop);
    let mut graph = both().graph_on(&stream(rig)).unwrap();
    assert!(graph.nodes().iter().all(|node| node.after.is_empty()), "{:?}", graph.nodes());
    for _ in 0..2 {
        let behind = rig.affine(&tensors[0], 5, 0);
        let error = graph.recapture(rig.affine(&tensors[0], 3, 0).then(move |()| behind)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::GraphMismatch);
        assert!(error.args()[2].contains("comes after other nodes"), "{error}");
        block_on(graph.launch().on(rig.runtime())).unwrap();
    }
    graph.recapture(both()).unwrap();
    block_on(graph.launch().on(rig.runtime())).unwrap();
    assert_eq!(tensors.each_ref().map(|tensor| read(rig, tensor)), [[8; LEN], [8; LEN]]);
}

fn a_kernel_of_a_graph_gets_other_arguments<R: GraphRig>(rig: &R) {
    let (one, two) = (full(rig, 1), full(rig, 1));
    let graph = chain(rig, &one, &[(2, 0), (1, 1)]);
    let nodes = graph.nodes();
    assert!(nodes.iter().all(|node| node.kind == NodeKind::Kernel), "{nodes:?}");
    assert_eq!((&*nodes[0].after, &*nodes[1].after), (&[][..], &[0][..]), "the first comes first");
    let set = |node, tensor: &Numbers<R>, factor: u32| {
        let words = [LEN as u64, factor.into(), 0].map(KernelArg::word);
        let args = [KernelArg::write(tensor)].into_iter().chain(words);
        // SAFETY: the kernel takes an address, a count and two numbers, and writes so many numbers there; the graph is a chain.
        unsafe { set_kernel(&graph, node, &rig.affines(), Shape::new([4, 1, 1], [64, 1, 1]), args) }
    };
    let launch = || block_on(graph.launch().on(rig.runtime())).unwrap();
    set(0, &one, 10).unwrap();
    launch();
    assert_eq!(read(rig, &one), [11; LEN]);
    // A tensor that it did not have before: it is kept, and its uses are ordered.
    set(0, &two, 3).unwrap();
    let mut behind = rig.affine(&two, 1, 1).on(rig.runtime());
    assert!(!matches!(poll_once(&mut behind), Poll::Ready(Err(_))));
    launch();
    assert_eq!((read(rig, &one), read(rig, &two)), (vec![12; LEN], vec![6; LEN]));
    drop((behind, two));
    launch();
    assert_eq!(set(2, &one, 1).unwrap_err().code(), ErrorCode::GraphMismatch);
    assert_eq!(read(rig, &one), [13; LEN]);
}

fn a_fault_in_a_launch_ends_all_of_them<R: GraphRig>(rig: &R) {
    let tensor = full(rig, 1);
    let busy = rig.occupy(ms(40));
    let step = rig.affine(&tensor, 2, 0);
    let graph = busy.then(move |()| step).graph_on(&stream(rig)).unwrap();
    let mut flying: Vec<_> = (0..3).map(|_| graph.launch().on(rig.runtime())).collect();
    for replay in &mut flying {
        assert!(poll_once(replay).is_pending());
    }
    rig.break_device();
    for replay in flying {
        assert_eq!(block_on(replay).unwrap_err().code(), ErrorCode::Backend);
    }
    assert!(block_on(graph.launch().on(rig.runtime())).is_err());
    assert!(rig.affine(&tensor, 1, 1).graph_on(graph.stream()).is_err());
    rig.settle();
}

/// An operation went into a stream that was being captured, and a destructor ended the process.
fn case_32_a_stream_that_others_capture_takes_no_operation<D: Vendor>(rig: &VendorRig<D>) {
    let (tensor, on) = (full(rig, 1), stream(rig));
    let graph = chain(rig, &tensor, &[(2, 0)]);
    let captured = wakeline_mapped::Graph::capture(on.raw(), (), |()| {
        assert_eq!(graph.launch().sync_on(&on).unwrap_err().code(), ErrorCode::StreamCapturing);
        let mut awaited = rig.affine(&tensor, 5, 0).sync_on(&on).map(drop);
        assert_eq!(awaited.unwrap_err().code(), ErrorCode::StreamCapturing);
        awaited = graph.update(rig.affine(&tensor, 5, 0));
        // The graph's own stream is another.
        awaited.unwrap();
        // Captures of ours are in streams of their own; what is dropped meanwhile disturbs nobody.
        drop(rig.affine(&tensor, 7, 0).graph_on(&on).unwrap());
        drop(full(rig, 3));
        Ok(())
    });
    drop(captured.unwrap());
    graph.launch().sync_on(&on).unwrap();
    assert_eq!(read(rig, &tensor), [10; LEN]);
}

/// In this mode what any thread of the process does may invalidate the capture.
fn a_capture_of_the_users_in_global_mode_survives_all_that_graphs_do<D: Vendor>(rig: &VendorRig<D>) {
    type Begin = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
    type End = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int;
    type Destroy = unsafe extern "C" fn(*mut c_void) -> c_int;
    const GLOBAL: c_int = 0;

    // SAFETY: the driver's library, which is loaded already.
    let library = unsafe { libloading::Library::new(Vendor::library(rig.rig().driver())) }.unwrap();
    let names = D::CAPTURES;
    // SAFETY: these names have had these interfaces since CUDA 10.1, and HIP 4.3.
    let begin = unsafe { library.get::<Begin>(names[0]) }.unwrap();
    // SAFETY: as above.
    let end = unsafe { library.get::<End>(names[1]) }.unwrap();
    // SAFETY: as above.
    let destroy = unsafe { library.get::<Destroy>(names[2]) }.unwrap();

    let captured = rig.rig().stream();
    let bound = rig.rig().context().bind().unwrap();
    // SAFETY: the context is bound, the stream alive and nobody else's.
    assert_eq!(unsafe { begin(captured.raw().as_ptr(), GLOBAL) }, 0);
    drop(bound);
    let all = || {
        launches_do_all_of_it_and_are_awaited_one_by_one(rig);
        branches_of_a_zip_are_branches_of_the_graph(rig);
        case_21_a_graph_owns_what_it_was_made_of(rig);
        case_26_a_graph_owns_the_numbers_of_the_host_that_it_sends(rig);
        case_37_a_capture_ends_whatever_its_closure_does(rig);
        what_cannot_be_repeated_is_refused(rig);
        a_graph_becomes_another_of_the_same_nodes_and_no_other(rig);
        a_kernel_of_a_graph_gets_other_arguments(rig);
    };
    // On the thread that captures as well as on another.
    all();
    std::thread::scope(|scope| scope.spawn(all).join().unwrap());
    let bound = rig.rig().context().bind().unwrap();
    let mut graph = core::ptr::null_mut();
    // SAFETY: the context is bound, and this the thread that began the capture.
    let status = unsafe { end(captured.raw().as_ptr(), &raw mut graph) };
    assert_eq!((status, graph.is_null()), (0, false), "the capture was invalidated");
    // SAFETY: it was made just now.
    assert_eq!(unsafe { destroy(graph) }, 0);
    drop(bound);
}

fn a_graph_that_the_driver_does_not_take_names_the_node<D: Vendor>(rig: &VendorRig<D>) {
    let tensor = full(rig, 1);
    rig.fake().configure(|options| options.no_graphs_with = Some("affine".to_owned()));
    let busy = rig.occupy(ms(0));
    let step = rig.affine(&tensor, 2, 0);
    let error = busy.then(move |()| step).graph_on(&stream(rig)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::GraphRefused);
    assert_eq!(error.args()[1], "node 1 (kernel `affine`)");
    assert!(error.args()[2].starts_with("graphs cannot have what it does"), "{error}");
    rig.fake().configure(|options| options.no_graphs_with = None);
    let graph = chain(rig, &tensor, &[(2, 0)]);
    block_on(graph.launch().on(rig.runtime())).unwrap();
    assert_eq!(read(rig, &tensor), [2; LEN]);
}

fn what_is_captured_is_as_urgent_as_its_stream<D: Vendor>(rig: &VendorRig<D>) {
    for (priority, number) in [(Priority::Normal, 0), (Priority::High, -5)] {
        let on = rig.runtime().stream(priority).unwrap();
        assert_eq!(on.priority(), priority);
        let tensor = full(rig, 1);
        let streams = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = || {
            let streams = Arc::clone(&streams);
            with_context(move |submission: &mut Submission<_>| {
                streams.lock().unwrap().push(submission.stream().clone());
                Ok(value(()))
            })
        };
        let branches = zip!(
            rig.affine(&tensor, 2, 0).then({
                let seen = seen();
                move |()| seen
            }),
            rig.affine(&full(rig, 1), 2, 0).then({
                let seen = seen();
                move |()| seen
            })
        );
        drop(branches.map(drop).graph_on(&on).unwrap());
        let streams = streams.lock().unwrap();
        assert!(streams.len() == 2 && streams[0].id() != streams[1].id());
        for stream in &*streams {
            assert_eq!(rig.rig().priority(stream.raw()), number, "{priority:?}");
        }
    }
}

fn a_launch_makes_one_call_and_records_one_event<D: Vendor>(rig: &VendorRig<D>) {
    let tensors: Vec<_> = (0..6).map(|number| full(rig, number)).collect();
    let graph = Graph::scope(&stream(rig), |graph| {
        tensors.iter().try_for_each(|tensor| graph.record(rig.affine(tensor, 1, 1)))
    });
    let graph = graph.unwrap();
    let on = stream(rig);
    graph.launch().sync_on(&on).unwrap();
    rig.settle();
    rig.fake().clear_log();
    graph.launch().sync_on(&on).unwrap();
    let enqueues = ["cuGraphLaunch", "cuEventRecord", "cuStreamWaitEvent", "cuStreamWriteValue64"];
    assert_eq!(enqueues.map(|call| rig.fake().calls(call)), [1, 1, 0, 1]);
    drop(graph);
}

fn nothing_is_left_of_a_capture_whatever_fails<D: Vendor>(rig: &VendorRig<D>) {
    let tensor = full(rig, 1);
    let on = stream(rig);
    let capture = || {
        let op = zip!(rig.affine(&tensor, 2, 0), rig.affine(&tensor, 1, 1)).map(drop);
        op.graph_on(&on).map(drop)
    };
    capture().unwrap();
    rig.settle();
    let mut before = rig.fake().live();
    for call in [
        "cuStreamBeginCapture",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithParams",
        "cuGraphGetNodes",
        "cuGraphNodeGetType",
        "cuGraphNodeGetDependencies",
        "cuLaunchKernel",
        "cuEventRecord",
        "cuStreamWaitEvent",
        "cuStreamCreateWithPriority",
    ] {
        for skip in 0..3 {
            let rule = Rule::new(call, Act::Fail(Status::INVALID_VALUE)).skip(skip).times(1);
            let rule = rig.fake().rule(rule);
            let failed = capture();
            let hits = rig.fake().hits(rule);
            rig.fake().clear_rules();
            // Where a branch has no stream of its own it stays in that of its operation.
            assert!(hits == 0 || failed.is_err() || call == "cuStreamCreateWithPriority", "{call} {skip}");
            rig.settle();
            if call != "cuStreamEndCapture" {
                // Where its end fails the driver captures on, until the stream is gone.
                let now = rig.fake().live();
                assert_eq!(
                    (now.streams, now.graphs, now.graph_execs),
                    (before.streams, 0, 0),
                    "{call} {skip}"
                );
            }
            capture().unwrap();
        }
        if D::STREAM_DESTROY_WAITS && call == "cuStreamEndCapture" {
            // What captures on is never idle: its streams, two each, stay as long as the context.
            let now = rig.fake().live();
            assert!(now.streams <= before.streams + 2 * 3, "{now:?}");
            before.streams = now.streams;
        }
    }
    assert_eq!(read(rig, &tensor), [1; LEN]);
}
