//! CUDA's side of the table of driver calls that lines and points are built on.
//!
//! One call of the driver a method, and nothing that waits but what the table says may wait. Statuses of queries that are no
//! failure (`CUDA_ERROR_NOT_READY`) become [`Status::Pending`] without an allocation.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use std::ffi::CString;

use wakeline_core::Status;
use wakeline_mapped::Census;
use wakeline_mapped::driver::{
    CaptureMode, HostFunction, LineDriver, Ordinal, RawContext, RawEvent, RawKernel, RawPage, RawStream,
    Special,
};
use wakeline_mapped::error::CallError;

use crate::cuda::Cuda;
use crate::error::BACKEND;
use crate::kernels;
use crate::sys::{
    CU_CTX_SCHED_AUTO, CU_EVENT_DISABLE_TIMING, CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE,
    CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_LEGACY, CU_STREAM_NON_BLOCKING,
    CU_STREAM_PER_THREAD, CU_STREAM_WAIT_VALUE_GEQ, CU_STREAM_WRITE_VALUE_DEFAULT, CUDA_ERROR_NOT_READY,
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUresult,
};

impl Cuda {
    /// A handle that a call gave. Null stands for something else, or for nothing.
    fn given(&self, call: &'static str, handle: *mut c_void) -> Result<*mut c_void, CallError> {
        if !handle.is_null() {
            return Ok(handle);
        }
        let error = self.symbols().failure(call, CUDA_ERROR_OUT_OF_MEMORY);
        Err(CallError { text: "it said success, but gave nothing".to_owned(), ..error })
    }

    /// The outcome of a query.
    fn status(&self, call: &'static str, status: CUresult) -> Result<Status, CallError> {
        match status {
            CUDA_SUCCESS => Ok(Status::Done),
            CUDA_ERROR_NOT_READY => Ok(Status::Pending),
            failed => Err(self.symbols().failure(call, failed)),
        }
    }
}

// SAFETY: each method is the driver's call of that meaning by NVIDIA's manual. `store` is an 8-byte write of the given value at
// the given address, `call_host` enqueues one call, and what `page_alloc` gives is the driver's pinned memory until it is freed.
// The kinds of failures are those of `kind`.
unsafe impl LineDriver for Cuda {
    const NAME: &'static str = BACKEND;

    const RELAXED: CaptureMode = CaptureMode(CU_STREAM_CAPTURE_MODE_RELAXED);

    fn census(&self) -> &Census {
        self.census()
    }

    fn special(stream: RawStream) -> Option<Special> {
        // Functions are pinned to those of the legacy default stream, so "none" stands for it as well.
        match stream.as_ptr().addr() {
            0 | CU_STREAM_LEGACY => Some(Special::Legacy),
            CU_STREAM_PER_THREAD => Some(Special::PerThread),
            _ => None,
        }
    }

    fn retain(&self, device: Ordinal) -> Result<RawContext, CallError> {
        let device = self.device_of(device)?;
        let mut context = ptr::null_mut();
        // SAFETY: the device is one of the driver's, and `context` is a handle's room.
        let status = unsafe { (self.symbols().cuDevicePrimaryCtxRetain)(&raw mut context, device) };
        self.check("cuDevicePrimaryCtxRetain", status)?;
        Ok(RawContext::from_ptr(self.given("cuDevicePrimaryCtxRetain", context)?))
    }

    unsafe fn release(&self, device: Ordinal) -> Result<(), CallError> {
        let device = self.device_of(device)?;
        // SAFETY: the caller gives back a reference that it took, and uses nothing of the context if that was the last.
        let status = unsafe { (self.symbols().cuDevicePrimaryCtxRelease)(device) };
        self.check("cuDevicePrimaryCtxRelease", status)
    }

    fn create(&self, device: Ordinal) -> Result<RawContext, CallError> {
        let device = self.device_of(device)?;
        let mut context = ptr::null_mut();
        // SAFETY: the device is one of the driver's, and `context` is a handle's room.
        let status = unsafe { (self.symbols().cuCtxCreate)(&raw mut context, CU_CTX_SCHED_AUTO, device) };
        self.check("cuCtxCreate", status)?;
        self.given("cuCtxCreate", context)?;
        // The new context was pushed on top of this thread's: taken off again, whatever was below is back.
        let mut popped = ptr::null_mut();
        // SAFETY: `popped` is a handle's room.
        let status = unsafe { (self.symbols().cuCtxPopCurrent)(&raw mut popped) };
        if let Err(error) = self.check("cuCtxPopCurrent", status) {
            // SAFETY: the context was made above and nobody else has seen it; destroying it takes it off this thread as well.
            let status = unsafe { (self.symbols().cuCtxDestroy)(context) };
            return Err(self.and_then_failed(error, "cuCtxDestroy", status));
        }
        Ok(RawContext::from_ptr(context))
    }

    unsafe fn destroy(&self, context: RawContext) -> Result<(), CallError> {
        // SAFETY: the caller made it by `create` and uses nothing of it any more.
        let status = unsafe { (self.symbols().cuCtxDestroy)(context.as_ptr()) };
        self.check("cuCtxDestroy", status)
    }

    fn current(&self) -> Result<RawContext, CallError> {
        let mut context = ptr::null_mut();
        // SAFETY: `context` is a handle's room.
        let status = unsafe { (self.symbols().cuCtxGetCurrent)(&raw mut context) };
        self.check("cuCtxGetCurrent", status)?;
        Ok(RawContext::from_ptr(context))
    }

    unsafe fn set_current(&self, context: RawContext) -> Result<(), CallError> {
        // SAFETY: the caller says that it is alive; the driver's "none" unbinds.
        let status = unsafe { (self.symbols().cuCtxSetCurrent)(context.as_ptr()) };
        self.check("cuCtxSetCurrent", status)
    }

    unsafe fn stream_create(&self, priority: i32) -> Result<RawStream, CallError> {
        let mut stream = ptr::null_mut();
        let create = self.symbols().cuStreamCreateWithPriority;
        // SAFETY: a context is bound, `stream` is a handle's room, and the driver clamps the priority.
        let status = unsafe { create(&raw mut stream, CU_STREAM_NON_BLOCKING, priority) };
        self.check("cuStreamCreateWithPriority", status)?;
        Ok(RawStream::from_ptr(self.given("cuStreamCreateWithPriority", stream)?))
    }

    unsafe fn stream_destroy(&self, stream: RawStream) -> Result<(), CallError> {
        // SAFETY: the stream is alive and the caller's; the driver lets its work end and does not wait.
        let status = unsafe { (self.symbols().cuStreamDestroy)(stream.as_ptr()) };
        self.check("cuStreamDestroy", status)
    }

    unsafe fn stream_context(&self, stream: RawStream) -> Result<RawContext, CallError> {
        let mut context = ptr::null_mut();
        // SAFETY: the stream is alive, and `context` is a handle's room.
        let status = unsafe { (self.symbols().cuStreamGetCtx)(stream.as_ptr(), &raw mut context) };
        self.check("cuStreamGetCtx", status)?;
        Ok(RawContext::from_ptr(context))
    }

    unsafe fn stream_query(&self, stream: RawStream) -> Result<Status, CallError> {
        // SAFETY: the stream is alive and of the bound context.
        let status = unsafe { (self.symbols().cuStreamQuery)(stream.as_ptr()) };
        self.status("cuStreamQuery", status)
    }

    unsafe fn store(&self, stream: RawStream, address: u64, value: u64) -> Result<(), CallError> {
        let Some(write) = self.symbols().cuStreamWriteValue64 else {
            return Err(self.absent("cuStreamWriteValue64"));
        };
        // SAFETY: the stream is alive and of the bound context, and the caller owns the eight bytes at `address` until the store
        // has landed. The default flags keep the memory barrier before the store.
        let status = unsafe { write(stream.as_ptr(), address, value, CU_STREAM_WRITE_VALUE_DEFAULT) };
        self.check("cuStreamWriteValue64", status)
    }

    unsafe fn wait_word(&self, stream: RawStream, address: u64, value: u64) -> Result<(), CallError> {
        let Some(wait) = self.symbols().cuStreamWaitValue64 else {
            return Err(self.absent("cuStreamWaitValue64"));
        };
        // SAFETY: the stream is alive and of the bound context, and the eight bytes at `address` are kept until the wait is over. This comparison is
        // that of a signed difference.
        let status = unsafe { wait(stream.as_ptr(), address, value, CU_STREAM_WAIT_VALUE_GEQ) };
        self.check("cuStreamWaitValue64", status)
    }

    unsafe fn call_host(
        &self,
        stream: RawStream,
        function: HostFunction,
        data: *mut c_void,
    ) -> Result<(), CallError> {
        let Some(launch) = self.symbols().cuLaunchHostFunc else {
            return Err(self.absent("cuLaunchHostFunc"));
        };
        // SAFETY: the stream is alive and of the bound context; the caller keeps `data` until the call has come, or for good.
        let status = unsafe { launch(stream.as_ptr(), function, data) };
        self.check("cuLaunchHostFunc", status)
    }

    unsafe fn idle_kernel(&self) -> Result<Option<RawKernel>, CallError> {
        let symbols = self.symbols();
        let (Some(load), Some(find)) = (symbols.cuModuleLoadDataEx, symbols.cuModuleGetFunction) else {
            return Ok(None);
        };
        let text = CString::new(kernels::PTX).unwrap_or_default();
        let (mut module, mut kernel) = (ptr::null_mut(), ptr::null_mut());
        let image = text.as_ptr().cast();
        // SAFETY: a context is bound, `module` is a handle's room, and the text, which ends with a zero, is read to its end alone.
        let status = unsafe { load(&raw mut module, image, 0, ptr::null_mut(), ptr::null_mut()) };
        self.check("cuModuleLoadDataEx", status)?;
        let name = CString::new(kernels::OCCUPY).unwrap_or_default();
        // SAFETY: the module was loaded above and stays so, `kernel` is a handle's room, and the name ends with a zero.
        let status = unsafe { find(&raw mut kernel, module, name.as_ptr()) };
        self.check("cuModuleGetFunction", status)?;
        Ok(Some(RawKernel::from_ptr(kernel)))
    }

    unsafe fn launch_idle(&self, kernel: RawKernel, stream: RawStream) -> Result<(), CallError> {
        let Some(launch) = self.symbols().cuLaunchKernel else {
            return Err(self.absent("cuLaunchKernel"));
        };
        let mut ns = 0_u64;
        let (mut values, extra) = ([(&raw mut ns).cast::<c_void>()], ptr::null_mut());
        let (kernel, stream, values) = (kernel.as_ptr(), stream.as_ptr(), values.as_mut_ptr());
        // SAFETY: kernel and stream are alive and of the bound context; the kernel has one parameter, a u64, which is read before the call returns, and
        // is busy for so many nanoseconds.
        let status = unsafe { launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, values, extra) };
        self.check("cuLaunchKernel", status)
    }

    unsafe fn capturing(&self, stream: RawStream) -> Result<bool, CallError> {
        let mut capture = CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is alive and of the bound context, and `capture` is a number's room.
        let status = unsafe { (self.symbols().cuStreamIsCapturing)(stream.as_ptr(), &raw mut capture) };
        self.check("cuStreamIsCapturing", status)?;
        // An invalidated capture is one that its owner has yet to end.
        Ok(capture != CU_STREAM_CAPTURE_STATUS_NONE)
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode, CallError> {
        let Some(exchange) = self.symbols().cuThreadExchangeStreamCaptureMode else {
            return Err(self.absent("cuThreadExchangeStreamCaptureMode"));
        };
        let mut mode = mode.0;
        // SAFETY: `mode` is a number's room, with the new mode in it; of one that it does not know the driver says so.
        let status = unsafe { exchange(&raw mut mode) };
        self.check("cuThreadExchangeStreamCaptureMode", status)?;
        Ok(CaptureMode(mode))
    }

    unsafe fn event_create(&self) -> Result<RawEvent, CallError> {
        let mut event = ptr::null_mut();
        // SAFETY: a context is bound, and `event` is a handle's room.
        let status = unsafe { (self.symbols().cuEventCreate)(&raw mut event, CU_EVENT_DISABLE_TIMING) };
        self.check("cuEventCreate", status)?;
        Ok(RawEvent::from_ptr(self.given("cuEventCreate", event)?))
    }

    unsafe fn event_destroy(&self, event: RawEvent) -> Result<(), CallError> {
        // SAFETY: the event is alive and the caller's; the driver keeps what it still needs of it.
        let status = unsafe { (self.symbols().cuEventDestroy)(event.as_ptr()) };
        self.check("cuEventDestroy", status)
    }

    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> Result<(), CallError> {
        // SAFETY: both are alive and of the bound context.
        let status = unsafe { (self.symbols().cuEventRecord)(event.as_ptr(), stream.as_ptr()) };
        self.check("cuEventRecord", status)
    }

    unsafe fn event_query(&self, event: RawEvent) -> Result<Status, CallError> {
        // SAFETY: the event is alive.
        let status = unsafe { (self.symbols().cuEventQuery)(event.as_ptr()) };
        self.status("cuEventQuery", status)
    }

    unsafe fn event_wait(&self, stream: RawStream, event: RawEvent) -> Result<(), CallError> {
        let Some(wait) = self.symbols().cuStreamWaitEvent else {
            return Err(self.absent("cuStreamWaitEvent"));
        };
        // SAFETY: both are alive and the stream is of the bound context; 0 is the flag of a wait as any.
        let status = unsafe { wait(stream.as_ptr(), event.as_ptr(), 0) };
        self.check("cuStreamWaitEvent", status)
    }

    unsafe fn page_alloc(&self, bytes: usize) -> Result<RawPage, CallError> {
        let mut host = ptr::null_mut();
        let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: a context is bound, and `host` is a pointer's room.
        let status = unsafe { (self.symbols().cuMemHostAlloc)(&raw mut host, bytes, flags) };
        self.check("cuMemHostAlloc", status)?;
        let Some(page) = NonNull::new(host) else {
            let error = self.symbols().failure("cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY);
            return Err(CallError { text: "it said success, but gave no memory".to_owned(), ..error });
        };
        let mut device = 0;
        // SAFETY: `host` is memory of the call above, mapped for devices; 0 is the one flag there is.
        let status = unsafe { (self.symbols().cuMemHostGetDevicePointer)(&raw mut device, host, 0) };
        let checked = self.check("cuMemHostGetDevicePointer", status);
        let given =
            self.given("cuMemHostGetDevicePointer", ptr::without_provenance_mut(usize::from(device != 0)));
        if let Err(error) = checked.and(given.map(drop)) {
            // SAFETY: it was allocated above, and nobody else has seen it.
            let status = unsafe { (self.symbols().cuMemFreeHost)(host) };
            return Err(self.and_then_failed(error, "cuMemFreeHost", status));
        }
        Ok(RawPage { host: page, device })
    }

    unsafe fn page_free(&self, page: RawPage) -> Result<(), CallError> {
        // SAFETY: it is of `page_alloc`, and neither host nor device uses it any more.
        let status = unsafe { (self.symbols().cuMemFreeHost)(page.host.as_ptr()) };
        self.check("cuMemFreeHost", status)
    }
}
