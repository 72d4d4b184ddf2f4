//! Several devices: who reaches whose memory, and copies between contexts.

use core::ffi::{c_int, c_uint};

use super::Answer;
use super::arg::{List, Out, StreamArg};
use super::device::checked;
use super::op::{Op, Source};
use super::pool;
use super::state::State;
use crate::Status;
use crate::wire::PeerAccess;

/// `CUmemAccessDesc`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Access {
    location_type: c_int,
    location_id: c_int,
    flags: c_int,
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`
const DEVICE: c_int = 1;

/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
const READ_WRITE: c_int = 3;

impl State {
    fn reaches(&self, device: c_int, other: c_int) -> bool {
        device != other && self.options.peer_access == PeerAccess::Granted
    }

    fn device_of_context(&self, context: u64) -> Answer<c_int> {
        let context = self.contexts.get(&context).ok_or(Status::INVALID_CONTEXT)?;
        Ok(context.device)
    }
}

pub(super) fn can_access(state: &mut State, out: Out<c_int>, device: c_int, other: c_int) -> Answer {
    out.needed()?;
    checked(state, device)?;
    checked(state, other)?;
    out.set(c_int::from(state.reaches(device, other)))
}

pub(super) fn enable(state: &mut State, other: u64, flags: c_uint) -> Answer {
    let own = state.current()?;
    if flags != 0 {
        return Err(Status::INVALID_VALUE.into());
    }
    let (device, peer) = (state.device_of_context(own)?, state.device_of_context(other)?);
    if device == peer {
        return Err(Status::INVALID_DEVICE.into());
    }
    if !state.reaches(device, peer) {
        return Err(Status::PEER_ACCESS_UNSUPPORTED.into());
    }
    if !state.reached.insert((own, other)) {
        return Err(Status::PEER_ACCESS_ALREADY_ENABLED.into());
    }
    Ok(())
}

pub(super) fn set_access(state: &mut State, pool: u64, access: List<Access>, count: usize) -> Answer {
    let device = pool::device_of(state, pool)?;
    for Access { location_type, location_id, flags } in access.take(count)? {
        if location_type != DEVICE || flags != READ_WRITE {
            return Err(Status::INVALID_VALUE.into());
        }
        checked(state, location_id)?;
        if location_id != device && !state.reaches(location_id, device) {
            return Err(Status::INVALID_DEVICE.into());
        }
        state.shared_pools.insert((device, location_id));
    }
    Ok(())
}

/// The real one copies by way of the host where access was not enabled; who asks here has done so, or is told.
pub(super) fn copy(
    state: &mut State,
    to: u64,
    to_context: u64,
    from: u64,
    from_context: u64,
    bytes: usize,
    stream: StreamArg,
) -> Answer {
    let handle = state.stream(stream)?;
    let (target, source) = (state.device_of_context(to_context)?, state.device_of_context(from_context)?);
    state.span(to, bytes)?;
    state.span(from, bytes)?;
    for (address, context) in [(to, to_context), (from, from_context)] {
        if state.pages.owner(address) != Some(context) {
            state.violation(&format!("{address:#x} is no memory of the context that it was said to be of"));
            return Err(Status::INVALID_VALUE.into());
        }
    }
    let current = state.current()?;
    let enabled =
        state.reached.contains(&(current, if current == to_context { from_context } else { to_context }));
    if target != source && !(enabled && state.shared_pools.contains(&(source, target))) {
        state.violation("memory is copied between devices that were not let reach each other");
    }
    state.enqueue(handle, Op::Copy { to, from: Source::At(from), bytes })?;
    Ok(())
}
