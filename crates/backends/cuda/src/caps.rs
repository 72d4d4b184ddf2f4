//! What a loaded driver can do, found out by looking for its functions.

use bitflags::bitflags;

bitflags! {
    /// What a driver can do beyond what waiting needs at least. A bit is set where all functions of its row are there.
    ///
    /// Ask for these and never for a version: a driver may have what its version does not tell, and lack what it does.
    ///
    /// ```
    /// # use wakeline_cuda::Cuda;
    /// use wakeline_cuda::Caps;
    /// match Cuda::load() {
    ///     Ok(cuda) => println!("stores words: {}", cuda.caps().contains(Caps::STORE_WORDS)),
    ///     Err(error) => println!("skipped: {error}"),
    /// }
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct Caps: u32 {
        /// A stream can store a word: `cuStreamWriteValue64_v2`. The device may still refuse, see
        /// [`Device::stores_words`](crate::Device::stores_words).
        const STORE_WORDS = 1 << 0;
        /// A stream can call a host function: `cuLaunchHostFunc`.
        const HOST_FUNCTIONS = 1 << 1;
        /// A thread can keep its calls from disturbing captures: `cuThreadExchangeStreamCaptureMode`.
        const CAPTURE_MODE = 1 << 2;
        /// Streams can be captured to graphs: `cuStreamBeginCapture_v2`, `cuGraphLaunch` and those with them.
        const GRAPHS = 1 << 3;
        /// Kernels can be loaded and launched: `cuModuleLoadDataEx`, `cuLaunchKernel` and those with them.
        const MODULES = 1 << 4;
        /// Device memory can be allocated, filled and copied: `cuMemAlloc_v2`, `cuMemcpyHtoDAsync_v2` and those with them.
        const COPIES = 1 << 5;
        /// Streams can wait for events on the device: `cuStreamWaitEvent`.
        const DEVICE_WAITS = 1 << 6;
        /// A thread can block until a stream or an event is done: `cuStreamSynchronize`, `cuEventSynchronize`.
        const SYNCHRONIZE = 1 << 7;
        /// Stream priorities have a range that can be asked for: `cuCtxGetStreamPriorityRange`.
        const PRIORITIES = 1 << 8;
        /// Devices have identities that last: `cuDeviceGetUuid_v2`.
        const UUIDS = 1 << 9;
        /// How the driver's own waits wait can be read and changed while a context is in use: `cuCtxGetFlags`, `cuCtxSetFlags`.
        const CONTEXT_FLAGS = 1 << 10;
        /// Device memory can be allocated and freed in the order of a stream: `cuMemAllocAsync`, `cuMemFreeAsync` and those with them. The device may
        /// still refuse, see [`Device::has_memory_pools`](crate::Device::has_memory_pools).
        const MEMORY_POOLS = 1 << 11;
        /// Streams can wait for a word of the host: `cuStreamWaitValue64_v2`. The device may still refuse.
        const WAIT_WORDS = 1 << 12;
        /// Kernels can be launched in clusters, cooperatively, and before the one in front has ended: `cuLaunchKernelEx`. The device may still refuse.
        const LAUNCH_ATTRIBUTES = 1 << 13;
        /// Kernels can be given more shared memory than all devices have: `cuFuncGetAttribute`, `cuFuncSetAttribute`.
        const KERNEL_ATTRIBUTES = 1 << 14;
        /// A kernel tells what arguments it takes: `cuFuncGetParamInfo`.
        const PARAMETER_INFO = 1 << 15;
        /// Graphs tell why they cannot be launched, and can be changed: `cuGraphInstantiateWithParams`, `cuGraphExecUpdate_v2`, `cuGraphExecKernelNodeSetParams_v2` and those with them.
        const GRAPH_CHANGES = 1 << 16;
        /// The kernels of graphs tell what they are called: `cuFuncGetName`.
        const GRAPH_NODES = 1 << 17;
        /// Devices can be let reach each other's memory, and copy it: `cuDeviceCanAccessPeer`, `cuCtxEnablePeerAccess`, `cuMemcpyPeerAsync`, `cuMemPoolSetAccess`. The driver may
        /// still refuse two devices.
        const PEERS = 1 << 20;
    }
}
