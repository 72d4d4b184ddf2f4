//! Modules: PTX text, of which only the entries are read, and the functions in it.

use core::ffi::{c_int, c_uint};
use std::collections::BTreeMap;

use super::arg::{List, Out, Params, StreamArg, Text};
use super::handle::Kind;
use super::kernel::Kernel;
use super::op::Op;
use super::state::State;
use super::{Answer, ptx};
use crate::Status;

/// The most threads of a block.
const BLOCK_THREADS_MAX: u64 = 1_024;

#[derive(Debug)]
pub(super) struct Module {
    pub(super) context: u64,
    entries: BTreeMap<String, Vec<usize>>,
}

/// A kernel of a module, by its handle.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) module: u64,
    context: u64,
    name: String,
    parameters: Vec<usize>,
}

impl State {
    fn module(&mut self, handle: u64) -> Answer<&Module> {
        if !self.modules.contains_key(&handle) {
            return Err(self.unknown(Kind::Module, handle).into());
        }
        self.modules.get(&handle).ok_or(Status::INVALID_HANDLE.into())
    }
}

pub(super) fn load(state: &mut State, out: Out<u64>, image: Text) -> Answer {
    out.needed()?;
    let context = state.current()?;
    state.forbid_unsafe()?;
    let entries = ptx::entries(&image.read()?);
    if entries.is_empty() {
        return Err(Status::INVALID_PTX.into());
    }
    let handle = state.handles.give(Kind::Module);
    state.modules.insert(handle, Module { context, entries });
    out.set(handle)
}

/// Options are for a compiler, and there is none.
pub(super) fn load_with_options(
    state: &mut State,
    out: Out<u64>,
    image: Text,
    _count: c_uint,
    _options: List<c_int>,
    _values: List<usize>,
) -> Answer {
    load(state, out, image)
}

pub(super) fn unload(state: &mut State, module: u64) -> Answer {
    state.current()?;
    state.module(module)?;
    state.forbid_unsafe()?;
    state.modules.remove(&module);
    state.functions.retain(|_, function| function.module != module);
    Ok(())
}

pub(super) fn get_function(state: &mut State, out: Out<u64>, module: u64, name: Text) -> Answer {
    out.needed()?;
    state.current()?;
    let name = name.read()?;
    let known = state.module(module)?;
    let parameters = known.entries.get(&name).ok_or(Status::NOT_FOUND)?.clone();
    let function = Function { module, context: known.context, name, parameters };
    let handle = state.handles.give(Kind::Function);
    state.functions.insert(handle, function);
    out.set(handle)
}

/// The sizes of a grid or a block.
type Sizes = (c_uint, c_uint, c_uint);

#[allow(clippy::too_many_arguments)] // The call has as many.
pub(super) fn launch(
    state: &mut State,
    function: u64,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    _shared_bytes: c_uint,
    stream: StreamArg,
    parameters: Params,
    extra: List<usize>,
) -> Answer {
    let stream = state.stream(stream)?;
    let Some(function) = state.functions.get(&function).cloned() else {
        return Err(state.unknown(Kind::Function, function).into());
    };
    if state.streams.get(&stream).is_none_or(|stream| stream.context != function.context) {
        return Err(Status::INVALID_HANDLE.into());
    }
    let threads = |(x, y, z): Sizes| u64::from(x).saturating_mul(u64::from(y)).saturating_mul(u64::from(z));
    let (grid, block) = (threads((grid_x, grid_y, grid_z)), threads((block_x, block_y, block_z)));
    if grid == 0 || !(1..=BLOCK_THREADS_MAX).contains(&block) {
        return Err(Status::INVALID_VALUE.into());
    }
    if parameters.is_null() && !extra.is_null() {
        return Err(Status::NOT_SUPPORTED.into());
    }
    let places = parameters.take(function.parameters.len())?;
    let mut values = Vec::new();
    for (place, bytes) in places.into_iter().zip(&function.parameters) {
        values.push(number(&place.take(*bytes)?));
    }
    let kernel = Kernel::of(&function.name, &values).ok_or(Status::INVALID_VALUE)?;
    state.enqueue(stream, Op::Kernel(kernel))?;
    Ok(())
}

/// The first eight bytes as a number.
fn number(bytes: &[u8]) -> u64 {
    let each = bytes.iter().take(size_of::<u64>()).rev();
    each.fold(0, |number, byte| number << 8 | u64::from(*byte))
}
