//! What CUDA's driver tells of captured graphs, and how it changes what was made of them.

use core::ffi::{CStr, c_int, c_void};
use core::ptr;

use wakeline_mapped::driver::{LaunchShape, RawExec, RawGraph, RawKernel};
use wakeline_mapped::error::CallError;
use wakeline_mapped::{GraphDriver, OpCaptured, OpGraph, RawNode, Refused, listed};
use wakeline_ops::port::NodeKind;

use crate::cuda::Cuda;
use crate::sys::{
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, CUDA_ERROR_LOSSY_QUERY, CUDA_GRAPH_INSTANTIATE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS, CUDA_SUCCESS, CUgraphExecUpdateResultInfo,
};

/// Work that was captured of streams of a CUDA device.
pub type CudaCaptured = OpCaptured<Cuda>;

/// A graph of a CUDA device that can be launched.
pub type CudaGraph = OpGraph<Cuda>;

/// What a node is, by `CUgraphNodeType` of `cuda.h`.
const fn node_kind(number: c_int) -> NodeKind {
    match number {
        0 => NodeKind::Kernel,
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
        _ => NO_REASON,
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
        _ => NO_REASON,
    }
}

const NO_REASON: &str = "the driver does not say why";

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

// SAFETY: each method is the driver's call of that meaning by NVIDIA's manual.
unsafe impl GraphDriver for Cuda {
    unsafe fn instantiate_told(&self, graph: RawGraph) -> Result<RawExec, Refused> {
        let call = "cuGraphInstantiateWithParams";
        let instantiate =
            self.had(call, self.symbols().cuGraphInstantiateWithParams).map_err(Refused::without_node)?;
        let (mut raw, null) = (ptr::null_mut(), ptr::null_mut());
        let mut told =
            CUDA_GRAPH_INSTANTIATE_PARAMS { flags: 0, upload_stream: null, error_node: null, result: 0 };
        // SAFETY: a context is bound, the graph alive; both others are rooms of what they are.
        let status = unsafe { instantiate(&raw mut raw, graph.as_ptr(), &raw mut told) };
        let made = self.check(call, status).map(|()| RawExec::from_ptr(raw));
        made.map_err(|error| Refused::of(error, told.error_node, instantiate_text(told.result)))
    }

    unsafe fn nodes(&self, graph: RawGraph) -> Result<Vec<RawNode>, CallError> {
        let Some(ask) = self.symbols().cuGraphGetNodes else { return Ok(Vec::new()) };
        listed(|room, count| {
            // SAFETY: a context is bound, the graph alive, and there is room for so many.
            self.check("cuGraphGetNodes", unsafe { ask(graph.as_ptr(), room, count) })
        })
    }

    /// None of a kernel that may begin before the one in front of it has ended: the driver tells of such dependencies by another call.
    unsafe fn nodes_before(&self, node: RawNode) -> Result<Vec<RawNode>, CallError> {
        let call = "cuGraphNodeGetDependencies";
        let Some(ask) = self.symbols().cuGraphNodeGetDependencies else { return Ok(Vec::new()) };
        listed(|room, count| {
            // SAFETY: a context is bound, the node of a graph that is there, and there is room for so many.
            let status = unsafe { ask(node.as_ptr(), room, count) };
            if status == CUDA_ERROR_LOSSY_QUERY {
                *count = 0;
                return Ok(());
            }
            self.check(call, status)
        })
    }

    unsafe fn node_kind(&self, node: RawNode) -> Result<NodeKind, CallError> {
        let ask = self.had("cuGraphNodeGetType", self.symbols().cuGraphNodeGetType)?;
        let mut sort = 0;
        // SAFETY: a context is bound, the node of a graph that is there, and `sort` a number's room.
        let status = unsafe { ask(node.as_ptr(), &raw mut sort) };
        self.check("cuGraphNodeGetType", status).map(|()| node_kind(sort))
    }

    unsafe fn kernel_name(&self, node: RawNode) -> Option<String> {
        let (ask, name_of) = (self.symbols().cuGraphKernelNodeGetParams?, self.symbols().cuFuncGetName?);
        let mut launch = no_launch();
        // SAFETY: a context is bound, the node one of a kernel, and `launch` the room of what it launches.
        let status = unsafe { ask(node.as_ptr(), &raw mut launch) };
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

    unsafe fn update(&self, exec: RawExec, graph: RawGraph) -> Result<(), Refused> {
        let call = "cuGraphExecUpdate";
        let update = self.had(call, self.symbols().cuGraphExecUpdate).map_err(Refused::without_node)?;
        let null = ptr::null_mut();
        let mut told = CUgraphExecUpdateResultInfo { result: 0, error_node: null, error_from_node: null };
        // SAFETY: a context is bound, both graphs are alive and no other thread's for the length of the call, and `told` is the room of what it tells.
        let status = unsafe { update(exec.as_ptr(), graph.as_ptr(), &raw mut told) };
        self.check(call, status).map_err(|error| match status {
            CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE => {
                Refused::of(error, told.error_node, update_text(told.result))
            }
            _ => Refused::without_node(error),
        })
    }

    unsafe fn set_kernel(
        &self,
        exec: RawExec,
        node: RawNode,
        kernel: RawKernel,
        shape: &LaunchShape,
        values: &mut [*mut c_void],
    ) -> Result<(), CallError> {
        let call = "cuGraphExecKernelNodeSetParams";
        let set = self.had(call, self.symbols().cuGraphExecKernelNodeSetParams)?;
        let launch = CUDA_KERNEL_NODE_PARAMS {
            function: kernel.as_ptr(),
            grid: shape.blocks,
            block: shape.threads,
            shared_bytes: shape.shared_bytes,
            parameters: values.as_mut_ptr(),
            ..no_launch()
        };
        // SAFETY: a context is bound, the graph alive and no other thread's for the length of the call, the node one of what it was made of, which is there; the kernel's module is loaded,
        // its parameters as many as it has, and read before the call returns.
        let status = unsafe { set(exec.as_ptr(), node.as_ptr(), &raw const launch) };
        self.check(call, status)
    }
}
