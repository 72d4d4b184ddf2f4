//! Loading the driver: from the name of its library to functions of known binary interfaces, or to an error that says why not.
//!
//! Steps: open the library, never the one that is for linking; ask its version; pin each function of the [table](crate::sys);
//! initialize; count devices. A function is pinned by `cuGetProcAddress`, by name and version, since the same name has had several
//! binary interfaces over time; and where that is absent, or does not know the function, by the name under which a library
//! exports that interface and no other. A plain name alone may bind an old variant that says `CUDA_ERROR_NOT_SUPPORTED`.
//!
//! Invariants: nothing is linked, no environment is read, no failure panics; an opened library is never closed.

use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};
use std::ffi::CString;
use std::path::{Path, PathBuf};

use wakeline_core::{Error, ErrorCode};
use wakeline_mapped::{Census, Opened, Wanted};

use crate::cuda::{Cuda, DriverVersion, Loaded};
use crate::error::BACKEND;
use crate::sys::{
    CU_GET_PROC_ADDRESS_DEFAULT, CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER,
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_STUB_LIBRARY,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, CUDA_SUCCESS, CUresult, DriverGetVersion, GetProcAddress,
    GetProcAddressV2, Symbols,
};

/// The driver's library, by the names that only a driver's installation has. `libcuda.so` is left out on purpose: it may be the
/// stub that a toolkit brings for linking.
const NAMES: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1"] };

/// The oldest driver in which every required function is sure to be.
const SUFFICIENT: DriverVersion = DriverVersion(12_000);

/// How the driver is loaded.
///
/// ```
/// use wakeline_core::ErrorCode;
/// use wakeline_cuda::Loader;
/// let error = Loader::new().path("no/such/libcuda.so.1").load().unwrap_err();
/// assert_eq!(error.code(), ErrorCode::LibraryMissing);
/// assert_eq!(error.args()[1], "no/such/libcuda.so.1");
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a loader loads nothing until it is told to"]
pub struct Loader {
    path: Option<PathBuf>,
    plain_names: bool,
}

impl Loader {
    /// A loader of the system's driver: `libcuda.so.1`, on Windows `nvcuda.dll`, from where the system looks for libraries.
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

    /// Pins functions by their exported names alone, as is done for drivers without `cuGetProcAddress`. For tests of that.
    pub fn without_proc_address(mut self) -> Self {
        self.plain_names = true;
        self
    }

    /// Loads the driver and initializes it.
    ///
    /// # Errors
    /// - [`LibraryMissing`](ErrorCode::LibraryMissing): no library of these names can be loaded.
    /// - [`SymbolMissing`](ErrorCode::SymbolMissing): it is not a driver's library.
    /// - [`LibraryStub`](ErrorCode::LibraryStub): it is the stub that a toolkit brings for linking.
    /// - [`DriverTooOld`](ErrorCode::DriverTooOld): a function is absent that drivers of CUDA 12.0 have, or the driver does not fit the
    ///   system's.
    /// - [`NoDevice`](ErrorCode::NoDevice): the driver finds none.
    /// - [`Backend`](ErrorCode::Backend): the driver fails to initialize for another reason.
    pub fn load(&self) -> Result<Cuda, Error> {
        let library = Driver(Opened::open(BACKEND, self.path.as_deref(), NAMES)?);
        let version = library.version();
        let pins = if self.plain_names { None } else { version.and_then(|version| library.pins(version)) };
        let find = |wanted: Wanted| {
            pins.as_ref().and_then(|pins| pins.find(wanted)).or_else(|| library.0.exported(wanted.exported))
        };
        // SAFETY: `cuGetProcAddress` gives the function of that name and version, a library exports it under the row's name for
        // that interface (both by NVIDIA's manual), and the library stays.
        let found = unsafe { Symbols::find(find) };
        let (symbols, caps) = found.map_err(|wanted| library.lacks(wanted, version))?;

        // SAFETY: 0 is the one flag there is; the call may be made any number of times, from any thread.
        let status = unsafe { (symbols.cuInit)(0) };
        if status != CUDA_SUCCESS {
            return Err(library.init_failed(&symbols, status, version));
        }
        let mut devices: c_int = 0;
        // SAFETY: the driver is initialized, and `devices` is a number's room.
        let status = unsafe { (symbols.cuDeviceGetCount)(&raw mut devices) };
        match status {
            CUDA_SUCCESS if devices > 0 => {}
            CUDA_SUCCESS => return Err(Error::new(ErrorCode::NoDevice, [&BACKEND, &"it counts 0 devices"])),
            CUDA_ERROR_NO_DEVICE => return Err(library.init_failed(&symbols, status, version)),
            _ => return Err(symbols.failure("cuDeviceGetCount", status).into()),
        }
        Ok(Cuda::new(Loaded {
            symbols,
            caps,
            census: Census::new(),
            version: version.unwrap_or(DriverVersion(0)),
            devices: devices.unsigned_abs(),
            library: library.0.name().to_owned(),
            #[cfg(feature = "cudarc")]
            found: crate::cudarc::Found::default(),
        }))
    }
}

impl Cuda {
    /// Loads the driver from this library and initializes it; for drivers that the system would not find, and for tests.
    ///
    /// # Errors
    /// As [`Loader::load`].
    pub fn load_from(path: impl AsRef<Path>) -> Result<Self, Error> {
        Loader::new().path(path.as_ref()).load()
    }
}

/// An opened library, asked as CUDA's driver.
struct Driver(Opened);

impl Driver {
    /// What the driver says of its version; a library without an answer is asked nothing by version.
    fn version(&self) -> Option<DriverVersion> {
        let address = self.0.exported("cuDriverGetVersion")?;
        // SAFETY: this name has had this one interface since CUDA 2.2.
        let ask = unsafe { core::mem::transmute::<*mut c_void, DriverGetVersion>(address.as_ptr()) };
        let mut version = 0;
        // SAFETY: it needs no `cuInit`, and `version` is a number's room.
        let status = unsafe { ask(&raw mut version) };
        (status == CUDA_SUCCESS && version > 0).then_some(DriverVersion(version))
    }

    /// The driver's own look-up.
    fn pins(&self, version: DriverVersion) -> Option<Pins> {
        let ask = if let Some(address) = self.0.exported("cuGetProcAddress_v2") {
            // SAFETY: this name has had this one interface since CUDA 12.0.
            Ask::V2(unsafe { core::mem::transmute::<*mut c_void, GetProcAddressV2>(address.as_ptr()) })
        } else {
            let address = self.0.exported("cuGetProcAddress")?;
            // SAFETY: this name has had this one interface since CUDA 11.3.
            Ask::V1(unsafe { core::mem::transmute::<*mut c_void, GetProcAddress>(address.as_ptr()) })
        };
        Some(Pins { ask, version })
    }

    /// The error of a library without a required function.
    fn lacks(&self, wanted: Wanted, version: Option<DriverVersion>) -> Error {
        if let Some(found) = version.filter(|version| *version < SUFFICIENT) {
            let found = format!("CUDA {found} without `{}`", wanted.exported);
            let needed = format!("CUDA {SUFFICIENT} or newer");
            return Error::new(ErrorCode::DriverTooOld, [&BACKEND, &found, &needed]);
        }
        let since = DriverVersion(wanted.version);
        let what = format!("all use of the device and is in every driver since CUDA {since}");
        Error::new(ErrorCode::SymbolMissing, [&BACKEND, &self.0.name(), &wanted.exported, &what])
    }

    /// The error of a driver that does not initialize, or initializes to nothing.
    fn init_failed(&self, symbols: &Symbols, status: CUresult, version: Option<DriverVersion>) -> Error {
        let error = symbols.failure("cuInit", status);
        let coded = match status {
            CUDA_ERROR_STUB_LIBRARY => Error::new(ErrorCode::LibraryStub, [&BACKEND, &self.0.name(), &error]),
            CUDA_ERROR_NO_DEVICE => Error::new(ErrorCode::NoDevice, [&BACKEND, &error]),
            CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER
            | CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
            | CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => {
                let version = version.map_or_else(|| "unknown".to_owned(), |version| version.to_string());
                let found = format!("{} of CUDA {version}, which says {error}", self.0.name());
                let needed = "a system's driver of the same release or newer";
                Error::new(ErrorCode::DriverTooOld, [&BACKEND, &found, &needed])
            }
            _ => return error.into(),
        };
        coded.with_source(error)
    }
}

/// `cuGetProcAddress`, and the newest version that may be asked for.
struct Pins {
    ask: Ask,
    version: DriverVersion,
}

enum Ask {
    V1(GetProcAddress),
    V2(GetProcAddressV2),
}

impl Pins {
    /// The function of this name with the interface of this version, if the driver knows it.
    fn find(&self, wanted: Wanted) -> Option<NonNull<c_void>> {
        // Asked for an interface that is newer than itself, a driver may give the newest that it has: another one.
        if wanted.version > self.version.0 {
            return None;
        }
        let name = CString::new(wanted.name).ok()?;
        let mut address = ptr::null_mut();
        let status = match self.ask {
            Ask::V1(ask) => {
                // SAFETY: `name` ends with a zero, `address` is a pointer's room; it needs no `cuInit`.
                unsafe { ask(name.as_ptr(), &raw mut address, wanted.version, CU_GET_PROC_ADDRESS_DEFAULT) }
            }
            Ask::V2(ask) => {
                let (flags, why_not) = (CU_GET_PROC_ADDRESS_DEFAULT, ptr::null_mut());
                // SAFETY: as above; the last argument may be null, since the null address says as much.
                unsafe { ask(name.as_ptr(), &raw mut address, wanted.version, flags, why_not) }
            }
        };
        NonNull::new(address).filter(|_| status == CUDA_SUCCESS)
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn a_required_function_that_is_absent_means_an_old_driver_or_none_at_all() {
        let library = Driver(Opened::open(BACKEND, Some(Path::new("libm.so.6")), &[]).unwrap());
        let wanted = Symbols::ROWS.iter().find(|row| row.name == "cuDevicePrimaryCtxRelease").unwrap();
        let old = library.lacks(*wanted, Some(DriverVersion(10_020)));
        assert_eq!(old.code(), ErrorCode::DriverTooOld);
        let said = ["cuda", "CUDA 10.2 without `cuDevicePrimaryCtxRelease_v2`", "CUDA 12.0 or newer"];
        assert_eq!(old.args(), said);
        for version in [None, Some(DriverVersion(12_000))] {
            let other = library.lacks(*wanted, version);
            assert_eq!(other.code(), ErrorCode::SymbolMissing);
            assert_eq!(other.args()[1..3], ["libm.so.6", "cuDevicePrimaryCtxRelease_v2"]);
            assert!(other.args()[3].ends_with("in every driver since CUDA 11.0"), "{other}");
        }
    }
}
