//! The part of the management library `libnvidia-ml.so.1` that benchmarks read: device 0 has used 100 W since this library was first asked.
//!
//! It is apart from the driver's symbols: no rule fits its calls, and no log has them.
#![allow(unsafe_code, non_snake_case)]

use core::ffi::{c_char, c_int, c_uint, c_ulonglong};
use std::ffi::CStr;
use std::sync::OnceLock;
use std::time::Instant;

/// What the one device's handle is.
const DEVICE: usize = 0x6e76_0001;

/// Its identity.
const UUID: &CStr = c"GPU-fa4e0000-0000-0000-0000-000000000000";

const SUCCESS: c_int = 0;
const UNINITIALIZED: c_int = 1;
const INVALID_ARGUMENT: c_int = 2;
const NOT_FOUND: c_int = 6;

const WATTS: u128 = 100;

static BEGAN: OnceLock<Instant> = OnceLock::new();

// SAFETY: the name is the management library's own, and this library is loaded in its place, into a scope of its own.
#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> c_int {
    BEGAN.get_or_init(Instant::now);
    SUCCESS
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut usize) -> c_int {
    if index != 0 || out.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller promises a handle's room.
    unsafe { out.write(DEVICE) };
    SUCCESS
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut usize) -> c_int {
    if uuid.is_null() || out.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller promises a text that ends with a zero.
    if unsafe { CStr::from_ptr(uuid) } != UUID {
        return NOT_FOUND;
    }
    // SAFETY: the caller promises a handle's room.
    unsafe { out.write(DEVICE) };
    SUCCESS
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTotalEnergyConsumption(device: usize, out: *mut c_ulonglong) -> c_int {
    let Some(began) = BEGAN.get() else { return UNINITIALIZED };
    if device != DEVICE || out.is_null() {
        return INVALID_ARGUMENT;
    }
    // A watt is a millijoule a millisecond.
    let millijoules = began.elapsed().as_micros() * WATTS / 1_000;
    // SAFETY: the caller promises a number's room.
    unsafe { out.write(c_ulonglong::try_from(millijoules).unwrap_or(c_ulonglong::MAX)) };
    SUCCESS
}
