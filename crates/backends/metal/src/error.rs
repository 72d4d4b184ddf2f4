//! What ends a command buffer, and the core's coded errors for it.

use core::fmt;

use wakeline_core::{Error, ErrorCode};

/// What the backend calls itself in its errors.
pub(crate) const BACKEND: &str = "metal";

/// The access to the device was taken from this process, after too many faults of its.
const ACCESS_REVOKED: i64 = 4;

/// The device is gone.
const DEVICE_REMOVED: i64 = 11;

/// What ended a command buffer: a number of `MTLCommandBufferError`, and what the system says of it.
///
/// ```
/// use wakeline_metal::BufferError;
/// let error = BufferError::new(2, "Caused GPU Timeout Error");
/// assert_eq!(error.to_string(), "MTLCommandBufferErrorTimeout (2): Caused GPU Timeout Error");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BufferError {
    code: i64,
    text: String,
}

impl BufferError {
    /// The error of this number; `text` is for people.
    pub fn new(code: i64, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// Its number.
    pub const fn code(&self) -> i64 {
        self.code
    }

    /// Whether whatever else the device is given ends so, too.
    pub(crate) const fn is_sticky(&self) -> bool {
        matches!(self.code, ACCESS_REVOKED | DEVICE_REMOVED)
    }

    const fn name(&self) -> &'static str {
        match self.code {
            0 => "None",
            1 => "Internal",
            2 => "Timeout",
            3 => "PageFault",
            ACCESS_REVOKED => "AccessRevoked",
            7 => "NotPermitted",
            8 => "OutOfMemory",
            9 => "InvalidResource",
            10 => "Memoryless",
            DEVICE_REMOVED => "DeviceRemoved",
            12 => "StackOverflow",
            _ => " of another kind",
        }
    }
}

impl fmt::Display for BufferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MTLCommandBufferError{} ({}): {}", self.name(), self.code, self.text)
    }
}

/// A buffer that was ended by an error.
pub(crate) fn killed(error: &BufferError) -> Error {
    Error::new(ErrorCode::Backend, [&BACKEND, &"the command buffer", error])
}

/// A call that gave nothing.
pub(crate) fn gave_nothing(call: &str) -> Error {
    Error::new(ErrorCode::Backend, [&BACKEND, &call, &"it returned nil"])
}
