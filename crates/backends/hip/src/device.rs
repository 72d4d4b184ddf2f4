//! Devices: who they are and what they can do.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt;

use wakeline_core::Error;
use wakeline_mapped::driver::Ordinal;
use wakeline_mapped::error::CallError;

use crate::caps::Caps;
use crate::hip::Hip;
use crate::sys::{
    ARCH_NAME_AT_R0000, ARCH_NAME_AT_R0600, ARCH_NAME_BYTES, ATTRIBUTE_COMPUTE_MAJOR,
    ATTRIBUTE_COMPUTE_MINOR, ATTRIBUTE_COOPERATIVE_LAUNCH, ATTRIBUTE_INTEGRATED, ATTRIBUTE_MAPS_HOST_MEMORY,
    ATTRIBUTE_MEMORY_POOLS, ATTRIBUTE_MULTIPROCESSORS, ATTRIBUTE_SHARED_BYTES, ATTRIBUTE_UNIFIED_ADDRESSING,
    ATTRIBUTE_WAITS_FOR_WORDS, ATTRIBUTE_WARP, INVALID_DEVICE, INVALID_VALUE, PROPERTIES_BYTES, hipDevice_t,
};

/// What is in the room for a device's number before a call: the number of another is not taken for one that was given.
pub(crate) const NO_SUCH_DEVICE: c_int = -1;

/// The longest name that is read, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Something that a library tells of its devices as a number.
///
/// Those that are used here are named; any other is its number in `hipDeviceAttribute_t` of AMD's `hip_runtime_api.h`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Attribute(pub u32);

impl Attribute {
    /// Not 0: it can use host memory at an address of its own.
    pub const MAPS_HOST_MEMORY: Self = Self(ATTRIBUTE_MAPS_HOST_MEMORY);
    /// Not 0: all blocks of a launch can be run at one time.
    pub const COOPERATIVE_LAUNCH: Self = Self(ATTRIBUTE_COOPERATIVE_LAUNCH);
    /// Not 0: it shares its memory with the host.
    pub const INTEGRATED: Self = Self(ATTRIBUTE_INTEGRATED);
    /// The part of its compute capability before the dot: 9 for gfx90a.
    pub const COMPUTE_MAJOR: Self = Self(ATTRIBUTE_COMPUTE_MAJOR);
    /// The part of its compute capability behind the dot.
    pub const COMPUTE_MINOR: Self = Self(ATTRIBUTE_COMPUTE_MINOR);
    /// How many compute units it has.
    pub const MULTIPROCESSORS: Self = Self(ATTRIBUTE_MULTIPROCESSORS);
    /// Bytes of shared memory that a block can have at most.
    pub const SHARED_BYTES_MAX: Self = Self(ATTRIBUTE_SHARED_BYTES);
    /// Not 0: host and device see memory at one address.
    pub const UNIFIED_ADDRESSING: Self = Self(ATTRIBUTE_UNIFIED_ADDRESSING);
    /// How many threads run in step.
    pub const WARP: Self = Self(ATTRIBUTE_WARP);
    /// Not 0: its memory can be allocated and freed in the order of a stream.
    pub const MEMORY_POOLS: Self = Self(ATTRIBUTE_MEMORY_POOLS);
    /// Not 0: its streams can wait for words.
    pub const WAITS_FOR_WORDS: Self = Self(ATTRIBUTE_WAITS_FOR_WORDS);
}

/// What a device is, and what code is compiled for: "gfx90a:sramecc+:xnack-".
///
/// ```
/// use wakeline_hip::GfxArch;
/// let arch = GfxArch::new("gfx90a:sramecc+:xnack-");
/// assert_eq!((arch.to_string(), arch.processor()), ("gfx90a:sramecc+:xnack-".to_owned(), "gfx90a"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GfxArch(String);

impl GfxArch {
    /// An architecture as compilers write it, with its features where they are settled.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The part without features.
    pub fn processor(&self) -> &str {
        self.0.split(':').next().unwrap_or_default()
    }
}

impl fmt::Display for GfxArch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One device. Asking about it leaves the thread's current device as it is.
#[derive(Clone, Debug)]
pub struct Device {
    hip: Hip,
    ordinal: Ordinal,
    handle: hipDevice_t,
}

impl Device {
    pub(crate) fn new(hip: &Hip, ordinal: Ordinal) -> Result<Self, CallError> {
        let handle = hip.device_of(ordinal)?;
        Ok(Self { hip: hip.clone(), ordinal, handle })
    }

    /// The device that is current on this thread.
    pub(crate) fn current(hip: &Hip) -> Result<Self, CallError> {
        Self::new(hip, hip.current_device()?)
    }

    /// Its number.
    pub fn ordinal(&self) -> Ordinal {
        self.ordinal
    }

    /// Its library.
    pub fn hip(&self) -> &Hip {
        &self.hip
    }

    /// Its name: "AMD Instinct MI300X".
    ///
    /// # Errors
    /// [`Backend`](wakeline_core::ErrorCode::Backend): the call failed.
    pub fn name(&self) -> Result<String, Error> {
        let mut text = [0u8; NAME_BYTES_MAX];
        let room = text.as_mut_ptr().cast::<c_char>();
        let length = c_int::try_from(text.len() - 1).unwrap_or(c_int::MAX);
        // SAFETY: at most `length` bytes are written, fewer than `text` has.
        let status = unsafe { (self.hip.symbols().hipDeviceGetName)(room, length, self.handle) };
        self.hip.check("hipDeviceGetName", status)?;
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    /// What the library tells of it.
    ///
    /// # Errors
    /// [`Backend`](wakeline_core::ErrorCode::Backend): the call failed, or the library does not know this attribute.
    pub fn attribute(&self, attribute: Attribute) -> Result<i32, Error> {
        Ok(self.asked(attribute)?)
    }

    pub(crate) fn asked(&self, attribute: Attribute) -> Result<i32, CallError> {
        let mut value = 0;
        let ask = self.hip.symbols().hipDeviceGetAttribute;
        // SAFETY: `value` is a number's room; of an unknown attribute the library says so.
        let status = unsafe { ask(&raw mut value, attribute.0, self.handle) };
        self.hip.check("hipDeviceGetAttribute", status)?;
        Ok(value)
    }

    /// Whether an attribute that not all libraries know is there and set.
    pub(crate) fn is_set(&self, attribute: Attribute) -> Result<bool, CallError> {
        match self.asked(attribute) {
            Ok(value) => Ok(value != 0),
            Err(error) if error.status == INVALID_VALUE => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn pools(&self) -> Result<bool, CallError> {
        Ok(self.hip.caps().contains(Caps::MEMORY_POOLS) && self.is_set(Attribute::MEMORY_POOLS)?)
    }

    /// Whether library and device can allocate and free memory in the order of a stream.
    ///
    /// # Errors
    /// As [`attribute`](Self::attribute), but for a library that does not know it.
    pub fn has_memory_pools(&self) -> Result<bool, Error> {
        Ok(self.pools()?)
    }

    /// Whether library and device say that streams can wait for words.
    ///
    /// # Errors
    /// As [`attribute`](Self::attribute), but for a library that does not know it.
    pub fn waits_for_words(&self) -> Result<bool, Error> {
        Ok(self.hip.caps().contains(Caps::WAIT_WORDS) && self.is_set(Attribute::WAITS_FOR_WORDS)?)
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
        let status = unsafe { (self.hip.symbols().hipDeviceTotalMem)(&raw mut bytes, self.handle) };
        self.hip.check("hipDeviceTotalMem", status)?;
        Ok(bytes as u64)
    }

    /// What it is, as compilers write it.
    ///
    /// # Errors
    /// [`Backend`](wakeline_core::ErrorCode::Backend): the call failed, or the library does not tell.
    pub fn arch(&self) -> Result<GfxArch, Error> {
        Ok(self.gfx()?)
    }

    pub(crate) fn gfx(&self) -> Result<GfxArch, CallError> {
        let symbols = self.hip.symbols();
        let older = || {
            let call = "hipGetDeviceProperties";
            Ok((call, self.hip.had(call, symbols.hipGetDeviceProperties)?, ARCH_NAME_AT_R0000))
        };
        let newer = symbols.hipGetDevicePropertiesR0600;
        let (call, ask, at) =
            newer.map_or_else(older, |ask| Ok(("hipGetDevicePropertiesR0600", ask, ARCH_NAME_AT_R0600)))?;
        // Numbers of 64 bits, to be aligned as the properties' own are.
        let mut properties = vec![0_u64; PROPERTIES_BYTES / size_of::<u64>()];
        let room = properties.as_mut_ptr().cast::<c_void>();
        // SAFETY: the room is longer than the properties of any version, and aligned as they are.
        let status = unsafe { ask(room, self.handle) };
        self.hip.check(call, status)?;
        let bytes: Vec<u8> = properties.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let text = bytes.get(at..at + ARCH_NAME_BYTES).unwrap_or_default();
        let text = CStr::from_bytes_until_nul(text).unwrap_or_default().to_string_lossy();
        Ok(GfxArch::new(text))
    }
}

impl Hip {
    /// The library's handle of a device: its number, where there is one.
    pub(crate) fn device_of(&self, ordinal: Ordinal) -> Result<hipDevice_t, CallError> {
        let mut device = NO_SUCH_DEVICE;
        // A number beyond the library's is not cut off to one that it has.
        let number = c_int::try_from(ordinal.0).unwrap_or(c_int::MAX);
        // SAFETY: `device` is a handle's room; of a number beyond its count the library says so.
        let status = unsafe { (self.symbols().hipDeviceGet)(&raw mut device, number) };
        self.check("hipDeviceGet", status)?;
        self.ordinal("hipDeviceGet", device).map(|_| device)
    }

    /// This thread's device.
    pub(crate) fn current_device(&self) -> Result<Ordinal, CallError> {
        let mut device = NO_SUCH_DEVICE;
        // SAFETY: `device` is a number's room.
        let status = unsafe { (self.symbols().hipGetDevice)(&raw mut device) };
        self.check("hipGetDevice", status)?;
        self.ordinal("hipGetDevice", device)
    }

    /// What a call gave as a device's number.
    pub(crate) fn ordinal(&self, call: &'static str, device: c_int) -> Result<Ordinal, CallError> {
        u32::try_from(device).map(Ordinal).map_err(|_| {
            let text = format!("it said success, but {device} is no device's number");
            CallError { text, ..self.symbols().failure(call, INVALID_DEVICE) }
        })
    }
}
