//! Streams: how they are made, asked and ended. What they do as time goes by is the engine's.

use core::ffi::{c_int, c_uint};
use std::collections::VecDeque;

use super::arg::{Out, StreamArg};
use super::context::PRIORITIES;
use super::handle::Kind;
use super::op::Op;
use super::state::State;
use super::{Answer, Stop, current};
use crate::Status;

const NON_BLOCKING: c_uint = 1;

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) context: u64,
    pub(super) sort: Sort,
    priority: c_int,
    id: u64,
    pub(super) queue: VecDeque<Queued>,
    /// How many operations it was given, and how many of them are over.
    pub(super) submitted: u64,
    pub(super) completed: u64,
    /// When the last of those ended.
    pub(super) ended_at: u64,
    /// Its handle is gone; it goes with its last operation.
    destroyed: bool,
}

/// What a stream has to do with the legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Legacy,
    PerThread,
    Blocking,
    NonBlocking,
}

/// A place in a stream's order: reached when so many of its operations are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) stream: u64,
    pub(super) number: u64,
}

#[derive(Debug)]
pub(super) struct Queued {
    pub(super) op: Op,
    pub(super) at: u64,
    /// What it waits for, beside its turn.
    pub(super) after: Vec<Point>,
    /// How long it takes, if that is known.
    pub(super) takes_ns: Option<u64>,
    pub(super) begun: bool,
    pub(super) end: Option<u64>,
}

impl Stream {
    pub(super) fn new(context: u64, sort: Sort, priority: c_int) -> Self {
        Self {
            context,
            sort,
            priority,
            id: 0,
            queue: VecDeque::new(),
            submitted: 0,
            completed: 0,
            ended_at: 0,
            destroyed: false,
        }
    }

    /// Whether it is the user's to destroy.
    pub(super) fn is_counted(&self) -> bool {
        !self.destroyed && matches!(self.sort, Sort::Blocking | Sort::NonBlocking)
    }

    /// Whether it waits for the legacy stream, and that for it.
    pub(super) fn is_blocking(&self) -> bool {
        matches!(self.sort, Sort::PerThread | Sort::Blocking)
    }

    /// Whether nothing of it is left to be kept.
    pub(super) fn is_over(&self) -> bool {
        self.destroyed && self.queue.is_empty()
    }
}

impl State {
    pub(super) fn make_stream(&mut self, stream: Stream) -> u64 {
        let handle = self.handles.give(Kind::Stream);
        self.streams_made += 1;
        self.streams.insert(handle, Stream { id: self.streams_made, ..stream });
        handle
    }

    pub(super) fn streams_of(&self, context: u64) -> impl Iterator<Item = (u64, &Stream)> {
        let all = self.streams.iter().map(|(handle, stream)| (*handle, stream));
        all.filter(move |(_, stream)| stream.context == context)
    }

    /// The stream that an argument means: its own, or a default stream of the current context. It is there, and well.
    pub(super) fn stream(&mut self, arg: StreamArg) -> Answer<u64> {
        let context = self.current()?;
        match arg {
            StreamArg(0) | StreamArg::LEGACY => {
                let context = self.contexts.get(&context).ok_or(Status::CONTEXT_IS_DESTROYED)?;
                Ok(context.legacy)
            }
            StreamArg::PER_THREAD => Ok(self.per_thread(context)),
            StreamArg(handle) => {
                let known = self.streams.get(&handle).filter(|stream| stream.is_counted());
                let Some(context) = known.map(|stream| stream.context) else {
                    return Err(self.unknown(Kind::Stream, handle).into());
                };
                self.well(context)?;
                Ok(handle)
            }
        }
    }

    /// The priority of a stream; 0 of one that is not there.
    pub(super) fn priority(&self, handle: u64) -> c_int {
        self.streams.get(&handle).map_or(0, |stream| stream.priority)
    }

    fn per_thread(&mut self, context: u64) -> u64 {
        let thread = current::thread();
        if let Some(made) = self.contexts.get(&context).and_then(|context| context.per_thread.get(&thread)) {
            return *made;
        }
        let made = self.make_stream(Stream::new(context, Sort::PerThread, 0));
        if let Some(context) = self.contexts.get_mut(&context) {
            context.per_thread.insert(thread, made);
        }
        made
    }

    /// From when on a stream's status says that all is done; `None` while that is open.
    pub(super) fn done_from(&self, handle: u64) -> Option<u64> {
        let Some(stream) = self.streams.get(&handle) else { return Some(0) };
        let context = self.contexts.get(&stream.context)?;
        if context.is_halted() || !stream.queue.is_empty() {
            return None;
        }
        if stream.completed == 0 {
            return Some(0);
        }
        Some(stream.ended_at.saturating_add(self.options.status_lag_ns))
    }

    /// The same of all streams of a context.
    pub(super) fn idle_from(&self, context: u64) -> Option<u64> {
        let mut each = self.streams_of(context).map(|(handle, _)| self.done_from(handle));
        each.try_fold(0, |latest: u64, from| Some(latest.max(from?)))
    }
}

pub(super) fn create(state: &mut State, out: Out<u64>, flags: c_uint) -> Answer {
    create_with_priority(state, out, flags, 0)
}

pub(super) fn create_with_priority(
    state: &mut State,
    out: Out<u64>,
    flags: c_uint,
    priority: c_int,
) -> Answer {
    out.needed()?;
    let context = state.current()?;
    let sort = match flags {
        0 => Sort::Blocking,
        NON_BLOCKING => Sort::NonBlocking,
        _ => return Err(Status::INVALID_VALUE.into()),
    };
    let (least, greatest) = PRIORITIES;
    let handle = state.make_stream(Stream::new(context, sort, priority.clamp(greatest, least)));
    out.set(handle)
}

pub(super) fn destroy(state: &mut State, arg: StreamArg) -> Answer {
    let handle = state.stream(arg)?;
    if !state.streams.get(&handle).is_some_and(Stream::is_counted) {
        return Err(Status::INVALID_HANDLE.into());
    }
    state.leave_capture(handle);
    let Some(stream) = state.streams.get_mut(&handle) else { return Ok(()) };
    stream.destroyed = true;
    if stream.is_over() {
        state.streams.remove(&handle);
    }
    Ok(())
}

/// As HIP does it: waits for what is enqueued, where that can still come.
pub(super) fn destroy_waiting(state: &mut State, arg: StreamArg) -> Answer {
    let handle = match arg {
        // Also where its device has failed.
        StreamArg(handle) if state.streams.get(&handle).is_some_and(Stream::is_counted) => handle,
        _ => return destroy(state, arg),
    };
    let context = state.streams.get(&handle).and_then(|stream| state.contexts.get(&stream.context));
    let waits = context.is_some_and(|context| !context.is_halted()) && state.capture_of(handle).is_none();
    match state.done_from(handle) {
        Some(from) if waits && from > state.now => return Err(Stop::Again(from)),
        None if waits => return Err(Stop::Again(u64::MAX)),
        _ => {}
    }
    state.leave_capture(handle);
    let Some(stream) = state.streams.get_mut(&handle) else { return Ok(()) };
    stream.destroyed = true;
    if stream.is_over() {
        state.streams.remove(&handle);
    }
    Ok(())
}

pub(super) fn query(state: &mut State, arg: StreamArg) -> Answer {
    let handle = state.stream(arg)?;
    state.forbid_capturing(handle)?;
    state.forbid_unsafe()?;
    match state.done_from(handle) {
        Some(from) if from <= state.now => Ok(()),
        _ => Err(Status::NOT_READY.into()),
    }
}

pub(super) fn synchronize(state: &mut State, arg: StreamArg) -> Answer {
    let handle = state.stream(arg)?;
    state.forbid_capturing(handle)?;
    state.forbid_unsafe()?;
    match state.done_from(handle) {
        Some(from) if from <= state.now => Ok(()),
        from => Err(Stop::Again(from.unwrap_or(u64::MAX))),
    }
}

pub(super) fn get_priority(state: &mut State, arg: StreamArg, out: Out<c_int>) -> Answer {
    let handle = state.stream(arg)?;
    out.set(state.streams.get(&handle).map_or(0, |stream| stream.priority))
}

pub(super) fn get_flags(state: &mut State, arg: StreamArg, out: Out<c_uint>) -> Answer {
    let handle = state.stream(arg)?;
    let non_blocking = state.streams.get(&handle).is_some_and(|stream| stream.sort == Sort::NonBlocking);
    out.set(if non_blocking { NON_BLOCKING } else { 0 })
}

pub(super) fn get_context(state: &mut State, arg: StreamArg, out: Out<u64>) -> Answer {
    let handle = state.stream(arg)?;
    out.set(state.streams.get(&handle).map_or(0, |stream| stream.context))
}

/// A stream of a green context would tell that; there are none here.
pub(super) fn get_context_v2(state: &mut State, arg: StreamArg, out: Out<u64>, green: Out<u64>) -> Answer {
    green.set_if_wanted(0);
    get_context(state, arg, out)
}

pub(super) fn get_id(state: &mut State, arg: StreamArg, out: Out<u64>) -> Answer {
    let handle = state.stream(arg)?;
    out.set(state.streams.get(&handle).map_or(0, |stream| stream.id))
}

pub(super) fn get_device(state: &mut State, arg: StreamArg, out: Out<c_int>) -> Answer {
    let handle = state.stream(arg)?;
    let context = state.streams.get(&handle).and_then(|stream| state.contexts.get(&stream.context));
    out.set(context.ok_or(Status::CONTEXT_IS_DESTROYED)?.device)
}
