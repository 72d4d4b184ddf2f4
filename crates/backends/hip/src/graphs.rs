//! What HIP tells of captured graphs, and how it changes what was made of them.
//!
//! What differs from CUDA:
//!
//! - Libraries number the kinds of nodes in two ways: from 1 on with 5.2, from 0 on with 6. By which, one says itself: it is asked for the kind of an empty node, once.
//! - An update pairs the nodes of two graphs by their order alone. It compares their number and kinds, but not what they come after, and changes one after the other: where one cannot be changed, those
//!   before it were. So [`UPDATE_IS_WHOLE`](GraphDriver::UPDATE_IS_WHOLE) is not said of it.
//! - What a node launches is a function of a module, or the address of a function of the program that stands for a kernel. The name of the first is read through the handle, so the second is looked
//!   for before, in the library's own list.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;

use wakeline_mapped::driver::{LaunchShape, RawExec, RawGraph, RawKernel, WorkDriver};
use wakeline_mapped::error::CallError;
use wakeline_mapped::{GraphDriver, OpCaptured, OpGraph, RawNode, Refused, listed};
use wakeline_ops::port::NodeKind;

use crate::caps::Caps;
use crate::error::and_then;
use crate::hip::Hip;
use crate::sys::{
    GRAPH_EXEC_UPDATE_FAILURE, NOT_SUPPORTED, UPDATE_FUNCTION_CHANGED, UPDATE_NODE_TYPE_CHANGED,
    UPDATE_NOT_SUPPORTED, UPDATE_PARAMETERS_CHANGED, UPDATE_TOPOLOGY_CHANGED, UPDATE_UNSUPPORTED_FUNCTION,
    hipGraphExecUpdateResult, hipGraphNodeType, hipKernelNodeParams,
};

/// Work that was captured of streams of a HIP device.
pub type HipCaptured = OpCaptured<Hip>;

/// A graph of a HIP device that can be launched.
pub type HipGraph = OpGraph<Hip>;

/// The most that is read of what the library writes about a graph that it refuses, with the zero at its end.
const LOG_BYTES: usize = 1_024;

/// How a library numbers kinds of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NodeNumbers {
    /// From 1 on, as 5.2 does.
    FromOne,
    /// From 0 on, as 6 does.
    FromZero,
    /// In a way that is not known here.
    Unknown,
}

impl NodeNumbers {
    /// The way in which an empty node has this number.
    pub(crate) const fn by_empty(number: hipGraphNodeType) -> Self {
        match number {
            6 => Self::FromOne,
            5 => Self::FromZero,
            _ => Self::Unknown,
        }
    }

    /// What a node is, by `hipGraphNodeType` of `hip_runtime_api.h`.
    pub(crate) const fn kind(self, number: hipGraphNodeType) -> NodeKind {
        match (self, number) {
            (Self::FromZero, 0) | (Self::FromOne, 1) => NodeKind::Kernel,
            // The last three are copies from and to names of the program.
            (Self::FromZero, 1 | 12 | 13) | (Self::FromOne, 2 | 9 | 10 | 11) => NodeKind::Copy,
            (Self::FromZero, 2) | (Self::FromOne, 3) => NodeKind::Fill,
            (Self::FromZero, 3) | (Self::FromOne, 4) => NodeKind::Host,
            (Self::FromZero, 4) | (Self::FromOne, 5) => NodeKind::Graph,
            (Self::FromZero, 5) | (Self::FromOne, 6) => NodeKind::Empty,
            (Self::FromZero, 14) => NodeKind::Words,
            _ => NodeKind::Other,
        }
    }
}

/// What keeps a graph from becoming another.
const fn update_text(result: hipGraphExecUpdateResult) -> &'static str {
    match result {
        UPDATE_TOPOLOGY_CHANGED => "it comes after other nodes, or their number is another",
        UPDATE_NODE_TYPE_CHANGED => "it does something of another kind",
        UPDATE_FUNCTION_CHANGED | UPDATE_UNSUPPORTED_FUNCTION => "its kernel cannot be changed for the other",
        UPDATE_PARAMETERS_CHANGED => "its parameters cannot be changed so",
        UPDATE_NOT_SUPPORTED => "it cannot be changed",
        _ => NO_REASON,
    }
}

const NO_REASON: &str = "the library does not say why";

const fn no_launch() -> hipKernelNodeParams {
    hipKernelNodeParams {
        block: [0; 3],
        extra: ptr::null_mut(),
        function: ptr::null_mut(),
        grid: [0; 3],
        parameters: ptr::null_mut(),
        shared_bytes: 0,
    }
}

impl Hip {
    /// How this library numbers kinds of nodes: it is asked once.
    ///
    /// # Safety
    ///
    /// A device is current.
    unsafe fn node_numbers(&self) -> Result<NodeNumbers, CallError> {
        if let Some(numbers) = self.node_numbers_known().get() {
            return Ok(*numbers);
        }
        let create = self.had("hipGraphCreate", self.symbols().hipGraphCreate)?;
        // What is made is destroyed.
        self.had("hipGraphDestroy", self.symbols().hipGraphDestroy)?;
        let mut graph = ptr::null_mut();
        // SAFETY: `graph` is a handle's room; 0 is the one flag there is.
        let status = unsafe { create(&raw mut graph, 0) };
        self.check("hipGraphCreate", status)?;
        let graph = RawGraph::from_ptr(self.given("hipGraphCreate", graph)?);
        // SAFETY: the graph was made above, and nobody else has it.
        let number = unsafe { self.number_of_an_empty_node(graph) };
        // SAFETY: as above; the node goes with it.
        let destroyed = unsafe { self.graph_destroy(graph) };
        let number = match (number, destroyed) {
            (Err(error), Err(then)) => return Err(and_then(error, &then)),
            (number, destroyed) => destroyed.and(number)?,
        };
        // Whoever else asked meanwhile was told the same.
        Ok(*self.node_numbers_known().get_or_init(|| NodeNumbers::by_empty(number)))
    }

    /// # Safety
    ///
    /// The graph is alive, and nobody else's.
    unsafe fn number_of_an_empty_node(&self, graph: RawGraph) -> Result<hipGraphNodeType, CallError> {
        let add = self.had("hipGraphAddEmptyNode", self.symbols().hipGraphAddEmptyNode)?;
        let mut node = ptr::null_mut();
        // SAFETY: `node` is a handle's room, the graph alive; it comes after none.
        let status = unsafe { add(&raw mut node, graph.as_ptr(), ptr::null(), 0) };
        self.check("hipGraphAddEmptyNode", status)?;
        let node = RawNode::from_ptr(self.given("hipGraphAddEmptyNode", node)?);
        // SAFETY: the node is of a graph that is there.
        unsafe { self.node_number(node) }
    }

    /// # Safety
    ///
    /// The node is of a graph that is there.
    unsafe fn node_number(&self, node: RawNode) -> Result<hipGraphNodeType, CallError> {
        let ask = self.had("hipGraphNodeGetType", self.symbols().hipGraphNodeGetType)?;
        let mut number = 0;
        // SAFETY: the node is of a graph that is there, and `number` a number's room.
        let status = unsafe { ask(node.as_ptr(), &raw mut number) };
        self.check("hipGraphNodeGetType", status).map(|()| number)
    }
}

/// What it writes about a graph that it refuses, behind what it says anyway.
fn with_log(error: CallError, log: &[u8]) -> CallError {
    let log = CStr::from_bytes_until_nul(log).unwrap_or_default().to_string_lossy();
    let log = log.trim();
    if log.is_empty() {
        return error;
    }
    CallError { text: format!("{}: {log}", error.text), ..error }
}

// SAFETY: each method is the call of that meaning by AMD's header.
unsafe impl GraphDriver for Hip {
    const UPDATE_IS_WHOLE: bool = false;

    unsafe fn instantiate_told(&self, graph: RawGraph) -> Result<RawExec, Refused> {
        let call = "hipGraphInstantiate";
        let instantiate =
            self.had(call, self.symbols().hipGraphInstantiate).map_err(Refused::without_node)?;
        // What is made is destroyed.
        self.had("hipGraphExecDestroy", self.symbols().hipGraphExecDestroy).map_err(Refused::without_node)?;
        let (mut raw, mut node, mut log) = (ptr::null_mut(), ptr::null_mut(), [0_u8; LOG_BYTES]);
        let room = log.as_mut_ptr().cast::<c_char>();
        // One byte is left for the zero at the end, should the library fill its room.
        let room_bytes = log.len() - 1;
        // SAFETY: a device is current, the graph alive; the others are rooms of what they are, the last of so many bytes.
        let status = unsafe { instantiate(&raw mut raw, graph.as_ptr(), &raw mut node, room, room_bytes) };
        // Where it failed, what it wrote to `raw` is nothing: some releases leave there what they have freed.
        if let Err(error) = self.check(call, status) {
            let why = if status == NOT_SUPPORTED { "graphs cannot have what it does" } else { NO_REASON };
            return Err(Refused::of(with_log(error, &log), node, why));
        }
        self.given(call, raw).map(RawExec::from_ptr).map_err(Refused::without_node)
    }

    unsafe fn nodes(&self, graph: RawGraph) -> Result<Vec<RawNode>, CallError> {
        let Some(ask) = self.symbols().hipGraphGetNodes.filter(|_| self.caps().contains(Caps::GRAPH_NODES))
        else {
            return Ok(Vec::new());
        };
        listed(|room, count| {
            // SAFETY: a device is current, the graph alive, and there is room for so many.
            self.check("hipGraphGetNodes", unsafe { ask(graph.as_ptr(), room, count) })
        })
    }

    unsafe fn nodes_before(&self, node: RawNode) -> Result<Vec<RawNode>, CallError> {
        let call = "hipGraphNodeGetDependencies";
        let ask = self.had(call, self.symbols().hipGraphNodeGetDependencies)?;
        listed(|room, count| {
            // SAFETY: a device is current, the node of a graph that is there, and there is room for so many.
            self.check(call, unsafe { ask(node.as_ptr(), room, count) })
        })
    }

    unsafe fn node_kind(&self, node: RawNode) -> Result<NodeKind, CallError> {
        // SAFETY: a device is current, says the caller.
        let numbers = unsafe { self.node_numbers() }?;
        // SAFETY: the node is of a graph that is there, says the caller.
        unsafe { self.node_number(node) }.map(|number| numbers.kind(number))
    }

    unsafe fn kernel_name(&self, node: RawNode) -> Option<String> {
        let symbols = self.symbols();
        let ask = symbols.hipGraphKernelNodeGetParams?;
        let (name_of, name_of_listed) = (symbols.hipKernelNameRef?, symbols.hipKernelNameRefByPtr?);
        let mut launch = no_launch();
        // SAFETY: a device is current, the node one of a kernel, and `launch` the room of what it launches.
        let status = unsafe { ask(node.as_ptr(), &raw mut launch) };
        if self.check("hipGraphKernelNodeGetParams", status).is_err() || launch.function.is_null() {
            return None;
        }
        // SAFETY: it looks any address up in the library's list of the program's kernels, for the current device.
        let listed = unsafe { name_of_listed(launch.function, ptr::null_mut()) };
        let name = if listed.is_null() {
            // SAFETY: what is launched and is not in that list is a function of a module, which is loaded as long as the node is there.
            unsafe { name_of(launch.function) }
        } else {
            listed
        };
        if name.is_null() {
            return None;
        }
        // SAFETY: it is a text of the library's own, ended by a zero, which stays as long as the module.
        Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// Refused where the library tells no nodes: nobody has compared them then.
    unsafe fn update(&self, exec: RawExec, graph: RawGraph) -> Result<(), Refused> {
        let call = "hipGraphExecUpdate";
        let update = self.had(call, self.symbols().hipGraphExecUpdate).map_err(Refused::without_node)?;
        if !self.caps().contains(Caps::GRAPH_NODES) {
            return Err(Refused::without_node(self.absent("hipGraphGetNodes")));
        }
        let (mut node, mut result) = (ptr::null_mut(), 0);
        // SAFETY: a device is current, both graphs are alive and no other thread's for the length of the call, and both others are rooms of what they are.
        let status = unsafe { update(exec.as_ptr(), graph.as_ptr(), &raw mut node, &raw mut result) };
        self.check(call, status).map_err(|error| match status {
            GRAPH_EXEC_UPDATE_FAILURE => Refused::of(error, node, update_text(result)),
            _ => Refused::without_node(error),
        })
    }

    /// An older library may refuse functions of modules here, and says so.
    unsafe fn set_kernel(
        &self,
        exec: RawExec,
        node: RawNode,
        kernel: RawKernel,
        shape: &LaunchShape,
        values: &mut [*mut c_void],
    ) -> Result<(), CallError> {
        let call = "hipGraphExecKernelNodeSetParams";
        let set = self.had(call, self.symbols().hipGraphExecKernelNodeSetParams)?;
        let launch = hipKernelNodeParams {
            function: kernel.as_ptr(),
            grid: shape.blocks,
            block: shape.threads,
            shared_bytes: shape.shared_bytes,
            parameters: values.as_mut_ptr(),
            ..no_launch()
        };
        // SAFETY: a device is current, the graph alive and no other thread's for the length of the call, the node one of what it was made of, which is there; the kernel's module is loaded,
        // its parameters as many as it has, and read before the call returns.
        let status = unsafe { set(exec.as_ptr(), node.as_ptr(), &raw const launch) };
        self.check(call, status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_nodes_are_the_same_however_they_are_numbered() {
        let kinds = [
            (0, NodeKind::Kernel),
            (1, NodeKind::Copy),
            (2, NodeKind::Fill),
            (3, NodeKind::Host),
            (4, NodeKind::Graph),
            (5, NodeKind::Empty),
            (6, NodeKind::Other),
            (7, NodeKind::Other),
        ];
        let (zero, one) = (NodeNumbers::by_empty(5), NodeNumbers::by_empty(6));
        assert_eq!((zero, one), (NodeNumbers::FromZero, NodeNumbers::FromOne));
        for (number, kind) in kinds {
            assert_eq!((zero.kind(number), one.kind(number + 1)), (kind, kind), "{number}");
        }
        // Copies in one dimension, from and to names; what is for events of others, and memory.
        assert_eq!([9, 10, 11].map(|number| one.kind(number)), [NodeKind::Copy; 3]);
        assert_eq!([12, 13].map(|number| zero.kind(number)), [NodeKind::Copy; 2]);
        assert_eq!([8, 9, 10, 11].map(|number| zero.kind(number)), [NodeKind::Other; 4]);
        assert_eq!(
            (zero.kind(14), one.kind(0), one.kind(12)),
            (NodeKind::Words, NodeKind::Other, NodeKind::Other)
        );
        // Where that is not known, no number means a kernel.
        let unknown = NodeNumbers::by_empty(7);
        assert!((0..20).all(|number| unknown.kind(number) == NodeKind::Other));
    }

    #[test]
    fn what_the_library_writes_about_a_graph_is_told() {
        let error = || CallError {
            backend: "hip",
            call: "hipGraphInstantiate",
            status: 1,
            kind: wakeline_mapped::error::Kind::Refused,
            name: "hipErrorInvalidValue".to_owned(),
            text: "invalid argument".to_owned(),
        };
        assert_eq!(with_log(error(), &[0; LOG_BYTES]), error());
        // Neither a zero at its end nor UTF-8 is there.
        assert_eq!(with_log(error(), &[b'x'; 4]), error());
        assert_eq!(with_log(error(), b" a cycle\n\0rest").text, "invalid argument: a cycle");
        assert!(with_log(error(), b"\xff\0").text.starts_with("invalid argument: "));
    }
}
