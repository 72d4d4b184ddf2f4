//! Devices: who they are and what they can do.

use core::ffi::{CStr, c_char, c_int};
use core::fmt;

use wakeline_core::Error;
use wakeline_mapped::driver::Ordinal;
use wakeline_mapped::error::CallError;

use crate::arch::Arch;
use crate::caps::Caps;
use crate::cuda::Cuda;
use crate::sys::{CUDA_ERROR_INVALID_VALUE, CUdevice};

/// The longest name that is read, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Something that a driver tells of its devices as a number.
///
/// Those that are used here are named; any other is its number in `CUdevice_attribute` of NVIDIA's `cuda.h`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Attribute(pub i32);

impl Attribute {
    /// How many multiprocessors it has.
    pub const MULTIPROCESSORS: Self = Self(16);
    /// Not 0: it shares its memory with the host.
    pub const INTEGRATED: Self = Self(18);
    /// Not 0: it can use host memory at an address of its own.
    pub const MAPS_HOST_MEMORY: Self = Self(19);
    /// Not 0: host and device see memory at one address.
    pub const UNIFIED_ADDRESSING: Self = Self(41);
    /// The part of its compute capability before the dot.
    pub const COMPUTE_MAJOR: Self = Self(75);
    /// The part of its compute capability behind the dot.
    pub const COMPUTE_MINOR: Self = Self(76);
    /// Not 0: all blocks of a launch can be run at one time.
    pub const COOPERATIVE_LAUNCH: Self = Self(95);
    /// Bytes of shared memory that a block can have at most, where its kernel is set to take so much.
    pub const SHARED_BYTES_MAX: Self = Self(97);
    /// Not 0: its memory can be allocated and freed in the order of a stream.
    pub const MEMORY_POOLS: Self = Self(115);
    /// Not 0: blocks can be launched in clusters.
    pub const CLUSTER_LAUNCH: Self = Self(120);
    /// Not 0: its streams can store 64-bit words.
    pub const STORES_WORDS: Self = Self(122);
}

/// A device's lasting identity.
///
/// ```
/// # use wakeline_cuda::Uuid;
/// assert_eq!(Uuid([0xab; 16]).to_string(), "GPU-abababab-abab-abab-abab-abababababab");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 0 | 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// One device. Asking about it needs no context.
#[derive(Clone, Debug)]
pub struct Device {
    cuda: Cuda,
    ordinal: Ordinal,
    handle: CUdevice,
}

impl Device {
    pub(crate) fn new(cuda: Cuda, ordinal: Ordinal) -> Result<Self, Error> {
        let handle = cuda.device_of(ordinal)?;
        Ok(Self { cuda, ordinal, handle })
    }

    /// The device of the context that is bound.
    pub(crate) fn current(cuda: &Cuda) -> Result<Self, CallError> {
        let mut handle = 0;
        // SAFETY: `handle` is a handle's room; where no context is bound the driver says so.
        let status = unsafe { (cuda.symbols().cuCtxGetDevice)(&raw mut handle) };
        cuda.check("cuCtxGetDevice", status)?;
        // Handles of devices are their numbers.
        Ok(Self { cuda: cuda.clone(), ordinal: Ordinal(handle.unsigned_abs()), handle })
    }

    /// The driver's own handle.
    pub(crate) const fn handle(&self) -> CUdevice {
        self.handle
    }

    /// Its number.
    pub fn ordinal(&self) -> Ordinal {
        self.ordinal
    }

    /// Its driver.
    pub fn cuda(&self) -> &Cuda {
        &self.cuda
    }

    /// Its name: "NVIDIA H200".
    ///
    /// # Errors
    /// [`Backend`](wakeline_core::ErrorCode::Backend): the call failed.
    pub fn name(&self) -> Result<String, Error> {
        let mut text = [0u8; NAME_BYTES_MAX];
        let room = text.as_mut_ptr().cast::<c_char>();
        let length = c_int::try_from(text.len() - 1).unwrap_or(c_int::MAX);
        // SAFETY: the driver writes at most `length` bytes, fewer than `text` has.
        let status = unsafe { (self.cuda.symbols().cuDeviceGetName)(room, length, self.handle) };
        self.cuda.check("cuDeviceGetName", status)?;
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    /// Its lasting identity. Of a part of a partitioned device, the identity of that part.
    ///
    /// # Errors
    /// [`Backend`](wakeline_core::ErrorCode::Backend): the call failed, or the driver lacks [`Caps::UUIDS`].
    pub fn uuid(&self) -> Result<Uuid, Error> {
        let ask = self.cuda.symbols().cuDeviceGetUuid.ok_or_else(|| self.cuda.absent("cuDeviceGetUuid"))?;
        let mut uuid = Uuid([0; 16]);
        // SAFETY: `uuid` has the 16 bytes that are written.
        let status = unsafe { ask(&raw mut uuid.0, self.handle) };
        self.cuda.check("cuDeviceGetUuid", status)?;
        Ok(uuid)
    }

    /// What the driver tells of it.
    ///
    /// # Errors
    /// [`Backend`](wakeline_core::ErrorCode::Backend): the call failed, or the driver does not know this attribute.
    pub fn attribute(&self, attribute: Attribute) -> Result<i32, Error> {
        Ok(self.asked(attribute)?)
    }

    pub(crate) fn asked(&self, attribute: Attribute) -> Result<i32, CallError> {
        let mut value = 0;
        // SAFETY: `value` is a number's room; of an unknown attribute the driver says so.
        let status =
            unsafe { (self.cuda.symbols().cuDeviceGetAttribute)(&raw mut value, attribute.0, self.handle) };
        self.cuda.check("cuDeviceGetAttribute", status)?;
        Ok(value)
    }

    /// Whether an attribute that not all drivers know is there and set.
    pub(crate) fn is_set(&self, attribute: Attribute) -> Result<bool, CallError> {
        match self.asked(attribute) {
            Ok(value) => Ok(value != 0),
            Err(error) if error.status == CUDA_ERROR_INVALID_VALUE => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// As [`has_memory_pools`](Self::has_memory_pools).
    pub(crate) fn pools(&self) -> Result<bool, CallError> {
        Ok(self.cuda.caps().contains(Caps::MEMORY_POOLS) && self.is_set(Attribute::MEMORY_POOLS)?)
    }

    /// As [`arch`](Self::arch).
    pub(crate) fn capability(&self) -> Result<Arch, CallError> {
        let part = |attribute| self.asked(attribute).map(i32::unsigned_abs);
        Ok(Arch::new(part(Attribute::COMPUTE_MAJOR)?, part(Attribute::COMPUTE_MINOR)?))
    }

    /// Its compute capability: (9, 0) is 9.0.
    ///
    /// # Errors
    /// As [`attribute`](Self::attribute).
    pub fn compute_capability(&self) -> Result<(i32, i32), Error> {
        Ok((self.attribute(Attribute::COMPUTE_MAJOR)?, self.attribute(Attribute::COMPUTE_MINOR)?))
    }

    /// The same, as what code is compiled for.
    ///
    /// # Errors
    /// As [`attribute`](Self::attribute).
    pub fn arch(&self) -> Result<Arch, Error> {
        Ok(self.capability()?)
    }

    /// Whether driver and device say that streams can store words. Some say so and store nothing: try it.
    ///
    /// # Errors
    /// As [`attribute`](Self::attribute), but for a driver that does not know it.
    pub fn stores_words(&self) -> Result<bool, Error> {
        Ok(self.cuda.caps().contains(Caps::STORE_WORDS) && self.is_set(Attribute::STORES_WORDS)?)
    }

    /// Whether driver and device can allocate and free memory in the order of a stream.
    ///
    /// # Errors
    /// As [`attribute`](Self::attribute), but for a driver that does not know it.
    pub fn has_memory_pools(&self) -> Result<bool, Error> {
        Ok(self.pools()?)
    }

    /// Whether it can use the host's memory at all, as lines need it.
    ///
    /// # Errors
    /// As [`attribute`](Self::attribute).
    pub fn maps_host_memory(&self) -> Result<bool, Error> {
        Ok(self.is_set(Attribute::MAPS_HOST_MEMORY)?)
    }

    /// All of its memory, in bytes.
    ///
    /// # Errors
    /// [`Backend`](wakeline_core::ErrorCode::Backend): the call failed.
    pub fn total_memory(&self) -> Result<u64, Error> {
        let mut bytes: usize = 0;
        // SAFETY: `bytes` is a number's room.
        let status = unsafe { (self.cuda.symbols().cuDeviceTotalMem)(&raw mut bytes, self.handle) };
        self.cuda.check("cuDeviceTotalMem", status)?;
        Ok(bytes as u64)
    }

    /// Whether somebody holds a reference to its primary context.
    ///
    /// # Errors
    /// [`Backend`](wakeline_core::ErrorCode::Backend): the call failed.
    pub fn primary_context_is_active(&self) -> Result<bool, Error> {
        let (mut flags, mut active) = (0, 0);
        let ask = self.cuda.symbols().cuDevicePrimaryCtxGetState;
        // SAFETY: both are a number's room.
        let status = unsafe { ask(self.handle, &raw mut flags, &raw mut active) };
        self.cuda.check("cuDevicePrimaryCtxGetState", status)?;
        Ok(active != 0)
    }
}

impl Cuda {
    /// The driver's handle of a device.
    pub(crate) fn device_of(&self, ordinal: Ordinal) -> Result<CUdevice, CallError> {
        let mut device = 0;
        // A number beyond the driver's is not cut off to one that it has.
        let number = c_int::try_from(ordinal.0).unwrap_or(c_int::MAX);
        // SAFETY: `device` is a handle's room; of a number beyond its count the driver says so.
        let status = unsafe { (self.symbols().cuDeviceGet)(&raw mut device, number) };
        self.check("cuDeviceGet", status)?;
        Ok(device)
    }
}
