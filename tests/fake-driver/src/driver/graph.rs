//! Graphs: what was captured, what can be launched of it, and the launch, which replays it in a stream.

use super::Answer;
use super::arg::{Out, StreamArg};
use super::handle::Kind;
use super::op::Op;
use super::state::State;

/// A captured row of operations, or one that can be launched.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    pub(super) context: u64,
    pub(super) nodes: Vec<Op>,
}

pub(super) fn instantiate(state: &mut State, out: Out<u64>, graph: u64, _flags: u64) -> Answer {
    out.needed()?;
    let context = state.current()?;
    let Some(graph) = state.graphs.get(&graph).cloned() else {
        return Err(state.unknown(Kind::Graph, graph).into());
    };
    let handle = state.handles.give(Kind::Exec);
    state.execs.insert(handle, Graph { context, ..graph });
    out.set(handle)
}

/// Launched into a capturing stream it becomes part of that graph.
pub(super) fn launch(state: &mut State, exec: u64, stream: StreamArg) -> Answer {
    let stream = state.stream(stream)?;
    let Some(mut nodes) = state.execs.get(&exec).map(|exec| exec.nodes.clone()) else {
        return Err(state.unknown(Kind::Exec, exec).into());
    };
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
