//! What a loaded library can do, found out by looking for its functions.

use bitflags::bitflags;

bitflags! {
    /// What a library can do beyond what waiting needs at least. A bit is set where all functions of its row are there.
    ///
    /// Ask for these and never for a version: a library may have what its version does not tell, and lack what it does. What is bridged works without its bit.
    ///
    /// ```
    /// # use wakeline_hip::Hip;
    /// use wakeline_hip::Caps;
    /// match Hip::load() {
    ///     Ok(hip) => println!("stores words: {}", hip.caps().contains(Caps::STORE_WORDS)),
    ///     Err(error) => println!("skipped: {error}"),
    /// }
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct Caps: u32 {
        /// A stream can store a word: `hipStreamWriteValue64`.
        const STORE_WORDS = 1 << 0;
        /// A stream can call a host function: `hipLaunchHostFunc`. Bridged by [`CALLBACKS`](Self::CALLBACKS).
        const HOST_FUNCTIONS = 1 << 1;
        /// The older form of that: `hipStreamAddCallback`.
        const CALLBACKS = 1 << 2;
        /// A thread can keep its calls from disturbing captures: `hipThreadExchangeStreamCaptureMode`.
        const CAPTURE_MODE = 1 << 3;
        /// Streams can be captured to graphs: `hipStreamBeginCapture`, `hipGraphLaunch` and those with them.
        const GRAPHS = 1 << 4;
        /// Kernels can be loaded and launched: `hipModuleLoadData`, `hipModuleLaunchKernel` and those with them.
        const MODULES = 1 << 5;
        /// Device memory can be allocated, filled and copied: `hipMalloc`, `hipMemcpyHtoDAsync` and those with them.
        const COPIES = 1 << 6;
        /// A stream tells which device it is of: `hipStreamGetDevice`. Bridged by events, of which a stream of another device takes none.
        const STREAM_DEVICES = 1 << 7;
        /// Stream priorities have a range that can be asked for: `hipDeviceGetStreamPriorityRange`.
        const PRIORITIES = 1 << 8;
        /// Primary contexts are counted: `hipDevicePrimaryCtxRetain`. Without, there is nothing to hold.
        const PRIMARY_CONTEXTS = 1 << 9;
        /// Device memory can be allocated and freed in the order of a stream: `hipMallocAsync`, `hipFreeAsync` and those with them. The device may
        /// still refuse, see [`Device::has_memory_pools`](crate::Device::has_memory_pools).
        const MEMORY_POOLS = 1 << 10;
        /// Streams can wait for a word of the host: `hipStreamWaitValue64`. The device may still refuse, see
        /// [`Device::waits_for_words`](crate::Device::waits_for_words).
        const WAIT_WORDS = 1 << 11;
        /// Kernels can be launched cooperatively: `hipModuleLaunchCooperativeKernel`. The device may still refuse.
        const COOPERATIVE = 1 << 12;
        /// Devices tell their properties, as up to HIP 5: `hipGetDeviceProperties`.
        const PROPERTIES = 1 << 13;
        /// Devices tell their properties, as from HIP 6 on: `hipGetDevicePropertiesR0600`. Bridged by [`PROPERTIES`](Self::PROPERTIES).
        const PROPERTIES_R0600 = 1 << 14;
        /// Graphs tell their nodes: `hipGraphGetNodes`, `hipGraphNodeGetType`, `hipGraphNodeGetDependencies`; and by a graph of one empty node a library tells how it numbers kinds of nodes:
        /// `hipGraphCreate`, `hipGraphAddEmptyNode`.
        const GRAPH_NODES = 1 << 15;
        /// Graphs can be changed: `hipGraphExecUpdate`, `hipGraphExecKernelNodeSetParams`. The first of them needs [`GRAPH_NODES`](Self::GRAPH_NODES) as well.
        const GRAPH_CHANGES = 1 << 16;
        /// The kernels of graphs tell what they are called: `hipGraphKernelNodeGetParams`, `hipKernelNameRef`, `hipKernelNameRefByPtr`.
        const KERNEL_NAMES = 1 << 17;
        /// Devices can be let reach each other's memory, and copy it: `hipDeviceCanAccessPeer`, `hipDeviceEnablePeerAccess`, `hipMemcpyPeerAsync`, `hipMemPoolSetAccess`. The library may
        /// still refuse two devices.
        const PEERS = 1 << 20;
    }
}
