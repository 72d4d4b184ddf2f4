//! Events: points of streams that can be asked for, waited for and timed.

use core::ffi::c_uint;

use super::arg::{Out, StreamArg};
use super::handle::Kind;
use super::op::Op;
use super::state::State;
use super::stream::Point;
use super::{Answer, Stop};
use crate::Status;

const DISABLE_TIMING: c_uint = 2;
/// Blocking sync, no timing, interprocess.
const FLAGS: c_uint = 7;

const NS_PER_MS: f64 = 1e6;

#[derive(Debug)]
pub(super) struct Event {
    pub(super) context: u64,
    flags: c_uint,
    /// Where it was recorded last.
    pub(super) point: Option<Point>,
    /// The capture in which it was, instead, the stream, and the nodes that it stands for.
    pub(super) captured: Option<(u64, u64, Vec<usize>)>,
    /// How often it was.
    records: u64,
    /// When the last of them was reached.
    reached_at: Option<u64>,
}

impl State {
    /// An event that is there, and whose context is well.
    pub(super) fn event(&mut self, handle: u64) -> Answer<&mut Event> {
        let Some(context) = self.events.get(&handle).map(|event| event.context) else {
            if handle == 0 {
                return Err(Status::INVALID_HANDLE.into());
            }
            return Err(self.unknown(Kind::Event, handle).into());
        };
        self.well(context)?;
        self.events.get_mut(&handle).ok_or(Status::INVALID_HANDLE.into())
    }

    /// Whether the stream has come so far. One that is gone has.
    pub(super) fn is_reached(&self, point: Point) -> bool {
        self.streams.get(&point.stream).is_none_or(|stream| stream.completed >= point.number)
    }

    /// Whether it is of a context that has told of its fault, and who waits for it is of another.
    pub(super) fn is_lost(&self, point: Point, waiter: u64) -> bool {
        let Some(stream) = self.streams.get(&point.stream).filter(|stream| stream.context != waiter) else {
            return false;
        };
        self.contexts.get(&stream.context).is_some_and(|context| context.failure(self.now).is_some())
    }

    pub(super) fn recorded(&mut self, event: u64, record: u64, at: u64) {
        if let Some(event) = self.events.get_mut(&event).filter(|event| event.records == record) {
            event.reached_at = Some(at);
        }
    }
}

pub(super) fn create(state: &mut State, out: Out<u64>, flags: c_uint) -> Answer {
    out.needed()?;
    let context = state.current()?;
    if flags & !FLAGS != 0 {
        return Err(Status::INVALID_VALUE.into());
    }
    let handle = state.handles.give(Kind::Event);
    state
        .events
        .insert(handle, Event { context, flags, point: None, captured: None, records: 0, reached_at: None });
    out.set(handle)
}

pub(super) fn record(state: &mut State, event: u64, stream: StreamArg) -> Answer {
    let stream = state.stream(stream)?;
    let context = state.event(event)?.context;
    if state.streams.get(&stream).is_none_or(|stream| stream.context != context) {
        return Err(Status::INVALID_HANDLE.into());
    }
    if let Some(id) = state.capture_of(stream) {
        state.capture(id, stream, Vec::new())?;
        let last = state.captures.get(&id).map(|capture| capture.last(stream)).unwrap_or_default();
        let event = state.event(event)?;
        event.captured = Some((id, stream, last));
        event.point = None;
        event.reached_at = None;
        return Ok(());
    }
    let record = state.event(event)?.records + 1;
    let point = state.enqueue(stream, Op::Record { event, record })?;
    let event = state.event(event)?;
    event.point = point;
    event.captured = None;
    event.records = record;
    event.reached_at = None;
    Ok(())
}

pub(super) fn query(state: &mut State, event: u64) -> Answer {
    state.current()?;
    state.forbid_captured(event)?;
    state.forbid_unsafe()?;
    let point = state.event(event)?.point;
    let reached = point.is_none_or(|point| state.is_reached(point));
    if reached { Ok(()) } else { Err(Status::NOT_READY.into()) }
}

pub(super) fn synchronize(state: &mut State, event: u64) -> Answer {
    match query(state, event) {
        Err(Stop::With(Status::NOT_READY)) => Err(Stop::Again(u64::MAX)),
        answer => answer,
    }
}

pub(super) fn destroy(state: &mut State, event: u64) -> Answer {
    state.current()?;
    state.event(event)?;
    state.events.remove(&event);
    Ok(())
}

#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)] // A float is what the call gives.
pub(super) fn elapsed(state: &mut State, out: Out<f32>, start: u64, end: u64) -> Answer {
    out.needed()?;
    state.current()?;
    let mut times = [0; 2];
    let mut contexts = [0; 2];
    for ((event, time), context) in [start, end].into_iter().zip(&mut times).zip(&mut contexts) {
        state.forbid_captured(event)?;
        let point = state.event(event)?.point.ok_or(Status::INVALID_HANDLE)?;
        if !state.is_reached(point) {
            return Err(Status::NOT_READY.into());
        }
        let event = state.event(event)?;
        *time =
            event.reached_at.filter(|_| event.flags & DISABLE_TIMING == 0).ok_or(Status::INVALID_HANDLE)?;
        *context = event.context;
    }
    if contexts[0] != contexts[1] {
        return Err(Status::INVALID_HANDLE.into());
    }
    let ns = times[1].cast_signed().wrapping_sub(times[0].cast_signed());
    out.set((ns as f64 / NS_PER_MS) as f32)
}
