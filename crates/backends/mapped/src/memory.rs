//! Memory for examples and tests: the device's, and the host's that the device can reach. Each value owns its own.
//!
//! Copies are enqueued and not waited for. So they take buffers of these types and never borrowed memory of anybody's: the driver goes on
//! reading and writing it when the call has long returned.

use core::ffi::c_void;
use core::ptr::NonNull;
use core::slice;

use wakeline_core::{Error, ErrorCode};

use crate::context::Context;
use crate::driver::{Fill, LineDriver, RawPage, RawStream, Side, WorkDriver};

/// Host memory comes in whole ones of these, in bytes.
const HOST_PAGE_BYTES: usize = 4_096;

/// Memory of the device.
///
/// Freeing it may wait for the device, when the value is dropped: drop it where that does not matter.
#[derive(Debug)]
pub struct DeviceBuffer<D: WorkDriver> {
    context: Context<D>,
    address: u64,
    bytes: usize,
}

impl<D: WorkDriver> DeviceBuffer<D> {
    /// Allocates `bytes` of the device's memory, at least one. What is in it is anything. May wait for the device.
    ///
    /// # Errors
    ///
    /// [`Backend`](ErrorCode::Backend): there is not that much, or the driver has no calls for it.
    pub fn new(context: &Context<D>, bytes: usize) -> Result<Self, Error> {
        let _bound = context.bind()?;
        let bytes = bytes.max(1);
        // SAFETY: the context is bound.
        let address = unsafe { context.driver().mem_alloc(bytes) }.map_err(|error| context.told(error))?;
        Ok(Self { context: context.clone(), address, bytes })
    }

    /// Where the device sees it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How long it is, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Enqueues the copy of all of `host` to the beginning of this.
    ///
    /// # Errors
    ///
    /// - [`InvalidLimit`](ErrorCode::InvalidLimit): `host` is longer.
    /// - [`Backend`](ErrorCode::Backend): the call failed.
    ///
    /// # Safety
    ///
    /// - `stream` is alive and of this buffer's context.
    /// - Until the copy is done neither buffer is dropped, `host` is not written and this not used out of the stream's order. Where the
    ///   stream is being captured, that is until the last launch of the graph is.
    pub unsafe fn copy_from(&self, stream: RawStream, host: &HostBuffer<D>) -> Result<(), Error> {
        let (from, to) = (Side::Host(host.start()), Side::Device(self.address));
        // SAFETY: as the caller says.
        unsafe { self.copy(stream, from, to, host.bytes) }
    }

    /// Enqueues the copy of the beginning of this to all of `host`.
    ///
    /// # Errors
    ///
    /// As [`copy_from`](Self::copy_from).
    ///
    /// # Safety
    ///
    /// - `stream` is alive and of this buffer's context.
    /// - Until the copy is done neither buffer is dropped, `host` is neither read nor written and this not written out of the stream's
    ///   order. Where the stream is being captured, that is until the last launch of the graph is.
    pub unsafe fn copy_to(&self, stream: RawStream, host: &HostBuffer<D>) -> Result<(), Error> {
        let (from, to) = (Side::Device(self.address), Side::Host(host.start()));
        // SAFETY: as the caller says.
        unsafe { self.copy(stream, from, to, host.bytes) }
    }

    /// Enqueues that all of its bytes become `byte`.
    ///
    /// # Errors
    ///
    /// [`Backend`](ErrorCode::Backend): the call failed.
    ///
    /// # Safety
    ///
    /// - `stream` is alive and of this buffer's context.
    /// - Until it is done the buffer is not dropped, nor used out of the stream's order; of a capture, until the last launch of the graph is.
    pub unsafe fn fill(&self, stream: RawStream, byte: u8) -> Result<(), Error> {
        let context = &self.context;
        let _bound = context.bind()?;
        // SAFETY: the context is bound, the buffer as long as that; the rest is as the caller says.
        let filled = unsafe { context.driver().fill(stream, self.address, Fill::One(byte), self.bytes) };
        filled.map_err(|error| context.told(error))
    }

    /// # Safety
    ///
    /// As [`copy_from`](Self::copy_from) and [`copy_to`](Self::copy_to); the host's side is so long.
    unsafe fn copy(&self, stream: RawStream, from: Side, to: Side, len: usize) -> Result<(), Error> {
        self.fits(len)?;
        let context = &self.context;
        let _bound = context.bind()?;
        // SAFETY: the context is bound, both buffers are as long as that; the rest is as the caller says.
        let copied = unsafe { context.driver().copy(stream, from, to, len) };
        copied.map_err(|error| context.told(error))
    }

    fn fits(&self, bytes: usize) -> Result<(), Error> {
        if bytes <= self.bytes {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::InvalidLimit,
            [&"the length of a copy, in bytes,", &bytes, &0, &self.bytes],
        ))
    }
}

impl<D: WorkDriver> Drop for DeviceBuffer<D> {
    fn drop(&mut self) {
        let Some(_bound) = self.context.bind_in_drop() else { return };
        // SAFETY: the context is bound; it was allocated here, is freed once, and nothing enqueued uses it any more, by the contracts above.
        if let Err(error) = unsafe { self.context.driver().mem_free(self.address) } {
            self.context.failed_in_drop(&error);
        }
    }
}

/// Host memory that stays where it is and that devices can reach, in whatever context: what copies that are not waited for
/// need, and kernels can use it too.
///
/// Freeing it may wait for the device, when the value is dropped: drop it where that does not matter.
#[derive(Debug)]
pub struct HostBuffer<D: LineDriver> {
    context: Context<D>,
    page: RawPage,
    bytes: usize,
}

// SAFETY: it owns its memory, which any thread may use and free.
unsafe impl<D: LineDriver> Send for HostBuffer<D> {}
// SAFETY: of a shared one the memory can only be read here; who has a device write it answers for that.
unsafe impl<D: LineDriver> Sync for HostBuffer<D> {}

impl<D: LineDriver> HostBuffer<D> {
    /// Allocates `bytes` of the host's memory, at least one, all zero. May wait for the device.
    ///
    /// # Errors
    ///
    /// - [`InvalidLimit`](ErrorCode::InvalidLimit): there can be no value of that length.
    /// - [`Backend`](ErrorCode::Backend): there is not that much.
    pub fn new(context: &Context<D>, bytes: usize) -> Result<Self, Error> {
        let bytes = bytes.max(1);
        // What is longer cannot be a slice.
        let limit = isize::MAX.unsigned_abs() - HOST_PAGE_BYTES;
        if bytes > limit {
            let what = "the length of a buffer, in bytes,";
            return Err(Error::new(ErrorCode::InvalidLimit, [&what, &bytes, &1, &limit]));
        }
        let whole = bytes.next_multiple_of(HOST_PAGE_BYTES);
        let _bound = context.bind()?;
        // SAFETY: the context is bound, and the length whole pages.
        let page = unsafe { context.driver().page_alloc(whole) }.map_err(|error| context.told(error))?;
        let start: NonNull<u8> = page.host.cast();
        // SAFETY: the memory is that long and new. From here on its bytes have values.
        unsafe { start.write_bytes(0, whole) };
        Ok(Self { context: context.clone(), page, bytes })
    }

    /// Where the device sees it.
    pub fn address(&self) -> u64 {
        self.page.device
    }

    /// How long it is, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is in it.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the memory is that long, has values since `new`, and is owned. What a device writes into it is done, or has not begun, by the
        // contract of whoever enqueued that.
        unsafe { slice::from_raw_parts(self.start().cast(), self.bytes) }
    }

    /// What is in it, to write.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut` makes it the only one.
        unsafe { slice::from_raw_parts_mut(self.start().cast(), self.bytes) }
    }

    /// Where the host sees it.
    pub fn start(&self) -> *mut c_void {
        self.page.host.as_ptr()
    }
}

impl<D: LineDriver> Drop for HostBuffer<D> {
    fn drop(&mut self) {
        let Some(_bound) = self.context.bind_in_drop() else { return };
        // SAFETY: the context is bound; it was allocated here, is freed once, and nothing enqueued uses it any more, by the contracts of the
        // copies, and of whoever handed its address to a device.
        let freed = unsafe { self.context.driver().page_free(self.page) };
        if let Err(error) = freed {
            self.context.failed_in_drop(&error);
        }
    }
}
