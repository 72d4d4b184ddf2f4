//! What older libraries lack, made of what they have.
//!
//! | lacks | absent in | made of |
//! |---|---|---|
//! | `hipStreamGetDevice` | 5.2 | recording an event of each device's: a stream takes those of its own device alone |
//! | `hipLaunchHostFunc` | 5.2 | `hipStreamAddCallback`, with a callback that calls the function where all is well |
//! | `hipGetDevicePropertiesR0600` | before 6 | `hipGetDeviceProperties`, of another layout |
//!
//! `hipGetProcAddress` (in 6 alone) and `hipStreamGetCtx` (in none) are not used.

use core::ffi::c_void;

use wakeline_mapped::driver::{HostFunction, LineDriver, Ordinal, RawStream};
use wakeline_mapped::error::CallError;

use crate::driver::context_of;
use crate::error::and_then;
use crate::hip::Hip;
use crate::sys::{CAPTURE_UNSUPPORTED, INVALID_HANDLE, SUCCESS, hipError_t, hipStream_t};

/// What a callback is called with.
struct Call {
    function: HostFunction,
    data: *mut c_void,
}

/// # Safety
///
/// `data` is a box of [`Hip::call_by_callback`] that nobody else has, called once.
unsafe extern "C" fn run(_: hipStream_t, status: hipError_t, data: *mut c_void) {
    // SAFETY: by the contract.
    let call = unsafe { Box::from_raw(data.cast::<Call>()) };
    // Behind a fault a callback comes with that; a host function is not called at all.
    if status == SUCCESS {
        // SAFETY: who enqueued it promised that it may be called with this data once the work before it is done.
        unsafe { (call.function)(call.data) };
    }
}

impl Hip {
    /// [`LineDriver::call_host`] by the older call.
    ///
    /// # Safety
    ///
    /// As [`LineDriver::call_host`].
    pub(crate) unsafe fn call_by_callback(
        &self,
        stream: RawStream,
        function: HostFunction,
        data: *mut c_void,
    ) -> Result<(), CallError> {
        let add = self.had("hipStreamAddCallback", self.symbols().hipStreamAddCallback)?;
        // SAFETY: the stream is alive and of the current device, says the caller. A callback of a graph would be called with a box that is gone.
        if unsafe { self.capturing(stream) }? {
            return Err(self.symbols().failure("hipStreamAddCallback", CAPTURE_UNSUPPORTED));
        }
        let call = Box::into_raw(Box::new(Call { function, data }));
        // SAFETY: the stream is alive and of the current device; `run` takes just this box, which is kept until it is called, or for good. The flags are reserved.
        let status = unsafe { add(stream.as_ptr(), run, call.cast(), 0) };
        // Where it failed the box is not taken back: the call may have been enqueued all the same. Some bytes are lost then.
        self.check("hipStreamAddCallback", status)
    }

    /// The device that `stream` is of.
    ///
    /// # Safety
    ///
    /// The stream is alive.
    pub(crate) unsafe fn device_by_events(&self, stream: RawStream) -> Result<Ordinal, CallError> {
        if self.device_count() == 1 {
            return Ok(Ordinal(0));
        }
        // SAFETY: the stream is alive, says the caller. In a capture the event would become part of it.
        if unsafe { self.capturing(stream) }? {
            return Err(self.symbols().failure("hipStreamGetDevice", CAPTURE_UNSUPPORTED));
        }
        let own = self.current()?;
        let mut found = Err(self.symbols().failure("hipEventRecord", INVALID_HANDLE));
        for device in (0..self.device_count()).map(Ordinal) {
            // SAFETY: the stream is alive, says the caller.
            match unsafe { self.takes_events_of(device, stream) } {
                Ok(false) => {}
                Ok(true) => {
                    found = Ok(device);
                    break;
                }
                Err(error) => {
                    found = Err(error);
                    break;
                }
            }
        }
        // SAFETY: it was this thread's device before.
        let restored = unsafe { self.set_current(own) };
        match (found, restored) {
            (Err(error), Err(then)) => Err(and_then(error, &then)),
            (found, restored) => restored.and(found),
        }
    }

    /// Makes `device` this thread's, and says whether `stream` takes an event of it.
    ///
    /// # Safety
    ///
    /// The stream is alive.
    unsafe fn takes_events_of(&self, device: Ordinal, stream: RawStream) -> Result<bool, CallError> {
        // SAFETY: it is one of the library's devices.
        unsafe { self.set_current(context_of(device)) }?;
        // SAFETY: the device is current.
        let event = unsafe { self.event_create() }?;
        // SAFETY: both are alive; of an event of another device the library says so, and records nothing.
        let recorded = unsafe { self.event_record(event, stream) };
        // SAFETY: it was made above, and nobody else has it.
        unsafe { self.event_destroy(event) }?;
        match recorded {
            Ok(()) => Ok(true),
            Err(error) if error.status == INVALID_HANDLE => Ok(false),
            Err(error) => Err(error),
        }
    }
}
