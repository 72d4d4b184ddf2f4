//! Memory of the device in the order of its streams: allocations, frees, fills and copies that are enqueued and not waited for.
//!
//! One call of the driver a function. A length of zero is none: the driver refuses allocations of it, and nothing is to be done.

use core::ffi::{c_uint, c_void};
use core::ptr::{self, NonNull};

use wakeline_core::{Error, within};
use wakeline_mapped::Pinned;
use wakeline_mapped::error::CallError;
use wakeline_ops::port::{At, Pattern, Rows};

use crate::cuda::Cuda;
use crate::device::Device;
use crate::sys::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CUDA_MEMCPY2D, CUresult, CUstream, Handle,
};
use crate::wait::{CuStream, CudaContext};

/// Memory of a device: a name, which frees nothing when it is dropped.
#[derive(Debug)]
pub struct CudaMemory {
    address: u64,
    len: usize,
}

impl CudaMemory {
    /// Memory that somebody else has allocated: a name, whoever owns it.
    #[cfg(feature = "cudarc")]
    pub(crate) const fn at(address: u64, len: usize) -> Self {
        Self { address, len }
    }

    /// Where the device sees it; 0 where it has no byte.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes it has.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Where `len` bytes begin that are there.
fn address(at: At<'_, CudaMemory>, len: usize) -> Result<u64, Error> {
    let At { memory, offset_bytes } = at;
    within("the end of a copy, in bytes,", offset_bytes.saturating_add(len), 0, memory.len)?;
    Ok(memory.address.wrapping_add(offset_bytes as u64))
}

/// The pool of `device`, which keeps at least so many bytes that are free from here on, however often somebody synchronizes.
///
/// # Errors
///
/// The device has no pools, or a call failed.
pub(crate) fn keep_freed(device: &Device, bytes: u64) -> Result<Handle, CallError> {
    let (cuda, attribute) = (device.cuda(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
    let symbols = cuda.symbols();
    let pool_of =
        symbols.cuDeviceGetDefaultMemPool.ok_or_else(|| cuda.absent("cuDeviceGetDefaultMemPool"))?;
    let get = symbols.cuMemPoolGetAttribute.ok_or_else(|| cuda.absent("cuMemPoolGetAttribute"))?;
    let set = symbols.cuMemPoolSetAttribute.ok_or_else(|| cuda.absent("cuMemPoolSetAttribute"))?;
    let mut pool = ptr::null_mut();
    // SAFETY: the device is one of the driver's, and `pool` is a handle's room.
    let status = unsafe { pool_of(&raw mut pool, device.handle()) };
    cuda.check("cuDeviceGetDefaultMemPool", status)?;
    let mut kept = 0_u64;
    // SAFETY: the pool is the device's own; this attribute is a number of 64 bits, and `kept` its room.
    let status = unsafe { get(pool, attribute, (&raw mut kept).cast::<c_void>()) };
    cuda.check("cuMemPoolGetAttribute", status)?;
    if kept >= bytes {
        return Ok(Handle(pool));
    }
    kept = bytes;
    // SAFETY: as above; the number is only read.
    let status = unsafe { set(pool, attribute, (&raw mut kept).cast::<c_void>()) };
    cuda.check("cuMemPoolSetAttribute", status).map(|()| Handle(pool))
}

/// How many bytes a pool of this context's device has of the system.
pub(crate) fn reserved(context: &CudaContext, pool: Handle) -> Result<u64, Error> {
    let cuda = context.driver();
    let get = absent(cuda, "cuMemPoolGetAttribute", cuda.symbols().cuMemPoolGetAttribute)?;
    context.open()?;
    let (mut bytes, _bound) = (0_u64, context.bind()?);
    // SAFETY: the pool is the device's own; this attribute is a number of 64 bits, and `bytes` its room.
    let status =
        unsafe { get(pool.0, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, (&raw mut bytes).cast::<c_void>()) };
    cuda.check("cuMemPoolGetAttribute", status).map_err(|error| context.told(error))?;
    Ok(bytes)
}

/// Has a pool of this context's device give back what nobody uses, until it has no more than so many bytes.
pub(crate) fn trim(context: &CudaContext, pool: Handle, keep_bytes: u64) -> Result<(), Error> {
    let cuda = context.driver();
    let trim = absent(cuda, "cuMemPoolTrimTo", cuda.symbols().cuMemPoolTrimTo)?;
    context.open()?;
    let _bound = context.bind()?;
    // SAFETY: the pool is the device's own.
    let status = unsafe { trim(pool.0, usize::try_from(keep_bytes).unwrap_or(usize::MAX)) };
    cuda.check("cuMemPoolTrimTo", status).map_err(|error| context.told(error))
}

/// Makes one call that enqueues, in a context that is well.
fn enqueue(
    context: &CudaContext,
    stream: &CuStream,
    call: &'static str,
    f: impl FnOnce(CUstream) -> CUresult,
) -> Result<(), Error> {
    context.open()?;
    let _bound = context.bind()?;
    let status = f(stream.raw().as_ptr());
    context.driver().check(call, status).map_err(|error| context.told(error))
}

fn absent<T>(cuda: &Cuda, call: &'static str, function: Option<T>) -> Result<T, Error> {
    Ok(function.ok_or_else(|| cuda.absent(call))?)
}

/// Allocates in the order of `stream`, which is of `context`.
pub(crate) fn alloc(context: &CudaContext, stream: &CuStream, len: usize) -> Result<CudaMemory, Error> {
    context.open()?;
    if len == 0 {
        return Ok(CudaMemory { address: 0, len });
    }
    let cuda = context.driver();
    let allocate = absent(cuda, "cuMemAllocAsync", cuda.symbols().cuMemAllocAsync)?;
    let (mut address, _bound) = (0, context.bind()?);
    // SAFETY: the context is bound, the stream alive and its own, and `address` is an address's room.
    let status = unsafe { allocate(&raw mut address, len, stream.raw().as_ptr()) };
    match cuda.check("cuMemAllocAsync", status) {
        Ok(()) => Ok(CudaMemory { address, len }),
        Err(error) => Err(context.no_memory("device", len, error)),
    }
}

/// # Safety
///
/// `stream` and `memory` are of `context`, all uses of the memory are ordered before this, and none comes later.
pub(crate) unsafe fn free(
    context: &CudaContext,
    stream: &CuStream,
    memory: &CudaMemory,
) -> Result<(), Error> {
    if memory.is_empty() {
        return Ok(());
    }
    let cuda = context.driver();
    let free = absent(cuda, "cuMemFreeAsync", cuda.symbols().cuMemFreeAsync)?;
    // Also where the context was told to close: it waits for what is let go.
    context.health_known()?;
    let _bound = context.bind()?;
    // SAFETY: the context is bound and the stream alive; the memory is freed once and by nobody used any more, says the caller.
    let status = unsafe { free(memory.address, stream.raw().as_ptr()) };
    cuda.check("cuMemFreeAsync", status).map_err(|error| context.told(error))
}

/// # Safety
///
/// `stream` and the memory are of `context`; the memory stays until this is done, and all other uses are ordered before or behind it.
pub(crate) unsafe fn fill(
    context: &CudaContext,
    stream: &CuStream,
    to: At<'_, CudaMemory>,
    pattern: Pattern,
    count: usize,
) -> Result<(), Error> {
    let to = address(to, count.saturating_mul(pattern.bytes()))?;
    if count == 0 {
        return context.open();
    }
    let (cuda, symbols) = (context.driver(), context.driver().symbols());
    match pattern {
        Pattern::One(byte) => {
            let fill = absent(cuda, "cuMemsetD8Async", symbols.cuMemsetD8Async)?;
            enqueue(context, stream, "cuMemsetD8Async", |stream| {
                // SAFETY: the context is bound, the stream alive and the memory as long as that; the rest is as the caller says.
                unsafe { fill(to, byte, count, stream) }
            })
        }
        Pattern::Two(number) => {
            let fill = absent(cuda, "cuMemsetD16Async", symbols.cuMemsetD16Async)?;
            enqueue(context, stream, "cuMemsetD16Async", |stream| {
                // SAFETY: as above; of an address that is no multiple of the number's length the driver says so.
                unsafe { fill(to, number, count, stream) }
            })
        }
        Pattern::Four(number) => {
            let fill = absent(cuda, "cuMemsetD32Async", symbols.cuMemsetD32Async)?;
            enqueue(context, stream, "cuMemsetD32Async", |stream| {
                // SAFETY: as above.
                unsafe { fill(to, number, count, stream) }
            })
        }
    }
}

/// # Safety
///
/// As [`fill`], for both; what only reads `from` needs no order.
pub(crate) unsafe fn copy(
    context: &CudaContext,
    stream: &CuStream,
    from: At<'_, CudaMemory>,
    to: At<'_, CudaMemory>,
    len: usize,
) -> Result<(), Error> {
    let (from, to) = (address(from, len)?, address(to, len)?);
    if len == 0 {
        return context.open();
    }
    let cuda = context.driver();
    let copy = absent(cuda, "cuMemcpyDtoDAsync", cuda.symbols().cuMemcpyDtoDAsync)?;
    enqueue(context, stream, "cuMemcpyDtoDAsync", |stream| {
        // SAFETY: the context is bound, the stream alive and both as long as that; the rest is as the caller says.
        unsafe { copy(to, from, len, stream) }
    })
}

/// Pinned memory, and an offset in it.
type PinnedAt<'a> = (&'a Pinned<Cuda>, usize);

/// # Safety
///
/// As [`copy`]; the host does not write `from` until this is done.
pub(crate) unsafe fn upload(
    context: &CudaContext,
    stream: &CuStream,
    from: PinnedAt<'_>,
    to: At<'_, CudaMemory>,
    len: usize,
) -> Result<(), Error> {
    let (from, to) = (from.0.at(from.1, len)?, address(to, len)?);
    if len == 0 {
        return context.open();
    }
    let cuda = context.driver();
    let copy = absent(cuda, "cuMemcpyHtoDAsync", cuda.symbols().cuMemcpyHtoDAsync)?;
    let from: NonNull<c_void> = from.cast();
    enqueue(context, stream, "cuMemcpyHtoDAsync", |stream| {
        // SAFETY: the context is bound, the stream alive and both as long as that; the rest is as the caller says. The host's is pinned, so it is
        // read in the stream's turn.
        unsafe { copy(to, from.as_ptr().cast_const(), len, stream) }
    })
}

/// # Safety
///
/// As [`copy`]; the host does not touch `to` until this is done.
pub(crate) unsafe fn download(
    context: &CudaContext,
    stream: &CuStream,
    from: At<'_, CudaMemory>,
    to: PinnedAt<'_>,
    len: usize,
) -> Result<(), Error> {
    let (from, to) = (address(from, len)?, to.0.at(to.1, len)?);
    if len == 0 {
        return context.open();
    }
    let cuda = context.driver();
    let copy = absent(cuda, "cuMemcpyDtoHAsync", cuda.symbols().cuMemcpyDtoHAsync)?;
    let to: NonNull<c_void> = to.cast();
    enqueue(context, stream, "cuMemcpyDtoHAsync", |stream| {
        // SAFETY: the context is bound, the stream alive and both as long as that; the rest is as the caller says. The host's is pinned, so the
        // call does not wait for the copy.
        unsafe { copy(to.as_ptr(), from, len, stream) }
    })
}

/// One side of a copy of rows: a buffer, or pinned memory, from an offset on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side<'a> {
    Device(At<'a, CudaMemory>),
    Host(&'a Pinned<Cuda>, usize),
}

impl Side<'_> {
    /// Its kind, where it is for the host, and for the device: that so many bytes are there.
    fn found(self, len: usize) -> Result<(c_uint, *mut c_void, u64), Error> {
        match self {
            Self::Device(at) => Ok((CU_MEMORYTYPE_DEVICE, ptr::null_mut(), address(at, len)?)),
            Self::Host(pinned, offset) => {
                Ok((CU_MEMORYTYPE_HOST, pinned.at(offset, len)?.as_ptr().cast(), 0))
            }
        }
    }
}

/// # Safety
///
/// As [`copy`], [`upload`] or [`download`].
pub(crate) unsafe fn copy_rows(
    context: &CudaContext,
    stream: &CuStream,
    from: Side<'_>,
    to: Side<'_>,
    rows: Rows,
) -> Result<(), Error> {
    let Rows { len, count, from_pitch, to_pitch } = rows;
    let (src_kind, src_host, src_device) = from.found(rows.extent(from_pitch))?;
    let (dst_kind, dst_host, dst_device) = to.found(rows.extent(to_pitch))?;
    if len == 0 || count == 0 {
        return context.open();
    }
    let cuda = context.driver();
    let copy = absent(cuda, "cuMemcpy2DAsync", cuda.symbols().cuMemcpy2DAsync)?;
    let what = CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: src_kind,
        srcHost: src_host.cast_const(),
        srcDevice: src_device,
        srcArray: ptr::null_mut(),
        srcPitch: from_pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: dst_kind,
        dstHost: dst_host,
        dstDevice: dst_device,
        dstArray: ptr::null_mut(),
        dstPitch: to_pitch,
        WidthInBytes: len,
        Height: count,
    };
    enqueue(context, stream, "cuMemcpy2DAsync", |stream| {
        // SAFETY: the context is bound, the stream alive and both as long as the rows need; the rest is as the caller says. The host's is pinned, so the
        // call does not wait for the copy.
        unsafe { copy(&raw const what, stream) }
    })
}
