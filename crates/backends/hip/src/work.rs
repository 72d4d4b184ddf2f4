//! HIP's side of the table of driver calls that memory, kernels and graphs are built on.
//!
//! One call of the library a method, and nothing that waits but what the table says may wait.

use core::ffi::{CStr, c_int, c_void};
use core::ptr;

use wakeline_core::Error;
use wakeline_mapped::driver::{
    Fill, LaunchShape, Launches, PoolNumber, RawExec, RawGraph, RawKernel, RawModule, RawPool, RawStream,
    RowCopy, Side, WorkDriver,
};
use wakeline_mapped::error::CallError;

use crate::caps::Caps;
use crate::device::{Attribute, Device};
use crate::driver::{address, pointer};
use crate::error::and_then;
use crate::hip::Hip;
use crate::image;
use crate::sys::{
    ATTRIBUTE_BLOCK_THREADS, ATTRIBUTE_BLOCK_X, ATTRIBUTE_BLOCK_Y, ATTRIBUTE_BLOCK_Z, ATTRIBUTE_GRID_X,
    ATTRIBUTE_GRID_Y, ATTRIBUTE_GRID_Z, CAPTURE_MODE_THREAD_LOCAL, DEVICE_TO_DEVICE, DEVICE_TO_HOST,
    HOST_TO_DEVICE, ILLEGAL_STATE, POOL_RELEASE_THRESHOLD, POOL_RESERVED,
};

/// A side as an address.
fn place(side: Side) -> *mut c_void {
    match side {
        Side::Device(address) => pointer(address),
        Side::Host(start) => start,
    }
}

const fn attribute_of(number: PoolNumber) -> u32 {
    match number {
        PoolNumber::Kept => POOL_RELEASE_THRESHOLD,
        PoolNumber::Reserved => POOL_RESERVED,
    }
}

// SAFETY: each method is the call of that meaning by AMD's header; `check_image` follows all headers of an image through to their ends.
unsafe impl WorkDriver for Hip {
    unsafe fn mem_alloc(&self, bytes: usize) -> Result<u64, CallError> {
        let allocate = self.had("hipMalloc", self.symbols().hipMalloc)?;
        let mut start = ptr::null_mut();
        // SAFETY: `start` is an address's room.
        let status = unsafe { allocate(&raw mut start, bytes) };
        self.check("hipMalloc", status)?;
        Ok(address(self.given("hipMalloc", start)?))
    }

    unsafe fn mem_free(&self, address: u64) -> Result<(), CallError> {
        let free = self.had("hipFree", self.symbols().hipFree)?;
        // SAFETY: it is of `mem_alloc`, and nothing uses it any more.
        let status = unsafe { free(pointer(address)) };
        self.check("hipFree", status)
    }

    unsafe fn fill(&self, stream: RawStream, to: u64, with: Fill, count: usize) -> Result<(), CallError> {
        let (symbols, stream, to) = (self.symbols(), stream.as_ptr(), pointer(to));
        match with {
            Fill::One(byte) => {
                let fill = self.had("hipMemsetD8Async", symbols.hipMemsetD8Async)?;
                // SAFETY: the stream is alive and of the current device, and the memory as long as that.
                let status = unsafe { fill(to, byte, count, stream) };
                self.check("hipMemsetD8Async", status)
            }
            Fill::Two(number) => {
                let fill = self.had("hipMemsetD16Async", symbols.hipMemsetD16Async)?;
                // SAFETY: as above.
                let status = unsafe { fill(to, number, count, stream) };
                self.check("hipMemsetD16Async", status)
            }
            Fill::Four(number) => {
                let fill = self.had("hipMemsetD32Async", symbols.hipMemsetD32Async)?;
                // SAFETY: as above.
                let status = unsafe { fill(to, number.cast_signed(), count, stream) };
                self.check("hipMemsetD32Async", status)
            }
        }
    }

    unsafe fn copy(&self, stream: RawStream, from: Side, to: Side, len: usize) -> Result<(), CallError> {
        let (symbols, stream) = (self.symbols(), stream.as_ptr());
        match (from, to) {
            (Side::Device(from), Side::Device(to)) => {
                let copy = self.had("hipMemcpyDtoDAsync", symbols.hipMemcpyDtoDAsync)?;
                // SAFETY: the stream is alive and of the current device, and both sides as long as that.
                let status = unsafe { copy(pointer(to), pointer(from), len, stream) };
                self.check("hipMemcpyDtoDAsync", status)
            }
            (Side::Host(from), Side::Device(to)) => {
                let copy = self.had("hipMemcpyHtoDAsync", symbols.hipMemcpyHtoDAsync)?;
                // SAFETY: as above.
                let status = unsafe { copy(pointer(to), from, len, stream) };
                self.check("hipMemcpyHtoDAsync", status)
            }
            (Side::Device(from), Side::Host(to)) => {
                let copy = self.had("hipMemcpyDtoHAsync", symbols.hipMemcpyDtoHAsync)?;
                // SAFETY: as above.
                let status = unsafe { copy(to, pointer(from), len, stream) };
                self.check("hipMemcpyDtoHAsync", status)
            }
            (Side::Host(_), Side::Host(_)) => Err(self.absent("hipMemcpyAsync")),
        }
    }

    unsafe fn copy_rows(
        &self,
        stream: RawStream,
        from: Side,
        to: Side,
        rows: RowCopy,
    ) -> Result<(), CallError> {
        let copy = self.had("hipMemcpy2DAsync", self.symbols().hipMemcpy2DAsync)?;
        let kind = match (from, to) {
            (Side::Host(_), Side::Device(_)) => HOST_TO_DEVICE,
            (Side::Device(_), Side::Host(_)) => DEVICE_TO_HOST,
            (Side::Device(_), Side::Device(_)) => DEVICE_TO_DEVICE,
            (Side::Host(_), Side::Host(_)) => return Err(self.absent("hipMemcpy2DAsync")),
        };
        let RowCopy { len, count, from_pitch, to_pitch } = rows;
        let (from, to) = (place(from).cast_const(), place(to));
        // SAFETY: the stream is alive and of the current device, and both sides as long as the rows need.
        let status = unsafe { copy(to, to_pitch, from, from_pitch, len, count, kind, stream.as_ptr()) };
        self.check("hipMemcpy2DAsync", status)
    }

    unsafe fn pool(&self) -> Result<RawPool, CallError> {
        let device = Device::current(self)?;
        if !device.pools()? {
            let text = "library or device has no pools of memory, which operations need".to_owned();
            return Err(CallError { text, ..self.absent("hipMallocAsync") });
        }
        let ask = self.had("hipDeviceGetDefaultMemPool", self.symbols().hipDeviceGetDefaultMemPool)?;
        let (mut pool, number) = (ptr::null_mut(), self.device_of(device.ordinal())?);
        // SAFETY: the device is one of the library's, and `pool` is a handle's room.
        let status = unsafe { ask(&raw mut pool, number) };
        self.check("hipDeviceGetDefaultMemPool", status)?;
        Ok(RawPool::from_ptr(self.given("hipDeviceGetDefaultMemPool", pool)?))
    }

    unsafe fn pool_number(&self, pool: RawPool, number: PoolNumber) -> Result<u64, CallError> {
        let get = self.had("hipMemPoolGetAttribute", self.symbols().hipMemPoolGetAttribute)?;
        let mut bytes = 0_u64;
        let room = (&raw mut bytes).cast::<c_void>();
        // SAFETY: the pool is the device's own; these attributes are numbers of 64 bits, and `bytes` is one's room.
        let status = unsafe { get(pool.as_ptr(), attribute_of(number), room) };
        self.check("hipMemPoolGetAttribute", status).map(|()| bytes)
    }

    unsafe fn pool_keep(&self, pool: RawPool, mut bytes: u64) -> Result<(), CallError> {
        let set = self.had("hipMemPoolSetAttribute", self.symbols().hipMemPoolSetAttribute)?;
        let number = (&raw mut bytes).cast::<c_void>();
        // SAFETY: the pool is the device's own; this attribute is a number of 64 bits, which is only read.
        let status = unsafe { set(pool.as_ptr(), POOL_RELEASE_THRESHOLD, number) };
        self.check("hipMemPoolSetAttribute", status)
    }

    unsafe fn pool_trim(&self, pool: RawPool, keep_bytes: usize) -> Result<(), CallError> {
        let trim = self.had("hipMemPoolTrimTo", self.symbols().hipMemPoolTrimTo)?;
        // SAFETY: the pool is the device's own.
        let status = unsafe { trim(pool.as_ptr(), keep_bytes) };
        self.check("hipMemPoolTrimTo", status)
    }

    unsafe fn pool_alloc(&self, stream: RawStream, bytes: usize) -> Result<u64, CallError> {
        let allocate = self.had("hipMallocAsync", self.symbols().hipMallocAsync)?;
        let mut start = ptr::null_mut();
        // SAFETY: the stream is alive and of the current device, and `start` is an address's room.
        let status = unsafe { allocate(&raw mut start, bytes, stream.as_ptr()) };
        self.check("hipMallocAsync", status)?;
        Ok(address(self.given("hipMallocAsync", start)?))
    }

    unsafe fn pool_free(&self, stream: RawStream, address: u64) -> Result<(), CallError> {
        let free = self.had("hipFreeAsync", self.symbols().hipFreeAsync)?;
        // SAFETY: the stream is alive and of the current device; the memory is of `pool_alloc`, and no use of it comes later.
        let status = unsafe { free(pointer(address), stream.as_ptr()) };
        self.check("hipFreeAsync", status)
    }

    unsafe fn check_image(&self, image: &[u8]) -> Result<(), Error> {
        image::check(image)
    }

    unsafe fn module_load(&self, image: *const c_void) -> Result<RawModule, CallError> {
        let load = self.had("hipModuleLoadData", self.symbols().hipModuleLoadData)?;
        let mut raw = ptr::null_mut();
        // SAFETY: `image` is as the caller says, and `raw` is a handle's room.
        let status = unsafe { load(&raw mut raw, image) };
        self.check("hipModuleLoadData", status).map(|()| RawModule::from_ptr(raw))
    }

    unsafe fn module_unload(&self, module: RawModule) -> Result<(), CallError> {
        let unload = self.had("hipModuleUnload", self.symbols().hipModuleUnload)?;
        // SAFETY: the module is loaded; no kernel of it is in use any more.
        let status = unsafe { unload(module.as_ptr()) };
        self.check("hipModuleUnload", status)
    }

    unsafe fn kernel(&self, module: RawModule, name: &CStr) -> Result<RawKernel, CallError> {
        let find = self.had("hipModuleGetFunction", self.symbols().hipModuleGetFunction)?;
        let mut raw = ptr::null_mut();
        // SAFETY: the module is loaded, `raw` is a handle's room, and the name ends with a zero.
        let status = unsafe { find(&raw mut raw, module.as_ptr(), name.as_ptr()) };
        self.check("hipModuleGetFunction", status).map(|()| RawKernel::from_ptr(raw))
    }

    /// Whatever the device has for a block: no kernel has to be set to it.
    unsafe fn kernel_shared_bytes(&self, _: RawKernel) -> Result<u32, CallError> {
        Ok(u32::MAX)
    }

    /// Nothing: of a launch with more than there is the library says so.
    unsafe fn allow_shared(&self, _: RawKernel, _: u32) -> Result<(), CallError> {
        Ok(())
    }

    unsafe fn parameters(&self, _: RawKernel) -> Result<Option<Vec<usize>>, CallError> {
        Ok(None)
    }

    unsafe fn launch(
        &self,
        kernel: RawKernel,
        stream: RawStream,
        shape: &LaunchShape,
        values: &mut [*mut c_void],
    ) -> Result<(), CallError> {
        let ([x, y, z], [block_x, block_y, block_z]) = (shape.blocks, shape.threads);
        let (kernel, values, extra) = (kernel.as_ptr(), values.as_mut_ptr(), ptr::null_mut());
        let (bytes, stream) = (shape.shared_bytes, stream.as_ptr());
        if shape.cluster.is_some() || shape.overlapping {
            return Err(self.absent("hipModuleLaunchKernel"));
        }
        if shape.cooperative {
            let call = "hipModuleLaunchCooperativeKernel";
            let launch = self.had(call, self.symbols().hipModuleLaunchCooperativeKernel)?;
            // SAFETY: the kernel's module is loaded; stream, parameters and what is done with them are as the
            // caller says. The values are read before the call returns, and never written.
            let status = unsafe { launch(kernel, x, y, z, block_x, block_y, block_z, bytes, stream, values) };
            return self.check(call, status);
        }
        let launch = self.had("hipModuleLaunchKernel", self.symbols().hipModuleLaunchKernel)?;
        // SAFETY: as above.
        let status =
            unsafe { launch(kernel, x, y, z, block_x, block_y, block_z, bytes, stream, values, extra) };
        self.check("hipModuleLaunchKernel", status)
    }

    unsafe fn capture_begin(&self, stream: RawStream) -> Result<(), CallError> {
        let symbols = self.symbols();
        let begin = self.had("hipStreamBeginCapture", symbols.hipStreamBeginCapture)?;
        // What is begun is ended, whatever is missing.
        self.had("hipStreamEndCapture", symbols.hipStreamEndCapture)?;
        self.had("hipGraphDestroy", symbols.hipGraphDestroy)?;
        // SAFETY: the stream is alive and of the current device.
        let status = unsafe { begin(stream.as_ptr(), CAPTURE_MODE_THREAD_LOCAL) };
        self.check("hipStreamBeginCapture", status)
    }

    unsafe fn capture_end(&self, stream: RawStream) -> Result<RawGraph, CallError> {
        let end = self.had("hipStreamEndCapture", self.symbols().hipStreamEndCapture)?;
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is alive and of the current device, its capture was begun on this thread, and `graph` is a handle's room.
        let status = unsafe { end(stream.as_ptr(), &raw mut graph) };
        let graph = RawGraph::from_ptr(graph);
        self.check("hipStreamEndCapture", status).map_err(|error| {
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
        error.status == ILLEGAL_STATE
    }

    unsafe fn instantiate(&self, graph: RawGraph) -> Result<RawExec, CallError> {
        let instantiate = self.had("hipGraphInstantiate", self.symbols().hipGraphInstantiate)?;
        // What is made is destroyed.
        self.had("hipGraphExecDestroy", self.symbols().hipGraphExecDestroy)?;
        let (mut raw, (node, log)) = (ptr::null_mut(), (ptr::null_mut(), ptr::null_mut()));
        // SAFETY: the graph is alive, `raw` is a handle's room, and of an error nothing is asked.
        let status = unsafe { instantiate(&raw mut raw, graph.as_ptr(), node, log, 0) };
        self.check("hipGraphInstantiate", status).map(|()| RawExec::from_ptr(raw))
    }

    unsafe fn graph_launch(&self, graph: RawExec, stream: RawStream) -> Result<(), CallError> {
        let launch = self.had("hipGraphLaunch", self.symbols().hipGraphLaunch)?;
        // SAFETY: the stream is alive and of the current device; the graph is alive and no other thread's.
        let status = unsafe { launch(graph.as_ptr(), stream.as_ptr()) };
        self.check("hipGraphLaunch", status)
    }

    unsafe fn graph_destroy(&self, graph: RawGraph) -> Result<(), CallError> {
        let destroy = self.had("hipGraphDestroy", self.symbols().hipGraphDestroy)?;
        // SAFETY: it is alive, and nobody else has it.
        let status = unsafe { destroy(graph.as_ptr()) };
        self.check("hipGraphDestroy", status)
    }

    unsafe fn exec_destroy(&self, graph: RawExec) -> Result<(), CallError> {
        let destroy = self.had("hipGraphExecDestroy", self.symbols().hipGraphExecDestroy)?;
        // SAFETY: it is alive, and nobody else has it; the library lets a launch of it end.
        let status = unsafe { destroy(graph.as_ptr()) };
        self.check("hipGraphExecDestroy", status)
    }

    unsafe fn launches(&self) -> Result<Launches, CallError> {
        let device = Device::current(self)?;
        let size = |number: u32| device.asked(Attribute(number)).map(i32::unsigned_abs);
        let sizes = |[x, y, z]: [u32; 3]| Ok::<_, CallError>([size(x)?, size(y)?, size(z)?]);
        Ok(Launches {
            blocks: sizes([ATTRIBUTE_GRID_X, ATTRIBUTE_GRID_Y, ATTRIBUTE_GRID_Z])?,
            threads: sizes([ATTRIBUTE_BLOCK_X, ATTRIBUTE_BLOCK_Y, ATTRIBUTE_BLOCK_Z])?,
            block_threads: size(ATTRIBUTE_BLOCK_THREADS)?,
            shared_bytes: device.asked(Attribute::SHARED_BYTES_MAX)?.unsigned_abs(),
            cluster_blocks: None,
            cooperative: self.caps().contains(Caps::COOPERATIVE)
                && device.is_set(Attribute::COOPERATIVE_LAUNCH)?,
            overlapping: false,
        })
    }

    unsafe fn priorities(&self) -> Result<(i32, i32), CallError> {
        let Some(ask) = self.symbols().hipDeviceGetStreamPriorityRange else { return Ok((0, 0)) };
        let (mut least, mut most): (c_int, c_int) = (0, 0);
        // SAFETY: both are a number's room.
        let status = unsafe { ask(&raw mut least, &raw mut most) };
        self.check("hipDeviceGetStreamPriorityRange", status).map(|()| (least, most))
    }

    unsafe fn synchronize(&self, stream: RawStream) -> Result<(), CallError> {
        // SAFETY: the stream is alive and of the current device.
        let status = unsafe { (self.symbols().hipStreamSynchronize)(stream.as_ptr()) };
        self.check("hipStreamSynchronize", status)
    }
}
