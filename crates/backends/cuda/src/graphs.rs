//! Graphs as operations ask for them: captures of their streams, what can be launched of them, and how that is changed.
//!
//! Invariants:
//! 1. A graph stays as long as what was made of it: the driver names the nodes of that by those of the graph.
//! 2. Whoever launches or changes one makes one call at a time of it, says the port: the driver locks none of its graphs.

use core::ffi::{CStr, c_int, c_void};
use core::fmt;
use core::ptr;
use std::collections::{BTreeSet, HashMap};

use wakeline_core::{Error, ErrorCode};
use wakeline_mapped::error::{CallError, Kind};
use wakeline_ops::port::{Arg, Graphs, Node, NodeKind, Promise, Shape};

use crate::access::CudaMemory;
use crate::cuda::Cuda;
use crate::error::{BACKEND, kind};
use crate::function::Function;
use crate::graph::{Captured, Executable, begin, end};
use crate::launch;
use crate::ops::CudaDevice;
use crate::sys::{
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_SUCCESS, CUgraphEdgeData, CUgraphExecUpdateResultInfo, CUresult, Handle,
};
use crate::wait::{CuStream, CudaContext};

/// `CUgraphNodeType` of a kernel.
const KERNEL: c_int = 0;

/// Work that was captured of streams of a CUDA device.
#[derive(Debug)]
pub struct CudaCaptured {
    graph: Captured,
    /// Each behind those that it comes after, as far as the driver tells; else as the driver has them.
    nodes: Vec<Handle>,
    /// What each comes right after.
    after: Vec<Vec<usize>>,
}

/// A graph that can be launched.
#[derive(Debug)]
pub struct CudaGraph(Executable);

/// What a node is, by `CUgraphNodeType` of `cuda.h`.
const fn node_kind(number: c_int) -> NodeKind {
    match number {
        KERNEL => NodeKind::Kernel,
        1 => NodeKind::Copy,
        2 => NodeKind::Fill,
        3 => NodeKind::Host,
        4 => NodeKind::Graph,
        5 => NodeKind::Empty,
        12 => NodeKind::Words,
        _ => NodeKind::Other,
    }
}

/// Why a graph cannot be launched, by `CUgraphInstantiateResult` of `cuda.h`.
const fn instantiate_text(result: c_int) -> &'static str {
    match result {
        2 => "the structure of the graph is not valid",
        3 => "graphs cannot have what it does",
        4 => "its nodes are of several contexts",
        _ => "the driver does not say why",
    }
}

/// What keeps a graph from becoming another, by `CUgraphExecUpdateResult` of `cuda.h`.
const fn update_text(result: c_int) -> &'static str {
    match result {
        2 => "it comes after other nodes, or their number is another",
        3 => "it does something of another kind",
        4 | 7 => "its kernel cannot be changed for the other",
        5 => "its parameters cannot be changed so",
        6 => "it cannot be changed",
        8 => "its attributes are others",
        _ => "the driver does not say why",
    }
}

impl CudaCaptured {
    /// # Errors
    ///
    /// What the driver says.
    fn new(graph: Captured) -> Result<Self, Error> {
        let told = |error| graph.context.told(error);
        let nodes = nodes_of(&graph).map_err(told)?;
        let numbers: HashMap<usize, usize> =
            nodes.iter().enumerate().map(|(number, Handle(node))| (node.addr(), number)).collect();
        let number = |node: &*mut c_void| numbers.get(&node.addr()).copied();
        let mut after = Vec::with_capacity(nodes.len());
        for Handle(node) in &nodes {
            let before = dependencies(&graph, *node).map_err(told)?;
            after.push(before.iter().filter_map(number).collect());
        }
        let (nodes, after) = in_order(&nodes, &after);
        Ok(Self { graph, nodes, after })
    }

    const fn context(&self) -> &CudaContext {
        &self.graph.context
    }

    /// How messages call the node of this handle.
    fn name(&self, node: *mut c_void) -> String {
        let number = self.nodes.iter().position(|handle| handle.0 == node);
        match number {
            Some(number) => {
                let told = self.node(number).map_or_else(|_| String::new(), |node| format!(" ({node})"));
                format!("node {number}{told}")
            }
            None => "no node that the driver names".to_owned(),
        }
    }

    /// What the node of this number is, without what it comes after. The context is bound.
    fn node(&self, number: usize) -> Result<Node, Error> {
        let cuda = self.context().driver();
        let Handle(raw) = self.nodes.get(number).copied().unwrap_or(Handle(ptr::null_mut()));
        let told = |error| self.context().told(error);
        let symbols = cuda.symbols();
        let ask = symbols.cuGraphNodeGetType.ok_or_else(|| cuda.absent("cuGraphNodeGetType"))?;
        let mut sort = KERNEL;
        // SAFETY: the context is bound, the node of a graph that is there, and `sort` a number's room.
        let status = unsafe { ask(raw, &raw mut sort) };
        cuda.check("cuGraphNodeGetType", status).map_err(told)?;
        let name = if sort == KERNEL { kernel_name(cuda, raw) } else { None };
        Ok(Node { kind: node_kind(sort), name: name.unwrap_or_default(), after: Vec::new() })
    }
}

/// The same nodes, each behind those that it comes after, and else in their order.
fn in_order(nodes: &[Handle], after: &[Vec<usize>]) -> (Vec<Handle>, Vec<Vec<usize>>) {
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
    let its = |number: &usize| -> Option<(Handle, Vec<usize>)> {
        Some((*nodes.get(*number)?, after.get(*number)?.iter().filter_map(place).collect()))
    };
    order.iter().filter_map(its).unzip()
}

/// The nodes that this one comes right after, where the driver can tell. The context is bound, and the node of this graph.
fn dependencies(graph: &Captured, node: *mut c_void) -> Result<Vec<*mut c_void>, CallError> {
    let cuda = graph.context.driver();
    let call = "cuGraphNodeGetDependencies";
    let Some(ask) = cuda.symbols().cuGraphNodeGetDependencies else { return Ok(Vec::new()) };
    let mut count = 0;
    // SAFETY: the context is bound, the node of a graph that is there, and `count` a number's room; without room for nodes it tells their number alone.
    let status = unsafe { ask(node, ptr::null_mut(), ptr::null_mut(), &raw mut count) };
    cuda.check(call, status)?;
    let mut nodes = vec![ptr::null_mut(); count];
    let mut edges: Vec<CUgraphEdgeData> = vec![[0; 8]; count];
    // SAFETY: as above, with room for as many as there are.
    let status = unsafe { ask(node, nodes.as_mut_ptr(), edges.as_mut_ptr(), &raw mut count) };
    cuda.check(call, status)?;
    nodes.truncate(count);
    Ok(nodes)
}

/// The nodes of a graph, where the driver can tell. The context is bound.
fn nodes_of(graph: &Captured) -> Result<Vec<Handle>, CallError> {
    let cuda = graph.context.driver();
    let Some(ask) = cuda.symbols().cuGraphGetNodes else { return Ok(Vec::new()) };
    let mut count = 0;
    // SAFETY: the context is bound, the graph alive, and `count` a number's room; without room for nodes it tells their number alone.
    let status = unsafe { ask(graph.raw.0, ptr::null_mut(), &raw mut count) };
    cuda.check("cuGraphGetNodes", status)?;
    let mut nodes = vec![ptr::null_mut(); count];
    // SAFETY: as above, with room for as many as there are.
    let status = unsafe { ask(graph.raw.0, nodes.as_mut_ptr(), &raw mut count) };
    cuda.check("cuGraphGetNodes", status)?;
    Ok(nodes.into_iter().take(count).map(Handle).collect())
}

/// What the kernel of a node is called, where the driver tells. The context is bound, and the node is of a graph that is there.
fn kernel_name(cuda: &Cuda, node: *mut c_void) -> Option<String> {
    let (ask, name_of) = (cuda.symbols().cuGraphKernelNodeGetParams?, cuda.symbols().cuFuncGetName?);
    let mut launch = no_launch();
    // SAFETY: the context is bound, the node one of a kernel, and `launch` the room of what it launches.
    let status = unsafe { ask(node, &raw mut launch) };
    if status != CUDA_SUCCESS || launch.function.is_null() {
        return None;
    }
    let mut name = ptr::null();
    // SAFETY: the function is the node's, whose module is loaded, and `name` a pointer's room.
    let status = unsafe { name_of(&raw mut name, launch.function) };
    if status != CUDA_SUCCESS || name.is_null() {
        return None;
    }
    // SAFETY: on success it is a text of the driver's own, ended by a zero, which stays as long as the module.
    Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

const fn no_launch() -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        function: ptr::null_mut(),
        grid: [0; 3],
        block: [0; 3],
        shared_bytes: 0,
        parameters: ptr::null_mut(),
        extra: ptr::null_mut(),
        kernel: ptr::null_mut(),
        context: ptr::null_mut(),
    }
}

impl CudaDevice {
    /// The outcome of a call that was refused because of a node, if it was.
    fn of_graph(
        &self,
        code: ErrorCode,
        call: &'static str,
        status: CUresult,
        why: impl FnOnce() -> (String, String),
    ) -> Result<(), Error> {
        let cuda = self.context().driver();
        let Err(error) = cuda.check(call, status) else { return Ok(()) };
        // What is wrong with the context is no node's fault; nor is want of memory.
        if matches!(kind(status), Kind::Sticky | Kind::Gone | Kind::OutOfMemory) {
            return Err(self.context().told(error));
        }
        let (node, why) = why();
        let said: [&dyn fmt::Display; 3] = [&BACKEND, &node, &format!("{why} ({error})")];
        Err(Error::new(code, said).with_source(error))
    }
}

impl Graphs for CudaDevice {
    type Captured = CudaCaptured;
    type Executable = CudaGraph;

    /// Of this thread: `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
    fn begin_capture(&self, stream: &CuStream) -> Result<(), Error> {
        stream.ready()?;
        let _bound = self.context().bind()?;
        // SAFETY: the context is bound, and the stream alive and of it.
        unsafe { begin(self.context(), stream.raw()) }.map_err(|error| self.context().told(error))
    }

    fn end_capture(&self, stream: &CuStream) -> Result<CudaCaptured, Error> {
        let _bound = self.context().bind()?;
        // SAFETY: the context is bound, the stream alive and of it; the port says that it is the thread that began.
        let captured = unsafe { end(self.context(), stream.raw()) };
        CudaCaptured::new(captured.map_err(|error| self.context().told(error))?)
    }

    /// None before CUDA 12, of whose drivers none can tell; what they come after, and names, from CUDA 12.3 on.
    fn nodes(&self, captured: &CudaCaptured) -> Result<Vec<Node>, Error> {
        let _bound = self.context().bind()?;
        let node = |(number, after): (usize, &Vec<usize>)| {
            Ok(Node { after: after.clone(), ..captured.node(number)? })
        };
        captured.after.iter().enumerate().map(node).collect()
    }

    fn instantiate(&self, captured: &CudaCaptured) -> Result<CudaGraph, Error> {
        let context = self.context();
        context.open()?;
        let cuda = context.driver();
        let _bound = context.bind()?;
        let mut raw = ptr::null_mut();
        let call = "cuGraphInstantiateWithParams";
        let instantiate = cuda.symbols().cuGraphInstantiateWithParams.ok_or_else(|| cuda.absent(call))?;
        let mut told = CUDA_GRAPH_INSTANTIATE_PARAMS {
            flags: 0,
            upload_stream: ptr::null_mut(),
            error_node: ptr::null_mut(),
            result: 0,
        };
        // SAFETY: the context is bound, the graph alive; both others are rooms of what they are.
        let status = unsafe { instantiate(&raw mut raw, captured.graph.raw.0, &raw mut told) };
        let why = || (captured.name(told.error_node), instantiate_text(told.result).to_owned());
        self.of_graph(ErrorCode::GraphRefused, call, status, why)?;
        Ok(CudaGraph(Executable { context: context.clone(), raw: Handle(raw) }))
    }

    fn launch_graph(&self, stream: &CuStream, graph: &CudaGraph, _: Promise) -> Result<(), Error> {
        let context = self.context();
        context.open()?;
        let cuda = context.driver();
        let launch = cuda.symbols().cuGraphLaunch.ok_or_else(|| cuda.absent("cuGraphLaunch"))?;
        let _bound = context.bind()?;
        // SAFETY: the context is bound, the graph alive and no other thread's for the length of the call, the stream alive and of the context; what it does is
        // as the promise says.
        let status = unsafe { launch(graph.0.raw.0, stream.raw().as_ptr()) };
        cuda.check("cuGraphLaunch", status).map_err(|error| context.told(error))
    }

    fn update_graph(&self, graph: &CudaGraph, captured: &CudaCaptured) -> Result<(), Error> {
        let context = self.context();
        context.open()?;
        let cuda = context.driver();
        let update = cuda.symbols().cuGraphExecUpdate.ok_or_else(|| cuda.absent("cuGraphExecUpdate"))?;
        let _bound = context.bind()?;
        let null = ptr::null_mut();
        let mut told = CUgraphExecUpdateResultInfo { result: 0, error_node: null, error_from_node: null };
        // SAFETY: the context is bound, both graphs are alive and no other thread's for the length of the call, and `told` is the room of what it tells.
        let status = unsafe { update(graph.0.raw.0, captured.graph.raw.0, &raw mut told) };
        if status != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE {
            return cuda.check("cuGraphExecUpdate", status).map_err(|error| context.told(error));
        }
        let why = || (captured.name(told.error_node), update_text(told.result).to_owned());
        self.of_graph(ErrorCode::GraphMismatch, "cuGraphExecUpdate", status, why)
    }

    /// A plain launch: of clusters and their like a node keeps what it was captured with.
    fn set_kernel(
        &self,
        graph: &CudaGraph,
        captured: &CudaCaptured,
        node: usize,
        kernel: &Function,
        shape: Shape,
        args: &[Arg<'_, CudaMemory>],
        _: Promise,
    ) -> Result<(), Error> {
        let context = self.context();
        context.open()?;
        let cuda = context.driver();
        let call = "cuGraphExecKernelNodeSetParams";
        let set = cuda.symbols().cuGraphExecKernelNodeSetParams.ok_or_else(|| cuda.absent(call))?;
        self.takes_kernel(kernel)?;
        shape.check(BACKEND, self.launches().limits())?;
        let _bound = context.bind()?;
        let name = format!("node {node}");
        let mismatch = |why: &str| Err(Error::new(ErrorCode::GraphMismatch, [&BACKEND, &name, &why]));
        let Some(Handle(raw)) = captured.nodes.get(node).copied() else {
            return mismatch(&format!("there are {} nodes", captured.nodes.len()));
        };
        if captured.node(node)?.kind != NodeKind::Kernel {
            return mismatch("it launches no kernel");
        }
        kernel.allow_shared(shape.shared_bytes)?;
        let mut words: Vec<u64> = args.iter().map(launch::word).collect();
        let mut values: Vec<*mut c_void> = words.iter_mut().map(|word| ptr::from_mut(word).cast()).collect();
        let launch = CUDA_KERNEL_NODE_PARAMS {
            function: kernel.raw(),
            grid: shape.blocks,
            block: shape.threads,
            shared_bytes: shape.shared_bytes,
            parameters: values.as_mut_ptr(),
            ..no_launch()
        };
        // SAFETY: the context is bound, the graph alive and no other thread's for the length of the call, the node one of what it was made of, which is there; the kernel's module is loaded, and its
        // parameters are as many as the promise says, read before the call returns.
        let status = unsafe { set(graph.0.raw.0, raw, &raw const launch) };
        let why = || (name.clone(), "its kernel cannot be launched so".to_owned());
        self.of_graph(ErrorCode::GraphMismatch, call, status, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_come_behind_those_that_they_come_after_and_else_in_their_order() {
        let handles: Vec<_> = (1..=4_usize).map(|at| Handle(ptr::without_provenance_mut(at))).collect();
        // As the driver may have them: the last of a chain first.
        let after = [vec![2, 1], vec![], vec![3], vec![]];
        let (nodes, after) = in_order(&handles, &after);
        assert_eq!(nodes, [handles[1], handles[3], handles[2], handles[0]]);
        assert_eq!(after, [vec![], vec![], vec![1], vec![2, 0]]);
    }
}
