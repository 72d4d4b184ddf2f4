//! The calls of HIP by the names that CUDA has for them: a rule for the one is a rule for the other.

/// HIP's name, and CUDA's for the same: several where CUDA has several.
const TWINS: &[(&str, &str)] = &[
    ("hipDeviceCanAccessPeer", "cuDeviceCanAccessPeer"),
    ("hipDeviceEnablePeerAccess", "cuCtxEnablePeerAccess"),
    ("hipDeviceGet", "cuDeviceGet"),
    ("hipDeviceGetAttribute", "cuDeviceGetAttribute"),
    ("hipDeviceGetDefaultMemPool", "cuDeviceGetDefaultMemPool"),
    ("hipDeviceGetName", "cuDeviceGetName"),
    ("hipDeviceGetStreamPriorityRange", "cuCtxGetStreamPriorityRange"),
    ("hipDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease"),
    ("hipDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain"),
    ("hipDeviceTotalMem", "cuDeviceTotalMem"),
    ("hipDriverGetVersion", "cuDriverGetVersion"),
    ("hipEventCreateWithFlags", "cuEventCreate"),
    ("hipEventDestroy", "cuEventDestroy"),
    ("hipEventQuery", "cuEventQuery"),
    ("hipEventRecord", "cuEventRecord"),
    ("hipFree", "cuMemFree"),
    ("hipFreeAsync", "cuMemFreeAsync"),
    ("hipGetDevice", "cuCtxGetCurrent"),
    ("hipGetDeviceCount", "cuDeviceGetCount"),
    ("hipGraphDestroy", "cuGraphDestroy"),
    ("hipGraphExecDestroy", "cuGraphExecDestroy"),
    ("hipGraphExecKernelNodeSetParams", "cuGraphExecKernelNodeSetParams"),
    ("hipGraphExecUpdate", "cuGraphExecUpdate"),
    ("hipGraphGetNodes", "cuGraphGetNodes"),
    ("hipGraphInstantiate", "cuGraphInstantiateWithFlags"),
    ("hipGraphInstantiate", "cuGraphInstantiateWithParams"),
    ("hipGraphKernelNodeGetParams", "cuGraphKernelNodeGetParams"),
    ("hipGraphLaunch", "cuGraphLaunch"),
    ("hipGraphNodeGetDependencies", "cuGraphNodeGetDependencies"),
    ("hipGraphNodeGetType", "cuGraphNodeGetType"),
    ("hipHostFree", "cuMemFreeHost"),
    ("hipHostGetDevicePointer", "cuMemHostGetDevicePointer"),
    ("hipHostMalloc", "cuMemHostAlloc"),
    ("hipInit", "cuInit"),
    ("hipKernelNameRef", "cuFuncGetName"),
    ("hipLaunchHostFunc", "cuLaunchHostFunc"),
    ("hipMalloc", "cuMemAlloc"),
    ("hipMallocAsync", "cuMemAllocAsync"),
    ("hipMemPoolGetAttribute", "cuMemPoolGetAttribute"),
    ("hipMemPoolSetAccess", "cuMemPoolSetAccess"),
    ("hipMemPoolSetAttribute", "cuMemPoolSetAttribute"),
    ("hipMemPoolTrimTo", "cuMemPoolTrimTo"),
    ("hipMemcpy2DAsync", "cuMemcpy2DAsync"),
    ("hipMemcpyDtoDAsync", "cuMemcpyDtoDAsync"),
    ("hipMemcpyDtoHAsync", "cuMemcpyDtoHAsync"),
    ("hipMemcpyHtoDAsync", "cuMemcpyHtoDAsync"),
    ("hipMemcpyPeerAsync", "cuMemcpyPeerAsync"),
    ("hipMemsetD16Async", "cuMemsetD16Async"),
    ("hipMemsetD32Async", "cuMemsetD32Async"),
    ("hipMemsetD8Async", "cuMemsetD8Async"),
    ("hipModuleGetFunction", "cuModuleGetFunction"),
    ("hipModuleLaunchCooperativeKernel", "cuLaunchKernelEx"),
    ("hipModuleLaunchKernel", "cuLaunchKernel"),
    ("hipModuleLoadData", "cuModuleLoadDataEx"),
    ("hipModuleUnload", "cuModuleUnload"),
    ("hipSetDevice", "cuCtxSetCurrent"),
    ("hipStreamBeginCapture", "cuStreamBeginCapture"),
    ("hipStreamCreateWithPriority", "cuStreamCreateWithPriority"),
    ("hipStreamDestroy", "cuStreamDestroy"),
    ("hipStreamEndCapture", "cuStreamEndCapture"),
    ("hipStreamGetDevice", "cuStreamGetCtx"),
    ("hipStreamIsCapturing", "cuStreamIsCapturing"),
    ("hipStreamQuery", "cuStreamQuery"),
    ("hipStreamSynchronize", "cuStreamSynchronize"),
    ("hipStreamWaitEvent", "cuStreamWaitEvent"),
    ("hipStreamWaitValue64", "cuStreamWaitValue64"),
    ("hipStreamWriteValue64", "cuStreamWriteValue64"),
    ("hipThreadExchangeStreamCaptureMode", "cuThreadExchangeStreamCaptureMode"),
];

/// CUDA's names of a call of HIP.
pub(crate) fn cuda_names(hip: &str) -> impl Iterator<Item = &'static str> {
    TWINS.iter().filter(move |(name, _)| *name == hip).map(|(_, cuda)| *cuda)
}

/// CUDA's name of a call of HIP, the first of several.
pub fn cuda_name(hip: &str) -> Option<&'static str> {
    cuda_names(hip).next()
}

/// HIP's name of a call of CUDA.
pub fn hip_name(cuda: &str) -> Option<&'static str> {
    TWINS.iter().find(|(_, name)| *name == cuda).map(|(hip, _)| *hip)
}
