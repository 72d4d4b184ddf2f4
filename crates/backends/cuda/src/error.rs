//! What the driver's numbers mean.
//!
//! The driver names and explains its numbers itself; what is known here is only what must be decided by: which leave a context
//! broken, which say that something cannot be done, which are of captures.

use core::ffi::{CStr, c_char};
use core::ptr;

use wakeline_mapped::error::{CallError, Kind};

use crate::cuda::Cuda;
use crate::sys::{CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS, CUresult, Symbols};

/// What messages call this backend.
pub(crate) const BACKEND: &str = "cuda";

/// What a failed call of this status means, by the comments at the status in NVIDIA's `cuda.h`.
///
/// Not in the sticky list on purpose: 219 (a graphics context of another interface), 701 and 720 (a launch that did not begin),
/// 806 (a call to the MPS server), 999 (unknown: it may be anything).
///
/// ```
/// use wakeline_cuda::kind;
/// use wakeline_mapped::error::Kind;
/// assert_eq!(kind(700), Kind::Sticky); // CUDA_ERROR_ILLEGAL_ADDRESS
/// assert_eq!(kind(801), Kind::NotSupported); // CUDA_ERROR_NOT_SUPPORTED
/// assert_eq!(kind(2), Kind::OutOfMemory); // CUDA_ERROR_OUT_OF_MEMORY
/// assert_eq!(kind(1), Kind::Refused); // CUDA_ERROR_INVALID_VALUE
/// ```
pub const fn kind(status: i32) -> Kind {
    match status {
        // OUT_OF_MEMORY
        2 => Kind::OutOfMemory,
        // DEINITIALIZED
        4 => Kind::Gone,
        // memory and links: ECC_UNCORRECTABLE, NVLINK_UNCORRECTABLE, CONTAINED
        214 | 220 | 226
        // kernels: ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, ASSERT, HARDWARE_STACK_ERROR, ILLEGAL_INSTRUCTION, MISALIGNED_ADDRESS,
        // INVALID_ADDRESS_SPACE, INVALID_PC, LAUNCH_FAILED, TENSOR_MEMORY_LEAK
        | 700 | 702 | 710 | 714..=719 | 721
        // the context's own end: CONTEXT_IS_DESTROYED, MPS_CLIENT_TERMINATED, EXTERNAL_DEVICE
        | 709 | 810 | 911 => Kind::Sticky,
        // CALL_REQUIRES_NEWER_DRIVER, UNSUPPORTED_LIMIT, PEER_ACCESS_UNSUPPORTED
        36 | 215 | 217
        // compiling of PTX: JIT_COMPILER_NOT_FOUND, UNSUPPORTED_PTX_VERSION, JIT_COMPILATION_DISABLED, UNSUPPORTED_EXEC_AFFINITY,
        // UNSUPPORTED_DEVSIDE_SYNC
        | 221..=225
        // NOT_SUPPORTED, COMPAT_NOT_SUPPORTED_ON_DEVICE, CDP_NOT_SUPPORTED
        | 801 | 804 | 811 => Kind::NotSupported,
        // STREAM_CAPTURE_UNSUPPORTED to STREAM_CAPTURE_WRONG_THREAD
        900..=908 => Kind::Capturing,
        _ => Kind::Refused,
    }
}

impl Symbols {
    /// The error of a call that returned `status`, which is not success.
    #[cold]
    pub(crate) fn failure(&self, call: &'static str, status: CUresult) -> CallError {
        let name = said(self.cuGetErrorName, status).unwrap_or_else(|| format!("CUresult {status}"));
        let text = said(self.cuGetErrorString, status).unwrap_or_default();
        CallError { backend: BACKEND, call, status, kind: kind(status), name, text }
    }
}

/// What one of the driver's two functions that speak of statuses says of this one.
fn said(
    ask: unsafe extern "system" fn(CUresult, *mut *const c_char) -> CUresult,
    status: CUresult,
) -> Option<String> {
    let mut text = ptr::null();
    // SAFETY: it takes any number, needs no context nor `cuInit`, and `text` is a pointer's room.
    let answer = unsafe { ask(status, &raw mut text) };
    if answer != CUDA_SUCCESS || text.is_null() {
        return None;
    }
    // SAFETY: on success it is a text of the driver's own, ended by a zero and never freed.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

impl Cuda {
    /// The outcome of a call.
    pub(crate) fn check(&self, call: &'static str, status: CUresult) -> Result<(), CallError> {
        if status == CUDA_SUCCESS { Ok(()) } else { Err(self.symbols().failure(call, status)) }
    }

    /// `error`, with the outcome of cleaning up after it, which nobody else is told of.
    #[cold]
    pub(crate) fn and_then_failed(
        &self,
        error: CallError,
        call: &'static str,
        status: CUresult,
    ) -> CallError {
        match self.check(call, status) {
            Ok(()) => error,
            Err(then) => and_then(error, &then),
        }
    }

    /// The error of a function that this driver does not have.
    #[cold]
    pub(crate) fn absent(&self, call: &'static str) -> CallError {
        let error = self.symbols().failure(call, CUDA_ERROR_NOT_SUPPORTED);
        let text = format!("the driver ({}, CUDA {}) has no such function", self.library(), self.version());
        CallError { text, ..error }
    }
}

/// `error`, with what failed in cleaning up after it.
#[cold]
pub(crate) fn and_then(error: CallError, then: &CallError) -> CallError {
    CallError { text: format!("{}; then {} failed too: {then}", error.text, then.call), ..error }
}

#[cfg(test)]
mod tests {
    use core::ffi::c_void;
    use core::ptr::NonNull;

    use wakeline_mapped::Census;
    use wakeline_mapped::driver::{LineDriver, RawStream};

    use super::*;
    use crate::caps::Caps;
    use crate::cuda::{DriverVersion, Loaded};
    use wakeline_mapped::Wanted;

    #[test]
    fn every_status_has_the_kind_that_the_header_gives_it() {
        let of = |wanted: Kind| (0..1_000).filter(|status| kind(*status) == wanted).collect::<Vec<_>>();
        assert_eq!(of(Kind::OutOfMemory), [2]);
        assert_eq!(of(Kind::Gone), [4]);
        let sticky = [214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911];
        assert_eq!(of(Kind::Sticky), sticky);
        assert_eq!(of(Kind::NotSupported), [36, 215, 217, 221, 222, 223, 224, 225, 801, 804, 811]);
        assert_eq!(of(Kind::Capturing), (900..=908).collect::<Vec<_>>());
    }

    extern "system" fn says_nothing(_: CUresult, _: *mut *const c_char) -> CUresult {
        1
    }

    extern "system" fn never() {}

    #[test]
    fn a_function_that_the_driver_lacks_is_not_supported_and_named() {
        let address = |wanted: Wanted| match wanted.name {
            "cuStreamWriteValue64" => ptr::null_mut(),
            "cuGetErrorName" | "cuGetErrorString" => says_nothing as *mut c_void,
            _ => never as *mut c_void,
        };
        // SAFETY: no other function of the table is called than those that are what they should be.
        let found = unsafe { Symbols::find(|wanted| NonNull::new(address(wanted))) };
        let (symbols, caps) = found.unwrap();
        assert_eq!(caps, Caps::all() - Caps::STORE_WORDS);
        let (version, library) = (DriverVersion(9_020), "libcuda.so.1".to_owned());
        let cuda = Cuda::new(Loaded {
            symbols,
            caps,
            census: Census::new(),
            version,
            devices: 1,
            library,
            #[cfg(feature = "cudarc")]
            found: crate::cudarc::Found::default(),
        });
        // SAFETY: nothing is called.
        let error = unsafe { cuda.store(RawStream::NULL, 0, 0) }.unwrap_err();
        assert_eq!((error.call, error.status, error.kind), ("cuStreamWriteValue64", 801, Kind::NotSupported));
        let said = "CUresult 801 (801), the driver (libcuda.so.1, CUDA 9.2) has no such function";
        assert_eq!(error.to_string(), said);
    }
}
