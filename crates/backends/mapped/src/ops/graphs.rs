//! Graphs as operations ask for them: captures of their streams, what can be launched of them, and how that is changed.
//!
//! Invariants:
//! 1. A graph stays as long as what was made of it: a driver names the nodes of that by those of the graph.
//! 2. Whoever launches or changes one makes one call at a time of it, says the port: a driver locks none of its graphs.
//! 3. One that a driver may have left half changed is not launched until a change of all of it has succeeded.

use core::ffi::c_void;
use core::fmt;
use core::ptr;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use wakeline_core::{Error, ErrorCode};
use wakeline_ops::port::{Arg, Graphs, Node, NodeKind, Priority, Promise, Shape};

use super::access::DeviceMemory;
use super::{OpDevice, launch};
use crate::context::Context;
use crate::driver::{LaunchShape, RawExec, RawGraph, RawKernel, WorkDriver};
use crate::error::{CallError, Kind};
use crate::function::Function;
use crate::graph::{Captured, Executable};
use crate::stream::Stream;

crate::driver::handles! {
    /// A node of a graph.
    RawNode
}

/// Why a graph cannot be made, or not be changed so.
#[derive(Debug)]
pub struct Refused {
    /// The call.
    pub error: CallError,
    /// The node that it is for, as the driver names it: of the graph that was handed in. [`RawNode::NULL`] where it names none.
    pub node: RawNode,
    /// What is wrong with that, in words; `None` where it is for no reason of the graph's, as where the driver lacks the call.
    pub why: Option<&'static str>,
}

impl Refused {
    /// For what is wrong with a node, which the driver names so.
    pub fn of(error: CallError, node: *mut c_void, why: &'static str) -> Self {
        Self { error, node: RawNode::from_ptr(node), why: Some(why) }
    }

    /// For no reason of the graph's.
    pub const fn without_node(error: CallError) -> Self {
        Self { error, node: RawNode::NULL, why: None }
    }
}

/// The nodes that a call tells in two turns: without room it says how many there are, with room for so many which.
///
/// `ask` makes the call with room for as many nodes as the number says, a null pointer for none, and leaves there how many it told.
///
/// # Errors
///
/// What `ask` says.
pub fn listed(
    mut ask: impl FnMut(*mut *mut c_void, &mut usize) -> Result<(), CallError>,
) -> Result<Vec<RawNode>, CallError> {
    let mut count = 0;
    ask(ptr::null_mut(), &mut count)?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut nodes = vec![ptr::null_mut(); count];
    ask(nodes.as_mut_ptr(), &mut count)?;
    Ok(nodes.into_iter().take(count).map(RawNode::from_ptr).collect())
}

/// A driver that tells what a captured graph has, and changes what was made of one.
///
/// # Safety
///
/// As [`WorkDriver`].
#[expect(
    clippy::missing_safety_doc,
    clippy::missing_errors_doc,
    reason = "one contract for all, at the trait"
)]
pub unsafe trait GraphDriver: WorkDriver {
    /// Whether [`update`](Self::update) compares all nodes and what each comes after, and where it refuses has changed nothing. With a driver that does not, nodes are compared before it is called, in
    /// the order in which it tells them, by which it pairs those of two graphs; and where it fails, the graph is not launched any more.
    const UPDATE_IS_WHOLE: bool = true;

    /// As [`instantiate`](WorkDriver::instantiate), and says which node it is for.
    unsafe fn instantiate_told(&self, graph: RawGraph) -> Result<RawExec, Refused>;

    /// The nodes of a graph, in any order; none where the driver cannot tell.
    unsafe fn nodes(&self, graph: RawGraph) -> Result<Vec<RawNode>, CallError>;

    /// The nodes that this one comes right after; none where the driver cannot tell.
    unsafe fn nodes_before(&self, node: RawNode) -> Result<Vec<RawNode>, CallError>;

    /// What a node does.
    unsafe fn node_kind(&self, node: RawNode) -> Result<NodeKind, CallError>;

    /// What the kernel of such a node is called, where the driver tells.
    unsafe fn kernel_name(&self, node: RawNode) -> Option<String>;

    /// Changes what was made of a graph to what another does.
    unsafe fn update(&self, exec: RawExec, graph: RawGraph) -> Result<(), Refused>;

    /// Changes the launch of a node, of the graph that `exec` was made of. What is in `values` is as of [`launch`](WorkDriver::launch).
    unsafe fn set_kernel(
        &self,
        exec: RawExec,
        node: RawNode,
        kernel: RawKernel,
        shape: &LaunchShape,
        values: &mut [*mut c_void],
    ) -> Result<(), CallError>;
}

/// Work that was captured of streams of a device.
#[derive(Debug)]
pub struct OpCaptured<D: WorkDriver> {
    graph: Captured<D>,
    /// Each behind those that it comes after, as far as the driver tells; else as the driver has them.
    nodes: Vec<RawNode>,
    /// What each comes right after.
    after: Vec<Vec<usize>>,
    /// What updates are compared by; none where the driver does that.
    told: Vec<Told>,
}

/// A graph that can be launched.
#[derive(Debug)]
pub struct OpGraph<D: WorkDriver> {
    runs: Executable<D>,
    told: Vec<Told>,
    /// A change of it failed, and may have been made of some of its nodes. Changed and looked at by one thread at a time, says the port.
    torn: AtomicBool,
}

/// A node as the driver tells it, at its place among the others.
#[derive(Clone, Debug)]
struct Told {
    node: RawNode,
    kind: NodeKind,
    /// The places of those that it comes right after, in their order.
    after: Vec<usize>,
}

/// What keeps a graph from becoming another: the node of that, where it is one.
fn differs(old: &[Told], new: &[Told]) -> Option<(RawNode, &'static str)> {
    if old.len() != new.len() {
        return Some((RawNode::NULL, "their number is another"));
    }
    old.iter().zip(new).find_map(|(old, new)| match () {
        () if old.kind != new.kind => Some((new.node, "it does something of another kind")),
        () if old.after != new.after => Some((new.node, "it comes after other nodes")),
        () => None,
    })
}

impl<D: GraphDriver> OpCaptured<D> {
    /// The context is bound.
    ///
    /// # Errors
    ///
    /// What the driver says.
    fn new(graph: Captured<D>) -> Result<Self, Error> {
        let driver = graph.context.driver();
        let told = |error| graph.context.told(error);
        // SAFETY: the context is bound, and the graph alive.
        let nodes = unsafe { driver.nodes(graph.raw) }.map_err(told)?;
        let numbers: HashMap<RawNode, usize> =
            nodes.iter().enumerate().map(|(number, node)| (*node, number)).collect();
        let mut after = Vec::with_capacity(nodes.len());
        for node in &nodes {
            // SAFETY: as above; the node is of this graph.
            let before = unsafe { driver.nodes_before(*node) }.map_err(told)?;
            let before: Vec<usize> = before.iter().filter_map(|node| numbers.get(node).copied()).collect();
            after.push(before);
        }
        let mut told = Vec::new();
        if !D::UPDATE_IS_WHOLE {
            for (node, after) in nodes.iter().zip(&after) {
                let mut after = after.clone();
                after.sort_unstable();
                // SAFETY: as above.
                let kind = unsafe { driver.node_kind(*node) }.map_err(|error| graph.context.told(error))?;
                told.push(Told { node: *node, kind, after });
            }
        }
        let (nodes, after) = in_order(&nodes, &after);
        Ok(Self { graph, nodes, after, told })
    }

    const fn context(&self) -> &Context<D> {
        &self.graph.context
    }

    /// How messages call the node of this handle.
    fn name(&self, node: RawNode) -> String {
        match self.nodes.iter().position(|other| *other == node) {
            Some(number) => {
                let told = self.node(node).map_or_else(|_| String::new(), |node| format!(" ({node})"));
                format!("node {number}{told}")
            }
            None => "no node that the driver names".to_owned(),
        }
    }

    /// What a node of it is, without what it comes after. The context is bound.
    fn node(&self, node: RawNode) -> Result<Node, Error> {
        let driver = self.context().driver();
        // SAFETY: the context is bound, and the node of a graph that is there.
        let kind = unsafe { driver.node_kind(node) }.map_err(|error| self.context().told(error))?;
        // SAFETY: as above; it is one of a kernel.
        let name = if kind == NodeKind::Kernel { unsafe { driver.kernel_name(node) } } else { None };
        Ok(Node { kind, name: name.unwrap_or_default(), after: Vec::new() })
    }
}

/// The same nodes, each behind those that it comes after, and else in their order.
fn in_order(nodes: &[RawNode], after: &[Vec<usize>]) -> (Vec<RawNode>, Vec<Vec<usize>>) {
    let mut waits: Vec<usize> = after.iter().map(Vec::len).collect();
    let mut behind: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (number, before) in after.iter().enumerate() {
        for other in before {
            if let Some(behind) = behind.get_mut(*other) {
                behind.push(number);
            }
        }
    }
    let mut free: BTreeSet<usize> =
        (0..nodes.len()).filter(|number| waits.get(*number) == Some(&0)).collect();
    let (mut order, mut places) = (Vec::with_capacity(nodes.len()), vec![0; nodes.len()]);
    while let Some(number) = free.pop_first() {
        if let Some(place) = places.get_mut(number) {
            *place = order.len();
        }
        order.push(number);
        for other in behind.get(number).into_iter().flatten() {
            if let Some(waits) = waits.get_mut(*other) {
                *waits -= 1;
                if *waits == 0 {
                    free.insert(*other);
                }
            }
        }
    }
    let place = |other: &usize| places.get(*other).copied();
    let its = |number: &usize| -> Option<(RawNode, Vec<usize>)> {
        Some((*nodes.get(*number)?, after.get(*number)?.iter().filter_map(place).collect()))
    };
    order.iter().filter_map(its).unzip()
}

impl<D: GraphDriver> OpDevice<D> {
    /// A call that was refused because of a node, unless it was for another reason.
    fn of_graph(&self, code: ErrorCode, error: CallError, node: &str, why: Option<&str>) -> Error {
        // What is wrong with the context is no node's fault; nor is want of memory.
        let Some(why) = why.filter(|_| !matches!(error.kind, Kind::Sticky | Kind::Gone | Kind::OutOfMemory))
        else {
            return self.context.told(error);
        };
        let said: [&dyn fmt::Display; 3] = [&D::NAME, &node, &format!("{why} ({error})")];
        Error::new(code, said).with_source(error)
    }
}

impl<D: GraphDriver> Graphs for OpDevice<D> {
    type Captured = OpCaptured<D>;
    type Executable = OpGraph<D>;

    fn capture_stream(&self, priority: Priority) -> Result<Stream<D>, Error> {
        self.context.stream_for_captures(self.number_of(priority))
    }

    /// Of this thread alone.
    fn begin_capture(&self, stream: &Stream<D>, _: Promise) -> Result<(), Error> {
        stream.ready()?;
        let _bound = self.context.bind()?;
        // SAFETY: the context is bound, and the stream alive and of it.
        let begun = unsafe { self.context.driver().capture_begin(stream.raw()) };
        begun.map_err(|error| self.context.told(error))
    }

    fn end_capture(&self, stream: &Stream<D>, _: Promise) -> Result<OpCaptured<D>, Error> {
        let _bound = self.context.bind()?;
        // SAFETY: the context is bound, the stream alive and of it; the port says that it is the thread that began.
        let captured = unsafe { Captured::end(&self.context, stream.raw()) };
        OpCaptured::new(captured.map_err(|error| self.context.told(error))?)
    }

    /// None where the driver cannot tell: of CUDA's those before CUDA 12; the names of kernels from CUDA 12.3 on.
    fn nodes(&self, captured: &OpCaptured<D>) -> Result<Vec<Node>, Error> {
        let _bound = self.context.bind()?;
        let node = |(node, after): (&RawNode, &Vec<usize>)| {
            Ok(Node { after: after.clone(), ..captured.node(*node)? })
        };
        captured.nodes.iter().zip(&captured.after).map(node).collect()
    }

    fn instantiate(&self, captured: &OpCaptured<D>) -> Result<OpGraph<D>, Error> {
        let context = &self.context;
        context.open()?;
        let _bound = context.bind()?;
        // SAFETY: the context is bound, and the graph alive.
        let made = unsafe { context.driver().instantiate_told(captured.graph.raw) };
        let raw = made.map_err(|Refused { error, node, why }| {
            self.of_graph(ErrorCode::GraphRefused, error, &captured.name(node), why)
        })?;
        let runs = Executable { context: context.clone(), raw };
        Ok(OpGraph { runs, told: captured.told.clone(), torn: AtomicBool::new(false) })
    }

    fn launch_graph(&self, stream: &Stream<D>, graph: &OpGraph<D>, _: Promise) -> Result<(), Error> {
        let context = &self.context;
        context.open()?;
        if graph.torn.load(Ordering::Relaxed) {
            let (what, why) = (
                "a change that failed",
                "some of its nodes may have been changed, and some not: update it again, or record it anew",
            );
            return Err(Error::new(ErrorCode::GraphMismatch, [&D::NAME, &what, &why]));
        }
        let _bound = context.bind()?;
        // SAFETY: the context is bound, the graph alive and no other thread's for the length of the call, the stream alive and of the context; what it does is
        // as the promise says.
        let launched = unsafe { context.driver().graph_launch(graph.runs.raw, stream.raw()) };
        launched.map_err(|error| context.told(error))
    }

    fn update_graph(&self, graph: &OpGraph<D>, captured: &OpCaptured<D>) -> Result<(), Error> {
        let context = &self.context;
        context.open()?;
        let _bound = context.bind()?;
        if let Some((node, why)) = differs(&graph.told, &captured.told) {
            let node = if node.is_null() { "its nodes".to_owned() } else { captured.name(node) };
            return Err(Error::new(ErrorCode::GraphMismatch, [&D::NAME, &node, &why]));
        }
        // SAFETY: the context is bound, both graphs are alive and no other thread's for the length of the call.
        let updated = unsafe { context.driver().update(graph.runs.raw, captured.graph.raw) };
        if !D::UPDATE_IS_WHOLE {
            let torn = match &updated {
                Ok(()) => false,
                // A call that the driver lacks, or does not do, has changed nothing.
                Err(Refused { error, why: None, .. }) if error.kind == Kind::NotSupported => {
                    graph.torn.load(Ordering::Relaxed)
                }
                Err(_) => true,
            };
            graph.torn.store(torn, Ordering::Relaxed);
        }
        updated.map_err(|Refused { error, node, why }| {
            self.of_graph(ErrorCode::GraphMismatch, error, &captured.name(node), why)
        })
    }

    /// A plain launch: of clusters and their like a node keeps what it was captured with.
    fn set_kernel(
        &self,
        graph: &OpGraph<D>,
        captured: &OpCaptured<D>,
        node: usize,
        kernel: &Function<D>,
        shape: Shape,
        args: &[Arg<'_, DeviceMemory<D>>],
        _: Promise,
    ) -> Result<(), Error> {
        let context = &self.context;
        context.open()?;
        self.takes_kernel(kernel)?;
        shape.check(D::NAME, &launch::limits(&self.launches))?;
        let _bound = context.bind()?;
        let name = format!("node {node}");
        let mismatch = |why: &str| Err(Error::new(ErrorCode::GraphMismatch, [&D::NAME, &name, &why]));
        let Some(raw) = captured.nodes.get(node).copied() else {
            return mismatch(&format!("there are {} nodes", captured.nodes.len()));
        };
        // Not its name: the kernel that it was captured with may be gone, where the graph has become another since.
        // SAFETY: the context is bound, and the node of a graph that is there.
        let kind = unsafe { context.driver().node_kind(raw) }.map_err(|error| context.told(error))?;
        if kind != NodeKind::Kernel {
            return mismatch("it launches no kernel");
        }
        kernel.allow_shared(shape.shared_bytes).map_err(|failed| kernel.told(failed))?;
        let mut words: Vec<u64> = args.iter().map(launch::word).collect();
        let mut values: Vec<*mut c_void> = words.iter_mut().map(|word| ptr::from_mut(word).cast()).collect();
        let how = LaunchShape::new(shape.blocks, shape.threads, shape.shared_bytes);
        // SAFETY: the context is bound, the graph alive and no other thread's for the length of the call, the node one of what it was made of, which is there; the kernel's module is loaded, and its
        // parameters are as many as the promise says, read before the call returns.
        let set =
            unsafe { context.driver().set_kernel(graph.runs.raw, raw, kernel.raw(), &how, &mut values) };
        // What is wrong with the launch is found before anything is changed; what fails for another reason, such as want of memory, may have left the node without arguments.
        let found_before = |error: &CallError| matches!(error.kind, Kind::Refused | Kind::NotSupported);
        if !D::UPDATE_IS_WHOLE && set.as_ref().is_err_and(|error| !found_before(error)) {
            graph.torn.store(true, Ordering::Relaxed);
        }
        set.map_err(|error| {
            self.of_graph(ErrorCode::GraphMismatch, error, &name, Some("its kernel cannot be launched so"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_differ_by_their_nodes_number_kinds_and_order() {
        let node = |at: usize| RawNode::from_ptr(ptr::without_provenance_mut(at));
        let told = |all: &[(NodeKind, &[usize])]| -> Vec<Told> {
            let told = |(at, (kind, after)): (usize, &(NodeKind, &[usize]))| Told {
                node: node(at + 1),
                kind: *kind,
                after: after.to_vec(),
            };
            all.iter().enumerate().map(told).collect()
        };
        let chain = told(&[(NodeKind::Kernel, &[]), (NodeKind::Kernel, &[0])]);
        assert_eq!(differs(&chain, &chain), None);
        let shorter = differs(&chain, &chain[..1]);
        assert_eq!(shorter, Some((RawNode::NULL, "their number is another")));
        let copy = told(&[(NodeKind::Kernel, &[]), (NodeKind::Copy, &[0])]);
        assert_eq!(differs(&chain, &copy), Some((node(2), "it does something of another kind")));
        let branches = told(&[(NodeKind::Kernel, &[]), (NodeKind::Kernel, &[])]);
        assert_eq!(differs(&chain, &branches), Some((node(2), "it comes after other nodes")));
    }

    #[test]
    fn nodes_come_behind_those_that_they_come_after_and_else_in_their_order() {
        let handles: Vec<_> =
            (1..=4_usize).map(|at| RawNode::from_ptr(ptr::without_provenance_mut(at))).collect();
        // As the driver may have them: the last of a chain first.
        let after = [vec![2, 1], vec![], vec![3], vec![]];
        let (nodes, after) = in_order(&handles, &after);
        assert_eq!(nodes, [handles[1], handles[3], handles[2], handles[0]]);
        assert_eq!(after, [vec![], vec![], vec![1], vec![2, 0]]);
    }
}
