//! Contexts: the primary one of each device, counted by its retains, and those that were created.

use core::ffi::{c_int, c_uint};
use std::collections::BTreeMap;

use super::arg::{List, Out};
use super::device::checked;
use super::handle::Kind;
use super::state::State;
use super::stream::{Sort, Stream};
use super::{Answer, Stop, current};
use crate::Status;

/// The least and the greatest priority of a stream.
pub(super) const PRIORITIES: (c_int, c_int) = (0, -5);

/// The flags a context may be made with.
const FLAGS: c_uint = 0xff;

#[derive(Debug)]
pub(super) struct Context {
    pub(super) device: c_int,
    pub(super) is_primary: bool,
    /// How many retains no release has answered; of a primary context.
    pub(super) retains: u64,
    flags: c_uint,
    id: u64,
    /// Its default streams.
    pub(super) legacy: u64,
    pub(super) per_thread: BTreeMap<u64, u64>,
    halt: Option<Halt>,
}

/// A fault has stopped everything in the context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Halt {
    pub(super) status: Status,
    /// From when on calls say so.
    pub(super) told_at: u64,
}

impl Halt {
    fn told(self, now: u64) -> Option<Status> {
        (self.told_at <= now).then_some(self.status)
    }
}

impl Context {
    /// What calls in it fail with by now.
    pub(super) fn failure(&self, now: u64) -> Option<Status> {
        self.halt.and_then(|halt| halt.told(now))
    }

    pub(super) fn is_halted(&self) -> bool {
        self.halt.is_some()
    }

    /// When its failure will be told, if it waits for that.
    pub(super) fn tells_at(&self) -> Option<u64> {
        self.halt.map(|halt| halt.told_at)
    }

    /// The first fault counts.
    pub(super) fn halt(&mut self, halt: Halt) {
        self.halt.get_or_insert(halt);
    }
}

impl State {
    pub(super) fn make_context(&mut self, device: c_int, flags: c_uint, is_primary: bool) -> u64 {
        let handle = self.handles.give(Kind::Context);
        let legacy = self.make_stream(Stream::new(handle, Sort::Legacy, 0));
        self.contexts_made += 1;
        let context = Context {
            device,
            is_primary,
            retains: 0,
            flags,
            id: self.contexts_made,
            legacy,
            per_thread: BTreeMap::new(),
            halt: None,
        };
        self.contexts.insert(handle, context);
        handle
    }

    /// Ends a context with all that is in it, done or not.
    pub(super) fn end_context(&mut self, handle: u64) {
        self.contexts.remove(&handle);
        self.reached.retain(|(own, other)| *own != handle && *other != handle);
        let ended = |stream: u64| self.streams.get(&stream).is_some_and(|stream| stream.context == handle);
        self.captures.retain(|_, capture| !ended(capture.origin));
        self.modules.retain(|_, module| module.context != handle);
        self.functions.retain(|_, function| self.modules.contains_key(&function.module));
        self.graphs.retain(|_, graph| graph.context != handle);
        self.execs.retain(|_, exec| exec.context != handle);
        let streams: Vec<u64> = self.streams_of(handle).map(|(stream, _)| stream).collect();
        for stream in streams {
            self.streams.remove(&stream);
            self.busy.remove(&stream);
            self.buried.insert(stream);
        }
        let events: Vec<u64> = self
            .events
            .iter()
            .filter(|(_, event)| event.context == handle)
            .map(|(event, _)| *event)
            .collect();
        for event in events {
            self.events.remove(&event);
            self.buried.insert(event);
        }
        let streams = &self.streams;
        self.hosted.retain(|hosted| streams.contains_key(&hosted.stream));
        self.free_pages_of(handle);
        self.stirred = true;
    }

    /// That contexts can still be made.
    pub(super) fn process_is_well(&self) -> Answer {
        self.halt.and_then(|halt| halt.told(self.now)).map_or(Ok(()), |status| Err(status.into()))
    }

    pub(super) fn primary(&self, device: c_int) -> Option<u64> {
        self.primaries.get(&device).copied()
    }

    /// A context that is there.
    fn known(&mut self, context: u64) -> Answer<u64> {
        if self.contexts.contains_key(&context) {
            return Ok(context);
        }
        Err(self.unknown(Kind::Context, context).into())
    }

    /// The named context, or the current one for none.
    fn named_or_current(&mut self, context: u64) -> Answer<u64> {
        if context == 0 { self.current() } else { self.known(context) }
    }
}

pub(super) fn primary_retain(state: &mut State, out: Out<u64>, device: c_int) -> Answer {
    out.needed()?;
    checked(state, device)?;
    state.process_is_well()?;
    let handle = state.primary(device).unwrap_or_else(|| {
        let handle = state.make_context(device, 0, true);
        state.primaries.insert(device, handle);
        handle
    });
    if let Some(context) = state.contexts.get_mut(&handle) {
        context.retains += 1;
    }
    out.set(handle)
}

pub(super) fn primary_release(state: &mut State, device: c_int) -> Answer {
    checked(state, device)?;
    let Some(handle) = state.primary(device) else {
        state.violation(&format!("the primary context of device {device} is not retained"));
        return Err(Status::INVALID_CONTEXT.into());
    };
    let Some(context) = state.contexts.get_mut(&handle) else { return Ok(()) };
    context.retains -= 1;
    if context.retains == 0 {
        state.primaries.remove(&device);
        state.end_context(handle);
    }
    Ok(())
}

pub(super) fn primary_state(
    state: &mut State,
    device: c_int,
    flags: Out<c_uint>,
    active: Out<c_int>,
) -> Answer {
    checked(state, device)?;
    let context = state.primary(device).and_then(|handle| state.contexts.get(&handle));
    flags.set(context.map_or(0, |context| context.flags))?;
    active.set(c_int::from(context.is_some()))
}

pub(super) fn create(state: &mut State, out: Out<u64>, flags: c_uint, device: c_int) -> Answer {
    out.needed()?;
    checked(state, device)?;
    state.process_is_well()?;
    if flags & !FLAGS != 0 {
        return Err(Status::INVALID_VALUE.into());
    }
    let handle = state.make_context(device, flags, false);
    current::push(handle);
    out.set(handle)
}

/// With execution affinities, of which the fake knows none.
pub(super) fn create_v3(
    state: &mut State,
    out: Out<u64>,
    affinities: List<u8>,
    count: c_int,
    flags: c_uint,
    device: c_int,
) -> Answer {
    if !affinities.is_null() || count != 0 {
        return Err(Status::NOT_SUPPORTED.into());
    }
    create(state, out, flags, device)
}

/// With a structure of parameters, of which the fake knows none.
pub(super) fn create_v4(
    state: &mut State,
    out: Out<u64>,
    params: List<u8>,
    flags: c_uint,
    device: c_int,
) -> Answer {
    create_v3(state, out, params, 0, flags, device)
}

pub(super) fn destroy(state: &mut State, context: u64) -> Answer {
    let handle = state.known(context)?;
    if state.contexts.get(&handle).is_some_and(|context| context.is_primary) {
        state.violation("a primary context is released, not destroyed");
        return Err(Status::INVALID_CONTEXT.into());
    }
    if current::top() == Some(handle) {
        current::pop();
    }
    state.end_context(handle);
    Ok(())
}

pub(super) fn push(state: &mut State, context: u64) -> Answer {
    if context == 0 {
        return Err(Status::INVALID_CONTEXT.into());
    }
    current::push(state.known(context)?);
    Ok(())
}

pub(super) fn pop(_: &mut State, out: Out<u64>) -> Answer {
    let popped = current::pop().ok_or(Status::INVALID_CONTEXT)?;
    out.set_if_wanted(popped);
    Ok(())
}

/// Takes the place of the top of the stack; none is a pop.
pub(super) fn set_current(state: &mut State, context: u64) -> Answer {
    let context = if context == 0 { None } else { Some(state.known(context)?) };
    current::pop();
    if let Some(context) = context {
        current::push(context);
    }
    Ok(())
}

pub(super) fn get_current(_: &mut State, out: Out<u64>) -> Answer {
    out.set(current::top().unwrap_or(0))
}

pub(super) fn get_device(state: &mut State, out: Out<c_int>) -> Answer {
    get_device_v2(state, out, 0)
}

pub(super) fn get_device_v2(state: &mut State, out: Out<c_int>, context: u64) -> Answer {
    let handle = if context == 0 { current::top().ok_or(Status::INVALID_CONTEXT)? } else { context };
    let context = state.contexts.get(&handle).ok_or(Status::CONTEXT_IS_DESTROYED)?;
    out.set(context.device)
}

pub(super) fn get_flags(state: &mut State, out: Out<c_uint>) -> Answer {
    let handle = state.current()?;
    out.set(state.contexts.get(&handle).map_or(0, |context| context.flags))
}

pub(super) fn set_flags(state: &mut State, flags: c_uint) -> Answer {
    let handle = state.current()?;
    if flags & !FLAGS != 0 {
        return Err(Status::INVALID_VALUE.into());
    }
    if let Some(context) = state.contexts.get_mut(&handle) {
        context.flags = flags;
    }
    Ok(())
}

pub(super) fn get_id(state: &mut State, context: u64, out: Out<u64>) -> Answer {
    let handle = state.named_or_current(context)?;
    let context = state.contexts.get(&handle).ok_or(Status::CONTEXT_IS_DESTROYED)?;
    out.set(context.id)
}

pub(super) fn priority_range(state: &mut State, least: Out<c_int>, greatest: Out<c_int>) -> Answer {
    state.current()?;
    least.set_if_wanted(PRIORITIES.0);
    greatest.set_if_wanted(PRIORITIES.1);
    Ok(())
}

pub(super) fn synchronize(state: &mut State) -> Answer {
    synchronize_v2(state, 0)
}

pub(super) fn synchronize_v2(state: &mut State, context: u64) -> Answer {
    let handle = state.named_or_current(context)?;
    state.well(handle)?;
    state.forbid_unsafe()?;
    match state.idle_from(handle) {
        Some(from) if from <= state.now => Ok(()),
        Some(from) => Err(Stop::Again(from)),
        None => Err(Stop::Again(u64::MAX)),
    }
}
