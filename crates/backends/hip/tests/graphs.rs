//! What is HIP's own of graphs, on the stand-in: kinds of nodes by either numbering, updates that fail half way, libraries that lack calls.

#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(unsafe_code, reason = "it launches kernels")]
#![allow(clippy::unwrap_used, reason = "tests")]

use wakeline_core::{Error, ErrorCode};
use wakeline_fake_driver::{Act, Fake, HipNodes, Rule, Status};
use wakeline_hip::kernels::{AFFINE, OCCUPY};
use wakeline_hip::{Caps, Function, Hip, HipDevice, HipRuntime, Loader, Ordinal};
use wakeline_mapped::driver::KernelDriver;
use wakeline_ops::port::{NodeKind, Priority, Shape};
use wakeline_ops::{DeviceOp, Graph, Runtime, StreamPoolRoundRobin};
use wakeline_std::{Point, Watcher, block_on};
use wakeline_tensor::{KernelArg, Launch, Tensor, launch, set_kernel};

const LEN: usize = 8;

/// Numbers of the device.
type Numbers = Tensor<u32, HipDevice>;

/// A device on a stand-in of its own. What it is on is dropped last.
struct Rig {
    runtime: HipRuntime,
    affine: Function,
    occupy: Function,
    _watcher: Watcher,
    hip: Hip,
    fake: Fake,
}

impl Rig {
    fn new(without: &[&str]) -> Self {
        let fake = Fake::new().unwrap();
        let hip = Loader::new().path(fake.path()).without(without.iter().copied()).load().unwrap();
        let device = HipDevice::new(&hip, Ordinal(0)).unwrap();
        let module = Hip::kernels(device.context()).unwrap();
        let (affine, occupy) = (module.function(AFFINE).unwrap(), module.function(OCCUPY).unwrap());
        let watcher = Watcher::new().unwrap();
        let tender = watcher.handle().tender(&Point::new("graphs"));
        let runtime = Runtime::new(device, &StreamPoolRoundRobin::default(), tender).unwrap();
        Self { runtime, affine, occupy, _watcher: watcher, hip, fake }
    }

    fn full(&self, number: u32) -> Numbers {
        block_on(Tensor::full(LEN, number).on(&self.runtime)).unwrap()
    }

    fn read(&self, tensor: &Numbers) -> u32 {
        let numbers = block_on(tensor.to_host().on(&self.runtime)).unwrap();
        assert_eq!(numbers, [numbers[0]; LEN]);
        numbers[0]
    }

    /// Multiplies, and adds.
    fn step(&self, tensor: &Numbers, factor: u32, addend: u32) -> Launch<HipDevice> {
        let words = [LEN as u64, factor.into(), addend.into()].map(KernelArg::word);
        let args: Vec<_> = [KernelArg::write(tensor)].into_iter().chain(words).collect();
        // SAFETY: the kernel takes an address, a count and two numbers, and writes so many numbers there.
        unsafe { launch(self.affine.clone(), Shape::new([1; 3], [64, 1, 1]), args) }
    }

    fn nap(&self) -> Launch<HipDevice> {
        // SAFETY: the kernel takes a number and touches no memory.
        unsafe { launch(self.occupy.clone(), Shape::new([1; 3], [1; 3]), vec![KernelArg::word(0)]) }
    }

    fn graph(
        &self,
        op: impl DeviceOp<Device = HipDevice, Pending = (), Output = ()>,
    ) -> Result<Graph<HipDevice>, Error> {
        op.graph_on(&self.runtime.stream(Priority::Normal)?)
    }

    fn run(&self, graph: &Graph<HipDevice>) -> Result<(), Error> {
        block_on(graph.launch().on(&self.runtime))
    }

    /// Other numbers for the kernel of a node, which multiplies then.
    fn set<T>(
        &self,
        graph: &Graph<HipDevice, T>,
        node: usize,
        tensor: &Numbers,
        factor: u32,
    ) -> Result<(), Error> {
        let words = [LEN as u64, factor.into(), 0].map(KernelArg::word);
        let args = [KernelArg::write(tensor)].into_iter().chain(words);
        // SAFETY: as of `step`; no other node of the graph uses the tensor.
        unsafe { set_kernel(graph, node, &self.affine, Shape::new([1; 3], [64, 1, 1]), args) }
    }

    /// Nothing was done that a driver may not be asked for, and nothing is left of graphs.
    fn assert_clean(&self) {
        let live = self.fake.live();
        assert_eq!((live.graphs, live.graph_execs), (0, 0));
        assert!(self.fake.violations().is_empty(), "{:?}", self.fake.violations());
        assert_eq!(self.hip.census().counts().drop_failures, 0);
    }
}

/// A copy was taken for a fill, and a kernel for none, with an older library.
#[test]
fn nodes_are_known_however_the_library_numbers_their_kinds() {
    for numbers in [HipNodes::FromZero, HipNodes::FromOne] {
        let rig = Rig::new(&[]);
        rig.fake.configure(|options| options.hip_nodes = numbers);
        let (from, to) = (rig.full(3), rig.full(0));
        let step = rig.step(&from, 2, 1);
        let mut graph = from
            .copy_to(to)
            .then(move |to| step.map(move |()| to))
            .graph_on(&rig.runtime.stream(Priority::Normal).unwrap())
            .unwrap();
        let nodes = graph.nodes();
        let told: Vec<_> = nodes.iter().map(|node| (node.kind, node.name.as_str())).collect();
        assert_eq!(told, [(NodeKind::Copy, ""), (NodeKind::Kernel, "affine")], "{numbers:?}");
        assert_eq!((&*nodes[0].after, &*nodes[1].after), (&[][..], &[0][..]));
        let to = graph.take_output().unwrap();
        block_on(graph.launch().on(&rig.runtime)).unwrap();
        assert_eq!((rig.read(&to), rig.read(&from)), (3, 7));
        let error = rig.set(&graph, 0, &to, 2).unwrap_err();
        assert_eq!((error.code(), &*error.args()[2]), (ErrorCode::GraphMismatch, "it launches no kernel"));
        // The library is asked once for all that it knows of them.
        assert_eq!(rig.fake.calls("hipGraphCreate"), 1);
        drop((graph, to, from));
        rig.assert_clean();
    }
}

/// The first nodes did what they were to do, and the others what they had done before.
#[test]
fn a_graph_that_an_update_left_half_changed_is_not_launched() {
    let rig = Rig::new(&[]);
    let (one, two) = (rig.full(1), rig.full(1));
    let op = |first: u32, second: Launch<HipDevice>| rig.step(&one, first, 0).then(move |()| second);
    let mut graph = rig.graph(op(2, rig.nap())).unwrap();
    rig.run(&graph).unwrap();
    assert_eq!(rig.read(&one), 2);
    // Of the new nodes the second cannot be had.
    rig.fake.configure(|options| options.no_graphs_with = Some(AFFINE.to_owned()));
    let error = graph.recapture(rig.nap().then({
        let step = rig.step(&two, 3, 0);
        move |()| step
    }));
    let error = error.unwrap_err();
    assert_eq!((error.code(), &*error.args()[1]), (ErrorCode::GraphMismatch, "node 1 (kernel `affine`)"));
    assert!(error.args()[2].starts_with("its kernel cannot be changed for the other"), "{error}");
    for _ in 0..2 {
        let error = rig.run(&graph).unwrap_err();
        assert_eq!(error.code(), ErrorCode::GraphMismatch, "{error}");
        assert!(error.args()[2].contains("update it again"), "{error}");
    }
    // What differs before anything is changed mends nothing.
    assert_eq!(graph.recapture(rig.nap()).unwrap_err().code(), ErrorCode::GraphMismatch);
    assert_eq!(rig.run(&graph).unwrap_err().code(), ErrorCode::GraphMismatch);
    assert_eq!((rig.read(&one), rig.read(&two)), (2, 1), "nothing of it has run");
    rig.fake.configure(|options| options.no_graphs_with = None);
    graph.recapture(op(5, rig.nap())).unwrap();
    rig.run(&graph).unwrap();
    assert_eq!((rig.read(&one), rig.read(&two)), (10, 1));
    drop((graph, one, two));
    rig.assert_clean();
}

/// Whatever the library says it has changed, or not.
#[test]
fn a_failure_behind_an_update_is_not_taken_for_none() {
    let rig = Rig::new(&[]);
    let one = rig.full(1);
    let mut graph = rig.graph(rig.step(&one, 2, 0)).unwrap();
    for status in [1, 2, 910, 999] {
        rig.fake.rule(Rule::new("hipGraphExecUpdate", Act::FailAfter(Status(status))).times(1));
        graph.recapture(rig.step(&one, 7, 0)).unwrap_err();
        assert_eq!(rig.run(&graph).unwrap_err().code(), ErrorCode::GraphMismatch, "{status}");
        graph.recapture(rig.step(&one, 1, 1)).unwrap();
        rig.run(&graph).unwrap();
    }
    // That it cannot do it at all says that nothing is changed.
    rig.fake.rule(Rule::new("hipGraphExecUpdate", Act::Fail(Status::NOT_SUPPORTED)).times(1));
    assert_eq!(graph.recapture(rig.step(&one, 7, 0)).unwrap_err().code(), ErrorCode::Backend);
    rig.run(&graph).unwrap();
    assert_eq!(rig.read(&one), 6);
    drop((graph, one));
    rig.assert_clean();
}

/// A node was left without arguments.
#[test]
fn arguments_that_there_was_no_memory_for_keep_a_graph_from_being_launched() {
    let rig = Rig::new(&[]);
    let one = rig.full(1);
    let mut graph = rig.graph(rig.step(&one, 2, 0)).unwrap();
    // What is wrong with the arguments is found before.
    for (status, launches) in [(1, true), (98, true), (801, true), (2, false)] {
        rig.fake.rule(Rule::new("hipGraphExecKernelNodeSetParams", Act::Fail(Status(status))).times(1));
        rig.set(&graph, 0, &one, 7).unwrap_err();
        let launched = rig.run(&graph);
        assert_eq!(launched.is_ok(), launches, "{status}: {launched:?}");
    }
    graph.recapture(rig.step(&one, 3, 0)).unwrap();
    rig.run(&graph).unwrap();
    assert_eq!(rig.read(&one), 24);
    drop((graph, one));
    rig.assert_clean();
}

#[test]
fn what_the_library_writes_about_a_graph_that_it_refuses_is_told() {
    let rig = Rig::new(&[]);
    let one = rig.full(1);
    rig.fake.configure(|options| options.no_graphs_with = Some(AFFINE.to_owned()));
    let error = rig.graph(rig.step(&one, 2, 0)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::GraphRefused);
    assert!(
        error.to_string().contains("operation not supported: the kernel cannot be part of a graph)"),
        "{error}"
    );
    drop(one);
    rig.assert_clean();
}

/// A symbol that is not there was called, and the process was gone.
#[test]
fn each_call_of_graphs_may_be_missing() {
    let calls = [
        ("hipStreamBeginCapture", Caps::GRAPHS),
        ("hipStreamEndCapture", Caps::GRAPHS),
        ("hipGraphInstantiate", Caps::GRAPHS),
        ("hipGraphLaunch", Caps::GRAPHS),
        ("hipGraphExecDestroy", Caps::GRAPHS),
        ("hipGraphDestroy", Caps::GRAPHS),
        ("hipGraphGetNodes", Caps::GRAPH_NODES),
        ("hipGraphNodeGetType", Caps::GRAPH_NODES),
        ("hipGraphNodeGetDependencies", Caps::GRAPH_NODES),
        ("hipGraphCreate", Caps::GRAPH_NODES),
        ("hipGraphAddEmptyNode", Caps::GRAPH_NODES),
        ("hipGraphExecUpdate", Caps::GRAPH_CHANGES),
        ("hipGraphExecKernelNodeSetParams", Caps::GRAPH_CHANGES),
        ("hipGraphKernelNodeGetParams", Caps::KERNEL_NAMES),
        ("hipKernelNameRef", Caps::KERNEL_NAMES),
        ("hipKernelNameRefByPtr", Caps::KERNEL_NAMES),
    ];
    for (call, cap) in calls {
        let rig = Rig::new(&[call]);
        assert_eq!(rig.hip.caps(), Caps::all() - cap);
        let one = rig.full(1);
        match rig.graph(rig.step(&one, 2, 0)) {
            Ok(mut graph) => {
                let launched = rig.run(&graph);
                assert_eq!(launched.is_ok(), call != "hipGraphLaunch", "{call}: {launched:?}");
                let nodes = graph.nodes();
                let told = usize::from(cap != Caps::GRAPH_NODES);
                assert_eq!(nodes.len(), told, "{call}");
                let named = nodes.iter().any(|node| node.name == AFFINE);
                assert_eq!(named, told == 1 && cap != Caps::KERNEL_NAMES, "{call}");
                let update = graph.recapture(rig.step(&one, 3, 0));
                let updates = told == 1 && call != "hipGraphExecUpdate";
                assert_eq!(update.is_ok(), updates, "{call}: {update:?}");
                let set = rig.set(&graph, 0, &one, 5);
                let sets = told == 1 && call != "hipGraphExecKernelNodeSetParams";
                assert_eq!(set.is_ok(), sets, "{call}: {set:?}");
                for error in [update.err(), set.err()].into_iter().flatten() {
                    let mismatch = told == 0 && error.code() == ErrorCode::GraphMismatch;
                    assert!(
                        mismatch || error.to_string().contains("has no such function"),
                        "{call}: {error}"
                    );
                }
                if call != "hipGraphLaunch" {
                    // What cannot be changed is as it was.
                    rig.run(&graph).unwrap();
                    assert_eq!(
                        rig.read(&one),
                        if sets {
                            10
                        } else if updates {
                            6
                        } else {
                            4
                        },
                        "{call}"
                    );
                }
            }
            Err(error) => {
                assert_eq!((cap, error.code()), (Caps::GRAPHS, ErrorCode::Backend), "{call}: {error}");
                assert!(error.to_string().contains("has no such function"), "{call}: {error}");
                // Everything else goes on.
                block_on(rig.step(&one, 9, 0).on(&rig.runtime)).unwrap();
                assert_eq!(rig.read(&one), 9, "{call}");
            }
        }
        drop(one);
        rig.assert_clean();
    }
}

/// Nothing that it is asked with is left, and it is asked again.
#[test]
fn a_library_that_fails_to_tell_its_numbers_is_asked_again() {
    for call in ["hipGraphCreate", "hipGraphAddEmptyNode", "hipGraphNodeGetType"] {
        for act in [Act::Fail(Status(1)), Act::Fail(Status(2)), Act::FailAfter(Status(999)), Act::DropEffect]
        {
            let rig = Rig::new(&[]);
            let one = rig.full(1);
            let rule = rig.fake.rule(Rule::new(call, act).times(1));
            let failed = rig.graph(rig.step(&one, 2, 0));
            assert_eq!(rig.fake.hits(rule), 1);
            if call == "hipGraphNodeGetType" && act == Act::DropEffect {
                // What it says of an empty node is its number: then no number is a kernel's.
                let nodes = failed.unwrap().nodes();
                assert_eq!(nodes[0].kind, NodeKind::Other);
                continue;
            }
            assert_eq!(failed.unwrap_err().code(), ErrorCode::Backend, "{call} {act:?}");
            let graph = rig.graph(rig.step(&one, 2, 0)).unwrap();
            assert_eq!(graph.nodes()[0].kind, NodeKind::Kernel);
            rig.run(&graph).unwrap();
            assert_eq!(rig.read(&one), 2);
            drop((graph, one));
            if !matches!(act, Act::FailAfter(_)) {
                rig.assert_clean();
            }
        }
    }
}
