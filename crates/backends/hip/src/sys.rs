//! HIP's C interface: its types, its numbers, and one table of its functions.
//!
//! The table is the only place that knows symbols. A row has the function's name, the HIP version that brought it as far as is known here (for messages: 5020 is 5.2), the
//! name under which a library exports it, and what needs it: `required`, or a bit of [`Caps`] that is unset where the function is absent. To add a function is to add its
//! row.
//!
//! Invariants: the arguments of a row are those of `hip/hip_runtime_api.h`, from 5.2 to 6.4 at least; `cargo xtask hip` has a compiler hold the table against the headers
//! that there are.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::caps::Caps;

// The C names are kept, so that what is read here can be looked up there.
#[expect(non_camel_case_types, reason = "the names of the C interface")]
mod types {
    use core::ffi::{c_int, c_uint, c_void};

    pub(crate) type hipError_t = c_int;
    pub(crate) type hipDevice_t = c_int;
    pub(crate) type hipDeviceAttribute_t = c_uint;
    pub(crate) type hipDeviceptr_t = *mut c_void;
    pub(crate) type hipCtx_t = *mut c_void;
    pub(crate) type hipStream_t = *mut c_void;
    pub(crate) type hipEvent_t = *mut c_void;
    pub(crate) type hipMemPool_t = *mut c_void;
    pub(crate) type hipMemPoolAttr = c_uint;
    pub(crate) type hipMemcpyKind = c_uint;
    pub(crate) type hipModule_t = *mut c_void;
    pub(crate) type hipFunction_t = *mut c_void;
    pub(crate) type hipGraph_t = *mut c_void;
    pub(crate) type hipGraphExec_t = *mut c_void;
    pub(crate) type hipGraphNode_t = *mut c_void;
    pub(crate) type hipGraphNodeType = c_uint;
    pub(crate) type hipGraphExecUpdateResult = c_uint;
    pub(crate) type hipStreamCaptureMode = c_uint;
    pub(crate) type hipStreamCaptureStatus = c_uint;
    /// As long as any version's, see [`PROPERTIES_BYTES`](super::PROPERTIES_BYTES).
    pub(crate) type hipDeviceProp_t = c_void;
    /// Who may do what with memory, from 5.2 to 6.4 at least.
    #[repr(C)]
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct hipMemAccessDesc {
        pub(crate) location_type: c_uint,
        pub(crate) location_id: c_int,
        pub(crate) flags: c_uint,
    }
    pub(crate) type hipHostFn_t = unsafe extern "C" fn(data: *mut c_void);
    pub(crate) type hipStreamCallback_t =
        unsafe extern "C" fn(stream: hipStream_t, status: hipError_t, data: *mut c_void);

    /// What a node of a graph launches.
    #[derive(Clone, Copy, Debug)]
    #[repr(C)]
    pub(crate) struct hipKernelNodeParams {
        pub(crate) block: [c_uint; 3],
        pub(crate) extra: *mut *mut c_void,
        pub(crate) function: *mut c_void,
        pub(crate) grid: [c_uint; 3],
        pub(crate) parameters: *mut *mut c_void,
        pub(crate) shared_bytes: c_uint,
    }
}
pub(crate) use types::*;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("HIP has a 64-bit interface alone: build without the HIP backend for this target");

/// Numbers that the code decides by, by their names in the headers; all other statuses are looked at in [`error`](crate::error) alone.
macro_rules! numbers {
    ($($name:ident = $header:literal: $number:ty = $value:literal;)*) => {
        $(pub(crate) const $name: $number = $value;)*

        /// Each with its name in the headers.
        #[cfg(test)]
        #[allow(dead_code, reason = "for those who hold it against a header")]
        pub(crate) const NUMBERS: &[(&str, u64)] = &[$(($header, $value)),*];
    };
}

numbers! {
    SUCCESS = "hipSuccess": hipError_t = 0;
    INVALID_VALUE = "hipErrorInvalidValue": hipError_t = 1;
    OUT_OF_MEMORY = "hipErrorOutOfMemory": hipError_t = 2;
    INSUFFICIENT_DRIVER = "hipErrorInsufficientDriver": hipError_t = 35;
    NO_DEVICE = "hipErrorNoDevice": hipError_t = 100;
    INVALID_DEVICE = "hipErrorInvalidDevice": hipError_t = 101;
    INVALID_HANDLE = "hipErrorInvalidHandle": hipError_t = 400;
    ILLEGAL_STATE = "hipErrorIllegalState": hipError_t = 401;
    NOT_READY = "hipErrorNotReady": hipError_t = 600;
    PEER_ACCESS_ALREADY_ENABLED = "hipErrorPeerAccessAlreadyEnabled": hipError_t = 704;
    NOT_SUPPORTED = "hipErrorNotSupported": hipError_t = 801;
    CAPTURE_UNSUPPORTED = "hipErrorStreamCaptureUnsupported": hipError_t = 900;
    GRAPH_EXEC_UPDATE_FAILURE = "hipErrorGraphExecUpdateFailure": hipError_t = 910;

    STREAM_NON_BLOCKING = "hipStreamNonBlocking": c_uint = 1;
    WAIT_VALUE_GEQ = "hipStreamWaitValueGte": c_uint = 0;
    CAPTURE_STATUS_NONE = "hipStreamCaptureStatusNone": hipStreamCaptureStatus = 0;
    CAPTURE_MODE_THREAD_LOCAL = "hipStreamCaptureModeThreadLocal": hipStreamCaptureMode = 1;
    CAPTURE_MODE_RELAXED = "hipStreamCaptureModeRelaxed": hipStreamCaptureMode = 2;
    UPDATE_TOPOLOGY_CHANGED = "hipGraphExecUpdateErrorTopologyChanged": hipGraphExecUpdateResult = 2;
    UPDATE_NODE_TYPE_CHANGED = "hipGraphExecUpdateErrorNodeTypeChanged": hipGraphExecUpdateResult = 3;
    UPDATE_FUNCTION_CHANGED = "hipGraphExecUpdateErrorFunctionChanged": hipGraphExecUpdateResult = 4;
    UPDATE_PARAMETERS_CHANGED = "hipGraphExecUpdateErrorParametersChanged": hipGraphExecUpdateResult = 5;
    UPDATE_NOT_SUPPORTED = "hipGraphExecUpdateErrorNotSupported": hipGraphExecUpdateResult = 6;
    UPDATE_UNSUPPORTED_FUNCTION = "hipGraphExecUpdateErrorUnsupportedFunctionChange": hipGraphExecUpdateResult = 7;
    EVENT_DISABLE_TIMING = "hipEventDisableTiming": c_uint = 2;
    EVENT_RELEASE_TO_SYSTEM = "hipEventReleaseToSystem": c_uint = 0x8000_0000;
    HOST_PORTABLE = "hipHostMallocPortable": c_uint = 1;
    HOST_MAPPED = "hipHostMallocMapped": c_uint = 2;
    HOST_COHERENT = "hipHostMallocCoherent": c_uint = 0x4000_0000;
    HOST_TO_DEVICE = "hipMemcpyHostToDevice": hipMemcpyKind = 1;
    DEVICE_TO_HOST = "hipMemcpyDeviceToHost": hipMemcpyKind = 2;
    DEVICE_TO_DEVICE = "hipMemcpyDeviceToDevice": hipMemcpyKind = 3;
    POOL_RELEASE_THRESHOLD = "hipMemPoolAttrReleaseThreshold": hipMemPoolAttr = 4;
    LOCATION_DEVICE = "hipMemLocationTypeDevice": c_uint = 1;
    ACCESS_READ_WRITE = "hipMemAccessFlagsProtReadWrite": c_uint = 3;
    POOL_RESERVED = "hipMemPoolAttrReservedMemCurrent": hipMemPoolAttr = 5;

    ATTRIBUTE_MAPS_HOST_MEMORY = "hipDeviceAttributeCanMapHostMemory": u32 = 3;
    ATTRIBUTE_COOPERATIVE_LAUNCH = "hipDeviceAttributeCooperativeLaunch": u32 = 10;
    ATTRIBUTE_INTEGRATED = "hipDeviceAttributeIntegrated": u32 = 16;
    ATTRIBUTE_COMPUTE_MAJOR = "hipDeviceAttributeComputeCapabilityMajor": u32 = 23;
    ATTRIBUTE_BLOCK_X = "hipDeviceAttributeMaxBlockDimX": u32 = 26;
    ATTRIBUTE_BLOCK_Y = "hipDeviceAttributeMaxBlockDimY": u32 = 27;
    ATTRIBUTE_BLOCK_Z = "hipDeviceAttributeMaxBlockDimZ": u32 = 28;
    ATTRIBUTE_GRID_X = "hipDeviceAttributeMaxGridDimX": u32 = 29;
    ATTRIBUTE_GRID_Y = "hipDeviceAttributeMaxGridDimY": u32 = 30;
    ATTRIBUTE_GRID_Z = "hipDeviceAttributeMaxGridDimZ": u32 = 31;
    ATTRIBUTE_BLOCK_THREADS = "hipDeviceAttributeMaxThreadsPerBlock": u32 = 56;
    ATTRIBUTE_COMPUTE_MINOR = "hipDeviceAttributeComputeCapabilityMinor": u32 = 61;
    ATTRIBUTE_MULTIPROCESSORS = "hipDeviceAttributeMultiprocessorCount": u32 = 63;
    ATTRIBUTE_SHARED_BYTES = "hipDeviceAttributeMaxSharedMemoryPerBlock": u32 = 74;
    ATTRIBUTE_UNIFIED_ADDRESSING = "hipDeviceAttributeUnifiedAddressing": u32 = 85;
    ATTRIBUTE_WARP = "hipDeviceAttributeWarpSize": u32 = 87;
    ATTRIBUTE_MEMORY_POOLS = "hipDeviceAttributeMemoryPoolsSupported": u32 = 88;
    ATTRIBUTE_WAITS_FOR_WORDS = "hipDeviceAttributeCanUseStreamWaitValue": u32 = 10_013;
}

/// The null stream, and those that stand for special ones; the second is of 6.2 on.
pub(crate) const STREAM_NULL: usize = 0;
pub(crate) const STREAM_LEGACY: usize = 1;
pub(crate) const STREAM_PER_THREAD: usize = 2;

/// Room for the properties of a device: 792 bytes up to HIP 5, 1,472 from 6 on.
pub(crate) const PROPERTIES_BYTES: usize = 8_192;
/// Where the name of its architecture begins in them, of HIP 6 on and before, and how long it is at most.
pub(crate) const ARCH_NAME_AT_R0600: usize = 1_160;
pub(crate) const ARCH_NAME_AT_R0000: usize = 396;
pub(crate) const ARCH_NAME_BYTES: usize = 256;

wakeline_mapped::symbols! { Caps, hipError_t;
    // the process
    hipInit 1000 "hipInit" required (c_uint);
    hipDriverGetVersion 1000 "hipDriverGetVersion" required (*mut c_int);
    hipGetErrorName 1000 "hipGetErrorName" required (hipError_t) -> *const c_char;
    hipGetErrorString 1000 "hipGetErrorString" required (hipError_t) -> *const c_char;

    // devices
    hipGetDeviceCount 1000 "hipGetDeviceCount" required (*mut c_int);
    hipDeviceGet 1000 "hipDeviceGet" required (*mut hipDevice_t, c_int);
    hipDeviceGetName 1000 "hipDeviceGetName" required (*mut c_char, c_int, hipDevice_t);
    hipDeviceGetAttribute 1000 "hipDeviceGetAttribute" required (*mut c_int, hipDeviceAttribute_t, c_int);
    hipDeviceTotalMem 1000 "hipDeviceTotalMem" required (*mut usize, hipDevice_t);
    hipGetDeviceProperties 1000 "hipGetDeviceProperties" PROPERTIES (*mut hipDeviceProp_t, c_int);
    // Of 6.0 on the header gives this one for the name above.
    hipGetDevicePropertiesR0600 6000 "hipGetDevicePropertiesR0600" PROPERTIES_R0600 (*mut hipDeviceProp_t, c_int);
    hipGetDevice 1000 "hipGetDevice" required (*mut c_int);
    hipSetDevice 1000 "hipSetDevice" required (c_int);
    hipDevicePrimaryCtxRetain 1000 "hipDevicePrimaryCtxRetain" PRIMARY_CONTEXTS (*mut hipCtx_t, hipDevice_t);
    hipDevicePrimaryCtxRelease 1000 "hipDevicePrimaryCtxRelease" PRIMARY_CONTEXTS (hipDevice_t);
    hipDeviceGetStreamPriorityRange 2000 "hipDeviceGetStreamPriorityRange" PRIORITIES (*mut c_int, *mut c_int);

    // streams
    hipStreamCreateWithPriority 2000 "hipStreamCreateWithPriority" required (*mut hipStream_t, c_uint, c_int);
    hipStreamDestroy 1000 "hipStreamDestroy" required (hipStream_t);
    hipStreamQuery 1000 "hipStreamQuery" required (hipStream_t);
    hipStreamSynchronize 1000 "hipStreamSynchronize" required (hipStream_t);
    hipStreamGetDevice 5060 "hipStreamGetDevice" STREAM_DEVICES (hipStream_t, *mut hipDevice_t);
    hipStreamWaitEvent 1000 "hipStreamWaitEvent" required (hipStream_t, hipEvent_t, c_uint);
    hipStreamWriteValue64 4020 "hipStreamWriteValue64" STORE_WORDS (hipStream_t, *mut c_void, u64, c_uint);
    hipStreamWaitValue64 4020 "hipStreamWaitValue64" WAIT_WORDS (hipStream_t, *mut c_void, u64, c_uint, u64);
    hipLaunchHostFunc 5030 "hipLaunchHostFunc" HOST_FUNCTIONS (hipStream_t, hipHostFn_t, *mut c_void);
    hipStreamAddCallback 1000 "hipStreamAddCallback" CALLBACKS (hipStream_t, hipStreamCallback_t, *mut c_void, c_uint);

    // captures and graphs
    hipStreamIsCapturing 4050 "hipStreamIsCapturing" required (hipStream_t, *mut hipStreamCaptureStatus);
    hipThreadExchangeStreamCaptureMode 5000 "hipThreadExchangeStreamCaptureMode" CAPTURE_MODE (*mut hipStreamCaptureMode);
    hipStreamBeginCapture 4030 "hipStreamBeginCapture" GRAPHS (hipStream_t, hipStreamCaptureMode);
    hipStreamEndCapture 4030 "hipStreamEndCapture" GRAPHS (hipStream_t, *mut hipGraph_t);
    hipGraphInstantiate 4030 "hipGraphInstantiate" GRAPHS (
        *mut hipGraphExec_t,
        hipGraph_t,
        *mut hipGraphNode_t,
        *mut c_char,
        usize,
    );
    hipGraphLaunch 4030 "hipGraphLaunch" GRAPHS (hipGraphExec_t, hipStream_t);
    hipGraphExecDestroy 4030 "hipGraphExecDestroy" GRAPHS (hipGraphExec_t);
    hipGraphDestroy 4030 "hipGraphDestroy" GRAPHS (hipGraph_t);
    hipGraphGetNodes 4040 "hipGraphGetNodes" GRAPH_NODES (hipGraph_t, *mut hipGraphNode_t, *mut usize);
    hipGraphNodeGetType 4050 "hipGraphNodeGetType" GRAPH_NODES (hipGraphNode_t, *mut hipGraphNodeType);
    hipGraphNodeGetDependencies 4050 "hipGraphNodeGetDependencies" GRAPH_NODES (
        hipGraphNode_t,
        *mut hipGraphNode_t,
        *mut usize,
    );
    hipGraphCreate 4030 "hipGraphCreate" GRAPH_NODES (*mut hipGraph_t, c_uint);
    hipGraphAddEmptyNode 4040 "hipGraphAddEmptyNode" GRAPH_NODES (
        *mut hipGraphNode_t,
        hipGraph_t,
        *const hipGraphNode_t,
        usize,
    );
    hipGraphExecUpdate 4050 "hipGraphExecUpdate" GRAPH_CHANGES (
        hipGraphExec_t,
        hipGraph_t,
        *mut hipGraphNode_t,
        *mut hipGraphExecUpdateResult,
    );
    hipGraphExecKernelNodeSetParams 4040 "hipGraphExecKernelNodeSetParams" GRAPH_CHANGES (
        hipGraphExec_t,
        hipGraphNode_t,
        *const hipKernelNodeParams,
    );
    hipGraphKernelNodeGetParams 4040 "hipGraphKernelNodeGetParams" KERNEL_NAMES (
        hipGraphNode_t,
        *mut hipKernelNodeParams,
    );
    hipKernelNameRef 4020 "hipKernelNameRef" KERNEL_NAMES (hipFunction_t) -> *const c_char;
    hipKernelNameRefByPtr 4020 "hipKernelNameRefByPtr" KERNEL_NAMES (*const c_void, hipStream_t) -> *const c_char;

    // events
    hipEventCreateWithFlags 1000 "hipEventCreateWithFlags" required (*mut hipEvent_t, c_uint);
    hipEventRecord 1000 "hipEventRecord" required (hipEvent_t, hipStream_t);
    hipEventQuery 1000 "hipEventQuery" required (hipEvent_t);
    hipEventDestroy 1000 "hipEventDestroy" required (hipEvent_t);

    // memory
    hipHostMalloc 1000 "hipHostMalloc" required (*mut *mut c_void, usize, c_uint);
    hipHostFree 1000 "hipHostFree" required (*mut c_void);
    hipHostGetDevicePointer 1000 "hipHostGetDevicePointer" required (*mut *mut c_void, *mut c_void, c_uint);
    hipMalloc 1000 "hipMalloc" COPIES (*mut *mut c_void, usize);
    hipFree 1000 "hipFree" COPIES (*mut c_void);
    hipMemcpyHtoDAsync 1000 "hipMemcpyHtoDAsync" COPIES (hipDeviceptr_t, *mut c_void, usize, hipStream_t);
    hipMemcpyDtoHAsync 1000 "hipMemcpyDtoHAsync" COPIES (*mut c_void, hipDeviceptr_t, usize, hipStream_t);
    hipMemcpyDtoDAsync 1000 "hipMemcpyDtoDAsync" COPIES (hipDeviceptr_t, hipDeviceptr_t, usize, hipStream_t);
    hipMemcpy2DAsync 1000 "hipMemcpy2DAsync" COPIES (
        *mut c_void,
        usize,
        *const c_void,
        usize,
        usize,
        usize,
        hipMemcpyKind,
        hipStream_t,
    );
    hipMemsetD8Async 3000 "hipMemsetD8Async" COPIES (hipDeviceptr_t, u8, usize, hipStream_t);
    hipMemsetD16Async 3000 "hipMemsetD16Async" COPIES (hipDeviceptr_t, u16, usize, hipStream_t);
    hipMemsetD32Async 2000 "hipMemsetD32Async" COPIES (hipDeviceptr_t, c_int, usize, hipStream_t);

    // memory in the order of streams
    hipMallocAsync 5020 "hipMallocAsync" MEMORY_POOLS (*mut *mut c_void, usize, hipStream_t);
    hipFreeAsync 5020 "hipFreeAsync" MEMORY_POOLS (*mut c_void, hipStream_t);
    hipDeviceGetDefaultMemPool 5020 "hipDeviceGetDefaultMemPool" MEMORY_POOLS (*mut hipMemPool_t, c_int);
    hipMemPoolGetAttribute 5020 "hipMemPoolGetAttribute" MEMORY_POOLS (hipMemPool_t, hipMemPoolAttr, *mut c_void);
    hipMemPoolSetAttribute 5020 "hipMemPoolSetAttribute" MEMORY_POOLS (hipMemPool_t, hipMemPoolAttr, *mut c_void);
    hipMemPoolTrimTo 5020 "hipMemPoolTrimTo" MEMORY_POOLS (hipMemPool_t, usize);

    // several devices
    hipDeviceCanAccessPeer 1000 "hipDeviceCanAccessPeer" PEERS (*mut c_int, c_int, c_int);
    hipDeviceEnablePeerAccess 1000 "hipDeviceEnablePeerAccess" PEERS (c_int, c_uint);
    hipMemcpyPeerAsync 1000 "hipMemcpyPeerAsync" PEERS (*mut c_void, c_int, *const c_void, c_int, usize, hipStream_t);
    hipMemPoolSetAccess 5020 "hipMemPoolSetAccess" PEERS (hipMemPool_t, *const hipMemAccessDesc, usize);

    // kernels
    hipModuleLoadData 1000 "hipModuleLoadData" MODULES (*mut hipModule_t, *const c_void);
    hipModuleUnload 1000 "hipModuleUnload" MODULES (hipModule_t);
    hipModuleGetFunction 1000 "hipModuleGetFunction" MODULES (*mut hipFunction_t, hipModule_t, *const c_char);
    hipModuleLaunchKernel 1000 "hipModuleLaunchKernel" MODULES (
        hipFunction_t,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        hipStream_t,
        *mut *mut c_void,
        *mut *mut c_void,
    );
    hipModuleLaunchCooperativeKernel 5050 "hipModuleLaunchCooperativeKernel" COOPERATIVE (
        hipFunction_t,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        hipStream_t,
        *mut *mut c_void,
    );
}

#[cfg(test)]
mod tests {
    use core::ptr::NonNull;

    use super::*;

    #[test]
    fn a_table_of_nothing_names_the_first_row() {
        // SAFETY: nothing is found, so nothing is claimed.
        let missing = unsafe { Symbols::find(|_| None) }.unwrap_err();
        assert_eq!(missing.name, "hipInit");
    }

    #[test]
    fn a_missing_function_takes_its_capability_and_no_other() {
        extern "C" fn never() {}
        let address = NonNull::new(never as *mut c_void);
        // SAFETY: no function of the table is called.
        let found = unsafe { Symbols::find(|wanted| address.filter(|_| wanted.name != "hipGraphLaunch")) };
        let (symbols, caps) = found.unwrap();
        assert_eq!(caps, Caps::all() - Caps::GRAPHS);
        assert!(symbols.hipGraphLaunch.is_none());
        assert!(symbols.hipGraphDestroy.is_some());
    }

    #[test]
    fn a_function_is_exported_under_its_own_name() {
        assert!(Symbols::ROWS.iter().all(|row| row.exported == row.name));
        const { assert!(ARCH_NAME_AT_R0600 + ARCH_NAME_BYTES <= PROPERTIES_BYTES) };
    }
}
