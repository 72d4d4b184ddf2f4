//! The launch of a kernel as operations ask for it: in clusters, cooperatively, before the one in front has ended; and why one was refused.

use core::ffi::{c_int, c_uint, c_void};
use core::fmt;
use core::ptr;

use wakeline_core::{Error, ErrorCode};
use wakeline_mapped::driver::RawStream;
use wakeline_mapped::error::Kind;
use wakeline_ops::port::{Arg, Shape, ShapeLimits};

use crate::access::CudaMemory;
use crate::arch::Arch;
use crate::device::{Attribute, Device};
use crate::error::{BACKEND, kind};
use crate::function::{Dim, Function};
use crate::sys::{
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
    CUlaunchAttribute, CUlaunchConfig,
};

/// The most blocks of a cluster that every device with clusters takes, and the most that any takes.
const CLUSTER_BLOCKS_OF_ALL: u32 = 8;
const CLUSTER_BLOCKS_MAX: u32 = 16;

/// The first architecture on which a kernel may begin before the one in front has ended.
const OVERLAPS_FROM: Arch = Arch::new(9, 0);

/// No more attributes than that has a launch.
const ATTRIBUTES_MAX: usize = 3;

/// What a device can run, asked for once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launches {
    limits: ShapeLimits,
    clusters: bool,
    cooperative: bool,
    overlapping: bool,
}

impl Launches {
    pub(crate) fn of(device: &Device) -> Result<Self, Error> {
        let size = |number: i32| device.attribute(Attribute(number)).map(i32::unsigned_abs);
        let sizes = |first: i32| Ok::<_, Error>([size(first)?, size(first + 1)?, size(first + 2)?]);
        let limits = ShapeLimits {
            // By `CUdevice_attribute` of `cuda.h`: MAX_GRID_DIM_X on, MAX_BLOCK_DIM_X on, MAX_THREADS_PER_BLOCK.
            blocks: sizes(5)?,
            threads: sizes(2)?,
            block_threads: size(1)?,
            shared_bytes: device.attribute(Attribute::SHARED_BYTES_MAX)?.unsigned_abs(),
            cluster_blocks: CLUSTER_BLOCKS_MAX,
        };
        Ok(Self {
            limits,
            clusters: device.has(Attribute::CLUSTER_LAUNCH)?,
            cooperative: device.has(Attribute::COOPERATIVE_LAUNCH)?,
            overlapping: device.arch()? >= OVERLAPS_FROM,
        })
    }

    pub(crate) const fn limits(&self) -> &ShapeLimits {
        &self.limits
    }

    /// What a shape asks of the device beyond a plain launch is there.
    fn has(&self, shape: Shape) -> Result<(), Error> {
        let wanted = [
            (shape.cluster.is_some() && !self.clusters, "in clusters"),
            (shape.cooperative && !self.cooperative, "cooperatively"),
            (shape.overlapping && !self.overlapping, "before the one in front of it has ended"),
        ];
        let lacks = wanted.into_iter().find(|(lacks, _)| *lacks);
        lacks.map_or(Ok(()), |(_, how)| Err(unsupported(how, "the device has not got that")))
    }
}

/// An argument as the kernel gets it: a narrower number is the low bytes of a word, which come first on every host that CUDA has.
#[inline]
pub(crate) fn word(arg: &Arg<'_, CudaMemory>) -> u64 {
    match *arg {
        Arg::Word(word) => word,
        Arg::Read(at) | Arg::Write(at) => at.memory.address().wrapping_add(at.offset_bytes as u64),
    }
}

#[cold]
fn unsupported(how: &str, why: &str) -> Error {
    Error::new(ErrorCode::LaunchUnsupported, [&BACKEND, &how, &why])
}

#[cold]
pub(crate) fn of_another_context(name: &str, other: &dyn fmt::Display, own: &dyn fmt::Display) -> Error {
    unsupported(
        "of another context",
        &format!("`{name}` was loaded in {other}, and this is {own}; load it here"),
    )
}

/// What was refused, as what is wrong with its shape, where that is what it is.
#[cold]
fn explained(error: Error, shape: Shape, launches: &Launches) -> Error {
    match shape.check(BACKEND, &launches.limits) {
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
pub(crate) unsafe fn launch(
    kernel: &Function,
    launches: &Launches,
    stream: RawStream,
    shape: Shape,
    values: &mut [*mut c_void],
) -> Result<(), Error> {
    let ([x, y, z], [block_x, block_y, block_z]) = (shape.blocks, shape.threads);
    let (grid, block) = (Dim { x, y, z }, Dim { x: block_x, y: block_y, z: block_z });
    let done = if shape.is_plain() {
        // SAFETY: as the caller says.
        unsafe { kernel.launch_with(stream, grid, block, shape.shared_bytes, values) }
    } else {
        // SAFETY: as the caller says.
        unsafe { launch_with_attributes(kernel, launches, stream, shape, values) }
    };
    done.map_err(|error| explained(error, shape, launches))
}

/// # Safety
///
/// As [`launch`].
unsafe fn launch_with_attributes(
    kernel: &Function,
    launches: &Launches,
    stream: RawStream,
    shape: Shape,
    values: &mut [*mut c_void],
) -> Result<(), Error> {
    launches.has(shape)?;
    shape.check(BACKEND, &launches.limits)?;
    let context = kernel.module().context();
    let Some(launch) = context.driver().symbols().cuLaunchKernelEx else {
        let (library, version) = (context.driver().library(), context.driver().version());
        let why = format!(
            "the driver ({library}, CUDA {version}) has no `cuLaunchKernelEx`, as those of CUDA 11.8 on have"
        );
        return Err(unsupported("with attributes", &why));
    };
    let _bound = context.bind()?;
    kernel.allow_shared(shape.shared_bytes)?;
    let mut attributes = [CUlaunchAttribute { id: 0, pad: 0, value: [0; 16] }; ATTRIBUTES_MAX];
    let mut count = 0;
    let mut add = |id: c_uint, numbers: &[c_uint]| {
        if let Some(attribute) = attributes.get_mut(count) {
            attribute.id = id;
            attribute.value.iter_mut().zip(numbers).for_each(|(room, number)| *room = *number);
            count += 1;
        }
    };
    if let Some(cluster) = shape.cluster {
        if cluster.iter().product::<u32>() > CLUSTER_BLOCKS_OF_ALL {
            kernel.set_attribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, c_int::from(true))?;
        }
        add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &cluster);
    }
    if shape.cooperative {
        add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &[1]);
    }
    if shape.overlapping {
        add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, &[1]);
    }
    let config = CUlaunchConfig {
        grid: shape.blocks,
        block: shape.threads,
        shared_bytes: shape.shared_bytes,
        stream: stream.as_ptr(),
        attributes: attributes.as_mut_ptr(),
        attribute_count: c_uint::try_from(count).unwrap_or_default(),
    };
    // SAFETY: the context is bound, the function's module loaded; the attributes are as many as it says and have the values of their kinds; stream, parameters and
    // what is done with them are as the caller says. All is read before the call returns.
    let status = unsafe { launch(&raw const config, kernel.raw(), values.as_mut_ptr(), ptr::null_mut()) };
    if kind(status) == Kind::NotSupported {
        let said = context.driver().symbols().failure("cuLaunchKernelEx", status);
        return Err(unsupported("with these attributes", &said.to_string()).with_source(said));
    }
    kernel.launched("cuLaunchKernelEx", status)
}
