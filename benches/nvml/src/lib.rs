//! How much energy an NVIDIA GPU has used: one counter of NVIDIA's management library, opened by its name at run time.
//!
//! ```no_run
//! use wakeline_nvml::{EnergyCounter, Gpu};
//! match EnergyCounter::open(None, &Gpu::Index(0)) {
//!     Ok(counter) => println!("{:?} mJ since the driver was loaded", counter.millijoules()),
//!     Err(absent) => println!("no energy is told: {absent}"),
//! }
//! ```
//!
//! Invariants: nothing is linked; an opened library is never closed, and stays initialized for as long as the process lives; a counter
//! that cannot be read is no number, never zero.

#![allow(unsafe_code, reason = "it calls a library's C interface")]

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use core::mem::ManuallyDrop;
use core::ptr;
use std::ffi::{CString, OsStr};
use std::path::Path;

use libloading::Library;

/// The library, by the name that a driver's installation gives it.
const NAME: &str = if cfg!(windows) { "nvml.dll" } else { "libnvidia-ml.so.1" };

/// `NVML_SUCCESS`.
const SUCCESS: c_int = 0;

type Device = *mut c_void;
type Init = unsafe extern "C" fn() -> c_int;
type ByIndex = unsafe extern "C" fn(c_uint, *mut Device) -> c_int;
type ByUuid = unsafe extern "C" fn(*const c_char, *mut Device) -> c_int;
type Energy = unsafe extern "C" fn(Device, *mut c_ulonglong) -> c_int;

/// Which GPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Gpu {
    /// By the library's own order, which is that of the bus.
    Index(u32),
    /// By its identity, `GPU-` and the rest: the order of CUDA's devices may be another.
    Uuid(String),
}

/// Why there is no counter.
#[derive(Debug, thiserror::Error)]
pub enum Absent {
    /// The library is not there, or has no such function.
    #[error("{0}")]
    Library(#[from] libloading::Error),
    /// A call of it failed.
    #[error("{call} says {status}")]
    Call {
        /// Its name.
        call: &'static str,
        /// What it returned: an `nvmlReturn_t`.
        status: i32,
    },
}

/// The counter of one GPU.
#[derive(Debug)]
pub struct EnergyCounter {
    /// Kept open for what `energy` points into.
    _library: ManuallyDrop<Library>,
    energy: Energy,
    device: Device,
}

impl EnergyCounter {
    /// Opens the library at `path`, or else the system's, and looks whether the counter of `gpu` can be read: GPUs before Volta have none.
    ///
    /// # Errors
    ///
    /// [`Absent`].
    pub fn open(path: Option<&Path>, gpu: &Gpu) -> Result<Self, Absent> {
        let name = path.map_or(OsStr::new(NAME), Path::as_os_str);
        // SAFETY: opening runs the library's initializers: those of the driver that the user has installed, or of the library that the user
        // names.
        let library = ManuallyDrop::new(unsafe { Library::new(name) }?);
        // SAFETY: by NVML's manual the function takes nothing and returns a status.
        let init = *unsafe { library.get::<Init>("nvmlInit_v2") }?;
        // SAFETY: by NVML's manual it takes a device and room for an unsigned long long.
        let energy = *unsafe { library.get::<Energy>("nvmlDeviceGetTotalEnergyConsumption") }?;
        // SAFETY: it may be called any number of times, from any thread.
        check("nvmlInit_v2", unsafe { init() })?;
        let device = find(&library, gpu)?;
        let counter = Self { _library: library, energy, device };
        counter.read().map(|_| counter)
    }

    /// What the GPU has used since its driver was loaded; `None` where the library fails to tell. Some microseconds to some hundreds; it changes
    /// every 20 to 100 ms.
    pub fn millijoules(&self) -> Option<u64> {
        self.read().ok()
    }

    fn read(&self) -> Result<u64, Absent> {
        let mut millijoules: c_ulonglong = 0;
        // SAFETY: the device is of this library, which is initialized, and `millijoules` is the number's room.
        let status = unsafe { (self.energy)(self.device, &raw mut millijoules) };
        check("nvmlDeviceGetTotalEnergyConsumption", status).map(|()| millijoules)
    }
}

/// The library's handle of the GPU.
fn find(library: &Library, gpu: &Gpu) -> Result<Device, Absent> {
    let mut device: Device = ptr::null_mut();
    match gpu {
        Gpu::Index(index) => {
            // SAFETY: by NVML's manual it takes a number and a handle's room.
            let by_index = *unsafe { library.get::<ByIndex>("nvmlDeviceGetHandleByIndex_v2") }?;
            // SAFETY: the library is initialized, and `device` is a handle's room.
            check("nvmlDeviceGetHandleByIndex_v2", unsafe { by_index(*index, &raw mut device) })?;
        }
        Gpu::Uuid(uuid) => {
            // SAFETY: by NVML's manual it takes a text that ends with a zero and a handle's room.
            let by_uuid = *unsafe { library.get::<ByUuid>("nvmlDeviceGetHandleByUUID") }?;
            // A text with a zero in it is no identity: 2 is NVML_ERROR_INVALID_ARGUMENT.
            let uuid = CString::new(uuid.as_str())
                .map_err(|_| Absent::Call { call: "nvmlDeviceGetHandleByUUID", status: 2 })?;
            // SAFETY: the library is initialized, `uuid` ends with a zero, and `device` is a handle's room.
            check("nvmlDeviceGetHandleByUUID", unsafe { by_uuid(uuid.as_ptr(), &raw mut device) })?;
        }
    }
    Ok(device)
}

fn check(call: &'static str, status: c_int) -> Result<(), Absent> {
    if status == SUCCESS { Ok(()) } else { Err(Absent::Call { call, status }) }
}
