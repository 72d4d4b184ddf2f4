//! HIP's graphs, where they are not CUDA's: kinds of nodes have other numbers, what a kernel is launched with is laid out in another way, and an update compares less and changes one node after the other.
#![allow(unsafe_code, non_snake_case)]

use core::ffi::{c_char, c_int, c_uint};
use core::ptr;

use super::arg::{Chars, List, Out, Params, StreamArg};
use super::graph::{self, Launched, Node};
use super::handle::Kind;
use super::hip::{logged, on_device};
use super::module::{self, Sizes};
use super::op::Op;
use super::state::State;
use super::{Answer, gate};
use crate::Status;
use crate::wire::HipNodes;

/// `hipGraphNodeTypeBatchMemOp`
const MEMORY_WORDS: c_int = 14;
/// `hipGraphNodeTypeMemcpy1D`, where nodes are numbered from 1 on.
const MEMCPY_1D: c_int = 9;

/// `hipGraphExecUpdateResult`
const TOPOLOGY_CHANGED: c_uint = 2;
const NODE_TYPE_CHANGED: c_uint = 3;
const UNSUPPORTED_FUNCTION_CHANGE: c_uint = 7;

/// `hipKernelNodeParams`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct KernelParams {
    block: Sizes,
    extra: List<usize>,
    function: u64,
    grid: Sizes,
    parameters: Params,
    shared_bytes: u32,
}

pub(super) fn create(state: &mut State, out: Out<u64>, flags: c_uint) -> Answer {
    out.needed()?;
    if flags != 0 {
        return Err(Status::INVALID_VALUE.into());
    }
    let context = state.current()?;
    let handle = state.handles.give(Kind::Graph);
    state.graphs.insert(handle, graph::Graph { context, nodes: Vec::new() });
    out.set(handle)
}

pub(super) fn add_empty(
    state: &mut State,
    out: Out<u64>,
    graph: u64,
    after: List<u64>,
    count: usize,
) -> Answer {
    out.needed()?;
    let after = after.take(count)?;
    let nodes: Vec<u64> = state.graph(graph)?.nodes.iter().map(|node| node.handle).collect();
    let place = |wanted: &u64| nodes.iter().position(|node| node == wanted);
    let after: Option<Vec<usize>> = after.iter().map(place).collect();
    let after = after.ok_or(Status::INVALID_VALUE)?;
    let handle = state.handles.give(Kind::Node);
    if let Some(graph) = state.graphs.get_mut(&graph) {
        graph.nodes.push(Node { handle, op: Op::Nothing, after, launch: None });
    }
    out.set(handle)
}

/// Of what it refuses a handle is left that is freed already.
pub(super) fn instantiate(
    state: &mut State,
    out: Out<u64>,
    graph: u64,
    node: Out<u64>,
    log: Chars,
    log_bytes: usize,
) -> Answer {
    out.needed()?;
    if let Some(refused) = graph::refused(state, graph)? {
        node.set_if_wanted(refused);
        if let Ok(bytes) = c_int::try_from(log_bytes)
            && bytes > 0
        {
            log.write("the kernel cannot be part of a graph\n", bytes)?;
        }
        let freed = state.handles.give(Kind::Exec);
        out.set(freed)?;
        return Err(Status::NOT_SUPPORTED.into());
    }
    graph::instantiate(state, out, graph, 0)
}

pub(super) fn node_type(state: &mut State, node: u64, out: Out<c_int>) -> Answer {
    let (node, _) = state.node(node)?;
    let of_cuda = node.sort();
    let number = match (state.options.hip_nodes, node.op) {
        (_, Op::Store { .. } | Op::Wait { .. }) => MEMORY_WORDS,
        (HipNodes::FromOne, Op::Copy { .. }) => MEMCPY_1D,
        (HipNodes::FromOne, _) => of_cuda + 1,
        (HipNodes::FromZero, _) => of_cuda,
    };
    out.set(number)
}

pub(super) fn get_kernel(state: &mut State, node: u64, out: Out<KernelParams>) -> Answer {
    let (node, _) = state.node(node)?;
    let Some(Launched { function, grid, block, shared_bytes }) = node.launch else {
        state.violation("what is launched is asked of a node that launches no kernel");
        return Err(Status::INVALID_VALUE.into());
    };
    let (parameters, extra) = (List::none(), List::none());
    out.set(KernelParams { block, extra, function, grid, parameters, shared_bytes })
}

pub(super) fn set_kernel(state: &mut State, exec: u64, node: u64, params: List<KernelParams>) -> Answer {
    let params = params.take(1)?.into_iter().next().ok_or(Status::INVALID_VALUE)?;
    let KernelParams { block, function, grid, parameters, shared_bytes, .. } = params;
    module::allow_all_shared(state, function);
    graph::set_launch(state, exec, node, Launched { function, grid, block, shared_bytes }, parameters)
}

/// Nodes are paired by their order. What they come after is not compared.
pub(super) fn update(
    state: &mut State,
    exec: u64,
    graph: u64,
    node: Out<u64>,
    result: Out<c_uint>,
) -> Answer {
    node.needed()?;
    result.needed()?;
    let new = state.graph(graph)?.nodes.clone();
    let never = graph::refused(state, graph)?;
    let Some(old) = state.execs.get_mut(&exec) else {
        return Err(state.unknown(Kind::Exec, exec).into());
    };
    let failed = |at: u64, why: c_uint| {
        node.set(at)?;
        result.set(why)?;
        Err(Status::GRAPH_EXEC_UPDATE_FAILURE.into())
    };
    if old.nodes.len() != new.len() {
        // Of this no node is told.
        result.set(TOPOLOGY_CHANGED)?;
        return Err(Status::GRAPH_EXEC_UPDATE_FAILURE.into());
    }
    for (old, new) in old.nodes.iter_mut().zip(new) {
        if old.sort() != new.sort() {
            return failed(new.handle, NODE_TYPE_CHANGED);
        }
        if never == Some(new.handle) {
            return failed(new.handle, UNSUPPORTED_FUNCTION_CHANGE);
        }
        // It is still named by the nodes of the graph that it was made of, and comes after what it came after.
        *old = Node { handle: old.handle, after: core::mem::take(&mut old.after), ..new };
    }
    result.set(0)
}

// SAFETY: the name is the library's own, and this one is loaded in its place, into a scope of its own.
#[unsafe(no_mangle)]
extern "C" fn hipKernelNameRef(function: u64) -> *const c_char {
    let mut name = 0_usize;
    let out = Out::to(&mut name);
    gate::call_in("hipKernelNameRef", logged(), None, |state| {
        on_device(state, |state| module::name(state, out, function))
    });
    ptr::with_exposed_provenance(name)
}

/// No kernel of the program's is known.
// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn hipKernelNameRefByPtr(_: u64, _: StreamArg) -> *const c_char {
    ptr::null()
}
