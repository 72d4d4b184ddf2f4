//! Kernels from source, compiled while the program runs: by the vendor's compiler, loaded by its name, and kept so that it is done once.
//!
//! | here | what for |
//! |---|---|
//! | [`Compiler`] | sources to modules, by way of what is kept |
//! | [`CompileOptions`], [`Standard`] | what a source is compiled with |
//! | [`KernelCache`], [`CacheConfig`], [`CacheStats`] | what was compiled, in memory and on disk |
//! | [`HeaderPlaces`] | where the toolkit's headers are |
//! | [`RtcLibrary`], [`CompilerVersion`] | the compiler itself |
//! | [`RtcVendor`] | what differs from one vendor's to another's |
//! | [`Compiled`] | what came of a source, not loaded yet |

mod cache;
mod headers;
mod key;
mod library;
mod made;
mod options;
mod program;
mod sys;
mod vendor;

use core::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use wakeline_core::{Error, ErrorCode};

pub use self::cache::{CACHE_DISK_BYTES_MAX, CACHE_MEMORY_BYTES_MAX, CacheConfig, CacheStats, KernelCache};
pub use self::headers::HeaderPlaces;
use self::headers::Reached;
use self::key::Key;
pub use self::library::{CompilerVersion, Facts, RtcLibrary};
pub use self::made::Compiled;
use self::made::{Code, Made};
pub use self::options::{CompileOptions, Standard};
pub use self::program::LOG_BYTES_MAX;
use self::program::{Job, compile};
pub use self::vendor::{Opt, RtcVendor, Target};

/// Compiles sources for a device, and keeps what it made where it has a [`KernelCache`].
///
/// The compiler's library is loaded when it is first needed, which for what is on disk is never: a source that another process has compiled is loaded in less than
/// the library alone takes.
#[must_use = "a compiler does nothing until it is asked to"]
pub struct Compiler<R: RtcVendor> {
    /// Its library, where it was named.
    path: Option<PathBuf>,
    library: OnceLock<RtcLibrary<R>>,
    places: HeaderPlaces,
    cache: Option<KernelCache>,
}

impl<R: RtcVendor> Default for Compiler<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: RtcVendor> Compiler<R> {
    /// By the library that [`RtcLibrary::load`] finds.
    pub fn new() -> Self {
        Self { path: None, library: OnceLock::new(), places: HeaderPlaces::new(), cache: None }
    }

    /// By the compiler in this file, as [`RtcLibrary::load_from`].
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

    /// The compiler, loaded by now.
    ///
    /// # Errors
    ///
    /// [`CompilerMissing`](ErrorCode::CompilerMissing), with all names that were tried.
    pub fn library(&self) -> Result<&RtcLibrary<R>, Error> {
        if let Some(library) = self.library.get() {
            return Ok(library);
        }
        let library = self.path.as_ref().map_or_else(RtcLibrary::load, RtcLibrary::load_from)?;
        if let Some(cache) = &self.cache {
            cache.put_facts(&self.asked(), library.facts());
        }
        // Of two threads that load it at one time both have the same library.
        Ok(self.library.get_or_init(|| library))
    }

    /// Compiles a source for devices of this architecture, or finds that it was.
    ///
    /// Takes 50 ms and more where it compiles, and less than 1 ms where it was kept, beside what reading the headers takes. With a cache they are read twice
    /// where it compiles: what was made while one of them changed is not kept.
    ///
    /// # Errors
    ///
    /// - [`CompilerMissing`](ErrorCode::CompilerMissing): there is no compiler.
    /// - [`CompileFailed`](ErrorCode::CompileFailed): with the compiler's log, up to [`LOG_BYTES_MAX`].
    /// - [`HeaderMissing`](ErrorCode::HeaderMissing): with the folders that were looked in, and the log as its source.
    /// - [`ArchUnsupported`](ErrorCode::ArchUnsupported): it cannot make anything for this one.
    /// - [`InvalidSetting`](ErrorCode::InvalidSetting): an option that has another way.
    #[expect(clippy::needless_pass_by_value, reason = "a value as any, of two bytes with CUDA")]
    pub fn compile(
        &self,
        source: &str,
        device: R::Arch,
        options: &CompileOptions,
    ) -> Result<Compiled<R>, Error> {
        self.made(source, &device, options).map(Compiled::new)
    }

    fn made(&self, source: &str, device: &R::Arch, options: &CompileOptions) -> Result<Arc<Made>, Error> {
        let kept = self.library.get().is_none().then(|| self.cache.as_ref()?.facts(&self.asked())).flatten();
        if let Some(facts) = kept {
            let work = self.work(&facts, source, device, options)?;
            if let Some(found) = work.key.and_then(|key| self.cache.as_ref()?.get(&key)) {
                return Ok(found);
            }
            // To be compiled: by the library that is there, which may be another one by now.
            let library = self.library()?;
            if *library.facts() == facts {
                return self.make(library, source, options, work);
            }
        }
        let library = self.library()?;
        let work = self.work(library.facts(), source, device, options)?;
        if let Some(found) = work.key.and_then(|key| self.cache.as_ref()?.get(&key)) {
            return Ok(found);
        }
        self.make(library, source, options, work)
    }

    /// What is to be done for a source, by a compiler of which this is known.
    fn work(
        &self,
        facts: &Facts,
        source: &str,
        device: &R::Arch,
        options: &CompileOptions,
    ) -> Result<Work, Error> {
        let target = R::target(device, facts, options)?;
        let any = headers::includes_any(source)
            || options.headers().iter().any(|(_, text)| headers::includes_any(text));
        let folders: Vec<PathBuf> = if any {
            options.folders().iter().cloned().chain(self.places.folders(&facts.path, R::TOOLKIT)).collect()
        } else {
            Vec::new()
        };
        let texts = options
            .texts::<R>(&target, folders.iter().filter(|folder| folder.is_dir()).map(PathBuf::as_path))?;
        let Some(cache) = &self.cache else {
            return Ok(Work { target, texts, folders, reached: Reached::default(), key: None });
        };
        let reached = headers::reached(source, options.headers(), &folders);
        let key = reached
            .all
            .then(|| Key::of(R::PREFIX, facts, &job::<R>(source, options, &texts, &target), &reached));
        if key.is_none() {
            cache.unkept();
        }
        Ok(Work { target, texts, folders, reached, key })
    }

    fn make(
        &self,
        library: &RtcLibrary<R>,
        source: &str,
        options: &CompileOptions,
        work: Work,
    ) -> Result<Arc<Made>, Error> {
        let Work { target, texts, folders, reached, key } = work;
        let output = compile(library, &job::<R>(source, options, &texts, &target))
            .map_err(|error| with_folders::<R>(error, options.shown_name::<R>(), &folders))?;
        let code =
            if target.is_machine_code { Some(Code::Machine(output.image)) } else { Code::text(output.image) };
        let code = code.ok_or_else(|| {
            let what = "a text that does not end with a zero";
            Error::new(ErrorCode::CompileFailed, [&R::NAME, &options.shown_name::<R>(), &"success", &what])
        })?;
        let compiled = Arc::new(Made { code, names: output.names, log: output.log });
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
            None => Key::asked(R::LIBRARIES.iter().copied()),
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

fn job<'a, R: RtcVendor>(
    source: &'a str,
    options: &'a CompileOptions,
    texts: &'a [String],
    target: &Target,
) -> Job<'a> {
    Job {
        name: options.shown_name::<R>(),
        source,
        headers: options.headers(),
        options: texts,
        instances: options.instances(),
        machine_code: target.is_machine_code,
    }
}

/// Of a header that is missing, where it was looked for.
#[cold]
fn with_folders<R: RtcVendor>(error: Error, name: &str, folders: &[PathBuf]) -> Error {
    if error.code() != ErrorCode::CompileFailed {
        return error;
    }
    let Some(header) = error.args().last().and_then(|log| headers::missing_in(log)) else { return error };
    let looked: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
    Error::new(ErrorCode::HeaderMissing, [&R::NAME, &name, &header, &looked.join(", ")]).with_source(error)
}

impl<R: RtcVendor> fmt::Debug for Compiler<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiler")
            .field("path", &self.path)
            .field("library", &self.library.get())
            .field("places", &self.places)
            .field("cache", &self.cache)
            .finish()
    }
}

impl<R: RtcVendor> crate::Module<R> {
    /// Compiles a source for the context's device, or finds that it was, and loads it.
    ///
    /// # Errors
    ///
    /// As [`Compiler::compile`] and [`Module::from_compiled`](crate::Module::from_compiled).
    pub fn from_source(
        context: &crate::Context<R>,
        compiler: &Compiler<R>,
        source: &str,
        options: &CompileOptions,
    ) -> Result<Self, Error> {
        Self::from_compiled(context, &compiler.compile(source, R::arch(context)?, options)?)
    }

    /// Loads what a compiler made.
    ///
    /// # Errors
    ///
    /// - [`InvalidImage`](ErrorCode::InvalidImage): it was made for another architecture.
    /// - [`Backend`](ErrorCode::Backend): the driver does not take it; with what its compiler says of a text. It may be older than the compiler.
    pub fn from_compiled(context: &crate::Context<R>, compiled: &Compiled<R>) -> Result<Self, Error> {
        let Made { code, names, .. } = compiled.made();
        match code {
            // SAFETY: the vendor's compiler wrote it, here or where a file was written whose hash it still has.
            Code::Machine(image) => unsafe { Self::image_with(context, image, names.clone()) },
            Code::Text(text) => R::load_text(context, text, names.clone()),
        }
    }
}

#[cfg(feature = "ops")]
impl<R: RtcVendor> crate::OpDevice<R> {
    /// Compiles a source for this device, or finds that it was, and loads it; it stays loaded, as what [`image`](Self::image) gives does.
    ///
    /// # Errors
    ///
    /// As [`Module::from_source`](crate::Module::from_source).
    pub fn compile(
        &self,
        compiler: &Compiler<R>,
        source: &str,
        options: &CompileOptions,
    ) -> Result<crate::Module<R>, Error> {
        crate::Module::from_source(self.context(), compiler, source, options).map(crate::Module::kept)
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
}
