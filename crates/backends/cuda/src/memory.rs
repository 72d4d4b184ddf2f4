//! Memory for examples and tests: the device's, and the host's that the device can reach. Each value owns its own.
//!
//! Copies are enqueued and not waited for. So they take buffers of these types and never borrowed memory of anybody's: the driver goes on
//! reading and writing it when the call has long returned.

use core::ffi::c_void;
use core::ptr::NonNull;
use core::slice;

use wakeline_core::{Error, ErrorCode};
use wakeline_mapped::Context;
use wakeline_mapped::driver::{LineDriver, RawPage, RawStream};

use crate::cuda::Cuda;

/// Host memory comes in whole ones of these, in bytes.
const HOST_PAGE_BYTES: usize = 4_096;

/// Memory of the device.
///
/// Freeing it may wait for the device, when the value is dropped: drop it where that does not matter.
#[derive(Debug)]
pub struct DeviceBuffer {
    context: Context<Cuda>,
    address: u64,
    bytes: usize,
}

impl DeviceBuffer {
    /// Allocates `bytes` of the device's memory, at least one. What is in it is anything. May wait for the device.
    ///
    /// # Errors
    ///
    /// [`Backend`](ErrorCode::Backend): there is not that much, or the driver lacks [`Caps::COPIES`](crate::Caps::COPIES).
    pub fn new(context: &Context<Cuda>, bytes: usize) -> Result<Self, Error> {
        let cuda = context.driver();
        let allocate = cuda.symbols().cuMemAlloc.ok_or_else(|| cuda.absent("cuMemAlloc"))?;
        let _bound = context.bind()?;
        let (bytes, mut address) = (bytes.max(1), 0);
        // SAFETY: the context is bound, and `address` is an address's room.
        let status = unsafe { allocate(&raw mut address, bytes) };
        cuda.check("cuMemAlloc", status).map_err(|error| context.told(error))?;
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
    pub unsafe fn copy_from(&self, stream: RawStream, host: &HostBuffer) -> Result<(), Error> {
        let (context, cuda) = (&self.context, self.context.driver());
        let copy = cuda.symbols().cuMemcpyHtoDAsync.ok_or_else(|| cuda.absent("cuMemcpyHtoDAsync"))?;
        self.fits(host.bytes)?;
        let _bound = context.bind()?;
        let from = host.page.host.as_ptr().cast_const();
        // SAFETY: the context is bound, both buffers are as long as that; the rest is as the caller says.
        let status = unsafe { copy(self.address, from, host.bytes, stream.as_ptr()) };
        cuda.check("cuMemcpyHtoDAsync", status).map_err(|error| context.told(error))
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
    pub unsafe fn copy_to(&self, stream: RawStream, host: &HostBuffer) -> Result<(), Error> {
        let (context, cuda) = (&self.context, self.context.driver());
        let copy = cuda.symbols().cuMemcpyDtoHAsync.ok_or_else(|| cuda.absent("cuMemcpyDtoHAsync"))?;
        self.fits(host.bytes)?;
        let _bound = context.bind()?;
        let to = host.page.host.as_ptr();
        // SAFETY: the context is bound, both buffers are as long as that; the rest is as the caller says.
        let status = unsafe { copy(to, self.address, host.bytes, stream.as_ptr()) };
        cuda.check("cuMemcpyDtoHAsync", status).map_err(|error| context.told(error))
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
        let (context, cuda) = (&self.context, self.context.driver());
        let fill = cuda.symbols().cuMemsetD8Async.ok_or_else(|| cuda.absent("cuMemsetD8Async"))?;
        let _bound = context.bind()?;
        // SAFETY: the context is bound, the buffer as long as that; the rest is as the caller says.
        let status = unsafe { fill(self.address, byte, self.bytes, stream.as_ptr()) };
        cuda.check("cuMemsetD8Async", status).map_err(|error| context.told(error))
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

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let cuda = self.context.driver();
        let Some(free) = cuda.symbols().cuMemFree else { return };
        let Some(_bound) = self.context.bind_in_drop() else { return };
        // SAFETY: the context is bound; it was allocated here, is freed once, and nothing enqueued uses it any more, by the contracts above.
        let status = unsafe { free(self.address) };
        if let Err(error) = cuda.check("cuMemFree", status) {
            self.context.failed_in_drop(&error);
        }
    }
}

/// Host memory that stays where it is and that devices can reach, in whatever context: what copies that are not waited for
/// need, and kernels can use it too.
///
/// Freeing it may wait for the device, when the value is dropped: drop it where that does not matter.
#[derive(Debug)]
pub struct HostBuffer {
    context: Context<Cuda>,
    page: RawPage,
    bytes: usize,
}

// SAFETY: it owns its memory, which any thread may use and free.
unsafe impl Send for HostBuffer {}
// SAFETY: of a shared one the memory can only be read here; who has a device write it answers for that.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// Allocates `bytes` of the host's memory, at least one, all zero. May wait for the device.
    ///
    /// # Errors
    ///
    /// - [`InvalidLimit`](ErrorCode::InvalidLimit): there can be no value of that length.
    /// - [`Backend`](ErrorCode::Backend): there is not that much.
    pub fn new(context: &Context<Cuda>, bytes: usize) -> Result<Self, Error> {
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
    pub(crate) fn start(&self) -> *mut c_void {
        self.page.host.as_ptr()
    }
}

impl Drop for HostBuffer {
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
