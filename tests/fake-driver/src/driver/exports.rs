//! The exported symbols, one line each: the base name, the version of the driver that brought this variant, the exported
//! name with its exact parameters, and what does it.
//!
//! Versions are those of `cudaTypedefs.h`. The functions are safe to the compiler only: their callers are C programs, who
//! promise what the driver's manual asks of them; `arg` relies on that.
#![allow(unsafe_code, non_snake_case)]

use core::ffi::{c_char, c_int, c_uint};

use super::arg::{Address, Arg, Chars, HostFn, Image, List, Out, Params, StreamArg, Text};
use super::enqueue::Copy2d;
use super::graph::{InstantiateParams, KernelParams, UpdateInfo};
use super::module::LaunchConfig;
use super::{
    capture, context, device, enqueue, event, gate, graph, lookup, memory, module, peer, pool, stream,
};
use crate::Status;

/// An exported function.
pub(super) struct Export {
    pub(super) base: &'static str,
    pub(super) since: c_int,
    pub(super) name: &'static str,
    /// Its address.
    pub(super) plain: fn() -> usize,
    /// The address of the same with stream 0 as the per-thread default stream.
    pub(super) per_thread: fn() -> usize,
}

macro_rules! exports {
    ($($base:literal $since:literal $name:ident($($arg:ident: $ty:ty),*) => $body:path $(; keeps $kept:expr)?;)*) => {
        $(
            // SAFETY: the name is the driver's own, and this library is loaded in its place, into a scope of its own.
            #[unsafe(no_mangle)]
            extern "C" fn $name($($arg: $ty),*) -> Status {
                let stream = None $(.or(Arg::stream($arg)))*;
                exports!(@call $name, stream, $body, ($($arg),*) $(, $kept)?)
            }
        )*

        pub(super) static EXPORTS: &[Export] = &[$(Export {
            base: $base,
            since: $since,
            name: stringify!($name),
            plain: || $name as *const () as usize,
            per_thread: || {
                extern "C" fn per_thread($($arg: $ty),*) -> Status {
                    $name($(Arg::per_thread($arg)),*)
                }
                per_thread as *const () as usize
            },
        }),*];
    };
    (@call $name:ident, $stream:ident, $body:path, ($($arg:ident),*)) => {
        gate::call(stringify!($name), $stream, |state| $body(state $(, $arg)*))
    };
    // What the body keeps from one attempt to the next.
    (@call $name:ident, $stream:ident, $body:path, ($($arg:ident),*), $kept:expr) => {{
        let mut kept = $kept;
        gate::call(stringify!($name), $stream, |state| $body(state, &mut kept $(, $arg)*))
    }};
}

exports! {
    "cuInit" 2000 cuInit(flags: c_uint) => device::init;
    "cuDriverGetVersion" 2020 cuDriverGetVersion(out: Out<c_int>) => device::driver_version;
    "cuGetProcAddress" 11030 cuGetProcAddress(name: Text, out: Out<usize>, version: c_int, flags: u64) => lookup::get;
    "cuGetProcAddress" 12000 cuGetProcAddress_v2(name: Text, out: Out<usize>, version: c_int, flags: u64, found: Out<c_int>) => lookup::get_v2;
    "cuGetErrorName" 6000 cuGetErrorName(status: Status, out: Out<usize>) => device::error_name;
    "cuGetErrorString" 6000 cuGetErrorString(status: Status, out: Out<usize>) => device::error_text;

    "cuDeviceGetCount" 2000 cuDeviceGetCount(out: Out<c_int>) => device::count;
    "cuDeviceGet" 2000 cuDeviceGet(out: Out<c_int>, ordinal: c_int) => device::get;
    "cuDeviceGetName" 2000 cuDeviceGetName(out: Chars, len: c_int, device: c_int) => device::name;
    "cuDeviceGetUuid" 9020 cuDeviceGetUuid(out: Out<[c_char; 16]>, device: c_int) => device::uuid;
    "cuDeviceGetUuid" 11040 cuDeviceGetUuid_v2(out: Out<[c_char; 16]>, device: c_int) => device::uuid;
    "cuDeviceGetAttribute" 2000 cuDeviceGetAttribute(out: Out<c_int>, attribute: c_int, device: c_int) => device::attribute;
    "cuDeviceTotalMem" 3020 cuDeviceTotalMem_v2(out: Out<usize>, device: c_int) => device::total_memory;

    "cuDevicePrimaryCtxRetain" 7000 cuDevicePrimaryCtxRetain(out: Out<u64>, device: c_int) => context::primary_retain;
    "cuDevicePrimaryCtxRelease" 7000 cuDevicePrimaryCtxRelease(device: c_int) => context::primary_release;
    "cuDevicePrimaryCtxRelease" 11000 cuDevicePrimaryCtxRelease_v2(device: c_int) => context::primary_release;
    "cuDevicePrimaryCtxGetState" 7000 cuDevicePrimaryCtxGetState(device: c_int, flags: Out<c_uint>, active: Out<c_int>) => context::primary_state;
    "cuCtxCreate" 3020 cuCtxCreate_v2(out: Out<u64>, flags: c_uint, device: c_int) => context::create;
    "cuCtxCreate" 11040 cuCtxCreate_v3(out: Out<u64>, affinities: List<u8>, count: c_int, flags: c_uint, device: c_int) => context::create_v3;
    "cuCtxCreate" 12050 cuCtxCreate_v4(out: Out<u64>, params: List<u8>, flags: c_uint, device: c_int) => context::create_v4;
    "cuCtxDestroy" 4000 cuCtxDestroy_v2(context: u64) => context::destroy;
    "cuCtxPushCurrent" 4000 cuCtxPushCurrent_v2(context: u64) => context::push;
    "cuCtxPopCurrent" 4000 cuCtxPopCurrent_v2(out: Out<u64>) => context::pop;
    "cuCtxGetCurrent" 4000 cuCtxGetCurrent(out: Out<u64>) => context::get_current;
    "cuCtxSetCurrent" 4000 cuCtxSetCurrent(context: u64) => context::set_current;
    "cuCtxGetDevice" 2000 cuCtxGetDevice(out: Out<c_int>) => context::get_device;
    "cuCtxGetDevice" 13000 cuCtxGetDevice_v2(out: Out<c_int>, context: u64) => context::get_device_v2;
    "cuCtxGetFlags" 7000 cuCtxGetFlags(out: Out<c_uint>) => context::get_flags;
    "cuCtxSetFlags" 12010 cuCtxSetFlags(flags: c_uint) => context::set_flags;
    "cuCtxGetId" 12000 cuCtxGetId(context: u64, out: Out<u64>) => context::get_id;
    "cuCtxGetStreamPriorityRange" 5050 cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) => context::priority_range;
    "cuCtxSynchronize" 2000 cuCtxSynchronize() => context::synchronize;
    "cuCtxSynchronize" 13000 cuCtxSynchronize_v2(context: u64) => context::synchronize_v2;

    "cuStreamCreate" 2000 cuStreamCreate(out: Out<u64>, flags: c_uint) => stream::create;
    "cuStreamCreateWithPriority" 5050 cuStreamCreateWithPriority(out: Out<u64>, flags: c_uint, priority: c_int) => stream::create_with_priority;
    "cuStreamGetPriority" 5050 cuStreamGetPriority(stream: StreamArg, out: Out<c_int>) => stream::get_priority;
    "cuStreamGetFlags" 5050 cuStreamGetFlags(stream: StreamArg, out: Out<c_uint>) => stream::get_flags;
    "cuStreamGetCtx" 9020 cuStreamGetCtx(stream: StreamArg, out: Out<u64>) => stream::get_context;
    "cuStreamGetCtx" 12050 cuStreamGetCtx_v2(stream: StreamArg, out: Out<u64>, green: Out<u64>) => stream::get_context_v2;
    "cuStreamGetId" 12000 cuStreamGetId(stream: StreamArg, out: Out<u64>) => stream::get_id;
    "cuStreamGetDevice" 12080 cuStreamGetDevice(stream: StreamArg, out: Out<c_int>) => stream::get_device;
    "cuStreamDestroy" 4000 cuStreamDestroy_v2(stream: StreamArg) => stream::destroy;
    "cuStreamQuery" 2000 cuStreamQuery(stream: StreamArg) => stream::query;
    "cuStreamSynchronize" 2000 cuStreamSynchronize(stream: StreamArg) => stream::synchronize;
    "cuStreamWaitEvent" 3020 cuStreamWaitEvent(stream: StreamArg, event: u64, flags: c_uint) => enqueue::wait_event;
    "cuStreamWriteValue64" 9000 cuStreamWriteValue64(stream: StreamArg, address: u64, value: u64, flags: c_uint) => enqueue::write_value_v1;
    "cuStreamWriteValue64" 11070 cuStreamWriteValue64_v2(stream: StreamArg, address: u64, value: u64, flags: c_uint) => enqueue::write_value;
    "cuStreamWaitValue64" 11070 cuStreamWaitValue64_v2(stream: StreamArg, address: u64, value: u64, flags: c_uint) => enqueue::wait_value;
    "cuLaunchHostFunc" 10000 cuLaunchHostFunc(stream: StreamArg, function: Option<HostFn>, data: Address) => enqueue::launch_host;

    "cuEventCreate" 2000 cuEventCreate(out: Out<u64>, flags: c_uint) => event::create;
    "cuEventRecord" 2000 cuEventRecord(event: u64, stream: StreamArg) => event::record;
    "cuEventQuery" 2000 cuEventQuery(event: u64) => event::query;
    "cuEventSynchronize" 2000 cuEventSynchronize(event: u64) => event::synchronize;
    "cuEventDestroy" 4000 cuEventDestroy_v2(event: u64) => event::destroy;
    "cuEventElapsedTime" 2000 cuEventElapsedTime(out: Out<f32>, start: u64, end: u64) => event::elapsed;
    "cuEventElapsedTime" 12080 cuEventElapsedTime_v2(out: Out<f32>, start: u64, end: u64) => event::elapsed;

    "cuMemHostAlloc" 2020 cuMemHostAlloc(out: Out<u64>, bytes: usize, flags: c_uint) => memory::host_allocate;
    "cuMemFreeHost" 2000 cuMemFreeHost(address: Address) => memory::host_free;
    "cuMemHostGetDevicePointer" 3020 cuMemHostGetDevicePointer_v2(out: Out<u64>, address: Address, flags: c_uint) => memory::host_device_pointer;
    "cuMemAlloc" 3020 cuMemAlloc_v2(out: Out<u64>, bytes: usize) => memory::allocate;
    "cuMemFree" 3020 cuMemFree_v2(address: u64) => memory::free;
    "cuMemAllocAsync" 11020 cuMemAllocAsync(out: Out<u64>, bytes: usize, stream: StreamArg) => enqueue::allocate_async;
    "cuMemFreeAsync" 11020 cuMemFreeAsync(address: u64, stream: StreamArg) => enqueue::free_async;
    "cuDeviceGetDefaultMemPool" 11020 cuDeviceGetDefaultMemPool(out: Out<u64>, device: c_int) => pool::default_of;
    "cuMemPoolGetAttribute" 11020 cuMemPoolGetAttribute(pool: u64, attribute: c_int, value: Out<u64>) => pool::get_attribute;
    "cuMemPoolTrimTo" 11020 cuMemPoolTrimTo(pool: u64, keep: usize) => pool::trim;
    "cuMemPoolSetAttribute" 11020 cuMemPoolSetAttribute(pool: u64, attribute: c_int, value: Out<u64>) => pool::set_attribute;
    "cuMemPoolSetAccess" 11020 cuMemPoolSetAccess(pool: u64, access: List<peer::Access>, count: usize) => peer::set_access;
    "cuDeviceCanAccessPeer" 4000 cuDeviceCanAccessPeer(out: Out<c_int>, device: c_int, other: c_int) => peer::can_access;
    "cuCtxEnablePeerAccess" 4000 cuCtxEnablePeerAccess(other: u64, flags: c_uint) => peer::enable;
    "cuMemcpyPeerAsync" 4000 cuMemcpyPeerAsync(to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: StreamArg) => peer::copy;
    "cuMemGetInfo" 3020 cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) => memory::info;
    "cuMemcpyHtoDAsync" 3020 cuMemcpyHtoDAsync_v2(to: u64, from: Address, bytes: usize, stream: StreamArg) => enqueue::copy_to_device;
    "cuMemcpyDtoHAsync" 3020 cuMemcpyDtoHAsync_v2(to: Address, from: u64, bytes: usize, stream: StreamArg) => enqueue::copy_to_host; keeps None;
    "cuMemcpyDtoDAsync" 3020 cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: StreamArg) => enqueue::copy_on_device;
    "cuMemcpy2DAsync" 3020 cuMemcpy2DAsync_v2(what: List<Copy2d>, stream: StreamArg) => enqueue::copy_rows;
    "cuMemsetD8Async" 3020 cuMemsetD8Async(to: u64, value: u8, bytes: usize, stream: StreamArg) => enqueue::fill;
    "cuMemsetD16Async" 3020 cuMemsetD16Async(to: u64, value: u16, count: usize, stream: StreamArg) => enqueue::fill_twos;
    "cuMemsetD32Async" 3020 cuMemsetD32Async(to: u64, value: u32, count: usize, stream: StreamArg) => enqueue::fill_fours;

    "cuStreamIsCapturing" 10000 cuStreamIsCapturing(stream: StreamArg, out: Out<c_int>) => capture::is_capturing;
    "cuStreamGetCaptureInfo" 11030 cuStreamGetCaptureInfo_v2(stream: StreamArg, status: Out<c_int>, id: Out<u64>, graph: Out<u64>, dependencies: Out<usize>, count: Out<usize>) => capture::info;
    "cuStreamGetCaptureInfo" 12030 cuStreamGetCaptureInfo_v3(stream: StreamArg, status: Out<c_int>, id: Out<u64>, graph: Out<u64>, dependencies: Out<usize>, edges: Out<usize>, count: Out<usize>) => capture::info_v3;
    "cuStreamBeginCapture" 10010 cuStreamBeginCapture_v2(stream: StreamArg, mode: c_uint) => capture::begin;
    "cuStreamEndCapture" 10000 cuStreamEndCapture(stream: StreamArg, graph: Out<u64>) => capture::end;
    "cuThreadExchangeStreamCaptureMode" 10010 cuThreadExchangeStreamCaptureMode(mode: Out<c_uint>) => capture::exchange_mode;
    "cuGraphInstantiateWithFlags" 11040 cuGraphInstantiateWithFlags(out: Out<u64>, graph: u64, flags: u64) => graph::instantiate;
    "cuGraphInstantiateWithParams" 12000 cuGraphInstantiateWithParams(out: Out<u64>, graph: u64, params: Out<InstantiateParams>) => graph::instantiate_with;
    "cuGraphExecUpdate" 12000 cuGraphExecUpdate_v2(exec: u64, graph: u64, info: Out<UpdateInfo>) => graph::update;
    "cuGraphExecKernelNodeSetParams" 12000 cuGraphExecKernelNodeSetParams_v2(exec: u64, node: u64, params: List<KernelParams>) => graph::set_kernel;
    "cuGraphGetNodes" 10000 cuGraphGetNodes(graph: u64, nodes: Out<u64>, count: Out<usize>) => graph::nodes;
    "cuGraphNodeGetType" 10000 cuGraphNodeGetType(node: u64, out: Out<c_int>) => graph::node_type;
    "cuGraphKernelNodeGetParams" 12000 cuGraphKernelNodeGetParams_v2(node: u64, out: Out<KernelParams>) => graph::get_kernel;
    "cuGraphNodeGetDependencies" 10000 cuGraphNodeGetDependencies(node: u64, nodes: Out<u64>, count: Out<usize>) => graph::dependencies;
    "cuGraphLaunch" 10000 cuGraphLaunch(exec: u64, stream: StreamArg) => graph::launch;
    "cuGraphExecDestroy" 10000 cuGraphExecDestroy(exec: u64) => graph::destroy_exec;
    "cuGraphDestroy" 10000 cuGraphDestroy(graph: u64) => graph::destroy;

    "cuModuleLoadData" 2000 cuModuleLoadData(out: Out<u64>, image: Image) => module::load;
    "cuModuleLoadDataEx" 2010 cuModuleLoadDataEx(out: Out<u64>, image: Image, count: c_uint, options: List<c_int>, values: List<usize>) => module::load_with_options;
    "cuModuleUnload" 2000 cuModuleUnload(module: u64) => module::unload;
    "cuModuleGetFunction" 2000 cuModuleGetFunction(out: Out<u64>, module: u64, name: Text) => module::get_function;
    "cuLaunchKernel" 4000 cuLaunchKernel(function: u64, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: StreamArg, parameters: Params, extra: List<usize>) => module::launch;
    "cuLaunchKernelEx" 11060 cuLaunchKernelEx(config: List<LaunchConfig>, function: u64, parameters: Params, extra: List<usize>) => module::launch_with_attributes;
    "cuFuncGetName" 12030 cuFuncGetName(out: Out<usize>, function: u64) => module::name;
    "cuFuncGetAttribute" 2020 cuFuncGetAttribute(out: Out<c_int>, attribute: c_int, function: u64) => module::get_attribute;
    "cuFuncSetAttribute" 9000 cuFuncSetAttribute(function: u64, attribute: c_int, value: c_int) => module::set_attribute;
    "cuFuncGetParamInfo" 12040 cuFuncGetParamInfo(function: u64, index: usize, offset: Out<usize>, bytes: Out<usize>) => module::parameter;
}
