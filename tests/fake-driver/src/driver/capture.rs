//! Captures: what is put into a capturing stream becomes a graph, and what may not be done meanwhile.
//!
//! ```text
//!   none ── begin ──► active ── end ──► none, with a graph
//!                       │
//!                       └─ a call that is prohibited ──► invalidated ── end ──► none, 901 and no graph
//! ```
//!
//! A graph is launched as one row, in the order of the calls that were captured; what each comes after is known besides.

use core::ffi::{c_int, c_uint};
use std::collections::{BTreeMap, BTreeSet};

use super::arg::{Out, StreamArg};
use super::graph::{Graph, Node};
use super::handle::Kind;
use super::op::Op;
use super::state::State;
use super::stream::Sort;
use super::{Answer, current};
use crate::Status;

/// The modes of captures and of threads: `CUstreamCaptureMode`.
const GLOBAL: c_uint = 0;
const THREAD_LOCAL: c_uint = 1;
const RELAXED: c_uint = 2;

/// What a stream is asked for: `CUstreamCaptureStatus`.
const NONE: c_int = 0;
const ACTIVE: c_int = 1;
const INVALIDATED: c_int = 2;

#[derive(Debug)]
pub(super) struct Capture {
    mode: c_uint,
    thread: u64,
    /// The stream it began in, and all that joined.
    pub(super) origin: u64,
    /// With the nodes that come last in each, by their places.
    streams: BTreeMap<u64, Vec<usize>>,
    /// Streams whose work the first has not waited for.
    unjoined: BTreeSet<u64>,
    graph: u64,
    pub(super) nodes: Vec<Node>,
    is_invalidated: bool,
}

impl State {
    pub(super) fn capture_of(&self, stream: u64) -> Option<u64> {
        self.captures.iter().find(|(_, capture)| capture.streams.contains_key(&stream)).map(|(id, _)| *id)
    }

    fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.is_invalidated = true;
        }
    }

    /// Makes an operation of a capturing stream part of its graph.
    pub(super) fn capture(&mut self, id: u64, stream: u64, ops: Vec<Op>) -> Answer {
        let Some(capture) = self.captures.get_mut(&id) else { return Ok(()) };
        if capture.is_invalidated {
            return Err(Status::STREAM_CAPTURE_INVALIDATED.into());
        }
        if ops.iter().any(|op| matches!(op, Op::Free { .. })) {
            capture.is_invalidated = true;
            return Err(Status::STREAM_CAPTURE_UNSUPPORTED.into());
        }
        let handles: Vec<u64> = ops.iter().map(|_| self.handles.give(Kind::Node)).collect();
        let Some(capture) = self.captures.get_mut(&id) else { return Ok(()) };
        for (handle, op) in handles.into_iter().zip(ops) {
            let last = capture.streams.entry(stream).or_default();
            let after = core::mem::replace(last, vec![capture.nodes.len()]);
            capture.nodes.push(Node { handle, op, after, launch: None });
        }
        capture.touch(stream);
        Ok(())
    }

    /// Stops a call that a capture may not miss, and every capture that it would be missed by.
    pub(super) fn forbid_unsafe(&mut self) -> Answer {
        let (thread, mode) = (current::thread(), current::capture_mode());
        let is_missed_by = |capture: &Capture| match mode {
            RELAXED => false,
            _ if capture.thread == thread => capture.mode != RELAXED,
            THREAD_LOCAL => false,
            _ => capture.mode == GLOBAL,
        };
        let mut status = None;
        for capture in self.captures.values_mut().filter(|capture| is_missed_by(capture)) {
            capture.is_invalidated = true;
            status = Some(Status::STREAM_CAPTURE_UNSUPPORTED);
        }
        status.map_or(Ok(()), |status| Err(status.into()))
    }

    /// Stops a call that asks about a stream while it captures, and the capture with it.
    pub(super) fn forbid_capturing(&mut self, stream: u64) -> Answer {
        self.forbid_implied(stream)?;
        let Some(id) = self.capture_of(stream) else { return Ok(()) };
        let was = self.captures.get(&id).is_some_and(|capture| capture.is_invalidated);
        self.invalidate(id);
        Err(if was { Status::STREAM_CAPTURE_INVALIDATED } else { Status::STREAM_CAPTURE_UNSUPPORTED }.into())
    }

    /// Stops a use of the legacy stream while a stream captures that it waits for, and that capture.
    pub(super) fn forbid_implied(&mut self, stream: u64) -> Answer {
        let implied = self.implied_captures(stream);
        for id in &implied {
            self.invalidate(*id);
        }
        if implied.is_empty() { Ok(()) } else { Err(Status::STREAM_CAPTURE_IMPLICIT.into()) }
    }

    fn implied_captures(&self, stream: u64) -> Vec<u64> {
        let Some(legacy) = self.streams.get(&stream).filter(|stream| stream.sort == Sort::Legacy) else {
            return Vec::new();
        };
        let blocking = self.streams_of(legacy.context).filter(|(_, stream)| stream.is_blocking());
        blocking.filter_map(|(stream, _)| self.capture_of(stream)).collect()
    }

    /// Stops a question about an event that was recorded in a capture, and that capture.
    pub(super) fn forbid_captured(&mut self, event: u64) -> Answer {
        let Some((id, ..)) = self.event(event)?.captured else { return Ok(()) };
        self.invalidate(id);
        Err(Status::CAPTURED_EVENT.into())
    }

    /// A stream waits for an event, where at least one of them is in a capture. Says whether that was so.
    pub(super) fn join(&mut self, stream: u64, event: u64) -> Answer<bool> {
        let (captured, recorded) = {
            let event = self.event(event)?;
            (event.captured.clone(), event.point.is_some())
        };
        let own = self.capture_of(stream);
        match (captured, own) {
            (None, None) => Ok(false),
            // Waiting for what never was recorded is nothing.
            (None, Some(_)) if !recorded => Ok(true),
            (None, Some(id)) => {
                self.invalidate(id);
                Err(Status::STREAM_CAPTURE_ISOLATION.into())
            }
            (Some((id, ..)), _) if !self.captures.contains_key(&id) => {
                if let Some(own) = own {
                    self.invalidate(own);
                }
                Err(Status::STREAM_CAPTURE_ISOLATION.into())
            }
            (Some((id, ..)), Some(own)) if id != own => {
                self.invalidate(id);
                self.invalidate(own);
                Err(Status::STREAM_CAPTURE_MERGE.into())
            }
            (Some((id, from, after)), _) => {
                if self.streams.get(&stream).is_some_and(|stream| stream.sort == Sort::Legacy) {
                    self.invalidate(id);
                    return Err(Status::STREAM_CAPTURE_UNSUPPORTED.into());
                }
                let Some(capture) = self.captures.get_mut(&id) else { return Ok(true) };
                if capture.is_invalidated {
                    return Err(Status::STREAM_CAPTURE_INVALIDATED.into());
                }
                let last = capture.streams.entry(stream).or_default();
                last.extend(after);
                last.sort_unstable();
                last.dedup();
                if from != stream {
                    capture.unjoined.remove(&from);
                }
                capture.touch(stream);
                Ok(true)
            }
        }
    }

    /// A stream goes: what it captures can be nothing any more.
    pub(super) fn leave_capture(&mut self, stream: u64) {
        if let Some(capture) = self.capture_of(stream).and_then(|id| self.captures.get_mut(&id)) {
            capture.is_invalidated = true;
            capture.streams.remove(&stream);
        }
    }
}

impl Capture {
    /// What an event that is recorded in the stream stands for.
    pub(super) fn last(&self, stream: u64) -> Vec<usize> {
        self.streams.get(&stream).cloned().unwrap_or_default()
    }

    fn touch(&mut self, stream: u64) {
        if stream != self.origin {
            self.unjoined.insert(stream);
        }
    }

    fn status(&self) -> c_int {
        if self.is_invalidated { INVALIDATED } else { ACTIVE }
    }
}

pub(super) fn begin(state: &mut State, arg: StreamArg, mode: c_uint) -> Answer {
    let stream = state.stream(arg)?;
    if mode > RELAXED {
        return Err(Status::INVALID_VALUE.into());
    }
    if state.streams.get(&stream).is_some_and(|stream| stream.sort == Sort::Legacy) {
        return Err(Status::STREAM_CAPTURE_UNSUPPORTED.into());
    }
    if state.capture_of(stream).is_some() {
        return Err(Status::ILLEGAL_STATE.into());
    }
    state.captures_made += 1;
    let capture = Capture {
        mode,
        thread: current::thread(),
        origin: stream,
        streams: BTreeMap::from([(stream, Vec::new())]),
        unjoined: BTreeSet::new(),
        graph: state.handles.give(Kind::Graph),
        nodes: Vec::new(),
        is_invalidated: false,
    };
    state.captures.insert(state.captures_made, capture);
    Ok(())
}

pub(super) fn end(state: &mut State, arg: StreamArg, out: Out<u64>) -> Answer {
    out.set(0)?;
    let stream = state.stream(arg)?;
    let id = state.capture_of(stream).ok_or(Status::ILLEGAL_STATE)?;
    let capture = state.captures.get(&id).ok_or(Status::ILLEGAL_STATE)?;
    if capture.mode != RELAXED && capture.thread != current::thread() {
        return Err(Status::STREAM_CAPTURE_WRONG_THREAD.into());
    }
    if capture.origin != stream {
        state.invalidate(id);
        return Err(Status::STREAM_CAPTURE_UNMATCHED.into());
    }
    let context = state.streams.get(&stream).map_or(0, |stream| stream.context);
    let Some(capture) = state.captures.remove(&id) else { return Ok(()) };
    if capture.is_invalidated {
        return Err(Status::STREAM_CAPTURE_INVALIDATED.into());
    }
    if !capture.unjoined.is_empty() {
        return Err(Status::STREAM_CAPTURE_UNJOINED.into());
    }
    state.graphs.insert(capture.graph, Graph { context, nodes: capture.nodes });
    out.set(capture.graph)
}

/// Of the legacy stream nothing can be said while one captures that it waits for; asking breaks nothing.
fn captured(state: &mut State, arg: StreamArg) -> Answer<Option<u64>> {
    let stream = state.stream(arg)?;
    if !state.implied_captures(stream).is_empty() {
        return Err(Status::STREAM_CAPTURE_IMPLICIT.into());
    }
    Ok(state.capture_of(stream))
}

pub(super) fn is_capturing(state: &mut State, arg: StreamArg, out: Out<c_int>) -> Answer {
    out.needed()?;
    let capture = captured(state, arg)?.and_then(|id| state.captures.get(&id));
    out.set(capture.map_or(NONE, Capture::status))
}

pub(super) fn info(
    state: &mut State,
    arg: StreamArg,
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<u64>,
    dependencies: Out<usize>,
    count: Out<usize>,
) -> Answer {
    info_v3(state, arg, status, id, graph, dependencies, Out::none(), count)
}

/// The nodes that the next one would depend on are not told.
#[allow(clippy::too_many_arguments)] // The call has as many.
pub(super) fn info_v3(
    state: &mut State,
    arg: StreamArg,
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<u64>,
    dependencies: Out<usize>,
    edges: Out<usize>,
    count: Out<usize>,
) -> Answer {
    status.needed()?;
    let number = captured(state, arg)?;
    let capture = number.and_then(|id| state.captures.get(&id));
    if let (Some(number), Some(capture)) = (number, capture) {
        id.set_if_wanted(number);
        graph.set_if_wanted(capture.graph);
        dependencies.set_if_wanted(0);
        edges.set_if_wanted(0);
        count.set_if_wanted(0);
    }
    status.set(capture.map_or(NONE, Capture::status))
}

/// The new mode goes in, the old one comes out.
pub(super) fn exchange_mode(_: &mut State, mode: Out<c_uint>) -> Answer {
    let new = mode.get()?;
    if new > RELAXED {
        return Err(Status::INVALID_VALUE.into());
    }
    let old = current::capture_mode();
    current::set_capture_mode(new);
    mode.set(old)
}
