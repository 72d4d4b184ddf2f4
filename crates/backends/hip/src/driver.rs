//! HIP's side of the table of driver calls that lines and points are built on.
//!
//! One call of the library a method, but where one is [bridged](crate::bridge), and nothing that waits but what the table says may wait. Statuses of queries that are no
//! failure (`hipErrorNotReady`) become [`Status::Pending`] without an allocation.
//!
//! Contexts: HIP's own (`hipCtxCreate`, `hipCtxSetCurrent` and their kind) are deprecated, and hollow: a context is a name of its device, made by nothing and destroyed by
//! nothing, and no stream tells its context in any release. What a thread has is a current device. So a [`RawContext`] here is a device's number plus one, and binding one
//! is `hipSetDevice`, which has been there from the first release on; the primary context is retained all the same, for releases that count.

use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};

use wakeline_core::Status;
use wakeline_mapped::Census;
use wakeline_mapped::driver::{
    CaptureMode, HostFunction, LineDriver, Ordinal, RawContext, RawEvent, RawPage, RawStream, Special,
};
use wakeline_mapped::error::CallError;

use crate::device::NO_SUCH_DEVICE;
use crate::error::{BACKEND, and_then};
use crate::hip::Hip;
use crate::sys::{
    CAPTURE_MODE_RELAXED, CAPTURE_STATUS_NONE, EVENT_DISABLE_TIMING, EVENT_RELEASE_TO_SYSTEM, HOST_COHERENT,
    HOST_MAPPED, HOST_PORTABLE, INVALID_DEVICE, NOT_READY, STREAM_LEGACY, STREAM_NON_BLOCKING, STREAM_NULL,
    STREAM_PER_THREAD, SUCCESS, WAIT_VALUE_GEQ, hipCtx_t, hipDevice_t, hipError_t,
};

/// Of a word that a stream waits for every bit counts.
const ALL_BITS: u64 = u64::MAX;

/// The flags of host memory that devices store into, whatever the environment (`HIP_HOST_COHERENT`) says of those that are left out: for all devices, mapped, and
/// coherent, so that a store is seen when it is made and not when a kernel ends.
const HOST_FLAGS: u32 = HOST_PORTABLE | HOST_MAPPED | HOST_COHERENT;

/// No time, and what was written before is the host's to see, whatever the environment (`HIP_EVENT_SYS_RELEASE`) says.
const EVENT_FLAGS: u32 = EVENT_DISABLE_TIMING | EVENT_RELEASE_TO_SYSTEM;

type Retain = unsafe extern "system" fn(*mut hipCtx_t, hipDevice_t) -> hipError_t;
type Release = unsafe extern "system" fn(hipDevice_t) -> hipError_t;

/// A device as a context.
pub(crate) fn context_of(device: Ordinal) -> RawContext {
    RawContext::from_ptr(ptr::without_provenance_mut(device.0 as usize + 1))
}

impl Hip {
    /// The outcome of a query.
    fn status(&self, call: &'static str, status: hipError_t) -> Result<Status, CallError> {
        match status {
            SUCCESS => Ok(Status::Done),
            NOT_READY => Ok(Status::Pending),
            failed => Err(self.symbols().failure(call, failed)),
        }
    }

    /// The device that a context is.
    pub(crate) fn number_of(&self, context: RawContext) -> Result<c_int, CallError> {
        let device = context.as_ptr().addr().checked_sub(1).and_then(|device| c_int::try_from(device).ok());
        device.ok_or_else(|| self.symbols().failure("hipSetDevice", INVALID_DEVICE))
    }

    /// Both calls that count who holds a primary context: with one alone some would be given back that was never taken, or none.
    fn counts_contexts(&self) -> Option<(Retain, Release)> {
        let symbols = self.symbols();
        Some((symbols.hipDevicePrimaryCtxRetain?, symbols.hipDevicePrimaryCtxRelease?))
    }

    /// The error of a context beside a device's own.
    #[cold]
    fn no_other_context(&self) -> CallError {
        let text = "HIP has no contexts beside the devices' own: take the primary one, or another device";
        CallError { text: text.to_owned(), ..self.absent("hipCtxCreate") }
    }
}

// SAFETY: each method is the call of that meaning by AMD's header. `store` is an 8-byte write of the given value at
// the given address, `call_host` enqueues one call, and what `page_alloc` gives is pinned memory until it is freed.
// The kinds of failures are those of `kind`.
unsafe impl LineDriver for Hip {
    const NAME: &'static str = BACKEND;

    const RELAXED: CaptureMode = CaptureMode(CAPTURE_MODE_RELAXED.cast_signed());

    const STREAM_DESTROY_WAITS: bool = true;

    fn census(&self) -> &Census {
        self.census()
    }

    fn special(stream: RawStream) -> Option<Special> {
        match stream.as_ptr().addr() {
            STREAM_NULL | STREAM_LEGACY => Some(Special::Legacy),
            STREAM_PER_THREAD => Some(Special::PerThread),
            _ => None,
        }
    }

    fn retain(&self, device: Ordinal) -> Result<RawContext, CallError> {
        let handle = self.device_of(device)?;
        if let Some((retain, _)) = self.counts_contexts() {
            let mut context = ptr::null_mut();
            // SAFETY: the device is one of the library's, and `context` is a handle's room.
            let status = unsafe { retain(&raw mut context, handle) };
            self.check("hipDevicePrimaryCtxRetain", status)?;
            self.given("hipDevicePrimaryCtxRetain", context)?;
        }
        Ok(context_of(device))
    }

    unsafe fn release(&self, device: Ordinal) -> Result<(), CallError> {
        let Some((_, release)) = self.counts_contexts() else { return Ok(()) };
        let handle = self.device_of(device)?;
        // SAFETY: the caller gives back a reference that it took.
        let status = unsafe { release(handle) };
        self.check("hipDevicePrimaryCtxRelease", status)
    }

    fn create(&self, device: Ordinal) -> Result<RawContext, CallError> {
        self.device_of(device)?;
        Err(self.no_other_context())
    }

    unsafe fn destroy(&self, _: RawContext) -> Result<(), CallError> {
        Err(self.no_other_context())
    }

    fn current(&self) -> Result<RawContext, CallError> {
        self.current_device().map(context_of)
    }

    unsafe fn set_current(&self, context: RawContext) -> Result<(), CallError> {
        // A thread always has a device: there is no "none" to go back to.
        if context.is_null() {
            return Ok(());
        }
        let device = self.number_of(context)?;
        // SAFETY: it takes any number, and says so of one that is no device's.
        let status = unsafe { (self.symbols().hipSetDevice)(device) };
        self.check("hipSetDevice", status)
    }

    unsafe fn stream_create(&self, priority: i32) -> Result<RawStream, CallError> {
        let mut stream = ptr::null_mut();
        let create = self.symbols().hipStreamCreateWithPriority;
        // SAFETY: `stream` is a handle's room, and the library clamps the priority.
        let status = unsafe { create(&raw mut stream, STREAM_NON_BLOCKING, priority) };
        self.check("hipStreamCreateWithPriority", status)?;
        Ok(RawStream::from_ptr(self.given("hipStreamCreateWithPriority", stream)?))
    }

    unsafe fn stream_destroy(&self, stream: RawStream) -> Result<(), CallError> {
        // SAFETY: the stream is alive and the caller's.
        let status = unsafe { (self.symbols().hipStreamDestroy)(stream.as_ptr()) };
        self.check("hipStreamDestroy", status)
    }

    unsafe fn stream_context(&self, stream: RawStream) -> Result<RawContext, CallError> {
        let Some(ask) = self.symbols().hipStreamGetDevice else {
            // SAFETY: the stream is alive, says the caller.
            return unsafe { self.device_by_events(stream) }.map(context_of);
        };
        let mut device = NO_SUCH_DEVICE;
        // SAFETY: the stream is alive, and `device` is a handle's room.
        let status = unsafe { ask(stream.as_ptr(), &raw mut device) };
        self.check("hipStreamGetDevice", status)?;
        self.ordinal("hipStreamGetDevice", device).map(context_of)
    }

    unsafe fn stream_query(&self, stream: RawStream) -> Result<Status, CallError> {
        // SAFETY: the stream is alive and of the current device.
        let status = unsafe { (self.symbols().hipStreamQuery)(stream.as_ptr()) };
        self.status("hipStreamQuery", status)
    }

    unsafe fn store(&self, stream: RawStream, address: u64, value: u64) -> Result<(), CallError> {
        let write = self.had("hipStreamWriteValue64", self.symbols().hipStreamWriteValue64)?;
        let address = pointer(address);
        // SAFETY: the stream is alive and of the current device, and the caller owns the eight bytes at `address` until the store
        // has landed. The flags are reserved.
        let status = unsafe { write(stream.as_ptr(), address, value, 0) };
        self.check("hipStreamWriteValue64", status)
    }

    unsafe fn wait_word(&self, stream: RawStream, address: u64, value: u64) -> Result<(), CallError> {
        let wait = self.had("hipStreamWaitValue64", self.symbols().hipStreamWaitValue64)?;
        let address = pointer(address);
        // SAFETY: the stream is alive and of the current device, and the eight bytes at `address` are kept until the wait is over. This comparison is
        // of the numbers themselves: right for those that have not wrapped, and none is counted up so far.
        let status = unsafe { wait(stream.as_ptr(), address, value, WAIT_VALUE_GEQ, ALL_BITS) };
        self.check("hipStreamWaitValue64", status)
    }

    unsafe fn call_host(
        &self,
        stream: RawStream,
        function: HostFunction,
        data: *mut c_void,
    ) -> Result<(), CallError> {
        let Some(launch) = self.symbols().hipLaunchHostFunc else {
            // SAFETY: as the caller says.
            return unsafe { self.call_by_callback(stream, function, data) };
        };
        // SAFETY: the stream is alive and of the current device; the caller keeps `data` until the call has come, or for good.
        let status = unsafe { launch(stream.as_ptr(), function, data) };
        self.check("hipLaunchHostFunc", status)
    }

    unsafe fn capturing(&self, stream: RawStream) -> Result<bool, CallError> {
        let mut capture = CAPTURE_STATUS_NONE;
        // SAFETY: the stream is alive and of the current device, and `capture` is a number's room.
        let status = unsafe { (self.symbols().hipStreamIsCapturing)(stream.as_ptr(), &raw mut capture) };
        self.check("hipStreamIsCapturing", status)?;
        // An invalidated capture is one that its owner has yet to end.
        Ok(capture != CAPTURE_STATUS_NONE)
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode, CallError> {
        let call = "hipThreadExchangeStreamCaptureMode";
        let exchange = self.had(call, self.symbols().hipThreadExchangeStreamCaptureMode)?;
        let mut mode = mode.0.cast_unsigned();
        // SAFETY: `mode` is a number's room, with the new mode in it; of one that it does not know the library says so.
        let status = unsafe { exchange(&raw mut mode) };
        self.check(call, status)?;
        Ok(CaptureMode(mode.cast_signed()))
    }

    unsafe fn event_create(&self) -> Result<RawEvent, CallError> {
        let mut event = ptr::null_mut();
        // SAFETY: `event` is a handle's room.
        let status = unsafe { (self.symbols().hipEventCreateWithFlags)(&raw mut event, EVENT_FLAGS) };
        self.check("hipEventCreateWithFlags", status)?;
        Ok(RawEvent::from_ptr(self.given("hipEventCreateWithFlags", event)?))
    }

    unsafe fn event_destroy(&self, event: RawEvent) -> Result<(), CallError> {
        // SAFETY: the event is alive and the caller's; the library keeps what it still needs of it.
        let status = unsafe { (self.symbols().hipEventDestroy)(event.as_ptr()) };
        self.check("hipEventDestroy", status)
    }

    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> Result<(), CallError> {
        // SAFETY: both are alive and of the current device.
        let status = unsafe { (self.symbols().hipEventRecord)(event.as_ptr(), stream.as_ptr()) };
        self.check("hipEventRecord", status)
    }

    unsafe fn event_query(&self, event: RawEvent) -> Result<Status, CallError> {
        // SAFETY: the event is alive.
        let status = unsafe { (self.symbols().hipEventQuery)(event.as_ptr()) };
        self.status("hipEventQuery", status)
    }

    unsafe fn event_wait(&self, stream: RawStream, event: RawEvent) -> Result<(), CallError> {
        // SAFETY: both are alive and the stream is of the current device; 0 is the one flag there is.
        let status = unsafe { (self.symbols().hipStreamWaitEvent)(stream.as_ptr(), event.as_ptr(), 0) };
        self.check("hipStreamWaitEvent", status)
    }

    unsafe fn page_alloc(&self, bytes: usize) -> Result<RawPage, CallError> {
        let mut host = ptr::null_mut();
        // SAFETY: `host` is a pointer's room.
        let status = unsafe { (self.symbols().hipHostMalloc)(&raw mut host, bytes, HOST_FLAGS) };
        self.check("hipHostMalloc", status)?;
        let host = self.given("hipHostMalloc", host)?;
        let mut device = ptr::null_mut();
        // SAFETY: `host` is memory of the call above, mapped for devices; 0 is the one flag there is.
        let status = unsafe { (self.symbols().hipHostGetDevicePointer)(&raw mut device, host, 0) };
        let mapped = self.check("hipHostGetDevicePointer", status);
        let mapped = mapped.and_then(|()| self.given("hipHostGetDevicePointer", device));
        match (mapped, NonNull::new(host)) {
            (Ok(device), Some(host)) => Ok(RawPage { host, device: address(device) }),
            (mapped, _) => {
                // SAFETY: it was allocated above, and nobody else has seen it.
                let status = unsafe { (self.symbols().hipHostFree)(host) };
                let error = mapped.err().unwrap_or_else(|| self.absent("hipHostMalloc"));
                Err(match self.check("hipHostFree", status) {
                    Ok(()) => error,
                    Err(then) => and_then(error, &then),
                })
            }
        }
    }

    unsafe fn page_free(&self, page: RawPage) -> Result<(), CallError> {
        // SAFETY: it is of `page_alloc`, and neither host nor device uses it any more.
        let status = unsafe { (self.symbols().hipHostFree)(page.host.as_ptr()) };
        self.check("hipHostFree", status)
    }
}

/// A device's address as the interface has it.
#[expect(clippy::cast_possible_truncation, reason = "a pointer has 64 bits, see `sys`")]
pub(crate) fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// The same the other way round.
pub(crate) fn address(pointer: *mut c_void) -> u64 {
    pointer.expose_provenance() as u64
}
