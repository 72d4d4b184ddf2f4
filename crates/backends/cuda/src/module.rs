//! Kernels: modules of them, and their launch.
//!
//! What examples, tests and benches launch work with. A wait needs none of it: it takes any stream, whoever fills it.

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use std::ffi::CString;
use std::sync::Arc;

use wakeline_core::Error;
use wakeline_mapped::Context;
use wakeline_mapped::driver::RawStream;
use wakeline_mapped::error::CallError;

use crate::cuda::Cuda;
use crate::sys::{
    CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS,
    Handle,
};

/// How much of what the driver's compiler says is kept, in bytes.
pub const JIT_LOG_BYTES_MAX: usize = 8_192;

/// A module of kernels. Clones are handles of one; the last, its functions' included, unloads it.
///
/// ```no_run
/// use wakeline_cuda::{Cuda, Module};
///
/// let context = Cuda::load()?.context(0)?;
/// let error = Module::from_ptx(&context, "this is no kernel").unwrap_err();
/// println!("{error}"); // with what the driver's compiler says
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Module {
    loaded: Arc<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    context: Context<Cuda>,
    raw: Handle,
    /// Whether the last handle unloads it: else it goes with its context.
    unloads: bool,
}

impl Module {
    /// Compiles a text of PTX for the context's device and loads it. Takes milliseconds, and may wait for the device.
    ///
    /// # Errors
    ///
    /// [`Backend`](wakeline_core::ErrorCode::Backend): the driver cannot compile (no [`Caps::MODULES`](crate::Caps::MODULES), say), or does
    /// not take the text; then with what its compiler says, up to [`JIT_LOG_BYTES_MAX`].
    pub fn from_ptx(context: &Context<Cuda>, ptx: &str) -> Result<Self, Error> {
        let Ok(text) = CString::new(ptx) else {
            let error = context.driver().symbols().failure("cuModuleLoadDataEx", CUDA_ERROR_INVALID_VALUE);
            let text = "the text has a zero byte in it, which would end it".to_owned();
            return Err(CallError { text, ..error }.into());
        };
        // SAFETY: a text that ends with a zero is one of the forms that are read, and is read to its end alone.
        unsafe { Self::load(context, text.as_ptr().cast()) }
    }

    /// As [`from_ptx`](Self::from_ptx), and stays loaded for as long as the context is there: nobody need know when its last kernel has ended.
    pub(crate) fn for_good(context: &Context<Cuda>, ptx: &str) -> Result<Self, Error> {
        Ok(Self::from_ptx(context, ptx)?.kept())
    }

    /// As [`for_good`](Self::for_good), of [`from_image`](Self::from_image).
    ///
    /// # Safety
    ///
    /// As [`from_image`](Self::from_image).
    #[cfg(feature = "ops")]
    pub(crate) unsafe fn image_for_good(context: &Context<Cuda>, image: &[u8]) -> Result<Self, Error> {
        // SAFETY: as the caller says.
        Ok(unsafe { Self::from_image(context, image) }?.kept())
    }

    /// The same, and no handle unloads it.
    fn kept(mut self) -> Self {
        if let Some(loaded) = Arc::get_mut(&mut self.loaded) {
            loaded.unloads = false;
        }
        self
    }

    /// Loads a binary image: a cubin or a fat binary.
    ///
    /// # Errors
    ///
    /// [`Backend`](wakeline_core::ErrorCode::Backend): the driver cannot load it, or does not take the image.
    ///
    /// # Safety
    ///
    /// `image` is whole: the driver reads as much as the image itself says.
    pub unsafe fn from_image(context: &Context<Cuda>, image: &[u8]) -> Result<Self, Error> {
        // SAFETY: the image is whole, says the caller.
        unsafe { Self::load(context, image.as_ptr().cast()) }
    }

    /// # Safety
    ///
    /// At `image` is a text that ends with a zero, or an image that says itself how long it is, and is so long.
    unsafe fn load(context: &Context<Cuda>, image: *const c_void) -> Result<Self, Error> {
        let cuda = context.driver();
        let load = cuda.symbols().cuModuleLoadDataEx.ok_or_else(|| cuda.absent("cuModuleLoadDataEx"))?;
        let _bound = context.bind()?;
        let mut log = vec![0_u8; JIT_LOG_BYTES_MAX];
        // One less than there is, so that it ends with a zero whatever is written.
        let mut options: [c_int; 2] = [CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER];
        let mut values = [ptr::without_provenance_mut(log.len() - 1), log.as_mut_ptr().cast::<c_void>()];
        let (count, mut raw) = (options.len().try_into().unwrap_or_default(), ptr::null_mut());
        // SAFETY: the context is bound; `image` is as the caller says; the two options have their values, the length as a number
        // in the pointer's place and the room of that length, as the manual has it.
        let status = unsafe { load(&raw mut raw, image, count, options.as_mut_ptr(), values.as_mut_ptr()) };
        if status != CUDA_SUCCESS {
            let error = cuda.symbols().failure("cuModuleLoadDataEx", status);
            let said = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
            let text = match said.trim() {
                "" => error.text,
                said => format!("{}; its compiler says: {said}", error.text),
            };
            return Err(context.told(CallError { text, ..error }));
        }
        Ok(Self { loaded: Arc::new(Loaded { context: context.clone(), raw: Handle(raw), unloads: true }) })
    }

    /// The kernel of this name.
    ///
    /// # Errors
    ///
    /// [`Backend`](wakeline_core::ErrorCode::Backend): there is none, `CUDA_ERROR_NOT_FOUND`.
    pub fn function(&self, name: &str) -> Result<Function, Error> {
        let context = &self.loaded.context;
        let cuda = context.driver();
        let find = cuda.symbols().cuModuleGetFunction.ok_or_else(|| cuda.absent("cuModuleGetFunction"))?;
        let naming = |error: CallError| {
            let text = format!("{} (the kernel `{name}`)", error.text);
            context.told(CallError { text, ..error })
        };
        let c_name = CString::new(name)
            .map_err(|_| naming(cuda.symbols().failure("cuModuleGetFunction", CUDA_ERROR_INVALID_VALUE)))?;
        let _bound = context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the context is bound, the module loaded, and the name ends with a zero.
        let status = unsafe { find(&raw mut raw, self.loaded.raw.0, c_name.as_ptr()) };
        cuda.check("cuModuleGetFunction", status).map_err(naming)?;
        Ok(Function { module: self.clone(), raw: Handle(raw) })
    }

    /// The context that it is loaded in.
    pub fn context(&self) -> &Context<Cuda> {
        &self.loaded.context
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if !self.unloads {
            return;
        }
        let Some(unload) = self.context.driver().symbols().cuModuleUnload else { return };
        let Some(_bound) = self.context.bind_in_drop() else { return };
        // SAFETY: the context is bound, the module was loaded here, and neither it nor a function of it has a holder left. What was
        // launched of it is done, by the contract of `launch`.
        let status = unsafe { unload(self.raw.0) };
        if let Err(error) = self.context.driver().check("cuModuleUnload", status) {
            self.context.failed_in_drop(&error);
        }
    }
}

/// A kernel of a loaded module, which it keeps loaded.
#[derive(Clone, Debug)]
pub struct Function {
    module: Module,
    raw: Handle,
}

impl Function {
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
        let context = self.module.context();
        let cuda = context.driver();
        let launch = cuda.symbols().cuLaunchKernel.ok_or_else(|| cuda.absent("cuLaunchKernel"))?;
        let (values, extra) = (values.as_mut_ptr(), ptr::null_mut());
        let _bound = context.bind()?;
        // SAFETY: the context is bound, the function's module loaded; stream, parameters and what is done with them are as the
        // caller says. The values are read before the call returns, and never written.
        let status = unsafe {
            launch(
                self.raw.0,
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
        cuda.check("cuLaunchKernel", status).map_err(|error| context.told(error))
    }

    /// The module that it is of.
    pub fn module(&self) -> &Module {
        &self.module
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
