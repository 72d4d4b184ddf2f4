//! The calls that allocate and free memory, pinned and of the device.

use core::ffi::c_uint;

use super::arg::{Address, Out};
use super::pages::{Page, is_within};
use super::state::State;
use super::{Answer, Stop};
use crate::Status;

/// Portable, device-mapped, write-combined.
const HOST_FLAGS: c_uint = 7;

impl State {
    pub(super) fn allocate_device(&mut self, context: u64, bytes: usize) -> Answer<u64> {
        if bytes == 0 {
            return Err(Status::INVALID_VALUE.into());
        }
        if bytes as u64 > self.free_memory_bytes(context) {
            return Err(Status::OUT_OF_MEMORY.into());
        }
        let start = self.pages.allocate(Page { context, bytes, is_pinned: false, from: None });
        start.ok_or(Status::OUT_OF_MEMORY.into())
    }

    fn free_memory_bytes(&self, context: u64) -> u64 {
        let device = self.contexts.get(&context).map(|context| context.device);
        let same = self.contexts.iter().filter(|(_, context)| Some(context.device) == device);
        let pages = same.flat_map(|(context, _)| self.pages.of(*context));
        let device_pages = pages.filter_map(|start| self.pages.at(start)).filter(|page| !page.is_pinned);
        let used: u64 = device_pages.map(|page| page.bytes as u64).sum();
        self.options.total_memory_bytes.saturating_sub(used)
    }

    pub(super) fn is_device_start(&self, address: u64) -> bool {
        self.pages.at(address).is_some_and(|page| !page.is_pinned)
    }

    pub(super) fn freed_by_stream(&mut self, address: u64) {
        if self.is_device_start(address) {
            self.free_pages(address);
        } else {
            self.violation(&format!("{address:#x} was freed before its turn"));
        }
    }

    pub(super) fn free_pages_of(&mut self, context: u64) {
        for start in self.pages.of(context) {
            self.free_pages(start);
        }
    }

    pub(super) fn free_pages(&mut self, start: u64) {
        if let Some(written) = self.pages.free(start) {
            self.violation(&format!("{written:#x} was written to after it was freed"));
        }
    }

    /// Looks at what was freed once more.
    pub(super) fn check_freed(&mut self) {
        for start in self.pages.written_after_free() {
            self.call = "a thread";
            self.violation(&format!("{start:#x} was written to after it was freed"));
        }
    }

    /// Memory was to be freed that nobody has.
    pub(super) fn unknown_memory(&mut self, address: u64) -> Status {
        let was = if self.pages.was_freed(address) { "is freed already" } else { "is no allocation" };
        self.violation(&format!("{address:#x} {was}"));
        Status::INVALID_VALUE
    }

    /// How many operations that are still to come read from the allocation or write to it.
    fn users(&self, start: u64, bytes: usize) -> usize {
        let going_on = |context: u64| self.contexts.get(&context).is_some_and(|context| !context.is_halted());
        let streams = self.streams.values().filter(|stream| going_on(stream.context));
        let uses = streams.flat_map(|stream| &stream.queue).filter(|queued| {
            let mut touched = queued.op.writes().into_iter().chain(queued.op.reads());
            touched.any(|(address, len)| is_within(start, bytes, address, len))
        });
        uses.count()
    }
}

pub(super) fn host_allocate(state: &mut State, out: Out<u64>, bytes: usize, flags: c_uint) -> Answer {
    out.needed()?;
    let context = state.current()?;
    state.forbid_unsafe()?;
    if bytes == 0 || flags & !HOST_FLAGS != 0 {
        return Err(Status::INVALID_VALUE.into());
    }
    let start = state.pages.allocate(Page { context, bytes, is_pinned: true, from: None });
    out.set(start.ok_or(Status::OUT_OF_MEMORY)?)
}

/// The real call does not wait for the device either, or not always; so what still uses it is a violation.
pub(super) fn host_free(state: &mut State, address: Address) -> Answer {
    state.current()?;
    state.forbid_unsafe()?;
    let start = address.value();
    let Some(page) = state.pages.at(start).filter(|page| page.is_pinned) else {
        return Err(state.unknown_memory(start).into());
    };
    let users = state.users(start, page.bytes);
    if users > 0 {
        state.violation(&format!("{start:#x} is freed while {users} operations are still to use it"));
    }
    state.free_pages(start);
    Ok(())
}

/// Both addresses are the same, as on every device with unified addressing.
pub(super) fn host_device_pointer(
    state: &mut State,
    out: Out<u64>,
    address: Address,
    flags: c_uint,
) -> Answer {
    out.needed()?;
    state.current()?;
    let address = address.value();
    if flags != 0 || !state.pages.is_pinned(address) {
        return Err(Status::INVALID_VALUE.into());
    }
    out.set(address)
}

pub(super) fn allocate(state: &mut State, out: Out<u64>, bytes: usize) -> Answer {
    out.needed()?;
    let context = state.current()?;
    state.forbid_unsafe()?;
    let address = state.allocate_device(context, bytes)?;
    out.set(address)
}

/// Waits for all work of the context, as the real call does.
pub(super) fn free(state: &mut State, address: u64) -> Answer {
    state.current()?;
    state.forbid_unsafe()?;
    if address == 0 {
        return Ok(());
    }
    let Some(page) = state.pages.at(address).filter(|page| !page.is_pinned) else {
        return Err(state.unknown_memory(address).into());
    };
    match state.idle_from(page.context) {
        Some(from) if from <= state.now => {
            state.free_pages(address);
            Ok(())
        }
        from => Err(Stop::Again(from.unwrap_or(u64::MAX))),
    }
}

pub(super) fn info(state: &mut State, free: Out<usize>, total: Out<usize>) -> Answer {
    let context = state.current()?;
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    free.set(bytes(state.free_memory_bytes(context)))?;
    total.set(bytes(state.options.total_memory_bytes))
}
