//! What HIP calls its statuses, and says of them.

use core::ffi::{CStr, c_char};

use crate::Status;

macro_rules! words {
    ($($number:literal $name:literal $text:literal)*) => {
        fn words(status: Status) -> (&'static CStr, &'static CStr) {
            match status.0 {
                $($number => ($name, $text),)*
                _ => (c"hipErrorUnknown", c"unknown error"),
            }
        }
    };
}

words! {
    0 c"hipSuccess" c"no error"
    1 c"hipErrorInvalidValue" c"invalid argument"
    2 c"hipErrorOutOfMemory" c"out of memory"
    3 c"hipErrorNotInitialized" c"initialization error"
    4 c"hipErrorDeinitialized" c"driver shutting down"
    35 c"hipErrorInsufficientDriver" c"driver version is insufficient for runtime version"
    100 c"hipErrorNoDevice" c"no ROCm-capable device is detected"
    101 c"hipErrorInvalidDevice" c"invalid device ordinal"
    200 c"hipErrorInvalidImage" c"device kernel image is invalid"
    201 c"hipErrorInvalidContext" c"invalid device context"
    209 c"hipErrorNoBinaryForGpu" c"no kernel image is available for execution on the device"
    214 c"hipErrorECCNotCorrectable" c"uncorrectable ECC error encountered"
    217 c"hipErrorPeerAccessUnsupported" c"peer access is not supported between these two devices"
    218 c"hipErrorInvalidKernelFile" c"invalid kernel file"
    400 c"hipErrorInvalidHandle" c"invalid resource handle"
    401 c"hipErrorIllegalState" c"the operation cannot be performed in the present state"
    500 c"hipErrorNotFound" c"named symbol not found"
    600 c"hipErrorNotReady" c"device not ready"
    700 c"hipErrorIllegalAddress" c"an illegal memory access was encountered"
    702 c"hipErrorLaunchTimeOut" c"the launch timed out and was terminated"
    704 c"hipErrorPeerAccessAlreadyEnabled" c"peer access is already enabled"
    709 c"hipErrorContextIsDestroyed" c"context is destroyed"
    710 c"hipErrorAssert" c"device-side assert triggered"
    719 c"hipErrorLaunchFailure" c"unspecified launch failure"
    720 c"hipErrorCooperativeLaunchTooLarge" c"too many blocks in cooperative launch"
    801 c"hipErrorNotSupported" c"operation not supported"
    900 c"hipErrorStreamCaptureUnsupported" c"operation not permitted when stream is capturing"
    901 c"hipErrorStreamCaptureInvalidated" c"operation failed due to a previous error during capture"
    902 c"hipErrorStreamCaptureMerge" c"operation would result in a merge of separate capture sequences"
    903 c"hipErrorStreamCaptureUnmatched" c"capture was not ended in the same stream as it began"
    904 c"hipErrorStreamCaptureUnjoined" c"capturing stream has unjoined work"
    905 c"hipErrorStreamCaptureIsolation" c"dependency created on uncaptured work in another stream"
    906 c"hipErrorStreamCaptureImplicit" c"operation would make the legacy stream depend on a capturing blocking stream"
    907 c"hipErrorCapturedEvent" c"operation not permitted on an event last recorded in a capturing stream"
    908 c"hipErrorStreamCaptureWrongThread" c"attempt to terminate a thread-local capture sequence from another thread"
    910 c"hipErrorGraphExecUpdateFailure" c"the graph update was not performed because it included changes which violated constraints specific to instantiated graph update"
}

pub(super) fn name(status: Status) -> *const c_char {
    words(status).0.as_ptr()
}

pub(super) fn text(status: Status) -> *const c_char {
    words(status).1.as_ptr()
}
