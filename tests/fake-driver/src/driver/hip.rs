//! HIP's symbols, by their names in `hip/hip_runtime_api.h`, on the devices that CUDA's are of.
//!
//! What differs is here: contexts are the devices themselves and always there, a thread has a current device, a store or a wait in a stream that captures is carried out at
//! once, the destruction of a stream waits for it, and host memory that is not said to be coherent is a violation, as it is what the environment makes of it.
#![allow(unsafe_code, non_snake_case)]

use core::ffi::{c_char, c_int, c_uint};

use super::arg::{Address, Arg, CallbackFn, Chars, HostFn, Image, List, Out, Params, StreamArg, Text};
use super::hip_graph::KernelParams;
use super::op::Rows;
use super::state::State;
use super::{
    Answer, capture, context, current, device, enqueue, event, gate, graph, hip_graph, hip_words, memory,
    module, peer, pool, stream,
};
use crate::Status;

/// HIP 6.4
const VERSION: c_int = 60_443_484;

/// What the devices are.
const ARCH: &str = "gfx942:sramecc+:xnack-";

/// Where the architecture's name is in a device's properties, from HIP 6 on and before.
const ARCH_AT_R0600: usize = 1_160;
const ARCH_AT_R0000: usize = 396;
const ARCH_BYTES: c_int = 256;

/// Attributes by their numbers in HIP, and those of CUDA that say the same.
const ATTRIBUTES: &[(c_uint, c_int)] = &[
    (3, 19),
    (10, 95),
    (16, 18),
    (23, 75),
    (26, 2),
    (27, 3),
    (28, 4),
    (29, 5),
    (30, 6),
    (31, 7),
    (56, 1),
    (61, 76),
    (63, 16),
    (74, 97),
    (85, 41),
    (87, 10),
    (88, 115),
    (10_013, 122),
];

/// Beyond the last attribute of either kind.
const ATTRIBUTES_END: c_uint = 200;
const ATTRIBUTES_OF_AMD: core::ops::Range<c_uint> = 10_000..10_100;

const HOST_COHERENT: c_uint = 0x4000_0000;
/// Portable, mapped, write-combined: as CUDA counts them.
const HOST_FLAGS: c_uint = 7;
const EVENT_RELEASES: c_uint = 0xc000_0000;
const ALL_BITS: u64 = u64::MAX;

/// All names.
pub(super) static NAMES: &[&str] = HIP_NAMES;

/// Works on a call with the thread's device as its context.
pub(super) fn on_device(state: &mut State, body: impl FnOnce(&mut State) -> Answer) -> Answer {
    state.is_hip = true;
    let context = state.primary_of(current::device());
    current::push(context);
    let answer = body(state);
    current::pop();
    answer
}

/// The context as the log has it: HIP has a device's number, counted from one.
pub(super) fn logged() -> Option<u64> {
    u64::try_from(current::device()).ok().map(|device| device + 1)
}

macro_rules! exports {
    ($($name:ident($($arg:ident: $ty:ty),*) => $body:expr $(, keeps $kept:expr)?;)*) => {
        $(
            // SAFETY: the name is the library's own, and this one is loaded in its place, into a scope of its own.
            #[unsafe(no_mangle)]
            extern "C" fn $name($($arg: $ty),*) -> Status {
                let stream = None $(.or(Arg::stream($arg)))*;
                exports!(@call $name, stream, $body, ($($arg),*) $(, $kept)?)
            }
        )*

        const HIP_NAMES: &[&str] = &[$(stringify!($name)),*];
    };
    (@call $name:ident, $stream:ident, $body:expr, ($($arg:ident),*)) => {
        gate::call_in(stringify!($name), logged(), $stream, |state| {
            on_device(state, |state| $body(state $(, $arg)*))
        })
    };
    (@call $name:ident, $stream:ident, $body:expr, ($($arg:ident),*), $kept:expr) => {{
        let mut kept = $kept;
        gate::call_in(stringify!($name), logged(), $stream, |state| {
            on_device(state, |state| $body(state, &mut kept $(, $arg)*))
        })
    }};
}

exports! {
    hipInit(flags: c_uint) => device::init;
    hipDriverGetVersion(out: Out<c_int>) => |_: &mut State, out: Out<c_int>| out.set(VERSION);

    hipGetDeviceCount(out: Out<c_int>) => device::count;
    hipDeviceGet(out: Out<c_int>, ordinal: c_int) => device::get;
    hipDeviceGetName(out: Chars, len: c_int, device: c_int) => device::name;
    hipDeviceGetAttribute(out: Out<c_int>, attribute: c_uint, device: c_int) => get_attribute;
    hipDeviceTotalMem(out: Out<usize>, device: c_int) => device::total_memory;
    hipGetDeviceProperties(out: Chars, device: c_int) => |state, out, device| properties(state, out, device, ARCH_AT_R0000);
    hipGetDevicePropertiesR0600(out: Chars, device: c_int) => |state, out, device| properties(state, out, device, ARCH_AT_R0600);
    hipGetDevice(out: Out<c_int>) => |_: &mut State, out: Out<c_int>| out.set(current::device());
    hipSetDevice(device: c_int) => set_device;
    hipDevicePrimaryCtxRetain(out: Out<u64>, device: c_int) => retain;
    hipDevicePrimaryCtxRelease(device: c_int) => release;
    hipDeviceGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) => context::priority_range;

    hipStreamCreateWithPriority(out: Out<u64>, flags: c_uint, priority: c_int) => stream::create_with_priority;
    hipStreamDestroy(stream: StreamArg) => stream::destroy_waiting;
    hipStreamQuery(stream: StreamArg) => stream::query;
    hipStreamSynchronize(stream: StreamArg) => stream::synchronize;
    hipStreamGetDevice(stream: StreamArg, out: Out<c_int>) => stream::get_device;
    hipStreamWaitEvent(stream: StreamArg, event: u64, flags: c_uint) => enqueue::wait_event;
    hipStreamWriteValue64(stream: StreamArg, address: u64, value: u64, flags: c_uint) => write_value;
    hipStreamWaitValue64(stream: StreamArg, address: u64, value: u64, flags: c_uint, mask: u64) => wait_value;
    hipLaunchHostFunc(stream: StreamArg, function: Option<HostFn>, data: Address) => enqueue::launch_host;
    hipStreamAddCallback(stream: StreamArg, function: Option<CallbackFn>, data: Address, flags: c_uint) => add_callback;

    hipStreamIsCapturing(stream: StreamArg, out: Out<c_int>) => capture::is_capturing;
    hipThreadExchangeStreamCaptureMode(mode: Out<c_uint>) => capture::exchange_mode;
    hipStreamBeginCapture(stream: StreamArg, mode: c_uint) => capture::begin;
    hipStreamEndCapture(stream: StreamArg, out: Out<u64>) => capture::end;
    hipGraphInstantiate(out: Out<u64>, graph: u64, node: Out<u64>, log: Chars, len: usize) => hip_graph::instantiate;
    hipGraphLaunch(exec: u64, stream: StreamArg) => graph::launch;
    hipGraphExecDestroy(exec: u64) => graph::destroy_exec;
    hipGraphDestroy(graph: u64) => graph::destroy;
    hipGraphCreate(out: Out<u64>, flags: c_uint) => hip_graph::create;
    hipGraphAddEmptyNode(out: Out<u64>, graph: u64, after: List<u64>, count: usize) => hip_graph::add_empty;
    hipGraphGetNodes(graph: u64, nodes: Out<u64>, count: Out<usize>) => graph::nodes;
    hipGraphNodeGetType(node: u64, out: Out<c_int>) => hip_graph::node_type;
    hipGraphNodeGetDependencies(node: u64, nodes: Out<u64>, count: Out<usize>) => graph::dependencies;
    hipGraphKernelNodeGetParams(node: u64, out: Out<KernelParams>) => hip_graph::get_kernel;
    hipGraphExecKernelNodeSetParams(exec: u64, node: u64, params: List<KernelParams>) => hip_graph::set_kernel;
    hipGraphExecUpdate(exec: u64, graph: u64, node: Out<u64>, result: Out<c_uint>) => hip_graph::update;

    hipEventCreateWithFlags(out: Out<u64>, flags: c_uint) => |state, out, flags: c_uint| event::create(state, out, flags & !EVENT_RELEASES);
    hipEventRecord(event: u64, stream: StreamArg) => event::record;
    hipEventQuery(event: u64) => event::query;
    hipEventDestroy(event: u64) => event::destroy;

    hipHostMalloc(out: Out<u64>, bytes: usize, flags: c_uint) => host_allocate;
    hipHostFree(address: Address) => memory::host_free;
    hipHostGetDevicePointer(out: Out<u64>, address: Address, flags: c_uint) => memory::host_device_pointer;
    hipMalloc(out: Out<u64>, bytes: usize) => memory::allocate;
    hipFree(address: u64) => memory::free;
    hipMemcpyHtoDAsync(to: u64, from: Address, bytes: usize, stream: StreamArg) => enqueue::copy_to_device;
    hipMemcpyDtoHAsync(to: Address, from: u64, bytes: usize, stream: StreamArg) => enqueue::copy_to_host, keeps None;
    hipMemcpyDtoDAsync(to: u64, from: u64, bytes: usize, stream: StreamArg) => enqueue::copy_on_device;
    hipMemcpy2DAsync(to: u64, to_pitch: usize, from: u64, from_pitch: usize, len: usize, count: usize, kind: c_uint, stream: StreamArg) => copy_rows;
    hipMemsetD8Async(to: u64, value: u8, bytes: usize, stream: StreamArg) => enqueue::fill;
    hipMemsetD16Async(to: u64, value: u16, count: usize, stream: StreamArg) => enqueue::fill_twos;
    hipMemsetD32Async(to: u64, value: c_int, count: usize, stream: StreamArg) => |state, to, value: c_int, count, stream| enqueue::fill_fours(state, to, value.cast_unsigned(), count, stream);

    hipMallocAsync(out: Out<u64>, bytes: usize, stream: StreamArg) => enqueue::allocate_async;
    hipFreeAsync(address: u64, stream: StreamArg) => enqueue::free_async;
    hipDeviceGetDefaultMemPool(out: Out<u64>, device: c_int) => pool::default_of;
    hipMemPoolGetAttribute(pool: u64, attribute: c_int, value: Out<u64>) => pool::get_attribute;
    hipMemPoolSetAttribute(pool: u64, attribute: c_int, value: Out<u64>) => pool::set_attribute;
    hipMemPoolTrimTo(pool: u64, keep: usize) => pool::trim;
    hipMemPoolSetAccess(pool: u64, access: List<peer::Access>, count: usize) => peer::set_access;

    hipDeviceCanAccessPeer(out: Out<c_int>, device: c_int, other: c_int) => peer::can_access;
    hipDeviceEnablePeerAccess(other: c_int, flags: c_uint) => enable_peer;
    hipMemcpyPeerAsync(to: u64, to_device: c_int, from: u64, from_device: c_int, bytes: usize, stream: StreamArg) => copy_peer;

    hipModuleLoadData(out: Out<u64>, image: Image) => module::load_code_object;
    hipModuleUnload(module: u64) => module::unload;
    hipModuleGetFunction(out: Out<u64>, module: u64, name: Text) => module::get_function;
    hipModuleLaunchKernel(function: u64, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: StreamArg, parameters: Params, extra: List<usize>) => launch;
    hipModuleLaunchCooperativeKernel(function: u64, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: StreamArg, parameters: Params) => launch_cooperative;
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn hipGetErrorName(status: Status) -> *const c_char {
    hip_words::name(status)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn hipGetErrorString(status: Status) -> *const c_char {
    hip_words::text(status)
}

impl State {
    /// A device's context, which is always there.
    fn primary_of(&mut self, device: c_int) -> u64 {
        self.primary(device).unwrap_or_else(|| {
            let handle = self.make_context(device, 0, true);
            self.primaries.insert(device, handle);
            handle
        })
    }
}

fn get_attribute(state: &mut State, out: Out<c_int>, attribute: c_uint, device: c_int) -> Answer {
    out.needed()?;
    device::checked(state, device)?;
    if attribute >= ATTRIBUTES_END && !ATTRIBUTES_OF_AMD.contains(&attribute) {
        return Err(Status::INVALID_VALUE.into());
    }
    let same = ATTRIBUTES.iter().find(|(hip, _)| *hip == attribute);
    out.set(same.map_or(0, |(_, cuda)| state.attribute_of(*cuda)))
}

fn properties(state: &mut State, out: Chars, device: c_int, at: usize) -> Answer {
    device::checked(state, device)?;
    out.write(&format!("Fake GPU {device}"), ARCH_BYTES)?;
    out.from(at).write(ARCH, ARCH_BYTES)
}

fn set_device(state: &mut State, device: c_int) -> Answer {
    device::checked(state, device)?;
    current::set_device(device);
    Ok(())
}

fn retain(state: &mut State, out: Out<u64>, device: c_int) -> Answer {
    out.needed()?;
    device::checked(state, device)?;
    state.process_is_well()?;
    let handle = state.primary_of(device);
    if let Some(context) = state.contexts.get_mut(&handle) {
        context.retains += 1;
    }
    out.set(handle)
}

fn enable_peer(state: &mut State, other: c_int, flags: c_uint) -> Answer {
    device::checked(state, other)?;
    let other = state.primary_of(other);
    peer::enable(state, other, flags)
}

fn copy_peer(
    state: &mut State,
    to: u64,
    to_device: c_int,
    from: u64,
    from_device: c_int,
    bytes: usize,
    stream: StreamArg,
) -> Answer {
    device::checked(state, to_device)?;
    device::checked(state, from_device)?;
    let (target, source) = (state.primary_of(to_device), state.primary_of(from_device));
    peer::copy(state, to, target, from, source, bytes, stream)
}

/// Ends nothing: the device stays.
fn release(state: &mut State, device: c_int) -> Answer {
    device::checked(state, device)?;
    let handle = state.primary_of(device);
    let retained = state.contexts.get_mut(&handle).filter(|context| context.retains > 0);
    let Some(context) = retained else {
        state.violation(&format!("the primary context of device {device} is not retained"));
        return Err(Status::INVALID_CONTEXT.into());
    };
    context.retains -= 1;
    Ok(())
}

/// In a stream that captures it runs at once, and is no part of the graph.
fn write_value(state: &mut State, stream: StreamArg, address: u64, value: u64, _: c_uint) -> Answer {
    let handle = state.stream(stream)?;
    if state.capture_of(handle).is_none() {
        return enqueue::write_value(state, stream, address, value, 0);
    }
    state.word(address)?;
    state.pages.store(address, value);
    Ok(())
}

fn wait_value(
    state: &mut State,
    stream: StreamArg,
    address: u64,
    value: u64,
    flags: c_uint,
    mask: u64,
) -> Answer {
    if mask != ALL_BITS {
        return Err(Status::NOT_SUPPORTED.into());
    }
    enqueue::wait_value(state, stream, address, value, flags)
}

fn add_callback(
    state: &mut State,
    stream: StreamArg,
    function: Option<CallbackFn>,
    data: Address,
    flags: c_uint,
) -> Answer {
    if flags != 0 {
        return Err(Status::INVALID_VALUE.into());
    }
    enqueue::add_callback(state, stream, function, data)
}

/// A failed driver call is often of what the environment makes of flags that are left out.
fn host_allocate(state: &mut State, out: Out<u64>, bytes: usize, flags: c_uint) -> Answer {
    if flags & HOST_COHERENT == 0 {
        state.violation("whether the memory is coherent is left to the environment");
    }
    if flags & !(HOST_FLAGS | HOST_COHERENT) != 0 {
        return Err(Status::INVALID_VALUE.into());
    }
    memory::host_allocate(state, out, bytes, flags & HOST_FLAGS)
}

#[allow(clippy::too_many_arguments)] // The call has as many.
fn copy_rows(
    state: &mut State,
    to: u64,
    to_pitch: usize,
    from: u64,
    from_pitch: usize,
    len: usize,
    count: usize,
    _: c_uint,
    stream: StreamArg,
) -> Answer {
    let handle = state.stream(stream)?;
    enqueue::copy_rows_between(state, handle, to, from, Rows { len, count, from_pitch, to_pitch })
}

/// No kernel has to be set to much shared memory.
#[allow(clippy::too_many_arguments)] // The call has as many.
fn launch(
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
    module::allow_all_shared(state, function);
    let (grid, block) = ((grid_x, grid_y, grid_z), (block_x, block_y, block_z));
    module::launch(
        state,
        function,
        grid.0,
        grid.1,
        grid.2,
        block.0,
        block.1,
        block.2,
        shared_bytes,
        stream,
        parameters,
        extra,
    )
}

#[allow(clippy::too_many_arguments)] // The call has as many.
fn launch_cooperative(
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
) -> Answer {
    module::allow_all_shared(state, function);
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    module::launch_cooperative(state, function, grid, block, shared_bytes, stream, parameters)
}
