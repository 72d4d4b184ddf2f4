//! Modules: PTX text, of which only the entries are read, and the functions in it.

use core::ffi::{c_int, c_uint};
use std::collections::BTreeMap;
use std::ffi::CString;

use super::arg::{Image, List, Out, Params, StreamArg, Text};
use super::graph::Launched;
use super::handle::Kind;
use super::kernel::Kernel;
use super::op::Op;
use super::state::State;
use super::{Answer, cubin, ptx};
use crate::Status;

/// The most threads of a block.
const BLOCK_THREADS_MAX: u64 = 1_024;

/// What a kernel may have of shared memory beside its own, before it is set to more.
const SHARED_BYTES_OF_ALL: u32 = 48 << 10;

/// Two of `CUfunction_attribute`.
const SHARED_BYTES: c_int = 8;
const LARGE_CLUSTERS: c_int = 14;

/// `CUdevice_attribute`
const MULTIPROCESSORS: c_int = 16;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;
const COOPERATIVE_LAUNCH: c_int = 95;
const SHARED_BYTES_MAX: c_int = 97;
const CLUSTER_LAUNCH: c_int = 120;

/// `CUlaunchAttributeID`
const COOPERATIVE: c_uint = 2;
const CLUSTER: c_uint = 4;
const OVERLAPPING: c_uint = 6;

/// How many blocks of a cooperative kernel a multiprocessor has at a time.
const BLOCKS_OF_A_MULTIPROCESSOR: u64 = 2;

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
    shared_bytes: u32,
    large_clusters: bool,
}

impl State {
    fn function(&mut self, handle: u64) -> Answer<Function> {
        match self.functions.get(&handle) {
            Some(function) => Ok(function.clone()),
            None => Err(self.unknown(Kind::Function, handle).into()),
        }
    }

    /// 90 for 9.0. All devices are alike.
    fn arch(&self) -> u32 {
        (self.attribute_of(MAJOR) * 10 + self.attribute_of(MINOR)).unsigned_abs()
    }

    fn module(&mut self, handle: u64) -> Answer<&Module> {
        if !self.modules.contains_key(&handle) {
            return Err(self.unknown(Kind::Module, handle).into());
        }
        self.modules.get(&handle).ok_or(Status::INVALID_HANDLE.into())
    }
}

pub(super) fn load(state: &mut State, out: Out<u64>, image: Image) -> Answer {
    out.needed()?;
    let context = state.current()?;
    state.forbid_unsafe()?;
    let text = if image.is_text()? { image.text().read()? } else { cubin::text(image, state.arch())? };
    load_text(state, out, context, &text)
}

/// A code object of HIP's.
pub(super) fn load_code_object(state: &mut State, out: Out<u64>, image: Image) -> Answer {
    out.needed()?;
    let context = state.current()?;
    state.forbid_unsafe()?;
    if image.is_text()? {
        return Err(Status::INVALID_IMAGE.into());
    }
    let text = cubin::text_of_code_object(image)?;
    load_text(state, out, context, &text)
}

fn load_text(state: &mut State, out: Out<u64>, context: u64, text: &str) -> Answer {
    let entries = ptx::entries(text);
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
    image: Image,
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
    let context = known.context;
    let shared_bytes = SHARED_BYTES_OF_ALL;
    let function = Function { module, context, name, parameters, shared_bytes, large_clusters: false };
    let handle = state.handles.give(Kind::Function);
    state.functions.insert(handle, function);
    out.set(handle)
}

pub(super) fn get_attribute(state: &mut State, out: Out<c_int>, attribute: c_int, function: u64) -> Answer {
    let function = state.function(function)?;
    out.set(if attribute == SHARED_BYTES { function.shared_bytes.cast_signed() } else { 0 })
}

pub(super) fn set_attribute(state: &mut State, function: u64, attribute: c_int, value: c_int) -> Answer {
    let most = state.attribute_of(SHARED_BYTES_MAX);
    state.function(function)?;
    let Some(function) = state.functions.get_mut(&function) else { return Ok(()) };
    match attribute {
        SHARED_BYTES if (0..=most).contains(&value) => function.shared_bytes = value.unsigned_abs(),
        LARGE_CLUSTERS => function.large_clusters = value != 0,
        _ => return Err(Status::INVALID_VALUE.into()),
    }
    Ok(())
}

pub(super) fn parameter(
    state: &mut State,
    function: u64,
    index: usize,
    offset: Out<usize>,
    bytes: Out<usize>,
) -> Answer {
    let function = state.function(function)?;
    let Some(this) = function.parameters.get(index) else { return Err(Status::INVALID_VALUE.into()) };
    let before = function.parameters.iter().take(index);
    offset.set(
        before.fold(0, |at: usize, bytes| at.next_multiple_of(*bytes) + bytes).next_multiple_of(*this),
    )?;
    bytes.set_if_wanted(*this);
    Ok(())
}

/// The sizes of a grid or a block.
pub(super) type Sizes = [c_uint; 3];

/// What a launch is of.
struct Launch {
    function: u64,
    grid: Sizes,
    block: Sizes,
    shared_bytes: c_uint,
    stream: StreamArg,
    parameters: Params,
    extra: List<usize>,
    cluster: Option<Sizes>,
}

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
    shared_bytes: c_uint,
    stream: StreamArg,
    parameters: Params,
    extra: List<usize>,
) -> Answer {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    enqueue(state, &Launch { function, grid, block, shared_bytes, stream, parameters, extra, cluster: None })
}

/// As HIP has it: no attributes, and cooperative.
pub(super) fn launch_cooperative(
    state: &mut State,
    function: u64,
    grid: Sizes,
    block: Sizes,
    shared_bytes: c_uint,
    stream: StreamArg,
    parameters: Params,
) -> Answer {
    if state.attribute_of(COOPERATIVE_LAUNCH) == 0 {
        return Err(Status::NOT_SUPPORTED.into());
    }
    state.fits_at_once(grid)?;
    let extra = List::none();
    enqueue(state, &Launch { function, grid, block, shared_bytes, stream, parameters, extra, cluster: None })
}

/// As HIP has it: a kernel may have as much as the device has.
pub(super) fn allow_all_shared(state: &mut State, function: u64) {
    let most = state.attribute_of(SHARED_BYTES_MAX).unsigned_abs();
    if let Some(function) = state.functions.get_mut(&function) {
        function.shared_bytes = most;
    }
}

impl State {
    /// That all blocks of a cooperative kernel run at one time.
    fn fits_at_once(&self, grid: Sizes) -> Answer {
        let resident = u64::from(self.attribute_of(MULTIPROCESSORS).unsigned_abs());
        if product(grid) > resident * BLOCKS_OF_A_MULTIPROCESSOR {
            return Err(Status::COOPERATIVE_LAUNCH_TOO_LARGE.into());
        }
        Ok(())
    }
}

/// `CUlaunchConfig`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct LaunchConfig {
    grid: Sizes,
    block: Sizes,
    shared_bytes: c_uint,
    stream: StreamArg,
    attributes: List<LaunchAttribute>,
    count: c_uint,
}

/// `CUlaunchAttribute`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct LaunchAttribute {
    id: c_uint,
    pad: c_uint,
    value: [c_uint; 16],
}

pub(super) fn launch_with_attributes(
    state: &mut State,
    config: List<LaunchConfig>,
    function: u64,
    parameters: Params,
    extra: List<usize>,
) -> Answer {
    let config = config.take(1)?.into_iter().next().ok_or(Status::INVALID_VALUE)?;
    let mut cluster = None;
    for LaunchAttribute { id, value, .. } in config.attributes.take(config.count as usize)? {
        let (id, [x, y, z, ..]) = (id, value);
        let lacks = match id {
            COOPERATIVE => state.attribute_of(COOPERATIVE_LAUNCH) == 0,
            CLUSTER => {
                cluster = Some([x, y, z]);
                state.attribute_of(CLUSTER_LAUNCH) == 0
            }
            OVERLAPPING => state.attribute_of(MAJOR) < 9,
            _ => return Err(Status::INVALID_VALUE.into()),
        };
        if lacks {
            return Err(Status::NOT_SUPPORTED.into());
        }
        if id == COOPERATIVE {
            state.fits_at_once(config.grid)?;
        }
    }
    let LaunchConfig { grid, block, shared_bytes, stream, .. } = config;
    enqueue(state, &Launch { function, grid, block, shared_bytes, stream, parameters, extra, cluster })
}

fn product(sizes: Sizes) -> u64 {
    sizes.into_iter().fold(1, |all, size| all.saturating_mul(u64::from(size)))
}

fn enqueue(state: &mut State, launch: &Launch) -> Answer {
    let stream = state.stream(launch.stream)?;
    let function = state.function(launch.function)?;
    if state.streams.get(&stream).is_none_or(|stream| stream.context != function.context) {
        return Err(Status::INVALID_HANDLE.into());
    }
    if product(launch.grid) == 0
        || !(1..=BLOCK_THREADS_MAX).contains(&product(launch.block))
        || launch.shared_bytes > function.shared_bytes
    {
        return Err(Status::INVALID_VALUE.into());
    }
    if let Some(cluster) = launch.cluster {
        let most = if function.large_clusters { 16 } else { 8 };
        let divides =
            launch.grid.into_iter().zip(cluster).all(|(grid, cluster)| cluster > 0 && grid % cluster == 0);
        if !divides || product(cluster) > most {
            return Err(Status::INVALID_CLUSTER_SIZE.into());
        }
    }
    if launch.parameters.is_null() && !launch.extra.is_null() {
        return Err(Status::NOT_SUPPORTED.into());
    }
    let kernel = state.kernel(launch.function, launch.parameters)?;
    state.enqueue(stream, Op::Kernel(kernel))?;
    let Launch { function, grid, block, shared_bytes, .. } = *launch;
    if let Some(capture) = state.capture_of(stream).and_then(|id| state.captures.get_mut(&id))
        && let Some(node) = capture.nodes.last_mut()
    {
        node.launch = Some(Launched { function, grid, block, shared_bytes });
    }
    Ok(())
}

impl State {
    /// The kernel of a function, with the values of its parameters.
    pub(super) fn kernel(&mut self, function: u64, parameters: Params) -> Answer<Kernel> {
        let function = self.function(function)?;
        let places = parameters.take(function.parameters.len())?;
        let mut values = Vec::new();
        for (place, bytes) in places.into_iter().zip(&function.parameters) {
            values.push(number(&place.take(*bytes)?));
        }
        Kernel::of(&function.name, &values).ok_or(Status::INVALID_VALUE.into())
    }
}

impl Function {
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// A text that stays as long as the library.
pub(super) fn name(state: &mut State, out: Out<usize>, function: u64) -> Answer {
    let name = state.function(function)?.name;
    let text = state.names.entry(name).or_insert_with_key(|name| {
        let text = CString::new(name.as_str()).unwrap_or_default();
        &*Box::leak(text.into_boxed_c_str())
    });
    out.set(text.as_ptr().expose_provenance())
}

/// The first eight bytes as a number.
fn number(bytes: &[u8]) -> u64 {
    let each = bytes.iter().take(size_of::<u64>()).rev();
    each.fold(0, |number, byte| number << 8 | u64::from(*byte))
}
