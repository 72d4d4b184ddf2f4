//! The errors of the simulated device, as the core's coded errors.

use core::fmt::Display;

use wakeline_core::{Error, ErrorCode};

/// What the backend calls itself in its errors.
pub(crate) const BACKEND: &str = "sim";

/// A driver call that failed.
pub(crate) fn failed(call: &str, status: &dyn Display) -> Error {
    Error::new(ErrorCode::Backend, [&BACKEND, &call, status])
}
