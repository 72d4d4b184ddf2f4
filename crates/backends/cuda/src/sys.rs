//! The driver's C interface: its types, its numbers, and one table of its functions.
//!
//! The table is the only place that knows symbols. A row has the function's name, the CUDA version whose binary interface
//! the arguments are of, the name under which a library exports just that one, and what needs it: `required`, or a bit of
//! [`Caps`] that is unset where the function is absent. To add a function is to add its row.
//!
//! Invariants: the arguments of a row are those of the type `PFN_<name>_v<version>` in NVIDIA's `cudaTypedefs.h`; every function
//! returns a [`CUresult`].

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::caps::Caps;

// The C names are kept, so that what is read here can be looked up there.
pub(crate) type CUresult = c_int;
pub(crate) type CUdevice = c_int;
pub(crate) type CUdeviceptr = u64;
pub(crate) type CUcontext = *mut c_void;
pub(crate) type CUstream = *mut c_void;
pub(crate) type CUevent = *mut c_void;
pub(crate) type CUmemoryPool = *mut c_void;
pub(crate) type CUmodule = *mut c_void;
pub(crate) type CUfunction = *mut c_void;
pub(crate) type CUgraph = *mut c_void;
pub(crate) type CUgraphExec = *mut c_void;
pub(crate) type CUgraphNode = *mut c_void;
pub(crate) type CUhostFn = unsafe extern "C" fn(data: *mut c_void);
/// What [`Symbols::cuMemcpy2DAsync`] copies.
#[allow(non_camel_case_types, non_snake_case)]
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CUDA_MEMCPY2D {
    pub(crate) srcXInBytes: usize,
    pub(crate) srcY: usize,
    pub(crate) srcMemoryType: c_uint,
    pub(crate) srcHost: *const c_void,
    pub(crate) srcDevice: CUdeviceptr,
    pub(crate) srcArray: *mut c_void,
    pub(crate) srcPitch: usize,
    pub(crate) dstXInBytes: usize,
    pub(crate) dstY: usize,
    pub(crate) dstMemoryType: c_uint,
    pub(crate) dstHost: *mut c_void,
    pub(crate) dstDevice: CUdeviceptr,
    pub(crate) dstArray: *mut c_void,
    pub(crate) dstPitch: usize,
    pub(crate) WidthInBytes: usize,
    pub(crate) Height: usize,
}
/// Sixteen bytes.
pub(crate) type CUuuid = [u8; 16];

#[cfg(not(target_pointer_width = "64"))]
compile_error!("CUDA's driver has a 64-bit interface alone: build without the CUDA backend for this target");

/// Return codes that the code decides by; all others are looked at in [`error`](crate::error) alone.
pub(crate) const CUDA_SUCCESS: CUresult = 0;
pub(crate) const CUDA_ERROR_INVALID_VALUE: CUresult = 1;
pub(crate) const CUDA_ERROR_OUT_OF_MEMORY: CUresult = 2;
pub(crate) const CUDA_ERROR_STUB_LIBRARY: CUresult = 34;
pub(crate) const CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER: CUresult = 36;
pub(crate) const CUDA_ERROR_NO_DEVICE: CUresult = 100;
#[cfg(feature = "ops")]
pub(crate) const CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE: CUresult = 910;
#[cfg(feature = "ops")]
pub(crate) const CUDA_ERROR_LOSSY_QUERY: CUresult = 912;
pub(crate) const CUDA_ERROR_ILLEGAL_STATE: CUresult = 401;
pub(crate) const CUDA_ERROR_NOT_READY: CUresult = 600;
#[cfg(feature = "ops")]
pub(crate) const CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: CUresult = 704;
pub(crate) const CUDA_ERROR_NOT_SUPPORTED: CUresult = 801;
pub(crate) const CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: CUresult = 803;
pub(crate) const CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: CUresult = 804;

pub(crate) const CU_STREAM_LEGACY: usize = 1;
pub(crate) const CU_STREAM_PER_THREAD: usize = 2;
pub(crate) const CU_STREAM_NON_BLOCKING: c_uint = 1;
pub(crate) const CU_STREAM_WRITE_VALUE_DEFAULT: c_uint = 0;
pub(crate) const CU_STREAM_WAIT_VALUE_GEQ: c_uint = 0;
pub(crate) const CU_STREAM_CAPTURE_STATUS_NONE: c_int = 0;
pub(crate) const CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: c_int = 1;
pub(crate) const CU_STREAM_CAPTURE_MODE_RELAXED: c_int = 2;
pub(crate) const CU_EVENT_BLOCKING_SYNC: c_uint = 1;
pub(crate) const CU_EVENT_DISABLE_TIMING: c_uint = 2;
pub(crate) const CU_CTX_SCHED_AUTO: c_uint = 0;
pub(crate) const CU_CTX_SCHED_SPIN: c_uint = 1;
pub(crate) const CU_CTX_SCHED_YIELD: c_uint = 2;
pub(crate) const CU_CTX_SCHED_BLOCKING_SYNC: c_uint = 4;
pub(crate) const CU_CTX_SCHED_MASK: c_uint = 7;
pub(crate) const CU_MEMHOSTALLOC_PORTABLE: c_uint = 1;
pub(crate) const CU_MEMHOSTALLOC_DEVICEMAP: c_uint = 2;
pub(crate) const CU_MEMORYTYPE_HOST: c_uint = 1;
pub(crate) const CU_MEMORYTYPE_DEVICE: c_uint = 2;
pub(crate) const CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: c_int = 4;
pub(crate) const CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: c_int = 5;
#[cfg(feature = "ops")]
pub(crate) const CU_MEM_LOCATION_TYPE_DEVICE: c_int = 1;
#[cfg(feature = "ops")]
pub(crate) const CU_MEM_ACCESS_FLAGS_PROT_READWRITE: c_int = 3;
pub(crate) const CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;
pub(crate) const CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: c_int = 14;
pub(crate) const CU_LAUNCH_ATTRIBUTE_COOPERATIVE: c_uint = 2;
pub(crate) const CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: c_uint = 4;
pub(crate) const CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: c_uint = 6;
pub(crate) const CU_JIT_ERROR_LOG_BUFFER: c_int = 5;
pub(crate) const CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: c_int = 6;

/// An attribute of a launch: its number, and its value in the room of the largest.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CUlaunchAttribute {
    pub(crate) id: c_uint,
    /// `value` is aligned to eight bytes.
    pub(crate) pad: c_uint,
    /// 64 bytes; those used here are of one to three numbers of 32 bits, which come first.
    pub(crate) value: [c_uint; 16],
}

/// What `cuLaunchKernelEx` launches.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CUlaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) stream: CUstream,
    pub(crate) attributes: *mut CUlaunchAttribute,
    pub(crate) attribute_count: c_uint,
}

/// Who may do what with memory: what [`Symbols::cuMemPoolSetAccess`] is handed.
#[cfg_attr(not(feature = "ops"), allow(dead_code))]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CUmemAccessDesc {
    pub(crate) location_type: c_int,
    pub(crate) location_id: c_int,
    pub(crate) flags: c_int,
}

/// What [`Symbols::cuGraphInstantiateWithParams`] is handed, and tells.
#[cfg_attr(not(feature = "ops"), allow(dead_code))]
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CUDA_GRAPH_INSTANTIATE_PARAMS {
    pub(crate) flags: u64,
    pub(crate) upload_stream: CUstream,
    pub(crate) error_node: CUgraphNode,
    pub(crate) result: c_int,
}

/// What [`Symbols::cuGraphExecUpdate`] tells.
#[cfg_attr(not(feature = "ops"), allow(dead_code))]
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CUgraphExecUpdateResultInfo {
    pub(crate) result: c_int,
    pub(crate) error_node: CUgraphNode,
    pub(crate) error_from_node: CUgraphNode,
}

/// What a node of a kernel launches.
#[cfg_attr(not(feature = "ops"), allow(dead_code))]
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CUDA_KERNEL_NODE_PARAMS {
    pub(crate) function: CUfunction,
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) parameters: *mut *mut c_void,
    pub(crate) extra: *mut *mut c_void,
    pub(crate) kernel: *mut c_void,
    pub(crate) context: CUcontext,
}

/// The type of a function with these arguments.
macro_rules! function {
    ($($argument:ty),*) => { unsafe extern "system" fn($($argument),*) -> CUresult };
}

wakeline_mapped::symbols! { Caps, CUresult;
    // the process
    cuInit 2000 "cuInit" required (c_uint);
    cuGetErrorName 6000 "cuGetErrorName" required (CUresult, *mut *const c_char);
    cuGetErrorString 6000 "cuGetErrorString" required (CUresult, *mut *const c_char);

    // devices
    cuDeviceGetCount 2000 "cuDeviceGetCount" required (*mut c_int);
    cuDeviceGet 2000 "cuDeviceGet" required (*mut CUdevice, c_int);
    cuDeviceGetName 2000 "cuDeviceGetName" required (*mut c_char, c_int, CUdevice);
    cuDeviceGetAttribute 2000 "cuDeviceGetAttribute" required (*mut c_int, c_int, CUdevice);
    cuDeviceTotalMem 3020 "cuDeviceTotalMem_v2" required (*mut usize, CUdevice);
    cuDeviceGetUuid 11040 "cuDeviceGetUuid_v2" UUIDS (*mut CUuuid, CUdevice);

    // contexts
    cuDevicePrimaryCtxRetain 7000 "cuDevicePrimaryCtxRetain" required (*mut CUcontext, CUdevice);
    cuDevicePrimaryCtxRelease 11000 "cuDevicePrimaryCtxRelease_v2" required (CUdevice);
    cuDevicePrimaryCtxGetState 7000 "cuDevicePrimaryCtxGetState" required (CUdevice, *mut c_uint, *mut c_int);
    cuCtxCreate 3020 "cuCtxCreate_v2" required (*mut CUcontext, c_uint, CUdevice);
    cuCtxDestroy 4000 "cuCtxDestroy_v2" required (CUcontext);
    cuCtxGetCurrent 4000 "cuCtxGetCurrent" required (*mut CUcontext);
    cuCtxSetCurrent 4000 "cuCtxSetCurrent" required (CUcontext);
    cuCtxPushCurrent 4000 "cuCtxPushCurrent_v2" required (CUcontext);
    cuCtxPopCurrent 4000 "cuCtxPopCurrent_v2" required (*mut CUcontext);
    cuCtxGetDevice 2000 "cuCtxGetDevice" required (*mut CUdevice);
    cuCtxGetFlags 7000 "cuCtxGetFlags" CONTEXT_FLAGS (*mut c_uint);
    cuCtxSetFlags 12010 "cuCtxSetFlags" CONTEXT_FLAGS (c_uint);
    cuCtxGetStreamPriorityRange 5050 "cuCtxGetStreamPriorityRange" PRIORITIES (*mut c_int, *mut c_int);

    // streams
    cuStreamCreateWithPriority 5050 "cuStreamCreateWithPriority" required (*mut CUstream, c_uint, c_int);
    cuStreamDestroy 4000 "cuStreamDestroy_v2" required (CUstream);
    cuStreamQuery 2000 "cuStreamQuery" required (CUstream);
    cuStreamSynchronize 2000 "cuStreamSynchronize" SYNCHRONIZE (CUstream);
    // Of 12.5 on it has a third argument, for green contexts.
    cuStreamGetCtx 9020 "cuStreamGetCtx" required (CUstream, *mut CUcontext);
    cuStreamWaitEvent 3020 "cuStreamWaitEvent" DEVICE_WAITS (CUstream, CUevent, c_uint);
    // The one of 9.0 says NOT_SUPPORTED on drivers that have this one.
    cuStreamWriteValue64 11070 "cuStreamWriteValue64_v2" STORE_WORDS (CUstream, CUdeviceptr, u64, c_uint);
    cuStreamWaitValue64 11070 "cuStreamWaitValue64_v2" WAIT_WORDS (CUstream, CUdeviceptr, u64, c_uint);
    // Of 13.1 on it has a fourth argument.
    cuLaunchHostFunc 10000 "cuLaunchHostFunc" HOST_FUNCTIONS (CUstream, CUhostFn, *mut c_void);

    // captures and graphs
    cuStreamIsCapturing 10000 "cuStreamIsCapturing" required (CUstream, *mut c_int);
    cuThreadExchangeStreamCaptureMode 10010 "cuThreadExchangeStreamCaptureMode" CAPTURE_MODE (*mut c_int);
    cuStreamBeginCapture 10010 "cuStreamBeginCapture_v2" GRAPHS (CUstream, c_int);
    cuStreamEndCapture 10000 "cuStreamEndCapture" GRAPHS (CUstream, *mut CUgraph);
    cuGraphInstantiateWithFlags 11040 "cuGraphInstantiateWithFlags" GRAPHS (*mut CUgraphExec, CUgraph, u64);
    cuGraphLaunch 10000 "cuGraphLaunch" GRAPHS (CUgraphExec, CUstream);
    cuGraphExecDestroy 10000 "cuGraphExecDestroy" GRAPHS (CUgraphExec);
    cuGraphDestroy 10000 "cuGraphDestroy" GRAPHS (CUgraph);
    cuGraphInstantiateWithParams 12000 "cuGraphInstantiateWithParams" GRAPH_CHANGES (
        *mut CUgraphExec,
        CUgraph,
        *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    );
    // The one of 10.2 tells less.
    cuGraphExecUpdate 12000 "cuGraphExecUpdate_v2" GRAPH_CHANGES (
        CUgraphExec,
        CUgraph,
        *mut CUgraphExecUpdateResultInfo,
    );
    cuGraphExecKernelNodeSetParams 12000 "cuGraphExecKernelNodeSetParams_v2" GRAPH_CHANGES (
        CUgraphExec,
        CUgraphNode,
        *const CUDA_KERNEL_NODE_PARAMS,
    );
    cuGraphGetNodes 10000 "cuGraphGetNodes" GRAPH_CHANGES (CUgraph, *mut CUgraphNode, *mut usize);
    cuGraphNodeGetType 10000 "cuGraphNodeGetType" GRAPH_CHANGES (CUgraphNode, *mut c_int);
    cuGraphKernelNodeGetParams 12000 "cuGraphKernelNodeGetParams_v2" GRAPH_CHANGES (
        CUgraphNode,
        *mut CUDA_KERNEL_NODE_PARAMS,
    );
    // The one of 12.3, which tells of how they depend too, goes by another name until 13.0.
    cuGraphNodeGetDependencies 10000 "cuGraphNodeGetDependencies" GRAPH_CHANGES (
        CUgraphNode,
        *mut CUgraphNode,
        *mut usize,
    );
    cuFuncGetName 12030 "cuFuncGetName" GRAPH_NODES (*mut *const c_char, CUfunction);

    // events
    cuEventCreate 2000 "cuEventCreate" required (*mut CUevent, c_uint);
    cuEventRecord 2000 "cuEventRecord" required (CUevent, CUstream);
    cuEventQuery 2000 "cuEventQuery" required (CUevent);
    cuEventSynchronize 2000 "cuEventSynchronize" SYNCHRONIZE (CUevent);
    cuEventDestroy 4000 "cuEventDestroy_v2" required (CUevent);

    // memory
    cuMemHostAlloc 2020 "cuMemHostAlloc" required (*mut *mut c_void, usize, c_uint);
    cuMemFreeHost 2000 "cuMemFreeHost" required (*mut c_void);
    cuMemHostGetDevicePointer 3020 "cuMemHostGetDevicePointer_v2" required (*mut CUdeviceptr, *mut c_void, c_uint);
    cuMemAlloc 3020 "cuMemAlloc_v2" COPIES (*mut CUdeviceptr, usize);
    cuMemFree 3020 "cuMemFree_v2" COPIES (CUdeviceptr);
    cuMemcpyHtoDAsync 3020 "cuMemcpyHtoDAsync_v2" COPIES (CUdeviceptr, *const c_void, usize, CUstream);
    cuMemcpyDtoHAsync 3020 "cuMemcpyDtoHAsync_v2" COPIES (*mut c_void, CUdeviceptr, usize, CUstream);
    cuMemcpyDtoDAsync 3020 "cuMemcpyDtoDAsync_v2" COPIES (CUdeviceptr, CUdeviceptr, usize, CUstream);
    cuMemcpy2DAsync 3020 "cuMemcpy2DAsync_v2" COPIES (*const CUDA_MEMCPY2D, CUstream);
    cuMemsetD8Async 3020 "cuMemsetD8Async" COPIES (CUdeviceptr, u8, usize, CUstream);
    cuMemsetD16Async 3020 "cuMemsetD16Async" COPIES (CUdeviceptr, u16, usize, CUstream);
    cuMemsetD32Async 3020 "cuMemsetD32Async" COPIES (CUdeviceptr, u32, usize, CUstream);

    // memory in the order of streams
    cuMemAllocAsync 11020 "cuMemAllocAsync" MEMORY_POOLS (*mut CUdeviceptr, usize, CUstream);
    cuMemFreeAsync 11020 "cuMemFreeAsync" MEMORY_POOLS (CUdeviceptr, CUstream);
    cuDeviceGetDefaultMemPool 11020 "cuDeviceGetDefaultMemPool" MEMORY_POOLS (*mut CUmemoryPool, CUdevice);
    cuMemPoolGetAttribute 11020 "cuMemPoolGetAttribute" MEMORY_POOLS (CUmemoryPool, c_int, *mut c_void);
    cuMemPoolTrimTo 11020 "cuMemPoolTrimTo" MEMORY_POOLS (CUmemoryPool, usize);
    cuMemPoolSetAttribute 11020 "cuMemPoolSetAttribute" MEMORY_POOLS (CUmemoryPool, c_int, *mut c_void);

    // several devices
    cuDeviceCanAccessPeer 4000 "cuDeviceCanAccessPeer" PEERS (*mut c_int, CUdevice, CUdevice);
    cuCtxEnablePeerAccess 4000 "cuCtxEnablePeerAccess" PEERS (CUcontext, c_uint);
    cuMemcpyPeerAsync 4000 "cuMemcpyPeerAsync" PEERS (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, usize, CUstream);
    cuMemPoolSetAccess 11020 "cuMemPoolSetAccess" PEERS (CUmemoryPool, *const CUmemAccessDesc, usize);

    // kernels
    cuModuleLoadDataEx 2010 "cuModuleLoadDataEx" MODULES (
        *mut CUmodule,
        *const c_void,
        c_uint,
        *mut c_int,
        *mut *mut c_void,
    );
    cuModuleUnload 2000 "cuModuleUnload" MODULES (CUmodule);
    cuModuleGetFunction 2000 "cuModuleGetFunction" MODULES (*mut CUfunction, CUmodule, *const c_char);
    cuLaunchKernel 4000 "cuLaunchKernel" MODULES (
        CUfunction,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        CUstream,
        *mut *mut c_void,
        *mut *mut c_void,
    );
    cuLaunchKernelEx 11060 "cuLaunchKernelEx" LAUNCH_ATTRIBUTES (
        *const CUlaunchConfig,
        CUfunction,
        *mut *mut c_void,
        *mut *mut c_void,
    );
    cuFuncGetAttribute 2020 "cuFuncGetAttribute" KERNEL_ATTRIBUTES (*mut c_int, c_int, CUfunction);
    cuFuncSetAttribute 9000 "cuFuncSetAttribute" KERNEL_ATTRIBUTES (CUfunction, c_int, c_int);
    cuFuncGetParamInfo 12040 "cuFuncGetParamInfo" PARAMETER_INFO (CUfunction, usize, *mut usize, *mut usize);
}

/// `cuDriverGetVersion`: looked up by its one name, before the others, since it says what may be asked for.
pub(crate) type DriverGetVersion = function!(*mut c_int);
/// `cuGetProcAddress_v2`, of 12.0 on.
pub(crate) type GetProcAddressV2 = function!(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int);
/// `cuGetProcAddress`, of 11.3 on.
pub(crate) type GetProcAddress = function!(*const c_char, *mut *mut c_void, c_int, u64);
/// Those for the legacy default stream, which is what the numbers 0 and 1 mean here.
pub(crate) const CU_GET_PROC_ADDRESS_DEFAULT: u64 = 0;

#[cfg(test)]
mod tests {
    use core::ptr::NonNull;

    use super::*;

    #[test]
    fn a_table_of_nothing_names_the_first_row() {
        // SAFETY: nothing is found, so nothing is claimed.
        let missing = unsafe { Symbols::find(|_| None) }.unwrap_err();
        assert_eq!(missing.name, "cuInit");
    }

    #[test]
    fn a_missing_function_takes_its_capability_and_no_other() {
        extern "C" fn never() {}
        let address = NonNull::new(never as *mut c_void);
        // SAFETY: no function of the table is called.
        let found = unsafe { Symbols::find(|wanted| address.filter(|_| wanted.name != "cuGraphLaunch")) };
        let (symbols, caps) = found.unwrap();
        assert_eq!(caps, Caps::all() - Caps::GRAPHS);
        assert!(symbols.cuGraphLaunch.is_none());
        assert!(symbols.cuGraphDestroy.is_some());
    }

    #[test]
    fn what_is_handed_in_a_struct_is_laid_out_as_in_the_header() {
        assert_eq!((size_of::<CUlaunchAttribute>(), size_of::<CUlaunchConfig>()), (72, 56));
        assert_eq!(core::mem::offset_of!(CUlaunchAttribute, value), 8);
        assert_eq!(core::mem::offset_of!(CUlaunchConfig, shared_bytes), 24);
        assert_eq!(core::mem::offset_of!(CUlaunchConfig, stream), 32);
        assert_eq!(core::mem::offset_of!(CUlaunchConfig, attributes), 40);
        assert_eq!(core::mem::offset_of!(CUlaunchConfig, attribute_count), 48);
        assert_eq!(
            (size_of::<CUDA_GRAPH_INSTANTIATE_PARAMS>(), size_of::<CUgraphExecUpdateResultInfo>()),
            (32, 24)
        );
        assert_eq!(size_of::<CUDA_KERNEL_NODE_PARAMS>(), 72);
        assert_eq!(core::mem::offset_of!(CUDA_KERNEL_NODE_PARAMS, parameters), 40);
    }

    #[test]
    fn an_exported_name_is_the_functions_own_with_at_most_a_version() {
        for row in Symbols::ROWS {
            let suffix = row.exported.strip_prefix(row.name);
            assert!(matches!(suffix, Some("" | "_v2")), "{row:?}");
        }
    }
}
