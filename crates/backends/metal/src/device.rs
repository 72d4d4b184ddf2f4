//! A device, and whether it is lost.

use core::fmt;
use std::sync::{Arc, OnceLock};

use wakeline_core::{ContextKey, Error, ErrorCode};

use crate::driver::MetalDriver;
use crate::error::{BACKEND, BufferError, killed};

/// A Metal device. Clones are the same device.
///
/// A command buffer that is killed is its own affair, and the device goes on; one that was ended because the device is gone, or because the process may no
/// longer use it, is everybody's: from then on every point of the device fails with that first cause.
pub struct Device<D: MetalDriver> {
    inner: Arc<Inner<D>>,
}

struct Inner<D: MetalDriver> {
    driver: D,
    raw: D::Device,
    lost: OnceLock<Error>,
}

impl<D: MetalDriver> Clone for Device<D> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<D: MetalDriver> fmt::Debug for Device<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("lost", &self.inner.lost.get()).finish_non_exhaustive()
    }
}

impl<D: MetalDriver> Device<D> {
    /// The system's default device.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::NoDevice`] where there is none.
    pub fn system(driver: D) -> Result<Self, Error> {
        let raw = driver.system_device().ok_or_else(|| {
            Error::new(ErrorCode::NoDevice, [&BACKEND, &"MTLCreateSystemDefaultDevice returned nil"])
        })?;
        Ok(Self::from_raw(driver, raw))
    }

    /// This device of Metal's.
    pub fn from_raw(driver: D, raw: D::Device) -> Self {
        Self { inner: Arc::new(Inner { driver, raw, lost: OnceLock::new() }) }
    }

    /// Metal's own device.
    pub fn raw(&self) -> &D::Device {
        &self.inner.raw
    }

    /// Metal's calls.
    pub fn driver(&self) -> &D {
        &self.inner.driver
    }

    /// Whether it can be used, as far as is known. Makes no call.
    ///
    /// # Errors
    ///
    /// The first cause, once it is lost.
    pub fn health(&self) -> Result<(), Error> {
        self.inner.lost.get().cloned().map_or(Ok(()), Err)
    }

    /// What `error` of a buffer means to this device; the first that means its end is kept.
    pub(crate) fn told(&self, error: &BufferError) -> Error {
        let error_of_buffer = killed(error);
        if error.is_sticky() {
            return self.inner.lost.get_or_init(|| error_of_buffer).clone();
        }
        error_of_buffer
    }

    pub(crate) fn key(&self) -> ContextKey {
        ContextKey::of(&*self.inner)
    }
}
