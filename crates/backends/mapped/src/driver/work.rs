//! What a driver supplies beyond waits: memory, copies, modules of kernels, captures.
//!
//! | group | calls | used for |
//! |---|---|---|
//! | memory | [`mem_alloc`](WorkDriver::mem_alloc), [`mem_free`](WorkDriver::mem_free), [`fill`](WorkDriver::fill), [`copy`](WorkDriver::copy), [`copy_rows`](WorkDriver::copy_rows) | buffers, and what is enqueued about them |
//! | pools | [`pool`](WorkDriver::pool), [`pool_number`](WorkDriver::pool_number), [`pool_keep`](WorkDriver::pool_keep), [`pool_trim`](WorkDriver::pool_trim), [`pool_alloc`](WorkDriver::pool_alloc), [`pool_free`](WorkDriver::pool_free) | memory in the order of streams |
//! | modules | [`check_image`](WorkDriver::check_image), [`module_load`](WorkDriver::module_load), [`module_unload`](WorkDriver::module_unload), [`kernel`](WorkDriver::kernel), [`kernel_shared_bytes`](WorkDriver::kernel_shared_bytes), [`allow_shared`](WorkDriver::allow_shared), [`parameters`](WorkDriver::parameters), [`launch`](WorkDriver::launch) | kernels |
//! | captures | [`capture_begin`](WorkDriver::capture_begin), [`capture_end`](WorkDriver::capture_end), [`instantiate`](WorkDriver::instantiate), [`graph_launch`](WorkDriver::graph_launch), [`graph_destroy`](WorkDriver::graph_destroy), [`exec_destroy`](WorkDriver::exec_destroy) | graphs |
//! | devices | [`launches`](WorkDriver::launches), [`priorities`](WorkDriver::priorities), [`synchronize`](WorkDriver::synchronize) | what a device can run; the driver's own wait |

use core::ffi::{CStr, c_void};
use core::fmt;

use wakeline_core::Error;

use super::{LineDriver, RawKernel, RawStream};
use crate::context::Context;
use crate::error::CallError;
use crate::module::Module;

super::handles! {
    /// A module of kernels.
    RawModule
    /// What was captured.
    RawGraph
    /// A graph that can be launched.
    RawExec
    /// A pool of device memory.
    RawPool
}

/// One side of a copy, by its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Memory of the device.
    Device(u64),
    /// Pinned memory of the host.
    Host(*mut c_void),
}

/// What memory is filled with, again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// One byte.
    One(u8),
    /// A number of two bytes; the address is a multiple of that.
    Two(u16),
    /// A number of four bytes; the address is a multiple of that.
    Four(u32),
}

/// What is alike of the rows of a copy, in bytes. No row is of nothing, and there is one at least.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowCopy {
    /// How long each is.
    pub len: usize,
    /// How many there are.
    pub count: usize,
    /// From the beginning of one to that of the next, where they come from.
    pub from_pitch: usize,
    /// The same where they go.
    pub to_pitch: usize,
}

/// A number of 64 bits that a pool tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolNumber {
    /// How many free bytes it keeps when somebody synchronizes.
    Kept,
    /// How many bytes it has of the system.
    Reserved,
}

/// On how many threads a kernel runs, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaunchShape {
    /// Blocks in each direction.
    pub blocks: [u32; 3],
    /// Threads of a block in each direction.
    pub threads: [u32; 3],
    /// Bytes of shared memory of a block beyond what the kernel declares.
    pub shared_bytes: u32,
    /// Blocks of a cluster in each direction.
    pub cluster: Option<[u32; 3]>,
    /// All blocks run at one time.
    pub cooperative: bool,
    /// It may begin before the one in front of it has ended.
    pub overlapping: bool,
}

impl LaunchShape {
    /// So many blocks of so many threads, and nothing special.
    pub const fn new(blocks: [u32; 3], threads: [u32; 3], shared_bytes: u32) -> Self {
        Self { blocks, threads, shared_bytes, cluster: None, cooperative: false, overlapping: false }
    }

    /// Whether it is launched as any kernel.
    pub const fn is_plain(&self) -> bool {
        self.cluster.is_none() && !self.cooperative && !self.overlapping
    }
}

/// What a device can run, asked for once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Launches {
    /// Blocks in each direction.
    pub blocks: [u32; 3],
    /// Threads of a block in each direction.
    pub threads: [u32; 3],
    /// Threads of a block.
    pub block_threads: u32,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// Blocks of a cluster, where it has clusters.
    pub cluster_blocks: Option<u32>,
    /// Whether it runs all blocks of a kernel at one time where that is asked for.
    pub cooperative: bool,
    /// Whether a kernel may begin before the one in front of it has ended.
    pub overlapping: bool,
}

/// A vendor's driver, as far as work goes that waits are for: memory, copies, kernels, captures.
///
/// # Safety
///
/// As [`LineDriver`]: the methods MUST do what their comments say by the driver's own rules. What [`mem_alloc`](Self::mem_alloc) and
/// [`pool_alloc`](Self::pool_alloc) give is valid for the device until it is freed; copies touch the bytes that they name and no others;
/// [`check_image`](Self::check_image) lets no image pass of which [`module_load`](Self::module_load) would read beyond the end.
///
/// Unless said otherwise the caller has the right context bound on its thread, and a handle given is alive and of that context; memory that is
/// named is there, and stays so until what was enqueued is done: all are the `# Safety` of every `unsafe` method here. A call that the driver does not have is a
/// failure of the kind [`NotSupported`](crate::error::Kind::NotSupported).
#[expect(
    clippy::missing_safety_doc,
    clippy::missing_errors_doc,
    reason = "one contract for all, at the trait"
)]
pub unsafe trait WorkDriver: LineDriver {
    /// Allocates memory of the device. `bytes` is not 0. May wait for the device.
    unsafe fn mem_alloc(&self, bytes: usize) -> Result<u64, CallError>;

    /// Frees such memory. May wait for the device.
    unsafe fn mem_free(&self, address: u64) -> Result<(), CallError>;

    /// Enqueues that memory is filled with a pattern, so often. `count` is not 0.
    unsafe fn fill(&self, stream: RawStream, to: u64, with: Fill, count: usize) -> Result<(), CallError>;

    /// Enqueues a copy. `len` is not 0, and one side is of the device at least. MUST NOT wait for it.
    unsafe fn copy(&self, stream: RawStream, from: Side, to: Side, len: usize) -> Result<(), CallError>;

    /// The same of rows.
    unsafe fn copy_rows(
        &self,
        stream: RawStream,
        from: Side,
        to: Side,
        rows: RowCopy,
    ) -> Result<(), CallError>;

    /// The default pool of the bound device, which stays as long as the device does. Where driver or device cannot allocate and free in the order of a stream, that is
    /// the failure.
    unsafe fn pool(&self) -> Result<RawPool, CallError>;

    /// What a pool tells.
    unsafe fn pool_number(&self, pool: RawPool, number: PoolNumber) -> Result<u64, CallError>;

    /// Has a pool keep so many free bytes when somebody synchronizes.
    unsafe fn pool_keep(&self, pool: RawPool, bytes: u64) -> Result<(), CallError>;

    /// Has a pool give back what nobody uses, until it has no more than so many bytes.
    unsafe fn pool_trim(&self, pool: RawPool, keep_bytes: usize) -> Result<(), CallError>;

    /// Allocates in the order of `stream`, of the device's default pool. `bytes` is not 0.
    unsafe fn pool_alloc(&self, stream: RawStream, bytes: usize) -> Result<u64, CallError>;

    /// Frees such memory in the order of `stream`. MUST NOT wait for it.
    unsafe fn pool_free(&self, stream: RawStream, address: u64) -> Result<(), CallError>;

    /// That all is there which an image says of itself, and that the bound device runs it.
    unsafe fn check_image(&self, image: &[u8]) -> Result<(), Error>;

    /// Loads an image, or a text where the driver takes one; with what its compiler says in the error. May wait for the device.
    ///
    /// At `image` is what [`check_image`](Self::check_image) let pass, or a text that ends with a zero.
    unsafe fn module_load(&self, image: *const c_void) -> Result<RawModule, CallError>;

    /// Unloads a module. May wait for the device.
    unsafe fn module_unload(&self, module: RawModule) -> Result<(), CallError>;

    /// A kernel of a module, by its name.
    unsafe fn kernel(&self, module: RawModule, name: &CStr) -> Result<RawKernel, CallError>;

    /// How much shared memory a kernel may be launched with beyond what it declares.
    unsafe fn kernel_shared_bytes(&self, kernel: RawKernel) -> Result<u32, CallError>;

    /// Has a kernel take so much of it.
    unsafe fn allow_shared(&self, kernel: RawKernel, bytes: u32) -> Result<(), CallError>;

    /// How many bytes each parameter of a kernel has, in their order; `None` where the driver cannot tell.
    unsafe fn parameters(&self, kernel: RawKernel) -> Result<Option<Vec<usize>>, CallError>;

    /// Enqueues a kernel. Each of `values` is a pointer to a value of the parameter of that place, which is read before the call returns. MUST NOT wait for the
    /// device, but for room in the stream's queue.
    unsafe fn launch(
        &self,
        kernel: RawKernel,
        stream: RawStream,
        shape: &LaunchShape,
        values: &mut [*mut c_void],
    ) -> Result<(), CallError>;

    /// Begins a capture of `stream` that binds this thread alone.
    unsafe fn capture_begin(&self, stream: RawStream) -> Result<(), CallError>;

    /// Ends it, on the same thread; with [`RawGraph::NULL`] in a success that gave none.
    unsafe fn capture_end(&self, stream: RawStream) -> Result<RawGraph, CallError>;

    /// Whether such a failure says that nothing is being captured.
    fn captures_nothing(error: &CallError) -> bool;

    /// Makes what can be launched of a graph.
    unsafe fn instantiate(&self, graph: RawGraph) -> Result<RawExec, CallError>;

    /// Enqueues all of it. MUST NOT wait for the device, but for room in the stream's queue.
    unsafe fn graph_launch(&self, graph: RawExec, stream: RawStream) -> Result<(), CallError>;

    /// Destroys what was captured.
    unsafe fn graph_destroy(&self, graph: RawGraph) -> Result<(), CallError>;

    /// Destroys what can be launched; a launch of it ends all the same.
    unsafe fn exec_destroy(&self, graph: RawExec) -> Result<(), CallError>;

    /// What the bound device can run.
    unsafe fn launches(&self) -> Result<Launches, CallError>;

    /// The priorities of the least and the most urgent streams of the bound device; equal where the driver does not tell.
    unsafe fn priorities(&self) -> Result<(i32, i32), CallError>;

    /// Blocks until all that was enqueued on `stream` so far is done.
    unsafe fn synchronize(&self, stream: RawStream) -> Result<(), CallError>;
}

/// A driver that compiles texts of PTX by itself.
///
/// # Safety
///
/// A text that ends with a zero is one of the forms that [`module_load`](WorkDriver::module_load) takes, and is read to its end alone.
pub unsafe trait TextDriver: WorkDriver {
    /// The failure of a load that was not tried, as the driver's own of a wrong argument.
    fn text_refused(&self) -> CallError;
}

/// A driver for which there are the kernels that examples and tests use, see [`Kernels`](crate::Kernels).
pub trait KernelDriver: WorkDriver {
    /// The module that they are in, loaded for good. May take milliseconds, and may wait for the device.
    ///
    /// # Errors
    ///
    /// It cannot be compiled, or not be loaded.
    fn kernels(context: &Context<Self>) -> Result<Module<Self>, Error>;
}
