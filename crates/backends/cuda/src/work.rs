//! CUDA's side of the table of driver calls that memory, kernels and graphs are built on.
//!
//! One call of the driver a method, and nothing that waits but what the table says may wait.

use core::ffi::{CStr, c_int, c_uint, c_void};
use core::ptr;

use wakeline_core::Error;
use wakeline_mapped::driver::{
    Fill, KernelDriver, LaunchShape, Launches, PoolNumber, RawExec, RawGraph, RawKernel, RawModule, RawPool,
    RawStream, RowCopy, Side, TextDriver, WorkDriver,
};
use wakeline_mapped::error::CallError;
use wakeline_mapped::{Context, Module};

use crate::arch::Arch;
use crate::cuda::Cuda;
use crate::device::{Attribute, Device};
use crate::error::and_then;
use crate::image;
use crate::kernels;
use crate::sys::{
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
    CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CUDA_ERROR_ILLEGAL_STATE,
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_MEMCPY2D, CUDA_SUCCESS, CUlaunchAttribute,
    CUlaunchConfig, CUresult,
};

/// How much of what the driver's compiler says is kept, in bytes.
pub const JIT_LOG_BYTES_MAX: usize = 8_192;

/// The most parameters that a kernel is asked about. The driver allows 32,764 bytes of them.
const PARAMETERS_MAX: usize = 32_764;

/// The most blocks of a cluster that every device with clusters takes, and the most that any takes.
const CLUSTER_BLOCKS_OF_ALL: u32 = 8;
const CLUSTER_BLOCKS_MAX: u32 = 16;

/// The first architecture on which a kernel may begin before the one in front has ended.
const OVERLAPS_FROM: Arch = Arch::new(9, 0);

/// No more attributes than that has a launch.
const ATTRIBUTES_MAX: usize = 3;

impl Cuda {
    /// A function that this driver may lack.
    pub(crate) fn had<T>(&self, call: &'static str, function: Option<T>) -> Result<T, CallError> {
        function.ok_or_else(|| self.absent(call))
    }

    fn set_kernel_attribute(
        &self,
        kernel: RawKernel,
        attribute: c_int,
        value: c_int,
    ) -> Result<(), CallError> {
        let set = self.had("cuFuncSetAttribute", self.symbols().cuFuncSetAttribute)?;
        // SAFETY: the context is bound and the kernel of a loaded module, say the callers; of an attribute or a value that it does not take the driver says so.
        let status = unsafe { set(kernel.as_ptr(), attribute, value) };
        self.check("cuFuncSetAttribute", status)
    }

    /// # Safety
    ///
    /// As [`WorkDriver::launch`].
    unsafe fn launch_with_attributes(
        &self,
        kernel: RawKernel,
        stream: RawStream,
        shape: &LaunchShape,
        values: &mut [*mut c_void],
    ) -> Result<(), CallError> {
        let launch = self.had("cuLaunchKernelEx", self.symbols().cuLaunchKernelEx)?;
        let mut attributes = [CUlaunchAttribute { id: 0, pad: 0, value: [0; 16] }; ATTRIBUTES_MAX];
        let mut count = 0;
        let mut add = |id: c_uint, numbers: &[c_uint]| {
            if let Some(attribute) = attributes.get_mut(count) {
                attribute.id = id;
                attribute.value.iter_mut().zip(numbers).for_each(|(room, number)| *room = *number);
                count += 1;
            }
        };
        if let Some(cluster) = shape.cluster {
            if cluster.iter().product::<u32>() > CLUSTER_BLOCKS_OF_ALL {
                let large = CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
                self.set_kernel_attribute(kernel, large, c_int::from(true))?;
            }
            add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &cluster);
        }
        if shape.cooperative {
            add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &[1]);
        }
        if shape.overlapping {
            add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, &[1]);
        }
        let config = CUlaunchConfig {
            grid: shape.blocks,
            block: shape.threads,
            shared_bytes: shape.shared_bytes,
            stream: stream.as_ptr(),
            attributes: attributes.as_mut_ptr(),
            attribute_count: c_uint::try_from(count).unwrap_or_default(),
        };
        // SAFETY: the context is bound, the kernel's module loaded; the attributes are as many as it says and have the values of their kinds; stream, parameters and
        // what is done with them are as the caller says. All is read before the call returns.
        let status =
            unsafe { launch(&raw const config, kernel.as_ptr(), values.as_mut_ptr(), ptr::null_mut()) };
        self.check("cuLaunchKernelEx", status)
    }
}

/// A side as `CUDA_MEMCPY2D` has it: its kind, where it is for the host, and for the device.
const fn described(side: Side) -> (c_uint, *mut c_void, u64) {
    match side {
        Side::Device(address) => (CU_MEMORYTYPE_DEVICE, ptr::null_mut(), address),
        Side::Host(start) => (CU_MEMORYTYPE_HOST, start, 0),
    }
}

const fn attribute_of(number: PoolNumber) -> c_int {
    match number {
        PoolNumber::Kept => CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
        PoolNumber::Reserved => CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
    }
}

// SAFETY: each method is the driver's call of that meaning by NVIDIA's manual; `check_image` follows all headers of an image through to their ends.
unsafe impl WorkDriver for Cuda {
    unsafe fn mem_alloc(&self, bytes: usize) -> Result<u64, CallError> {
        let allocate = self.had("cuMemAlloc", self.symbols().cuMemAlloc)?;
        let mut address = 0;
        // SAFETY: a context is bound, and `address` is an address's room.
        let status = unsafe { allocate(&raw mut address, bytes) };
        self.check("cuMemAlloc", status).map(|()| address)
    }

    unsafe fn mem_free(&self, address: u64) -> Result<(), CallError> {
        let free = self.had("cuMemFree", self.symbols().cuMemFree)?;
        // SAFETY: it is of `mem_alloc`, and nothing uses it any more.
        let status = unsafe { free(address) };
        self.check("cuMemFree", status)
    }

    unsafe fn fill(&self, stream: RawStream, to: u64, with: Fill, count: usize) -> Result<(), CallError> {
        let (symbols, stream) = (self.symbols(), stream.as_ptr());
        match with {
            Fill::One(byte) => {
                let fill = self.had("cuMemsetD8Async", symbols.cuMemsetD8Async)?;
                // SAFETY: the stream is alive and of the bound context, and the memory as long as that.
                let status = unsafe { fill(to, byte, count, stream) };
                self.check("cuMemsetD8Async", status)
            }
            Fill::Two(number) => {
                let fill = self.had("cuMemsetD16Async", symbols.cuMemsetD16Async)?;
                // SAFETY: as above; of an address that is no multiple of the number's length the driver says so.
                let status = unsafe { fill(to, number, count, stream) };
                self.check("cuMemsetD16Async", status)
            }
            Fill::Four(number) => {
                let fill = self.had("cuMemsetD32Async", symbols.cuMemsetD32Async)?;
                // SAFETY: as above.
                let status = unsafe { fill(to, number, count, stream) };
                self.check("cuMemsetD32Async", status)
            }
        }
    }

    unsafe fn copy(&self, stream: RawStream, from: Side, to: Side, len: usize) -> Result<(), CallError> {
        let (symbols, stream) = (self.symbols(), stream.as_ptr());
        match (from, to) {
            (Side::Device(from), Side::Device(to)) => {
                let copy = self.had("cuMemcpyDtoDAsync", symbols.cuMemcpyDtoDAsync)?;
                // SAFETY: the stream is alive and of the bound context, and both sides as long as that.
                let status = unsafe { copy(to, from, len, stream) };
                self.check("cuMemcpyDtoDAsync", status)
            }
            (Side::Host(from), Side::Device(to)) => {
                let copy = self.had("cuMemcpyHtoDAsync", symbols.cuMemcpyHtoDAsync)?;
                // SAFETY: as above.
                let status = unsafe { copy(to, from.cast_const(), len, stream) };
                self.check("cuMemcpyHtoDAsync", status)
            }
            (Side::Device(from), Side::Host(to)) => {
                let copy = self.had("cuMemcpyDtoHAsync", symbols.cuMemcpyDtoHAsync)?;
                // SAFETY: as above.
                let status = unsafe { copy(to, from, len, stream) };
                self.check("cuMemcpyDtoHAsync", status)
            }
            (Side::Host(_), Side::Host(_)) => Err(self.absent("cuMemcpyAsync")),
        }
    }

    unsafe fn copy_rows(
        &self,
        stream: RawStream,
        from: Side,
        to: Side,
        rows: RowCopy,
    ) -> Result<(), CallError> {
        let copy = self.had("cuMemcpy2DAsync", self.symbols().cuMemcpy2DAsync)?;
        let ((src_kind, src_host, src_device), (dst_kind, dst_host, dst_device)) =
            (described(from), described(to));
        let what = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: src_kind,
            srcHost: src_host.cast_const(),
            srcDevice: src_device,
            srcArray: ptr::null_mut(),
            srcPitch: rows.from_pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: dst_kind,
            dstHost: dst_host,
            dstDevice: dst_device,
            dstArray: ptr::null_mut(),
            dstPitch: rows.to_pitch,
            WidthInBytes: rows.len,
            Height: rows.count,
        };
        // SAFETY: the stream is alive and of the bound context, and both sides as long as the rows need.
        let status = unsafe { copy(&raw const what, stream.as_ptr()) };
        self.check("cuMemcpy2DAsync", status)
    }

    unsafe fn pool(&self) -> Result<RawPool, CallError> {
        let device = Device::current(self)?;
        if !device.pools()? {
            let error = self.absent("cuMemAllocAsync");
            let text = "driver or device has no pools of memory, which operations need".to_owned();
            return Err(CallError { text, ..error });
        }
        let ask = self.had("cuDeviceGetDefaultMemPool", self.symbols().cuDeviceGetDefaultMemPool)?;
        let mut pool = ptr::null_mut();
        // SAFETY: the device is one of the driver's, and `pool` is a handle's room.
        let status = unsafe { ask(&raw mut pool, device.handle()) };
        self.check("cuDeviceGetDefaultMemPool", status).map(|()| RawPool::from_ptr(pool))
    }

    unsafe fn pool_number(&self, pool: RawPool, number: PoolNumber) -> Result<u64, CallError> {
        let get = self.had("cuMemPoolGetAttribute", self.symbols().cuMemPoolGetAttribute)?;
        let mut bytes = 0_u64;
        let room = (&raw mut bytes).cast::<c_void>();
        // SAFETY: the pool is the device's own; these attributes are numbers of 64 bits, and `bytes` is one's room.
        let status = unsafe { get(pool.as_ptr(), attribute_of(number), room) };
        self.check("cuMemPoolGetAttribute", status).map(|()| bytes)
    }

    unsafe fn pool_keep(&self, pool: RawPool, mut bytes: u64) -> Result<(), CallError> {
        let set = self.had("cuMemPoolSetAttribute", self.symbols().cuMemPoolSetAttribute)?;
        let number = (&raw mut bytes).cast::<c_void>();
        // SAFETY: the pool is the device's own; this attribute is a number of 64 bits, which is only read.
        let status = unsafe { set(pool.as_ptr(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, number) };
        self.check("cuMemPoolSetAttribute", status)
    }

    unsafe fn pool_trim(&self, pool: RawPool, keep_bytes: usize) -> Result<(), CallError> {
        let trim = self.had("cuMemPoolTrimTo", self.symbols().cuMemPoolTrimTo)?;
        // SAFETY: the pool is the device's own.
        let status = unsafe { trim(pool.as_ptr(), keep_bytes) };
        self.check("cuMemPoolTrimTo", status)
    }

    unsafe fn pool_alloc(&self, stream: RawStream, bytes: usize) -> Result<u64, CallError> {
        let allocate = self.had("cuMemAllocAsync", self.symbols().cuMemAllocAsync)?;
        let mut address = 0;
        // SAFETY: the stream is alive and of the bound context, and `address` is an address's room.
        let status = unsafe { allocate(&raw mut address, bytes, stream.as_ptr()) };
        self.check("cuMemAllocAsync", status).map(|()| address)
    }

    unsafe fn pool_free(&self, stream: RawStream, address: u64) -> Result<(), CallError> {
        let free = self.had("cuMemFreeAsync", self.symbols().cuMemFreeAsync)?;
        // SAFETY: the stream is alive and of the bound context; the memory is of `pool_alloc`, and no use of it comes later.
        let status = unsafe { free(address, stream.as_ptr()) };
        self.check("cuMemFreeAsync", status)
    }

    unsafe fn check_image(&self, image: &[u8]) -> Result<(), Error> {
        let form = image::form(image)?;
        image::fits(form, Device::current(self)?.arch()?)
    }

    unsafe fn module_load(&self, image: *const c_void) -> Result<RawModule, CallError> {
        let load = self.had("cuModuleLoadDataEx", self.symbols().cuModuleLoadDataEx)?;
        let mut log = vec![0_u8; JIT_LOG_BYTES_MAX];
        // One less than there is, so that it ends with a zero whatever is written.
        let mut options: [c_int; 2] = [CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER];
        let mut values = [ptr::without_provenance_mut(log.len() - 1), log.as_mut_ptr().cast::<c_void>()];
        let (count, mut raw) = (options.len().try_into().unwrap_or_default(), ptr::null_mut());
        // SAFETY: a context is bound; `image` is as the caller says; the two options have their values, the length as a number
        // in the pointer's place and the room of that length, as the manual has it.
        let status = unsafe { load(&raw mut raw, image, count, options.as_mut_ptr(), values.as_mut_ptr()) };
        if status != CUDA_SUCCESS {
            let error = self.symbols().failure("cuModuleLoadDataEx", status);
            let said = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
            let text = match said.trim() {
                "" => error.text,
                said => format!("{}; its compiler says: {said}", error.text),
            };
            return Err(CallError { text, ..error });
        }
        Ok(RawModule::from_ptr(raw))
    }

    unsafe fn module_unload(&self, module: RawModule) -> Result<(), CallError> {
        let unload = self.had("cuModuleUnload", self.symbols().cuModuleUnload)?;
        // SAFETY: a context is bound and the module loaded in it; no kernel of it is in use any more.
        let status = unsafe { unload(module.as_ptr()) };
        self.check("cuModuleUnload", status)
    }

    unsafe fn kernel(&self, module: RawModule, name: &CStr) -> Result<RawKernel, CallError> {
        let find = self.had("cuModuleGetFunction", self.symbols().cuModuleGetFunction)?;
        let mut raw = ptr::null_mut();
        // SAFETY: a context is bound, the module loaded in it, and the name ends with a zero.
        let status = unsafe { find(&raw mut raw, module.as_ptr(), name.as_ptr()) };
        self.check("cuModuleGetFunction", status).map(|()| RawKernel::from_ptr(raw))
    }

    unsafe fn kernel_shared_bytes(&self, kernel: RawKernel) -> Result<u32, CallError> {
        let get = self.had("cuFuncGetAttribute", self.symbols().cuFuncGetAttribute)?;
        let (mut value, attribute) = (0, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
        // SAFETY: a context is bound, the kernel of a loaded module, and `value` a number's room.
        let status = unsafe { get(&raw mut value, attribute, kernel.as_ptr()) };
        self.check("cuFuncGetAttribute", status).map(|()| value.unsigned_abs())
    }

    unsafe fn allow_shared(&self, kernel: RawKernel, bytes: u32) -> Result<(), CallError> {
        let wanted = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        self.set_kernel_attribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, wanted)
    }

    unsafe fn parameters(&self, kernel: RawKernel) -> Result<Option<Vec<usize>>, CallError> {
        let Some(ask) = self.symbols().cuFuncGetParamInfo else { return Ok(None) };
        let mut parameters = Vec::new();
        while parameters.len() <= PARAMETERS_MAX {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: a context is bound, the kernel of a loaded module, and both are a number's room; of a place beyond the last the driver says so.
            let status = unsafe { ask(kernel.as_ptr(), parameters.len(), &raw mut offset, &raw mut bytes) };
            match status {
                CUDA_SUCCESS => parameters.push(bytes),
                CUDA_ERROR_INVALID_VALUE => break,
                CUDA_ERROR_NOT_SUPPORTED => return Ok(None),
                failed => self.check("cuFuncGetParamInfo", failed)?,
            }
        }
        Ok(Some(parameters))
    }

    unsafe fn launch(
        &self,
        kernel: RawKernel,
        stream: RawStream,
        shape: &LaunchShape,
        values: &mut [*mut c_void],
    ) -> Result<(), CallError> {
        if !shape.is_plain() {
            // SAFETY: as the caller says.
            return unsafe { self.launch_with_attributes(kernel, stream, shape, values) };
        }
        let launch = self.had("cuLaunchKernel", self.symbols().cuLaunchKernel)?;
        let ([x, y, z], [block_x, block_y, block_z]) = (shape.blocks, shape.threads);
        let (kernel, values, extra) = (kernel.as_ptr(), values.as_mut_ptr(), ptr::null_mut());
        let (bytes, stream) = (shape.shared_bytes, stream.as_ptr());
        // SAFETY: the context is bound, the kernel's module loaded; stream, parameters and what is done with them are as the
        // caller says. The values are read before the call returns, and never written.
        let status =
            unsafe { launch(kernel, x, y, z, block_x, block_y, block_z, bytes, stream, values, extra) };
        self.check("cuLaunchKernel", status)
    }

    unsafe fn capture_begin(&self, stream: RawStream) -> Result<(), CallError> {
        let symbols = self.symbols();
        let begin = self.had("cuStreamBeginCapture", symbols.cuStreamBeginCapture)?;
        // What is begun is ended, whatever is missing.
        self.had("cuStreamEndCapture", symbols.cuStreamEndCapture)?;
        self.had("cuGraphDestroy", symbols.cuGraphDestroy)?;
        // SAFETY: the stream is alive and of the bound context.
        let status = unsafe { begin(stream.as_ptr(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) };
        self.check("cuStreamBeginCapture", status)
    }

    unsafe fn capture_end(&self, stream: RawStream) -> Result<RawGraph, CallError> {
        let end = self.had("cuStreamEndCapture", self.symbols().cuStreamEndCapture)?;
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is alive and of the bound context, its capture was begun on this thread, and `graph` is a handle's room.
        let status = unsafe { end(stream.as_ptr(), &raw mut graph) };
        let graph = RawGraph::from_ptr(graph);
        self.check("cuStreamEndCapture", status).map_err(|error| {
            if graph.is_null() {
                return error;
            }
            // SAFETY: it was captured here, and nobody else has it.
            match unsafe { self.graph_destroy(graph) } {
                Ok(()) => error,
                Err(then) => and_then(error, &then),
            }
        })?;
        Ok(graph)
    }

    fn captures_nothing(error: &CallError) -> bool {
        error.status == CUDA_ERROR_ILLEGAL_STATE
    }

    unsafe fn instantiate(&self, graph: RawGraph) -> Result<RawExec, CallError> {
        let instantiate =
            self.had("cuGraphInstantiateWithFlags", self.symbols().cuGraphInstantiateWithFlags)?;
        let mut raw = ptr::null_mut();
        // SAFETY: a context is bound, the graph is alive, and `raw` is a handle's room.
        let status = unsafe { instantiate(&raw mut raw, graph.as_ptr(), 0) };
        self.check("cuGraphInstantiateWithFlags", status).map(|()| RawExec::from_ptr(raw))
    }

    unsafe fn graph_launch(&self, graph: RawExec, stream: RawStream) -> Result<(), CallError> {
        let launch = self.had("cuGraphLaunch", self.symbols().cuGraphLaunch)?;
        // SAFETY: the stream is alive and of the bound context; the graph is alive and no other thread's.
        let status = unsafe { launch(graph.as_ptr(), stream.as_ptr()) };
        self.check("cuGraphLaunch", status)
    }

    unsafe fn graph_destroy(&self, graph: RawGraph) -> Result<(), CallError> {
        let destroy = self.had("cuGraphDestroy", self.symbols().cuGraphDestroy)?;
        // SAFETY: it is alive, and nobody else has it.
        let status = unsafe { destroy(graph.as_ptr()) };
        self.check("cuGraphDestroy", status)
    }

    unsafe fn exec_destroy(&self, graph: RawExec) -> Result<(), CallError> {
        let destroy = self.had("cuGraphExecDestroy", self.symbols().cuGraphExecDestroy)?;
        // SAFETY: it is alive, and nobody else has it; the driver lets a launch of it end.
        let status = unsafe { destroy(graph.as_ptr()) };
        self.check("cuGraphExecDestroy", status)
    }

    unsafe fn launches(&self) -> Result<Launches, CallError> {
        let device = Device::current(self)?;
        let size = |number: i32| device.asked(Attribute(number)).map(i32::unsigned_abs);
        let sizes = |first: i32| Ok::<_, CallError>([size(first)?, size(first + 1)?, size(first + 2)?]);
        Ok(Launches {
            // By `CUdevice_attribute` of `cuda.h`: MAX_GRID_DIM_X on, MAX_BLOCK_DIM_X on, MAX_THREADS_PER_BLOCK.
            blocks: sizes(5)?,
            threads: sizes(2)?,
            block_threads: size(1)?,
            shared_bytes: device.asked(Attribute::SHARED_BYTES_MAX)?.unsigned_abs(),
            cluster_blocks: device.is_set(Attribute::CLUSTER_LAUNCH)?.then_some(CLUSTER_BLOCKS_MAX),
            cooperative: device.is_set(Attribute::COOPERATIVE_LAUNCH)?,
            overlapping: device.capability()? >= OVERLAPS_FROM,
        })
    }

    unsafe fn priorities(&self) -> Result<(i32, i32), CallError> {
        let Some(ask) = self.symbols().cuCtxGetStreamPriorityRange else { return Ok((0, 0)) };
        let (mut least, mut most) = (0, 0);
        // SAFETY: a context is bound, and both are a number's room.
        let status = unsafe { ask(&raw mut least, &raw mut most) };
        self.check("cuCtxGetStreamPriorityRange", status).map(|()| (least, most))
    }

    unsafe fn synchronize(&self, stream: RawStream) -> Result<(), CallError> {
        let wait = self.had("cuStreamSynchronize", self.symbols().cuStreamSynchronize)?;
        // SAFETY: the stream is alive and of the bound context.
        let status: CUresult = unsafe { wait(stream.as_ptr()) };
        self.check("cuStreamSynchronize", status)
    }
}

// SAFETY: the manual of `cuModuleLoadDataEx` has it so: a text of PTX ends with a zero.
unsafe impl TextDriver for Cuda {
    fn text_refused(&self) -> CallError {
        self.symbols().failure("cuModuleLoadDataEx", CUDA_ERROR_INVALID_VALUE)
    }
}

impl KernelDriver for Cuda {
    fn kernels(context: &Context<Self>) -> Result<Module<Self>, Error> {
        Ok(Module::from_ptx(context, kernels::PTX)?.kept())
    }
}
