//! Kernels from CUDA C, compiled while the program runs: by NVRTC, loaded by its name, and kept so that it is done once.
//!
//! | here | what for |
//! |---|---|
//! | [`Compiler`] | sources to modules, by way of what is kept |
//! | [`CompileOptions`], [`Standard`] | what a source is compiled with |
//! | [`KernelCache`], [`CacheConfig`], [`CacheStats`] | what was compiled, in memory and on disk |
//! | [`HeaderPlaces`] | where the toolkit's headers are |
//! | [`Nvrtc`], [`CompilerVersion`] | the compiler itself |
//! | [`Compiled`] | what came of a source, not loaded yet |

mod cache;
mod headers;
mod key;
mod nvrtc;
mod options;
mod program;
#[expect(non_camel_case_types, reason = "the names of the C interface")]
mod sys;
mod target;

use core::fmt;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use wakeline_core::{Error, ErrorCode};
use wakeline_mapped::Context;

pub use self::cache::{CACHE_DISK_BYTES_MAX, CACHE_MEMORY_BYTES_MAX, CacheConfig, CacheStats, KernelCache};
pub use self::headers::HeaderPlaces;
use self::headers::Reached;
use self::key::Key;
pub use self::nvrtc::{CompilerVersion, Nvrtc};
use self::nvrtc::{Facts, NAMES};
pub use self::options::{CompileOptions, Standard};
pub use self::program::LOG_BYTES_MAX;
use self::program::{Job, compile};
use self::target::Target;
use crate::arch::Arch;
use crate::cuda::Cuda;
use crate::device::Device;
use crate::error::BACKEND;
use crate::module::Module;

/// Compiles sources in CUDA C for a device, and keeps what it made where it has a [`KernelCache`].
///
/// NVRTC is loaded when it is first needed, which for what is on disk is never: a source that another process has compiled is loaded in less than the
/// library alone takes.
///
/// Its code is the machine code of the device, or, where NVRTC is older than the device's architecture, the newest PTX that it can make, which the driver compiles
/// when the module is loaded.
///
/// ```
/// use wakeline_core::ErrorCode;
/// use wakeline_cuda::{Arch, CompileOptions, Compiler};
/// let source = r#"extern "C" __global__ void twice(float *numbers) { numbers[threadIdx.x] *= 2; }"#;
/// match Compiler::new().compile(source, Arch::new(9, 0), &CompileOptions::new()) {
///     Ok(compiled) => println!("{} bytes", compiled.bytes()),
///     Err(error) if error.code() == ErrorCode::CompilerMissing => println!("no NVRTC here: {error}"),
///     Err(error) => return Err(error),
/// }
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[must_use = "a compiler does nothing until it is asked to"]
pub struct Compiler {
    /// Its library, where it was named.
    path: Option<PathBuf>,
    nvrtc: OnceLock<Nvrtc>,
    places: HeaderPlaces,
    cache: Option<KernelCache>,
}

impl Default for Compiler {
    fn default() -> Self {
        Self::new()
    }
}

impl Compiler {
    /// By the NVRTC that [`Nvrtc::load`] finds.
    pub fn new() -> Self {
        Self { path: None, nvrtc: OnceLock::new(), places: HeaderPlaces::new(), cache: None }
    }

    /// By the NVRTC in this file, as [`Nvrtc::load_from`].
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: Some(path.into()), ..Self::new() }
    }

    /// Keeps what it makes there, and looks there first.
    pub fn cached(mut self, cache: &KernelCache) -> Self {
        self.cache = Some(cache.clone());
        self
    }

    /// Looks for the toolkit's headers there, too.
    pub fn headers(mut self, places: HeaderPlaces) -> Self {
        self.places = places;
        self
    }

    /// NVRTC, loaded by now.
    ///
    /// # Errors
    ///
    /// [`CompilerMissing`](ErrorCode::CompilerMissing), with all names that were tried.
    pub fn nvrtc(&self) -> Result<&Nvrtc, Error> {
        if let Some(nvrtc) = self.nvrtc.get() {
            return Ok(nvrtc);
        }
        let nvrtc = self.path.as_ref().map_or_else(Nvrtc::load, Nvrtc::load_from)?;
        if let Some(cache) = &self.cache {
            cache.put_facts(&self.asked(), nvrtc.facts());
        }
        // Of two threads that load it at one time both have the same library.
        Ok(self.nvrtc.get_or_init(|| nvrtc))
    }

    /// Compiles a source for devices of this architecture, or finds that it was.
    ///
    /// Takes 50 ms and more where it compiles, and less than 1 ms where it was kept, beside what reading the headers takes. With a cache they are read twice
    /// where it compiles: what was made while one of them changed is not kept.
    ///
    /// # Errors
    ///
    /// - [`CompilerMissing`](ErrorCode::CompilerMissing): there is no NVRTC.
    /// - [`CompileFailed`](ErrorCode::CompileFailed): with the compiler's log, up to [`LOG_BYTES_MAX`].
    /// - [`HeaderMissing`](ErrorCode::HeaderMissing): with the folders that were looked in, and the log as its source.
    /// - [`ArchUnsupported`](ErrorCode::ArchUnsupported): NVRTC knows only later architectures.
    /// - [`InvalidSetting`](ErrorCode::InvalidSetting): an option that has another way.
    pub fn compile(
        &self,
        source: &str,
        device: Arch,
        options: &CompileOptions,
    ) -> Result<Arc<Compiled>, Error> {
        let kept = self.nvrtc.get().is_none().then(|| self.cache.as_ref()?.facts(&self.asked())).flatten();
        if let Some(facts) = kept {
            let work = self.work(&facts, source, device, options)?;
            if let Some(found) = work.key.and_then(|key| self.cache.as_ref()?.get(&key)) {
                return Ok(found);
            }
            // To be compiled: by the library that is there, which may be another one by now.
            let nvrtc = self.nvrtc()?;
            if *nvrtc.facts() == facts {
                return self.make(nvrtc, source, options, work);
            }
        }
        let nvrtc = self.nvrtc()?;
        let work = self.work(nvrtc.facts(), source, device, options)?;
        if let Some(found) = work.key.and_then(|key| self.cache.as_ref()?.get(&key)) {
            return Ok(found);
        }
        self.make(nvrtc, source, options, work)
    }

    /// What is to be done for a source, by a compiler of which this is known.
    fn work(
        &self,
        facts: &Facts,
        source: &str,
        device: Arch,
        options: &CompileOptions,
    ) -> Result<Work, Error> {
        let target = Target::for_device(device, facts, options)?;
        let any = headers::includes_any(source)
            || options.headers().iter().any(|(_, text)| headers::includes_any(text));
        let folders: Vec<PathBuf> = if any {
            options.folders().iter().cloned().chain(self.places.folders(&facts.path)).collect()
        } else {
            Vec::new()
        };
        let texts =
            options.texts(target, folders.iter().filter(|folder| folder.is_dir()).map(PathBuf::as_path))?;
        let Some(cache) = &self.cache else {
            return Ok(Work { target, texts, folders, reached: Reached::default(), key: None });
        };
        let reached = headers::reached(source, options.headers(), &folders);
        let key = reached.all.then(|| Key::of(facts, &job(source, options, &texts, target), &reached));
        if key.is_none() {
            cache.unkept();
        }
        Ok(Work { target, texts, folders, reached, key })
    }

    fn make(
        &self,
        nvrtc: &Nvrtc,
        source: &str,
        options: &CompileOptions,
        work: Work,
    ) -> Result<Arc<Compiled>, Error> {
        let Work { target, texts, folders, reached, key } = work;
        let output = compile(nvrtc, &job(source, options, &texts, target))
            .map_err(|error| with_folders(error, options.shown_name(), &folders))?;
        let code = if target.is_machine_code() {
            Some(Code::Machine(output.image))
        } else {
            Code::text(output.image)
        };
        let code = code.ok_or_else(|| {
            let what = "a text of PTX that does not end with a zero";
            Error::new(ErrorCode::CompileFailed, [&BACKEND, &options.shown_name(), &"success", &what])
        })?;
        let compiled = Arc::new(Compiled { code, names: output.names, log: output.log });
        if let (Some(cache), Some(key)) = (&self.cache, key) {
            // The compiler read the headers after they were hashed.
            if headers::reached(source, options.headers(), &folders) == reached {
                cache.put(&key, &compiled);
            } else {
                cache.unkept();
            }
        }
        Ok(compiled)
    }

    /// How its library is asked for.
    fn asked(&self) -> Key {
        match &self.path {
            Some(path) => Key::asked([&*path.to_string_lossy()].into_iter()),
            None => Key::asked(NAMES.iter().copied()),
        }
    }
}

/// What is to be done for a source.
struct Work {
    target: Target,
    texts: Vec<String>,
    /// Where its headers are looked for.
    folders: Vec<PathBuf>,
    /// What the key is of.
    reached: Reached,
    /// `None` where nothing is kept.
    key: Option<Key>,
}

fn job<'a>(source: &'a str, options: &'a CompileOptions, texts: &'a [String], target: Target) -> Job<'a> {
    Job {
        name: options.shown_name(),
        source,
        headers: options.headers(),
        options: texts,
        instances: options.instances(),
        machine_code: target.is_machine_code(),
    }
}

/// Of a header that is missing, where it was looked for.
#[cold]
fn with_folders(error: Error, name: &str, folders: &[PathBuf]) -> Error {
    if error.code() != ErrorCode::CompileFailed {
        return error;
    }
    let Some(header) = error.args().last().and_then(|log| headers::missing_in(log)) else { return error };
    let looked: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
    Error::new(ErrorCode::HeaderMissing, [&BACKEND, &name, &header, &looked.join(", ")]).with_source(error)
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiler")
            .field("path", &self.path)
            .field("nvrtc", &self.nvrtc.get())
            .field("places", &self.places)
            .field("cache", &self.cache)
            .finish()
    }
}

/// What came of a source: machine code or PTX, not loaded yet.
#[derive(Clone, PartialEq, Eq)]
pub struct Compiled {
    code: Code,
    /// Instances of templates, and what the module calls them.
    names: Vec<(String, String)>,
    log: String,
}

#[derive(Clone, PartialEq, Eq)]
enum Code {
    /// As [`image`](crate::image) knows it.
    Machine(Vec<u8>),
    Text(CString),
}

impl Code {
    /// A text that ends with a zero, and has no other.
    fn text(bytes: Vec<u8>) -> Option<Self> {
        CString::from_vec_with_nul(bytes).ok().map(Self::Text)
    }
}

impl Compiled {
    /// How long its code is, in bytes.
    pub fn bytes(&self) -> u64 {
        match &self.code {
            Code::Machine(image) => image.len() as u64,
            Code::Text(text) => text.as_bytes().len() as u64,
        }
    }

    /// The PTX, where that is what was made.
    pub fn ptx(&self) -> Option<&str> {
        match &self.code {
            Code::Machine(_) => None,
            Code::Text(text) => text.to_str().ok(),
        }
    }

    /// The machine code, where that is what was made.
    pub fn cubin(&self) -> Option<&[u8]> {
        match &self.code {
            Code::Machine(image) => Some(image),
            Code::Text(_) => None,
        }
    }

    /// What the compiler said of it, warnings most likely.
    pub fn log(&self) -> &str {
        &self.log
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.cubin().is_some() { "machine code" } else { "PTX" };
        f.debug_struct("Compiled")
            .field("code", &kind)
            .field("bytes", &self.bytes())
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl Module {
    /// Compiles a source in CUDA C for the context's device, or finds that it was, and loads it.
    ///
    /// ```no_run
    /// use wakeline_cuda::{CompileOptions, Compiler, Cuda, KernelCache, Module};
    /// let context = Cuda::load()?.context(0)?;
    /// let compiler = Compiler::new().cached(&KernelCache::at("/var/cache/app/kernels")?);
    /// let source = "template <typename T> __global__ void twice(T *numbers) { numbers[threadIdx.x] *= 2; }";
    /// let module = Module::from_cuda(&context, &compiler, source, &CompileOptions::new().instance("twice<float>"))?;
    /// let twice = module.function("twice<float>")?;
    /// # let _ = twice;
    /// # Ok::<(), wakeline_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Compiler::compile`] and [`Module::from_compiled`].
    pub fn from_cuda(
        context: &Context<Cuda>,
        compiler: &Compiler,
        source: &str,
        options: &CompileOptions,
    ) -> Result<Self, Error> {
        let bound = context.bind()?;
        let device = Device::current(context.driver()).map_err(|error| context.told(error))?;
        let arch = device.arch()?;
        drop(bound);
        Self::from_compiled(context, &*compiler.compile(source, arch, options)?)
    }

    /// Loads what a compiler made.
    ///
    /// # Errors
    ///
    /// - [`InvalidImage`](ErrorCode::InvalidImage): it was made for another architecture.
    /// - [`Backend`](ErrorCode::Backend): the driver does not take it; with what its compiler says of PTX. It may be older than the compiler.
    pub fn from_compiled(context: &Context<Cuda>, compiled: &Compiled) -> Result<Self, Error> {
        let names = compiled.names.clone();
        match &compiled.code {
            // SAFETY: NVRTC wrote it, here or where a file was written whose hash it still has.
            Code::Machine(image) => unsafe { Self::image_with(context, image, names) },
            Code::Text(text) => Self::text_with(context, text, names),
        }
    }
}

#[cfg(feature = "ops")]
impl crate::CudaDevice {
    /// Compiles a source in CUDA C for this device, or finds that it was, and loads it; it stays loaded, as what [`ptx`](Self::ptx) gives does.
    ///
    /// # Errors
    ///
    /// As [`Module::from_cuda`].
    pub fn compile(
        &self,
        compiler: &Compiler,
        source: &str,
        options: &CompileOptions,
    ) -> Result<Module, Error> {
        Module::from_cuda(self.context(), compiler, source, options).map(Module::kept)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A folder of a test's own.
    pub(crate) fn folder(name: &str) -> PathBuf {
        // tidy: allow(env) a test needs a folder, and the system knows where there is room for one
        let folder = std::env::temp_dir().join(format!("wakeline-compile-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_compiler_that_is_not_there_names_what_was_tried() {
        let error = Compiler::at("no/such/libnvrtc.so").nvrtc().unwrap_err();
        assert_eq!(error.code(), ErrorCode::CompilerMissing);
        assert_eq!(error.args()[..2], ["cuda", "no/such/libnvrtc.so"]);
        assert_eq!(Compiler::at("").nvrtc().unwrap_err().args()[2], "a library has a name");
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn a_library_that_is_none_is_told_by_what_it_lacks() {
        let error = Nvrtc::load_from("libm.so.6").unwrap_err();
        assert_eq!(error.code(), ErrorCode::CompilerMissing);
        assert_eq!(error.args()[2], "libm.so.6 has no `nvrtcVersion`, as every NVRTC of 11.2 or later has");
    }

    #[test]
    fn a_header_that_is_missing_is_told_with_the_folders() {
        let log = "a.cu(1): catastrophic error: cannot open source file \"cuda_fp16.h\"";
        let error =
            Error::new(ErrorCode::CompileFailed, [&BACKEND, &"a.cu", &"NVRTC_ERROR_COMPILATION", &log]);
        let told = with_folders(error, "a.cu", &[PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(
            (told.code(), &told.args()[2..]),
            (ErrorCode::HeaderMissing, &["cuda_fp16.h".to_owned(), "/a, /b".to_owned()][..])
        );
        assert!(core::error::Error::source(&told).unwrap().to_string().contains("catastrophic"));
    }
}
