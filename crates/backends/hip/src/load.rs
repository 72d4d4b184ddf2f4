//! Loading the library: from its name to functions, or to an error that says why not.
//!
//! Steps: open the library by its names, the newest first; look each function of the [table](crate::sys) up by its name; initialize; count devices.
//!
//! Invariants: nothing is linked, no environment is read, no failure panics; an opened library is never closed.

use core::ffi::c_int;
use std::path::{Path, PathBuf};

use wakeline_core::{Error, ErrorCode};
use wakeline_mapped::{Census, Opened, Wanted};

use crate::error::BACKEND;
use crate::hip::{Hip, HipVersion, Loaded};
use crate::sys::{INSUFFICIENT_DRIVER, INVALID_DEVICE, NO_DEVICE, SUCCESS, Symbols, hipError_t};

/// The library by its names, in this order. The last is that of a development package, for want of the others.
pub(crate) const NAMES: &[&str] = if cfg!(windows) {
    &["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"]
} else {
    &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"]
};

/// How the library is loaded.
///
/// ```
/// use wakeline_core::ErrorCode;
/// use wakeline_hip::Loader;
/// let error = Loader::new().path("no/such/libamdhip64.so").load().unwrap_err();
/// assert_eq!(error.code(), ErrorCode::LibraryMissing);
/// assert_eq!(error.args()[1], "no/such/libamdhip64.so");
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a loader loads nothing until it is told to"]
pub struct Loader {
    path: Option<PathBuf>,
    without: Vec<String>,
}

impl Loader {
    /// A loader of the system's library: the first of `libamdhip64.so.7`, `.so.6`, `.so.5` and `libamdhip64.so` that the system finds; on Windows of
    /// `amdhip64_7.dll`, `amdhip64_6.dll` and `amdhip64.dll`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Loads this library instead, and no other.
    ///
    /// It runs with all rights of the process: name none that you would not link.
    pub fn path(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Does not find these functions, as in libraries that do not have them. For tests of that.
    pub fn without<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.without.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// Loads the library and initializes it.
    ///
    /// # Errors
    /// - [`LibraryMissing`](ErrorCode::LibraryMissing): no library of these names can be loaded.
    /// - [`SymbolMissing`](ErrorCode::SymbolMissing): it lacks a function that waiting needs.
    /// - [`DriverTooOld`](ErrorCode::DriverTooOld): the system's kernel driver does not do for it.
    /// - [`NoDevice`](ErrorCode::NoDevice): it finds none.
    /// - [`Backend`](ErrorCode::Backend): it fails to initialize for another reason.
    pub fn load(&self) -> Result<Hip, Error> {
        let library = Opened::open(BACKEND, self.path.as_deref(), NAMES)?;
        let find = |wanted: Wanted| {
            let hidden = self.without.iter().any(|name| name == wanted.exported);
            if hidden { None } else { library.exported(wanted.exported) }
        };
        // SAFETY: HIP exports each of these names with this one interface (`hipGetDeviceProperties` by another name where that has changed), and the library stays.
        let (symbols, caps) = unsafe { Symbols::find(find) }.map_err(|wanted| lacks(&library, wanted))?;
        // SAFETY: 0 is the one flag there is; the call may be made any number of times, from any thread.
        let status = unsafe { (symbols.hipInit)(0) };
        if status != SUCCESS {
            return Err(init_failed(&symbols, &library, "hipInit", status));
        }
        let mut devices: c_int = 0;
        // SAFETY: `devices` is a number's room.
        let status = unsafe { (symbols.hipGetDeviceCount)(&raw mut devices) };
        match status {
            SUCCESS if devices > 0 => {}
            SUCCESS => return Err(Error::new(ErrorCode::NoDevice, [&BACKEND, &"it counts 0 devices"])),
            _ => return Err(init_failed(&symbols, &library, "hipGetDeviceCount", status)),
        }
        let mut version = 0;
        // SAFETY: `version` is a number's room.
        let status = unsafe { (symbols.hipDriverGetVersion)(&raw mut version) };
        if status != SUCCESS {
            version = 0;
        }
        Ok(Hip::new(Loaded {
            symbols,
            caps,
            census: Census::new(),
            version: HipVersion(version),
            devices: devices.unsigned_abs(),
            library: library.name().to_owned(),
            #[cfg(feature = "ops")]
            node_numbers: std::sync::OnceLock::new(),
        }))
    }
}

impl Hip {
    /// Loads this library and initializes it; for one that the system would not find, and for tests.
    ///
    /// # Errors
    /// As [`Loader::load`].
    pub fn load_from(path: impl AsRef<Path>) -> Result<Self, Error> {
        Loader::new().path(path.as_ref()).load()
    }
}

/// The error of a library without a required function.
fn lacks(library: &Opened, wanted: Wanted) -> Error {
    let (major, minor) = (wanted.version / 1_000, wanted.version % 1_000 / 10);
    let what = format!("all use of the device and is in every HIP since {major}.{minor}");
    Error::new(ErrorCode::SymbolMissing, [&BACKEND, &library.name(), &wanted.exported, &what])
}

/// The error of a library that does not initialize, or initializes to nothing.
fn init_failed(symbols: &Symbols, library: &Opened, call: &'static str, status: hipError_t) -> Error {
    let error = symbols.failure(call, status);
    let coded = match status {
        // Which of the two it says depends on what it found of the system's driver.
        NO_DEVICE | INVALID_DEVICE => Error::new(ErrorCode::NoDevice, [&BACKEND, &error]),
        INSUFFICIENT_DRIVER => {
            let found = format!("{}, which says {error}", library.name());
            let needed = "a kernel driver of the same release or newer";
            Error::new(ErrorCode::DriverTooOld, [&BACKEND, &found, &needed])
        }
        _ => return error.into(),
    };
    coded.with_source(error)
}
