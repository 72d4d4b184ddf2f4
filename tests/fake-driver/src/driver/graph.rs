//! Graphs: what was captured, what can be launched of it, and the launch, which replays it in a stream.

use core::ffi::c_int;

use super::Answer;
use super::arg::{List, Out, Params, StreamArg};
use super::handle::Kind;
use super::module::Sizes;
use super::op::Op;
use super::state::State;
use crate::Status;

/// `CUgraphNodeType`
const KERNEL: c_int = 0;
const MEMCPY: c_int = 1;
const MEMSET: c_int = 2;
const HOST: c_int = 3;
const EMPTY: c_int = 5;
const MEMORY_WORDS: c_int = 12;

/// `CUgraphInstantiateResult`
const NODE_NOT_SUPPORTED: c_int = 3;

/// `CUgraphExecUpdateResult`
const TOPOLOGY_CHANGED: c_int = 2;
const NODE_TYPE_CHANGED: c_int = 3;

/// A captured row of operations, or one that can be launched.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    pub(super) context: u64,
    pub(super) nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) handle: u64,
    pub(super) op: Op,
    /// The places of the nodes that it comes right after.
    pub(super) after: Vec<usize>,
    /// Of a kernel, what is launched.
    pub(super) launch: Option<Launched>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Launched {
    pub(super) function: u64,
    pub(super) grid: Sizes,
    pub(super) block: Sizes,
    pub(super) shared_bytes: u32,
}

impl Node {
    pub(super) const fn sort(&self) -> c_int {
        match self.op {
            Op::Kernel(_) | Op::Meet(_) => KERNEL,
            Op::Copy { .. } | Op::Rows { .. } => MEMCPY,
            Op::Fill { .. } => MEMSET,
            Op::Host { .. } => HOST,
            Op::Store { .. } | Op::Wait { .. } => MEMORY_WORDS,
            Op::Nothing | Op::Record { .. } | Op::Free { .. } => EMPTY,
        }
    }
}

impl State {
    pub(super) fn graph(&mut self, graph: u64) -> Answer<&Graph> {
        if !self.graphs.contains_key(&graph) {
            return Err(self.unknown(Kind::Graph, graph).into());
        }
        self.graphs.get(&graph).ok_or(Status::INVALID_HANDLE.into())
    }

    /// A node of a graph that is there, and that.
    pub(super) fn node(&mut self, node: u64) -> Answer<(Node, Vec<u64>)> {
        let found = self.graphs.values().find_map(|graph| {
            let node = graph.nodes.iter().find(|other| other.handle == node)?;
            Some((node.clone(), graph.nodes.iter().map(|node| node.handle).collect()))
        });
        match found {
            Some(found) => Ok(found),
            None => Err(self.unknown(Kind::Node, node).into()),
        }
    }
}

pub(super) fn instantiate(state: &mut State, out: Out<u64>, graph: u64, _flags: u64) -> Answer {
    out.needed()?;
    let context = state.current()?;
    let nodes = state.graph(graph)?.nodes.clone();
    let handle = state.handles.give(Kind::Exec);
    state.execs.insert(handle, Graph { context, nodes });
    out.set(handle)
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct InstantiateParams {
    flags: u64,
    upload: u64,
    error_node: u64,
    result: c_int,
}

/// The node with a kernel of the name that a test says no graph can have.
pub(super) fn refused(state: &mut State, graph: u64) -> Answer<Option<u64>> {
    let refused = state.options.no_graphs_with.clone();
    let nodes = state.graph(graph)?.nodes.clone();
    let is_refused = |node: &&Node| {
        let function = node.launch.and_then(|launch| state.functions.get(&launch.function));
        refused.is_some() && function.map(|function| function.name().to_owned()) == refused
    };
    Ok(nodes.iter().find(is_refused).map(|node| node.handle))
}

pub(super) fn instantiate_with(
    state: &mut State,
    out: Out<u64>,
    graph: u64,
    params: Out<InstantiateParams>,
) -> Answer {
    let given = params.get()?;
    if let Some(error_node) = refused(state, graph)? {
        params.set(InstantiateParams { error_node, result: NODE_NOT_SUPPORTED, ..given })?;
        return Err(Status::NOT_SUPPORTED.into());
    }
    params.set(InstantiateParams { error_node: 0, result: 0, ..given })?;
    instantiate(state, out, graph, given.flags)
}

/// `CUgraphExecUpdateResultInfo`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct UpdateInfo {
    result: c_int,
    error_node: u64,
    error_from_node: u64,
}

pub(super) fn update(state: &mut State, exec: u64, graph: u64, info: Out<UpdateInfo>) -> Answer {
    info.needed()?;
    let new = state.graph(graph)?.nodes.clone();
    let Some(old) = state.execs.get_mut(&exec) else {
        return Err(state.unknown(Kind::Exec, exec).into());
    };
    let differs = |node: u64, result| {
        info.set(UpdateInfo { result, error_node: node, error_from_node: 0 })?;
        Err(Status::GRAPH_EXEC_UPDATE_FAILURE.into())
    };
    if old.nodes.len() != new.len() {
        return differs(0, TOPOLOGY_CHANGED);
    }
    for (old, new) in old.nodes.iter().zip(&new) {
        if old.sort() != new.sort() {
            return differs(new.handle, NODE_TYPE_CHANGED);
        }
        if old.after != new.after {
            return differs(new.handle, TOPOLOGY_CHANGED);
        }
    }
    // It is still named by the nodes of the graph that it was made of.
    for (old, new) in old.nodes.iter_mut().zip(new) {
        *old = Node { handle: old.handle, ..new };
    }
    info.set(UpdateInfo { result: 0, error_node: 0, error_from_node: 0 })
}

/// `CUDA_KERNEL_NODE_PARAMS`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct KernelParams {
    function: u64,
    grid: Sizes,
    block: Sizes,
    shared_bytes: u32,
    parameters: Params,
    extra: List<usize>,
    kernel: u64,
    context: u64,
}

pub(super) fn get_kernel(state: &mut State, node: u64, out: Out<KernelParams>) -> Answer {
    let (node, _) = state.node(node)?;
    let Launched { function, grid, block, shared_bytes } = node.launch.ok_or(Status::INVALID_VALUE)?;
    let (parameters, extra) = (List::none(), List::none());
    let context = state.current()?;
    out.set(KernelParams { function, grid, block, shared_bytes, parameters, extra, kernel: 0, context })
}

pub(super) fn set_kernel(state: &mut State, exec: u64, node: u64, params: List<KernelParams>) -> Answer {
    state.current()?;
    let params = params.take(1)?.into_iter().next().ok_or(Status::INVALID_VALUE)?;
    let KernelParams { function, grid, block, shared_bytes, parameters, .. } = params;
    set_launch(state, exec, node, Launched { function, grid, block, shared_bytes }, parameters)
}

/// Has a node of what was made of a graph launch this.
pub(super) fn set_launch(
    state: &mut State,
    exec: u64,
    node: u64,
    launch: Launched,
    parameters: Params,
) -> Answer {
    state.node(node)?;
    let kernel = state.kernel(launch.function, parameters)?;
    let Some(exec) = state.execs.get_mut(&exec) else {
        return Err(state.unknown(Kind::Exec, exec).into());
    };
    let place = exec.nodes.iter_mut().find(|other| other.handle == node);
    let place = place.filter(|node| node.sort() == KERNEL).ok_or(Status::INVALID_VALUE)?;
    place.op = Op::Kernel(kernel);
    place.launch = Some(launch);
    Ok(())
}

/// Tells as many as there is room for, and how many there are where there is none.
fn tell(handles: &[u64], nodes: Out<u64>, count: Out<usize>) -> Answer {
    if nodes.is_none() {
        return count.set(handles.len());
    }
    let room = count.get()?.min(handles.len());
    if room > 0 {
        nodes.fill(handles.get(..room).unwrap_or_default())?;
    }
    count.set(room)
}

pub(super) fn nodes(state: &mut State, graph: u64, nodes: Out<u64>, count: Out<usize>) -> Answer {
    let handles: Vec<u64> = state.graph(graph)?.nodes.iter().map(|node| node.handle).collect();
    tell(&handles, nodes, count)
}

pub(super) fn node_type(state: &mut State, node: u64, out: Out<c_int>) -> Answer {
    out.set(state.node(node)?.0.sort())
}

pub(super) fn dependencies(state: &mut State, node: u64, nodes: Out<u64>, count: Out<usize>) -> Answer {
    let (node, all) = state.node(node)?;
    let handles: Vec<u64> = node.after.iter().filter_map(|place| all.get(*place).copied()).collect();
    tell(&handles, nodes, count)
}

/// Launched into a capturing stream it becomes part of that graph.
pub(super) fn launch(state: &mut State, exec: u64, stream: StreamArg) -> Answer {
    let stream = state.stream(stream)?;
    let Some(exec) = state.execs.get(&exec) else {
        return Err(state.unknown(Kind::Exec, exec).into());
    };
    let mut nodes: Vec<Op> = exec.nodes.iter().map(|node| node.op.clone()).collect();
    if nodes.is_empty() {
        nodes.push(Op::Nothing);
    }
    state.enqueue_all(stream, nodes, Vec::new())?;
    Ok(())
}

/// What was launched of it goes on.
pub(super) fn destroy_exec(state: &mut State, exec: u64) -> Answer {
    state.current()?;
    if state.execs.remove(&exec).is_some() { Ok(()) } else { Err(state.unknown(Kind::Exec, exec).into()) }
}

pub(super) fn destroy(state: &mut State, graph: u64) -> Answer {
    if state.graphs.remove(&graph).is_some() { Ok(()) } else { Err(state.unknown(Kind::Graph, graph).into()) }
}
