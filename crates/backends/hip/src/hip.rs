//! The loaded library.

use core::fmt;
use std::sync::Arc;
#[cfg(feature = "ops")]
use std::sync::OnceLock;

use wakeline_core::Error;
use wakeline_mapped::Census;
use wakeline_mapped::driver::Ordinal;

use crate::caps::Caps;
use crate::device::Device;
#[cfg(feature = "ops")]
use crate::graphs::NodeNumbers;
use crate::load::Loader;
use crate::sys::Symbols;

/// A HIP version, as the library counts: 50221153 is 5.2.21153.
///
/// For reports. What can be done is in [`Caps`].
///
/// ```
/// # use wakeline_hip::HipVersion;
/// assert_eq!(HipVersion(60_443_484).to_string(), "6.4.43484");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HipVersion(pub i32);

impl fmt::Display for HipVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0 / 10_000_000, self.0 / 100_000 % 100, self.0 % 100_000)
    }
}

/// The library, loaded and initialized: its functions, what it can do, and what was counted. Cheap to clone.
///
/// It is a value of its user's: there is no other process-wide state than the library itself, which stays loaded, and this process's own number.
///
/// ```
/// use wakeline_core::ErrorCode;
/// use wakeline_hip::Hip;
/// match Hip::load() {
///     Ok(hip) => {
///         for device in hip.devices() {
///             let device = device?;
///             println!("{}: {}", device.ordinal(), device.name()?);
///         }
///     }
///     Err(error) if error.code() == ErrorCode::LibraryMissing => println!("no HIP here: {error}"),
///     Err(error) => println!("a HIP that does not do: {error}"),
/// }
/// # Ok::<(), wakeline_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Hip {
    loaded: Arc<Loaded>,
}

/// What a load found.
pub(crate) struct Loaded {
    pub(crate) symbols: Symbols,
    pub(crate) caps: Caps,
    pub(crate) census: Census,
    pub(crate) version: HipVersion,
    pub(crate) devices: u32,
    pub(crate) library: String,
    /// Unset until it is asked for.
    #[cfg(feature = "ops")]
    pub(crate) node_numbers: OnceLock<NodeNumbers>,
}

impl Hip {
    pub(crate) fn new(loaded: Loaded) -> Self {
        Self { loaded: Arc::new(loaded) }
    }

    /// Loads the system's library and initializes it.
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

    /// How kinds of nodes are numbered, where that was asked for.
    #[cfg(feature = "ops")]
    pub(crate) fn node_numbers_known(&self) -> &OnceLock<NodeNumbers> {
        &self.loaded.node_numbers
    }

    /// What this library can do.
    pub fn caps(&self) -> Caps {
        self.loaded.caps
    }

    /// What was counted of this driver.
    pub fn census(&self) -> &Census {
        &self.loaded.census
    }

    /// The HIP version that it is of.
    pub fn version(&self) -> HipVersion {
        self.loaded.version
    }

    /// The name or path by which it was loaded.
    pub fn library(&self) -> &str {
        &self.loaded.library
    }

    /// How many devices there were when it was loaded; at least one.
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
    /// [`Backend`](wakeline_core::ErrorCode::Backend): there is none, `hipErrorInvalidDevice`.
    pub fn device(&self, ordinal: Ordinal) -> Result<Device, Error> {
        Ok(Device::new(self, ordinal)?)
    }
}

impl fmt::Debug for Hip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hip")
            .field("library", &self.library())
            .field("version", &self.version())
            .field("caps", &self.caps())
            .field("devices", &self.device_count())
            .finish_non_exhaustive()
    }
}
