//! Memory of the device in the order of its streams: allocations, frees, fills and copies that are enqueued and not waited for.
//!
//! One call of the driver a function. A length of zero is none: drivers refuse allocations of it, and nothing is to be done.

use core::fmt;
use core::marker::PhantomData;

use wakeline_core::{Error, within};
use wakeline_ops::port::{At, Pattern, Rows};

use crate::context::Context;
use crate::driver::{Fill, PoolNumber, RawPool, RawStream, RowCopy, Side, WorkDriver};
use crate::error::CallError;
use crate::pinned::Pinned;
use crate::stream::Stream;

/// Memory of a device: a name, which frees nothing when it is dropped.
pub struct DeviceMemory<D> {
    address: u64,
    len: usize,
    /// Whose device it is of.
    driver: PhantomData<fn() -> D>,
}

impl<D> DeviceMemory<D> {
    /// Memory that somebody else has allocated: a name, whoever owns it.
    pub const fn at(address: u64, len: usize) -> Self {
        Self { address, len, driver: PhantomData }
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

impl<D> fmt::Debug for DeviceMemory<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory").field("address", &self.address).field("len", &self.len).finish()
    }
}

/// One side of a copy: a buffer, or pinned memory, from an offset on.
pub(super) enum End<'a, D: WorkDriver> {
    Device(At<'a, DeviceMemory<D>>),
    Host(&'a Pinned<D>, usize),
}

impl<D: WorkDriver> End<'_, D> {
    /// Where `len` bytes begin that are there.
    fn found(&self, len: usize) -> Result<Side, Error> {
        match self {
            Self::Device(At { memory, offset_bytes }) => {
                within("the end of a copy, in bytes,", offset_bytes.saturating_add(len), 0, memory.len)?;
                Ok(Side::Device(memory.address.wrapping_add(*offset_bytes as u64)))
            }
            Self::Host(pinned, offset) => Ok(Side::Host(pinned.at(*offset, len)?.as_ptr().cast())),
        }
    }
}

/// The pool of the device that is bound, which keeps at least so many bytes that are free from here on, however often somebody synchronizes.
///
/// # Errors
///
/// The device has no pools, or a call failed.
pub(super) fn keep_freed<D: WorkDriver>(driver: &D, bytes: u64) -> Result<RawPool, CallError> {
    // SAFETY: the device's context is bound, says the caller.
    let pool = unsafe { driver.pool() }?;
    // SAFETY: the pool is the device's own.
    if unsafe { driver.pool_number(pool, PoolNumber::Kept) }? < bytes {
        // SAFETY: as above.
        unsafe { driver.pool_keep(pool, bytes) }?;
    }
    Ok(pool)
}

/// How many bytes a pool of this context's device has of the system.
pub(super) fn reserved<D: WorkDriver>(context: &Context<D>, pool: RawPool) -> Result<u64, Error> {
    context.open()?;
    let _bound = context.bind()?;
    // SAFETY: the context is bound, and the pool its device's own.
    let bytes = unsafe { context.driver().pool_number(pool, PoolNumber::Reserved) };
    bytes.map_err(|error| context.told(error))
}

/// Has a pool of this context's device give back what nobody uses, until it has no more than so many bytes.
pub(super) fn trim<D: WorkDriver>(context: &Context<D>, pool: RawPool, keep: u64) -> Result<(), Error> {
    context.open()?;
    let _bound = context.bind()?;
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    // SAFETY: the context is bound, and the pool its device's own.
    unsafe { context.driver().pool_trim(pool, keep) }.map_err(|error| context.told(error))
}

/// Makes one call that enqueues, in a context that is well.
fn enqueue<D: WorkDriver>(
    context: &Context<D>,
    stream: &Stream<D>,
    call: impl FnOnce(&D, RawStream) -> Result<(), CallError>,
) -> Result<(), Error> {
    context.open()?;
    let _bound = context.bind()?;
    call(context.driver(), stream.raw()).map_err(|error| context.told(error))
}

/// Allocates in the order of `stream`, which is of `context`.
pub(super) fn alloc<D: WorkDriver>(
    context: &Context<D>,
    stream: &Stream<D>,
    len: usize,
) -> Result<DeviceMemory<D>, Error> {
    context.open()?;
    if len == 0 {
        return Ok(DeviceMemory::at(0, 0));
    }
    let _bound = context.bind()?;
    // SAFETY: the context is bound, the stream alive and its own.
    match unsafe { context.driver().pool_alloc(stream.raw(), len) } {
        Ok(address) => Ok(DeviceMemory::at(address, len)),
        Err(error) => Err(context.no_memory("device", len, error)),
    }
}

/// # Safety
///
/// `stream` and `memory` are of `context`, all uses of the memory are ordered before this, and none comes later.
pub(super) unsafe fn free<D: WorkDriver>(
    context: &Context<D>,
    stream: &Stream<D>,
    memory: &DeviceMemory<D>,
) -> Result<(), Error> {
    if memory.is_empty() {
        return Ok(());
    }
    // Also where the context was told to close: it waits for what is let go.
    context.health_known()?;
    let _bound = context.bind()?;
    // SAFETY: the context is bound and the stream alive; the memory is freed once and by nobody used any more, says the caller.
    let freed = unsafe { context.driver().pool_free(stream.raw(), memory.address) };
    freed.map_err(|error| context.told(error))
}

/// # Safety
///
/// `stream` and the memory are of `context`; the memory stays until this is done, and all other uses are ordered before or behind it.
pub(super) unsafe fn fill<D: WorkDriver>(
    context: &Context<D>,
    stream: &Stream<D>,
    to: At<'_, DeviceMemory<D>>,
    pattern: Pattern,
    count: usize,
) -> Result<(), Error> {
    let Side::Device(to) = End::Device(to).found(count.saturating_mul(pattern.bytes()))? else {
        return Ok(());
    };
    if count == 0 {
        return context.open();
    }
    let with = match pattern {
        Pattern::One(byte) => Fill::One(byte),
        Pattern::Two(number) => Fill::Two(number),
        Pattern::Four(number) => Fill::Four(number),
    };
    enqueue(context, stream, |driver, stream| {
        // SAFETY: the context is bound, the stream alive and the memory as long as that; the rest is as the caller says. Of an address that is no
        // multiple of the pattern's length the driver says so.
        unsafe { driver.fill(stream, to, with, count) }
    })
}

/// # Safety
///
/// As [`fill`], for both; what only reads `from` needs no order. The host does not write its side until this is done, nor touch it where that is `to`.
pub(super) unsafe fn copy<D: WorkDriver>(
    context: &Context<D>,
    stream: &Stream<D>,
    from: &End<'_, D>,
    to: &End<'_, D>,
    len: usize,
) -> Result<(), Error> {
    let (from, to) = (from.found(len)?, to.found(len)?);
    if len == 0 {
        return context.open();
    }
    enqueue(context, stream, |driver, stream| {
        // SAFETY: the context is bound, the stream alive and both as long as that; the rest is as the caller says. The host's is pinned, so that it is used in
        // the stream's turn, and the call does not wait for that.
        unsafe { driver.copy(stream, from, to, len) }
    })
}

/// # Safety
///
/// As [`copy`].
pub(super) unsafe fn copy_rows<D: WorkDriver>(
    context: &Context<D>,
    stream: &Stream<D>,
    from: &End<'_, D>,
    to: &End<'_, D>,
    rows: Rows,
) -> Result<(), Error> {
    let Rows { len, count, from_pitch, to_pitch } = rows;
    let (from, to) = (from.found(rows.extent(from_pitch))?, to.found(rows.extent(to_pitch))?);
    if len == 0 || count == 0 {
        return context.open();
    }
    let rows = RowCopy { len, count, from_pitch, to_pitch };
    enqueue(context, stream, |driver, stream| {
        // SAFETY: the context is bound, the stream alive and both as long as the rows need; the rest is as in `copy`.
        unsafe { driver.copy_rows(stream, from, to, rows) }
    })
}
