//! The loaded driver.

use core::fmt;
use std::sync::Arc;

use wakeline_core::Error;
use wakeline_mapped::Census;
use wakeline_mapped::driver::Ordinal;

use crate::caps::Caps;
use crate::device::Device;
use crate::load::Loader;
use crate::sys::Symbols;

/// A CUDA version: what the driver speaks, not the number of its release.
///
/// For reports. What can be done is in [`Caps`].
///
/// ```
/// # use wakeline_cuda::DriverVersion;
/// assert_eq!(DriverVersion(12_040).to_string(), "12.4");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DriverVersion(pub i32);

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1_000, self.0 % 1_000 / 10)
    }
}

/// The driver, loaded and initialized: its functions, what it can do, and what was counted. Cheap to clone.
///
/// It is a value of its user's: there is no other process-wide state than the library itself, which stays loaded, and this process's own number.
///
/// ```
/// use wakeline_core::ErrorCode;
/// use wakeline_cuda::Cuda;
/// match Cuda::load() {
///     Ok(cuda) => {
///         for device in cuda.devices() {
///             let device = device?;
///             println!("{}: {}", device.ordinal(), device.name()?);
///         }
///     }
///     Err(error) if error.code() == ErrorCode::LibraryMissing => println!("no driver here: {error}"),
///     Err(error) => println!("a driver that does not do: {error}"),
/// }
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Cuda {
    loaded: Arc<Loaded>,
}

/// What a load found.
pub(crate) struct Loaded {
    pub(crate) symbols: Symbols,
    pub(crate) caps: Caps,
    pub(crate) census: Census,
    pub(crate) version: DriverVersion,
    pub(crate) devices: u32,
    pub(crate) library: String,
    #[cfg(feature = "cudarc")]
    pub(crate) found: crate::cudarc::Found,
}

impl Cuda {
    pub(crate) fn new(loaded: Loaded) -> Self {
        Self { loaded: Arc::new(loaded) }
    }

    /// Loads the system's driver and initializes it.
    ///
    /// # Errors
    /// As [`Loader::load`].
    pub fn load() -> Result<Self, Error> {
        Loader::new().load()
    }

    /// The functions.
    pub(crate) fn symbols(&self) -> &Symbols {
        &self.loaded.symbols
    }

    /// The contexts that were found by their handles.
    #[cfg(feature = "cudarc")]
    pub(crate) fn found(&self) -> &crate::cudarc::Found {
        &self.loaded.found
    }

    /// What this driver can do.
    pub fn caps(&self) -> Caps {
        self.loaded.caps
    }

    /// What was counted of this driver.
    pub fn census(&self) -> &Census {
        &self.loaded.census
    }

    /// The CUDA version that the driver speaks; 0.0 where it does not say.
    pub fn version(&self) -> DriverVersion {
        self.loaded.version
    }

    /// The name or path by which the library was loaded.
    pub fn library(&self) -> &str {
        &self.loaded.library
    }

    /// How many devices there were when the driver was loaded; at least one.
    pub fn device_count(&self) -> u32 {
        self.loaded.devices
    }

    /// The devices, in the order of their numbers.
    pub fn devices(&self) -> impl Iterator<Item = Result<Device, Error>> + '_ {
        (0..self.device_count()).map(|ordinal| self.device(Ordinal(ordinal)))
    }

    /// The device of this number.
    ///
    /// # Errors
    /// [`Backend`](wakeline_core::ErrorCode::Backend): there is none, `CUDA_ERROR_INVALID_DEVICE`.
    pub fn device(&self, ordinal: Ordinal) -> Result<Device, Error> {
        Device::new(self.clone(), ordinal)
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda")
            .field("library", &self.library())
            .field("version", &self.version())
            .field("caps", &self.caps())
            .field("devices", &self.device_count())
            .finish_non_exhaustive()
    }
}
