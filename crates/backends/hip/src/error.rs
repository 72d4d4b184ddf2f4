//! What the library's numbers mean.
//!
//! It names and explains its numbers itself; what is known here is only what must be decided by: which leave a device
//! broken, which say that something cannot be done, which are of captures.

use core::ffi::{CStr, c_char};

use wakeline_mapped::error::{CallError, Kind};

use crate::hip::Hip;
use crate::sys::{NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS, Symbols, hipError_t};

/// What messages call this backend.
pub(crate) const BACKEND: &str = "hip";

/// What a failed call of this status means, by the comments at the status in AMD's `hip_runtime_api.h`.
///
/// Not in the sticky list on purpose: 53 (a launch before, of which nothing is told), 701 and 720 (a launch that did not begin), 709 (contexts
/// are never destroyed: a stream's handle that is none gets it), 999, 1052 and 1053 (they may be anything).
///
/// ```
/// use wakeline_hip::{Kind, kind};
/// assert_eq!(kind(700), Kind::Sticky); // hipErrorIllegalAddress
/// assert_eq!(kind(801), Kind::NotSupported); // hipErrorNotSupported
/// assert_eq!(kind(2), Kind::OutOfMemory); // hipErrorOutOfMemory
/// assert_eq!(kind(1), Kind::Refused); // hipErrorInvalidValue
/// ```
pub const fn kind(status: i32) -> Kind {
    match status {
        // OutOfMemory
        2 => Kind::OutOfMemory,
        // Deinitialized
        4 => Kind::Gone,
        // ECCNotCorrectable, IllegalAddress, LaunchTimeOut, Assert, LaunchFailure
        214 | 700 | 702 | 710 | 719 => Kind::Sticky,
        // UnsupportedLimit, PeerAccessUnsupported, NotSupported
        215 | 217 | 801 => Kind::NotSupported,
        // StreamCaptureUnsupported to StreamCaptureWrongThread
        900..=908 => Kind::Capturing,
        _ => Kind::Refused,
    }
}

impl Symbols {
    /// The error of a call that returned `status`, which is not success.
    #[cold]
    pub(crate) fn failure(&self, call: &'static str, status: hipError_t) -> CallError {
        let name = said(self.hipGetErrorName, status).unwrap_or_else(|| format!("hipError_t {status}"));
        let text = said(self.hipGetErrorString, status).unwrap_or_default();
        CallError { backend: BACKEND, call, status, kind: kind(status), name, text }
    }
}

/// What one of the two functions that speak of statuses says of this one.
fn said(ask: unsafe extern "system" fn(hipError_t) -> *const c_char, status: hipError_t) -> Option<String> {
    // SAFETY: it takes any number, and needs neither a device nor `hipInit`.
    let text = unsafe { ask(status) };
    if text.is_null() {
        return None;
    }
    // SAFETY: it is a text of the library's own, ended by a zero and never freed.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

impl Hip {
    /// The outcome of a call.
    pub(crate) fn check(&self, call: &'static str, status: hipError_t) -> Result<(), CallError> {
        if status == SUCCESS { Ok(()) } else { Err(self.symbols().failure(call, status)) }
    }

    /// A function that this library may lack.
    pub(crate) fn had<T>(&self, call: &'static str, function: Option<T>) -> Result<T, CallError> {
        function.ok_or_else(|| self.absent(call))
    }

    /// The error of a function that this library does not have.
    #[cold]
    pub(crate) fn absent(&self, call: &'static str) -> CallError {
        let text = format!("the library ({}, HIP {}) has no such function", self.library(), self.version());
        CallError { text, ..self.symbols().failure(call, NOT_SUPPORTED) }
    }

    /// A handle or an address that a call gave.
    pub(crate) fn given<T>(&self, call: &'static str, given: *mut T) -> Result<*mut T, CallError> {
        if !given.is_null() {
            return Ok(given);
        }
        let text = "it said success, but gave nothing".to_owned();
        Err(CallError { text, ..self.symbols().failure(call, OUT_OF_MEMORY) })
    }
}

/// `error`, with what failed in cleaning up after it.
#[cold]
pub(crate) fn and_then(error: CallError, then: &CallError) -> CallError {
    CallError { text: format!("{}; then {} failed too: {then}", error.text, then.call), ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_the_kind_that_the_header_gives_it() {
        let of = |wanted: Kind| (0..1_100).filter(|status| kind(*status) == wanted).collect::<Vec<_>>();
        assert_eq!(of(Kind::OutOfMemory), [2]);
        assert_eq!(of(Kind::Gone), [4]);
        assert_eq!(of(Kind::Sticky), [214, 700, 702, 710, 719]);
        assert_eq!(of(Kind::NotSupported), [215, 217, 801]);
        assert_eq!(of(Kind::Capturing), (900..=908).collect::<Vec<_>>());
    }
}
