//! The calls that put operations into streams, and the order they get there.

use core::ffi::c_uint;

use super::arg::{Address, CallbackFn, HostFn, List, Out, StreamArg};
use super::hosts::Function;
use super::op::{Op, Rows, Source, Test};
use super::state::State;
use super::stream::{Point, Queued, Sort};
use super::{Answer, Stop};
use crate::Status;

/// `CU_STREAM_WAIT_VALUE_FLUSH`
const FLUSH: c_uint = 1 << 30;

/// The bytes of a word.
const WORD_BYTES: u64 = 8;

impl State {
    /// Puts an operation at the end of a stream. Asks the call to come again while the stream is full, so nothing may be
    /// changed before. In a stream that captures it becomes part of the graph, and has no point.
    pub(super) fn enqueue(&mut self, handle: u64, op: Op) -> Answer<Option<Point>> {
        self.enqueue_all(handle, vec![op], Vec::new())
    }

    /// Puts several there at once, the first of them behind all of `after`, too.
    pub(super) fn enqueue_all(
        &mut self,
        handle: u64,
        ops: Vec<Op>,
        mut after: Vec<Point>,
    ) -> Answer<Option<Point>> {
        if let Some(id) = self.capture_of(handle) {
            self.capture(id, handle, ops)?;
            return Ok(None);
        }
        self.forbid_implied(handle)?;
        let depth = self.options.queue_depth.max(1);
        let Some(stream) = self.streams.get(&handle) else { return Err(Status::INVALID_HANDLE.into()) };
        if stream.queue.len() >= depth {
            return Err(Stop::Again(u64::MAX));
        }
        after.extend(self.implied(handle));
        let (now, lag) = (self.now, self.options.store_lag_ns);
        let Some(stream) = self.streams.get_mut(&handle) else { return Err(Status::INVALID_HANDLE.into()) };
        for op in ops {
            let takes_ns = op.takes_ns(lag);
            let after = core::mem::take(&mut after);
            stream.queue.push_back(Queued { op, at: now, after, takes_ns, begun: false, end: None });
            stream.submitted += 1;
        }
        let point = Point { stream: handle, number: stream.submitted };
        self.busy.insert(handle);
        self.stirred = true;
        Ok(Some(point))
    }

    /// What the legacy default stream has to do with it: it waits for all blocking streams, and they wait for it.
    fn implied(&self, handle: u64) -> Vec<Point> {
        let Some(stream) = self.streams.get(&handle) else { return Vec::new() };
        let others = self.streams_of(stream.context).filter(|(other, their)| {
            *other != handle
                && !their.queue.is_empty()
                && match stream.sort {
                    Sort::Legacy => their.is_blocking(),
                    Sort::PerThread | Sort::Blocking => their.sort == Sort::Legacy,
                    Sort::NonBlocking => false,
                }
        });
        others.map(|(stream, their)| Point { stream, number: their.submitted }).collect()
    }

    /// A word that a stream may store to or look at.
    pub(super) fn word(&mut self, address: u64) -> Answer {
        if address.is_multiple_of(WORD_BYTES) && self.pages.holds(address, 8) {
            return Ok(());
        }
        if self.pages.was_freed(address) {
            self.violation(&format!("{address:#x} is freed"));
        }
        Err(Status::INVALID_VALUE.into())
    }

    /// Memory of the device's, or pinned.
    pub(super) fn span(&mut self, address: u64, bytes: usize) -> Answer {
        if self.pages.holds(address, bytes) {
            return Ok(());
        }
        if self.pages.was_freed(address) {
            self.violation(&format!("{address:#x} is freed"));
        }
        Err(Status::INVALID_VALUE.into())
    }
}

/// The first variant, which drivers since 12 refuse.
pub(super) fn write_value_v1(
    state: &mut State,
    stream: StreamArg,
    _address: u64,
    _value: u64,
    _flags: c_uint,
) -> Answer {
    state.stream(stream)?;
    Err(Status::NOT_SUPPORTED.into())
}

pub(super) fn write_value(
    state: &mut State,
    stream: StreamArg,
    address: u64,
    value: u64,
    flags: c_uint,
) -> Answer {
    let handle = state.stream(stream)?;
    // The flag that leaves out the barrier belongs to the first variant.
    if flags != 0 {
        return Err(Status::INVALID_VALUE.into());
    }
    state.word(address)?;
    state.enqueue(handle, Op::Store { address, value })?;
    Ok(())
}

pub(super) fn wait_value(
    state: &mut State,
    stream: StreamArg,
    address: u64,
    value: u64,
    flags: c_uint,
) -> Answer {
    let handle = state.stream(stream)?;
    let test = Test::of(flags & !FLUSH).ok_or(Status::INVALID_VALUE)?;
    state.word(address)?;
    state.enqueue(handle, Op::Wait { address, value, test })?;
    Ok(())
}

pub(super) fn launch_host(
    state: &mut State,
    stream: StreamArg,
    function: Option<HostFn>,
    data: Address,
) -> Answer {
    let handle = state.stream(stream)?;
    let function = Function::Host(function.ok_or(Status::INVALID_VALUE)?);
    state.enqueue(handle, Op::Host { function, data: data.number() })?;
    Ok(())
}

/// As HIP's older call has it.
pub(super) fn add_callback(
    state: &mut State,
    stream: StreamArg,
    function: Option<CallbackFn>,
    data: Address,
) -> Answer {
    let handle = state.stream(stream)?;
    state.forbid_capturing(handle)?;
    let function = Function::Callback(function.ok_or(Status::INVALID_VALUE)?);
    state.enqueue(handle, Op::Host { function, data: data.number() })?;
    Ok(())
}

pub(super) fn copy_to_device(
    state: &mut State,
    to: u64,
    from: Address,
    bytes: usize,
    stream: StreamArg,
) -> Answer {
    let handle = state.stream(stream)?;
    state.span(to, bytes)?;
    let from = if state.pages.holds(from.value(), bytes) {
        Source::At(from.value())
    } else {
        Source::Staged(super::raw::read(from.value(), bytes).into())
    };
    state.enqueue(handle, Op::Copy { to, from, bytes })?;
    Ok(())
}

pub(super) fn copy_on_device(
    state: &mut State,
    to: u64,
    from: u64,
    bytes: usize,
    stream: StreamArg,
) -> Answer {
    let handle = state.stream(stream)?;
    state.span(to, bytes)?;
    state.span(from, bytes)?;
    state.enqueue(handle, Op::Copy { to, from: Source::At(from), bytes })?;
    Ok(())
}

/// `CUDA_MEMCPY2D`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Copy2d {
    from_x: usize,
    from_y: usize,
    from_kind: c_uint,
    from_host: Address,
    from_device: u64,
    from_array: Address,
    from_pitch: usize,
    to_x: usize,
    to_y: usize,
    to_kind: c_uint,
    to_host: Address,
    to_device: u64,
    to_array: Address,
    to_pitch: usize,
    width: usize,
    height: usize,
}

/// What the real driver takes at most, by `CU_DEVICE_ATTRIBUTE_MAX_PITCH`.
const PITCH_MAX: usize = i32::MAX.unsigned_abs() as usize;

/// Between pinned memory and the device's: nobody here has the other ways.
pub(super) fn copy_rows(state: &mut State, what: List<Copy2d>, stream: StreamArg) -> Answer {
    const HOST: c_uint = 1;
    const DEVICE: c_uint = 2;
    let handle = state.stream(stream)?;
    let what = what.take(1)?.into_iter().next().ok_or(Status::INVALID_VALUE)?;
    let side = |kind, host: Address, device, x: usize, y: usize, pitch: usize| match kind {
        HOST => Some(host.value() + (y * pitch + x) as u64),
        DEVICE => Some(device + (y * pitch + x) as u64),
        _ => None,
    };
    let Copy2d { from_pitch, to_pitch, width: len, height: count, .. } = what;
    let from = side(what.from_kind, what.from_host, what.from_device, what.from_x, what.from_y, from_pitch);
    let to = side(what.to_kind, what.to_host, what.to_device, what.to_x, what.to_y, to_pitch);
    let (from, to) = from.zip(to).ok_or(Status::NOT_SUPPORTED)?;
    copy_rows_between(state, handle, to, from, Rows { len, count, from_pitch, to_pitch })
}

pub(super) fn copy_rows_between(state: &mut State, handle: u64, to: u64, from: u64, rows: Rows) -> Answer {
    let Rows { len, from_pitch, to_pitch, .. } = rows;
    let pitches = len..=PITCH_MAX;
    if !pitches.contains(&from_pitch) || !pitches.contains(&to_pitch) {
        return Err(Status::INVALID_VALUE.into());
    }
    state.span(from, rows.extent(from_pitch).ok_or(Status::INVALID_VALUE)?)?;
    state.span(to, rows.extent(to_pitch).ok_or(Status::INVALID_VALUE)?)?;
    state.enqueue(handle, Op::Rows { to, from, rows })?;
    Ok(())
}

/// To pinned memory when its turn comes; to other memory of the host only once the caller waits here, in `left`.
pub(super) fn copy_to_host(
    state: &mut State,
    left: &mut Option<Point>,
    to: Address,
    from: u64,
    bytes: usize,
    stream: StreamArg,
) -> Answer {
    let handle = state.stream(stream)?;
    let to = to.value();
    if let Some(point) = *left {
        if !state.is_reached(point) {
            return Err(Stop::Again(u64::MAX));
        }
        state.span(from, bytes)?;
        super::raw::write(to, &super::raw::read(from, bytes));
        return Ok(());
    }
    state.span(from, bytes)?;
    if state.pages.holds(to, bytes) {
        state.enqueue(handle, Op::Copy { to, from: Source::At(from), bytes })?;
        return Ok(());
    }
    // A capture has no way to wait here.
    state.forbid_capturing(handle)?;
    *left = state.enqueue(handle, Op::Nothing)?;
    Err(Stop::Again(u64::MAX))
}

pub(super) fn fill(state: &mut State, to: u64, value: u8, bytes: usize, stream: StreamArg) -> Answer {
    fill_with(state, to, [value; 4], 1, bytes, stream)
}

pub(super) fn fill_twos(state: &mut State, to: u64, value: u16, count: usize, stream: StreamArg) -> Answer {
    let [low, high] = value.to_ne_bytes();
    fill_with(state, to, [low, high, low, high], 2, count, stream)
}

pub(super) fn fill_fours(state: &mut State, to: u64, value: u32, count: usize, stream: StreamArg) -> Answer {
    fill_with(state, to, value.to_ne_bytes(), 4, count, stream)
}

/// Of a number of so many bytes; the address must be a multiple of them.
fn fill_with(
    state: &mut State,
    to: u64,
    value: [u8; 4],
    width: usize,
    count: usize,
    stream: StreamArg,
) -> Answer {
    let handle = state.stream(stream)?;
    let bytes = count.checked_mul(width).ok_or(Status::INVALID_VALUE)?;
    if !to.is_multiple_of(width as u64) {
        return Err(Status::INVALID_VALUE.into());
    }
    state.span(to, bytes)?;
    state.enqueue(handle, Op::Fill { to, value, bytes })?;
    Ok(())
}

pub(super) fn wait_event(state: &mut State, stream: StreamArg, event: u64, flags: c_uint) -> Answer {
    let handle = state.stream(stream)?;
    if flags & !1 != 0 {
        return Err(Status::INVALID_VALUE.into());
    }
    if state.join(handle, event)? {
        return Ok(());
    }
    let point = state.event(event)?.point;
    if let Some(point) = point.filter(|point| !state.is_reached(*point)) {
        state.enqueue_all(handle, vec![Op::Nothing], vec![point])?;
    }
    Ok(())
}

pub(super) fn allocate_async(state: &mut State, out: Out<u64>, bytes: usize, stream: StreamArg) -> Answer {
    let handle = state.stream(stream)?;
    out.needed()?;
    state.forbid_capturing(handle)?;
    let context = state.streams.get(&handle).map_or(0, |stream| stream.context);
    let address = state.allocate_device(context, bytes)?;
    // It is there from its turn on, and for other streams once they are behind that.
    match state.enqueue(handle, Op::Nothing) {
        Ok(point) => state.pages.set_beginning(address, point),
        Err(stop) => {
            state.free_pages(address);
            return Err(stop);
        }
    }
    out.set(address)
}

pub(super) fn free_async(state: &mut State, address: u64, stream: StreamArg) -> Answer {
    let handle = state.stream(stream)?;
    if !state.is_device_start(address) {
        return Err(state.unknown_memory(address).into());
    }
    state.enqueue(handle, Op::Free { address })?;
    Ok(())
}
