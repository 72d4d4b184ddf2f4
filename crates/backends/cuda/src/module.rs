//! Modules of kernels: a text of PTX, or an image.
//!
//! A wait needs none of it: it takes any stream, whoever fills it.

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use std::ffi::CString;
use std::sync::Arc;

use wakeline_core::Error;
use wakeline_mapped::Context;
use wakeline_mapped::error::CallError;

use crate::cuda::Cuda;
use crate::device::Device;
use crate::function::Function;
use crate::image;
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
    /// What kernels are called in the source, where that is not what the module calls them, and that.
    names: Vec<(String, String)>,
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
        unsafe { Self::load(context, text.as_ptr().cast(), Vec::new()) }
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
    pub(crate) fn kept(mut self) -> Self {
        if let Some(loaded) = Arc::get_mut(&mut self.loaded) {
            loaded.unloads = false;
        }
        self
    }

    /// Loads a binary image: a cubin or a fat binary.
    ///
    /// Its headers are followed before the driver is asked: of an image that is cut, or was compiled for another architecture than the device's, the driver
    /// never hears.
    ///
    /// # Errors
    ///
    /// - [`InvalidImage`](wakeline_core::ErrorCode::InvalidImage): it is none, cut, or for another architecture.
    /// - [`Backend`](wakeline_core::ErrorCode::Backend): the driver cannot load it, or does not take the image.
    ///
    /// # Safety
    ///
    /// `image` is what a compiler of NVIDIA's wrote: nowhere does the driver promise that it checks what is in the sections of an image, so one that
    /// was made up may have it read or write anywhere.
    ///
    /// ```no_run
    /// use wakeline_core::ErrorCode;
    /// use wakeline_cuda::{Cuda, Module};
    /// let context = Cuda::load()?.context(0)?;
    /// // SAFETY: it is none, which is found out before the driver is asked.
    /// let error = unsafe { Module::from_image(&context, b"\x7fELF") }.unwrap_err();
    /// assert_eq!(error.code(), ErrorCode::InvalidImage);
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    pub unsafe fn from_image(context: &Context<Cuda>, image: &[u8]) -> Result<Self, Error> {
        // SAFETY: as the caller says.
        unsafe { Self::image_with(context, image, Vec::new()) }
    }

    /// As [`from_image`](Self::from_image), with names of kernels by what the source calls them.
    ///
    /// # Safety
    ///
    /// As [`from_image`](Self::from_image).
    pub(crate) unsafe fn image_with(
        context: &Context<Cuda>,
        image: &[u8],
        names: Vec<(String, String)>,
    ) -> Result<Self, Error> {
        let form = image::form(image)?;
        let bound = context.bind()?;
        let device = Device::current(context.driver()).map_err(|error| context.told(error))?;
        image::fits(form, device.arch()?)?;
        drop(bound);
        // SAFETY: all that its headers say is there is there; what is in it is a compiler's, says the caller.
        unsafe { Self::load(context, image.as_ptr().cast(), names) }
    }

    /// As [`from_ptx`](Self::from_ptx), with names of kernels by what the source calls them.
    #[cfg(feature = "compile")]
    pub(crate) fn text_with(
        context: &Context<Cuda>,
        text: &CStr,
        names: Vec<(String, String)>,
    ) -> Result<Self, Error> {
        // SAFETY: as in `from_ptx`.
        unsafe { Self::load(context, text.as_ptr().cast(), names) }
    }

    /// # Safety
    ///
    /// At `image` is a text that ends with a zero, or an image that says itself how long it is, and is so long.
    unsafe fn load(
        context: &Context<Cuda>,
        image: *const c_void,
        names: Vec<(String, String)>,
    ) -> Result<Self, Error> {
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
        let loaded = Loaded { context: context.clone(), raw: Handle(raw), unloads: true, names };
        Ok(Self { loaded: Arc::new(loaded) })
    }

    /// The kernel of this name: as the module calls it, or of an instance of a template, that its source was compiled with, as the source does.
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
        let names = self.loaded.names.iter();
        let lowered =
            names.filter(|(of_source, _)| of_source == name).map(|(_, lowered)| lowered.as_str()).next();
        let c_name = CString::new(lowered.unwrap_or(name))
            .map_err(|_| naming(cuda.symbols().failure("cuModuleGetFunction", CUDA_ERROR_INVALID_VALUE)))?;
        let _bound = context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the context is bound, the module loaded, and the name ends with a zero.
        let status = unsafe { find(&raw mut raw, self.loaded.raw.0, c_name.as_ptr()) };
        cuda.check("cuModuleGetFunction", status).map_err(naming)?;
        Ok(Function::new(self.clone(), Handle(raw), name))
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
