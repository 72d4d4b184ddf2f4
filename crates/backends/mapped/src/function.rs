//! Kernels of a module, and their launch.
//!
//! A launch allocates nothing and looks nothing up. What it may need to know of its kernel, a handle of it knows: it is asked for once, by name, when
//! the handle is made.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode};

use crate::driver::{LaunchShape, RawKernel, RawStream, WorkDriver};
use crate::error::CallError;
use crate::module::Module;
use crate::stream::Stream;

/// How much shared memory a block can have on any device, in bytes, what the kernel declares included: more is asked for kernel by kernel.
pub const SHARED_BYTES_OF_ALL: u32 = 48 << 10;

/// A kernel of a loaded module, which it keeps loaded.
#[derive(Debug)]
pub struct Function<D: WorkDriver> {
    kernel: Arc<Kernel<D>>,
}

#[derive(Debug)]
struct Kernel<D: WorkDriver> {
    module: Module<D>,
    raw: RawKernel,
    name: String,
    /// How much shared memory it may be launched with beyond what it declares.
    shared_bytes: AtomicU32,
}

impl<D: WorkDriver> Clone for Function<D> {
    fn clone(&self) -> Self {
        Self { kernel: Arc::clone(&self.kernel) }
    }
}

impl<D: WorkDriver> Function<D> {
    /// The kernel of this handle, which is one of the module's.
    pub(crate) fn new(module: Module<D>, raw: RawKernel, name: &str) -> Self {
        let shared_bytes = AtomicU32::new(SHARED_BYTES_OF_ALL);
        let function = Self { kernel: Arc::new(Kernel { module, raw, name: name.to_owned(), shared_bytes }) };
        // Where it cannot be told, the first launch with much of it finds out.
        if let Ok(may) = function.asked_shared() {
            function.kernel.shared_bytes.store(may, Ordering::Relaxed);
        }
        function
    }

    fn asked_shared(&self) -> Result<u32, Error> {
        let context = self.module().context();
        let _bound = context.bind()?;
        // SAFETY: the context is bound, the kernel of a loaded module.
        let may = unsafe { context.driver().kernel_shared_bytes(self.kernel.raw) };
        may.map_err(|error| context.told(error))
    }

    /// Enqueues the kernel on `stream`: `grid` blocks of `block` threads, with `shared_bytes` of shared memory beyond what the kernel
    /// declares, and these parameters, whose values are copied. Does not wait for the device, but for room in its queue.
    ///
    /// # Errors
    ///
    /// [`Backend`](ErrorCode::Backend): the device cannot run that many threads, the context has failed, or the like.
    ///
    /// # Cost
    ///
    /// Beside the driver's own: what binding its context to this thread takes, no allocation, no lock.
    ///
    /// # Safety
    ///
    /// - `stream` is alive and of the module's context.
    /// - The parameters are as many as the kernel has, each of its type.
    /// - What the kernel does with them is sound: memory that it uses is alive, and nobody else's meanwhile, until it is done; so is the
    ///   module. Where the stream is being captured, that is until the last launch of the graph is.
    pub unsafe fn launch<const N: usize>(
        &self,
        stream: RawStream,
        grid: impl Into<Dim>,
        block: impl Into<Dim>,
        shared_bytes: u32,
        parameters: [&dyn Parameter; N],
    ) -> Result<(), Error> {
        let mut values = parameters.map(|value| ptr::from_ref(value).cast::<c_void>().cast_mut());
        let shape = LaunchShape::new(grid.into().sizes(), block.into().sizes(), shared_bytes);
        // SAFETY: as the caller says; the pointers are to the parameters.
        unsafe { self.launch_with(stream, &shape, &mut values) }.map_err(|error| self.told(error))
    }

    /// As [`launch`](Self::launch), with pointers to the parameters; what failed is not told to the context yet.
    ///
    /// # Safety
    ///
    /// As [`launch`](Self::launch); each pointer is to a value of the kernel's parameter of that place.
    #[inline]
    pub(crate) unsafe fn launch_with(
        &self,
        stream: RawStream,
        shape: &LaunchShape,
        values: &mut [*mut c_void],
    ) -> Result<(), Failed> {
        let context = self.module().context();
        let _bound = context.bind_to_enqueue().map_err(Failed::Told)?;
        self.allow_shared(shape.shared_bytes)?;
        // SAFETY: the context is bound, the function's module loaded; stream, parameters and what is done with them are as the
        // caller says. The values are read before the call returns, and never written.
        unsafe { context.driver().launch(self.kernel.raw, stream, shape, values) }.map_err(Failed::Call)
    }

    /// What a failed launch is to its caller.
    pub(crate) fn told(&self, failed: Failed) -> Error {
        match failed {
            Failed::Told(error) => error,
            Failed::Call(error) => self.module().context().told(error),
        }
    }

    /// Has the kernel take so much shared memory, where it is more than it takes by now. The context is bound.
    #[inline]
    pub(crate) fn allow_shared(&self, bytes: u32) -> Result<(), Failed> {
        if bytes <= self.kernel.shared_bytes.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.raise_shared(bytes)
    }

    #[cold]
    fn raise_shared(&self, bytes: u32) -> Result<(), Failed> {
        let driver = self.module().context().driver();
        // SAFETY: the context is bound, the kernel of a loaded module; of more than it takes the driver says so.
        unsafe { driver.allow_shared(self.kernel.raw, bytes) }.map_err(Failed::Call)?;
        self.kernel.shared_bytes.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// How many bytes each of its parameters has, in their order; `None` where the driver cannot tell.
    ///
    /// # Errors
    ///
    /// [`Backend`](ErrorCode::Backend): the call failed.
    pub fn parameters(&self) -> Result<Option<Vec<usize>>, Error> {
        let context = self.module().context();
        let _bound = context.bind()?;
        // SAFETY: the context is bound, the kernel of a loaded module.
        unsafe { context.driver().parameters(self.kernel.raw) }.map_err(|error| context.told(error))
    }

    /// That it takes just as many parameters as `bytes` has lengths, each of that many bytes. Where the driver cannot tell it may.
    ///
    /// To be asked once, where a kernel is bound to what it is going to be launched with.
    ///
    /// # Errors
    ///
    /// [`KernelMismatch`](ErrorCode::KernelMismatch); or as [`parameters`](Self::parameters).
    pub fn takes(&self, bytes: &[usize]) -> Result<(), Error> {
        match self.parameters()? {
            Some(takes) if takes != bytes => {
                let shown = |bytes: &[usize]| format!("{} argument(s) of {bytes:?} bytes", bytes.len());
                Err(Error::new(ErrorCode::KernelMismatch, [&self.name(), &shown(&takes), &shown(bytes)]))
            }
            _ => Ok(()),
        }
    }

    /// The driver's handle of it.
    #[cfg(feature = "ops")]
    pub(crate) fn raw(&self) -> RawKernel {
        self.kernel.raw
    }

    /// The name that it was asked for by.
    pub fn name(&self) -> &str {
        &self.kernel.name
    }

    /// The module that it is of.
    pub fn module(&self) -> &Module<D> {
        &self.kernel.module
    }

    /// That `stream` is of this function's context.
    ///
    /// # Errors
    ///
    /// [`ForeignStream`](ErrorCode::ForeignStream): it is of another.
    pub fn belongs_with(&self, stream: &Stream<D>) -> Result<(), Error> {
        let (own, other) = (self.module().context().raw(), stream.context().raw());
        if own == other {
            return Ok(());
        }
        Err(Error::new(ErrorCode::ForeignStream, [&D::NAME, &stream.raw(), &other, &own]))
    }
}

/// A launch that failed.
pub(crate) enum Failed {
    /// With a call, which may break the context.
    Call(CallError),
    /// Before it.
    Told(Error),
}

/// How many blocks, or threads of a block, in each direction. Of one number, that many in one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "they are what they are called")]
pub struct Dim {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

impl Dim {
    const fn sizes(self) -> [u32; 3] {
        [self.x, self.y, self.z]
    }
}

impl From<u32> for Dim {
    fn from(x: u32) -> Self {
        Self { x, y: 1, z: 1 }
    }
}

impl From<(u32, u32)> for Dim {
    fn from((x, y): (u32, u32)) -> Self {
        Self { x, y, z: 1 }
    }
}

impl From<(u32, u32, u32)> for Dim {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self { x, y, z }
    }
}

/// What a kernel can have as a parameter: its bytes are copied as they are. Addresses of device memory are `u64`.
///
/// # Safety
///
/// The bytes of a value are all there is to it, in the layout that the kernel has: no padding, no reference that may end.
pub unsafe trait Parameter {}

macro_rules! parameters {
    ($($number:ty)*) => {$(
        // SAFETY: a number is its bytes, as large and aligned on the device as here.
        unsafe impl Parameter for $number {}
    )*};
}

parameters! { u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64 }
