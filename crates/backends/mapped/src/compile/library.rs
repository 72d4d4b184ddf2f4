//! The compiler's library, loaded by its name: from that to functions of known interfaces, or to an error that says why not.
//!
//! Invariants: nothing is linked, no environment is read, no failure panics; an opened library is never closed, for it keeps threads and tables of its own.

use core::ffi::{CStr, c_int, c_void};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::Library;
use wakeline_core::{Error, ErrorCode};

use super::sys::{Functions, RtcResult, SUCCESS};
use super::vendor::RtcVendor;

/// How many architectures a compiler may say it knows.
const ARCHS_MAX: c_int = 1_024;

/// Which release a compiler is of.
///
/// ```
/// # use wakeline_mapped::compile::CompilerVersion;
/// assert_eq!(CompilerVersion { major: 13, minor: 1 }.to_string(), "13.1");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CompilerVersion {
    /// The part before the dot.
    pub major: u32,
    /// The part behind the dot.
    pub minor: u32,
}

impl fmt::Display for CompilerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A vendor's run-time compiler, loaded. Cheap to clone; its calls may be made from any thread.
///
/// It needs no driver and no device.
pub struct RtcLibrary<R> {
    loaded: Arc<Loaded>,
    vendor: PhantomData<fn() -> R>,
}

impl<R> Clone for RtcLibrary<R> {
    fn clone(&self) -> Self {
        Self { loaded: Arc::clone(&self.loaded), vendor: PhantomData }
    }
}

struct Loaded {
    functions: Functions,
    facts: Facts,
}

/// What is known of a compiler without loading it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Its release.
    pub version: CompilerVersion,
    /// The numbers of the architectures that it knows, in their order; none where it does not tell.
    pub archs: Vec<u32>,
    /// The file that it is in, as the system's loader names it.
    pub path: PathBuf,
}

impl<R: RtcVendor> RtcLibrary<R> {
    /// Loads the first of the vendor's libraries that the system finds, by the names in [`RtcVendor::LIBRARIES`].
    ///
    /// # Errors
    ///
    /// [`CompilerMissing`](ErrorCode::CompilerMissing): no library of these names can be loaded, or one lacks a function that is used.
    pub fn load() -> Result<Self, Error> {
        Self::of(R::LIBRARIES.iter().map(OsStr::new))
    }

    /// Loads this library, and no other. It runs with all rights of the process: name none that you would not link.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub fn load_from(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::of([path.as_ref().as_os_str()].into_iter())
    }

    fn of<'n>(names: impl Iterator<Item = &'n OsStr> + Clone) -> Result<Self, Error> {
        let tried: Vec<_> = names.clone().map(OsStr::to_string_lossy).collect();
        let mut said = Vec::new();
        for name in names {
            match Self::open(name) {
                Ok(library) => return Ok(library),
                Err(why_not) => said.push(why_not),
            }
        }
        // The same words of the system for several names are said once.
        said.dedup();
        Err(Error::new(ErrorCode::CompilerMissing, [&R::NAME, &tried.join(", "), &said.join("; ")]))
    }

    /// # Errors
    ///
    /// Why it cannot be had.
    fn open(name: &OsStr) -> Result<Self, String> {
        // The system opens the program itself for an empty name.
        if name.is_empty() {
            return Err("a library has a name".to_owned());
        }
        // SAFETY: opening runs the library's initializers: those of a compiler that the user has installed, or of the library that the user names, who is told so.
        let library =
            unsafe { Library::new(name) }.map_err(|error| match core::error::Error::source(&error) {
                Some(source) => source.to_string(),
                None => error.to_string(),
            })?;
        // It is never closed, on purpose.
        let library = ManuallyDrop::new(library);
        let exported = |name: &str| {
            // SAFETY: the symbol is taken as an address without a type, which any symbol has.
            let symbol = unsafe { library.get::<*mut c_void>(name) }.ok()?;
            NonNull::new(*symbol)
        };
        let shown = name.to_string_lossy();
        // SAFETY: a library exports the compiler's functions under their names, and stays.
        let functions = unsafe { Functions::find::<R>(exported) }.map_err(|absent| {
            format!("{shown} has no `{absent}`, as every {} {} has", R::COMPILER, R::SINCE)
        })?;
        let version = format!("{}Version", R::PREFIX);
        let path = exported(&version).and_then(file_of).unwrap_or_else(|| PathBuf::from(name));
        let facts = facts::<R>(&functions, path).map_err(|what| format!("{shown} fails in {what}"))?;
        Ok(Self { loaded: Arc::new(Loaded { functions, facts }), vendor: PhantomData })
    }

    /// Its release.
    pub fn version(&self) -> CompilerVersion {
        self.loaded.facts.version
    }

    /// The architectures that it compiles for, in the order of their numbers; none where it does not tell.
    pub fn archs(&self) -> Vec<R::Arch> {
        self.loaded.facts.archs.iter().map(|number| R::arch_of_number(*number)).collect()
    }

    /// The file that it is in.
    pub fn path(&self) -> &Path {
        &self.loaded.facts.path
    }

    pub(super) fn functions(&self) -> &Functions {
        &self.loaded.functions
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.loaded.facts
    }

    /// What the compiler calls a result: `NVRTC_ERROR_COMPILATION`.
    #[cold]
    pub(super) fn called(&self, result: RtcResult) -> String {
        // SAFETY: it takes any number, and gives a text that stays, or null.
        let text = unsafe { (self.functions().says)(result) };
        if text.is_null() {
            return format!("{}Result {result}", R::PREFIX);
        }
        // SAFETY: it is not null, so it is a text that ends with a zero and stays.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }
}

impl<R: RtcVendor> fmt::Debug for RtcLibrary<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(R::COMPILER).field(self.facts()).finish()
    }
}

/// # Errors
///
/// The call that failed, and how.
fn facts<R: RtcVendor>(functions: &Functions, path: PathBuf) -> Result<Facts, String> {
    let checked = |call: &str, result: RtcResult| match result {
        SUCCESS => Ok(()),
        failed => Err(format!("{}{call} ({failed})", R::PREFIX)),
    };
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are a number's room.
    let result = unsafe { (functions.version)(&raw mut major, &raw mut minor) };
    checked("Version", result)?;
    let version = CompilerVersion { major: major.unsigned_abs(), minor: minor.unsigned_abs() };
    let Some((number_of, ask)) = functions.archs else {
        return Ok(Facts { version, archs: Vec::new(), path });
    };
    let mut count = 0;
    // SAFETY: `count` is a number's room.
    let result = unsafe { number_of(&raw mut count) };
    checked("GetNumSupportedArchs", result)?;
    let count = usize::try_from(count.clamp(0, ARCHS_MAX)).unwrap_or_default();
    // One more than it says, should it be one that counts wrongly.
    let mut numbers = vec![0; count + 1];
    // SAFETY: there is room for as many numbers as the call before said.
    let result = unsafe { ask(numbers.as_mut_ptr()) };
    checked("GetSupportedArchs", result)?;
    numbers.truncate(count);
    numbers.sort_unstable();
    let archs = numbers.into_iter().map(|number: c_int| number.unsigned_abs()).collect();
    Ok(Facts { version, archs, path })
}

/// The file that a function is in, where the system tells.
#[cfg(unix)]
fn file_of(function: NonNull<c_void>) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: it only looks the address up among the libraries that are loaded, and `info` is such a struct's room.
    let found = unsafe { libc::dladdr(function.as_ptr(), info.as_mut_ptr()) };
    if found == 0 {
        return None;
    }
    // SAFETY: all of it is pointers, which were zero and may have been written.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: it is not null, so it is the name of a library's file, which stays as long as the library does.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

#[cfg(not(unix))]
fn file_of(_: NonNull<c_void>) -> Option<PathBuf> {
    None
}
