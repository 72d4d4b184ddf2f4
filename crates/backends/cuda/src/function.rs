//! Kernels of a module, and their launch.
//!
//! A launch allocates nothing and looks nothing up. What it may need to know of its kernel, a handle of it knows: it is asked for once, by name, when
//! the handle is made.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use wakeline_core::{Error, ErrorCode};
use wakeline_mapped::driver::RawStream;

use crate::module::Module;
use crate::sys::{
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED,
    CUDA_SUCCESS, CUresult, Handle,
};

/// How much shared memory a block can have on any device, in bytes, what the kernel declares included: more is asked for kernel by kernel.
pub const SHARED_BYTES_OF_ALL: u32 = 48 << 10;

/// The most parameters that a kernel is asked about. The driver allows 32,764 bytes of them.
const PARAMETERS_MAX: usize = 32_764;

/// A kernel of a loaded module, which it keeps loaded.
#[derive(Clone, Debug)]
pub struct Function {
    kernel: Arc<Kernel>,
}

#[derive(Debug)]
struct Kernel {
    module: Module,
    raw: Handle,
    name: String,
    /// How much shared memory it may be launched with beyond what it declares.
    shared_bytes: AtomicU32,
}

impl Function {
    /// The kernel of this handle, which is one of the module's.
    pub(crate) fn new(module: Module, raw: Handle, name: &str) -> Self {
        let shared_bytes = AtomicU32::new(SHARED_BYTES_OF_ALL);
        let function = Self { kernel: Arc::new(Kernel { module, raw, name: name.to_owned(), shared_bytes }) };
        // Where it cannot be told, the first launch with much of it finds out.
        let may = function.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
        if let Ok(Some(may)) = may.map(|may| u32::try_from(may).ok()) {
            function.kernel.shared_bytes.store(may, Ordering::Relaxed);
        }
        function
    }

    /// Enqueues the kernel on `stream`: `grid` blocks of `block` threads, with `shared_bytes` of shared memory beyond what the kernel
    /// declares, and these parameters, whose values are copied. Does not wait for the device, but for room in its queue.
    ///
    /// ```no_run
    /// # use wakeline_cuda::{Cuda, Module, kernels};
    /// # let context = Cuda::load()?.context(0)?;
    /// # let (stream, module) = (context.stream()?, Module::from_ptx(&context, kernels::PTX)?);
    /// let occupy = module.function(kernels::OCCUPY)?;
    /// let ns = 20_000_u64;
    /// // SAFETY: the stream is alive and of the module's context; the kernel has one parameter, a u64, and touches no memory.
    /// unsafe { occupy.launch(stream.raw(), (4, 2), 32, 0, [&ns]) }?;
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Backend`](wakeline_core::ErrorCode::Backend): the device cannot run that many threads, the context has failed, or the like.
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
        // SAFETY: as the caller says; the pointers are to the parameters.
        unsafe { self.launch_with(stream, grid.into(), block.into(), shared_bytes, &mut values) }
    }

    /// As [`launch`](Self::launch), with pointers to the parameters.
    ///
    /// # Safety
    ///
    /// As [`launch`](Self::launch); each pointer is to a value of the kernel's parameter of that place.
    pub(crate) unsafe fn launch_with(
        &self,
        stream: RawStream,
        grid: Dim,
        block: Dim,
        shared_bytes: u32,
        values: &mut [*mut c_void],
    ) -> Result<(), Error> {
        let context = self.module().context();
        let cuda = context.driver();
        let launch = cuda.symbols().cuLaunchKernel.ok_or_else(|| cuda.absent("cuLaunchKernel"))?;
        let (values, extra) = (values.as_mut_ptr(), ptr::null_mut());
        let _bound = context.bind()?;
        self.allow_shared(shared_bytes)?;
        // SAFETY: the context is bound, the function's module loaded; stream, parameters and what is done with them are as the
        // caller says. The values are read before the call returns, and never written.
        let status = unsafe {
            launch(
                self.raw(),
                grid.x,
                grid.y,
                grid.z,
                block.x,
                block.y,
                block.z,
                shared_bytes,
                stream.as_ptr(),
                values,
                extra,
            )
        };
        self.launched("cuLaunchKernel", status)
    }

    /// The outcome of a launch.
    pub(crate) fn launched(&self, call: &'static str, status: CUresult) -> Result<(), Error> {
        let context = self.module().context();
        context.driver().check(call, status).map_err(|error| context.told(error))
    }

    /// Has the kernel take so much shared memory, where it is more than it takes by now. The context is bound.
    #[inline]
    pub(crate) fn allow_shared(&self, bytes: u32) -> Result<(), Error> {
        if bytes <= self.kernel.shared_bytes.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.raise_shared(bytes)
    }

    #[cold]
    fn raise_shared(&self, bytes: u32) -> Result<(), Error> {
        let wanted = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        self.set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, wanted)?;
        self.kernel.shared_bytes.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The context is bound.
    pub(crate) fn set_attribute(&self, attribute: c_int, value: c_int) -> Result<(), Error> {
        let context = self.module().context();
        let cuda = context.driver();
        let set = cuda.symbols().cuFuncSetAttribute.ok_or_else(|| cuda.absent("cuFuncSetAttribute"))?;
        // SAFETY: the context is bound and the kernel of a loaded module; of an attribute or a value that it does not take the driver says so.
        let status = unsafe { set(self.raw(), attribute, value) };
        self.launched("cuFuncSetAttribute", status)
    }

    fn attribute(&self, attribute: c_int) -> Result<c_int, Error> {
        let context = self.module().context();
        let cuda = context.driver();
        let get = cuda.symbols().cuFuncGetAttribute.ok_or_else(|| cuda.absent("cuFuncGetAttribute"))?;
        let _bound = context.bind()?;
        let mut value = 0;
        // SAFETY: the context is bound, the kernel of a loaded module, and `value` a number's room.
        let status = unsafe { get(&raw mut value, attribute, self.raw()) };
        self.launched("cuFuncGetAttribute", status)?;
        Ok(value)
    }

    /// How many bytes each of its parameters has, in their order; `None` where the driver cannot tell
    /// ([`Caps::PARAMETER_INFO`](crate::Caps::PARAMETER_INFO), of CUDA 12.4 on).
    ///
    /// ```no_run
    /// # use wakeline_cuda::{Cuda, Module, kernels};
    /// # let context = Cuda::load()?.context(0)?;
    /// let module = Module::from_ptx(&context, kernels::PTX)?;
    /// println!("{:?}", module.function(kernels::AFFINE)?.parameters()?); // Some([8, 8, 8, 8])
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Backend`](wakeline_core::ErrorCode::Backend): the call failed.
    pub fn parameters(&self) -> Result<Option<Vec<usize>>, Error> {
        let context = self.module().context();
        let Some(ask) = context.driver().symbols().cuFuncGetParamInfo else { return Ok(None) };
        let _bound = context.bind()?;
        let mut parameters = Vec::new();
        while parameters.len() <= PARAMETERS_MAX {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: the context is bound, the kernel of a loaded module, and both are a number's room; of a place beyond the last the driver says so.
            let status = unsafe { ask(self.raw(), parameters.len(), &raw mut offset, &raw mut bytes) };
            match status {
                CUDA_SUCCESS => parameters.push(bytes),
                CUDA_ERROR_INVALID_VALUE => break,
                CUDA_ERROR_NOT_SUPPORTED => return Ok(None),
                failed => self.launched("cuFuncGetParamInfo", failed)?,
            }
        }
        Ok(Some(parameters))
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
    pub(crate) fn raw(&self) -> *mut c_void {
        self.kernel.raw.0
    }

    /// The name that it was asked for by.
    pub fn name(&self) -> &str {
        &self.kernel.name
    }

    /// The module that it is of.
    pub fn module(&self) -> &Module {
        &self.kernel.module
    }
}

/// How many blocks, or threads of a block, in each direction. Of one number, that many in one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "they are what they are called")]
pub struct Dim {
    pub x: u32,
    pub y: u32,
    pub z: u32,
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
