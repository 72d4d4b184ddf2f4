//! Modules of kernels: a text, where the driver compiles one, or an image.
//!
//! A wait needs none of it: it takes any stream, whoever fills it.

use core::ffi::CStr;
use std::ffi::CString;
use std::sync::Arc;

use wakeline_core::Error;

use crate::context::Context;
use crate::driver::{RawModule, TextDriver, WorkDriver};
use crate::error::CallError;
use crate::function::Function;

/// A module of kernels. Clones are handles of one; the last, its functions' included, unloads it.
#[derive(Debug)]
pub struct Module<D: WorkDriver> {
    loaded: Arc<Loaded<D>>,
}

#[derive(Debug)]
struct Loaded<D: WorkDriver> {
    context: Context<D>,
    raw: RawModule,
    /// Whether the last handle unloads it: else it goes with its context.
    unloads: bool,
    /// What kernels are called in the source, where that is not what the module calls them, and that.
    names: Vec<(String, String)>,
}

impl<D: WorkDriver> Clone for Module<D> {
    fn clone(&self) -> Self {
        Self { loaded: Arc::clone(&self.loaded) }
    }
}

impl<D: TextDriver> Module<D> {
    /// Compiles a text of PTX for the context's device and loads it. Takes milliseconds, and may wait for the device.
    ///
    /// # Errors
    ///
    /// [`Backend`](wakeline_core::ErrorCode::Backend): the driver cannot compile, or does not take the text; then with what its compiler says.
    pub fn from_ptx(context: &Context<D>, ptx: &str) -> Result<Self, Error> {
        let Ok(text) = CString::new(ptx) else {
            let mut error = context.driver().text_refused();
            "the text has a zero byte in it, which would end it".clone_into(&mut error.text);
            return Err(error.into());
        };
        Self::text_with(context, &text, Vec::new())
    }

    /// As [`from_ptx`](Self::from_ptx), with names of kernels by what the source calls them.
    ///
    /// # Errors
    ///
    /// As [`from_ptx`](Self::from_ptx).
    pub fn text_with(context: &Context<D>, text: &CStr, names: Vec<(String, String)>) -> Result<Self, Error> {
        // SAFETY: a text that ends with a zero is one of the forms that are read, and is read to its end alone.
        unsafe { Self::load(context, text.as_ptr().cast(), names) }
    }
}

impl<D: WorkDriver> Module<D> {
    /// Loads a binary image of the driver's kind.
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
    /// `image` is what a compiler of the vendor's wrote: nowhere does a driver promise that it checks what is in the sections of an image, so one that
    /// was made up may have it read or write anywhere.
    pub unsafe fn from_image(context: &Context<D>, image: &[u8]) -> Result<Self, Error> {
        // SAFETY: as the caller says.
        unsafe { Self::image_with(context, image, Vec::new()) }
    }

    /// As [`from_image`](Self::from_image), with names of kernels by what the source calls them.
    ///
    /// # Errors
    ///
    /// As [`from_image`](Self::from_image).
    ///
    /// # Safety
    ///
    /// As [`from_image`](Self::from_image).
    pub unsafe fn image_with(
        context: &Context<D>,
        image: &[u8],
        names: Vec<(String, String)>,
    ) -> Result<Self, Error> {
        let bound = context.bind()?;
        // SAFETY: the context is bound.
        unsafe { context.driver().check_image(image) }?;
        drop(bound);
        // SAFETY: all that its headers say is there is there; what is in it is a compiler's, says the caller.
        unsafe { Self::load(context, image.as_ptr().cast(), names) }
    }

    /// The same, and no handle unloads it: it stays loaded for as long as the context is there, and nobody need know when its last kernel has ended. Where a context is the
    /// device, as in HIP, that is for as long as the process.
    #[must_use]
    pub fn kept(mut self) -> Self {
        if let Some(loaded) = Arc::get_mut(&mut self.loaded) {
            loaded.unloads = false;
        }
        self
    }

    /// # Safety
    ///
    /// At `image` is a text that ends with a zero, or an image that the driver's check let pass.
    unsafe fn load(
        context: &Context<D>,
        image: *const core::ffi::c_void,
        names: Vec<(String, String)>,
    ) -> Result<Self, Error> {
        let _bound = context.bind()?;
        // SAFETY: the context is bound; `image` is as the caller says.
        let raw = unsafe { context.driver().module_load(image) }.map_err(|error| context.told(error))?;
        let loaded = Loaded { context: context.clone(), raw, unloads: true, names };
        Ok(Self { loaded: Arc::new(loaded) })
    }

    /// The kernel of this name: as the module calls it, or of an instance of a template, that its source was compiled with, as the source does.
    ///
    /// # Errors
    ///
    /// - [`InvalidSetting`](wakeline_core::ErrorCode::InvalidSetting): the name has a zero byte in it.
    /// - [`Backend`](wakeline_core::ErrorCode::Backend): there is none of the name.
    pub fn function(&self, name: &str) -> Result<Function<D>, Error> {
        let context = &self.loaded.context;
        let naming = |error: CallError| {
            let text = format!("{} (the kernel `{name}`)", error.text);
            context.told(CallError { text, ..error })
        };
        let names = self.loaded.names.iter();
        let lowered =
            names.filter(|(of_source, _)| of_source == name).map(|(_, lowered)| lowered.as_str()).next();
        let c_name = CString::new(lowered.unwrap_or(name)).map_err(|_| {
            wakeline_core::invalid_setting("the name of a kernel", name, "a text without a zero byte")
        })?;
        let _bound = context.bind()?;
        // SAFETY: the context is bound, the module loaded.
        let raw = unsafe { context.driver().kernel(self.loaded.raw, &c_name) }.map_err(naming)?;
        Ok(Function::new(self.clone(), raw, name))
    }

    /// The context that it is loaded in.
    pub fn context(&self) -> &Context<D> {
        &self.loaded.context
    }
}

impl<D: WorkDriver> Drop for Loaded<D> {
    fn drop(&mut self) {
        if !self.unloads {
            return;
        }
        let Some(_bound) = self.context.bind_in_drop() else { return };
        // SAFETY: the context is bound, the module was loaded here, and neither it nor a function of it has a holder left. What was
        // launched of it is done, by the contract of `launch`.
        if let Err(error) = unsafe { self.context.driver().module_unload(self.raw) } {
            self.context.failed_in_drop(&error);
        }
    }
}
