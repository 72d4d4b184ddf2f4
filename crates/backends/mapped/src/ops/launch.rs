//! The launch of a kernel as operations ask for it: in clusters, cooperatively, before the one in front has ended; and why one was refused.

use core::ffi::c_void;
use core::fmt;

use wakeline_core::{Error, ErrorCode};
use wakeline_ops::port::{Arg, Shape, ShapeLimits};

use crate::driver::{LaunchShape, Launches, RawStream, WorkDriver};
use crate::error::Kind;
use crate::function::{Failed, Function};
use crate::ops::access::DeviceMemory;

pub(super) fn limits(launches: &Launches) -> ShapeLimits {
    let Launches { blocks, threads, block_threads, shared_bytes, cluster_blocks, .. } = *launches;
    ShapeLimits {
        blocks,
        threads,
        block_threads,
        shared_bytes,
        cluster_blocks: cluster_blocks.unwrap_or_default(),
    }
}

/// What a shape asks of the device beyond a plain launch is there.
fn has<D: WorkDriver>(launches: &Launches, shape: Shape) -> Result<(), Error> {
    let wanted = [
        (shape.cluster.is_some() && launches.cluster_blocks.is_none(), "in clusters"),
        (shape.cooperative && !launches.cooperative, "cooperatively"),
        (shape.overlapping && !launches.overlapping, "before the one in front of it has ended"),
    ];
    let lacks = wanted.into_iter().find(|(lacks, _)| *lacks);
    lacks.map_or(Ok(()), |(_, how)| Err(unsupported::<D>(how, "the device has not got that")))
}

/// An argument as the kernel gets it: a narrower number is the low bytes of a word, which come first on every host that these drivers are for.
#[inline]
pub(super) fn word<D: WorkDriver>(arg: &Arg<'_, DeviceMemory<D>>) -> u64 {
    match *arg {
        Arg::Word(word) => word,
        Arg::Read(at) | Arg::Write(at) => at.memory.address().wrapping_add(at.offset_bytes as u64),
    }
}

#[cold]
fn unsupported<D: WorkDriver>(how: &str, why: &str) -> Error {
    Error::new(ErrorCode::LaunchUnsupported, [&D::NAME, &how, &why])
}

#[cold]
pub(super) fn of_another_context<D: WorkDriver>(
    name: &str,
    other: &dyn fmt::Display,
    own: &dyn fmt::Display,
) -> Error {
    unsupported::<D>(
        "of another context",
        &format!("`{name}` was loaded in {other}, and this is {own}; load it here"),
    )
}

/// What was refused, as what is wrong with its shape, where that is what it is.
#[cold]
fn explained<D: WorkDriver>(error: Error, shape: Shape, launches: &Launches) -> Error {
    match shape.check(D::NAME, &limits(launches)) {
        Err(wrong) if error.code() == ErrorCode::Backend => wrong.with_source(error),
        _ => error,
    }
}

/// Enqueues a kernel. Looks at the shape only where it is not a plain one, or was refused.
///
/// # Errors
///
/// As [`Launch::launch`](wakeline_ops::port::Launch::launch).
///
/// # Safety
///
/// As [`Function::launch`]; each of `values` is to a value of the kernel's parameter of that place.
#[inline]
pub(super) unsafe fn launch<D: WorkDriver>(
    kernel: &Function<D>,
    launches: &Launches,
    stream: RawStream,
    shape: Shape,
    values: &mut [*mut c_void],
) -> Result<(), Error> {
    let is_plain = shape.is_plain();
    if !is_plain {
        has::<D>(launches, shape)?;
        shape.check(D::NAME, &limits(launches))?;
    }
    let Shape { blocks, threads, shared_bytes, cluster, cooperative, overlapping, .. } = shape;
    let how = LaunchShape { blocks, threads, shared_bytes, cluster, cooperative, overlapping };
    // SAFETY: as the caller says.
    let done = unsafe { kernel.launch_with(stream, &how, values) };
    done.map_err(|failed| match failed {
        Failed::Call(said) if !is_plain && said.kind == Kind::NotSupported => {
            unsupported::<D>("with these attributes", &said.to_string()).with_source(said)
        }
        failed => explained::<D>(kernel.told(failed), shape, launches),
    })
}
