//! What a failed driver call says, and what that means for the rest.

use core::fmt;

use wakeline_core::{Error, ErrorCode};

/// What a failed call means for whoever made it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// The context is broken for good: every later call in it fails as well.
    Sticky,
    /// This driver or device cannot do that.
    NotSupported,
    /// The driver is being unloaded, at the end of the process: nothing is left to do or to tell.
    Gone,
    /// The call would have disturbed a capture, or did.
    Capturing,
    /// There is not that much memory; others may work.
    OutOfMemory,
    /// This call failed; others may work.
    Refused,
}

/// A driver call that failed. Made off the hot path: it owns its texts.
///
/// ```
/// use wakeline_mapped::error::{CallError, Kind};
/// use wakeline_core::{Error, ErrorCode};
/// let error = CallError {
///     backend: "cuda",
///     call: "cuStreamQuery",
///     status: 719,
///     kind: Kind::Sticky,
///     name: "CUDA_ERROR_LAUNCH_FAILED".into(),
///     text: "unspecified launch failure".into(),
/// };
/// let error = Error::from(error);
/// assert_eq!(error.code(), ErrorCode::Backend);
/// assert_eq!(
///     error.to_string(),
///     "cuda: cuStreamQuery failed: CUDA_ERROR_LAUNCH_FAILED (719), unspecified launch failure"
/// );
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallError {
    /// Whose driver it is: "cuda".
    pub backend: &'static str,
    /// The function of the driver's interface.
    pub call: &'static str,
    /// The number it returned.
    pub status: i32,
    /// What that means.
    pub kind: Kind,
    /// The number's name.
    pub name: String,
    /// What the driver says about it; may be empty.
    pub text: String,
}

impl CallError {
    /// Whether a call that was to enqueue something has not: the driver refused it by what it is. By other failures nobody knows.
    pub(crate) const fn enqueued_nothing(&self) -> bool {
        matches!(self.kind, Kind::NotSupported | Kind::Capturing)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.status)?;
        if self.text.is_empty() { Ok(()) } else { write!(f, ", {}", self.text) }
    }
}

impl core::error::Error for CallError {}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        let coded = Self::new(ErrorCode::Backend, [&error.backend, &error.call, &error]);
        coded.with_source(error)
    }
}
